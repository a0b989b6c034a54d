//! Secrets in the run directory: made at the first start, kept for the halls that follow, readable by their
//! owner alone.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::process::fault;

/// Printable, of 256 random bits.
#[derive(Clone)]
pub struct Secret(String);

/// What is shorter was not made by a hall; bytes.
const SHORTEST: usize = 32;

impl Secret {
    /// The one that stands in the file, or a new one.
    pub(super) fn keep(path: &Path) -> io::Result<Self> {
        match fs::read_to_string(path) {
            Ok(text) if text.trim().len() >= SHORTEST => return Ok(Self(text.trim().into())),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut bits = [0; 32];
        getrandom::fill(&mut bits).map_err(io::Error::other)?;
        let text: String = bits.iter().map(|byte| format!("{byte:02x}")).collect();
        // Whole or not at all.
        let next = path.with_extension("new");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = fault::attempt("make a secret", || options.open(&next))?;
        writeln!(file, "{text}")?;
        fault::attempt("rename a secret", || fs::rename(&next, path))?;
        Ok(Self(text))
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
