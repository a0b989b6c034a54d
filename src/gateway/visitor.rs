//! A client with a session, as long as something of it is under way: its stream, its calls, what members
//! have asked it, sessions with members that are its own. Nothing of this outlives its use.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use serde_json::value::RawValue;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::answer::{Answer, error, to_client};
use super::caller::{Caller, Capabilities, Era};
use super::listening::MOST_WATCHED;
use super::own::Owns;
use super::passing::Out;
use super::random;
use super::scope::Scope;
use crate::mcp::terms::code;

/// How long a person may take to answer what a member asks.
pub(super) const ANSWER: Duration = Duration::from_secs(600);
/// A visitor that has nothing under way is forgotten after this time, and its own sessions are ended.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// Visitors with something under way; one more has to wait for one of them to go.
const MOST: usize = 8192;
/// What members may have asked one client at a time.
const MOST_ASKED: usize = 64;
/// Messages that may wait for a client that does not read its stream; further ones are dropped.
const BEHIND: usize = 256;

/// All of them, by the key of their sessions.
#[derive(Default)]
pub(super) struct Visitors(Mutex<HashMap<String, Arc<Visitor>>>);

#[derive(Default)]
pub(super) struct Visitor {
    state: Mutex<State>,
    pub(super) owns: Owns,
}

struct State {
    seen: Instant,
    stream: Option<(u64, mpsc::Sender<Bytes>)>,
    /// By the id that the client has given.
    calls: HashMap<String, UnderWay>,
    asked: HashMap<String, oneshot::Sender<Answer>>,
    level: Option<String>,
    /// By the URI that the client knows.
    watched: HashMap<String, Watch>,
    /// It has not listened yet since it said `initialize`, and so has missed nothing.
    is_new: bool,
}

/// What clients would have to ask for again, as text for the next image of the hall.
#[derive(Clone, Default, serde::Serialize, serde::Deserialize)]
pub struct SavedVisitors(Vec<SavedVisitor>);

#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct SavedVisitor {
    key: String,
    level: Option<String>,
    watched: Vec<SavedWatch>,
}

#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct SavedWatch {
    uri: String,
    scope: Scope,
    capabilities: Box<RawValue>,
    client: String,
}

/// A resource that the client watches, and all that is needed to watch it again.
pub(super) struct Watch {
    scope: Scope,
    capabilities: Arc<Capabilities>,
    client: String,
    /// Hears a member without sessions; one with them tells the client in its own session.
    task: Option<AbortHandle>,
}

impl Watch {
    pub(super) fn new(scope: &Scope, caller: &Caller, task: Option<AbortHandle>) -> Self {
        let (capabilities, client) = (caller.capabilities.clone(), caller.name.clone());
        Self { scope: scope.clone(), capabilities, client, task }
    }

    fn save(&self, uri: &str) -> SavedWatch {
        SavedWatch {
            uri: uri.to_owned(),
            scope: self.scope.clone(),
            capabilities: self.capabilities.text.clone(),
            client: self.client.clone(),
        }
    }

    fn resume(saved: SavedWatch) -> (String, Self) {
        let SavedWatch { uri, scope, capabilities, client } = saved;
        (uri, Self { scope, capabilities: Capabilities::of(&capabilities).into(), client, task: None })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

struct UnderWay {
    number: u64,
    /// Of the call itself, which ends the stream when it ends.
    out: mpsc::WeakSender<Out>,
    cancel: Arc<Notify>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            seen: Instant::now(),
            stream: None,
            calls: HashMap::new(),
            asked: HashMap::new(),
            level: None,
            watched: HashMap::new(),
            is_new: false,
        }
    }
}

impl State {
    /// The way to the client by the call that it made last, of those that are not over.
    fn latest_call(&self) -> Option<mpsc::Sender<Out>> {
        let open = self.calls.values().filter_map(|call| Some((call.number, call.out.upgrade()?)));
        open.max_by_key(|(number, _)| *number).map(|(_, out)| out)
    }

    fn keeps_something(&self) -> bool {
        self.level.is_some() || !self.watched.is_empty()
    }
}

/// A call of a visitor, for as long as this is held.
pub(super) struct Registered {
    visitor: Arc<Visitor>,
    id: String,
    number: u64,
}

static NUMBER: AtomicU64 = AtomicU64::new(1);

impl Visitors {
    pub(super) fn save(&self) -> SavedVisitors {
        let visitors = self.lock();
        let saved = visitors.iter().filter_map(|(key, visitor)| {
            let state = visitor.state();
            state.keeps_something().then(|| SavedVisitor {
                key: key.clone(),
                level: state.level.clone(),
                watched: state.watched.iter().map(|(uri, watch)| watch.save(uri)).collect(),
            })
        });
        SavedVisitors(saved.collect())
    }

    /// The visitors of the image before. What they watch is watched again as soon as its member is seen.
    pub(super) fn resume(saved: SavedVisitors) -> Self {
        let visitors = saved.0.into_iter().map(|SavedVisitor { key, level, watched }| {
            let watched = watched.into_iter().map(Watch::resume).collect();
            let state = State { level, watched, ..State::default() };
            (key, Arc::new(Visitor { state: Mutex::new(state), owns: Owns::default() }))
        });
        Self(Mutex::new(visitors.collect()))
    }

    /// `None` if there are too many.
    pub(super) fn find(&self, key: &str) -> Option<Arc<Visitor>> {
        let mut visitors = self.lock();
        if let Some(visitor) = visitors.get(key) {
            visitor.state().seen = Instant::now();
            return Some(visitor.clone());
        }
        if visitors.len() >= MOST {
            visitors.retain(|_, visitor| visitor.is_busy());
        }
        if visitors.len() >= MOST {
            return None;
        }
        let visitor = Arc::<Visitor>::default();
        visitors.insert(key.into(), visitor.clone());
        Some(visitor)
    }

    pub(super) fn all(&self) -> Vec<Arc<Visitor>> {
        self.lock().values().cloned().collect()
    }

    pub(super) fn forget(&self, key: &str) {
        self.lock().remove(key);
    }

    /// Forgets those that have nothing under way, and nothing that they would miss.
    pub(super) fn sweep(&self) {
        self.lock().retain(|_, visitor| {
            let keeps = !visitor.owns.is_empty() || visitor.state().keeps_something();
            let seen = visitor.state().seen;
            visitor.is_busy() || (keeps && seen.elapsed() < FORGOTTEN)
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Visitor>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Visitor {
    fn is_busy(self: &Arc<Self>) -> bool {
        let state = self.state();
        // Somebody who handles a request of it holds it too.
        Arc::strong_count(self) > 1 || !state.calls.is_empty() || state.stream.is_some()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn register(
        self: &Arc<Self>, id: &RawValue, out: &mpsc::Sender<Out>, cancel: Arc<Notify>,
    ) -> Registered {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        self.state().calls.insert(id.get().into(), UnderWay { number, out: out.downgrade(), cancel });
        Registered { visitor: self.clone(), id: id.get().into(), number }
    }

    /// The client does not want the answer any more.
    pub(super) fn cancel(&self, id: &RawValue) {
        if let Some(call) = self.state().calls.get(id.get()) {
            call.cancel.notify_one();
        }
    }

    /// It has just said `initialize`.
    pub(super) fn begin(&self) {
        self.state().is_new = true;
    }

    /// From now on messages that belong to no call go there. True if it may have missed some before.
    pub(super) fn open_stream(&self) -> (u64, mpsc::Receiver<Bytes>, bool) {
        let (sender, messages) = mpsc::channel(BEHIND);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // A client that opens a second one has lost the first.
        let mut state = self.state();
        state.stream = Some((number, sender));
        (number, messages, !std::mem::take(&mut state.is_new))
    }

    pub(super) fn close_stream(&self, number: u64) {
        let mut state = self.state();
        if state.stream.as_ref().is_some_and(|(open, _)| *open == number) {
            state.stream = None;
        }
    }

    /// Which log messages it wants, if it has said so.
    pub(super) fn level(&self) -> Option<String> {
        self.state().level.clone()
    }

    pub(super) fn set_level(&self, level: &str) {
        self.state().level = Some(level.into());
    }

    /// False if there are too many.
    pub(super) fn watch(&self, uri: String, watch: Watch) -> bool {
        let watched = &mut self.state().watched;
        if watched.len() >= MOST_WATCHED && !watched.contains_key(&uri) {
            return false;
        }
        watched.insert(uri, watch);
        true
    }

    pub(super) fn unwatch(&self, uri: &str) {
        self.state().watched.remove(uri);
    }

    /// What it watches, where, and as whom.
    pub(super) fn watched(self: &Arc<Self>) -> Vec<(String, Scope, Caller)> {
        let state = self.state();
        let again = state.watched.iter().map(|(uri, watch)| {
            let era = Era::Session(self.clone());
            let caller = Caller { era, capabilities: watch.capabilities.clone(), name: watch.client.clone() };
            (uri.clone(), watch.scope.clone(), caller)
        });
        again.collect()
    }

    /// Tells the client something that belongs to no call, if it listens.
    pub(super) fn tell(&self, message: Bytes) {
        let state = self.state();
        if let Some((_, stream)) = &state.stream {
            let _ = stream.try_send(message);
        } else if let Some(out) = state.latest_call() {
            let _ = out.try_send(Out::Event(message));
        }
    }

    /// Asks the client, on the stream of a call of its own or on that which it keeps open.
    pub(super) async fn ask(
        &self, via: Option<&mpsc::Sender<Out>>, method: &str, params: Option<&RawValue>,
    ) -> Answer {
        let id = format!("gh-{}", random());
        let message = to_client(Some(&id), method, params);
        let (reply, answer) = oneshot::channel();
        let route = {
            let mut state = self.state();
            if state.asked.len() >= MOST_ASKED {
                return Err(error(code::INTERNAL, "the client has too much to answer already"));
            }
            state.asked.insert(id.clone(), reply);
            via.cloned()
                .or_else(|| state.latest_call())
                .map_or_else(|| state.stream.clone().map(|(_, stream)| Err(stream)), |out| Some(Ok(out)))
        };
        let _asked = Asked { visitor: self, id };
        let sent = match route {
            Some(Ok(out)) => out.send(Out::Event(message)).await.is_ok(),
            Some(Err(stream)) => stream.send(message).await.is_ok(),
            None => false,
        };
        if !sent {
            return Err(error(code::INTERNAL, "the client is not there to answer"));
        }
        match timeout(ANSWER, answer).await {
            Ok(Ok(answer)) => answer,
            _ => Err(error(code::INTERNAL, "the client did not answer")),
        }
    }

    /// The client has answered.
    pub(super) fn answered(&self, id: &str, outcome: Answer) {
        if let Some(asked) = self.state().asked.remove(id) {
            let _ = asked.send(outcome);
        }
    }
}

/// Something that the client was asked, until it is answered or nobody waits any more.
struct Asked<'a> {
    visitor: &'a Visitor,
    id: String,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.visitor.state().asked.remove(&self.id);
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut state = self.visitor.state();
        if state.calls.get(&self.id).is_some_and(|call| call.number == self.number) {
            state.calls.remove(&self.id);
        }
        state.seen = Instant::now();
    }
}
