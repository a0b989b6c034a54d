//! `restarts.json`: what a later hall must know of members that failed or were stopped, so that a crash
//! loop is not forgotten by restarting the hall. Written when it changes, by a task of its own.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::lifecycle::{Guild, Memory};
use crate::model::MemberKey;
use crate::process::{boot_id, fault};

/// Changes of one moment are written together, and the disk is left alone meanwhile, unless somebody
/// waits for an answer.
const PAUSE: Duration = Duration::from_millis(20);
/// What could not be written is tried again so much later, at the latest.
const AGAIN: Duration = Duration::from_secs(2);
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

/// Tells who asked what became of it.
pub(super) type Answer = Box<dyn FnOnce() + Send>;

/// Keeps the file in step with the core.
pub(super) struct Chronicle {
    path: PathBuf,
    memories: Memories,
    latest: watch::Sender<Memories>,
    answers: Arc<Answers>,
    writing: JoinHandle<()>,
}

/// Answers that wait for what follows from them to be on paper: a wish that was granted is not
/// forgotten, whatever becomes of the hall. The inbox bounds how many there are.
#[derive(Default)]
struct Answers {
    waiting: Mutex<Vec<Answer>>,
    urgent: Notify,
}

impl Answers {
    fn take(&self) -> Vec<Answer> {
        std::mem::take(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn give(answers: Vec<Answer>) {
        for answer in answers {
            answer();
        }
    }
}

impl Chronicle {
    /// Must be called within a tokio runtime.
    pub(super) fn open(path: PathBuf, memories: Memories) -> Self {
        let (latest, changes) = watch::channel(memories.clone());
        let answers = Arc::<Answers>::default();
        let writing = tokio::spawn(keep_writing(path.clone(), changes, answers.clone()));
        Self { path, memories, latest, answers, writing }
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

    /// Gives these answers once all that was noted is on paper, or could not be written.
    pub(super) fn answer(&self, answers: &mut Vec<Answer>) {
        if answers.is_empty() {
            return;
        }
        self.answers.waiting.lock().unwrap_or_else(PoisonError::into_inner).append(answers);
        self.answers.urgent.notify_one();
        // Only now: whoever finds an answer waiting finds in `latest` what it is about.
        self.latest.send_modify(|_| ());
    }

    /// The hall is stopped as somebody asked: blocks until that is on paper.
    pub(super) async fn close(self) {
        let Self { path, memories, latest, answers, writing } = self;
        drop(latest);
        // What is being written is written to its end first.
        let _ = writing.await;
        Answers::give(answers.take());
        let kept: Memories =
            memories.into_iter().filter_map(|(key, memory)| Some((key, memory.after_a_stop()?))).collect();
        let writing = move || write(&path, &kept).unwrap_or_else(|error| warn(&path, &error));
        let _ = tokio::task::spawn_blocking(writing).await;
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

async fn keep_writing(path: PathBuf, mut changes: watch::Receiver<Memories>, answers: Arc<Answers>) {
    let mut written = Some(changes.borrow().clone());
    loop {
        let changed = match written {
            Some(_) => changes.changed().await,
            // It could not be written: perhaps there is room by now.
            None => timeout(AGAIN, changes.changed()).await.unwrap_or(Ok(())),
        };
        if changed.is_err() {
            return;
        }
        let ready = answers.take();
        let memories = changes.borrow_and_update().clone();
        if written.as_ref() == Some(&memories) {
            Answers::give(ready);
            continue;
        }
        let (path, failed_before) = (path.clone(), written.is_none());
        let writing = tokio::task::spawn_blocking(move || match write(&path, &memories) {
            Ok(()) => Some(memories),
            Err(error) => {
                if !failed_before {
                    warn(&path, &error);
                }
                None
            }
        });
        // A panic there has been printed; it is written anew all the same.
        written = writing.await.unwrap_or_default();
        Answers::give(ready);
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = answers.urgent.notified() => {}
        }
    }
}

fn warn(path: &Path, error: &io::Error) {
    tracing::warn!(
        "cannot write {}: a restart of the hall will forget how often members were restarted, and which are stopped: {error}",
        path.display()
    );
}

fn write(path: &Path, members: &Memories) -> io::Result<()> {
    if members.is_empty() {
        return match fault::attempt("remove what is remembered", || fs::remove_file(path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    }
    let text = serde_json::to_vec(&Written { boot_id: boot_id().into(), members: members.clone() })?;
    let next = path.with_extension("json.new");
    fault::attempt("write what is remembered", || fs::write(&next, text))?;
    fault::attempt("rename what is remembered", || fs::rename(&next, path))
}
