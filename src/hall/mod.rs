//! F3. The supervisor: the loop that tells the core what happened, and the tasks that carry out what
//! it says. [`Hall::start`] brings it up; the handle that it returns is all that others see.

mod calls;
mod estate;
mod flight;
mod keeper;
mod launcher;
mod memories;
mod names;
mod publish;
mod remains;
mod run_dir;
mod sweeper;
mod turn;
mod usage;
mod watching;

use std::collections::BTreeMap;
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
pub use estate::{BecomeNext, HandOverError};
pub use names::{NamedTool, named_tools};
pub use run_dir::{RunDir, RunDirError};

use calls::Links;
use estate::Estate;
use flight::{Flight, Flights};
use keeper::Life;
use launcher::Launcher;
use memories::{Chronicle, Memories};
use publish::Publisher;
use remains::Remains;
use sweeper::Sweeper;
use turn::Turn;
use usage::Usages;

/// What `run` was told.
#[derive(Debug, Clone)]
pub struct HallSettings {
    pub members: PathBuf,
    pub ports: PortRange,
    pub clean_env: bool,
    /// Changes are taken up as they happen.
    pub watch: bool,
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
enum Message {
    Told {
        key: MemberKey,
        instance: Instance,
        report: Report,
        flight: Option<Flight>,
    },
    Born {
        key: MemberKey,
        instance: Instance,
        pid: Pid,
        life: Life,
        flight: Option<Flight>,
    },
    Wish {
        name: String,
        wish: Wish,
        reply: oneshot::Sender<Result<MemberKey, Refusal>>,
    },
    /// Files that belong to members have changed, one for each member.
    FilesChanged(BTreeMap<MemberKey, String>),
    Reload {
        found: Found,
        reply: oneshot::Sender<Result<Changes, Refusal>>,
    },
    Appraise {
        reply: oneshot::Sender<Result<String, HandOverError>>,
    },
    HandOver {
        become_next: BecomeNext,
        reply: oneshot::Sender<HandOverError>,
    },
    Ping(oneshot::Sender<()>),
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
    usages: Usages,
    ready: Arc<AtomicBool>,
    leaving: watch::Sender<bool>,
    members: Arc<PathBuf>,
    run_dir: Arc<RunDir>,
    reloads: Arc<Mutex<()>>,
}

/// What a hall is put together from, whether it is new or goes on.
struct Parts {
    run_dir: RunDir,
    cgroups: Option<Cgroups>,
    guild: Guild,
    generation: u64,
    started_at: Timestamp,
    memories: Memories,
}

/// Whether this image of the hall is about to make way for the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    NotNow,
    Soon,
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
    /// Takes up what an earlier hall left, reads the members directory and starts what it finds. The
    /// second value is the loop: it runs until a shutdown is complete, and then says what it could not end.
    pub async fn start(
        settings: HallSettings, run_dir: RunDir,
    ) -> Result<(Self, impl Future<Output = Result<(), String>>), DiscoveryError> {
        let (found, watcher) = watching::open(settings.members.clone(), settings.watch).await?;
        let cgroups = Cgroups::new(&run_dir.id());
        if cgroups.is_none() {
            tracing::warn!("no cgroups can be made here: see `guild-hall doctor`");
        }
        let examining = tokio::task::spawn_blocking({
            let (pid_files, cgroups) = (PidFiles::new(run_dir.pid_files()), cgroups.clone());
            let memories = run_dir.memories();
            move || {
                let mut remains = Remains::examine(&pid_files, cgroups.as_ref());
                remains.clear(&pid_files);
                (remains.living, memories::recall(&memories))
            }
        });
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
        let guild = Guild::new(Settings {
            ports: settings.ports,
            launches_at_once: launches_at_once(),
            epoch: epoch(started_at),
            seed: random_seed(),
        });
        let parts = Parts { run_dir, cgroups, guild, generation: 0, started_at, memories: memories.clone() };
        let (hall, mut turn) = Self::assemble(settings, parts);
        turn.open(&found, living, memories);
        if let Some(watcher) = watcher {
            watching::follow(watcher, hall.clone());
        }
        let running = hall.clone().run(turn);
        Ok((hall, running))
    }

    /// Goes on where the image of the hall before this one was, in the same process, from what
    /// [`Hall::hand_over`] wrote. Must be called within a tokio runtime.
    pub fn resume(
        settings: HallSettings, estate: &str,
    ) -> Result<(Self, impl Future<Output = Result<(), String>> + use<>), String> {
        let estate = Estate::read(estate)?;
        let locks = estate.take_locks();
        let (run_dir, cgroups) = locks.map_err(|error| format!("cannot take up the locks: {error}"))?;
        let Estate { guild, generation, started_at, settled, files, sessions, .. } = estate;
        let memories = memories::recall(&run_dir.memories());
        let parts = Parts { run_dir, cgroups, guild, generation, started_at, memories };
        let watch = settings.watch;
        let (hall, mut turn) = Self::assemble(settings, parts);
        turn.resume(files, &sessions, settled);
        if watch {
            tokio::spawn(watching::go_on(hall.clone()));
        }
        let running = hall.clone().run(turn);
        Ok((hall, running))
    }

    /// Whether [`Hall::resume`] could read this, without doing anything.
    pub fn try_resume(estate: &str) -> Result<(), String> {
        Estate::read(estate).map(drop)
    }

    fn assemble(settings: HallSettings, parts: Parts) -> (Self, Turn) {
        let Parts { run_dir, cgroups, guild, generation, started_at, memories } = parts;
        let run_dir = Arc::new(run_dir);
        let (sweeper, sweeping) = Sweeper::new();
        tokio::spawn(sweeping);
        let facts = HallFacts {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: Pid(std::process::id().cast_signed()),
            started_at,
        };
        let (inbox, messages) = mpsc::channel(INBOX);
        let (changes, _) = broadcast::channel(BEHIND);
        let links = Links::default();
        let usages = Usages::default();
        let ready = Arc::new(AtomicBool::new(false));
        let (publisher, roster) = Publisher::new(facts, generation, changes.clone(), ready.clone());
        let launcher = Launcher {
            inbox: inbox.clone(),
            links: links.clone(),
            usages: usages.clone(),
            pid_files: PidFiles::new(run_dir.pid_files()),
            run_dir: run_dir.clone(),
            cgroups,
            sweeper,
            burials: Semaphore::new(launches_at_once()),
            flights: Flights::default(),
            own_ports: OwnPorts::outside(settings.ports),
            environment: hall_environment(),
            clean_env: settings.clean_env,
            binary: std::env::current_exe().unwrap_or_else(|_| "guild-hall".into()),
        };
        let chronicle = Chronicle::open(run_dir.memories(), memories);
        let turn = Turn::new(guild, launcher, publisher, chronicle, messages);
        let hall = Self {
            inbox,
            roster,
            changes,
            links,
            usages,
            ready,
            leaving: watch::Sender::new(false),
            members: Arc::new(settings.members),
            run_dir,
            reloads: Arc::default(),
        };
        (hall, turn)
    }

    async fn run(self, turn: Turn) -> Result<(), String> {
        let capping = tokio::spawn(log_caps(self.run_dir.logs()));
        let cgroups = turn.cgroups();
        let outcome = turn.run().await;
        capping.abort();
        turn::bury_the_rest(cgroups).await;
        outcome
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

    /// What [`Hall::hand_over`] would hand over now: for trying out who is to take it.
    pub async fn appraise(&self) -> Result<String, HandOverError> {
        let (reply, answer) = oneshot::channel();
        self.send(Message::Appraise { reply }).await;
        answer.await.unwrap_or(Err(HandOverError::Closing))
    }

    /// Has the next image of the program take the hall over; returns only if that failed, and then
    /// the hall goes on as before.
    pub async fn hand_over(&self, become_next: BecomeNext) -> HandOverError {
        let (reply, answer) = oneshot::channel();
        self.send(Message::HandOver { become_next, reply }).await;
        answer.await.unwrap_or(HandOverError::Closing)
    }

    /// Whether the API is being handed over: answers without an end are then to be ended.
    pub fn set_leaving(&self, leaving: Leaving) {
        self.leaving.send_replace(leaving == Leaving::Soon);
    }

    /// Returns when the API is being handed over.
    pub fn leaving(&self) -> impl Future<Output = ()> + use<> {
        let mut leaving = self.leaving.subscribe();
        async move { drop(leaving.wait_for(|leaving| *leaving).await) }
    }

    /// Asks all members to stop; the loop returned by [`Hall::start`] ends when they have.
    pub async fn shut_down(&self) {
        self.send(Message::ShutDown).await;
    }

    /// Kills what still runs.
    pub async fn kill_all(&self) {
        self.send(Message::KillAll).await;
    }

    /// True as soon as the loop has taken a turn, false once it has ended. Does not return while it hangs.
    pub async fn answers(&self) -> bool {
        let (reply, answer) = oneshot::channel();
        self.send(Message::Ping(reply)).await;
        answer.await.is_ok()
    }

    async fn send(&self, message: Message) {
        // The loop is gone only when the hall is: nobody is left to be told.
        let _ = self.inbox.send(message).await;
    }
}

/// Ends what a hall that is gone has left running, where it is provably its own; returns how many
/// processes that were. Blocks. For who stops a hall that could not stop its members itself.
pub fn end_leftovers(run_dir: &RunDir) -> usize {
    let cgroups = Cgroups::new(&run_dir.id());
    let ended = remains::end(&PidFiles::new(run_dir.pid_files()), cgroups.as_ref());
    if let Some(cgroups) = cgroups {
        cgroups.remove();
    }
    ended
}

fn launches_at_once() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from) * LAUNCHES_PER_CORE
}

/// The wall-clock time of [`Moment::ZERO`].
fn epoch(now: Timestamp) -> Timestamp {
    now.minus(Moment::now().elapsed())
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
