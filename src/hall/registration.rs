//! Plugins that register themselves: what is asked over the API becomes a member. First on paper, then in
//! the core; whoever asked may hang up meanwhile.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::{Instant, timeout_at};

use super::greeter::ill;
use super::plugin_id::find;
use super::registered::{Change, RegisterError, Registered};
use super::{Hall, Message, ReloadError};
use crate::lifecycle::{Report, Wish};
use crate::mcp::ping;
use crate::model::{Changes, Found, MemberKey, PhaseName};

/// Asking a plugin how it is takes no longer than this.
const LONGEST_LOOK: Duration = Duration::from_secs(5);

/// A plugin that has been registered, or was.
#[derive(Debug, Clone)]
pub struct Enrolled {
    /// As it is written.
    pub id: String,
    pub member: MemberKey,
}

/// Why a plugin was not unregistered.
#[derive(Debug, thiserror::Error)]
pub enum UnregisterError {
    #[error("no plugin is registered with the id {0:?}; see GET /api/plugins")]
    Unknown(String),
    #[error("{id:?} was not registered: it is the member {member}; remove its directory, {dir}")]
    InDirectory { id: String, member: MemberKey, dir: String },
    #[error(transparent)]
    Failed(#[from] RegisterError),
}

impl Hall {
    /// Registers a plugin, or registers it anew with what it says now.
    pub async fn register(&self, descriptor: Vec<u8>) -> Result<Enrolled, RegisterError> {
        let hall = self.clone();
        let registering = tokio::spawn(async move {
            let roster = hall.roster();
            let change = hall.on_paper(move |registered| registered.register(&descriptor, &roster)).await?;
            let (id, key) = match change {
                Change::Something { id, key } => (id, key),
                Change::Nothing { id, key } => {
                    hall.encourage(&key).await;
                    (id, key)
                }
            };
            Ok(Enrolled { id, member: key })
        });
        registering.await.map_err(fault)?
    }

    /// Takes a plugin off the paper and out of the roster.
    pub async fn unregister(&self, id: &str) -> Result<Enrolled, UnregisterError> {
        let (hall, wanted) = (self.clone(), id.to_owned());
        let unregistering =
            tokio::spawn(
                async move { hall.on_paper(move |registered| registered.unregister(&wanted)).await },
            );
        match unregistering.await.map_err(fault)?? {
            Change::Something { id, key } => Ok(Enrolled { id, member: key }),
            Change::Nothing { .. } => Err(self.not_registered(id)),
        }
    }

    /// Asks a plugin how it is, now; the error is what is wrong with it. `None`: there is none of this id.
    pub async fn plugin_health(&self, id: &str) -> Option<Result<(), String>> {
        let deadline = Instant::now() + LONGEST_LOOK;
        let key = find(&self.roster(), id)?.name.clone();
        let entry = self.at_rest(key.as_str(), deadline).await?;
        let link = entry.instance.and_then(|instance| Some((instance, self.links.get(instance)?)));
        let is_there = matches!(entry.phase, PhaseName::Connected | PhaseName::Unwell);
        let Some((instance, link)) = link.filter(|_| is_there) else {
            return Some(Err(entry.error.clone().unwrap_or_else(|| format!("it is {}", entry.phase))));
        };
        let answer = timeout_at(deadline, ping(&link, LONGEST_LOOK)).await;
        // What is seen here is no less true for the roster.
        Some(match answer {
            Ok(Ok(None)) => {
                if entry.phase == PhaseName::Unwell {
                    self.look_at(key, instance);
                }
                Ok(())
            }
            Ok(Ok(Some(failure))) => {
                let what = failure.what.clone();
                let report = match &entry.porter {
                    Some(porter) => ill(porter, failure),
                    None => Report::Ailing(failure),
                };
                self.send(Message::Told { key, instance, report, flight: None }).await;
                self.answers().await;
                Err(what)
            }
            Ok(Err(error)) => {
                self.look_at(key, instance);
                Err(format!("it does not answer: {error}"))
            }
            Err(_) => {
                self.look_at(key, instance);
                Err(format!("it did not answer within {} s", LONGEST_LOOK.as_secs()))
            }
        })
    }

    /// Has the core compare its members with what was found in the members directory, and what is registered.
    pub(super) async fn apply(&self, mut found: Found) -> Result<Changes, ReloadError> {
        // What is registered meanwhile is applied after this.
        let mut registered = self.registered.lock().await;
        registered.join(&mut found);
        self.compare(found).await
    }

    async fn compare(&self, found: Found) -> Result<Changes, ReloadError> {
        let (reply, answer) = oneshot::channel();
        self.send(Message::Reload { found, reply }).await;
        Ok(answer.await.map_err(|_| ReloadError::Closing)??)
    }

    /// Changes what is on paper, and tells the core.
    async fn on_paper(
        &self, change: impl FnOnce(&mut Registered) -> Result<Change, RegisterError> + Send + 'static,
    ) -> Result<Change, RegisterError> {
        // The hall is not handed over between the two.
        let _flight = self.flights.board().await;
        let mut registered = self.registered.clone().lock_owned().await;
        let writing = spawn_blocking(move || {
            let changed = change(&mut registered);
            (registered, changed)
        });
        let (registered, changed) = writing.await.map_err(fault)?;
        let changed = changed?;
        if let Change::Something { key, .. } = &changed {
            // A hall that is shutting down takes nothing up: the next one will.
            let _ = self.compare(registered.only(key)).await;
        }
        Ok(changed)
    }

    /// A plugin that registers itself once more says that it is there: it is looked at, or tried again.
    async fn encourage(&self, key: &MemberKey) {
        let roster = self.roster();
        let Some(entry) = roster.entry(key.as_str()) else { return };
        match (entry.phase, entry.instance) {
            (PhaseName::Failed | PhaseName::Waiting, _) => drop(self.wish(key.as_str(), Wish::Start).await),
            (PhaseName::Unwell, Some(instance)) => self.look_at(key.clone(), instance),
            _ => {}
        }
    }

    fn not_registered(&self, id: &str) -> UnregisterError {
        match find(&self.roster(), id) {
            Some(entry) => UnregisterError::InDirectory {
                id: id.into(),
                member: entry.name.clone(),
                dir: entry.dir.display().to_string(),
            },
            None => UnregisterError::Unknown(id.into()),
        }
    }
}

fn fault(panic: JoinError) -> RegisterError {
    RegisterError::Fault(panic.to_string())
}
