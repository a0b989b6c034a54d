//! The run directory: the only place on disk that the hall writes to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::secret::Secret;
use crate::model::MemberKey;
use crate::process::fault;

/// Held while a hall runs: two on one directory cannot be.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    lock: File,
}

/// Why a hall cannot run on a directory.
#[derive(Debug, thiserror::Error)]
pub enum RunDirError {
    #[error("another hall runs on {}: process {pid}. Stop it, or choose another directory with --run-dir", path.display())]
    Taken { path: PathBuf, pid: String },
    #[error("cannot use {} as the run directory: {source}. Choose another one with --run-dir", path.display())]
    Unusable { path: PathBuf, source: io::Error },
}

/// A hall that was killed in the middle of a launch lives on in the child that has yet to execute its
/// program: its lock is waited for, but not for long.
const LONGEST_WAKE: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// A process with this number runs; a zombie does not.
fn is_alive(pid: &str) -> bool {
    let Ok(pid) = pid.parse::<u32>() else { return false };
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

impl RunDir {
    /// Makes the directory where it is missing, and takes its lock.
    pub fn open(path: &Path) -> Result<Self, RunDirError> {
        let unusable = |source| RunDirError::Unusable { path: path.into(), source };
        let private = |dir: &Path| {
            fault::attempt("make a directory", || {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
            })
        };
        private(path).map_err(unusable)?;
        let path = fs::canonicalize(path).map_err(unusable)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut lock =
            fault::attempt("open the lock", || options.open(path.join("lock"))).map_err(unusable)?;
        let end = Instant::now() + LONGEST_WAKE;
        while let Err(error) =
            fault::around("lock", || flock(&lock, FlockOperation::NonBlockingLockExclusive))
        {
            if error != rustix::io::Errno::WOULDBLOCK {
                return Err(unusable(error.into()));
            }
            let mut holder = String::new();
            let _ = lock.rewind().and_then(|()| lock.read_to_string(&mut holder));
            let holder = holder.trim();
            if is_alive(holder) || Instant::now() >= end {
                let pid = if holder.is_empty() { "of unknown number".into() } else { holder.into() };
                return Err(RunDirError::Taken { path, pid });
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        fault::attempt("cut the lock", || lock.set_len(0)).map_err(unusable)?;
        fault::attempt("write the lock", || writeln!(lock, "{}", std::process::id())).map_err(unusable)?;
        for dir in [".mcp-servers", "logs"] {
            private(&path.join(dir)).map_err(unusable)?;
        }
        Ok(Self { path, lock })
    }

    /// Of the image of the hall before this one, which held the lock with this descriptor.
    pub fn inherit(path: PathBuf, lock: OwnedFd) -> Self {
        Self { path, lock: lock.into() }
    }

    pub(super) fn lock(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn socket(&self) -> PathBuf {
        self.path.join("guild-hall.sock")
    }

    pub fn log(&self, key: &MemberKey) -> PathBuf {
        self.logs().join(format!("{}.log", key.file_stem()))
    }

    /// The bearer token of the TCP listener.
    pub fn token(&self) -> io::Result<Secret> {
        Secret::keep(&self.path.join("token"))
    }

    /// Signs the ids of sessions.
    pub fn session_key(&self) -> io::Result<Secret> {
        Secret::keep(&self.path.join("session-key"))
    }

    /// One line for each call.
    pub(super) fn audit(&self) -> PathBuf {
        self.path.join("audit.log")
    }

    pub(super) fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }

    /// What a later hall must know of failures and stops.
    pub(super) fn memories(&self) -> PathBuf {
        self.path.join("restarts.json")
    }

    /// The plugins that were registered over the API.
    pub(super) fn registered(&self) -> PathBuf {
        self.path.join("registered.json")
    }

    /// Tells a later hall that this one was shutting down.
    pub(super) fn stop_note(&self) -> PathBuf {
        self.path.join("shutdown.json")
    }

    pub(super) fn pid_files(&self) -> PathBuf {
        self.path.join(".mcp-servers")
    }

    /// A name for this directory that is the same for the next hall: device and inode.
    pub(super) fn id(&self) -> String {
        fs::metadata(&self.path).map(|meta| format!("{:x}-{:x}", meta.dev(), meta.ino())).unwrap_or_default()
    }
}
