//! What `registry.yaml` in the members directory lists. Its paths lead nowhere that links may not lead.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::Walk;
use super::papers::{manifests_in, read_bounded, read_manifest, read_member};
use crate::dialect::{self, Listed, MANIFEST_FILES, REGISTRY_FILE, Registry};
use crate::model::{Diagnosis, Manifest, MemberKey, Rejection};

/// Reads the registry in a members directory; `None` where there is none. `shown` is the directory as
/// messages name it, `root` the same, resolved.
pub(super) fn read_registry(shown: &Path, root: &Path) -> Option<Result<Registry, Rejection>> {
    let file = shown.join(REGISTRY_FILE);
    // A directory of that name is a member like any other.
    if fs::metadata(&file).is_ok_and(|meta| meta.is_dir()) {
        return None;
    }
    let bytes = match read_bounded(&file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            let message = format!("cannot be read: {error}");
            return Some(Err(Diagnosis { file, place: None, field: None, message }.into()));
        }
    };
    Some(dialect::registry(&file, root, &bytes))
}

/// Directories that a registry leads to, resolved.
pub(super) fn listed_dirs(members: &Path, root: &Path) -> Vec<PathBuf> {
    let Some(Ok(registry)) = read_registry(members, root) else { return Vec::new() };
    let paths = registry.listed.into_iter().filter_map(|listed| match listed {
        Listed::Path { path, .. } => resolve(root, &path).ok(),
        Listed::Remote { .. } => None,
    });
    paths.map(|target| target.dir).collect()
}

/// Where a path of the registry leads.
struct Target {
    dir: PathBuf,
    /// The path is that of a manifest.
    manifest: Option<PathBuf>,
}

/// The error says why it leads to no member.
fn resolve(root: &Path, path: &str) -> Result<Target, String> {
    let target = fs::canonicalize(root.join(path)).map_err(|error| format!("is {path:?}: {error}"))?;
    if !target.starts_with(root) || target == root {
        return Err(format!(
            "is {path:?}, which leads out of the members directory, to {}; move the plugin here",
            target.display()
        ));
    }
    if target.is_dir() {
        if manifests_in(&target).next().is_none() {
            return Err(format!("is {path:?}, and there is no manifest in it"));
        }
        return Ok(Target { dir: target, manifest: None });
    }
    let is_manifest = MANIFEST_FILES.iter().any(|name| target.file_name().is_some_and(|file| file == *name));
    match target.parent() {
        Some(dir) if is_manifest && dir != root => {
            Ok(Target { dir: dir.into(), manifest: Some(target.clone()) })
        }
        _ => Err(format!("is {path:?}, which is neither a plugin's directory nor its manifest")),
    }
}

impl Walk<'_> {
    /// Takes up what the registry lists, after everything that stands here itself.
    pub(super) fn follow_registry(&mut self) {
        let mut faults = Vec::new();
        match read_registry(self.members, &self.root) {
            None => return,
            Some(Err(rejection)) => {
                self.found.unlisted = true;
                let root = self.root.clone();
                return self.insert(REGISTRY_FILE, &root, Err(rejection));
            }
            Some(Ok(registry)) => {
                faults.extend(registry.faults);
                for listed in registry.listed {
                    faults.extend(self.listed(listed));
                }
            }
        }
        let mut faults = faults.into_iter();
        if let Some(first) = faults.next() {
            let root = self.root.clone();
            self.insert(REGISTRY_FILE, &root, Err(Rejection { first, rest: faults.collect() }));
        }
    }

    /// Takes one entry up; returns what is wrong with it.
    fn listed(&mut self, listed: Listed) -> Option<Diagnosis> {
        let root = self.root.clone();
        match listed {
            Listed::Remote { id, place, field, read } => {
                if self.found.papers.contains_key(&id) {
                    let message =
                        format!("\"{id}\" is the name of a member that stands here itself; rename one");
                    return Some(Diagnosis { place: Some(place), ..self.fault(field, message) });
                }
                self.insert(id.as_str(), &root, (*read).map(as_listed));
            }
            Listed::Path { path, place, field } => {
                let target = match resolve(&root, &path) {
                    Ok(target) => target,
                    Err(why) => return Some(Diagnosis { place: Some(place), ..self.fault(field, why) }),
                };
                let name = target.dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
                if self.seen.contains(&target.dir) || self.stands_here(&target.dir) {
                    return None;
                }
                if MemberKey::parse(&name).is_ok_and(|key| self.found.papers.contains_key(&key)) {
                    let message =
                        format!("is {path:?}, and there is another member called {name:?}; rename one");
                    return Some(Diagnosis { place: Some(place), ..self.fault(field, message) });
                }
                let read = match &target.manifest {
                    Some(manifest) => Some(read_manifest(&self.shown(manifest))),
                    None => read_member(&self.shown(&target.dir)),
                };
                self.seen.insert(target.dir.clone());
                self.insert(&name, &target.dir, read?.map(as_listed));
            }
        }
        None
    }

    /// A directory that was found where it is, though its manifest has a fault.
    fn stands_here(&self, dir: &Path) -> bool {
        let below = dir.strip_prefix(&self.root).ok().and_then(Path::to_str);
        let key = below.and_then(|below| MemberKey::parse(below).ok());
        key.is_some_and(|key| self.found.papers.contains_key(&key))
    }

    fn fault(&self, field: String, message: String) -> Diagnosis {
        let field = (!field.is_empty()).then_some(field);
        Diagnosis { file: self.members.join(REGISTRY_FILE), place: None, field, message }
    }
}

fn as_listed(manifest: Manifest) -> Manifest {
    Manifest { listed: true, ..manifest }
}

/// What `check` says of a registry alone: its entries as they are read with the directory that it is in.
pub fn check_registry(shown: &Path) -> Vec<Result<Manifest, Rejection>> {
    let dir = shown.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(root) = fs::canonicalize(dir) else { return Vec::new() };
    let mut walk = Walk::new(dir, root);
    walk.follow_registry();
    let papers = walk.found.papers.into_values();
    papers.map(|paper| paper.map(|manifest| Manifest::clone(&manifest))).collect()
}
