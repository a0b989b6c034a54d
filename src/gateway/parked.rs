//! Calls of stateless clients to members with sessions that wait for what the client has to say: the
//! client asks again and shows the state that it was given.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::random;
use super::talk::{RawRequest, Talk};
use super::visitor::ANSWER;

/// Calls that may wait at a time.
const MOST: usize = 256;
/// Begins a state that was given out here.
const OURS: &str = "guild-hall:";

/// A call that waits.
pub(super) struct Parked {
    pub(super) talk: Talk,
    pub(super) request: RawRequest,
}

#[derive(Clone, Default)]
pub(super) struct ParkedCalls(Arc<Mutex<HashMap<String, (Parked, Instant)>>>);

impl ParkedCalls {
    /// The state that the client has to show; `None` if too many wait.
    pub(super) fn keep(&self, parked: Parked) -> Option<String> {
        let mut calls = self.lock();
        if calls.len() >= MOST {
            return None;
        }
        let state = format!("{OURS}{}", random());
        calls.insert(state.clone(), (parked, Instant::now()));
        Some(state)
    }

    /// It was given out here, by this hall or one before it.
    pub(super) fn is_ours(state: &str) -> bool {
        state.starts_with(OURS)
    }

    pub(super) fn take(&self, state: &str) -> Option<Parked> {
        self.lock().remove(state).map(|(parked, _)| parked)
    }

    /// Gives up what nobody has come back for.
    pub(super) fn sweep(&self) {
        self.lock().retain(|_, (_, since)| since.elapsed() < ANSWER);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (Parked, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
