//! Work that blocks, of which hundreds come at the same moment: done by few threads, one after the other,
//! so that hundreds of members that die together do not wake hundreds of threads.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// See the module's page. Bounded by the members, each of which has one job at a time.
#[derive(Clone)]
pub(super) struct Crew {
    queue: Arc<Mutex<Queue>>,
    most: usize,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    at_work: usize,
}

impl Crew {
    /// Of at most so many threads, which are there as long as there is work.
    pub(super) fn of(most: usize) -> Self {
        Self { queue: Arc::default(), most }
    }

    /// Has it done; `None` if it has panicked, which has then been printed.
    pub(super) async fn work<T: Send + 'static>(
        &self, job: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, outcome) = oneshot::channel();
        {
            let mut queue = self.lock();
            queue.jobs.push_back(Box::new(move || drop(done.send(job()))));
            if queue.at_work < self.most {
                queue.at_work += 1;
                let crew = self.clone();
                tokio::task::spawn_blocking(move || while crew.take_one() {});
            }
        }
        outcome.await.ok()
    }

    fn take_one(&self) -> bool {
        let mut queue = self.lock();
        let Some(job) = queue.jobs.pop_front() else {
            queue.at_work -= 1;
            return false;
        };
        drop(queue);
        let _ = catch_unwind(AssertUnwindSafe(job));
        true
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
