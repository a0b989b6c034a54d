//! A plugin that hangs is as good as dead: it is ended, so that it can be started anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::keeping::Order;
use super::link::{Answer, Link};

/// A worker that does not tell within this time how it is, is unwell. It gives its event loop a second.
const PING: Duration = Duration::from_secs(3);
/// A plugin that nobody can call for so long after a call was given up is not waited for any more.
const HANG: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Kept after a call that was given up, until the plugin is well or ended.
#[derive(Debug)]
pub(super) struct Vigil {
    is_kept: Arc<AtomicBool>,
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
        Self { is_kept: Arc::default() }
    }

    /// Does nothing while one is kept, or when the porter is about to end.
    pub(super) fn begin(&self, link: &Link, orders: &Arc<watch::Sender<Order>>) {
        let Ok(runtime) = Handle::try_current() else { return };
        if self.is_kept.swap(true, Ordering::Relaxed) {
            return;
        }
        // Whoever drops the sender ends the process by that.
        let (link, orders) = (link.clone(), Arc::downgrade(orders));
        let is_kept = self.is_kept.clone();
        runtime.spawn(async move {
            let begun = Instant::now();
            while let Health::Unwell(why) = health(&link).await {
                let Some(orders) = orders.upgrade() else { return };
                if begun.elapsed() > HANG {
                    eprintln!("guild-hall porter: the plugin hangs and is ended: {why}");
                    orders.send_replace(Order::End);
                    return;
                }
                drop(orders);
                sleep(LOOK_AGAIN).await;
            }
            is_kept.store(false, Ordering::Relaxed);
        });
    }
}
