//! The file that a member's stdout and stderr go to. A file and not a pipe: a plugin whose pipe has
//! lost its reader dies of its next line.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::fault;

/// As many lines of a failed launch are kept for the roster, each as long as this; characters.
const TAIL_LINES: usize = 20;
const LONGEST_LINE: usize = 500;
/// Read back from the end of a file for its last lines; bytes.
const TAIL_BYTES: u64 = 16 * 1024;

/// A member's log, and where the present launch begins in it. Not kept open: with hundreds of
/// members, every launch would have to close hundreds of descriptors in its child.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
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
        let start = file.metadata()?.len();
        Ok((Self { path, start }, file))
    }

    /// The log of a launch that began at `start`.
    pub fn resume(path: PathBuf, start: u64) -> Self {
        Self { path, start }
    }

    /// Where the present launch begins in it; bytes.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The last lines of this launch, made safe to print.
    pub fn tail(&self) -> Arc<[String]> {
        let read = || -> io::Result<Vec<String>> {
            let mut file = File::open(&self.path)?;
            let end = file.metadata()?.len();
            // A log that has been cut begins anew: all of it is of this launch.
            let start = if end < self.start { 0 } else { self.start };
            let from = start.max(end.saturating_sub(TAIL_BYTES));
            file.seek(SeekFrom::Start(from))?;
            let mut bytes = Vec::new();
            file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
            Ok(lines(&bytes, from > start, TAIL_LINES))
        };
        read().unwrap_or_default().into()
    }
}

/// The last `count` lines of a log and its predecessor, as they are, and where they end: from there
/// it can be followed without a gap.
pub fn last_lines(path: &Path, count: usize) -> io::Result<(Vec<u8>, u64)> {
    let (mut wanted, end) = last_bytes(path, count)?;
    let lines = wanted.iter().filter(|&&byte| byte == b'\n').count();
    if lines < count
        && let Ok((mut older, _)) = last_bytes(&path.with_extension("log.1"), count - lines)
    {
        older.append(&mut wanted);
        wanted = older;
    }
    Ok((wanted, end))
}

/// The end of a file that holds `count` lines, at most 1 MiB.
fn last_bytes(path: &Path, count: usize) -> io::Result<(Vec<u8>, u64)> {
    const MOST: u64 = 1024 * 1024;
    let mut file = File::open(path)?;
    let end = file.metadata()?.len();
    let start = end.saturating_sub(MOST);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(end - start).read_to_end(&mut bytes)?;
    let body = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let mut newlines = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    let start = count.checked_sub(1).and_then(|skip| newlines.nth(skip)).map_or(0, |(at, _)| at + 1);
    Ok((if count == 0 { Vec::new() } else { bytes.split_off(start) }, end))
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

    #[test]
    fn last_lines_reach_back_into_the_predecessor() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.log");
        std::fs::write(&path, "3\n4\n").unwrap();
        std::fs::write(dir.path().join("m.log.1"), "1\n2\n").unwrap();
        assert_eq!(last_lines(&path, 3).unwrap().0, b"2\n3\n4\n");
        assert_eq!(last_lines(&path, 1).unwrap(), (b"4\n".to_vec(), 4));
        assert_eq!(last_lines(&path, 9).unwrap().0, b"1\n2\n3\n4\n");
    }
}
