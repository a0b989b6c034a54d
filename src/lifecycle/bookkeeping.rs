//! What follows from the table's answer for all that members share: ports, places at the gate, the
//! queue, deadlines, budgets. The inner half of `guild`.

use std::sync::Arc;
use std::time::Duration;

use super::budget::{Budget, Verdict};
use super::guild::{Action, Closing, Guild, Order};
use super::member::{Act, Happening, MOST_PORTS_TRIED, Next, Report, step};
use super::phase::{Due, Launch, Origin, Phase, Rest, Then};
use super::ports::{Busy, NoPort};
use super::seat::{Admitted, Seat};
use crate::model::{
    Failure, Instance, Manifest, MemberKey, Moment, PhaseName, Port, Rejection, RestartPolicy,
};

/// A member that found no port looks again this soon, or when a member frees one.
const PORT_RETRY: Duration = Duration::from_secs(5);

impl Guild {
    pub(super) fn advance(&mut self, now: Moment) {
        self.now = self.now.max(now);
    }

    pub(super) fn all(&mut self, happening: impl Fn() -> Happening) {
        let keys: Vec<MemberKey> = self.seats.keys().cloned().collect();
        for key in keys {
            self.happen(&key, happening());
        }
    }

    /// Asks the table, and keeps everything that members share in step with its answer.
    pub(super) fn happen(&mut self, key: &MemberKey, happening: Happening) {
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

        if let Some(since) = connected_since
            && !matches!(&next, Next::Be(phase) if phase.connected_since().is_some())
        {
            member.budget.lived(now.since(since));
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
                let busy = match next {
                    Next::LaunchAvoiding => Some(Busy::Seen),
                    Next::LaunchElsewhere { .. } => Some(Busy::Said),
                    _ => None,
                };
                self.release(port, busy);
            }
        }
        self.touched.entry(key.clone()).or_insert(Some(before));
        if let Some(due) = deadline {
            self.deadlines.remove(&(due, key.clone()));
        }
        match self.resolve(key, next) {
            Some(Phase::Stopped(Rest::Asked | Rest::ExitedCleanly) | Phase::Failed(_))
                if self.has_complaint(key) =>
            {
                self.let_go(key);
            }
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
            Next::LaunchElsewhere { stderr_tail } => {
                member.refused.extend(member.last_port);
                member.last_words = stderr_tail;
                if member.refused.len() >= MOST_PORTS_TRIED {
                    return Some(Phase::Failed(all_refused(member)));
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

    pub(super) fn enter(&mut self, key: &MemberKey, phase: Phase, before: PhaseName) {
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

    pub(super) fn order(&mut self, key: &MemberKey, act: Act) {
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
    fn release(&mut self, port: Port, busy: Option<Busy>) {
        if let Some(busy) = busy {
            self.ports.shun(port, busy, self.now);
            return;
        }
        self.ports.give_back(port);
        if let Some(hungry) = self.starving.first().cloned() {
            self.happen(&hungry, Happening::Overdue);
        }
    }

    /// Launches as many of the queue as the gate lets through.
    pub(super) fn pump(&mut self) {
        if self.paused {
            return;
        }
        while let Some(key) = self.gate.admit(self.now) {
            let Some(Seat::Admitted(member)) = self.seats.get_mut(&key) else { continue };
            if !member.phase.is_queued() {
                continue;
            }
            let before = member.phase.name();
            self.touched.entry(key.clone()).or_insert(Some(before));
            let port = match self.ports.take(member.last_port, &member.refused, self.now) {
                Ok(port) => port,
                Err(NoPort::AllRefused) => {
                    let failure = all_refused(member);
                    self.enter(&key, Phase::Failed(failure), before);
                    continue;
                }
                Err(NoPort::Exhausted(why)) => {
                    self.starving.insert(key.clone());
                    let due = Due::At(self.now + PORT_RETRY);
                    self.enter(&key, Phase::Waiting { failure: Failure::new(why), due }, before);
                    continue;
                }
            };
            member.last_port = Some(port);
            member.attempts = member.refused.len() + 1;
            let manifest = member.manifest.clone();
            let instance = Instance::from_bits(self.random.next());
            self.gate.launched(instance, self.now);
            self.actions.push(Action {
                key: key.clone(),
                instance,
                order: Order::Launch { port, manifest: manifest.clone() },
            });
            let launch = Launch { instance, port, manifest, at: self.now, origin: Origin::Launched };
            self.enter(&key, Phase::Starting(launch), before);
        }
    }

    /// A new or changed paper for a member.
    pub(super) fn admit(&mut self, key: &MemberKey, paper: Result<Arc<Manifest>, Rejection>) {
        let now = self.now;
        let before = self.seats.get(key).map(Seat::phase_name);
        self.touched.entry(key.clone()).or_insert(before);
        match (self.seats.get_mut(key), paper) {
            (Some(Seat::Admitted(member)), Ok(manifest)) => {
                member.complaint = None;
                let same = member.manifest == manifest;
                member.manifest = manifest;
                let rests = matches!(
                    member.phase,
                    Phase::Stopped(Rest::Asked) | Phase::Stopping { then: Then::Rest, .. }
                );
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
                let member = Admitted::new(manifest, Phase::Stopped(Rest::Queued), now);
                self.seats.insert(key.clone(), Seat::Admitted(Box::new(member)));
                self.gate.join(key.clone());
            }
        }
    }

    /// Its newest manifest is unusable, and it ran on under the one before.
    fn has_complaint(&self, key: &MemberKey) -> bool {
        matches!(self.seats.get(key), Some(Seat::Admitted(member)) if member.complaint.is_some())
    }

    /// A member that will not run again as it was: its directory is gone, or holds an unusable
    /// manifest, which is then what the roster shows.
    pub(super) fn let_go(&mut self, key: &MemberKey) {
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
    pub(super) fn remove(&mut self, key: &MemberKey) {
        let Some(seat) = self.seats.remove(key) else { return };
        self.touched.entry(key.clone()).or_insert(Some(seat.phase_name()));
        self.starving.remove(key);
        self.gate.leave(key);
        if let Seat::Admitted(member) = seat
            && let Some(due) = member.phase.deadline()
        {
            self.deadlines.remove(&(due, key.clone()));
        }
    }
}

fn all_refused(member: &Admitted) -> Failure {
    let list: Vec<String> = member.refused.iter().map(Port::to_string).collect();
    let said = member.last_words.iter().rev().find(|line| !line.trim().is_empty());
    let said = said.map(|line| format!("; it said: {}", line.trim())).unwrap_or_default();
    let what = format!(
        "exited with code 2 (port taken) on each of {} ports: {}; does it really fail to bind, or is 2 its code for \
         another error?{said}",
        list.len(),
        list.join(", ")
    );
    Failure::new(what).with_tail(member.last_words.clone())
}
