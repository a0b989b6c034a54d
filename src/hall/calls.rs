//! Tool calls: straight to the member's port, past the loop.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::{Hall, Message};
use crate::lifecycle::Report;
use crate::mcp::{Link, LinkError, SavedSession};
use crate::model::{Entry, Instance, Roster, Status};

/// A call to a member that is about to be there waits so long for it.
const LONGEST_REST: Duration = Duration::from_secs(10);

/// The links of all launches that have shaken hands.
#[derive(Debug, Clone, Default)]
pub(super) struct Links(Arc<RwLock<HashMap<Instance, Arc<Link>>>>);

impl Links {
    pub(super) fn get(&self, instance: Instance) -> Option<Arc<Link>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&instance).cloned()
    }

    /// The sessions of all of them, for the next image of the hall.
    pub(super) fn save(&self) -> BTreeMap<Instance, SavedSession> {
        let links = self.0.read().unwrap_or_else(PoisonError::into_inner);
        links.iter().map(|(instance, link)| (*instance, link.save())).collect()
    }

    pub(super) fn insert(&self, instance: Instance, link: Arc<Link>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(instance, link);
    }

    pub(super) fn remove(&self, instance: Instance) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&instance);
    }
}

/// The member's own result, untouched, `isError` included.
pub type CallOutcome = Result<Box<RawValue>, CallError>;

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("no member is called {0:?}; see `guild-hall roster`")]
    NoSuchMember(String),
    #[error("{member} has no tool {tool:?}; it has: {has}")]
    NoSuchTool { member: String, tool: String, has: String },
    #[error("{member} is {phase}, not connected{reason}")]
    NotConnected { member: String, phase: &'static str, reason: String },
    #[error("{member} {error}")]
    Member { member: String, error: LinkError },
}

#[derive(Serialize)]
struct Params<'a> {
    name: &'a str,
    arguments: &'a RawValue,
}

impl Hall {
    /// Calls a tool once. Whatever goes wrong, the call is not sent a second time.
    /// `patience` overrides the member's own call timeout.
    pub async fn call(
        &self, member: &str, tool: &str, arguments: &RawValue, patience: Option<Duration>,
    ) -> CallOutcome {
        let entry = self.at_rest(member).await.ok_or_else(|| CallError::NoSuchMember(member.into()))?;
        let not_connected = || {
            let reason = entry.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
            CallError::NotConnected { member: member.into(), phase: entry.phase.as_str(), reason }
        };
        if entry.status != Status::Connected {
            return Err(not_connected());
        }
        if !entry.tools.iter().any(|known| known.name == tool) {
            let has =
                entry.tools.iter().take(50).map(|tool| tool.name.as_str()).collect::<Vec<_>>().join(", ");
            return Err(CallError::NoSuchTool { member: member.into(), tool: tool.into(), has });
        }
        let (instance, link) = entry
            .instance
            .and_then(|instance| Some((instance, self.links.get(instance)?)))
            .ok_or_else(not_connected)?;
        let patience = patience.unwrap_or(entry.call_timeout);
        let answer = link.request("tools/call", Params { name: tool, arguments }, patience).await;
        answer.map_err(|error| {
            if is_evidence(&error) {
                self.suspect(entry.name.clone(), instance);
            }
            CallError::Member { member: member.into(), error }
        })
    }

    /// The member's entry; one that is being started or taken over is waited for.
    async fn at_rest(&self, member: &str) -> Option<Arc<Entry>> {
        let is_at_rest = |roster: &Arc<Roster>| roster.entry(member).is_none_or(|entry| entry.settled);
        let mut rosters = self.watch();
        let _ = timeout(LONGEST_REST, rosters.wait_for(is_at_rest)).await;
        self.roster().entry(member).cloned()
    }

    /// Has the member probed. Losing this to a full inbox loses nothing: the next call tells again.
    fn suspect(&self, key: crate::model::MemberKey, instance: Instance) {
        let _ = self.inbox.try_send(Message::Told { key, instance, report: Report::Suspected, flight: None });
    }
}

/// Something that a healthy member does not do. A slow call is a reason to look, no more.
fn is_evidence(error: &LinkError) -> bool {
    match error {
        error if error.is_own_shortage() => false,
        LinkError::SessionLost
        | LinkError::Connect(_)
        | LinkError::Broken(_)
        | LinkError::TimedOut(_)
        | LinkError::Http { .. }
        | LinkError::NotMcp(_) => true,
        LinkError::TooLarge | LinkError::Rpc(_) => false,
    }
}
