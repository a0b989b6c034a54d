//! The file that a member's stdout and stderr go to. A file and not a pipe: a plugin whose pipe has
//! lost its reader dies of its next line.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use super::fault;
use super::log_text::LogText;

/// As many lines of a failed launch are kept for the roster, each as long as this; characters.
const TAIL_LINES: usize = 20;
const LONGEST_LINE: usize = 500;
/// Read back from the end of a file for its last lines; bytes.
const TAIL_BYTES: u64 = 16 * 1024;

/// A member's log, and where the present launch begins in it. Not kept open: with hundreds of
/// members, every launch would have to close hundreds of descriptors in its child.
#[derive(Debug, Clone)]
pub struct LogFile {
    text: Arc<LogText>,
    start: u64,
}

impl LogFile {
    /// Opened for appending: several writers never overwrite each other, and it may be cut to
    /// nothing while they write.
    pub fn open(path: PathBuf) -> io::Result<(Self, File)> {
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600);
        let opened = fault::attempt("open a log", || options.open(&path));
        let file = opened.map_err(|error| {
            let hint = match error.kind() {
                io::ErrorKind::NotFound => {
                    "; the run directory is gone: stop the hall and start the hall again"
                }
                _ => "",
            };
            io::Error::new(error.kind(), format!("cannot open the log {}: {error}{hint}", path.display()))
        })?;
        let text = LogText::of(&path);
        let start = text.end();
        Ok((Self { text, start }, file))
    }

    /// The log of a launch that began at `start`.
    pub fn resume(path: PathBuf, start: u64) -> Self {
        Self { text: LogText::of(&path), start }
    }

    /// Where the present launch begins in it: a position that only grows; bytes.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The last lines of this launch, made safe to print.
    pub fn tail(&self) -> Arc<[String]> {
        let read = self.text.since(self.start, TAIL_BYTES);
        let (bytes, first_is_cut) = read.unwrap_or_default();
        lines(&bytes, first_is_cut, TAIL_LINES).into()
    }
}

/// Splits into lines and keeps the last; the first one is dropped where it may be cut.
fn lines(bytes: &[u8], first_is_cut: bool, count: usize) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    if first_is_cut && lines.len() > 1 {
        lines.remove(0);
    }
    let skipped = lines.len().saturating_sub(count);
    lines.into_iter().skip(skipped).map(printable).collect()
}

/// A line that cannot steer a terminal: escape sequences are taken out whole, other control
/// characters become spaces.
fn printable(line: &str) -> String {
    let plain = anstream::adapter::strip_str(line).to_string();
    let safe = plain.chars().map(|c| if c.is_control() || is_bidi(c) { ' ' } else { c });
    let mut short: String = safe.take(LONGEST_LINE).collect();
    if plain.chars().nth(LONGEST_LINE).is_some() {
        short.push('…');
    }
    short.trim_end().to_owned()
}

fn is_bidi(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_tail_is_safe_to_print() {
        assert_eq!(printable("\u{1b}[31mred\u{1b}[0m\ttab\u{7}\u{202e}x"), "red tab x");
        assert_eq!(printable(&"y".repeat(600)).chars().count(), 501);
        assert_eq!(lines(b"\xff\xfe bad\n\n  \nlast", false, 5), ["\u{fffd}\u{fffd} bad", "last"]);
        assert_eq!(lines(b"cut\nwhole", true, 5), ["whole"]);
    }

    #[test]
    fn a_tail_is_of_its_own_launch() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.log");
        LogFile::open(path.clone()).unwrap().1.write_all(b"old\n").unwrap();
        let (log, mut file) = LogFile::open(path).unwrap();
        file.write_all(b"new 1\nnew 2\n").unwrap();
        assert_eq!(log.tail()[..], ["new 1", "new 2"]);
        file.set_len(0).unwrap();
        file.write_all(b"n3\n").unwrap();
        assert_eq!(log.tail()[..], ["n3"]);
    }
}
