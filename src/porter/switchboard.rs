//! Many callers on one wire to an MCP server: every request goes out under a number of the porter's own, and
//! what the server says finds its way back to the call that it belongs to.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::body::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};

use super::listeners::{Listeners, WAITING};
use super::wire::{Gone, Wire};
use crate::mcp::terms::{PROGRESS_TOKEN, code};
use crate::mcp::{Outcome, Params, Response as Reply, RpcError, excerpt};

/// Questions of the server that are not answered yet.
const MOST_QUESTIONS: usize = 256;

const PROGRESS: &str = "notifications/progress";
const CANCELLED: &str = "notifications/cancelled";

/// See the module's page.
#[derive(Clone)]
pub(super) struct Switchboard(Arc<Inner>);

struct Inner {
    wire: Wire,
    lines: Mutex<Lines>,
    listeners: Listeners,
}

#[derive(Default)]
struct Lines {
    last: u64,
    calls: HashMap<u64, Caller>,
    /// What the server has asked, under the number that the client knows it by.
    questions: HashMap<u64, Question>,
}

enum Caller {
    Client {
        id: Box<RawValue>,
        out: mpsc::Sender<Bytes>,
        /// Under which it wants to be told of progress.
        token: Option<Box<RawValue>>,
    },
    /// The porter itself.
    Own(oneshot::Sender<Result<Box<RawValue>, RpcError>>),
}

struct Question {
    /// The call that it came with.
    call: u64,
    /// Its id, as the server knows it.
    id: Box<RawValue>,
}

/// A call under way: dropped before it is answered, it is cancelled.
pub(super) struct Line {
    switchboard: Switchboard,
    number: u64,
}

/// What a server says, as far as it has to be routed.
#[derive(Deserialize)]
struct Heard<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: Option<String>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct Message<'a, P> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<P>,
}

impl Switchboard {
    pub(super) fn new(wire: Wire) -> Self {
        Self(Arc::new(Inner { wire, lines: Mutex::default(), listeners: Listeners::default() }))
    }

    /// Passes a client's request on. The receiver gives what is said of it, the answer last. When so much waits
    /// to be heard that there is no room, all but answers is lost.
    pub(super) async fn call(
        &self, id: &RawValue, method: &str, mut params: Params<'_>,
    ) -> Result<(Line, mpsc::Receiver<Bytes>), RpcError> {
        let mut meta = params.object("_meta").unwrap_or_default().into_owned();
        let token = meta.get(PROGRESS_TOKEN).map(ToOwned::to_owned);
        let (out, heard) = mpsc::channel(WAITING);
        let has_token = token.is_some();
        let line = self.dial(Caller::Client { id: id.to_owned(), out, token });
        if has_token {
            // Two clients may have chosen the same.
            meta.set(PROGRESS_TOKEN, &line.number);
            params.set("_meta", &meta);
        }
        self.send(Some(line.number), method, Some(params)).await?;
        Ok((line, heard))
    }

    /// A request of the porter's own.
    pub(super) async fn request(&self, method: &str, params: Params<'_>) -> Result<Box<RawValue>, RpcError> {
        let (answer, answered) = oneshot::channel();
        let line = self.dial(Caller::Own(answer));
        self.send(Some(line.number), method, Some(params)).await?;
        answered.await.unwrap_or_else(|_| Err(RpcError::new(code::INTERNAL, "the plugin is gone")))
    }

    /// A notification to the server.
    pub(super) async fn notify(&self, method: &str, params: Option<Params<'_>>) {
        let _ = self.send(None, method, params).await;
    }

    /// A notification of a client.
    pub(super) async fn note(&self, method: &str, params: Params<'_>) {
        match method {
            // The porter has said it itself.
            "notifications/initialized" => {}
            CANCELLED => {
                let Some(number) = params.get("requestId").and_then(|id| self.lines().number_of(id)) else {
                    return;
                };
                self.notify(method, Some(params.with("requestId", &number))).await;
            }
            _ => self.notify(method, Some(params)).await,
        }
    }

    /// A client's answer to what the server has asked.
    pub(super) async fn answered(&self, id: &str, outcome: Result<Box<RawValue>, RpcError>) {
        let question = id.parse().ok().and_then(|number: u64| self.lines().questions.remove(&number));
        let Some(Question { id, .. }) = question else { return };
        self.reply(&id, outcome.as_ref().map_or_else(Outcome::Error, |result| Outcome::Result(result))).await;
    }

    /// Hears what belongs to no call.
    pub(super) fn listen(&self) -> mpsc::Receiver<Bytes> {
        self.0.listeners.listen()
    }

    /// Says to who listens what belongs to no call.
    pub(super) fn tell(&self, message: &Bytes) {
        self.0.listeners.tell(message);
    }

    /// Takes what the server says; false if it is no message.
    pub(super) async fn hear(&self, text: &[u8]) -> bool {
        let Ok(heard) = serde_json::from_slice::<Heard>(text) else { return false };
        match (heard.method.as_deref(), heard.id) {
            (Some(method), Some(id)) => self.asked(id, method, heard.params).await,
            (Some(method), None) => self.told(method, heard.params, text),
            (None, Some(id)) => self.answer(id, heard.result, heard.error),
            (None, None) => return false,
        }
        true
    }

    /// No call that is under way will be answered any more.
    pub(super) fn fail(&self, why: &str) {
        let calls = std::mem::take(&mut self.lines().calls);
        let error = RpcError::new(code::INTERNAL, why);
        for caller in calls.into_values() {
            caller.answer(Err(&error));
        }
    }

    fn dial(&self, caller: Caller) -> Line {
        let mut lines = self.lines();
        let number = lines.next();
        lines.calls.insert(number, caller);
        Line { switchboard: self.clone(), number }
    }

    async fn send(&self, id: Option<u64>, method: &str, params: Option<Params<'_>>) -> Result<(), RpcError> {
        let text = serde_json::to_vec(&Message { jsonrpc: "2.0", id, method, params });
        let text = text.map_err(|error| RpcError::new(code::INTERNAL, error.to_string()))?;
        self.0.wire.send(text).await.map_err(|error| gone(&error))
    }

    async fn reply(&self, id: &RawValue, outcome: Outcome<'_>) {
        let reply = serde_json::to_vec(&Reply { jsonrpc: "2.0", id, outcome }).unwrap_or_default();
        let _ = self.0.wire.send(reply).await;
    }

    fn answer(&self, id: &RawValue, result: Option<&RawValue>, error: Option<&RawValue>) {
        // Some servers turn a number into a text.
        let number = id.get().trim_matches('"').parse().ok();
        let Some(caller) = number.and_then(|number: u64| self.lines().calls.remove(&number)) else { return };
        match (result, error) {
            (_, Some(error)) => match serde_json::from_str(error.get()) {
                Ok(error) => caller.answer(Err(&error)),
                Err(_) => {
                    let what = format!(
                        "it answered with an error that is none: {}",
                        excerpt(error.get().as_bytes())
                    );
                    caller.answer(Err(&RpcError::new(code::INTERNAL, what)));
                }
            },
            (Some(result), None) => caller.answer(Ok(result)),
            (None, None) => {
                let what = "its answer has neither result nor error";
                caller.answer(Err(&RpcError::new(code::INTERNAL, what)));
            }
        }
    }

    fn told(&self, method: &str, params: Option<&RawValue>, text: &[u8]) {
        let lines = self.lines();
        match method {
            PROGRESS => lines.progress(params),
            // One message belongs to a call for certain where there is one call.
            CANCELLED => {}
            // One that belongs to a call for certain, where there is one call.
            "notifications/message" if lines.only_call().is_some() => {
                let out = lines.only_call().map(|(_, out)| out.try_send(Bytes::copy_from_slice(text)));
                drop(out);
            }
            _ => self.tell(&Bytes::copy_from_slice(text)),
        }
    }

    async fn asked(&self, id: &RawValue, method: &str, params: Option<&RawValue>) {
        if method == "ping" {
            let nothing = RawValue::from_string("{}".into()).unwrap_or_else(|_| RawValue::NULL.to_owned());
            return self.reply(id, Outcome::Result(&nothing)).await;
        }
        let refused = {
            let mut lines = self.lines();
            match lines.only_call() {
                _ if lines.questions.len() >= MOST_QUESTIONS => {
                    Some("too many questions are not answered yet")
                }
                Some((call, out)) => {
                    let number = lines.next();
                    let message = Message { jsonrpc: "2.0", id: Some(number), method, params };
                    let sent = out.try_send(serde_json::to_vec(&message).unwrap_or_default().into());
                    lines.questions.insert(number, Question { call, id: id.to_owned() });
                    sent.is_err().then_some("the client does not listen")
                }
                None if lines.calls.is_empty() => Some("no call is under way whose client could be asked"),
                None => Some("several calls are under way, and this wire does not tell which of them asks"),
            }
        };
        if let Some(why) = refused {
            let error = RpcError::new(code::NO_SUCH_METHOD, why);
            self.reply(id, Outcome::Error(&error)).await;
        }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lines {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The number under which a client's request is known to the server.
    fn number_of(&self, id: &RawValue) -> Option<u64> {
        let is_it =
            |caller: &Caller| matches!(caller, Caller::Client { id: known, .. } if known.get() == id.get());
        // The last one that used this id.
        self.calls.iter().filter(|(_, caller)| is_it(caller)).map(|(number, _)| *number).max()
    }

    /// The one call of a client that is under way.
    fn only_call(&self) -> Option<(u64, mpsc::Sender<Bytes>)> {
        let mut clients = self.calls.iter().filter_map(|(number, caller)| match caller {
            Caller::Client { out, .. } => Some((*number, out)),
            Caller::Own(_) => None,
        });
        let (number, out) = clients.next()?;
        clients.next().is_none().then(|| (number, out.clone()))
    }

    fn progress(&self, params: Option<&RawValue>) {
        let Some(mut params) = params.and_then(|params| Params::read(params).ok()) else { return };
        let number = params.get(PROGRESS_TOKEN).and_then(|token| token.get().trim_matches('"').parse().ok());
        let caller = number.and_then(|number: u64| self.calls.get(&number));
        if let Some(Caller::Client { out, token: Some(token), .. }) = caller {
            params.set(PROGRESS_TOKEN, token);
            let message = Message { jsonrpc: "2.0", id: None, method: PROGRESS, params: Some(params) };
            let _ = out.try_send(serde_json::to_vec(&message).unwrap_or_default().into());
        }
    }
}

impl Caller {
    fn answer(self, answer: Result<&RawValue, &RpcError>) {
        match self {
            // Nobody waits any more, if it cannot be sent.
            Self::Own(out) => drop(out.send(answer.map(ToOwned::to_owned).map_err(Clone::clone))),
            Self::Client { id, out, .. } => {
                let outcome = answer.map_or_else(Outcome::Error, Outcome::Result);
                let message: Bytes = serde_json::to_vec(&Reply { jsonrpc: "2.0", id: &id, outcome })
                    .unwrap_or_default()
                    .into();
                if let Err(mpsc::error::TrySendError::Full(message)) = out.try_send(message) {
                    tokio::spawn(async move { out.send(message).await });
                }
            }
        }
    }
}

impl Line {
    /// It has been answered.
    pub(super) fn is_over(&self) -> bool {
        !self.switchboard.lines().calls.contains_key(&self.number)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let mut lines = self.switchboard.lines();
        if lines.calls.remove(&self.number).is_none() {
            return;
        }
        let questions: Vec<Question> = lines
            .questions
            .extract_if(|_, question| question.call == self.number)
            .map(|(_, it)| it)
            .collect();
        drop(lines);
        let (switchboard, number) = (self.switchboard.clone(), self.number);
        tokio::spawn(async move {
            for question in questions {
                let error = RpcError::new(code::INTERNAL, "the client is gone");
                switchboard.reply(&question.id, Outcome::Error(&error)).await;
            }
            let params = Params::default()
                .with("requestId", &number)
                .with("reason", "nobody waits for the answer any more");
            switchboard.notify(CANCELLED, Some(params)).await;
        });
    }
}

fn gone(why: &Gone) -> RpcError {
    RpcError::new(code::INTERNAL, why.to_string())
}
