//! PID files: what a hall must know to deal with the processes of the one before it.
//!
//! Written before a launch (without a pid) and completed after it, each time to a temporary name
//! and renamed: a reader sees the old file, the new one, or none. No fsync: the file has to outlive
//! the hall, not the machine, and a torn one is a stale one.

use std::fs;
use std::io;
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

/// A PID file larger than this is not one of ours.
const LARGEST: u64 = 1024 * 1024;

impl PidFiles {
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    pub fn write(&self, key: &MemberKey, file: &PidFile) -> io::Result<()> {
        let path = self.path(key);
        let text = serde_json::to_vec(file)?;
        let temporary = path.with_extension("json.new");
        let written = fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, &path));
        written.map_err(|error| io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display())))
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
