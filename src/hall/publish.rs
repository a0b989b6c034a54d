//! After each turn: the snapshot that everyone reads, and one line for each change of phase.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{broadcast, watch};

use super::Change;
use crate::lifecycle::{Guild, Transition};
use crate::model::{Entry, HallFacts, MemberKey, Roster};

pub(super) struct Publisher {
    facts: HallFacts,
    generation: u64,
    entries: BTreeMap<MemberKey, Arc<Entry>>,
    roster: watch::Sender<Arc<Roster>>,
    changes: broadcast::Sender<Change>,
    /// Every member has settled once.
    ready: Arc<AtomicBool>,
    /// Those that have, until all have.
    settled: HashSet<MemberKey>,
}

impl Publisher {
    pub(super) fn new(
        facts: HallFacts, generation: u64, changes: broadcast::Sender<Change>, ready: Arc<AtomicBool>,
    ) -> (Self, watch::Receiver<Arc<Roster>>) {
        let empty = Roster { generation, hall: facts.clone(), members: Vec::new() };
        let (roster, receiver) = watch::channel(Arc::new(empty));
        (
            Self {
                facts,
                generation,
                entries: BTreeMap::new(),
                roster,
                changes,
                ready,
                settled: HashSet::new(),
            },
            receiver,
        )
    }

    /// In a new image of the hall: the roster as it was, which is no change.
    pub(super) fn resume(&mut self, guild: &Guild, settled: HashSet<MemberKey>) {
        self.settled = settled;
        self.entries =
            guild.keys().filter_map(|key| Some((key.clone(), Arc::new(guild.entry(key)?)))).collect();
        self.show();
    }

    pub(super) fn facts(&self) -> &HallFacts {
        &self.facts
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Members that have settled once, until all have.
    pub(super) fn settled(&self) -> &HashSet<MemberKey> {
        &self.settled
    }

    /// Tells what is different since the last call.
    pub(super) fn publish(&mut self, guild: &Guild, transitions: Vec<Transition>) {
        let mut changes = Vec::new();
        for transition in transitions {
            let key = transition.key;
            let entry = guild.entry(&key).map(Arc::new);
            if self.entries.get(&key) == entry.as_ref() {
                continue;
            }
            match &entry {
                Some(entry) => drop(self.entries.insert(key.clone(), entry.clone())),
                None => drop(self.entries.remove(&key)),
            }
            if transition.from != transition.to {
                let name = |phase: Option<_>| phase.map_or("-", crate::model::PhaseName::as_str);
                tracing::info!(member = %key, from = name(transition.from), to = name(transition.to), why = transition.why, "phase");
            }
            self.generation += 1;
            changes.push(Change {
                generation: self.generation,
                key,
                from: transition.from,
                entry,
                why: transition.why,
            });
        }
        if changes.is_empty() && !self.roster.borrow().members.is_empty() {
            return;
        }
        self.show();
        for change in changes {
            // Nobody may be following.
            let _ = self.changes.send(change);
        }
    }

    fn show(&mut self) {
        let members: Vec<Arc<Entry>> = self.entries.values().cloned().collect();
        if !self.ready.load(Ordering::Relaxed) {
            self.settled.extend(members.iter().filter(|entry| entry.settled).map(|entry| entry.name.clone()));
            self.ready
                .store(members.iter().all(|entry| self.settled.contains(&entry.name)), Ordering::Relaxed);
        }
        self.roster.send_replace(Arc::new(Roster {
            generation: self.generation,
            hall: self.facts.clone(),
            members,
        }));
    }
}
