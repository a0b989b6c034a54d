//! Bringing the hall up: anew, on what an earlier hall left, or in place of the image before.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::{Mutex, broadcast, mpsc, watch};

use super::audit::Audit;
use super::calls::Links;
use super::crew::Crew;
use super::estate::Estate;
use super::flight::Flights;
use super::launcher::Launcher;
use super::ledger::Ledger;
use super::llm;
use super::memories::{self, Chronicle, Memories};
use super::publish::Publisher;
use super::registered::Registered;
use super::remains::Remains;
use super::run_dir::RunDir;
use super::stop_note::{self, StopNote};
use super::sweeper::Sweeper;
use super::turn::{self, Turn};
use super::usage::Usages;
use super::{BEHIND, Hall, HallSettings, INBOX, watching};
use crate::discovery::DiscoveryError;
use crate::lifecycle::{Guild, Settings};
use crate::model::{HallFacts, Moment, Pid, Timestamp};
use crate::process::{Cgroups, OwnPorts, PidFiles, cap_logs, hall_environment};

/// Launches that may be younger than a second, for each core.
const LAUNCHES_PER_CORE: usize = 4;
/// Threads that bury what has died, for each core; a disk that hangs holds up one for each burial on it.
const BURYING_PER_CORE: usize = 4;

/// What a hall is put together from, whether it is new or goes on.
struct Parts {
    run_dir: RunDir,
    cgroups: Option<Cgroups>,
    guild: Guild,
    generation: u64,
    started_at: Timestamp,
    memories: Memories,
    registered: Registered,
}

impl Hall {
    /// Takes up what an earlier hall left, reads the members directory and starts what it finds. The
    /// second value is the loop: it runs until a shutdown is complete, and then says what it could not end.
    pub async fn start(
        settings: HallSettings, run_dir: RunDir,
    ) -> Result<(Self, impl Future<Output = Result<(), String>>), DiscoveryError> {
        let (mut found, watcher) = watching::open(settings.members.clone(), settings.watch).await?;
        let cgroups = Cgroups::new(&run_dir.id());
        if cgroups.is_none() {
            tracing::warn!("no cgroups can be made here: see `guild-hall doctor`");
        }
        let examining = tokio::task::spawn_blocking({
            let (pid_files, cgroups) = (PidFiles::new(run_dir.pid_files()), cgroups.clone());
            let (memories, stop_note) = (run_dir.memories(), run_dir.stop_note());
            move || {
                let mut remains = Remains::examine(&pid_files, cgroups.as_ref());
                remains.clear(&pid_files);
                if let Some(since) = stop_note::recall(&stop_note) {
                    remains.were_ending(since);
                }
                (remains.living, memories::recall(&memories))
            }
        });
        // A panic there has been printed: what lives on is then found by the next hall.
        let (living, mut memories) = examining.await.unwrap_or_default();
        let mut registered = read_registered(&run_dir, settings.members.clone()).await;
        registered.join(&mut found);
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
            launches_at_once: LAUNCHES_PER_CORE * cores(),
            epoch: epoch(started_at),
            seed: random_seed(),
        });
        let parts = Parts {
            run_dir,
            cgroups,
            guild,
            generation: 0,
            started_at,
            memories: memories.clone(),
            registered,
        };
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
        let Estate { guild, generation, started_at, settled, files, sessions, hold, .. } = estate;
        let held = hold.take();
        let (run_dir, cgroups) = held.map_err(|error| format!("cannot take up the locks: {error}"))?;
        let memories = memories::recall(&run_dir.memories());
        let registered = Registered::read(run_dir.registered(), &settings.members);
        let parts = Parts { run_dir, cgroups, guild, generation, started_at, memories, registered };
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
        let Parts { run_dir, cgroups, guild, generation, started_at, memories, registered } = parts;
        let run_dir = Arc::new(run_dir);
        let (sweeper, sweeping) = Sweeper::new();
        tokio::spawn(sweeping);
        let facts = HallFacts {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: Pid(std::process::id().cast_signed()),
            started_at,
            gateway: settings.gateway,
        };
        let (inbox, messages) = mpsc::channel(INBOX);
        let (changes, _) = broadcast::channel(BEHIND);
        let links = Links::default();
        let usages = Usages::default();
        let ready = Arc::new(AtomicBool::new(false));
        let (publisher, roster) = Publisher::new(facts, generation, changes.clone(), ready.clone());
        let stop_note = StopNote::new(run_dir.stop_note());
        let flights = Flights::default();
        let launcher = Launcher {
            inbox: inbox.clone(),
            links: links.clone(),
            usages: usages.clone(),
            pid_files: PidFiles::new(run_dir.pid_files()),
            run_dir: run_dir.clone(),
            cgroups,
            sweeper,
            crew: Crew::of(BURYING_PER_CORE * cores()),
            flights: flights.clone(),
            stop_note: stop_note.clone(),
            own_ports: OwnPorts::outside(settings.ports),
            environment: llm::without_key(hall_environment(), settings.llm.as_ref()),
            llm: settings.llm.map(|settings| settings.llm),
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
            ledger: Ledger::new(Audit::open(run_dir.audit())),
            usages,
            ready,
            leaving: watch::Sender::new(false),
            members: Arc::new(settings.members),
            run_dir,
            stop_note,
            reloads: Arc::default(),
            registered: Arc::new(Mutex::new(registered)),
            flights,
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
}

async fn read_registered(run_dir: &RunDir, members: PathBuf) -> Registered {
    let (path, shown) = (run_dir.registered(), members.clone());
    let reading = tokio::task::spawn_blocking(move || Registered::read(path, &shown));
    // A panic there has been printed.
    reading.await.unwrap_or_else(|_| Registered::nothing(run_dir.registered(), &members))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The wall-clock time of [`Moment::ZERO`].
fn epoch(now: Timestamp) -> Timestamp {
    now.minus(Moment::now().elapsed())
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
