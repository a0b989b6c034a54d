//! All members, and what they share: ports, places at the gate, restart budgets, deadlines.
//! The loop in `hall` (or a simulation) tells it what happened and carries out what it says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::budget::{Budget, Verdict};
use super::changes::compare;
use super::entry::entry;
use super::gate::Gate;
use super::member::{Act, Happening, MOST_PORTS_TRIED, Next, Report, step};
use super::phase::{Due, Launch, Phase, Rest, Stage, Then};
use super::ports::Ports;
use super::random::Random;
use crate::model::{
    Changes, Entry, Exit, Failure, Found, Instance, Manifest, MemberKey, Moment, PhaseName, Port, PortRange, Rejection,
    RestartPolicy, Timestamp,
};

/// A member that found no port looks again this soon, or when a member frees one.
const PORT_RETRY: Duration = Duration::from_secs(5);

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

#[derive(Debug)]
pub(super) enum Seat {
    Invalid { rejection: Rejection, since: Moment },
    Admitted(Box<Admitted>),
}

#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) manifest: Arc<Manifest>,
    pub(super) phase: Phase,
    pub(super) since: Moment,
    /// Ports that the member refused with exit code 2 in the present start.
    pub(super) refused: Vec<Port>,
    pub(super) last_port: Option<Port>,
    pub(super) last_exit: Option<(Exit, Moment)>,
    pub(super) budget: Budget,
    /// What is wrong with the newest manifest, while the member runs on under `manifest`.
    pub(super) complaint: Option<Rejection>,
}

/// How near the hall is to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    Open,
    Stopping,
    Killing,
}

/// The core: see the module's page.
#[derive(Debug)]
pub struct Guild {
    seats: BTreeMap<MemberKey, Seat>,
    ports: Ports,
    gate: Gate,
    /// Waiting for a port to be freed.
    starving: BTreeSet<MemberKey>,
    deadlines: BTreeSet<(Moment, MemberKey)>,
    random: Random,
    epoch: Timestamp,
    closing: Closing,
    /// The latest moment it was told: time never runs back.
    now: Moment,
    actions: Vec<Action>,
    /// Members touched since the last look, with the phase that they had then.
    touched: BTreeMap<MemberKey, Option<PhaseName>>,
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
            now: Moment::ZERO,
            actions: Vec::new(),
            touched: BTreeMap::new(),
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
            Seat::Admitted(member) => member,
        };
        let happening = match wish {
            Wish::Start => Happening::Start,
            Wish::Stop => Happening::Stop(Then::Rest),
            Wish::Restart => Happening::Stop(Then::Relaunch),
        };
        if wish != Wish::Stop {
            member.budget = Budget::default();
        }
        self.happen(&key, happening);
        self.pump();
        Ok(key)
    }

    /// The members directory was read again.
    pub fn reload(&mut self, found: &Found, now: Moment) -> Result<Changes, Refusal> {
        self.advance(now);
        if self.closing != Closing::Open {
            return Err(Refusal::Closing);
        }
        let changes = compare(&self.seats, found);
        for key in &changes.removed {
            if let Some(Seat::Invalid { .. }) = self.seats.get(key) {
                self.remove(key);
            } else {
                self.happen(key, Happening::Stop(Then::Leave));
            }
        }
        for key in changes.added.iter().chain(&changes.changed) {
            if let Some(paper) = found.get(key) {
                self.admit(key, paper.clone());
            }
        }
        self.pump();
        Ok(changes)
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
        touched.into_iter().filter_map(|(key, from)| {
            let seat = self.seats.get(&key);
            let to = seat.map(Seat::phase_name);
            let why = match seat {
                None if from.is_none() => return None,
                None => "its directory is gone".into(),
                Some(Seat::Invalid { rejection, .. }) => rejection.to_string(),
                Some(Seat::Admitted(member)) => member.why(self.now),
            };
            Some(Transition { key, from, to, why })
        }).collect()
    }

    /// When [`Guild::tick`] must be called next, if nothing else happens before.
    pub fn next_deadline(&self) -> Option<Moment> {
        let phase = self.deadlines.first().map(|(due, _)| *due);
        phase.into_iter().chain(self.gate.opens_at()).min()
    }

    /// No member has a process, or a launch under way.
    pub fn is_quiet(&self) -> bool {
        !self.seats.values().any(|seat| matches!(seat, Seat::Admitted(member) if member.phase.launch().is_some()))
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

    // ── How.

    fn advance(&mut self, now: Moment) {
        self.now = self.now.max(now);
    }

    fn all(&mut self, happening: impl Fn() -> Happening) {
        let keys: Vec<MemberKey> = self.seats.keys().cloned().collect();
        for key in keys {
            self.happen(&key, happening());
        }
    }

    /// Asks the table, and keeps everything that members share in step with its answer.
    fn happen(&mut self, key: &MemberKey, happening: Happening) {
        let now = self.now;
        let Some(Seat::Admitted(member)) = self.seats.get_mut(key) else { return };
        let before = member.phase.name();
        let deadline = member.phase.deadline();
        let connected_since = member.phase.connected_since();
        let was_queued = member.phase.is_queued();
        let held = member.phase.launch().map(|launch| (launch.instance, launch.port));
        if let Happening::Told(Report::Ended { exit, .. }) = &happening {
            member.last_exit = Some((*exit, now));
        }

        let phase = std::mem::replace(&mut member.phase, Phase::Stopped(Rest::Asked));
        let (next, act) = step(phase, happening, &member.manifest, now);

        if let Some(since) = connected_since {
            if !matches!(&next, Next::Be(phase) if phase.connected_since().is_some()) {
                member.budget.lived(now.since(since));
            }
        }
        if was_queued && !matches!(&next, Next::Be(phase) if phase.is_queued()) {
            self.gate.leave(key);
        }
        if let Some((instance, port)) = held {
            let still = match &next {
                Next::Be(phase) => {
                    if !matches!(phase, Phase::Starting(_) | Phase::Greeting { .. }) {
                        self.gate.settled(instance);
                    }
                    phase.launch().is_some()
                }
                _ => {
                    self.gate.settled(instance);
                    false
                }
            };
            if !still {
                self.release(port, matches!(next, Next::LaunchAvoiding));
            }
        }
        self.touched.entry(key.clone()).or_insert(Some(before));
        if let Some(due) = deadline {
            self.deadlines.remove(&(due, key.clone()));
        }
        match self.resolve(key, next) {
            Some(phase) => self.enter(key, phase, before),
            None => self.let_go(key),
        }
        if let Some(act) = act {
            self.order(key, act);
        }
    }

    /// Turns the table's answer into a phase; `None` when the member leaves the roster.
    fn resolve(&mut self, key: &MemberKey, next: Next) -> Option<Phase> {
        let closing = self.closing != Closing::Open;
        let Some(Seat::Admitted(member)) = self.seats.get_mut(key) else { return None };
        let queued = Phase::Stopped(Rest::Queued);
        Some(match next {
            Next::Leave => return None,
            Next::Be(phase) => phase,
            _ if closing => Phase::Stopped(Rest::Asked),
            Next::Launch { after } => {
                if !self.starving.remove(key) {
                    member.refused.clear();
                }
                self.gate.join(key.clone());
                after.map_or(queued, |failure| Phase::Waiting { failure, due: Due::Queued })
            }
            Next::LaunchElsewhere => {
                member.refused.extend(member.last_port);
                if member.refused.len() >= MOST_PORTS_TRIED {
                    let ports: Vec<String> = member.refused.iter().map(Port::to_string).collect();
                    return Some(Phase::Failed(Failure::new(format!(
                        "exited with code 2 (port taken) on each of {MOST_PORTS_TRIED} ports: {}; does it really fail to bind, \
                         or is 2 its code for another error?",
                        ports.join(", ")
                    ))));
                }
                self.gate.join_first(key.clone());
                queued
            }
            Next::LaunchAvoiding => {
                self.gate.join_first(key.clone());
                queued
            }
            Next::Fail(failure) if member.manifest.restart == RestartPolicy::Never => Phase::Failed(failure),
            Next::Fail(failure) => match member.budget.ask(self.now, self.random.next()) {
                Verdict::RestartIn(Duration::ZERO) => {
                    member.refused.clear();
                    self.gate.join(key.clone());
                    Phase::Waiting { failure, due: Due::Queued }
                }
                Verdict::RestartIn(delay) => Phase::Waiting { failure, due: Due::At(self.now + delay) },
                Verdict::Spent(restarts) => {
                    let what = format!("{} (given up after {restarts} restarts in 10 minutes)", failure.what);
                    Phase::Failed(Failure { what, ..failure })
                }
            },
        })
    }

    fn enter(&mut self, key: &MemberKey, phase: Phase, before: PhaseName) {
        let Some(Seat::Admitted(member)) = self.seats.get_mut(key) else { return };
        if let Some(due) = phase.deadline() {
            self.deadlines.insert((due, key.clone()));
        }
        if phase.name() != before {
            member.since = self.now;
        }
        if phase.name() != PhaseName::Waiting {
            self.starving.remove(key);
        }
        member.phase = phase;
    }

    fn order(&mut self, key: &MemberKey, act: Act) {
        let Some(Seat::Admitted(member)) = self.seats.get(key) else { return };
        let Some(Launch { instance, port, manifest, .. }) = member.phase.launch().cloned() else { return };
        let order = match act {
            Act::Greet => Order::Greet { port, manifest },
            Act::Probe => Order::Probe,
            Act::Terminate => Order::Terminate,
            Act::Kill => Order::Kill,
        };
        self.actions.push(Action { key: key.clone(), instance, order });
    }

    /// A launch is over and its process dead: the port may go to another.
    fn release(&mut self, port: Port, busy: bool) {
        if busy {
            self.ports.shun(port, self.now);
            return;
        }
        self.ports.give_back(port);
        if let Some(hungry) = self.starving.first().cloned() {
            self.happen(&hungry, Happening::Overdue);
        }
    }

    /// Launches as many of the queue as the gate lets through.
    fn pump(&mut self) {
        while let Some(key) = self.gate.admit(self.now) {
            let Some(Seat::Admitted(member)) = self.seats.get_mut(&key) else { continue };
            if !member.phase.is_queued() {
                continue;
            }
            let before = member.phase.name();
            self.touched.entry(key.clone()).or_insert(Some(before));
            let Some(port) = self.ports.take(member.last_port, &member.refused, self.now) else {
                let failure = Failure::new(self.ports.exhaustion());
                self.starving.insert(key.clone());
                self.enter(&key, Phase::Waiting { failure, due: Due::At(self.now + PORT_RETRY) }, before);
                continue;
            };
            member.last_port = Some(port);
            let manifest = member.manifest.clone();
            let instance = Instance::from_bits(self.random.next());
            self.gate.launched(instance, self.now);
            self.actions.push(Action { key: key.clone(), instance, order: Order::Launch { port, manifest: manifest.clone() } });
            self.enter(&key, Phase::Starting(Launch { instance, port, manifest, at: self.now }), before);
        }
    }

    /// A new or changed paper for a member.
    fn admit(&mut self, key: &MemberKey, paper: Result<Arc<Manifest>, Rejection>) {
        let now = self.now;
        let before = self.seats.get(key).map(Seat::phase_name);
        self.touched.entry(key.clone()).or_insert(before);
        match (self.seats.get_mut(key), paper) {
            (Some(Seat::Admitted(member)), Ok(manifest)) => {
                member.complaint = None;
                let same = member.manifest == manifest;
                member.manifest = manifest;
                let rests = matches!(member.phase, Phase::Stopped(Rest::Asked) | Phase::Stopping { then: Then::Rest, .. });
                let leaves = matches!(member.phase, Phase::Stopping { then: Then::Leave, .. });
                if (!same && !rests) || leaves {
                    member.budget = Budget::default();
                    self.happen(key, Happening::Stop(Then::Relaunch));
                }
            }
            (Some(Seat::Admitted(member)), Err(rejection)) if member.phase.launch().is_some() => {
                member.complaint = Some(rejection);
            }
            (_, Err(rejection)) => {
                self.remove(key);
                self.seats.insert(key.clone(), Seat::Invalid { rejection, since: now });
            }
            (_, Ok(manifest)) => {
                let member = Admitted {
                    manifest,
                    phase: Phase::Stopped(Rest::Queued),
                    since: now,
                    refused: Vec::new(),
                    last_port: None,
                    last_exit: None,
                    budget: Budget::default(),
                    complaint: None,
                };
                self.seats.insert(key.clone(), Seat::Admitted(Box::new(member)));
                self.gate.join(key.clone());
            }
        }
    }

    /// A member whose directory is gone has ended. If the directory came back in the meantime with
    /// an unusable manifest, that is what the roster shows now.
    fn let_go(&mut self, key: &MemberKey) {
        let complaint = match self.seats.get_mut(key) {
            Some(Seat::Admitted(member)) => member.complaint.take(),
            _ => None,
        };
        self.remove(key);
        if let Some(rejection) = complaint {
            self.seats.insert(key.clone(), Seat::Invalid { rejection, since: self.now });
        }
    }

    /// Takes a member that has no process out of the house.
    fn remove(&mut self, key: &MemberKey) {
        let Some(seat) = self.seats.remove(key) else { return };
        self.touched.entry(key.clone()).or_insert(Some(seat.phase_name()));
        self.starving.remove(key);
        self.gate.leave(key);
        if let Seat::Admitted(member) = seat {
            if let Some(due) = member.phase.deadline() {
                self.deadlines.remove(&(due, key.clone()));
            }
        }
    }
}

impl Closing {
    fn max(self, other: Self) -> Self {
        if self == Self::Open { other } else { self }
    }
}

impl Seat {
    fn phase_name(&self) -> PhaseName {
        match self {
            Self::Invalid { .. } => PhaseName::Invalid,
            Self::Admitted(member) => member.phase.name(),
        }
    }

    /// What stands in the directory is what the member has.
    pub(super) fn holds(&self, paper: &Result<Arc<Manifest>, Rejection>) -> bool {
        match (self, paper) {
            (Self::Invalid { rejection, .. }, Err(found)) => rejection == found,
            (Self::Admitted(member), Err(found)) => member.complaint.as_ref() == Some(found),
            (Self::Admitted(member), Ok(found)) => {
                member.complaint.is_none() && member.manifest == *found && !self.is_leaving()
            }
            (Self::Invalid { .. }, Ok(_)) => false,
        }
    }

    pub(super) fn is_leaving(&self) -> bool {
        matches!(self, Self::Admitted(member) if matches!(member.phase, Phase::Stopping { then: Then::Leave, .. }))
    }
}

impl Admitted {
    fn why(&self, now: Moment) -> String {
        match (&self.phase, self.refused.last()) {
            (Phase::Starting(launch), Some(refused)) => format!(
                "exited with code 2 on port {refused}; launching on port {}, attempt {} of {MOST_PORTS_TRIED}",
                launch.port,
                self.refused.len() + 1
            ),
            (Phase::Waiting { failure, due: Due::At(at) }, _) => {
                format!("{}; next attempt in {:.1} s", failure.what, at.since(now).as_secs_f64())
            }
            (Phase::Stopping { stage: Stage::Killed { .. }, .. }, _) => "it ignored SIGTERM, SIGKILL is sent".into(),
            (phase, _) => phase.why(),
        }
    }
}
