//! Watching the members directory: what changes there becomes a rescan, or the members whose files
//! changed. Blocking: `hall/watching.rs` calls it on a thread of its own.
//!
//! A directory is always watched before it is read, so nothing is missed between the two. When the
//! kernel could not keep up, everything is looked at again and compared with the time until which
//! nothing was missed.

mod events;
mod files;
mod gathering;
mod tree;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, WatchFlags};

use super::listed::listed_dirs;
use super::papers::manifests_in;
use super::{DiscoveryError, MOST_MEMBERS, discover, read_dir};
use crate::dialect::MANIFEST_FILES;
use crate::model::{Dialect, Digest, Found, Manifest, MemberKey};

use files::Files;
use gathering::{Gathering, Meaning};
use tree::{Rank, Tree};

/// Directories watched for one member; what is in further ones is not seen.
const MOST_DIRECTORIES: usize = 1_000;
/// The kernel is asked this often, at the most, while there is much to tell.
const PAUSE: Duration = Duration::from_millis(10);
/// Bufferfuls taken at a time, before it is looked whether something is due.
const MOST_READS: usize = 64;
/// File systems round the time of a change down.
const CLOCK_STEP: Duration = Duration::from_millis(100);

/// Waits for changes; what they mean is then taken from it.
#[derive(Debug)]
pub struct Watcher {
    /// As it was given.
    members: PathBuf,
    tree: Tree,
    /// The members by their directories.
    owners: BTreeMap<PathBuf, Owner>,
    /// Links that may lead to members.
    links: BTreeSet<PathBuf>,
    gathering: Gathering,
    /// The members directory is not there: the watch of what it will appear in, and the name that
    /// appears first.
    awaited: Option<(i32, OsString)>,
    /// All that changed before then is known...
    heard: SystemTime,
    /// ...but for what changed since then and was not told.
    missed_since: Option<SystemTime>,
    /// It was said that the kernel watches no more directories.
    is_full: bool,
}

/// A member whose files are watched.
#[derive(Debug)]
struct Owner {
    key: MemberKey,
    digest: Digest,
    dialect: Dialect,
    files: Files,
    /// It was said that it has too many directories.
    is_full: bool,
}

/// Which files count as changed when a directory is walked.
#[derive(Debug, Clone, Copy)]
enum Fresh {
    None,
    Since(SystemTime),
    All,
}

impl Watcher {
    /// Watches nothing yet: [`Watcher::rescan`] does.
    pub fn new(members: &Path) -> io::Result<Self> {
        Ok(Self {
            members: members.into(),
            tree: Tree::new()?,
            owners: BTreeMap::new(),
            links: BTreeSet::new(),
            gathering: Gathering::default(),
            awaited: None,
            heard: SystemTime::now(),
            missed_since: None,
            is_full: false,
        })
    }

    /// Waits until changes have come and no more follow; the others then tell which.
    pub fn wait(&mut self) -> io::Result<()> {
        loop {
            let due = self.gathering.due();
            let left = due.map(|due| due.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(());
            }
            let timeout = left.map(|left| Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            });
            let fd = self.tree.fd();
            match poll(&mut [PollFd::new(&fd, PollFlags::IN)], timeout.as_ref()) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => {
                    self.hear()?;
                    std::thread::sleep(PAUSE);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The members directory, read again, where that is due.
    pub fn take_rescan(&mut self) -> Option<Result<Found, DiscoveryError>> {
        self.gathering.take_rescan(Instant::now()).then(|| self.rescan())
    }

    /// Members of which a file has changed, each with one such file, relative to its directory.
    pub fn take_files(&mut self) -> BTreeMap<MemberKey, String> {
        self.gathering.take_files(Instant::now())
    }

    /// A member is started anew after all that was heard: nothing of that counts for it any more.
    pub fn forgive(&mut self, key: &MemberKey) {
        self.gathering.forgive(key);
    }

    /// Reads the members directory, with everything in it watched from before it was read.
    pub fn rescan(&mut self) -> Result<Found, DiscoveryError> {
        let missed = self.missed_since.take();
        self.tree.begin_round();
        let found = match self.watch_structure().and_then(|()| discover(&self.members)) {
            Ok(found) => found,
            Err(error) => {
                self.missed_since = missed.or(Some(self.heard));
                self.await_return();
                return Err(error);
            }
        };
        self.await_no_more();
        let known = self.take_owners(&found);
        let dirs: Vec<PathBuf> = self.owners.keys().cloned().collect();
        for dir in dirs {
            let fresh = match missed {
                Some(since) if known.contains(&dir) => Fresh::Since(since),
                _ => Fresh::None,
            };
            self.walk(&dir, &dir, fresh);
        }
        self.tree.sweep();
        Ok(found)
    }

    /// Watches what discovery looks at: the members directory, what stands in it, and what stands in
    /// directories that hold no manifest.
    fn watch_structure(&mut self) -> Result<(), DiscoveryError> {
        let failed = |source| DiscoveryError::new(&self.members, source);
        let root = fs::canonicalize(&self.members).map_err(failed)?;
        // Before it is read.
        self.watch(&root, Rank::Root);
        self.links.clear();
        let mut looked_at = 0;
        for branch in read_dir(&root).map_err(|source| DiscoveryError::new(&self.members, source))? {
            looked_at += 1;
            if branch.is_link {
                self.watch_link(&root, branch.path);
                continue;
            }
            self.watch(&branch.path, Rank::Branch);
            if manifests_in(&branch.path).next().is_some() {
                continue;
            }
            // One that cannot be read is an error entry of the roster.
            for leaf in read_dir(&branch.path).unwrap_or_default() {
                looked_at += 1;
                if leaf.is_link {
                    self.watch_link(&root, leaf.path);
                } else {
                    self.watch(&leaf.path, Rank::Leaf);
                }
            }
            if looked_at > MOST_MEMBERS {
                break;
            }
        }
        for dir in listed_dirs(&self.members, &root).into_iter().take(MOST_MEMBERS) {
            self.watch(&dir, Rank::Leaf);
        }
        Ok(())
    }

    /// The directory that a link leads to, where discovery would follow it.
    fn watch_link(&mut self, root: &Path, link: PathBuf) {
        if let Ok(target) = fs::canonicalize(&link)
            && target.starts_with(root)
            && !root.starts_with(&target)
        {
            self.watch(&target, Rank::Leaf);
        }
        self.links.insert(link);
    }

    /// Takes the members over; those that were known before stay so, also while their manifest is
    /// invalid. Returns the directories of these.
    fn take_owners(&mut self, found: &Found) -> BTreeSet<PathBuf> {
        let root = fs::canonicalize(&self.members).ok();
        let mut before = std::mem::take(&mut self.owners);
        let mut known = BTreeSet::new();
        for (key, paper) in &found.papers {
            let dir = match paper {
                // What is elsewhere has no files here.
                Ok(manifest) if Some(&manifest.dir) == root.as_ref() => continue,
                Ok(manifest) => manifest.dir.clone(),
                Err(_) => match before.iter().find(|(_, owner)| owner.key == *key) {
                    Some((dir, _)) => dir.clone(),
                    None => continue,
                },
            };
            let old = before.remove(&dir);
            if old.is_some() {
                known.insert(dir.clone());
            }
            let owner = match (old, paper) {
                (Some(old), Err(_)) => Some(old),
                (Some(old), Ok(manifest)) if old.digest == manifest.digest && old.key == *key => Some(old),
                (_, Ok(manifest)) => Some(Owner::new(key, manifest)),
                (None, Err(_)) => None,
            };
            self.owners.extend(owner.map(|owner| (dir, owner)));
        }
        known
    }

    /// Watches `start` and what is in it, as far as files of the member at `dir` may be there.
    fn walk(&mut self, dir: &Path, start: &Path, fresh: Fresh) {
        let now = Instant::now();
        let others = if start == dir { 0 } else { self.tree.count(dir) };
        let mut left = MOST_DIRECTORIES.saturating_sub(others);
        // The nearest first: they matter most where there are too many.
        let mut ahead = VecDeque::from([start.to_owned()]);
        while let Some(path) = ahead.pop_front() {
            if left == 0 {
                self.say_too_many(dir);
                return;
            }
            left -= 1;
            if !self.watch(&path, Rank::Inner) {
                continue;
            }
            let Some(owner) = self.owners.get(dir) else { return };
            let mut holds = false;
            // What cannot be read, or is gone, holds nothing.
            for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
                let whole = entry.path();
                let (Ok(kind), Ok(below)) = (entry.file_type(), whole.strip_prefix(dir)) else { continue };
                if kind.is_dir() {
                    if owner.files.enters(below) {
                        ahead.push_back(whole);
                    }
                } else if owner.counts(below) {
                    holds = true;
                    if is_fresh(&entry, fresh) {
                        let meaning = Meaning::Files(vec![(owner.key.clone(), shown(below))]);
                        self.gathering.changed(&whole, meaning, now);
                    }
                }
            }
            if let Some(dir) = self.tree.at(&path) {
                dir.holds |= holds;
            }
        }
    }

    fn say_too_many(&mut self, dir: &Path) {
        if let Some(owner) = self.owners.get_mut(dir)
            && !std::mem::replace(&mut owner.is_full, true)
        {
            tracing::warn!(
                member = %owner.key,
                "has more than {MOST_DIRECTORIES} directories: changes in the others are not seen; name what matters in the `watch` of its manifest"
            );
        }
    }

    /// False where it cannot be watched: it is gone, or the kernel has no more watches.
    fn watch(&mut self, path: &Path, rank: Rank) -> bool {
        let Err(error) = self.tree.watch(path, rank) else { return true };
        if error.kind() == io::ErrorKind::StorageFull && !std::mem::replace(&mut self.is_full, true) {
            tracing::warn!(
                "changes in {} and further directories are not seen, since this user has no more inotify watches: \
                 raise the sysctl fs.inotify.max_user_watches",
                path.display()
            );
        }
        false
    }

    /// The members directory is gone: what it was is let go, and its return watched for.
    fn await_return(&mut self) {
        self.tree.forget_all();
        self.await_no_more();
        let Ok(whole) = std::path::absolute(&self.members) else { return };
        let appears = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        let goes = WatchFlags::MOVE_SELF | WatchFlags::DELETE_SELF;
        for (dir, child) in whole.ancestors().skip(1).zip(whole.ancestors()) {
            let Some(name) = child.file_name() else { continue };
            if let Ok(watch) = inotify::add_watch(self.tree.fd(), dir, appears | goes) {
                self.awaited = Some((watch, name.to_owned()));
                break;
            }
        }
        // It may have come back before it was watched for.
        if fs::read_dir(&self.members).is_ok() {
            self.gathering.changed(&whole, Meaning::Rescan, Instant::now());
        }
    }

    fn await_no_more(&mut self) {
        if let Some((watch, _)) = self.awaited.take() {
            self.tree.unawait(watch);
        }
    }
}

impl Owner {
    fn new(key: &MemberKey, manifest: &Manifest) -> Self {
        let (digest, dialect) = (manifest.digest, manifest.dialect);
        Self { key: key.clone(), digest, dialect, files: Files::of(manifest), is_full: false }
    }

    /// Manifests do not: what they say is compared by a rescan. Those of another dialect are files like
    /// any other.
    fn counts(&self, below: &Path) -> bool {
        self.files.counts(below) && !self.is_paper(below)
    }

    fn is_paper(&self, below: &Path) -> bool {
        match self.dialect {
            Dialect::Guild => below == Path::new(MANIFEST_FILES[0]),
            Dialect::HomeClaw => is_manifest(below),
        }
    }
}

fn is_manifest(below: &Path) -> bool {
    MANIFEST_FILES.iter().any(|file| below == Path::new(file))
}

/// What makes a member of a directory that is none: a manifest, or the Python class without which
/// some are none.
fn makes_a_member(name: &Path) -> bool {
    is_manifest(name) || name.extension().is_some_and(|extension| extension == "py")
}

/// A path as messages show it.
fn shown(below: &Path) -> String {
    below.display().to_string()
}

fn is_fresh(entry: &fs::DirEntry, fresh: Fresh) -> bool {
    match fresh {
        Fresh::None => false,
        Fresh::All => true,
        Fresh::Since(since) => {
            let since = since.checked_sub(CLOCK_STEP).unwrap_or(since);
            let since = since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            entry.metadata().is_ok_and(|meta| {
                let changed = (meta.ctime(), meta.ctime_nsec());
                changed >= (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos().into())
            })
        }
    }
}
