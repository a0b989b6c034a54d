//! Tool calls: straight to the member's port, past the loop.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use super::ledger::{About, Ledger};
use super::{Hall, Message};
use crate::lifecycle::Report;
use crate::mcp::terms::code;
use crate::mcp::{Ask, Link, LinkError, ParamHeaders, Params, RpcError, SavedSession};
use crate::model::{Entry, Instance, MemberKey, PhaseName, Roster, Status, Timestamp};

/// A call to a member that is about to be there waits so long for it.
pub const LONGEST_REST: Duration = Duration::from_secs(10);
/// A member whose launch is over, although the roster does not say so yet, is looked at again after this time.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Calls that one member has to answer at a time; further ones wait for their turn...
const IN_FLIGHT: usize = 128;
/// ...and so many may wait.
const WAITING: usize = 1024;

/// The links of all launches that have shaken hands.
#[derive(Debug, Clone, Default)]
pub(super) struct Links(Arc<RwLock<HashMap<Instance, Arc<Line>>>>);

/// A link and the places on it.
#[derive(Debug)]
struct Line {
    link: Arc<Link>,
    places: Arc<Semaphore>,
    waiting: Semaphore,
}

impl Links {
    pub(super) fn get(&self, instance: Instance) -> Option<Arc<Link>> {
        self.line(instance).map(|line| line.link.clone())
    }

    fn line(&self, instance: Instance) -> Option<Arc<Line>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&instance).cloned()
    }

    /// The sessions of all of them, for the next image of the hall.
    pub(super) fn save(&self) -> BTreeMap<Instance, SavedSession> {
        let lines = self.0.read().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(|(instance, line)| (*instance, line.link.save())).collect()
    }

    pub(super) fn insert(&self, instance: Instance, link: Arc<Link>) {
        let mut lines = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // A new session with the same launch: the places are what they were.
        let places = lines.get(&instance).map(|line| line.places.clone());
        let places = places.unwrap_or_else(|| Semaphore::new(IN_FLIGHT).into());
        lines.insert(instance, Arc::new(Line { link, places, waiting: Semaphore::new(WAITING) }));
    }

    pub(super) fn remove(&self, instance: Instance) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&instance);
    }
}

/// A member that can be asked now; it has a place for as long as this is held.
#[derive(Debug)]
pub struct Reached {
    pub entry: Arc<Entry>,
    pub instance: Instance,
    pub link: Arc<Link>,
    _place: OwnedSemaphorePermit,
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
    #[error("{member} has {IN_FLIGHT} calls to answer and {WAITING} that wait; try again later")]
    Busy { member: String },
    #[error("{member} did not come to this call for {} s: it has others to answer", LONGEST_REST.as_secs())]
    Late { member: String },
    #[error("{member} {error}")]
    Member { member: String, error: LinkError },
}

impl Hall {
    /// Calls a tool once. Whatever goes wrong, the call is not sent a second time.
    /// `patience` overrides the member's own call timeout.
    pub async fn call(
        &self, member: &str, tool: &str, arguments: &RawValue, patience: Option<Duration>,
    ) -> CallOutcome {
        let reached = self.reach(member).await?;
        let entry = &reached.entry;
        let Some(known) = entry.tools.iter().find(|known| known.name == tool) else {
            let has =
                entry.tools.iter().take(50).map(|tool| tool.name.as_str()).collect::<Vec<_>>().join(", ");
            return Err(CallError::NoSuchTool { member: member.into(), tool: tool.into(), has });
        };
        let mut account = self.ledger.begin(About {
            who: "api".into(),
            member: member.into(),
            method: "tools/call".into(),
            name: tool.into(),
        });
        let patience = patience.unwrap_or(entry.call_timeout);
        let params = Params::default().with("name", tool).with("arguments", arguments);
        let mut ask = Ask { name: Some(tool), ..Ask::new("tools/call", params) };
        if reached.link.is_stateless() {
            ask.headers = ParamHeaders::of(&known.input_schema).unwrap_or_default().write(&ask.params);
        }
        let answer = reached.link.request(ask, patience).await;
        account.bytes = (arguments.get().len(), answer.as_ref().map_or(0, |result| result.get().len()));
        account.settle(answer.as_ref().err().map_or("ok", LinkError::word));
        answer.map_err(|error| {
            self.note(&reached, &error);
            CallError::Member { member: member.into(), error }
        })
    }

    /// Waits for a member that is about to be there, and for a place among the calls to it.
    pub async fn reach(&self, member: &str) -> Result<Reached, CallError> {
        let deadline = Instant::now() + LONGEST_REST;
        let mut rosters = self.watch();
        let (entry, instance, line) = loop {
            let entry = self.at_rest(member, deadline).await;
            let entry = entry.ok_or_else(|| CallError::NoSuchMember(member.into()))?;
            let line = entry.instance.and_then(|instance| Some((instance, self.links.line(instance)?)));
            match line {
                Some((instance, line)) if entry.status == Status::Connected => break (entry, instance, line),
                // It has died, and the roster is about to say so.
                None if entry.status == Status::Connected && Instant::now() < deadline => {
                    let _ = timeout(LOOK_AGAIN, rosters.changed()).await;
                }
                _ => {
                    let reason = entry.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
                    let phase = entry.phase.as_str();
                    return Err(CallError::NotConnected { member: member.into(), phase, reason });
                }
            }
        };
        let place = match line.places.clone().try_acquire_owned() {
            Ok(place) => place,
            Err(_) => {
                let busy = || CallError::Busy { member: member.into() };
                let _waiting = line.waiting.try_acquire().map_err(|_| busy())?;
                let turn = timeout(LONGEST_REST, line.places.clone().acquire_owned()).await;
                let turn = turn.map_err(|_| CallError::Late { member: member.into() })?;
                turn.map_err(|_| busy())?
            }
        };
        Ok(Reached { link: line.link.clone(), entry, instance, _place: place })
    }

    /// The member's entry; one that is about to be there is waited for.
    pub(super) async fn at_rest(&self, member: &str, deadline: Instant) -> Option<Arc<Entry>> {
        let roster = self.roster();
        let entry = roster.entry(member)?;
        if !is_awaited(entry) {
            return Some(entry.clone());
        }
        let is_at_rest = |roster: &Arc<Roster>| roster.entry(member).is_none_or(|entry| !is_awaited(entry));
        let mut rosters = self.watch();
        let _ = timeout_at(deadline, rosters.wait_for(is_at_rest)).await;
        self.roster().entry(member).cloned()
    }

    /// Waits for all of these members that are about to be there: only then is it certain what there is not.
    pub async fn until_at_rest(&self, whose: impl Fn(&MemberKey) -> bool) {
        let is_at_rest = |roster: &Arc<Roster>| {
            !roster.members.iter().any(|entry| whose(&entry.name) && is_awaited(entry))
        };
        let _ = timeout(LONGEST_REST, self.watch().wait_for(is_at_rest)).await;
    }

    /// What a call has shown of a member: it is probed where that is not what a healthy one does. Losing
    /// this to a full inbox loses nothing: the next call tells again.
    pub fn note(&self, reached: &Reached, error: &LinkError) {
        match error {
            LinkError::Rpc(error) => self.note_answer(reached, error),
            error if is_evidence(error) => self.look_at(reached.entry.name.clone(), reached.instance),
            _ => {}
        }
    }

    /// The same of an error that it has answered with: a porter may say that its plugin cannot be reached.
    pub fn note_answer(&self, reached: &Reached, error: &RpcError) {
        if reached.entry.porter.is_some() && error.code == code::UNWELL {
            self.look_at(reached.entry.name.clone(), reached.instance);
        }
    }

    /// Has the member's tools listed anew.
    pub fn look_at(&self, key: MemberKey, instance: Instance) {
        let _ = self.inbox.try_send(Message::Told { key, instance, report: Report::Suspected, flight: None });
    }

    /// What all calls came to.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}

/// It is being started or taken over, or will be before a call would give up; or it may come back, or turn
/// out to be dead.
fn is_awaited(entry: &Entry) -> bool {
    let soon = || {
        let at = entry.retry_at.map_or(i64::MAX, |at| at.0);
        let rest = i64::try_from(LONGEST_REST.as_millis()).unwrap_or(i64::MAX);
        at.saturating_sub(Timestamp::now().0) < rest
    };
    let may_come_back = entry.phase == PhaseName::Unwell && !entry.ailing;
    !entry.settled || may_come_back || (entry.phase == PhaseName::Waiting && soon())
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
