//! The loop. It alone changes the core; it never waits for work, it only hands it out.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Signal, pidfd_send_signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;

use super::Message;
use super::estate::{BecomeNext, Estate, FORMAT, HandOverError, Hold};
use super::keeper::{Errand, Life};
use super::launcher::Launcher;
use super::memories::{Answer, Chronicle, Memories};
use super::publish::Publisher;
use super::remains::Relic;
use crate::lifecycle::{Action, Asked, Guild, Living, Order, Report};
use crate::mcp::SavedSession;
use crate::model::{Found, Instance, Manifest, MemberKey, Moment};
use crate::process::{Cgroups, PidFile, fault, reap_orphans};

/// Messages that are taken before the roster is published once.
const BATCH: usize = 256;
/// Launches and burials that are under way may hold up a handover for so long.
const LONGEST_UNREST: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// However long their own timeouts, a shutdown waits no longer for its members before it kills them...
const LONGEST_SHUTDOWN: Duration = Duration::from_secs(60);
/// ...and no longer than this for the killed to be gone.
const LONGEST_DYING: Duration = Duration::from_secs(5);

pub(super) struct Turn {
    guild: Guild,
    launcher: Arc<Launcher>,
    publisher: Publisher,
    chronicle: Chronicle,
    messages: mpsc::Receiver<Message>,
    /// What keeps each process that lives.
    lives: HashMap<Instance, Life>,
    /// Answers to the wishes of this turn.
    answers: Vec<Answer>,
    closing: Option<Closing>,
    handing: Option<Handing>,
}

/// The hall is to be handed over.
struct Handing {
    until: Instant,
    become_next: BecomeNext,
    reply: oneshot::Sender<HandOverError>,
}

/// When a shutdown stops being patient.
#[derive(Debug, Clone, Copy)]
enum Closing {
    KillAt(Instant),
    GiveUpAt(Instant),
}

impl Turn {
    pub(super) fn new(
        guild: Guild, launcher: Launcher, publisher: Publisher, chronicle: Chronicle,
        messages: mpsc::Receiver<Message>,
    ) -> Self {
        Self {
            guild,
            launcher: launcher.into(),
            publisher,
            chronicle,
            messages,
            lives: HashMap::new(),
            answers: Vec::new(),
            closing: None,
            handing: None,
        }
    }

    pub(super) fn cgroups(&self) -> Option<Cgroups> {
        self.launcher.cgroups.clone()
    }

    /// The first turn: whoever looks at the roster from now on sees all members.
    pub(super) fn open(&mut self, found: &Found, living: Vec<Relic>, memories: Memories) {
        let binary = &self.launcher.binary;
        let known: Vec<_> = living.into_iter().map(|relic| (relic.survivor(found, binary), relic)).collect();
        let kept = known.into_iter().filter_map(|(survivor, relic)| {
            self.keep(relic, &survivor.manifest, Asked::Nothing, None).then_some(survivor)
        });
        let survivors = kept.collect();
        self.guild.reopen(found, survivors, memories, Moment::now());
        self.follow_up();
    }

    /// Goes on from where the image of the hall before this one was.
    pub(super) fn resume(
        &mut self, files: Vec<Arc<PidFile>>, sessions: &BTreeMap<Instance, SavedSession>,
        settled: HashSet<MemberKey>,
    ) {
        let mut files: HashMap<Instance, PidFile> =
            files.into_iter().map(|file| (file.instance, Arc::unwrap_or_clone(file))).collect();
        let living: Vec<Living> = self.guild.lives().collect();
        let mut gone = Vec::new();
        for Living { key, instance, manifest, asked } in living {
            let file = files.remove(&instance);
            let relic = file.clone().and_then(Relic::open);
            let session = sessions.get(&instance);
            if !relic.is_some_and(|relic| self.keep(relic, &manifest, asked, session)) {
                gone.push((key, instance, file));
            }
        }
        let now = Moment::now();
        self.guild.resume(now);
        for (key, instance, file) in gone {
            // It died, and was reaped, while nobody looked. What it has left behind may live.
            self.guild.report(&key, instance, Report::Died, now);
            self.launcher.clone().clear_up(key, instance, file);
        }
        self.publisher.resume(&self.guild, settled);
        // Also what the image before did not come to write down.
        self.chronicle.note(&self.guild, self.guild.keys());
        self.follow_up();
    }

    /// Has a process of an earlier hall kept from now on. False if that cannot be: then it is ended.
    fn keep(
        &mut self, relic: Relic, manifest: &Arc<Manifest>, asked: Asked, session: Option<&SavedSession>,
    ) -> bool {
        let identity = relic.file.identity.clone();
        let instance = relic.file.instance;
        match self.launcher.clone().adopt(relic, manifest) {
            Ok(keeper) => {
                if let Some(session) = session {
                    keeper.relink(session);
                }
                let (life, errands) = Life::new(keeper.file.clone());
                tokio::spawn(keeper.keep(asked, errands));
                self.lives.insert(instance, life);
                true
            }
            Err(error) => {
                tracing::warn!(member = manifest.name, "its process cannot be watched and is ended: {error}");
                if let Some(pidfd) = identity.and_then(|identity| identity.open()) {
                    let _ = fault::around("kill what is left", || pidfd_send_signal(&pidfd, Signal::KILL));
                }
                false
            }
        }
    }

    /// Runs until a shutdown is complete; an error names what could not be ended.
    pub(super) async fn run(mut self) -> Result<(), String> {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let wake = self.wake_at();
            tokio::select! {
                _ = self.messages.recv_many(&mut batch, BATCH) => {
                    for message in batch.drain(..) {
                        self.take(message);
                    }
                }
                () = sleep_until(wake) => {}
            }
            self.guild.tick(Moment::now());
            self.follow_up();
            self.hand_over();
            if let Some(closing) = self.closing {
                if self.guild.is_quiet() {
                    self.chronicle.close().await;
                    let stop_note = self.launcher.stop_note.clone();
                    // A panic there has been printed.
                    let _ = spawn_blocking(move || stop_note.remove()).await;
                    return Ok(());
                }
                self.hurry(closing)?;
            }
        }
    }

    fn take(&mut self, message: Message) {
        let now = Moment::now();
        match message {
            Message::Told { key, instance, report, flight: _flight } => {
                if matches!(report, Report::Ended { .. }) {
                    self.lives.remove(&instance);
                }
                self.guild.report(&key, instance, report, now);
            }
            Message::Born { key, instance, pid, life, flight: _flight } => {
                self.lives.insert(instance, life);
                self.guild.report(&key, instance, Report::Spawned(pid), now);
            }
            Message::Wish { name, wish, reply } => {
                let answer = self.guild.wish(&name, wish, now);
                self.answer_later(reply, answer);
            }
            Message::FilesChanged(files) => {
                for (key, file) in files {
                    self.guild.file_changed(&key, &file, now);
                }
            }
            Message::Reload { found, reply } => {
                let answer = self.guild.reload(&found, now);
                self.answer_later(reply, answer);
            }
            Message::Ping(reply) => self.answer_later(reply, ()),
            Message::Appraise { reply } => {
                let appraised = self.write_estate().map(|(text, _)| text);
                let _ = reply.send(appraised.map_err(HandOverError::from));
            }
            Message::HandOver { become_next, reply } if self.handing.is_some() => {
                drop(become_next);
                let _ = reply.send(HandOverError::Already);
            }
            Message::HandOver { become_next, reply } => {
                self.guild.pause();
                let until = Instant::now() + LONGEST_UNREST;
                self.handing = Some(Handing { until, become_next, reply });
            }
            Message::ShutDown => {
                self.closing.get_or_insert(Closing::KillAt(Instant::now() + LONGEST_SHUTDOWN));
                self.guild.shut_down(now);
            }
            Message::KillAll => self.kill_all(),
        }
    }

    /// Once the roster shows what follows from it. Who asked may have gone away by then.
    fn answer_later<T: Send + 'static>(&mut self, reply: oneshot::Sender<T>, answer: T) {
        self.answers.push(Box::new(move || drop(reply.send(answer))));
    }

    /// Hands out what the core wants done, publishes what has changed, and answers who asked.
    fn follow_up(&mut self) {
        for Action { key, instance, order } in self.guild.take_actions() {
            match order {
                Order::Launch { port, manifest } => {
                    self.launcher.clone().launch(key, instance, port, manifest);
                }
                Order::Greet { .. } => self.send(instance, Errand::Greet),
                Order::Probe => self.send(instance, Errand::Probe),
                Order::Terminate => self.send(instance, Errand::Terminate),
                Order::Kill => self.send(instance, Errand::Kill),
            }
        }
        let transitions = self.guild.take_transitions();
        // Of a shutdown nothing is remembered but what was so before it.
        if self.closing.is_none() {
            self.chronicle.note(&self.guild, transitions.iter().map(|transition| &transition.key));
        }
        self.publisher.publish(&self.guild, transitions);
        self.chronicle.answer(&mut self.answers);
    }

    fn send(&self, instance: Instance, errand: Errand) {
        // Without a life the process is dead and its end is on the way.
        if let Some(life) = self.lives.get(&instance) {
            life.send(errand, self.launcher.flights.depart());
        }
    }

    /// Hands the hall over once nothing is under way; comes back only if that fails.
    fn hand_over(&mut self) {
        let Some(handing) = self.handing.take() else { return };
        let outcome = if self.closing.is_some() {
            HandOverError::Closing
        } else if let Some(_standstill) = self.launcher.flights.standstill() {
            match self.write_estate() {
                Ok((estate, keep)) => HandOverError::Execute((handing.become_next)(&estate, &keep)),
                Err(error) => error.into(),
            }
        } else if handing.until <= Instant::now() {
            HandOverError::Restless(LONGEST_UNREST.as_secs())
        } else {
            self.handing = Some(handing);
            return;
        };
        self.guild.unpause(Moment::now());
        self.follow_up();
        // Who asked may have gone away.
        let _ = handing.reply.send(outcome);
    }

    fn write_estate(&self) -> serde_json::Result<(String, Vec<RawFd>)> {
        let estate = Estate {
            format: FORMAT,
            guild: &self.guild,
            generation: self.publisher.generation(),
            started_at: self.publisher.facts().started_at,
            settled: self.publisher.settled().clone(),
            files: self.lives.values().map(|life| life.file.clone()).collect(),
            sessions: self.launcher.links.save(),
            hold: Hold::of(&self.launcher.run_dir, self.launcher.cgroups.as_ref()),
        };
        estate.write()
    }

    fn hurry(&mut self, closing: Closing) -> Result<(), String> {
        match closing {
            Closing::KillAt(at) if at <= Instant::now() => {
                self.kill_all();
                self.follow_up();
            }
            Closing::GiveUpAt(at) if at <= Instant::now() => {
                let left = self.guild.keys().filter(|key| self.guild.instance(key).is_some());
                let names: Vec<&str> = left.map(MemberKey::as_str).collect();
                return Err(format!(
                    "these members could not be ended, not even by SIGKILL: {}",
                    names.join(", ")
                ));
            }
            _ => {}
        }
        Ok(())
    }

    fn kill_all(&mut self) {
        if !matches!(self.closing, Some(Closing::GiveUpAt(_))) {
            self.closing = Some(Closing::GiveUpAt(Instant::now() + LONGEST_DYING));
        }
        self.guild.kill_all(Moment::now());
    }

    fn wake_at(&self) -> Option<Instant> {
        let now = (Moment::now(), Instant::now());
        let core = self.guild.next_deadline().map(|moment| now.1 + moment.since(now.0));
        let closing = self.closing.map(|(Closing::KillAt(at) | Closing::GiveUpAt(at))| at);
        let handing = self.handing.as_ref().map(|_| now.1 + LOOK_AGAIN);
        core.into_iter().chain(closing).chain(handing).min()
    }
}

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// What members left behind and nobody found: as a subreaper the hall has inherited it. Only where
/// there are no cgroups can anything be left to kill; with them it can be no member's.
pub(super) async fn bury_the_rest(cgroups: Option<Cgroups>) {
    let burying = spawn_blocking(move || {
        let patience = Instant::now() + LONGEST_DYING;
        while reap_orphans(cgroups.is_none()) != Some(0) && cgroups.is_none() && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(2));
        }
        if let Some(cgroups) = cgroups {
            cgroups.remove();
        }
    });
    // A panic there has been printed; the shutdown goes on.
    let _ = tokio::time::timeout(LONGEST_DYING, burying).await;
}
