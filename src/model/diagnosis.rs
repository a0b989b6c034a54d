//! Why a manifest cannot be used, or what about it looks wrong.

use std::fmt;
use std::path::PathBuf;

/// Line and column, both counted from 1; columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

/// One fault: where, in which field, what stands there and what would be right.
/// In text: `FILE:LINE:COLUMN: FIELD: MESSAGE`, without the parts that are not known.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Diagnosis {
    pub file: PathBuf,
    pub place: Option<Place>,
    /// A path into the document: `mcp.args[2]`.
    pub field: Option<String>,
    pub message: String,
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some(Place { line, column }) = self.place {
            write!(f, "{line}:{column}:")?;
        }
        if let Some(field) = &self.field {
            write!(f, " {field}:")?;
        }
        write!(f, " {}", self.message)
    }
}

/// All that makes a manifest unusable: at least one fault.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Rejection {
    pub first: Diagnosis,
    pub rest: Vec<Diagnosis>,
}

impl Rejection {
    pub fn all(&self) -> impl Iterator<Item = &Diagnosis> {
        std::iter::once(&self.first).chain(&self.rest)
    }
}

impl From<Diagnosis> for Rejection {
    fn from(first: Diagnosis) -> Self {
        Self { first, rest: Vec::new() }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first.fmt(f)?;
        match self.rest.len() {
            0 => Ok(()),
            more => write!(f, " (and {more} more: see `guild-hall check`)"),
        }
    }
}
