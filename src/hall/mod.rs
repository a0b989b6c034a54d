//! F3. The supervisor: the loop that tells the core what happened, and the tasks that carry out what
//! it says. [`Hall::start`] brings it up; the handle that it returns is all that others see.

mod calls;
mod keeper;
mod launcher;
mod memories;
mod names;
mod publish;
mod remains;
mod run_dir;
mod sweeper;
mod turn;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::{Mutex, Semaphore, broadcast, mpsc, oneshot, watch};

use crate::discovery::{DiscoveryError, discover};
use crate::lifecycle::{Guild, Refusal, Report, Settings, Wish};
use crate::model::{
    Changes, Entry, Found, HallFacts, Instance, MemberKey, Moment, PhaseName, Pid, PortRange, Roster,
    Timestamp,
};
use crate::process::{Cgroups, OwnPorts, PidFiles, cap_logs, hall_environment};

pub use calls::{CallError, CallOutcome};
pub use names::{NamedTool, named_tools};
pub use run_dir::{RunDir, RunDirError};

use calls::Links;
use keeper::Life;
use launcher::Launcher;
use memories::Chronicle;
use publish::Publisher;
use remains::Remains;
use sweeper::Sweeper;
use turn::Turn;

/// What `run` was told.
#[derive(Debug, Clone)]
pub struct HallSettings {
    pub members: PathBuf,
    pub ports: PortRange,
    pub clean_env: bool,
}

/// One change of one member, for who follows along.
#[derive(Debug, Clone)]
pub struct Change {
    pub generation: u64,
    pub key: MemberKey,
    pub from: Option<PhaseName>,
    /// `None`: it has left the roster.
    pub entry: Option<Arc<Entry>>,
    pub why: String,
}

/// What comes into the loop. The only way to change anything.
#[derive(Debug)]
enum Message {
    Told { key: MemberKey, instance: Instance, report: Report },
    Born { key: MemberKey, instance: Instance, pid: Pid, life: Life },
    Wish { name: String, wish: Wish, reply: oneshot::Sender<Result<MemberKey, Refusal>> },
    Reload { found: Found, reply: oneshot::Sender<Result<Changes, Refusal>> },
    ShutDown,
    KillAll,
}

/// Messages that may wait for the loop; who sends more waits.
const INBOX: usize = 1024;
/// Changes that a follower may be behind before it is shown the whole roster anew.
const BEHIND: usize = 2048;
/// Launches that may be younger than a second, for each core.
const LAUNCHES_PER_CORE: usize = 4;

/// The hall as everyone but its loop sees it: a snapshot to read, an inbox to write to.
#[derive(Debug, Clone)]
pub struct Hall {
    inbox: mpsc::Sender<Message>,
    roster: watch::Receiver<Arc<Roster>>,
    changes: broadcast::Sender<Change>,
    links: Links,
    ready: Arc<AtomicBool>,
    members: Arc<PathBuf>,
    run_dir: Arc<RunDir>,
    reloads: Arc<Mutex<()>>,
}

/// Why a rescan did not happen.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the hall is shutting down")]
    Closing,
}

impl Hall {
    /// Reads the members directory and starts what it finds. The second value is the loop: it runs
    /// until a shutdown is complete, and then says what it could not end.
    pub async fn start(
        settings: HallSettings, run_dir: RunDir,
    ) -> Result<(Self, impl Future<Output = Result<(), String>>), DiscoveryError> {
        let found = walk(settings.members.clone()).await?;
        let run_dir = Arc::new(run_dir);
        let pid_files = PidFiles::new(run_dir.pid_files());
        let cgroups = Cgroups::new(&run_dir.id());
        let (sweeper, sweeping) = Sweeper::new();
        tokio::spawn(sweeping);
        let examining = tokio::task::spawn_blocking({
            let (pid_files, cgroups, memories) = (pid_files.clone(), cgroups.clone(), run_dir.memories());
            move || {
                let mut remains = Remains::examine(&pid_files, cgroups.as_ref());
                remains.clear(&pid_files);
                (remains.living, memories::recall(&memories))
            }
        });
        if cgroups.is_none() {
            tracing::warn!("no cgroups can be made here: see `guild-hall doctor`");
        }
        // A panic there has been printed: what lives on is then found by the next hall.
        let (living, mut memories) = examining.await.unwrap_or_default();
        memories.retain(|key, _| found.papers.contains_key(key));
        if !living.is_empty() {
            tracing::info!(
                "taking over {} members that an earlier hall on this run directory left",
                living.len()
            );
        }

        let started_at = Timestamp::now();
        let epoch = started_at.minus(Moment::now().elapsed());
        let seed = random_seed();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let launches_at_once = cores * LAUNCHES_PER_CORE;
        let guild = Guild::new(Settings { ports: settings.ports, launches_at_once, epoch, seed });
        let facts = HallFacts {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: Pid(std::process::id().cast_signed()),
            started_at,
        };

        let (inbox, messages) = mpsc::channel(INBOX);
        let (changes, _) = broadcast::channel(BEHIND);
        let links = Links::default();
        let ready = Arc::new(AtomicBool::new(false));
        let (publisher, roster) = Publisher::new(facts, changes.clone(), ready.clone());
        let launcher = Launcher {
            inbox: inbox.clone(),
            links: links.clone(),
            pid_files,
            run_dir: run_dir.clone(),
            cgroups: cgroups.clone(),
            sweeper,
            burials: Semaphore::new(launches_at_once),
            own_ports: OwnPorts::outside(settings.ports),
            environment: hall_environment(),
            clean_env: settings.clean_env,
            binary: std::env::current_exe().unwrap_or_else(|_| "guild-hall".into()),
        };
        let chronicle = Chronicle::open(run_dir.memories(), memories.clone());
        let mut turn = Turn::new(guild, launcher, publisher, chronicle, messages);
        turn.open(&found, living, memories);
        let hall = Self {
            inbox,
            roster,
            changes,
            links,
            ready,
            members: Arc::new(settings.members),
            run_dir: run_dir.clone(),
            reloads: Arc::default(),
        };
        let capping = tokio::spawn(log_caps(run_dir.logs()));
        let running = async move {
            let outcome = turn.run().await;
            capping.abort();
            turn::bury_the_rest(cgroups).await;
            outcome
        };
        Ok((hall, running))
    }

    /// The members at this moment.
    pub fn roster(&self) -> Arc<Roster> {
        self.roster.borrow().clone()
    }

    /// A receiver of snapshots: for who waits until something is true.
    pub fn watch(&self) -> watch::Receiver<Arc<Roster>> {
        self.roster.clone()
    }

    /// Every change from now on. Subscribe first, then read the roster: a change whose generation is
    /// not above the roster's is in it already.
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    /// Every member that can be started has settled once.
    pub fn is_ready(&self) -> bool {
        self.ready.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub fn run_dir(&self) -> &RunDir {
        &self.run_dir
    }

    pub fn members_dir(&self) -> &std::path::Path {
        &self.members
    }

    /// Starts, stops or restarts one member; returns when the core has taken it up.
    pub async fn wish(&self, name: &str, wish: Wish) -> Result<MemberKey, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.send(Message::Wish { name: name.into(), wish, reply }).await;
        answer.await.unwrap_or(Err(Refusal::Closing))
    }

    /// Reads the members directory again.
    pub async fn reload(&self) -> Result<Changes, ReloadError> {
        // One after the other: what was read later must be applied later.
        let _turn = self.reloads.lock().await;
        let found = walk(self.members.to_path_buf()).await?;
        let (reply, answer) = oneshot::channel();
        self.send(Message::Reload { found, reply }).await;
        Ok(answer.await.map_err(|_| ReloadError::Closing)??)
    }

    /// Asks all members to stop; the loop returned by [`Hall::start`] ends when they have.
    pub async fn shut_down(&self) {
        self.send(Message::ShutDown).await;
    }

    /// Kills what still runs.
    pub async fn kill_all(&self) {
        self.send(Message::KillAll).await;
    }

    async fn send(&self, message: Message) {
        // The loop is gone only when the hall is: nobody is left to be told.
        let _ = self.inbox.send(message).await;
    }
}

async fn walk(members: PathBuf) -> Result<Found, DiscoveryError> {
    let shown = members.clone();
    tokio::task::spawn_blocking(move || discover(&members))
        .await
        .unwrap_or_else(|panic| Err(DiscoveryError::new(&shown, io::Error::other(panic))))
}

/// Members may run without it: a log that cannot be watched is a warning.
async fn log_caps(logs: PathBuf) {
    if let Err(error) = cap_logs(logs.clone()).await {
        if error.kind() == io::ErrorKind::NotFound {
            tracing::warn!(
                "the run directory of {} is gone: members run on, but none can be started and nobody can reach the hall by its socket. Stop this hall (SIGTERM) and start the hall again",
                logs.display()
            );
            return;
        }
        tracing::warn!("logs are not capped, since {} cannot be watched: {error}", logs.display());
    }
}

fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    // RandomState is seeded by the system's randomness, once for a process.
    RandomState::new().hash_one(std::process::id())
}
