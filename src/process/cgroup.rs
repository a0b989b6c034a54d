//! One cgroup v2 for each launch, where the hall may make one: nothing escapes it, and one write
//! kills all that is in it.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::fault;
use crate::model::{Instance, Pid};

/// Of the directories in which halls make cgroups.
const PREFIX: &str = "guild-hall-";

/// Where this hall makes the cgroups of its members. Locked while the hall lives, so that no other
/// hall takes them for leftovers.
#[derive(Debug, Clone)]
pub struct Cgroups {
    root: PathBuf,
    lock: Arc<File>,
}

/// The cgroup of one launch. It stays in the kernel when this value is dropped: a member outlives
/// the hall.
#[derive(Debug)]
pub(super) struct Cgroup {
    path: PathBuf,
}

impl Cgroups {
    /// A directory below the hall's own cgroup, named after the run directory, so that the next hall
    /// finds it again. `None` where no cgroup can be made (not delegated, read-only, v1 alone).
    pub fn new(run_dir_name: &str) -> Option<Self> {
        let own = own_cgroup().filter(|_| !fault::is_off("cgroups"))?;
        let root = own.join(format!("{PREFIX}{run_dir_name}"));
        let (root, claimed) = match claim(&root) {
            // A hall whose run directory was deleted under it, and this one has got the same inode.
            Claim::AnotherHalls => {
                let root = own.join(format!("{PREFIX}{run_dir_name}-{}", std::process::id()));
                let claimed = claim(&root);
                (root, claimed)
            }
            claimed => (root, claimed),
        };
        let Claim::Ours(lock) = claimed else { return None };
        // Made is not yet usable: `cgroup.kill` is there since Linux 5.14, and must be ours to write.
        if rustix::fs::access(root.join("cgroup.kill"), rustix::fs::Access::WRITE_OK).is_err() {
            let _ = fault::attempt("remove the directory of cgroups", || fs::remove_dir(&root));
            return None;
        }
        collect_garbage(&own, &root);
        Some(Self { root, lock: Arc::new(lock) })
    }

    /// As an image of the hall before this one has made it: its directory, and the descriptor that
    /// locks it.
    pub fn inherit(root: PathBuf, lock: OwnedFd) -> Self {
        Self { root, lock: Arc::new(lock.into()) }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn lock(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }

    pub(super) fn make(&self, name: &str) -> io::Result<Cgroup> {
        let path = self.root.join(name);
        fault::attempt("make a cgroup", || fs::create_dir(&path))?;
        Ok(Cgroup { path })
    }

    /// Cgroups that an earlier hall on this run directory left behind.
    pub fn leftovers(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(&self.root) else { return Vec::new() };
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    }

    /// The cgroup that a PID file names, if it is still there and carries the launch's own id: no
    /// other program makes such a name.
    pub fn of_instance(path: &Path, instance: Instance) -> Option<PathBuf> {
        let named = path.file_name()?.to_str()?.ends_with(&format!(".{instance}"));
        (named && path.join("cgroup.procs").exists()).then(|| path.into())
    }

    /// Kills what is in a leftover cgroup and removes it: only a hall has ever put a process there.
    /// False while something is in it.
    pub fn clear(path: &Path) -> bool {
        let group = Cgroup { path: path.into() };
        group.kill();
        group.remove()
    }

    /// Removes the common directory, if no member is left in it.
    pub fn remove(&self) {
        remove_tree(&self.root);
    }
}

impl Cgroup {
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// For a process to be born into.
    pub(super) fn open(&self) -> io::Result<File> {
        File::open(&self.path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Every process in it, those in groups that a member made below it included.
    pub(super) fn pids(&self) -> Vec<Pid> {
        let mut pids = Vec::new();
        let mut groups = vec![self.path.clone()];
        while let Some(group) = groups.pop() {
            let procs = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
            pids.extend(procs.lines().filter_map(|line| line.parse().ok().map(Pid)));
            groups.extend(subgroups(&group));
        }
        pids
    }

    /// User and system time of all that ever ran in it; the kernel counts it without any controller.
    pub(super) fn cpu(&self) -> Option<Duration> {
        let stat = fs::read_to_string(self.path.join("cpu.stat")).ok()?;
        let micros = stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
        Some(Duration::from_micros(micros.parse().ok()?))
    }

    pub(super) fn is_empty(&self) -> bool {
        match fs::read_to_string(self.path.join("cgroup.events")) {
            Ok(events) => events.lines().any(|line| line == "populated 0"),
            // It is gone; or we are out of descriptors, and nothing is gained by waiting.
            Err(_) => true,
        }
    }

    pub(super) fn kill(&self) {
        let _ = fault::attempt("kill a cgroup", || fs::write(self.path.join("cgroup.kill"), "1"));
    }

    /// False while something is in it.
    pub(super) fn remove(&self) -> bool {
        remove_tree(&self.path)
    }
}

/// What became of an attempt to have a directory for oneself.
enum Claim {
    /// It is ours for as long as this is open.
    Ours(File),
    AnotherHalls,
    CannotBeMade,
}

/// Makes the directory where it is missing and locks it.
fn claim(root: &Path) -> Claim {
    // Another hall may collect it as garbage before it is locked: then once more.
    for _ in 0..3 {
        match fault::attempt("make the directory of cgroups", || fs::create_dir(root)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Claim::CannotBeMade,
            _ => {}
        }
        let Ok(dir) = File::open(root) else { continue };
        let lock = || flock(&dir, FlockOperation::NonBlockingLockExclusive).map_err(io::Error::from);
        if fault::attempt("lock the directory of cgroups", lock).is_err() {
            return Claim::AnotherHalls;
        }
        let same = |here: fs::Metadata| dir.metadata().is_ok_and(|locked| locked.ino() == here.ino());
        if fs::metadata(root).is_ok_and(same) {
            return Claim::Ours(dir);
        }
    }
    Claim::CannotBeMade
}

/// Removes what halls that were killed, and never followed on their run directory, left behind: only
/// where nothing runs any more and nobody holds the lock.
fn collect_garbage(own: &Path, except: &Path) {
    for root in subgroups(own).into_iter().filter(|root| root != except) {
        let is_halls = root.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
        if is_halls && (Cgroup { path: root.clone() }).is_empty() && matches!(claim(&root), Claim::Ours(_)) {
            remove_tree(&root);
        }
    }
}

fn remove_tree(path: &Path) -> bool {
    let remove = || fault::attempt("remove a cgroup", || fs::remove_dir(path));
    match remove() {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(_) => {
            let below = subgroups(path);
            !below.is_empty() && below.iter().all(|group| remove_tree(group)) && remove().is_ok()
        }
    }
}

fn subgroups(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    let is_dir = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.flatten().filter(is_dir).map(|entry| entry.path()).collect()
}

/// The directory of the cgroup v2 that this process is in, wherever it is mounted.
fn own_cgroup() -> Option<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // Where systemd runs commands of a unit other than its main one: they are about the unit's own cgroup.
    let path = path.strip_suffix("/.control").unwrap_or(path);
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        if !kind.starts_with("cgroup2 ") {
            return None;
        }
        // In a container the mount may show only a part of the tree.
        let below = Path::new("/").join(path).strip_prefix(root).ok()?.to_path_buf();
        Some(Path::new(point).join(below))
    })
}
