//! PID files: what a hall must know to deal with the processes of the one before it.
//!
//! Written before a launch (without a pid) and completed after it, in place, each time by a single
//! `write` where it fits one page: SIGKILL cannot come in the middle of it. Renaming a second file into
//! its place would be no safer and costs an inode a launch, which is what a start of hundreds of
//! members on ext4 spends most of its time on. No fsync: the file has to outlive the hall, not the
//! machine, and a torn one is a stale one.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{Identity, fault};
use crate::model::{Digest, Instance, MemberKey, Moment, Port};

/// One launch.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PidFile {
    /// Missing between the two writes.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    pub port: Port,
    pub member: MemberKey,
    pub instance: Instance,
    pub launched: Moment,
    pub manifest_digest: Digest,
    pub argv: Vec<String>,
    /// Where this launch begins in the member's log: a position that only grows; bytes.
    pub log_start: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<PathBuf>,
    /// Since when it is being ended: an exit after that is not of its own accord.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Moment>,
}

/// The directory `.mcp-servers`.
#[derive(Debug, Clone)]
pub struct PidFiles {
    dir: PathBuf,
}

/// SIGKILL cannot tear a single write that fits a page of memory; bytes.
const PAGE: usize = 4096;

/// A PID file that lacks the pid.
#[derive(Debug)]
pub struct Draft {
    file: File,
    path: PathBuf,
    /// What it holds so far; bytes.
    length: usize,
}

impl Draft {
    /// Completes it, in one write or, where it is larger than a page, by renaming.
    pub fn complete(self, file: &PidFile) -> io::Result<()> {
        let mut text = serde_json::to_vec(file)?;
        // Over all of what stood there before.
        text.resize(text.len().max(self.length), b' ');
        let write = || {
            if text.len() <= PAGE {
                return fault::attempt("write a complete PID file", || self.file.write_all_at(&text, 0));
            }
            let next = self.path.with_extension("json.new");
            fault::attempt("write a large PID file", || fs::write(&next, &text))?;
            fault::attempt("rename a large PID file", || fs::rename(&next, &self.path))
        };
        write().map_err(|error: io::Error| cannot_write(&self.path, &error))
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
}

/// A PID file larger than this is not one of ours.
const LARGEST: u64 = 1024 * 1024;

impl PidFiles {
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Puts a launch on paper before it happens.
    pub fn begin(&self, file: &PidFile) -> io::Result<Draft> {
        let path = self.path(&file.member);
        let text = serde_json::to_vec(file)?;
        let open = || {
            let mut options = OpenOptions::new();
            // A link or a FIFO of this name is none of ours.
            options.mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
            options.write(true).create(true).truncate(true);
            let opened = fault::attempt("make a PID file", || options.open(&path))?;
            fault::attempt("write a PID file", || opened.write_all_at(&text, 0))?;
            Ok(opened)
        };
        let file = open().map_err(|error: io::Error| cannot_write(&path, &error))?;
        Ok(Draft { file, path, length: text.len() })
    }

    /// Puts on paper that a launch is being ended; to be called before it hears of it.
    pub fn note_ending(&self, file: &PidFile) {
        let path = self.path(&file.member);
        let file = PidFile { ending: Some(Moment::now()), ..file.clone() };
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let opened = fault::attempt("open a PID file", || options.open(&path));
        // It only grows.
        let noted = opened.and_then(|opened| Draft { file: opened, path, length: 0 }.complete(&file));
        if let Err(error) = noted {
            tracing::debug!(member = %file.member, "that it is being ended is not on paper: {error}");
        }
    }

    /// Removes the file if it is still about this launch.
    pub fn remove(&self, key: &MemberKey, instance: Instance) {
        let path = self.path(key);
        if read(&path).is_some_and(|file| file.instance == instance) {
            let _ = fault::attempt("remove a PID file", || fs::remove_file(path));
        }
    }

    /// What an earlier hall wrote. Whatever else stands in the directory is removed: no hall can have
    /// written it to the end, and a launch must be able to write its own in its place.
    pub fn all(&self) -> Vec<PidFile> {
        let Ok(entries) = fs::read_dir(&self.dir) else { return Vec::new() };
        let mut files = Vec::new();
        for path in entries.flatten().map(|entry| entry.path()) {
            match read(&path).filter(|file| self.path(&file.member) == path) {
                Some(file) => files.push(file),
                None => discard(&path),
            }
        }
        files
    }

    fn path(&self, key: &MemberKey) -> PathBuf {
        self.dir.join(format!("{}.json", key.file_stem()))
    }
}

fn read(path: &Path) -> Option<PidFile> {
    let found = fs::symlink_metadata(path).ok()?;
    let is_ours = found.is_file() && found.len() <= LARGEST;
    is_ours.then(|| fs::read(path).ok()).flatten().and_then(|bytes| serde_json::from_slice(&bytes).ok())
}

fn discard(path: &Path) {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fault::attempt("remove no PID file", || fs::remove_dir(path)),
        _ => fault::attempt("remove no PID file", || fs::remove_file(path)),
    };
    match removed {
        Ok(()) => tracing::warn!("removed {}: it is no PID file of a hall", path.display()),
        Err(error) => tracing::warn!(
            "{} is no PID file of a hall and cannot be removed ({error}): remove it by hand",
            path.display()
        ),
    }
}
