//! Launches are gated, not stampeded: on a small machine fifty Node servers started at once
//! starve each other past their deadlines.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::model::{Instance, MemberKey, Moment};

/// A launch older than this no longer fills a place, however long its handshake takes.
const YOUNG: Duration = Duration::from_secs(1);

/// Who may be launched next, and how many launches are too fresh for another.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Gate {
    width: usize,
    young: BTreeMap<Instance, Moment>,
    queue: VecDeque<MemberKey>,
}

impl Gate {
    pub(super) fn new(width: usize) -> Self {
        Self { width: width.max(1), young: BTreeMap::new(), queue: VecDeque::new() }
    }

    pub(super) fn join(&mut self, key: MemberKey) {
        self.queue.push_back(key);
    }

    /// For a launch that only changes its port: it does not wait again.
    pub(super) fn join_first(&mut self, key: MemberKey) {
        self.queue.push_front(key);
    }

    pub(super) fn leave(&mut self, key: &MemberKey) {
        self.queue.retain(|queued| queued != key);
    }

    /// The next to be launched, if there is a place.
    pub(super) fn admit(&mut self, now: Moment) -> Option<MemberKey> {
        if self.queue.is_empty() {
            return None;
        }
        self.young.retain(|_, &mut launched| now.since(launched) < YOUNG);
        if self.young.len() >= self.width {
            return None;
        }
        self.queue.pop_front()
    }

    pub(super) fn launched(&mut self, instance: Instance, now: Moment) {
        self.young.insert(instance, now);
    }

    /// The launch is over, one way or another.
    pub(super) fn settled(&mut self, instance: Instance) {
        self.young.remove(&instance);
    }

    /// When the next place becomes free by mere ageing, if anyone waits for one.
    pub(super) fn opens_at(&self) -> Option<Moment> {
        if self.queue.is_empty() {
            return None;
        }
        self.young.values().min().map(|&launched| launched + YOUNG)
    }
}
