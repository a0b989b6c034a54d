//! A link to one launch of a member: its kept connections, its session, one request at a time or many.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper::{Method, Response, StatusCode};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::connections::{Answering, Connections};
use super::connector::Dial;
use super::exchange::{Exchange, discard};
use super::headers::header_value;
use super::params::Params;
use super::resumption::Resumption;
use super::terms::{
    META_CAPABILITIES, META_CLIENT, META_PROTOCOL, METHOD, NAME, PROTOCOL, SESSION_ID, STATELESS, code,
};
use super::wire::{Heard, Outcome, Request, Response as Reply, RpcError, excerpt};
use crate::model::{Offer, Port};

/// A member's answer may be this large; bytes.
pub(super) const LARGEST_ANSWER: usize = 16 * 1024 * 1024;
/// How long a member may take to accept a message that has no answer.
const NO_ANSWER: Duration = Duration::from_secs(10);

/// What became of a request. Only after [`LinkError::Connect`] is it certain that the member never saw it.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    #[error("the connection broke before the answer came: {0}")]
    Broken(String),
    #[error("answered HTTP {status}: {body}")]
    Http { status: StatusCode, body: String },
    #[error("no longer knows the session")]
    SessionLost,
    #[error("{0}")]
    NotMcp(String),
    #[error("its answer is larger than {} MiB", LARGEST_ANSWER / 1024 / 1024)]
    TooLarge,
    #[error("answered with JSON-RPC error {}: {}", .0.code, excerpt(.0.message.as_bytes()))]
    Rpc(RpcError),
    #[error("did not answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
}

/// See the module's page.
pub struct Link {
    connections: Connections,
    uri: hyper::Uri,
    /// Of a request, which names the host in a header.
    path: hyper::Uri,
    /// What every request carries besides.
    headers: HeaderMap,
    next_id: AtomicU64,
    /// What the member settled at `initialize`: sent with every later request.
    session: OnceLock<Session>,
    /// A connection broke while an answer was due: this member may close its connections without
    /// saying so, and then none is kept.
    fickle: AtomicBool,
}

/// A session as text, for the next image of the hall.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct SavedSession {
    id: Option<String>,
    protocol: Option<String>,
    fickle: bool,
    #[serde(default)]
    offer: Arc<Offer>,
}

/// What a member has settled.
#[derive(Debug, Clone)]
pub(super) struct Session {
    id: Option<HeaderValue>,
    protocol: Option<HeaderValue>,
    offer: Arc<Offer>,
}

/// What is asked of a member.
#[derive(Debug)]
pub struct Ask<'a> {
    pub method: &'a str,
    /// What the stateless revisions want repeated in the header `Mcp-Name`.
    pub name: Option<&'a str>,
    /// Headers `Mcp-Param-*`, which go with the arguments.
    pub headers: HeaderMap,
    pub params: Params<'a>,
}

impl<'a> Ask<'a> {
    pub fn new(method: &'a str, params: Params<'a>) -> Self {
        Self { method, name: None, headers: HeaderMap::new(), params }
    }
}

impl LinkError {
    /// One word, for metrics and the audit log.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Rpc(_) => "rpc_error",
            Self::TimedOut(_) => "timeout",
            Self::Connect(_) => "refused",
            Self::Broken(_) | Self::SessionLost => "broken",
            Self::Http { .. } | Self::NotMcp(_) | Self::TooLarge => "not_mcp",
        }
    }

    /// The hall itself is short of something (descriptors, memory, ports): it says nothing about
    /// the member.
    pub fn is_own_shortage(&self) -> bool {
        use libc::{EADDRNOTAVAIL, EMFILE, ENFILE, ENOBUFS, ENOMEM};
        let Self::Connect(cause) = self else { return false };
        matches!(cause.raw_os_error(), Some(EMFILE | ENFILE | ENOBUFS | ENOMEM | EADDRNOTAVAIL))
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("uri", &self.uri).field("session", &self.session).finish_non_exhaustive()
    }
}

/// Its URL.
impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uri.fmt(f)
    }
}

impl Link {
    /// `path` is that of a URL, checked by the dialect.
    pub fn new(port: Port, path: &str, dial: Dial) -> Result<Self, hyper::http::uri::InvalidUri> {
        let uri = format!("http://127.0.0.1:{port}{path}").parse::<hyper::Uri>()?;
        Ok(Self::to(uri, HeaderMap::new(), dial))
    }

    /// To a server elsewhere; every request carries these headers.
    pub fn to(uri: hyper::Uri, headers: HeaderMap, dial: Dial) -> Self {
        let path =
            uri.path_and_query().map_or_else(|| hyper::Uri::from_static("/"), |path| path.clone().into());
        Self {
            connections: Connections::new(dial),
            uri,
            path,
            headers,
            next_id: AtomicU64::new(1),
            session: OnceLock::new(),
            fickle: AtomicBool::new(false),
        }
    }

    /// The same session without any connection yet.
    pub fn anew(&self) -> Self {
        Self {
            connections: Connections::new(self.connections.dial()),
            uri: self.uri.clone(),
            path: self.path.clone(),
            headers: self.headers.clone(),
            next_id: AtomicU64::new(self.next_id.load(Ordering::Relaxed)),
            session: self.session.clone(),
            fickle: AtomicBool::new(self.fickle.load(Ordering::Relaxed)),
        }
    }

    /// The session, to be taken up again by [`Link::resume`].
    pub fn save(&self) -> SavedSession {
        let text = |value: &Option<HeaderValue>| Some(value.as_ref()?.to_str().ok()?.to_owned());
        let session = self.session.get();
        SavedSession {
            id: session.and_then(|session| text(&session.id)),
            protocol: session.and_then(|session| text(&session.protocol)),
            fickle: self.fickle.load(Ordering::Relaxed),
            offer: self.offer(),
        }
    }

    /// A session that an image of the hall before this one has opened.
    pub fn resume(
        port: Port, path: &str, dial: Dial, saved: &SavedSession,
    ) -> Result<Self, hyper::http::uri::InvalidUri> {
        let link = Self::new(port, path, dial)?;
        let value = |text: &Option<String>| HeaderValue::from_str(text.as_ref()?).ok();
        let _ = link.session.set(Session {
            id: value(&saved.id),
            protocol: value(&saved.protocol),
            offer: saved.offer.clone(),
        });
        link.fickle.store(saved.fickle, Ordering::Relaxed);
        Ok(link)
    }

    /// The same member, without any session yet.
    pub fn without_session(&self) -> Self {
        Self { session: OnceLock::new(), ..self.anew() }
    }

    /// What the member has said that it offers.
    pub fn offer(&self) -> Arc<Offer> {
        self.session.get().map(|session| session.offer.clone()).unwrap_or_default()
    }

    /// The member speaks a revision without sessions: each request says all that a session would.
    pub fn is_stateless(&self) -> bool {
        self.session.get().is_some_and(|session| session.offer.stateless)
    }

    /// The member keeps something for each session.
    pub fn has_session(&self) -> bool {
        self.session_id().is_some()
    }

    /// Sends one request; what comes of it is read from the exchange. Never sent twice.
    pub async fn send(&self, ask: Ask<'_>) -> Result<Exchange, LinkError> {
        self.send_as(self.number(), ask).await
    }

    /// A number for a request, for who has to name it before it is answered.
    pub fn number(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a request under a number that was taken for it.
    pub async fn send_as(&self, id: u64, ask: Ask<'_>) -> Result<Exchange, LinkError> {
        let response = self.post(Some(id), ask).await.inspect_err(|error| self.note(error))?;
        if response.status() == StatusCode::NOT_FOUND && self.has_session() {
            return Err(LinkError::SessionLost);
        }
        Ok(self.exchange(response, id))
    }

    /// Sends one request and waits for its answer, no longer than `patience`. What the member asks meanwhile
    /// is refused: nobody is there who could answer it.
    pub async fn request(&self, ask: Ask<'_>, patience: Duration) -> Result<Box<RawValue>, LinkError> {
        let exchange = async {
            let mut exchange = self.send(ask).await?;
            loop {
                match exchange.next().await? {
                    Heard::Result(result) => {
                        exchange.finish();
                        return Ok(result);
                    }
                    Heard::Error(error) => return Err(LinkError::Rpc(error)),
                    Heard::Notification { .. } => {}
                    Heard::Request { id, method, .. } => {
                        let nobody = format!("nobody is there to answer {}", excerpt(method.as_bytes()));
                        let error = RpcError::new(code::NO_SUCH_METHOD, nobody);
                        self.answer(&id, Outcome::Error(&error)).await;
                    }
                }
            }
        };
        let answer = timeout(patience, exchange).await.unwrap_or(Err(LinkError::TimedOut(patience)));
        answer.inspect_err(|error| self.note(error))
    }

    /// A member that hangs up without a word may do so again.
    pub fn note(&self, error: &LinkError) {
        if matches!(error, LinkError::Broken(_)) {
            self.fickle.store(true, Ordering::Relaxed);
        }
    }

    /// The first request: what the member settles in its headers is kept for all that follow.
    pub async fn initialize(
        &self, params: Params<'_>, patience: Duration,
    ) -> Result<Box<RawValue>, LinkError> {
        let (result, session) = self.propose(params, patience).await?;
        self.keep(session);
        Ok(result)
    }

    /// The same, but nothing is kept yet.
    pub(super) async fn propose(
        &self, params: Params<'_>, patience: Duration,
    ) -> Result<(Box<RawValue>, Session), LinkError> {
        let exchange = async {
            let number = self.number();
            let response = self.post(Some(number), Ask::new("initialize", params)).await?;
            let id = response.headers().get(SESSION_ID).cloned();
            let mut exchange = Exchange::of(response, Some(number));
            let result = loop {
                match exchange.next().await? {
                    Heard::Result(result) => break result,
                    Heard::Error(error) => return Err(LinkError::Rpc(error)),
                    Heard::Notification { .. } | Heard::Request { .. } => {}
                }
            };
            let protocol = protocol_version(&result).and_then(|version| HeaderValue::from_str(&version).ok());
            // Its word on anything but the revision may be missing or odd.
            let offer = serde_json::from_str(result.get()).unwrap_or_default();
            Ok((result, Session { id, protocol, offer: Arc::new(offer) }))
        };
        timeout(patience, exchange).await.unwrap_or(Err(LinkError::TimedOut(patience)))
    }

    pub(super) fn keep(&self, session: Session) {
        let _ = self.session.set(session);
    }

    /// From now on each request says all that a session would.
    pub(super) fn be_stateless(&self, offer: Offer) {
        let protocol = Some(HeaderValue::from_static(STATELESS));
        let offer = Arc::new(Offer { stateless: true, ..offer });
        let _ = self.session.set(Session { id: None, protocol, offer });
    }

    /// The revision that was settled, where the member named one.
    pub fn protocol_version(&self) -> Option<&str> {
        self.session.get()?.protocol.as_ref()?.to_str().ok()
    }

    fn session_id(&self) -> Option<&HeaderValue> {
        self.session.get()?.id.as_ref()
    }

    /// Whatever the member says to a notification, or if it hangs up, does no harm.
    pub async fn notify(&self, method: &str, params: Params<'_>, patience: Duration) {
        let exchange = async {
            if let Ok(response) = self.post(None, Ask::new(method, params)).await {
                discard(response).await;
            }
        };
        let _ = timeout(patience, exchange).await;
    }

    /// Answers what the member has asked; false if it does not take the answer.
    pub async fn answer(&self, id: &RawValue, outcome: Outcome<'_>) -> bool {
        let exchange = async {
            let reply = serde_json::to_vec(&Reply { jsonrpc: "2.0", id, outcome }).unwrap_or_default();
            let sent = self.http(Method::POST, HeaderMap::new(), reply.into()).await;
            match sent {
                Ok(response) => discard(response).await.is_success(),
                Err(_) => false,
            }
        };
        timeout(NO_ANSWER, exchange).await.unwrap_or(false)
    }

    /// What the member has to say besides answers: the stream of its session.
    pub async fn listen(&self) -> Result<Exchange, LinkError> {
        let response = self.http(Method::GET, HeaderMap::new(), Bytes::new()).await?;
        let status = response.status();
        let exchange = Exchange::of(response, None);
        if exchange.is_stream() { Ok(exchange) } else { Err(LinkError::Http { status, body: String::new() }) }
    }

    /// The session is not needed any more.
    pub async fn end(&self) {
        if self.has_session() {
            let ending = async {
                if let Ok(response) = self.http(Method::DELETE, HeaderMap::new(), Bytes::new()).await {
                    discard(response).await;
                }
            };
            let _ = timeout(NO_ANSWER, ending).await;
        }
    }

    async fn post(&self, id: Option<u64>, ask: Ask<'_>) -> Result<Response<Answering>, LinkError> {
        let Ask { method, name, mut headers, mut params } = ask;
        // Who speaks a stateless revision alone wants it on `initialize`, too.
        if self.is_stateless() || self.session.get().is_none() {
            headers.insert(METHOD, header_value(method));
        }
        if self.is_stateless() {
            if let Some(name) = name {
                headers.insert(NAME, header_value(name));
            }
            introduce(&mut params);
        }
        let message = Request { jsonrpc: "2.0", id, method, params };
        let body = serde_json::to_vec(&message).map_err(|error| LinkError::NotMcp(error.to_string()))?;
        self.http(Method::POST, headers, body.into()).await
    }

    async fn http(
        &self, method: Method, mut headers: HeaderMap, body: Bytes,
    ) -> Result<Response<Answering>, LinkError> {
        self.complete(&method, &mut headers, &body);
        let fickle = self.fickle.load(Ordering::Relaxed);
        if fickle {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let mut request = hyper::Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.path.clone();
        *request.headers_mut() = headers;
        self.connections.request(request, !fickle).await
    }

    /// Adds the headers that every request has.
    fn complete(&self, method: &Method, headers: &mut HeaderMap, body: &Bytes) {
        let accept = match *method {
            Method::GET => "text/event-stream",
            _ => "application/json, text/event-stream",
        };
        headers.extend(self.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        if let Some(host) = self.uri.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok()) {
            headers.insert(HOST, host);
        }
        if !body.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(session) = self.session.get() {
            session.id.clone().map(|id| headers.insert(SESSION_ID, id));
            session.protocol.clone().map(|protocol| headers.insert(PROTOCOL, protocol));
        }
    }

    /// What a member answers. Where the revision allows it, a stream that ends too early is taken up again.
    fn exchange(&self, response: Response<Answering>, id: u64) -> Exchange {
        let exchange = Exchange::of(response, Some(id));
        if !exchange.is_stream() || self.is_stateless() {
            return exchange;
        }
        let mut headers = HeaderMap::new();
        self.complete(&Method::GET, &mut headers, &Bytes::new());
        exchange.resumed_by(Resumption::new(self.connections.clone(), self.path.clone(), headers))
    }
}

/// Completes `_meta` by what every request of the stateless revisions has to say. A client that a request
/// is passed on for has said it itself.
fn introduce(params: &mut Params<'_>) {
    #[derive(Serialize)]
    struct Client {
        name: &'static str,
        version: &'static str,
    }
    let mut meta = params.object("_meta").unwrap_or_default();
    meta.set(META_PROTOCOL, STATELESS);
    if meta.get(META_CLIENT).is_none() {
        meta.set(META_CLIENT, &Client { name: "guild-hall", version: env!("CARGO_PKG_VERSION") });
    }
    if meta.get(META_CAPABILITIES).is_none() {
        meta.set(META_CAPABILITIES, &serde_json::Map::new());
    }
    let meta = meta.into_owned();
    params.set("_meta", &meta);
}

/// What the member says it speaks, if it says so.
pub(super) fn protocol_version(result: &RawValue) -> Option<String> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Chosen {
        protocol_version: String,
    }
    serde_json::from_str::<Chosen>(result.get()).ok().map(|chosen| chosen.protocol_version)
}
