//! What one hall leaves to the next: processes that live on, and what is remembered of the others, so
//! that neither a crash loop nor a wish is forgotten by restarting the hall.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::budget::Budget;
use super::guild::Guild;
use super::member::{Act, Happening};
use super::phase::{Due, Health, Launch, Life, Origin, Phase, Probe, Rest, Stage, Then};
use super::seat::{Admitted, Seat};
use crate::model::{Digest, Exit, Failure, Found, Instance, Manifest, MemberKey, Moment, Pid, Port};

/// A process that an earlier hall launched, proven to be the one, and alive.
#[derive(Debug, Clone)]
pub struct Survivor {
    pub key: MemberKey,
    pub instance: Instance,
    pub port: Port,
    pub pid: Pid,
    pub launched: Moment,
    /// Since when that hall was ending it.
    pub ending: Option<Moment>,
    /// What it was launched from; a stand-in where that is not what stands in the directory now.
    pub manifest: Arc<Manifest>,
}

/// A launch whose process lives.
#[derive(Debug, Clone)]
pub struct Living {
    pub key: MemberKey,
    pub instance: Instance,
    pub manifest: Arc<Manifest>,
    pub asked: Asked,
}

/// What was asked of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    Nothing,
    /// SIGTERM is sent: whatever it has started may take its time to end too.
    ToEnd,
}

/// What is remembered of a member that has failed, or that does not run.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// It is about the member under this manifest, and under no other.
    digest: Digest,
    budget: Budget,
    last_exit: Option<(Exit, Moment)>,
    outcome: Outcome,
}

/// Where the member stood.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
enum Outcome {
    /// It ran, or was to.
    Running,
    Asked,
    ExitedCleanly,
    Waiting(Failure, Moment),
    Failed(Failure),
}

impl Memory {
    /// What is left of it after a stop of the hall that somebody asked for: then every member is
    /// started anew, but a crash loop goes on where it was.
    pub fn after_a_stop(mut self) -> Option<Self> {
        self.outcome = Outcome::Running;
        (!self.budget.is_fresh()).then_some(self)
    }
}

impl Guild {
    /// Takes up what an earlier hall left, and reads the members directory for the first time.
    pub fn reopen(
        &mut self, found: &Found, survivors: Vec<Survivor>, mut memories: BTreeMap<MemberKey, Memory>,
        now: Moment,
    ) {
        self.advance(now);
        for survivor in survivors {
            let memory = memories.remove(&survivor.key);
            self.adopt(survivor, found, memory);
        }
        for (key, paper) in &found.papers {
            if !self.seats.contains_key(key) {
                self.admit(key, paper.clone());
                if let Some(memory) = memories.remove(key) {
                    self.recall(key, memory);
                }
            }
        }
        self.pump();
    }

    /// Launches nothing from now on, so that the hall can be handed over as it is.
    pub fn pause(&mut self) {
        self.paused = true;
    }

    /// The hall is not handed over after all.
    pub fn unpause(&mut self, now: Moment) {
        self.paused = false;
        self.advance(now);
        self.pump();
    }

    /// In a new image of the hall: it goes on from where it was, and what was asked of tasks that are
    /// no more is asked again.
    pub fn resume(&mut self, now: Moment) {
        self.advance(now);
        let keys: Vec<MemberKey> = self.seats.keys().cloned().collect();
        for key in keys {
            let Some(Seat::Admitted(member)) = self.seats.get(&key) else { continue };
            let act = match &member.phase {
                Phase::Greeting { .. } => Act::Greet,
                Phase::Connected { health: Health::Probing(_), .. }
                | Phase::Ailing { health: Health::Probing(_), .. }
                | Phase::Unwell { probe: Probe::UnderWay, .. } => Act::Probe,
                Phase::Stopping { stage: Stage::Killed { .. }, .. } => Act::Kill,
                _ => continue,
            };
            self.order(&key, act);
        }
        self.pump();
    }

    /// The launches that have become processes, each with what it was launched from, and whether it
    /// has been asked to end.
    pub fn lives(&self) -> impl Iterator<Item = Living> {
        self.seats.iter().filter_map(|(key, seat)| {
            let Seat::Admitted(member) = seat else { return None };
            let launch = member.phase.launch()?;
            let asked = match member.phase {
                Phase::Starting(_) | Phase::Stopping { stage: Stage::Unborn, .. } => return None,
                Phase::Stopping { stage: Stage::Asked { .. }, .. } => Asked::ToEnd,
                _ => Asked::Nothing,
            };
            Some(Living {
                key: key.clone(),
                instance: launch.instance,
                manifest: launch.manifest.clone(),
                asked,
            })
        })
    }

    /// What a later hall must know of a member that is not simply running.
    pub fn memory(&self, key: &MemberKey) -> Option<Memory> {
        let Seat::Admitted(member) = self.seats.get(key)? else { return None };
        let outcome = match &member.phase {
            Phase::Stopped(Rest::Asked) | Phase::Stopping { then: Then::Rest, .. } => Outcome::Asked,
            Phase::Stopped(Rest::ExitedCleanly) => Outcome::ExitedCleanly,
            Phase::Waiting { failure, due: Due::At(due) } => Outcome::Waiting(failure.clone(), *due),
            Phase::Failed(failure) => Outcome::Failed(failure.clone()),
            _ => Outcome::Running,
        };
        let nothing = outcome == Outcome::Running && member.budget.is_fresh();
        (!nothing).then(|| Memory {
            digest: member.manifest.digest,
            budget: member.budget.clone(),
            last_exit: member.last_exit,
            outcome,
        })
    }

    /// A process without the manifest that it was launched from, or on a port that is not ours to
    /// give, is ended; any other has to shake hands again.
    fn adopt(&mut self, survivor: Survivor, found: &Found, memory: Option<Memory>) {
        let Survivor { key, instance, port, pid, launched, ending, manifest } = survivor;
        let (now, paper) = (self.now, found.papers.get(&key));
        let of_pool = self.ports.hold(port);
        let memory = memory.filter(|memory| memory.digest == manifest.digest);
        let was_asked = memory.as_ref().is_some_and(|memory| memory.outcome == Outcome::Asked);
        let end = match paper {
            None | Some(Err(_)) => Some(Then::Leave),
            Some(Ok(_)) if was_asked => Some(Then::Rest),
            Some(Ok(paper)) if *paper != manifest || !of_pool || ending.is_some() => Some(Then::Relaunch),
            Some(Ok(_)) => None,
        };
        let launch = Launch {
            instance,
            port,
            manifest: manifest.clone(),
            at: launched.min(now),
            origin: Origin::Adopted,
        };
        let until = now + manifest.start_timeout;
        let phase = Phase::Greeting { life: Life { launch, pid }, until, obstacle: None };
        let current = paper.and_then(|paper| paper.as_ref().ok()).unwrap_or(&manifest).clone();
        let mut member = Admitted::new(current, phase, now);
        member.attempts = 1;
        member.last_port = Some(port);
        member.complaint = paper.and_then(|paper| paper.as_ref().err().cloned());
        if let Some(memory) = memory {
            member.budget = memory.budget;
            member.last_exit = memory.last_exit;
        }
        self.touched.entry(key.clone()).or_insert(None);
        self.deadlines.insert((until, key.clone()));
        self.seats.insert(key.clone(), Seat::Admitted(Box::new(member)));
        match end {
            Some(then) => self.happen(&key, Happening::Stop(then)),
            None => self.order(&key, Act::Greet),
        }
    }

    /// A member without a process goes on from where it stood, if it is still the same.
    fn recall(&mut self, key: &MemberKey, memory: Memory) {
        let Some(Seat::Admitted(member)) = self.seats.get_mut(key) else { return };
        if member.manifest.digest != memory.digest {
            return;
        }
        let before = member.phase.name();
        member.budget = memory.budget;
        member.last_exit = memory.last_exit;
        let phase = match memory.outcome {
            Outcome::Running => return,
            Outcome::Asked => Phase::Stopped(Rest::Asked),
            Outcome::ExitedCleanly => Phase::Stopped(Rest::ExitedCleanly),
            Outcome::Waiting(failure, due) => Phase::Waiting { failure, due: Due::At(due) },
            Outcome::Failed(failure) => Phase::Failed(failure),
        };
        self.gate.leave(key);
        self.enter(key, phase, before);
    }
}
