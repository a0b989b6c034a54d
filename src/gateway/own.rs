//! Sessions with a member that belong to one client alone: so a member that asks something outside of any
//! call asks the right one, and what it keeps for a session (roots, log level, subscriptions) is that client's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::mcp::{Ask, Exchange, Link, LinkError, Params, introduction};
use crate::model::Instance;

/// A session has to be open so soon.
const PATIENCE: Duration = Duration::from_secs(5);
const NOTIFICATION: Duration = Duration::from_secs(1);
/// A stream that the member has ended is asked for again after this time.
const AGAIN: Duration = Duration::from_secs(1);

/// Those of one client.
#[derive(Default)]
pub(super) struct Owns(Mutex<HashMap<Instance, Arc<Own>>>);

/// One of them; it is ended when nobody uses it any more.
pub(super) struct Own {
    pub(super) link: Arc<Link>,
    ears: Mutex<Option<AbortHandle>>,
}

impl Own {
    /// Opens a session for a client with these capabilities.
    pub(super) async fn open(
        base: &Link, capabilities: &RawValue, level: Option<&str>,
    ) -> Result<Self, LinkError> {
        let link = Arc::new(base.without_session());
        link.initialize(introduction(capabilities), PATIENCE).await?;
        let own = Self { link, ears: Mutex::default() };
        own.link.notify("notifications/initialized", Params::default(), NOTIFICATION).await;
        if let Some(level) = level.filter(|_| own.link.offer().has("logging")) {
            own.set_level(level).await;
        }
        Ok(own)
    }

    pub(super) async fn set_level(&self, level: &str) {
        let params = Params::default().with("level", level);
        // A member that does not take it says more or less than was asked for.
        let _ = self.link.request(Ask::new("logging/setLevel", params), PATIENCE).await;
    }

    /// Has everything heard that the member says outside of calls. `hear` gets the stream, and returns when
    /// that is at its end.
    pub(super) async fn listen<F, H>(&self, hear: H)
    where
        F: Future<Output = ()> + Send + 'static,
        H: Fn(Exchange) -> F + Send + 'static,
    {
        let link = self.link.clone();
        // Before the first call: what it makes the member ask must be heard.
        let Ok(Ok(first)) = timeout(PATIENCE, link.listen()).await else { return };
        let listening = tokio::spawn(async move {
            let mut next = Ok(first);
            while let Ok(exchange) = next {
                hear(exchange).await;
                sleep(AGAIN).await;
                next = link.listen().await;
            }
        });
        *self.ears.lock().unwrap_or_else(PoisonError::into_inner) = Some(listening.abort_handle());
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(ears) = self.ears.lock().unwrap_or_else(PoisonError::into_inner).take() {
            ears.abort();
        }
        let link = self.link.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { link.end().await });
        }
    }
}

impl Owns {
    pub(super) fn get(&self, instance: Instance) -> Option<Arc<Own>> {
        self.lock().get(&instance).cloned()
    }

    /// The one that was there first, if two were opened at the same time.
    pub(super) fn keep(&self, instance: Instance, own: Arc<Own>) -> Arc<Own> {
        self.lock().entry(instance).or_insert(own).clone()
    }

    /// The member does not know it any more.
    pub(super) fn forget(&self, instance: Instance) {
        self.lock().remove(&instance);
    }

    /// Those of launches that are over go.
    pub(super) fn retain(&self, lives: impl Fn(Instance) -> bool) {
        self.lock().retain(|instance, _| lives(*instance));
    }

    pub(super) fn all(&self) -> Vec<Arc<Own>> {
        self.lock().values().cloned().collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Instance, Arc<Own>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
