//! One process of one member, from its birth to its burial: a task that waits for its death, runs
//! errands for the loop, and tells the loop what it sees.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::Message;
use super::flight::Flight;
use super::greeter::{Greeter, PORTERS_PROBE, PROBE};
use super::launcher::Launcher;
use super::stop_note::LONGEST_NOTE;
use crate::lifecycle::{Asked, Report};
use crate::mcp::{Dial, Link, SavedSession};
use crate::model::{Exit, Failure, Instance, Manifest, MemberKey, Pid, Port};
use crate::process::{Leader, LogFile, PidFile, Tree, registry};

/// What the loop asks of a keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Errand {
    Greet,
    Probe,
    Terminate,
    Kill,
}

/// The loop's end of a keeper.
#[derive(Debug)]
pub(super) struct Life {
    errands: mpsc::Sender<(Errand, Option<Flight>)>,
    pub(super) file: Arc<PidFile>,
}

/// The keeper's end.
pub(super) type Errands = mpsc::Receiver<(Errand, Option<Flight>)>;

/// Errands that may wait: a process gets one `Greet`, one `Terminate`, one `Kill`, and probes only
/// after the one before was answered.
const ERRANDS: usize = 8;
/// How long the kernel may take to empty a killed cgroup before it is looked at again.
const BURIAL: Duration = Duration::from_millis(10);
/// A dead member is told to be dead after this time, also if something of it is still there.
const PROMPT_DEATH: Duration = Duration::from_millis(50);
/// What it left behind is looked for and killed so often, and for so long.
const SOONEST_LOOK: Duration = Duration::from_millis(1);
const LATEST_LOOK: Duration = Duration::from_millis(20);
const LONGEST_DYING: Duration = Duration::from_secs(5);
/// An adopted member that was not reaped so soon is told to be dead before it is known how it died.
const PROMPT_REAPER: Duration = Duration::from_millis(20);
/// How long whoever inherited an adopted member may take to reap it, before its exit stays unknown.
const LAZY_REAPER: Duration = Duration::from_secs(5);
/// A failed handshake is told this much later than it is seen.
const DEATH_GOES_FIRST: Duration = Duration::from_millis(250);
/// A member that has not ended so soon after SIGTERM may have processes outside its group.
const REACH_OUT: Duration = Duration::from_millis(50);
/// A member that was asked to stop and whose first process is gone: how often the rest is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
const LOOK_RARELY: Duration = Duration::from_millis(100);

impl Life {
    pub(super) fn new(file: Arc<PidFile>) -> (Self, Errands) {
        let (errands, receiver) = mpsc::channel(ERRANDS);
        (Self { errands, file }, receiver)
    }

    pub(super) fn send(&self, errand: Errand, flight: Option<Flight>) {
        match self.errands.try_send((errand, flight)) {
            Ok(()) => {}
            // Its task has ended: so has the process.
            Err(TrySendError::Closed(_)) => {}
            Err(TrySendError::Full(_)) => {
                tracing::warn!(?errand, "a keeper does not keep up with its errands");
            }
        }
    }
}

/// A process that is buried.
struct Burial {
    /// `None`: somebody else has yet to reap it.
    exit: Option<Exit>,
    stderr_tail: Arc<[String]>,
    /// Until it is told.
    flight: Flight,
}

pub(super) struct Keeper {
    pub(super) key: MemberKey,
    pub(super) instance: Instance,
    pub(super) manifest: Arc<Manifest>,
    pub(super) leader: Arc<Leader>,
    pub(super) tree: Arc<Tree>,
    pub(super) log: LogFile,
    pub(super) file: Arc<PidFile>,
    pub(super) dial: Dial,
    pub(super) port: Port,
    pub(super) launcher: Arc<Launcher>,
}

impl Keeper {
    pub(super) fn pid(&self) -> Pid {
        self.leader.pid()
    }

    /// Calls go on over the session that an image of the hall before this one has opened.
    pub(super) fn relink(&self, session: &SavedSession) {
        match Link::resume(self.port, &self.manifest.path, self.dial.clone(), session) {
            Ok(link) => self.launcher.links.insert(self.instance, link.into()),
            Err(error) => tracing::warn!(member = %self.key, "cannot be called: {error}"),
        }
    }

    /// Runs until the process and all that it left behind are dead, and has then told so.
    pub(super) async fn keep(self, asked: Asked, mut errands: Errands) {
        let _measured = self.launcher.usages.measure(self.instance, self.pid(), self.tree.clone());
        // Whatever speaks to the member; aborted when this is dropped.
        let mut talks = JoinSet::new();
        let mut asked = asked == Asked::ToEnd;
        let mut expected = asked;
        let mut reach_out = asked.then(|| Instant::now() + REACH_OUT);
        loop {
            let later = async {
                match reach_out {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.leader.died() => break,
                // What is under way with an errand ends when it is done.
                errand = errands.recv() => match errand.as_ref().map(|(errand, _)| *errand) {
                    Some(Errand::Greet) => drop(talks.spawn(self.greeting())),
                    Some(Errand::Probe) => drop(talks.spawn(self.probing())),
                    Some(Errand::Terminate) => {
                        talks.abort_all();
                        self.note_ending().await;
                        self.tree.terminate(&self.leader);
                        (asked, expected) = (true, true);
                        reach_out = Some(Instant::now() + REACH_OUT);
                    }
                    Some(Errand::Kill) => {
                        talks.abort_all();
                        self.tree.kill(&self.leader);
                        (asked, expected) = (false, true);
                    }
                    // The loop is gone, and with it the hall.
                    None => return,
                },
                () = later => {
                    self.tree.terminate_the_rest(&self.leader);
                    reach_out = None;
                }
                Some(_) = talks.join_next(), if !talks.is_empty() => {}
            }
        }
        // Whoever still spoke to it must not make a link after it is removed.
        talks.shutdown().await;
        self.launcher.links.remove(self.instance);
        if asked {
            self.let_the_rest_finish(&mut errands).await;
        }
        while let Ok((errand, _)) = errands.try_recv() {
            expected |= matches!(errand, Errand::Terminate | Errand::Kill);
        }
        // How it died matters only where nobody asked for it.
        self.bury(if expected { Duration::ZERO } else { LAZY_REAPER }).await;
    }

    /// Puts on paper that it is about to be asked: a hall that follows must not take its exit for one
    /// of its own accord.
    async fn note_ending(&self) {
        if self.launcher.stop_note.covers(&self.file) {
            return;
        }
        let (pid_files, file) = (self.launcher.pid_files.clone(), self.file.clone());
        let noting = self.launcher.crew.work(move || pid_files.note_ending(&file));
        let _ = timeout(LONGEST_NOTE, noting).await;
    }

    /// Children of a launcher script may need their time to stop, as long as nobody says kill.
    async fn let_the_rest_finish(&self, errands: &mut Errands) {
        let mut pause = LOOK_AGAIN;
        if !self.is_alone().await {
            self.tree.terminate_the_rest(&self.leader);
        }
        while !self.is_alone().await {
            tokio::select! {
                _ = errands.recv() => return,
                () = sleep(pause) => pause = (pause * 2).min(LOOK_RARELY),
            }
        }
    }

    async fn is_alone(&self) -> bool {
        match self.tree.is_empty() {
            Some(empty) => empty,
            None => !self.launcher.sweeper.sweep(self.instance, false).await,
        }
    }

    /// Kills what the first process left behind, until nothing of it lives, and tells how it died. What forks
    /// while it is looked for is found by the next look, and what is killed may need a busy machine's time to die.
    async fn bury(self, patience: Duration) {
        if !self.tree.has_cgroup() {
            self.tree.kill(&self.leader);
        }
        let (begun, mut pause, mut told) = (Instant::now(), SOONEST_LOOK, false);
        let Burial { exit, stderr_tail, mut flight } = loop {
            let gives_up = begun.elapsed() >= LONGEST_DYING;
            if gives_up {
                tracing::warn!(member = %self.key, "something that it started does not die, not even by SIGKILL");
            }
            if let Some(burial) = self.try_to_bury(gives_up).await {
                break burial;
            }
            if begun.elapsed() >= PROMPT_DEATH && !told {
                told = true;
                self.greeter().tell(Report::Died).await;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LATEST_LOOK);
        };
        let Self { key, instance, leader, launcher, .. } = self;
        let told =
            |report, flight| Message::Told { key: key.clone(), instance, report, flight: Some(flight) };
        let exit = match exit {
            Some(exit) => exit,
            None => match timeout(PROMPT_REAPER, leader.reaped()).await {
                Ok(exit) => exit,
                Err(_) => {
                    let _ = launcher.inbox.send(told(Report::Died, flight)).await;
                    let exit = timeout(patience, leader.reaped()).await.unwrap_or(Exit::Unknown);
                    flight = launcher.flights.board().await;
                    exit
                }
            },
        };
        let _ = launcher.inbox.send(told(Report::Ended { exit, stderr_tail }, flight)).await;
    }

    /// Reaps it and puts its papers away, if all that it left behind is dead, or if it must be.
    async fn try_to_bury(&self, must: bool) -> Option<Burial> {
        let in_cgroup = self.tree.has_cgroup();
        if !in_cgroup && self.launcher.sweeper.sweep(self.instance, true).await && !must {
            return None;
        }
        let flight = self.launcher.flights.board().await;
        let (tree, leader, log) = (self.tree.clone(), self.leader.clone(), self.log.clone());
        let (pid_files, key, instance) = (self.launcher.pid_files.clone(), self.key.clone(), self.instance);
        let burying = self.launcher.crew.work(move || {
            if in_cgroup && !tree.clear(BURIAL) && !must {
                return None;
            }
            let exit = leader.reap();
            registry().remove(leader.pid());
            pid_files.remove(&key, instance);
            Some((exit, log.tail()))
        });
        let (exit, stderr_tail) = burying.await.unwrap_or(Some((Some(Exit::Unknown), Arc::default())))?;
        Some(Burial { exit, stderr_tail, flight })
    }

    fn greeting(&self) -> impl Future<Output = ()> + use<> {
        let greeter = self.greeter();
        async move {
            let greeted = greeter.greet(|obstacle| greeter.hint(Report::Obstacle(obstacle))).await;
            if greeted.is_err() {
                // A member that dies breaks its connection first: then its exit is what went wrong,
                // and this task is aborted.
                sleep(DEATH_GOES_FIRST).await;
            }
            greeter
                .tell(match greeted {
                    Ok((handshake, None)) => Report::Greeted(handshake),
                    Ok((handshake, Some(failure))) => Report::GreetedAiling(handshake, failure),
                    Err(failure) => Report::HandshakeFailed(failure),
                })
                .await;
        }
    }

    fn probing(&self) -> impl Future<Output = ()> + use<> {
        let greeter = self.greeter();
        async move {
            let patience = if greeter.porter.is_some() { PORTERS_PROBE } else { PROBE };
            let late = format!("does not answer: no answer to a probe within {} s", patience.as_secs());
            let probed = timeout(patience, greeter.probe(patience)).await;
            greeter.tell(probed.unwrap_or_else(|_| Report::Probed(Err(Failure::new(late))))).await;
        }
    }

    fn greeter(&self) -> Greeter {
        Greeter {
            key: self.key.clone(),
            instance: self.instance,
            port: self.port,
            path: self.manifest.path.clone(),
            porter: self.manifest.porter.clone(),
            dial: self.dial.clone(),
            links: self.launcher.links.clone(),
            inbox: self.launcher.inbox.clone(),
        }
    }
}
