//! The directories that the kernel watches for us, each by its own watch: recursion would watch what
//! others fill with ten thousands of directories.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

/// What is told of a directory. Reading, attributes and writes of a file that is still open are not,
/// so that they cost nothing.
const TOLD: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::EXCL_UNLINK)
    .union(WatchFlags::DONT_FOLLOW)
    .union(WatchFlags::ONLYDIR);

/// What a directory is for discovery; the later, the more depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// Something within a member.
    Inner,
    /// May be a member: its manifest counts.
    Leaf,
    /// May be a member or a collection: the directories in it count as well.
    Branch,
    /// The members directory.
    Root,
}

#[derive(Debug)]
pub(super) struct Dir {
    pub(super) path: PathBuf,
    pub(super) rank: Rank,
    /// A file that counts was seen in it.
    pub(super) holds: bool,
    round: u64,
}

/// One thing that the kernel told.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) watch: i32,
    pub(super) what: ReadFlags,
    pub(super) name: Option<OsString>,
}

#[derive(Debug)]
pub(super) struct Tree {
    inotify: OwnedFd,
    dirs: HashMap<i32, Dir>,
    watches: BTreeMap<PathBuf, i32>,
    round: u64,
}

impl Tree {
    pub(super) fn new() -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self { inotify, dirs: HashMap::new(), watches: BTreeMap::new(), round: 0 })
    }

    /// Readable when the kernel has something to tell.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }

    /// What was told since the last call, a bufferful at the most; empty: nothing.
    pub(super) fn read(&self) -> io::Result<Vec<Event>> {
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut events = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => {
                    let name =
                        event.file_name().map(|name| std::ffi::OsStr::from_bytes(name.to_bytes()).to_owned());
                    events.push(Event { watch: event.wd(), what: event.events(), name });
                }
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(events),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if reader.is_buffer_empty() {
                return Ok(events);
            }
        }
    }

    /// From here on, what is not watched anew is forgotten by [`Tree::sweep`].
    pub(super) fn begin_round(&mut self) {
        self.round += 1;
    }

    /// Watches a directory; one that is watched already is looked at again, since another may have
    /// taken its place.
    pub(super) fn watch(&mut self, path: &Path, rank: Rank) -> io::Result<()> {
        let watch = inotify::add_watch(&self.inotify, path, TOLD)?;
        let round = self.round;
        if let Some(old) = self.watches.insert(path.into(), watch)
            && old != watch
        {
            self.unwatch(old);
        }
        let before = self.dirs.remove(&watch).filter(|dir| {
            if dir.path == path {
                return true;
            }
            // The same directory under another name: it was moved.
            self.watches.remove(&dir.path);
            false
        });
        let dir = match before {
            Some(dir) if dir.round == round => Dir { rank: dir.rank.max(rank), ..dir },
            Some(dir) => Dir { rank, round, ..dir },
            None => Dir { path: path.into(), rank, holds: false, round },
        };
        self.dirs.insert(watch, dir);
        Ok(())
    }

    pub(super) fn sweep(&mut self) {
        let round = self.round;
        let old: Vec<PathBuf> =
            self.dirs.values().filter(|dir| dir.round != round).map(|dir| dir.path.clone()).collect();
        for path in old {
            if let Some(watch) = self.watches.remove(&path) {
                self.unwatch(watch);
            }
        }
    }

    pub(super) fn dir(&self, watch: i32) -> Option<&Dir> {
        self.dirs.get(&watch)
    }

    pub(super) fn at(&mut self, path: &Path) -> Option<&mut Dir> {
        self.dirs.get_mut(self.watches.get(path)?)
    }

    /// How many directories are watched in this one, itself included.
    pub(super) fn count(&self, path: &Path) -> usize {
        self.below(path).count()
    }

    /// The kernel has ended a watch by itself.
    pub(super) fn ended(&mut self, watch: i32) {
        if let Some(dir) = self.dirs.remove(&watch) {
            self.watches.remove(&dir.path);
        }
    }

    /// Stops watching a directory and all that are in it; true if one of them held a file that counts.
    pub(super) fn forget(&mut self, path: &Path) -> bool {
        let all: Vec<(PathBuf, i32)> = self.below(path).map(|(path, watch)| (path.clone(), *watch)).collect();
        let mut held = false;
        for (path, watch) in all {
            held |= self.dirs.get(&watch).is_some_and(|dir| dir.holds);
            self.watches.remove(&path);
            self.unwatch(watch);
        }
        held
    }

    /// Ends a watch that is not of the tree.
    pub(super) fn unawait(&mut self, watch: i32) {
        self.unwatch(watch);
    }

    pub(super) fn forget_all(&mut self) {
        self.watches.clear();
        let all: Vec<i32> = self.dirs.keys().copied().collect();
        for watch in all {
            self.unwatch(watch);
        }
    }

    fn below(&self, path: &Path) -> impl Iterator<Item = (&PathBuf, &i32)> {
        self.watches.range(path.to_owned()..).take_while(move |(below, _)| below.starts_with(path))
    }

    fn unwatch(&mut self, watch: i32) {
        self.dirs.remove(&watch);
        // It may have ended by itself.
        let _ = inotify::remove_watch(&self.inotify, watch);
    }
}
