//! The run directory: the only place on disk that the hall writes to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::model::MemberKey;
use crate::process::fault;

/// Held while a hall runs: two on one directory cannot be.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    _lock: File,
}

/// Why a hall cannot run on a directory.
#[derive(Debug, thiserror::Error)]
pub enum RunDirError {
    #[error("another hall runs on {}: process {pid}. Stop it, or choose another directory with --run-dir", path.display())]
    Taken { path: PathBuf, pid: String },
    #[error("cannot use {} as the run directory: {source}. Choose another one with --run-dir", path.display())]
    Unusable { path: PathBuf, source: io::Error },
}

/// How long a program may take to be executed before its hall's lock is taken for somebody's.
const UNBORN: Duration = Duration::from_secs(2);

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
        if let Err(error) = take(&lock) {
            if error != rustix::io::Errno::WOULDBLOCK {
                return Err(unusable(error.into()));
            }
            let pid = holder(&lock).map_or_else(|| "of unknown number".into(), |pid| pid.to_string());
            return Err(RunDirError::Taken { path, pid });
        }
        fault::attempt("cut the lock", || lock.set_len(0)).map_err(unusable)?;
        fault::attempt("write the lock", || writeln!(lock, "{}", std::process::id())).map_err(unusable)?;
        for dir in [".mcp-servers", "logs"] {
            private(&path.join(dir)).map_err(unusable)?;
        }
        Ok(Self { path, _lock: lock })
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

    pub(super) fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }

    /// What a later hall must know of failures and stops.
    pub(super) fn memories(&self) -> PathBuf {
        self.path.join("restarts.json")
    }

    pub(super) fn pid_files(&self) -> PathBuf {
        self.path.join(".mcp-servers")
    }

    /// A name for this directory that is the same for the next hall: device and inode.
    pub(super) fn id(&self) -> String {
        fs::metadata(&self.path).map(|meta| format!("{:x}-{:x}", meta.dev(), meta.ino())).unwrap_or_default()
    }
}

/// Takes the lock. A child that a killed hall was about to start holds on to it until it runs: where the
/// holder on paper is dead, that is waited for.
fn take(lock: &File) -> rustix::io::Result<()> {
    let end = Instant::now() + UNBORN;
    loop {
        let taken = fault::around("lock", || flock(lock, FlockOperation::NonBlockingLockExclusive));
        let is_dead = || holder(lock).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
        if taken != Err(rustix::io::Errno::WOULDBLOCK) || Instant::now() >= end || !is_dead() {
            return taken;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Who has taken the lock, as it stands in the file.
fn holder(lock: &File) -> Option<u32> {
    let mut text = [0; 16];
    let read = lock.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(text.get(..read)?).ok()?.trim().parse().ok()
}
