//! A member's log and its predecessor as one text, whose positions only grow: whoever follows it
//! loses nothing at a cut. Cut by `log_cap`; read for the API and for the errors in the roster.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FallocateFlags, XattrFlags, fallocate, fsetxattr, getxattr};

use super::fault;

/// A log is cut when it is larger than this; bytes.
const CAP: u64 = 10 * 1024 * 1024;
/// Room in the predecessor for what is written while it is copied; bytes.
const MEANWHILE: u64 = 1024 * 1024;
/// No more than this is left to the disk while writers wait; bytes.
const LITTLE: u64 = 2 * 1024 * 1024;
/// The last lines are looked for in so much of a file; bytes.
const MOST: u64 = 1024 * 1024;
/// Texts that are kept in memory before those that nobody uses are forgotten.
const TEXTS: usize = 4096;
/// Keeps the positions for the next hall: an attribute of the log.
const POSITIONS: &str = "user.guild-hall.positions";

/// One text for each log of this process: who cuts it and who reads it must agree on where it is.
static ALL: LazyLock<Mutex<HashMap<PathBuf, Arc<LogText>>>> = LazyLock::new(Mutex::default);

/// See the module's page.
#[derive(Debug)]
pub struct LogText {
    path: PathBuf,
    /// Held while the two files are exchanged, and while they are read.
    seam: Mutex<Seam>,
}

/// Where the two files lie in the text.
#[derive(Debug)]
struct Seam {
    /// Position after the predecessor's last byte. Before `begin` where bytes were cut that are in neither.
    old_end: u64,
    /// Position of the log's first byte.
    begin: u64,
}

/// A part of the text.
#[derive(Debug, Default)]
pub struct Piece {
    /// Position of its first byte; beyond what was asked for where that is no longer there.
    pub at: u64,
    pub bytes: Vec<u8>,
}

/// What [`LogText::cut`] did.
#[derive(Debug)]
pub(super) enum Cut {
    NotNeeded,
    Done,
    /// The log is empty, but what was in it could not be kept.
    Lost(io::Error),
}

impl LogText {
    /// The text of a log, which need not be there yet.
    pub fn of(path: &Path) -> Arc<Self> {
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = all.get(path) {
            return text.clone();
        }
        if all.len() >= TEXTS {
            all.retain(|_, text| Arc::strong_count(text) > 1);
        }
        let text = Arc::new(Self { path: path.into(), seam: Mutex::new(Seam::load(path)) });
        all.insert(path.into(), text.clone());
        text
    }

    pub(super) fn is_over_cap(path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|log| log.len() > CAP)
    }

    /// Position after the last byte; where the log begins, if it is not there.
    pub fn end(&self) -> u64 {
        let seam = self.seam();
        seam.begin + fs::metadata(&self.path).map_or(0, |log| log.len())
    }

    /// At most `most` bytes from a position on, or from the first one after it that is still there;
    /// none at the end. A position beyond the end is of a log that someone else has emptied since:
    /// then all that is there is new.
    pub fn read(&self, from: u64, most: u64) -> io::Result<Piece> {
        let seam = self.seam();
        let log = File::open(&self.path)?;
        let end = seam.begin + log.metadata()?.len();
        let from = if from > end { seam.begin } else { from };
        if let Some((old, begin, end)) = self.predecessor(&seam).filter(|(.., end)| from < *end) {
            let at = from.max(begin);
            return Ok(Piece { at, bytes: bytes(&old, at - begin, most.min(end - at))? });
        }
        let at = from.max(seam.begin);
        Ok(Piece { at, bytes: bytes(&log, at - seam.begin, most)? })
    }

    /// The last bytes from `start` on, at most `most`, and whether that is not all.
    pub(super) fn since(&self, start: u64, most: u64) -> io::Result<(Vec<u8>, bool)> {
        let end = self.end();
        if end == start {
            return Ok((Vec::new(), false));
        }
        let mut at = start.max(end.saturating_sub(most));
        let is_cut = at > start;
        let mut text = Vec::new();
        loop {
            let piece = self.read(at, most.saturating_sub(text.len() as u64))?;
            if piece.bytes.is_empty() {
                return Ok((text, is_cut));
            }
            at = piece.at + piece.bytes.len() as u64;
            text.extend(piece.bytes);
        }
    }

    /// The last `count` lines as they are, and the position after them: from there the text can be
    /// followed without a gap.
    pub fn last_lines(&self, count: usize) -> io::Result<(Vec<u8>, u64)> {
        let seam = self.seam();
        let log = File::open(&self.path)?;
        let size = log.metadata()?.len();
        let start = size.saturating_sub(MOST);
        let mut text = bytes(&log, start, size - start)?;
        if start == 0
            && lines_in(&text) <= count
            && let Some((old, begin, end)) = self.predecessor(&seam)
        {
            let from = (end - begin).saturating_sub(MOST);
            let mut older = bytes(&old, from, end - begin - from)?;
            if end < seam.begin {
                older.extend(gap(seam.begin - end, older.last()));
            }
            older.append(&mut text);
            text = older;
        }
        Ok((last_of(text, count), seam.begin + size))
    }

    /// Makes what is in a log over its cap the predecessor, if only the last of it where there is too much.
    ///
    /// Its writers hold the file itself, so it is copied and cut, not renamed. Where the file system can
    /// take bytes away from the front (ext4, XFS) not a byte is lost. It keeps writers waiting for as long
    /// as the disk takes for what they wrote meanwhile, so it is done when that is little. Else the log is
    /// emptied, and what is written between the last look and that is gone: microseconds' worth.
    pub(super) fn cut(&self) -> io::Result<Cut> {
        let mut log = OpenOptions::new().read(true).write(true).open(&self.path)?;
        let meta = log.metadata()?;
        if meta.len() <= CAP {
            return Ok(Cut::NotNeeded);
        }
        // It is written to faster than it is copied, and most of that would be gone soon anyway.
        let outrun = meta.len() > 2 * CAP;
        let mut from = meta.len() - if outrun { CAP / 4 } else { CAP - MEANWHILE };
        let copied = self.copy(&mut log, from);
        let mut seam = self.seam();
        let kept = copied.and_then(|(copy, length)| {
            fault::attempt("rename the copy of a log", || fs::rename(self.next(), self.old()))?;
            Ok((copy, from + length))
        });
        let (mut end, block) = (log.metadata()?.len(), meta.blksize().max(1));
        let (lost, gone) = match kept {
            Ok((mut copy, mut copied)) => {
                let whole = copied.min(end.saturating_sub(1)) / block * block;
                let little = end.saturating_sub(copied) <= LITTLE;
                let collapse = || fallocate(&log, FallocateFlags::COLLAPSE_RANGE, 0, whole);
                let taken = little && fault::around("cut a log", collapse).is_ok();
                if !taken {
                    if end.saturating_sub(copied) > CAP - (copied - from) {
                        // It was outrun: the last of it counts, which may be a member's last words.
                        from = end - MEANWHILE;
                        copied = from;
                        fault::attempt("write the copy of a log", || copy.set_len(0))?;
                        copy.rewind()?;
                        log.seek(SeekFrom::Start(from))?;
                    }
                    // To the very last moment; a disk without room keeps what it has.
                    let room = CAP - (copied - from);
                    let more = || io::copy(&mut (&log).take(room), &mut copy);
                    copied += fault::attempt("write the copy of a log", more).unwrap_or_default();
                    end = log.metadata()?.len();
                }
                seam.old_end = seam.begin + copied;
                if !taken {
                    fault::attempt("cut a log", || log.set_len(0))?;
                }
                (None, if taken { whole } else { end.max(copied) })
            }
            Err(error) => {
                // A disk that has no room for the copy gets its room back all the same.
                fault::attempt("cut a log", || log.set_len(0))?;
                let _ = fault::around("remove the copy of a log", || fs::remove_file(self.next()));
                (Some(error), end)
            }
        };
        seam.begin += gone;
        seam.save(&log);
        Ok(lost.map_or(Cut::Done, Cut::Lost))
    }

    /// Copies what follows `from`, but no more than the cap; how much that was.
    fn copy(&self, log: &mut File, from: u64) -> io::Result<(File, u64)> {
        log.seek(SeekFrom::Start(from))?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut copy = fault::attempt("make the copy of a log", || options.open(self.next()))?;
        let length = fault::attempt("write the copy of a log", || io::copy(&mut log.take(CAP), &mut copy))?;
        Ok((copy, length))
    }

    /// The predecessor, the position of its first byte, and that after its last one before the log's first.
    fn predecessor(&self, seam: &Seam) -> Option<(File, u64, u64)> {
        let old = File::open(self.old()).ok()?;
        let begin = seam.old_end.checked_sub(old.metadata().ok()?.len())?;
        let end = seam.old_end.min(seam.begin);
        (begin < end).then_some((old, begin, end))
    }

    fn old(&self) -> PathBuf {
        self.path.with_extension("log.1")
    }

    fn next(&self) -> PathBuf {
        self.path.with_extension("log.1.new")
    }

    fn seam(&self) -> MutexGuard<'_, Seam> {
        self.seam.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seam {
    /// As the hall before left it. Where the file system keeps no attributes, positions begin anew.
    fn load(path: &Path) -> Self {
        let mut value = [0_u8; 64];
        let mut saved = || {
            let length = getxattr(path, POSITIONS, &mut value).ok()?;
            let (old_end, begin) = std::str::from_utf8(value.get(..length)?).ok()?.split_once(' ')?;
            Some(Self { old_end: old_end.parse().ok()?, begin: begin.parse().ok()? })
        };
        saved().unwrap_or_else(|| {
            let old = fs::metadata(path.with_extension("log.1")).map_or(0, |old| old.len());
            Self { old_end: old, begin: old }
        })
    }

    fn save(&self, log: &File) {
        // It is for a follower that outlives this hall; the log is as good without it.
        let value = format!("{} {}", self.old_end, self.begin);
        let set = || fsetxattr(log, POSITIONS, value.as_bytes(), XattrFlags::empty());
        let _ = fault::around("note where a log was cut", set);
    }
}

/// What stands in a log for bytes that are gone; on a line of its own after `before`.
pub fn gap(bytes: u64, before: Option<&u8>) -> Vec<u8> {
    let line_end = if before.is_some_and(|&byte| byte != b'\n') { "\n" } else { "" };
    format!("{line_end}… {bytes} bytes were cut before they could be read\n").into_bytes()
}

fn bytes(mut file: &File, from: u64, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn lines_in(text: &[u8]) -> usize {
    text.iter().filter(|&&byte| byte == b'\n').count()
}

/// The end of a text that holds `count` lines.
fn last_of(mut text: Vec<u8>, count: usize) -> Vec<u8> {
    let Some(skip) = count.checked_sub(1) else { return Vec::new() };
    let body = text.strip_suffix(b"\n").unwrap_or(&text);
    let mut newlines = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    let start = newlines.nth(skip).map_or(0, |(at, _)| at + 1);
    text.split_off(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn log(dir: &tempfile::TempDir) -> (PathBuf, File, Arc<LogText>) {
        let path = dir.path().join("m.log");
        let file = OpenOptions::new().append(true).create(true).open(&path).unwrap();
        (path.clone(), file, LogText::of(&path))
    }

    fn numbered(range: std::ops::Range<usize>) -> Vec<u8> {
        range.flat_map(|n| format!("{n:099}\n").into_bytes()).collect()
    }

    #[test]
    fn a_log_over_the_cap_becomes_its_own_predecessor_and_reads_on_without_a_gap() {
        let dir = tempfile::tempdir().unwrap();
        let (path, mut file, text) = log(&dir);
        let all = numbered(0..110_000);
        file.write_all(&all).unwrap();
        let before = text.read(9_000_050, 100).unwrap();
        assert!(matches!(text.cut().unwrap(), Cut::Done) && matches!(text.cut().unwrap(), Cut::NotNeeded));
        assert!(path.metadata().unwrap().len() < 64 * 1024);
        assert!(path.with_extension("log.1").metadata().unwrap().len() <= CAP);
        file.write_all(b"next\n").unwrap();
        assert_eq!(text.end(), all.len() as u64 + 5);
        let after = text.read(9_000_050, 100).unwrap();
        assert_eq!((before.at, before.bytes), (after.at, after.bytes));
        assert_eq!(text.read(all.len() as u64, 100).unwrap().bytes, b"next\n");
        let first = text.read(0, 100).unwrap();
        assert_eq!(first.at, all.len() as u64 - (CAP - MEANWHILE), "what is gone is told by the position");
        let (mut at, mut read) = (first.at, Vec::new());
        loop {
            let piece = text.read(at, 64 * 1024).unwrap();
            assert_eq!(piece.at, at);
            if piece.bytes.is_empty() {
                break;
            }
            at += piece.bytes.len() as u64;
            read.extend(piece.bytes);
        }
        assert!(all.ends_with(&read[..read.len() - 5]) && read.ends_with(b"next\n"));
        assert_eq!(Seam::load(&path).begin, text.seam().begin, "the next hall knows the positions");
    }

    #[test]
    fn a_position_beyond_the_end_is_of_a_log_that_was_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let (_, mut file, text) = log(&dir);
        file.write_all(b"old line\n").unwrap();
        file.set_len(0).unwrap();
        file.write_all(b"new\n").unwrap();
        assert_eq!(text.read(9, 100).unwrap().bytes, b"new\n");
    }

    #[test]
    fn last_lines_reach_back_into_the_predecessor() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("m.log.1"), "1\n2\n3 a").unwrap();
        let (path, mut file, text) = log(&dir);
        file.write_all(b"nd more\n4\n").unwrap();
        assert_eq!(text.last_lines(3).unwrap().0, b"2\n3 and more\n4\n");
        assert_eq!(text.last_lines(2).unwrap().0, b"3 and more\n4\n", "{}", path.display());
        assert_eq!(text.last_lines(1).unwrap(), (b"4\n".to_vec(), 17));
        assert_eq!(text.last_lines(9).unwrap().0, b"1\n2\n3 and more\n4\n");
        assert_eq!(text.last_lines(0).unwrap().0, b"");
    }
}
