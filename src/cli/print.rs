//! Colours and the ways to print. `anstream` strips colours where nobody can see them (no terminal,
//! `NO_COLOR`).

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use super::Failed;
use crate::model::{PhaseName, Status};

pub(super) const BOLD: Style = Style::new().bold();
pub(super) const DIM: Style = Style::new().dimmed();
pub(super) const RED: Style = AnsiColor::Red.on_default();
pub(super) const GREEN: Style = AnsiColor::Green.on_default();
pub(super) const YELLOW: Style = AnsiColor::Yellow.on_default();
pub(super) const CYAN: Style = AnsiColor::Cyan.on_default();

pub(super) fn styled(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

pub(super) fn status_style(status: Status) -> Style {
    match status {
        Status::Connected => GREEN,
        Status::Disconnected => YELLOW,
        Status::Error => RED,
    }
}

pub(super) fn phase_style(phase: PhaseName) -> Style {
    match phase {
        PhaseName::Stopped => DIM,
        phase => status_style(phase.status()),
    }
}

/// One cause a line on stderr.
pub(super) fn error(line: &str) {
    // Nobody may be listening.
    let _ = writeln!(anstream::stderr(), "{}: {line}", styled(RED.bold(), "error"));
}

/// A line on stderr that is no error.
pub(super) fn note(line: &str) {
    // Nobody may be listening.
    let _ = writeln!(anstream::stderr(), "{}", styled(DIM, line));
}

/// Prints to stdout; a reader that went away is no error.
pub(super) fn out(text: &str) -> Result<(), Failed> {
    match anstream::stdout().write_all(text.as_bytes()).and_then(|()| anstream::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failed::new(format!("cannot print: {error}")))
        }
        _ => Ok(()),
    }
}

/// Bytes as they are, without a look at what is in them; false when the reader went away.
pub(super) fn raw(bytes: &[u8]) -> bool {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).is_ok()
}

/// JSON for programs: indented, since people look at it too.
pub(super) fn json(value: &impl serde::Serialize) -> Result<(), Failed> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| Failed::new(format!("cannot print: {error}")))?;
    out(&format!("{text}\n"))
}

/// Text of a member, made safe: it cannot move the cursor or colour what follows.
pub(super) fn safe(text: &str) -> String {
    let bidi =
        |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}');
    text.chars()
        .map(|c| if !matches!(c, '\n' | '\t') && (c.is_control() || bidi(c)) { '\u{fffd}' } else { c })
        .collect()
}

/// A piece of a log without the sequences that could steer a terminal, colours included.
pub(super) fn without_escapes(piece: &[u8]) -> Vec<u8> {
    let plain: Vec<u8> = anstream::adapter::strip_bytes(piece).into_vec();
    plain.into_iter().filter(|&byte| byte >= 0x20 || matches!(byte, b'\n' | b'\t')).collect()
}

/// The first line of a text, made safe.
pub(super) fn first_line(text: &str) -> String {
    safe(text.trim().lines().next().unwrap_or_default())
}

/// How wide the terminal is; columns. Wide, where there is none.
pub(super) fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout());
    size.ok().map(|size| usize::from(size.ws_col)).filter(|&columns| columns >= 20).unwrap_or(200)
}

/// Breaks at spaces, so that every line with its indent fits.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    use unicode_width::UnicodeWidthStr;
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() {
            line.push_str(word);
        } else if line.width() + 1 + word.width() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}
