//! Keeping logs small, however much a member writes: event-driven, so quiet members cost nothing.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::log_text::{Cut, LogText};

/// Changes are looked at this often, at the most: at 1 GB/s a log grows by half of its cap meanwhile.
const PAUSE: Duration = Duration::from_millis(5);
/// So long after a change the directory is looked for: its files go first.
const GONE: Duration = Duration::from_millis(200);
/// Logs that are cut at a time. Further ones take turns, so that no flood keeps another from its turn.
const CUTS_AT_ONCE: usize = 4;
/// Changes that are taken from the kernel at one look.
const MOST_CHANGES: usize = 65_536;

/// Watches the logs of a directory and cuts each that outgrows the cap; runs until it is dropped.
/// What was in it becomes the one predecessor, `.log.1`.
pub async fn cap_logs(dir: PathBuf) -> io::Result<()> {
    let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    inotify::add_watch(&watch, &dir, WatchFlags::MODIFY | WatchFlags::DELETE)?;
    // SAFETY: an `OwnedFd` is the same open descriptor for as long as it exists.
    let watch = unsafe { AsyncFd::register_with_interest(watch, Interest::READABLE) }?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut shears = Shears {
        dir,
        turns: Arc::new(Semaphore::new(cores.min(CUTS_AT_ONCE))),
        cutting: JoinSet::new(),
        held: HashSet::new(),
        told: HashSet::new(),
    };
    // What a hall before this one has left over its cap may never be written to again.
    shears.look(&all_logs(&shears.dir));
    let mut next_look = Instant::now();
    let mut is_there = None;
    loop {
        let changed = async {
            sleep_until(next_look).await;
            watch.readable().await
        };
        tokio::select! {
            ready = changed => {
                let mut ready = ready?;
                let changed = changed_files(watch.get_ref()).unwrap_or_else(|| all_logs(&shears.dir));
                ready.clear_ready();
                shears.look(&changed);
                next_look = Instant::now() + PAUSE;
                is_there.get_or_insert(Instant::now() + GONE);
            }
            // The directory itself cannot be watched for its end: who writes to a log holds on to it.
            () = sleep_until(is_there.unwrap_or(next_look)), if is_there.is_some() => {
                is_there = None;
                if !shears.dir.exists() {
                    return Err(io::Error::new(io::ErrorKind::NotFound, "it is gone"));
                }
            }
            Some(done) = shears.cutting.join_next(), if !shears.cutting.is_empty() => {
                if let Ok((name, cut)) = done {
                    shears.put_down(name, cut);
                }
            }
        }
    }
}

/// What is being cut.
struct Shears {
    dir: PathBuf,
    turns: Arc<Semaphore>,
    cutting: JoinSet<(String, io::Result<Cut>)>,
    /// Names of the logs that are being cut, or wait for their turn.
    held: HashSet<String>,
    /// Logs whose trouble has been told: it is told again after it was over.
    told: HashSet<String>,
}

impl Shears {
    fn look(&mut self, logs: &BTreeSet<String>) {
        for name in logs {
            self.look_at(name);
        }
    }

    fn look_at(&mut self, name: &str) {
        let path = self.dir.join(name);
        if self.held.contains(name) || !LogText::is_over_cap(&path) {
            return;
        }
        self.held.insert(name.to_owned());
        let (turns, name) = (self.turns.clone(), name.to_owned());
        self.cutting.spawn(async move {
            // The semaphore is never closed, and fair.
            let _turn = turns.acquire().await;
            let cut = tokio::task::spawn_blocking(move || LogText::of(&path).cut()).await;
            (name, cut.unwrap_or_else(|panic| Err(io::Error::other(panic))))
        });
    }

    /// Looks once more at once: what was written while it was cut has been seen already.
    fn put_down(&mut self, name: String, cut: io::Result<Cut>) {
        self.held.remove(&name);
        let shown = self.dir.join(&name);
        match cut {
            Ok(Cut::Done | Cut::NotNeeded) => drop(self.told.remove(&name)),
            Ok(Cut::Lost(error)) => {
                if self.told.insert(name.clone()) {
                    let shown = shown.display();
                    tracing::warn!(
                        "the log {shown} was cut, but there was no keeping what was in it: {error}"
                    );
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => {
                if self.told.insert(name) {
                    tracing::warn!("cannot cut the log {} to its cap: {error}", shown.display());
                }
                // Its next change is reason enough to try again.
                return;
            }
        }
        self.look_at(&name);
    }
}

/// The logs that have changed; `None` where there was too much to tell.
fn changed_files(watch: &OwnedFd) -> Option<BTreeSet<String>> {
    let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
    let mut events = inotify::Reader::new(watch, &mut buffer);
    let mut changed = BTreeSet::new();
    for _ in 0..MOST_CHANGES {
        let Ok(event) = events.next() else { return Some(changed) };
        if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
            return None;
        }
        let name = event.file_name().and_then(|name| name.to_str().ok()).filter(|name| is_log(name));
        if let Some(name) = name.filter(|name| !changed.contains(*name)) {
            changed.insert(name.to_owned());
        }
    }
    None
}

fn all_logs(dir: &Path) -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir(dir) else { return BTreeSet::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| is_log(name)).collect()
}

fn is_log(name: &str) -> bool {
    Path::new(name).extension() == Some("log".as_ref())
}
