//! Columns that line up, whatever colours and letters are in them.

use anstyle::Style;
use unicode_width::UnicodeWidthStr;

use super::print::styled;

/// A text and its colour.
pub(super) struct Cell {
    text: String,
    style: Style,
}

pub(super) fn cell(text: impl ToString, style: Style) -> Cell {
    Cell { text: text.to_string(), style }
}

pub(super) fn plain(text: impl ToString) -> Cell {
    cell(text, Style::new())
}

/// Rows of cells, and lines that stand below a row on their own.
#[derive(Default)]
pub(super) struct Table {
    rows: Vec<Row>,
}

struct Row {
    cells: Vec<Cell>,
    below: Vec<String>,
}

impl Table {
    pub(super) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(Row { cells, below: Vec::new() });
    }

    /// A line below the last row.
    pub(super) fn below(&mut self, line: String) {
        if let Some(row) = self.rows.last_mut() {
            row.below.push(line);
        }
    }

    /// Columns of a terminal that its rows take; the lines below them are the caller's.
    pub(super) fn width(&self) -> usize {
        let columns = self.widths();
        columns.iter().sum::<usize>() + 2 * columns.len().saturating_sub(1)
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = Vec::new();
        for row in &self.rows {
            for (column, cell) in row.cells.iter().enumerate() {
                let width = cell.text.width();
                match widths.get_mut(column) {
                    Some(widest) => *widest = width.max(*widest),
                    None => widths.push(width),
                }
            }
        }
        widths
    }

    pub(super) fn render(&self) -> String {
        let widths = self.widths();
        let mut out = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.cells.iter().zip(&widths) {
                let padding = " ".repeat(width - cell.text.width() + 2);
                line.push_str(&styled(cell.style, &cell.text));
                line.push_str(&padding);
            }
            out.push_str(line.trim_end());
            out.push('\n');
            for line in &row.below {
                out.push_str(line);
                out.push('\n');
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_under_wide_letters() {
        let mut table = Table::default();
        table.row(vec![plain("NAME"), plain("X")]);
        table.row(vec![plain("天気"), plain("1")]);
        table.below("  why".into());
        table.row(vec![plain("a-longer-name"), plain("2")]);
        assert_eq!(table.render(), "NAME           X\n天気           1\n  why\na-longer-name  2\n");
    }
}
