//! A plugin that hangs is as good as dead: it is ended, so that it can be started anew.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::keeping::Order;
use super::link::{Answer, Link};

/// A worker that does not tell within this time how it is, is unwell. It gives its event loop a second.
const PING: Duration = Duration::from_secs(3);
/// A plugin that can be called by nobody for so long, after a call was given up, is not waited for any more.
const HANG: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Kept after a call that was given up, until the plugin is well or ended.
#[derive(Debug)]
pub(super) struct Vigil {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Over,
    Kept,
    /// Another call was given up since the worker was last asked.
    KeptAnew,
}

/// How a worker is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Health {
    Well,
    /// It cannot be called; why.
    Unwell(String),
    /// There is nobody who could say.
    Gone,
}

pub(super) async fn health(link: &Link) -> Health {
    match timeout(PING, link.ask("ping", Value::Null)).await {
        Ok(Some(Answer { health: None, .. })) => Health::Well,
        Ok(Some(Answer { health: Some(why), .. })) => Health::Unwell(why),
        Ok(None) => Health::Gone,
        Err(_) => Health::Unwell(format!("the plugin's process does not answer within {} s", PING.as_secs())),
    }
}

impl Vigil {
    pub(super) fn new() -> Self {
        Self { state: Arc::default() }
    }

    /// Goes on where one is kept already; does nothing when the porter is about to end.
    pub(super) fn begin(&self, link: &Link, orders: &Arc<watch::Sender<Order>>) {
        let Ok(runtime) = Handle::try_current() else { return };
        let before = change(&self.state, |state| match state {
            State::Over => State::Kept,
            State::Kept | State::KeptAnew => State::KeptAnew,
        });
        if before == State::Over {
            // Whoever drops the sender ends the process by that.
            runtime.spawn(keep(self.state.clone(), link.clone(), Arc::downgrade(orders)));
        }
    }
}

async fn keep(state: Arc<Mutex<State>>, link: Link, orders: Weak<watch::Sender<Order>>) {
    let mut unwell = None;
    loop {
        change(&state, |_| State::Kept);
        let health = health(&link).await;
        let Some(orders) = orders.upgrade() else { return };
        if let Health::Unwell(why) = health {
            let since = *unwell.get_or_insert_with(Instant::now);
            if since.elapsed() > HANG {
                eprintln!("guild-hall porter: the plugin hangs and is ended: {why}");
                orders.send_replace(Order::End);
                return;
            }
            drop(orders);
            sleep(LOOK_AGAIN).await;
            continue;
        }
        unwell = None;
        let before = change(&state, |state| if state == State::Kept { State::Over } else { state });
        if before == State::Kept {
            return;
        }
    }
}

/// Returns what it was before.
fn change(state: &Mutex<State>, to: impl FnOnce(State) -> State) -> State {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let before = *state;
    *state = to(before);
    before
}
