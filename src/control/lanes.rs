//! Threads that answer clients, each with a runtime of its own: a connection stays on one of them, and so do
//! its connections to members. In the shared runtime of the hall, every message of a call would wake
//! another thread, which costs more than the rest of the call.

use std::future::pending;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::runtime::{Builder, Handle};

/// See the module's page.
#[derive(Debug)]
pub struct Lanes {
    lanes: Vec<Handle>,
    next: AtomicUsize,
}

impl Lanes {
    /// As many as there are cores. They end with the program.
    pub fn open() -> io::Result<Self> {
        let cores = thread::available_parallelism().map_or(2, usize::from);
        let lane = |number| {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let handle = runtime.handle().clone();
            let name = format!("lane {number}");
            thread::Builder::new().name(name).spawn(move || runtime.block_on(pending::<()>()))?;
            Ok(handle)
        };
        let lanes: io::Result<Vec<Handle>> = (0..cores).map(lane).collect();
        Ok(Self { lanes: lanes?, next: AtomicUsize::new(0) })
    }

    /// The one whose turn it is.
    pub(super) fn next(&self) -> &Handle {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.lanes.len();
        &self.lanes[turn]
    }
}
