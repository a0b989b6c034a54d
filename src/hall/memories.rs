//! `restarts.json`: what a later hall must know of members that failed or were stopped, so that a crash
//! loop is not forgotten by restarting the hall. Written when it changes, by a task of its own.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::lifecycle::{Guild, Memory};
use crate::model::MemberKey;
use crate::process::boot_id;

/// Changes of one moment are written together, and the disk is left alone meanwhile.
const PAUSE: Duration = Duration::from_millis(20);
/// A larger file is none of ours; bytes.
const LARGEST: u64 = 64 * 1024 * 1024;

pub(super) type Memories = BTreeMap<MemberKey, Memory>;

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    /// Moments of another boot mean nothing.
    boot_id: String,
    members: Memories,
}

/// Keeps the file in step with the core.
#[derive(Debug)]
pub(super) struct Chronicle {
    path: PathBuf,
    memories: Memories,
    latest: watch::Sender<Memories>,
    writing: JoinHandle<()>,
}

impl Chronicle {
    /// Must be called within a tokio runtime.
    pub(super) fn open(path: PathBuf, memories: Memories) -> Self {
        let (latest, changes) = watch::channel(memories.clone());
        let writing = tokio::spawn(keep_writing(path.clone(), changes));
        Self { path, memories, latest, writing }
    }

    /// These members have changed.
    pub(super) fn note<'a>(&mut self, guild: &Guild, keys: impl Iterator<Item = &'a MemberKey>) {
        let mut changed = false;
        for key in keys {
            let memory = guild.memory(key);
            if self.memories.get(key) == memory.as_ref() {
                continue;
            }
            changed = true;
            match memory {
                Some(memory) => drop(self.memories.insert(key.clone(), memory)),
                None => drop(self.memories.remove(key)),
            }
        }
        if changed {
            self.latest.send_replace(self.memories.clone());
        }
    }

    /// The hall is stopped as somebody asked: blocks until that is on paper.
    pub(super) async fn close(self) {
        let Self { path, memories, latest, writing } = self;
        drop(latest);
        // What is being written is written to its end first.
        let _ = writing.await;
        let kept: Memories =
            memories.into_iter().filter_map(|(key, memory)| Some((key, memory.after_a_stop()?))).collect();
        let _ = tokio::task::spawn_blocking(move || write_or_warn(&path, kept)).await;
    }
}

/// Empty where nothing is known, or nothing of this boot.
pub(super) fn recall(path: &Path) -> Memories {
    let read = || -> io::Result<Option<Written>> {
        if fs::metadata(path)?.len() > LARGEST {
            return Ok(None);
        }
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    };
    match read() {
        Ok(Some(written)) if written.boot_id == boot_id() => written.members,
        Ok(_) => Memories::new(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Memories::new(),
        Err(error) => {
            tracing::warn!("cannot read {}, all restarts are counted anew: {error}", path.display());
            Memories::new()
        }
    }
}

async fn keep_writing(path: PathBuf, mut changes: watch::Receiver<Memories>) {
    while changes.changed().await.is_ok() {
        let memories = changes.borrow_and_update().clone();
        let path = path.clone();
        // A panic there has been printed; the next change is written all the same.
        let _ = tokio::task::spawn_blocking(move || write_or_warn(&path, memories)).await;
        tokio::time::sleep(PAUSE).await;
    }
}

fn write_or_warn(path: &Path, members: Memories) {
    if let Err(error) = write(path, members) {
        tracing::warn!(
            "cannot write {}: a restart of the hall will forget how often members were restarted: {error}",
            path.display()
        );
    }
}

fn write(path: &Path, members: Memories) -> io::Result<()> {
    if members.is_empty() {
        return match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    }
    let text = serde_json::to_vec(&Written { boot_id: boot_id().into(), members })?;
    let next = path.with_extension("json.new");
    fs::write(&next, text).and_then(|()| fs::rename(&next, path))
}
