//! The memory and CPU of the members, measured only when somebody asks: nobody waits for a measurement
//! that another has just taken, and nothing is measured while nobody looks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::timeout;

use super::Hall;
use crate::model::{Entry, Instance, Pid, Roster};
use crate::process::{Tree, Usage};

/// A sample is replaced when it is older than this and somebody asks; who asks gets the old one...
const FRESH: Duration = Duration::from_secs(1);
/// ...unless it is older than this: then the new one is waited for...
const STALE: Duration = Duration::from_secs(2);
/// ...but not for longer.
const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// Members that were launched since the last sample are measured this soon.
const NEWCOMERS: Duration = Duration::from_millis(100);
/// Measuring never takes more than this part of one core, however many members there are.
const SHARE: u32 = 20;

/// The trees of all launches, and what they used when they were last measured.
#[derive(Debug, Clone, Default)]
pub(super) struct Usages(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    trees: Mutex<HashMap<Instance, (Pid, Arc<Tree>)>>,
    newcomers: AtomicBool,
    measuring: AtomicBool,
    sample: watch::Sender<Arc<Sample>>,
    /// The roster that was shown last: it is the same for all who ask between two changes.
    shown: Mutex<Option<Shown>>,
}

#[derive(Debug, Default)]
struct Sample {
    number: u64,
    /// `None`: nobody has asked yet.
    taken: Option<Instant>,
    took: Duration,
    of: HashMap<Instance, Usage>,
}

#[derive(Debug)]
struct Shown {
    generation: u64,
    sample: u64,
    roster: Arc<Roster>,
}

/// A launch that can be measured, for as long as this is held.
pub(super) struct Measured {
    usages: Usages,
    instance: Instance,
}

impl Drop for Measured {
    fn drop(&mut self) {
        lock(&self.usages.0.trees).remove(&self.instance);
    }
}

impl Usages {
    #[must_use]
    pub(super) fn measure(&self, instance: Instance, leader: Pid, tree: Arc<Tree>) -> Measured {
        lock(&self.0.trees).insert(instance, (leader, tree));
        self.0.newcomers.store(true, Ordering::Relaxed);
        Measured { usages: self.clone(), instance }
    }

    /// Sees that the sample is not much older than a second.
    async fn refresh(&self) {
        let sample = self.0.sample.borrow().clone();
        let age = sample.taken.map(|taken| taken.elapsed());
        let wanted = if self.0.newcomers.load(Ordering::Relaxed) { NEWCOMERS } else { FRESH };
        let rest = wanted.max(sample.took * SHARE);
        if age.is_some_and(|age| age < rest) {
            return;
        }
        let mut next = self.0.sample.subscribe();
        self.take_sample();
        if age.is_none_or(|age| age > STALE.max(rest * 2)) {
            // What is there must do when it takes longer.
            let _ = timeout(LONGEST_WAIT, next.changed()).await;
        }
    }

    /// On one thread that may block, however many ask.
    fn take_sample(&self) {
        if self.0.measuring.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = self.0.clone();
        tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            shared.newcomers.store(false, Ordering::Relaxed);
            let trees: Vec<_> =
                lock(&shared.trees).iter().map(|(id, (pid, tree))| (*id, *pid, tree.clone())).collect();
            let before = shared.sample.borrow().clone();
            let measured = trees.into_iter().filter_map(|(instance, leader, tree)| {
                let mut usage = tree.usage(leader)?;
                // Without a cgroup, what a process has used goes with it where nobody waited for it.
                usage.cpu = before.of.get(&instance).map_or(usage.cpu, |before| usage.cpu.max(before.cpu));
                Some((instance, usage))
            });
            let of = measured.collect();
            let took = begun.elapsed();
            let number = before.number + 1;
            shared.sample.send_replace(Arc::new(Sample { number, taken: Some(Instant::now()), took, of }));
            shared.measuring.store(false, Ordering::Release);
        });
    }

    fn show(&self, roster: &Arc<Roster>) -> Arc<Roster> {
        let sample = self.0.sample.borrow().clone();
        let mut shown = lock(&self.0.shown);
        if let Some(shown) = &*shown
            && shown.generation == roster.generation
            && shown.sample == sample.number
        {
            return shown.roster.clone();
        }
        let members = roster.members.iter().map(|entry| sample.show(entry)).collect();
        let (generation, hall) = (roster.generation, roster.hall.clone());
        let roster = Arc::new(Roster { generation, hall, members });
        *shown = Some(Shown { generation, sample: sample.number, roster: roster.clone() });
        roster
    }
}

impl Sample {
    fn show(&self, entry: &Arc<Entry>) -> Arc<Entry> {
        let used = entry.pid.and(entry.instance).and_then(|instance| self.of.get(&instance));
        let Some(used) = used else { return entry.clone() };
        Arc::new(Entry {
            memory_bytes: Some(used.memory),
            cpu_seconds: Some(in_milliseconds(used.cpu).as_secs_f64()),
            ..Entry::clone(entry)
        })
    }
}

impl Hall {
    /// The members at this moment, with what they used about a second ago at the most.
    pub async fn measured_roster(&self) -> Arc<Roster> {
        self.usages.refresh().await;
        self.last_measured_roster()
    }

    /// The members at this moment, with what they used when somebody last asked.
    pub fn last_measured_roster(&self) -> Arc<Roster> {
        self.usages.show(&self.roster())
    }

    /// An entry with what the member used when somebody last asked.
    pub fn last_measured(&self, entry: &Arc<Entry>) -> Arc<Entry> {
        self.usages.0.sample.borrow().show(entry)
    }
}

/// Finer would be no truer.
fn in_milliseconds(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
