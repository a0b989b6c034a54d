//! All members, and what they share: ports, places at the gate, restart budgets, deadlines.
//! The loop in `hall` (or a simulation) tells it what happened and carries out what it says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::budget::Budget;
use super::changes::compare;
use super::entry::entry;
use super::gate::Gate;
use super::member::{Happening, Report};
use super::phase::{GONE, Then};
use super::ports::Ports;
use super::random::Random;
use super::seat::Seat;
use crate::model::{
    Changes, Entry, Found, Instance, Manifest, MemberKey, Moment, PhaseName, Port, PortRange, Rejection,
    Timestamp,
};

/// What the core must be told once.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub ports: PortRange,
    /// Launches that may be younger than a second at a time.
    pub launches_at_once: usize,
    /// Wall-clock time of [`Moment::ZERO`].
    pub epoch: Timestamp,
    /// Where instance ids and jitter come from.
    pub seed: u64,
}

/// What somebody must now do, without the core waiting for it.
#[derive(Debug, Clone)]
pub struct Action {
    pub key: MemberKey,
    pub instance: Instance,
    pub order: Order,
}

#[derive(Debug, Clone)]
pub enum Order {
    /// See that the port can be bound, then start the process. Answered by `Spawned`, `PortBusy`
    /// or `SpawnFailed`, and later by `Ended`.
    Launch { port: Port, manifest: Arc<Manifest> },
    /// Connect and shake hands. Answered by `Greeted` or `HandshakeFailed`, on the way by `Obstacle`.
    Greet { port: Port, manifest: Arc<Manifest> },
    /// Answered by `Probed`.
    Probe,
    /// SIGTERM to the whole tree.
    Terminate,
    /// SIGKILL to the whole tree.
    Kill,
}

/// What a person or a program asks of one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    Start,
    Stop,
    Restart,
}

/// Why a wish cannot be granted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("no member is called {0:?}")]
    Unknown(String),
    #[error("{0}")]
    Invalid(Rejection),
    #[error("the hall is shutting down")]
    Closing,
}

/// One member's change of phase between two looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    pub key: MemberKey,
    /// `None`: it is new.
    pub from: Option<PhaseName>,
    /// `None`: it has left the roster.
    pub to: Option<PhaseName>,
    pub why: String,
}

/// How near the hall is to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) enum Closing {
    Open,
    Stopping,
    Killing,
}

/// The core: see the module's page. As a value it can be handed to the next image of the hall.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub struct Guild {
    pub(super) seats: BTreeMap<MemberKey, Seat>,
    pub(super) ports: Ports,
    pub(super) gate: Gate,
    /// Waiting for a port to be freed.
    pub(super) starving: BTreeSet<MemberKey>,
    pub(super) deadlines: BTreeSet<(Moment, MemberKey)>,
    pub(super) random: Random,
    pub(super) epoch: Timestamp,
    pub(super) closing: Closing,
    /// Nothing is launched while the hall is handed over.
    #[serde(skip)]
    pub(super) paused: bool,
    /// The latest moment it was told: time never runs back.
    pub(super) now: Moment,
    #[serde(skip)]
    pub(super) actions: Vec<Action>,
    /// Members touched since the last look, with the phase that they had then.
    #[serde(skip)]
    pub(super) touched: BTreeMap<MemberKey, Option<PhaseName>>,
    /// Members that were started anew since the last look, each with the file that had changed.
    #[serde(skip)]
    changed_files: BTreeMap<MemberKey, String>,
}

impl Guild {
    pub fn new(settings: Settings) -> Self {
        Self {
            seats: BTreeMap::new(),
            ports: Ports::new(settings.ports),
            gate: Gate::new(settings.launches_at_once),
            starving: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            random: Random::new(settings.seed),
            epoch: settings.epoch,
            closing: Closing::Open,
            paused: false,
            now: Moment::ZERO,
            actions: Vec::new(),
            touched: BTreeMap::new(),
            changed_files: BTreeMap::new(),
        }
    }

    // ── What can happen.

    /// A task answers. An answer about a launch that is over changes nothing.
    pub fn report(&mut self, key: &MemberKey, instance: Instance, report: Report, now: Moment) {
        self.advance(now);
        if self.instance(key) != Some(instance) {
            return;
        }
        let born = matches!(report, Report::Spawned(_));
        self.happen(key, Happening::Told(report));
        if born && self.closing == Closing::Killing {
            self.happen(key, Happening::Kill);
        }
        self.pump();
    }

    /// Somebody asks for something.
    pub fn wish(&mut self, key: &str, wish: Wish, now: Moment) -> Result<MemberKey, Refusal> {
        self.advance(now);
        if self.closing != Closing::Open {
            return Err(Refusal::Closing);
        }
        let unknown = || Refusal::Unknown(key.into());
        let key = MemberKey::parse(key).map_err(|_| unknown())?;
        let member = match self.seats.get_mut(&key).ok_or_else(unknown)? {
            Seat::Invalid { rejection, .. } => return Err(Refusal::Invalid(rejection.clone())),
            seat if seat.is_leaving() => return Err(unknown()),
            Seat::Admitted(member) => member,
        };
        let happening = match wish {
            Wish::Start => Happening::Start,
            Wish::Stop => Happening::Stop(Then::Rest),
            Wish::Restart => Happening::Stop(Then::Relaunch),
        };
        if wish != Wish::Stop {
            member.budget = Budget::default();
            // A new start: also ports that it refused may be tried again.
            self.starving.remove(&key);
        }
        self.happen(&key, happening);
        self.pump();
        Ok(key)
    }

    /// The members directory was read again, or what is registered has changed.
    pub fn reload(&mut self, found: &Found, now: Moment) -> Result<Changes, Refusal> {
        self.advance(now);
        if self.closing != Closing::Open {
            return Err(Refusal::Closing);
        }
        let changes = compare(&self.seats, found);
        for key in &changes.removed {
            if let Some(Seat::Admitted(member)) = self.seats.get_mut(key) {
                // A manifest that is gone has no fault.
                member.complaint = None;
                self.happen(key, Happening::Stop(Then::Leave));
            } else {
                self.remove(key);
            }
        }
        for key in changes.added.iter().chain(&changes.changed) {
            if let Some(paper) = found.papers.get(key) {
                self.admit(key, paper.clone());
            }
        }
        self.pump();
        Ok(changes)
    }

    /// A file that belongs to a member has changed, `file` as messages name it: the member is started
    /// anew, also when it had failed or ended, but not when it was asked to stop.
    pub fn file_changed(&mut self, key: &MemberKey, file: &str, now: Moment) {
        self.advance(now);
        let Some(Seat::Admitted(member)) = self.seats.get_mut(key) else { return };
        let phase = &member.phase;
        if self.closing != Closing::Open || phase.is_asked_to_end() || phase.is_queued() {
            return;
        }
        member.budget = Budget::default();
        self.starving.remove(key);
        self.changed_files.insert(key.clone(), file.into());
        self.happen(key, Happening::Stop(Then::Relaunch));
        self.pump();
    }

    /// Time has passed: deadlines that have come are acted on.
    pub fn tick(&mut self, now: Moment) {
        self.advance(now);
        while let Some((due, key)) = self.deadlines.first().cloned() {
            if due > self.now {
                break;
            }
            self.deadlines.remove(&(due, key.clone()));
            self.happen(&key, Happening::Overdue);
        }
        self.pump();
    }

    /// Asks every member to stop, and starts none any more.
    pub fn shut_down(&mut self, now: Moment) {
        self.advance(now);
        self.closing = self.closing.max(Closing::Stopping);
        self.all(|| Happening::Stop(Then::Rest));
    }

    /// Kills what still runs during a shutdown.
    pub fn kill_all(&mut self, now: Moment) {
        self.shut_down(now);
        self.closing = Closing::Killing;
        self.all(|| Happening::Kill);
    }

    // ── What follows from it.

    /// What must be done now, in this order.
    pub fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// Members that look different since the last call; one that came and went in between is not told.
    pub fn take_transitions(&mut self) -> Vec<Transition> {
        let touched = std::mem::take(&mut self.touched);
        let mut changed_files = std::mem::take(&mut self.changed_files);
        touched
            .into_iter()
            .filter_map(|(key, from)| {
                let seat = self.seats.get(&key);
                let to = seat.map(Seat::phase_name);
                let why = match seat {
                    None if from.is_none() => return None,
                    None => GONE.into(),
                    Some(Seat::Invalid { rejection, .. }) => rejection.to_string(),
                    Some(Seat::Admitted(member)) => member.why(self.now),
                };
                let why = match changed_files.remove(&key) {
                    Some(file) => format!("{file} changed; {why}"),
                    None => why,
                };
                Some(Transition { key, from, to, why })
            })
            .collect()
    }

    /// When [`Guild::tick`] must be called next, if nothing else happens before.
    pub fn next_deadline(&self) -> Option<Moment> {
        let phase = self.deadlines.first().map(|(due, _)| *due);
        phase.into_iter().chain(self.gate.opens_at()).min()
    }

    /// No member has a process, or a launch under way.
    pub fn is_quiet(&self) -> bool {
        !self
            .seats
            .values()
            .any(|seat| matches!(seat, Seat::Admitted(member) if member.phase.launch().is_some()))
    }

    pub fn keys(&self) -> impl Iterator<Item = &MemberKey> {
        self.seats.keys()
    }

    pub fn entry(&self, key: &MemberKey) -> Option<Entry> {
        self.seats.get(key).map(|seat| entry(key, seat, self.epoch))
    }

    /// The launch that a member is in: an answer about any other is late.
    pub fn instance(&self, key: &MemberKey) -> Option<Instance> {
        match self.seats.get(key)? {
            Seat::Admitted(member) => Some(member.phase.launch()?.instance),
            Seat::Invalid { .. } => None,
        }
    }

    /// Ports that no member holds.
    pub fn unheld_ports(&self) -> usize {
        self.ports.unheld()
    }
}

impl Closing {
    fn max(self, other: Self) -> Self {
        if self == Self::Open { other } else { self }
    }
}
