//! A remote server that speaks streamable HTTP.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::Uri;
use hyper::body::Bytes;
use hyper::header::HeaderMap;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::Fault;
use crate::mcp::terms::{PROGRESS_TOKEN, STATELESS, code};
use crate::mcp::{
    Ask, Dial, Exchange, Heard, Link, LinkError, Outcome, Params, Response as Reply, RpcError, greet,
    introduction,
};
use crate::porter::listeners::{Listeners, WAITING};
use crate::porter::service::{Asked, Hearing};
use crate::porter::web;

/// How long a server may take over a notification.
const NOTIFICATION: Duration = Duration::from_secs(2);
/// The stream of what belongs to no call is asked for again after this time.
const AGAIN: Duration = Duration::from_secs(5);
/// Questions of the server that are not answered yet.
const MOST_QUESTIONS: usize = 256;

pub(super) struct Http(Arc<Inner>);

struct Inner {
    url: Uri,
    headers: HeaderMap,
    dial: Dial,
    listeners: Listeners,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    link: Option<Arc<Link>>,
    /// Hears what belongs to no call.
    listening: Option<JoinHandle<()>>,
    /// Requests under way: the client's id of each.
    calls: HashMap<u64, String>,
    last_question: u64,
    questions: HashMap<u64, (Arc<Link>, Box<RawValue>)>,
}

/// A request under way: dropped before it is answered, it is cancelled.
struct Sent {
    http: Arc<Inner>,
    link: Arc<Link>,
    number: u64,
}

impl Http {
    pub(super) fn new(url: Uri, headers: HeaderMap) -> Self {
        let target = url.clone();
        let dial: Dial = Arc::new(move || {
            let target = target.clone();
            Box::pin(async move { web::connect(&target).await })
        });
        Self(Arc::new(Inner { url, headers, dial, listeners: Listeners::default(), state: Mutex::default() }))
    }

    /// Has the server introduce itself, in whichever revision it speaks.
    pub(super) async fn meet(&self) -> Result<Box<RawValue>, String> {
        let Inner { url, headers, dial, .. } = &*self.0;
        let fresh = || Link::to(url.clone(), headers.clone(), dial.clone());
        let mut link = fresh();
        let offered =
            to_raw_value(&json!({"sampling": {}, "elicitation": {}})).map_err(|error| error.to_string())?;
        let said = match link.initialize(introduction(&offered), Duration::MAX).await {
            Ok(said) => {
                link.notify("notifications/initialized", Params::default(), NOTIFICATION).await;
                said
            }
            Err(LinkError::Connect(why)) => return Err(why.to_string()),
            Err(why) => {
                // It may speak a revision without `initialize`.
                link = fresh();
                let refused = why.to_string();
                greet(&link, |_| {}).await.map_err(|_| refused)?;
                let offer = link.offer();
                to_raw_value(&json!({
                    "protocolVersion": STATELESS,
                    "capabilities": offer.capabilities,
                    "serverInfo": offer.server_info,
                    "instructions": offer.instructions,
                }))
                .map_err(|error| error.to_string())?
            }
        };
        let link = Arc::new(link);
        let listening = tokio::spawn(listen(self.0.clone(), link.clone()));
        let mut state = self.0.lock();
        state.link = Some(link);
        if let Some(former) = state.listening.replace(listening) {
            former.abort();
        }
        Ok(said)
    }

    pub(super) fn listen(&self) -> mpsc::Receiver<Bytes> {
        self.0.listeners.listen()
    }

    pub(super) fn tell(&self, message: &Bytes) {
        self.0.listeners.tell(message);
    }

    pub(super) async fn call(
        &self, id: &RawValue, method: &str, mut params: Params<'_>,
    ) -> Result<Asked, Fault> {
        let link = self.0.link()?;
        let number = link.number();
        let mut meta = params.object("_meta").unwrap_or_default().into_owned();
        let token = meta.get(PROGRESS_TOKEN).map(ToOwned::to_owned);
        if token.is_some() {
            // Two clients may have chosen the same.
            meta.set(PROGRESS_TOKEN, &number);
            params.set("_meta", &meta);
        }
        let name = params
            .text(if method == "resources/read" { "uri" } else { "name" })
            .map(std::borrow::Cow::into_owned);
        let mut ask = Ask::new(method, params);
        if matches!(method, "tools/call" | "prompts/get" | "resources/read") {
            ask.name = name.as_deref();
        }
        self.0.lock().calls.insert(number, id.get().to_owned());
        let sent = Sent { http: self.0.clone(), link: link.clone(), number };
        let mut exchange = link.send_as(number, ask).await.map_err(|error| sent.lost(&error))?;
        match exchange.next().await.map_err(|error| sent.lost(&error))? {
            Heard::Result(result) => {
                sent.answered();
                exchange.finish();
                Ok(Asked::Result(result))
            }
            Heard::Error(error) => {
                sent.answered();
                Ok(Asked::Error(error))
            }
            heard => {
                let (out, mut heard_later) = mpsc::channel(WAITING);
                tokio::spawn(pump(exchange, heard, sent, id.to_owned(), token, out));
                let first =
                    heard_later.recv().await.ok_or_else(|| Fault::Lost("its stream has ended".into()))?;
                Ok(Asked::Stream { first, hearing: Hearing { heard: heard_later, _line: None } })
            }
        }
    }

    /// Whether it answers at all.
    pub(super) async fn ping(&self, patience: Duration) -> Result<(), Fault> {
        let link = self.0.link()?;
        // The revisions without sessions have no ping.
        let method = if link.is_stateless() { "server/discover" } else { "ping" };
        match link.request(Ask::new(method, Params::default()), patience).await {
            Ok(_) => Ok(()),
            Err(error) => Err(fault(&error)),
        }
    }

    pub(super) async fn note(&self, method: &str, params: Params<'_>) {
        let Ok(link) = self.0.link() else { return };
        match method {
            "notifications/initialized" => {}
            "notifications/cancelled" => {
                let id = params.get("requestId").map(|id| id.get().to_owned());
                let number = self
                    .0
                    .lock()
                    .calls
                    .iter()
                    .filter(|(_, known)| Some(*known) == id.as_ref())
                    .map(|(number, _)| *number)
                    .max();
                if let Some(number) = number {
                    link.notify(method, params.with("requestId", &number), NOTIFICATION).await;
                }
            }
            _ => link.notify(method, params, NOTIFICATION).await,
        }
    }

    pub(super) async fn answered(&self, id: &str, outcome: Result<Box<RawValue>, RpcError>) {
        let question = id.parse().ok().and_then(|number: u64| self.0.lock().questions.remove(&number));
        if let Some((link, id)) = question {
            link.answer(&id, outcome.as_ref().map_or_else(Outcome::Error, |result| Outcome::Result(result)))
                .await;
        }
    }

    /// The session is not needed any more.
    pub(super) async fn end(&self) {
        if let Ok(link) = self.0.link() {
            let _ = tokio::time::timeout(NOTIFICATION, link.end()).await;
        }
    }
}

impl Inner {
    fn link(&self) -> Result<Arc<Link>, Fault> {
        self.lock().link.clone().ok_or(Fault::Forgotten)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the client gets to see of something that the server says.
    fn message(
        &self, link: &Arc<Link>, heard: Heard, number: Option<u64>, token: Option<&RawValue>,
    ) -> Option<Bytes> {
        let value = match heard {
            Heard::Notification { method, params } if method == "notifications/progress" => {
                let mut params = Params::read(params.as_deref()?).ok()?;
                let said = params.get(PROGRESS_TOKEN)?.get().trim_matches('"').parse().ok();
                if said.is_none() || said != number {
                    return None;
                }
                params.set(PROGRESS_TOKEN, token?);
                json!({"jsonrpc": "2.0", "method": method, "params": params})
            }
            Heard::Notification { method, params } => {
                json!({"jsonrpc": "2.0", "method": method, "params": params})
            }
            Heard::Request { id, method, params } => {
                let mut state = self.lock();
                if state.questions.len() >= MOST_QUESTIONS {
                    return None;
                }
                state.last_question += 1;
                let number = state.last_question;
                state.questions.insert(number, (link.clone(), id));
                json!({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            }
            Heard::Result(_) | Heard::Error(_) => return None,
        };
        serde_json::to_vec(&value).ok().map(Into::into)
    }
}

/// Passes on what is said of one call, the answer last.
async fn pump(
    mut exchange: Exchange, first: Heard, sent: Sent, id: Box<RawValue>, token: Option<Box<RawValue>>,
    out: mpsc::Sender<Bytes>,
) {
    let mut heard = Ok(first);
    loop {
        let outcome = match heard {
            Ok(Heard::Result(result)) => Ok(result),
            Ok(Heard::Error(error)) => Err(error),
            Ok(said) => {
                let message = sent.http.message(&sent.link, said, Some(sent.number), token.as_deref());
                if let Some(message) = message
                    && out.send(message).await.is_err()
                {
                    return;
                }
                heard = tokio::select! {
                    heard = exchange.next() => heard,
                    () = out.closed() => return,
                };
                continue;
            }
            Err(error) => Err(RpcError::new(code::INTERNAL, error.to_string())),
        };
        sent.answered();
        let outcome = outcome.as_ref().map_or_else(Outcome::Error, |result| Outcome::Result(result));
        let reply = serde_json::to_vec(&Reply { jsonrpc: "2.0", id: &id, outcome }).unwrap_or_default();
        let _ = out.send(reply.into()).await;
        exchange.finish();
        return;
    }
}

/// Passes on what belongs to no call, for as long as the session lasts.
async fn listen(http: Arc<Inner>, link: Arc<Link>) {
    loop {
        if let Ok(mut exchange) = link.listen().await {
            while let Ok(heard) = exchange.next().await {
                match heard {
                    Heard::Request { id, .. } => {
                        let nobody = RpcError::new(
                            code::NO_SUCH_METHOD,
                            "no call is under way whose client could be asked",
                        );
                        link.answer(&id, Outcome::Error(&nobody)).await;
                    }
                    heard => {
                        if let Some(message) = http.message(&link, heard, None, None) {
                            http.listeners.tell(&message);
                        }
                    }
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

impl Sent {
    fn answered(&self) {
        self.http.lock().calls.remove(&self.number);
    }

    fn lost(&self, error: &LinkError) -> Fault {
        // What cannot be reached cannot be told either.
        if !matches!(error, LinkError::TimedOut(_)) {
            self.answered();
        }
        fault(error)
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        let is_unanswered = self.http.lock().calls.remove(&self.number).is_some();
        if !is_unanswered || self.link.is_stateless() {
            return;
        }
        let (link, number) = (self.link.clone(), self.number);
        tokio::spawn(async move {
            let params = Params::default()
                .with("requestId", &number)
                .with("reason", "nobody waits for the answer any more");
            link.notify("notifications/cancelled", params, NOTIFICATION).await;
        });
    }
}

fn fault(error: &LinkError) -> Fault {
    match error {
        LinkError::SessionLost => Fault::Forgotten,
        LinkError::Rpc(error) => Fault::Rpc(error.clone()),
        LinkError::Connect(why) => Fault::Lost(format!("cannot connect: {why}; the request was not sent")),
        error => Fault::Lost(error.to_string()),
    }
}
