//! `registered.json` in the run directory: the plugins that were registered over the API. They are members
//! like those of the members directory, under keys that begin with `registered/`; no rescan takes them away.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::plugin_id::{fold, key_of};
use crate::dialect::{FieldFault, LARGEST_MANIFEST, Refused, registration};
use crate::model::{Diagnosis, Found, Manifest, MemberKey, Rejection, Roster};
use crate::process::fault;

/// So many plugins may be registered...
const MOST: usize = 1_000;
/// ...with descriptors that are together no longer than this; bytes.
const LARGEST: usize = 64 * 1024 * 1024;

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
        match read(&registered.path).and_then(|text| registered.take_all(&text)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => set_aside(&registered.path, &error),
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

    fn take_all(&mut self, text: &[u8]) -> io::Result<()> {
        #[derive(serde::Deserialize)]
        struct Written<'a> {
            #[serde(borrow)]
            plugins: Bounded<'a>,
        }
        let Written { plugins: Bounded(descriptors) } = serde_json::from_slice(text)?;
        let mut plugins = BTreeMap::new();
        let mut keys = BTreeSet::new();
        for (n, descriptor) in descriptors.into_iter().enumerate() {
            let place = format!("plugins[{n}]");
            let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, format!("{place} {what}"));
            let id = id_of(descriptor).ok_or_else(|| wrong("has no plugin_id".into()))?;
            let key = key_of(&id).map_err(|error| wrong(format!("cannot be a member: {error}")))?;
            let paper = match registration(descriptor.get().as_bytes(), &self.dir) {
                Ok(read) => Ok(Arc::new(read.manifest)),
                Err(refused) => {
                    tracing::warn!("{}: {place} is refused: {}", self.path.display(), told(&refused));
                    Err(rejection(&self.path, &place, refused))
                }
            };
            let is_new = keys.insert(key.clone());
            let enrolled = Enrolled { key, descriptor: descriptor.to_owned().into(), paper };
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
        // One that was just unregistered has yet to end: it stands in no directory of its own.
        let owned: BTreeSet<&MemberKey> = self.plugins.values().map(|plugin| &plugin.key).collect();
        let in_directories =
            roster.members.iter().filter(|entry| entry.dir != self.dir && !owned.contains(&entry.name));
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
        let written = write(&self.path, &plugins);
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
            each.collect::<Vec<_>>().join("; ").trim().to_owned()
        }
    }
}

fn rejection(path: &Path, place: &str, refused: Refused) -> Rejection {
    let diagnosis = |field: String, message| Diagnosis {
        file: path.into(),
        place: None,
        field: Some(if field.is_empty() { place.into() } else { format!("{place}.{field}") }),
        message,
    };
    match refused {
        Refused::Meaning(what) => diagnosis(String::new(), what).into(),
        Refused::Fields(wrong) => {
            let mut all = wrong.into_iter().map(|wrong| diagnosis(wrong.field, wrong.message));
            match all.next() {
                Some(first) => Rejection { first, rest: all.collect() },
                None => diagnosis(String::new(), "is refused".into()).into(),
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
    let named: Named = serde_json::from_str(descriptor.get()).ok()?;
    named.plugin_id.or(named.id).filter(|id| !id.trim().is_empty())
}

/// A list that is not read further than it may be long.
struct Bounded<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Bounded<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items;
        impl<'de> Visitor<'de> for Items {
            type Value = Bounded<'de>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a list of descriptors")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    if items.len() == MOST {
                        return Err(serde::de::Error::custom(format!("more than {MOST} plugins")));
                    }
                    items.push(item);
                }
                Ok(Bounded(items))
            }
        }
        deserializer.deserialize_seq(Items)
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    // A link or a FIFO of this name is none of ours.
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    // Commas, brackets and line ends besides.
    let limit = LARGEST as u64 + 4096;
    if meta.len() > limit {
        return Err(io::Error::other(format!("it is larger than {limit} bytes")));
    }
    let mut text = Vec::new();
    file.take(limit).read_to_end(&mut text)?;
    Ok(text)
}

fn set_aside(path: &Path, why: &io::Error) {
    let aside = path.with_extension("json.aside");
    match fault::attempt("set a file aside", || fs::rename(path, &aside)) {
        Ok(()) => tracing::warn!(
            "cannot read {}: {why}; no plugin is registered. It is kept as {}: mend it and put it back while no hall \
             runs, or register the plugins again",
            path.display(),
            aside.display()
        ),
        Err(error) => {
            tracing::warn!("cannot read {}: {why}; and it cannot be set aside: {error}", path.display());
        }
    }
}

/// Whole or not at all, also if the machine fails.
fn write(path: &Path, plugins: &BTreeMap<String, Enrolled>) -> io::Result<()> {
    let mut text = String::from("{\"plugins\": [");
    for (n, plugin) in plugins.values().enumerate() {
        text.push_str(if n == 0 { "\n" } else { ",\n" });
        text.push_str(plugin.descriptor.get());
    }
    text.push_str("\n]}\n");
    let next = path.with_extension("json.new");
    fault::attempt("write what is registered", || {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let mut file = options.open(&next)?;
        file.write_all(text.as_bytes())?;
        file.sync_data()
    })?;
    fault::attempt("rename what is registered", || fs::rename(&next, path))
}
