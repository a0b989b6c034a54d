//! F2. From a members directory to manifests: two levels deep, links followed once, never out.
//! Called by `hall` at start and at each reload, and by `check`. `watch` tells what changes there.

mod listed;
mod papers;
mod watch;

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, FileType};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::model::{Diagnosis, Found, Manifest, MemberKey, Rejection};

pub use listed::check_registry;
pub use papers::{read_manifest, read_member};
pub use watch::Watcher;

/// More members than this are not looked at: the pool has 1,001 ports.
const MOST_MEMBERS: usize = 20_000;

/// Why a members directory cannot be walked at all.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the members directory {path}: {source}{hint}", path = path.display())]
pub struct DiscoveryError {
    path: PathBuf,
    #[source]
    source: io::Error,
    hint: &'static str,
}

impl DiscoveryError {
    /// The action that failed is reading `path`.
    pub fn new(path: &Path, source: io::Error) -> Self {
        let hint = match source.kind() {
            io::ErrorKind::NotFound => "; create it, or name another with --members",
            _ => "",
        };
        Self { path: path.into(), source, hint }
    }
}

/// Everything that stands in the members directory: for each member its manifest, or why there is none.
pub fn discover(members: &Path) -> Result<Found, DiscoveryError> {
    let failed = |source| DiscoveryError::new(members, source);
    let root = fs::canonicalize(members).map_err(failed)?;
    let entries = read_dir(&root).map_err(failed)?;
    let mut walk = Walk::new(members, root);
    for entry in entries {
        walk.first_level(entry);
    }
    walk.follow_links();
    walk.follow_registry();
    Ok(walk.found)
}

/// A directory that may be a member, a collection, or neither.
struct Candidate {
    path: PathBuf,
    name: String,
    is_link: bool,
}

struct Walk<'a> {
    /// As it was given: what messages show.
    members: &'a Path,
    root: PathBuf,
    found: Found,
    /// File names in the run directory that are taken.
    stems: HashSet<String>,
    /// Links are looked at last, so that a directory that stands here itself keeps its own name.
    links: Vec<(Option<String>, Candidate)>,
    /// Real directories that are members.
    seen: BTreeSet<PathBuf>,
}

impl<'a> Walk<'a> {
    fn new(members: &'a Path, root: PathBuf) -> Self {
        Self {
            members,
            root,
            found: Found::default(),
            stems: HashSet::new(),
            links: Vec::new(),
            seen: BTreeSet::new(),
        }
    }

    fn first_level(&mut self, candidate: Candidate) {
        if candidate.is_link {
            self.links.push((None, candidate));
            return;
        }
        let path = candidate.path.clone();
        if !self.member(None, candidate) {
            self.collection(&path);
        }
    }

    /// The members of a collection. An empty directory, or one that holds no manifest, is nothing.
    fn collection(&mut self, path: &Path) {
        let Some(collection) = path.file_name().map(|name| name.to_string_lossy().into_owned()) else {
            return;
        };
        match read_dir(path) {
            Ok(candidates) => {
                for candidate in candidates {
                    if candidate.is_link {
                        self.links.push((Some(collection.clone()), candidate));
                    } else {
                        self.member(Some(&collection), candidate);
                    }
                }
            }
            Err(error) => {
                self.reject(&collection, path, format!("the directory cannot be read: {error}"));
                self.found.unread.insert(collection);
            }
        }
    }

    fn follow_links(&mut self) {
        for (collection, candidate) in std::mem::take(&mut self.links) {
            let key = key_text(collection.as_deref(), &candidate.name);
            let target = match fs::canonicalize(&candidate.path) {
                Ok(target) => target,
                Err(error) => {
                    self.reject(&key, &candidate.path, format!("is a link that leads nowhere: {error}"));
                    continue;
                }
            };
            if !target.is_dir() || self.root.starts_with(&target) || self.seen.contains(&target) {
                continue;
            }
            if !target.starts_with(&self.root) {
                let message = format!(
                    "is a link out of the members directory, to {}; it is not followed: move the plugin here",
                    target.display()
                );
                self.reject(&key, &candidate.path, message);
                continue;
            }
            self.member(collection.as_deref(), candidate);
        }
    }

    /// Takes a directory up if it holds a manifest.
    fn member(&mut self, collection: Option<&str>, candidate: Candidate) -> bool {
        let text = key_text(collection, &candidate.name);
        let shown = self.shown(&candidate.path);
        let readable = fs::symlink_metadata(candidate.path.join("."));
        if let Err(error) = readable {
            if error.kind() == io::ErrorKind::PermissionDenied {
                self.reject(&text, &candidate.path, format!("the directory cannot be read: {error}"));
                return true;
            }
            return false;
        }
        let Some(read) = read_member(&shown) else { return false };
        match read {
            Ok(manifest) => {
                self.seen.insert(manifest.dir.clone());
                self.insert(&text, &candidate.path, Ok(manifest));
            }
            Err(rejection) => self.insert(&text, &candidate.path, Err(rejection)),
        }
        true
    }

    fn reject(&mut self, key: &str, path: &Path, message: String) {
        let diagnosis = Diagnosis { file: self.shown(path), place: None, field: None, message };
        self.insert(key, path, Err(diagnosis.into()));
    }

    fn insert(&mut self, text: &str, path: &Path, read: Result<Manifest, Rejection>) {
        if self.found.papers.len() >= MOST_MEMBERS {
            return;
        }
        let file = self.shown(path);
        let refused = |message| Diagnosis { file, place: None, field: None, message };
        let (key, paper) = match MemberKey::parse(text) {
            Ok(key) if self.stems.insert(key.file_stem()) => (Ok(key), read.map(Arc::new)),
            Ok(key) => {
                let message = format!(
                    "\"{key}\" and another member would both use the file name {:?} in the run directory; rename one",
                    key.file_stem()
                );
                (Ok(key), Err(refused(message).into()))
            }
            Err(error) => {
                let printable: String =
                    text.chars().map(|c| if c.is_control() { '?' } else { c }).take(60).collect();
                let message = format!("cannot be a member: {error}");
                (MemberKey::parse(&printable), Err(refused(message).into()))
            }
        };
        if let Ok(key) = key {
            // A stand-in for an unusable name must not take a member's place.
            self.found.papers.entry(key).or_insert(paper);
        }
    }

    /// The path as the user wrote the members directory, not as it was resolved.
    fn shown(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.root).map_or_else(|_| path.into(), |below| self.members.join(below))
    }
}

fn key_text(collection: Option<&str>, name: &str) -> String {
    collection.map_or_else(|| name.to_owned(), |collection| format!("{collection}/{name}"))
}

/// The directories and links in a directory, sorted by name, without those that no member is kept in.
fn read_dir(path: &Path) -> io::Result<Vec<Candidate>> {
    let mut candidates = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let kind: FileType = entry.file_type()?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !(kind.is_dir() || kind.is_symlink()) || name.starts_with('.') || name == "node_modules" {
            continue;
        }
        candidates.push(Candidate { path: entry.path(), name, is_link: kind.is_symlink() });
    }
    candidates.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(candidates)
}
