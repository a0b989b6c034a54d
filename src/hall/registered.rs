//! `registered.json` in the run directory: the plugins that were registered over the API. They are members
//! like those of the members directory, under keys that begin with `registered/`; no rescan takes them away.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::value::RawValue;

use super::plugin_id::{fold, key_of};
use super::registered_file::{self as file, LARGEST, MOST};
use crate::dialect::{FieldFault, LARGEST_MANIFEST, Refused, registration};
use crate::model::{Diagnosis, Found, Manifest, MemberKey, Rejection, Roster};

/// What the dialect calls a descriptor as a whole.
const WHOLE: &str = "body";

/// See the module's page.
#[derive(Debug)]
pub(super) struct Registered {
    path: PathBuf,
    /// What the processes of plugins have for a working directory.
    dir: PathBuf,
    /// By their folded ids.
    plugins: BTreeMap<String, Enrolled>,
    /// Members of the directory that were said to be in the way.
    warned: BTreeSet<MemberKey>,
}

/// One plugin.
#[derive(Debug, Clone)]
struct Enrolled {
    key: MemberKey,
    /// As it came: its digest is that of the member.
    descriptor: Arc<RawValue>,
    /// What an earlier hall has written may be refused by this one.
    paper: Result<Arc<Manifest>, Rejection>,
}

/// Why a plugin cannot be registered. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    #[error("{}", told(.0))]
    Refused(Refused),
    #[error("the descriptor is {0} bytes long: it may have {LARGEST_MANIFEST}")]
    TooLarge(usize),
    #[error("{MOST} plugins are registered, which is the most that can be: unregister one first")]
    TooMany,
    #[error(
        "the descriptors of all registered plugins would be longer than {} MiB: unregister one first",
        LARGEST / 1024 / 1024
    )]
    NoRoom,
    #[error("{0}")]
    Taken(String),
    #[error("cannot write {}: {source}; nothing has changed", path.display())]
    Storage { path: PathBuf, source: io::Error },
    #[error("a fault of the hall itself: {0}")]
    Fault(String),
}

/// What has become of what is on paper.
#[derive(Debug, Clone)]
pub(super) enum Change {
    /// A member is new, other than it was, or gone. The id is as it is written.
    Something { id: String, key: MemberKey },
    /// It was registered before with the very same descriptor, or was not registered.
    Nothing { id: String, key: MemberKey },
}

impl Registered {
    /// What an earlier hall has written. A file that cannot be read is set aside. Blocks.
    pub(super) fn read(path: PathBuf, members: &Path) -> Self {
        let mut registered = Self::nothing(path, members);
        let read = file::read(&registered.path);
        match read.and_then(|descriptors| registered.take_all(descriptors)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                file::set_aside(&registered.path, &error);
            }
            _ => {}
        }
        registered
    }

    /// Nobody is registered.
    pub(super) fn nothing(path: PathBuf, members: &Path) -> Self {
        let dir = fs::canonicalize(members).or_else(|_| std::path::absolute(members));
        let dir = dir.unwrap_or_else(|_| members.into());
        Self { path, dir, plugins: BTreeMap::new(), warned: BTreeSet::new() }
    }

    fn take_all(&mut self, descriptors: Vec<Box<RawValue>>) -> io::Result<()> {
        let mut plugins = BTreeMap::new();
        let mut keys = BTreeSet::new();
        for (n, descriptor) in descriptors.into_iter().enumerate() {
            let place = format!("plugins[{n}]");
            let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, format!("{place} {what}"));
            let id = id_of(&descriptor).ok_or_else(|| wrong("has no plugin_id".into()))?;
            let key = key_of(&id).map_err(|error| wrong(format!("cannot be a member: {error}")))?;
            let paper = match registration(descriptor.get().as_bytes(), &self.dir) {
                Ok(read) => Ok(Arc::new(read.manifest)),
                Err(refused) => {
                    tracing::warn!("{}: {place} is refused: {}", self.path.display(), told(&refused));
                    Err(rejection(&self.path, &place, refused))
                }
            };
            let is_new = keys.insert(key.clone());
            let enrolled = Enrolled { key, descriptor: descriptor.into(), paper };
            if plugins.insert(fold(&id), enrolled).is_some() || !is_new {
                return Err(wrong(format!("is {id:?} a second time")));
            }
        }
        self.plugins = plugins;
        Ok(())
    }

    /// Reads a descriptor and puts it on paper, unless what stands in the members directory has its id or
    /// place. Blocks.
    pub(super) fn register(&mut self, body: &[u8], roster: &Roster) -> Result<Change, RegisterError> {
        if body.len() > LARGEST_MANIFEST {
            return Err(RegisterError::TooLarge(body.len()));
        }
        // Without what stands around it, as it will be read again.
        let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii();
        let read = registration(body, &self.dir).map_err(RegisterError::Refused)?;
        let meaningless = |what: String| RegisterError::Refused(Refused::Meaning(what));
        let descriptor: Box<RawValue> = serde_json::from_slice(body)
            .map_err(|error| meaningless(format!("the descriptor is not JSON: {error}")))?;
        let key = key_of(&read.id).map_err(|error| meaningless(format!("plugin_id: {error}")))?;
        self.check_free(&read.id, &key, roster)?;
        let folded = fold(&read.id);
        let before = self.plugins.get(&folded);
        if before.is_some_and(|before| before.descriptor.get() == descriptor.get()) {
            return Ok(Change::Nothing { id: read.id, key });
        }
        let mut next = self.plugins.clone();
        let paper = Ok(Arc::new(read.manifest));
        next.insert(folded, Enrolled { key: key.clone(), descriptor: descriptor.into(), paper });
        if next.len() > MOST {
            return Err(RegisterError::TooMany);
        }
        if next.values().map(|plugin| plugin.descriptor.get().len()).sum::<usize>() > LARGEST {
            return Err(RegisterError::NoRoom);
        }
        self.write(next)?;
        Ok(Change::Something { id: read.id, key })
    }

    fn check_free(&self, id: &str, key: &MemberKey, roster: &Roster) -> Result<(), RegisterError> {
        let folded = fold(id);
        let other = self.plugins.iter().find(|(other, plugin)| plugin.key == *key && **other != folded);
        if let Some((other, _)) = other {
            let why = format!("it would be the member {key}, which is registered with the id {other:?}");
            return Err(RegisterError::Taken(why));
        }
        // One that was unregistered and has yet to end stands in no directory of its own.
        let owned: BTreeSet<&MemberKey> = self.plugins.values().map(|plugin| &plugin.key).collect();
        let has_own = |dir: &Path| *dir != self.dir && !dir.as_os_str().is_empty();
        let in_directories =
            roster.members.iter().filter(|entry| has_own(&entry.dir) && !owned.contains(&entry.name));
        let stem = key.file_stem();
        for entry in in_directories {
            let (name, dir) = (&entry.name, entry.dir.display());
            if entry.porter.as_ref().is_some_and(|porter| fold(&porter.plugin.id) == folded) {
                let why = format!("the id {id:?} is taken by the member {name}, which stands in {dir}");
                return Err(RegisterError::Taken(why));
            }
            if name.file_stem() == stem {
                let why = format!(
                    "it would be the member {key}, whose name is taken by {name} in {dir}: rename that directory"
                );
                return Err(RegisterError::Taken(why));
            }
        }
        Ok(())
    }

    /// Takes a plugin off the paper, if there is one of this id. Blocks.
    pub(super) fn unregister(&mut self, id: &str) -> Result<Change, RegisterError> {
        let mut next = self.plugins.clone();
        let Some(Enrolled { key, descriptor, .. }) = next.remove(&fold(id)) else {
            let key = key_of(id).map_err(|error| RegisterError::Taken(format!("plugin_id: {error}")))?;
            return Ok(Change::Nothing { id: id.into(), key });
        };
        self.write(next)?;
        let id = id_of(&descriptor).unwrap_or_else(|| id.into());
        Ok(Change::Something { id, key })
    }

    fn write(&mut self, plugins: BTreeMap<String, Enrolled>) -> Result<(), RegisterError> {
        let written = file::write(&self.path, plugins.values().map(|plugin| &*plugin.descriptor));
        written.map_err(|source| RegisterError::Storage { path: self.path.clone(), source })?;
        self.plugins = plugins;
        Ok(())
    }

    /// What the core is to be told of one member alone.
    pub(super) fn only(&self, key: &MemberKey) -> Found {
        let plugin = self.plugins.values().find(|plugin| plugin.key == *key);
        let papers = plugin.map(|plugin| (key.clone(), plugin.paper.clone())).into_iter().collect();
        Found { papers, only: Some(BTreeSet::from([key.clone()])), ..Found::default() }
    }

    /// Adds the registered plugins to what a walk through the members directory has found. Where both want
    /// the same name, the one that was registered keeps it.
    pub(super) fn join(&mut self, found: &mut Found) {
        if self.plugins.is_empty() {
            return;
        }
        let stems: HashMap<String, &MemberKey> =
            self.plugins.values().map(|plugin| (plugin.key.file_stem(), &plugin.key)).collect();
        let mut doubled = BTreeSet::new();
        for (key, paper) in &mut found.papers {
            let stem = key.file_stem();
            match stems.get(&stem) {
                Some(registered) if *registered == key => {
                    doubled.insert(key.clone());
                    if !self.warned.contains(key) {
                        tracing::warn!(
                            "a plugin is registered as {key}, and a directory would be that member, too: it is \
                             left out until it is renamed, or the plugin is unregistered"
                        );
                    }
                }
                Some(registered) => {
                    let file = paper.as_ref().map_or_else(
                        |rejection| rejection.first.file.clone(),
                        |manifest| manifest.dir.clone(),
                    );
                    let message = format!(
                        "\"{key}\" and \"{registered}\", which is registered, would both use the file name {stem:?} \
                         in the run directory; rename this one"
                    );
                    *paper = Err(Diagnosis { file, place: None, field: None, message }.into());
                }
                None => {
                    let id = paper.as_ref().ok().and_then(|manifest| manifest.porter.as_ref());
                    let id = id.map(|porter| porter.plugin.id.as_str()).unwrap_or_default();
                    if let Some(plugin) = self.plugins.get(&fold(id)) {
                        doubled.insert(key.clone());
                        if !self.warned.contains(key) {
                            tracing::warn!(
                                "{key} has the id {id:?}, which {} is registered with: look-ups of that id mean {key}; \
                                 unregister one, or give it another id",
                                plugin.key
                            );
                        }
                    }
                }
            }
        }
        self.warned = doubled;
        for plugin in self.plugins.values() {
            found.papers.insert(plugin.key.clone(), plugin.paper.clone());
        }
    }
}

/// In one sentence.
fn told(refused: &Refused) -> String {
    match refused {
        Refused::Meaning(what) => what.clone(),
        Refused::Fields(wrong) => {
            let each = wrong.iter().map(|FieldFault { field, message }| format!("{field} {message}"));
            each.collect::<Vec<_>>().join("; ")
        }
    }
}

fn rejection(path: &Path, place: &str, refused: Refused) -> Rejection {
    let diagnosis = |field: String, message| Diagnosis {
        file: path.into(),
        place: None,
        field: Some(if field == WHOLE { place.into() } else { format!("{place}.{field}") }),
        message,
    };
    match refused {
        Refused::Meaning(what) => diagnosis(WHOLE.into(), what).into(),
        Refused::Fields(wrong) => {
            let mut all = wrong.into_iter().map(|wrong| diagnosis(wrong.field, wrong.message));
            match all.next() {
                Some(first) => Rejection { first, rest: all.collect() },
                None => diagnosis(WHOLE.into(), "is refused".into()).into(),
            }
        }
    }
}

fn id_of(descriptor: &RawValue) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Named {
        plugin_id: Option<String>,
        id: Option<String>,
    }
    let Named { plugin_id, id } = serde_json::from_str(descriptor.get()).ok()?;
    plugin_id.or(id).filter(|id| !id.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{HallFacts, Pid, Timestamp};

    fn descriptor(id: &str, about: &str) -> String {
        serde_json::json!({
            "plugin_id": id, "name": "A", "description": about, "health_check_url": "http://127.0.0.1:1/health",
            "type": "http", "config": {"base_url": "http://127.0.0.1:1"}, "capabilities": [],
        })
        .to_string()
    }

    fn nobody() -> Roster {
        let hall = HallFacts { version: String::new(), pid: Pid(1), started_at: Timestamp(0), gateway: None };
        Roster { generation: 0, hall, members: Vec::new() }
    }

    fn open(dir: &tempfile::TempDir) -> Registered {
        Registered::read(dir.path().join("registered.json"), dir.path())
    }

    #[test]
    fn a_thousand_plugins_are_enough_and_one_more_goes_when_another_has_gone() {
        let dir = tempfile::tempdir().unwrap();
        let all: Vec<String> = (0..MOST).map(|n| descriptor(&format!("p{n}"), "small")).collect();
        let text = format!("{{\"plugins\": [{}]}}", all.join(","));
        fs::write(dir.path().join("registered.json"), text).unwrap();
        let mut registered = open(&dir);
        assert_eq!(registered.plugins.len(), MOST);
        let one_more = descriptor("one more", "small");
        let refused = registered.register(one_more.as_bytes(), &nobody());
        assert!(matches!(refused, Err(RegisterError::TooMany)), "{refused:?}");
        // One that is there may still change.
        registered.register(descriptor("p7", "other").as_bytes(), &nobody()).unwrap();
        registered.unregister("P7").unwrap();
        registered.register(one_more.as_bytes(), &nobody()).unwrap();
        assert_eq!(open(&dir).plugins.len(), MOST);
    }

    #[test]
    fn all_descriptors_together_have_a_limit_too() {
        let dir = tempfile::tempdir().unwrap();
        let mut registered = open(&dir);
        let about = "x".repeat(LARGEST_MANIFEST - 1000);
        let fit = LARGEST / about.len();
        let descriptors = (0..fit).map(|n| descriptor(&format!("p{n}"), &about));
        let plugins = descriptors.enumerate().map(|(n, text)| {
            let enrolled = Enrolled {
                key: key_of(&format!("p{n}")).unwrap(),
                descriptor: RawValue::from_string(text).unwrap().into(),
                paper: Err(
                    Diagnosis { file: "f".into(), place: None, field: None, message: String::new() }.into()
                ),
            };
            (format!("p{n}"), enrolled)
        });
        registered.plugins = plugins.collect();
        let refused = registered.register(descriptor("one more", &about).as_bytes(), &nobody());
        assert!(matches!(refused, Err(RegisterError::NoRoom)), "{refused:?}");
        assert!(!registered.path.exists());
    }

    #[test]
    fn a_descriptor_has_the_same_digest_when_it_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut registered = open(&dir);
        let text = format!("\u{feff}\n {}\n\n", descriptor("a", "x").replace(',', " ,\n"));
        registered.register(text.as_bytes(), &nobody()).unwrap();
        let paper = |registered: &Registered| registered.plugins["a"].paper.clone().unwrap();
        assert_eq!(paper(&open(&dir)), paper(&registered));
    }
}
