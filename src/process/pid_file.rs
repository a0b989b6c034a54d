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

use super::Identity;
use crate::model::{Instance, MemberKey, Port};

/// One launch.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PidFile {
    /// Missing between the two writes.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    pub port: Port,
    pub instance: Instance,
    pub manifest_digest: String,
    pub argv: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<PathBuf>,
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
}

impl Draft {
    /// Completes it, in one write or, where it is larger than a page, by renaming.
    pub fn complete(self, file: &PidFile) -> io::Result<()> {
        let text = serde_json::to_vec(file)?;
        let write = || {
            if text.len() <= PAGE {
                self.file.write_all_at(&text, 0)?;
                return self.file.set_len(text.len() as u64);
            }
            let next = self.path.with_extension("json.new");
            fs::write(&next, &text).and_then(|()| fs::rename(&next, &self.path))
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
    pub fn begin(&self, key: &MemberKey, file: &PidFile) -> io::Result<Draft> {
        let path = self.path(key);
        let text = serde_json::to_vec(file)?;
        let open = || {
            let opened =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
            opened.write_all_at(&text, 0)?;
            Ok(opened)
        };
        let file = open().map_err(|error: io::Error| cannot_write(&path, &error))?;
        Ok(Draft { file, path })
    }

    /// Removes the file if it is still about this launch.
    pub fn remove(&self, key: &MemberKey, instance: Instance) {
        let path = self.path(key);
        if read(&path).is_some_and(|file| file.instance == instance) {
            let _ = fs::remove_file(path);
        }
    }

    /// All PID files that can be read; what cannot is none of ours and stays.
    pub fn all(&self) -> Vec<(PathBuf, PidFile)> {
        let Ok(entries) = fs::read_dir(&self.dir) else { return Vec::new() };
        let paths = entries.flatten().map(|entry| entry.path());
        let json = paths.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
        json.filter_map(|path| read(&path).map(|file| (path, file))).collect()
    }

    fn path(&self, key: &MemberKey) -> PathBuf {
        self.dir.join(format!("{}.json", key.file_stem()))
    }
}

fn read(path: &Path) -> Option<PidFile> {
    let small = fs::metadata(path).ok()?.len() <= LARGEST;
    small.then(|| fs::read(path).ok()).flatten().and_then(|bytes| serde_json::from_slice(&bytes).ok())
}
