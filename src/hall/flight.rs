//! What is under way between a task and the loop: as long as there is any, the hall must not be handed
//! over, for it would be lost.

use std::sync::Arc;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// All that is under way.
#[derive(Debug, Clone, Default)]
pub(super) struct Flights(Arc<RwLock<()>>);

/// One launch, burial or errand; it travels with the message that tells its outcome, and ends with it.
pub(super) type Flight = OwnedRwLockReadGuard<()>;

/// Nothing is under way, and nothing sets out as long as this is held.
pub(super) type Standstill = OwnedRwLockWriteGuard<()>;

impl Flights {
    /// For the loop, during whose turns there is never a standstill.
    pub(super) fn depart(&self) -> Option<Flight> {
        self.0.clone().try_read_owned().ok()
    }

    /// For a task, which waits as long as there is a standstill.
    pub(super) async fn board(&self) -> Flight {
        self.0.clone().read_owned().await
    }

    /// Does not wait: whoever waited here would hold up whoever sets out meanwhile.
    pub(super) fn standstill(&self) -> Option<Standstill> {
        self.0.clone().try_write_owned().ok()
    }
}
