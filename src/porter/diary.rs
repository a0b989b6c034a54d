//! What a porter notes in the member's log, which is its stderr.

use std::fmt::Display;
use std::io::{self, Write};

/// A line. A log that cannot be written is nobody's concern.
pub(super) fn note(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// What a plugin has written itself.
pub(super) fn copy(words: &[u8]) {
    let _ = io::stderr().write_all(words);
}
