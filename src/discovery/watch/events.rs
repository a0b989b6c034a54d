//! What one event of the kernel means. The other half of [`Watcher`].

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use rustix::fs::inotify::ReadFlags;

use super::gathering::Meaning;
use super::tree::{Event, Rank};
use super::{Fresh, MOST_READS, Watcher, makes_a_member, shown};
use crate::dialect::REGISTRY_FILE;
use crate::model::MemberKey;

const APPEARED: ReadFlags = ReadFlags::CREATE.union(ReadFlags::MOVED_TO);
const WENT: ReadFlags = ReadFlags::DELETE.union(ReadFlags::MOVED_FROM);
/// The watched directory itself went.
const SELF_WENT: ReadFlags = ReadFlags::MOVE_SELF.union(ReadFlags::DELETE_SELF);

impl Watcher {
    /// Takes what the kernel has to tell.
    pub(super) fn hear(&mut self) -> io::Result<()> {
        let started = SystemTime::now();
        for _ in 0..MOST_READS {
            let events = self.tree.read()?;
            if events.is_empty() {
                if self.missed_since.is_none() {
                    self.heard = started;
                }
                break;
            }
            for event in events {
                self.take_event(event);
            }
        }
        Ok(())
    }

    fn take_event(&mut self, Event { watch, what, name }: Event) {
        let now = Instant::now();
        if what.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.missed_since.get_or_insert(self.heard);
            return self.gathering.changed(&self.members, Meaning::Rescan, now);
        }
        if let Some((awaited, child)) = &self.awaited
            && *awaited == watch
        {
            if what.intersects(SELF_WENT) || name.as_ref() == Some(child) {
                self.gathering.changed(&self.members, Meaning::Rescan, now);
            }
            return;
        }
        let Some(dir) = self.tree.dir(watch) else { return };
        let (path, rank) = (dir.path.clone(), dir.rank);
        if what.intersects(SELF_WENT | ReadFlags::IGNORED) {
            if what.contains(ReadFlags::IGNORED) {
                self.tree.ended(watch);
            }
            if rank > Rank::Inner {
                self.gathering.vanished(&path, Meaning::Rescan, now);
            }
            return;
        }
        let Some(name) = name else { return };
        let whole = path.join(&name);
        // What discovery does not enter is none of its business.
        let is_shown = !name.as_encoded_bytes().starts_with(b".") && name != "node_modules";
        let structural =
            is_shown && (rank == Rank::Root || rank == Rank::Branch && !self.owners.contains_key(&path));
        if what.contains(ReadFlags::ISDIR) {
            self.directory(&whole, what, structural, now);
        } else {
            let is_paper = match rank {
                Rank::Root => name == REGISTRY_FILE,
                Rank::Branch | Rank::Leaf => match self.owners.get(&path) {
                    Some(owner) => owner.is_paper(Path::new(&name)),
                    None => makes_a_member(Path::new(&name)),
                },
                Rank::Inner => false,
            };
            self.file(&whole, what, is_paper, structural, now);
        }
    }

    fn directory(&mut self, path: &Path, what: ReadFlags, structural: bool, now: Instant) {
        if what.intersects(APPEARED) {
            for (owner, below) in self.owners_of(path) {
                if self.owners.get(&owner).is_some_and(|owner| owner.files.enters(&below)) {
                    self.walk(&owner, path, Fresh::All);
                }
            }
            if structural {
                self.gathering.changed(path, Meaning::Rescan, now);
            }
        } else if what.intersects(WENT) {
            if self.tree.forget(path) {
                let files = self
                    .owners_of(path)
                    .into_iter()
                    .filter_map(|(owner, below)| Some((self.owners.get(&owner)?.key.clone(), shown(&below))));
                let meaning = Meaning::Files(files.collect());
                self.gathering.vanished(path, meaning, now);
            }
            if structural {
                self.gathering.vanished(path, Meaning::Rescan, now);
            }
        }
    }

    /// `is_paper`: a manifest. `structural`: a link here may lead to a member.
    fn file(&mut self, path: &Path, what: ReadFlags, is_paper: bool, structural: bool, now: Instant) {
        let files = self.files_at(path);
        if files.is_empty() && !is_paper && !structural {
            return;
        }
        if !files.is_empty()
            && let Some(dir) = path.parent().and_then(|dir| self.tree.at(dir))
        {
            dir.holds = true;
        }
        let counts = is_paper || !files.is_empty();
        let meaning = if files.is_empty() { Meaning::Rescan } else { Meaning::Files(files) };
        if what.intersects(WENT) {
            if counts || self.links.contains(path) {
                self.gathering.vanished(path, meaning, now);
            }
        } else if what.intersects(APPEARED) {
            let Ok(meta) = fs::symlink_metadata(path) else { return };
            // A link is whole when it appears; what is written is so when it is closed.
            let is_whole = meta.is_symlink() || what.contains(ReadFlags::MOVED_TO) || meta.nlink() > 1;
            if is_whole && (counts || meta.is_symlink()) {
                self.gathering.changed(path, meaning, now);
            } else if counts {
                self.gathering.returned(path, meaning);
            }
        } else if what.contains(ReadFlags::CLOSE_WRITE) && counts {
            self.gathering.changed(path, meaning, now);
        }
    }

    /// The members in whose directories this is, each with the path below it.
    fn owners_of(&self, path: &Path) -> Vec<(PathBuf, PathBuf)> {
        let owning = path.ancestors().skip(1).filter(|dir| self.owners.contains_key(*dir));
        owning.filter_map(|dir| Some((dir.to_owned(), path.strip_prefix(dir).ok()?.to_owned()))).collect()
    }

    /// The members of which this file is one that counts.
    fn files_at(&self, path: &Path) -> Vec<(MemberKey, String)> {
        let of = |dir: &Path| {
            let (owner, below) = (self.owners.get(dir)?, path.strip_prefix(dir).ok()?);
            owner.counts(below).then(|| (owner.key.clone(), shown(below)))
        };
        path.ancestors().skip(1).filter_map(of).collect()
    }
}
