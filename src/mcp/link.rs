//! A link to one launch of a member: its kept connections, its session, one request at a time or many.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION};
use hyper::{Response, StatusCode};
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::connector::{Connector, Dial};
use super::sse::Events;
use super::wire::{Reply, Request, RpcError, excerpt};
use crate::model::Port;

/// A member's answer may be this large; bytes.
const LARGEST_ANSWER: usize = 16 * 1024 * 1024;
/// Connections are kept this long without use: less than the 5 s after which Node, uvicorn and
/// others close their end, so that no request meets a closing connection.
const KEPT: Duration = Duration::from_secs(3);
const MOST_KEPT: usize = 8;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL: HeaderName = HeaderName::from_static("mcp-protocol-version");

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
    client: Client<Connector, Full<Bytes>>,
    uri: hyper::Uri,
    dial: Dial,
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
}

#[derive(Debug, Clone)]
struct Session {
    id: Option<HeaderValue>,
    protocol: Option<HeaderValue>,
}

impl LinkError {
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

impl Link {
    /// `path` is that of a URL, checked by the dialect.
    pub fn new(port: Port, path: &str, dial: Dial) -> Result<Self, hyper::http::uri::InvalidUri> {
        let uri = format!("http://127.0.0.1:{port}{path}").parse()?;
        Ok(Self {
            client: client(dial.clone()),
            uri,
            dial,
            next_id: AtomicU64::new(1),
            session: OnceLock::new(),
            fickle: AtomicBool::new(false),
        })
    }

    /// The same session without any connection yet.
    pub fn anew(&self) -> Self {
        Self {
            client: client(self.dial.clone()),
            uri: self.uri.clone(),
            dial: self.dial.clone(),
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
        }
    }

    /// A session that an image of the hall before this one has opened.
    pub fn resume(
        port: Port, path: &str, dial: Dial, saved: &SavedSession,
    ) -> Result<Self, hyper::http::uri::InvalidUri> {
        let link = Self::new(port, path, dial)?;
        let value = |text: &Option<String>| HeaderValue::from_str(text.as_ref()?).ok();
        let _ = link.session.set(Session { id: value(&saved.id), protocol: value(&saved.protocol) });
        link.fickle.store(saved.fickle, Ordering::Relaxed);
        Ok(link)
    }

    /// Sends one request and waits for its answer, no longer than `patience`.
    pub async fn request<P: Serialize>(
        &self, method: &str, params: P, patience: Duration,
    ) -> Result<Box<RawValue>, LinkError> {
        let exchange = async {
            let (response, id) = self.post(method, params, true).await?;
            let lost = response.status() == StatusCode::NOT_FOUND && self.session_id().is_some();
            if lost { Err(LinkError::SessionLost) } else { read_answer(response, id).await }
        };
        let answer = timeout(patience, exchange).await.unwrap_or(Err(LinkError::TimedOut(patience)));
        if let Err(LinkError::Broken(_)) = &answer {
            self.fickle.store(true, Ordering::Relaxed);
        }
        answer
    }

    /// The first request: what the member settles in its headers is kept for all that follow.
    pub(super) async fn initialize<P: Serialize>(
        &self, params: P, patience: Duration,
    ) -> Result<Box<RawValue>, LinkError> {
        let exchange = async {
            let (response, id) = self.post("initialize", params, true).await?;
            let session_id = response.headers().get(SESSION_ID).cloned();
            let result = read_answer(response, id).await?;
            let protocol = protocol_version(&result).and_then(|version| HeaderValue::from_str(&version).ok());
            let _ = self.session.set(Session { id: session_id, protocol });
            Ok(result)
        };
        timeout(patience, exchange).await.unwrap_or(Err(LinkError::TimedOut(patience)))
    }

    /// The revision that was settled, where the member named one.
    pub fn protocol_version(&self) -> Option<&str> {
        self.session.get()?.protocol.as_ref()?.to_str().ok()
    }

    fn session_id(&self) -> Option<&HeaderValue> {
        self.session.get()?.id.as_ref()
    }

    /// Whatever the member says to a notification, or if it hangs up, does no harm.
    pub(super) async fn notify(&self, method: &str, patience: Duration) {
        let exchange = async {
            if let Ok((response, _)) = self.post(method, serde_json::Map::new(), false).await {
                // Read to its end, so that the connection can be kept.
                let _ = collect(response.into_body()).await;
            }
        };
        let _ = timeout(patience, exchange).await;
    }

    async fn post<P: Serialize>(
        &self, method: &str, params: P, wants_answer: bool,
    ) -> Result<(Response<Incoming>, u64), LinkError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let message = Request { jsonrpc: "2.0", id: wants_answer.then_some(id), method, params };
        let body = serde_json::to_vec(&message).map_err(|error| LinkError::NotMcp(error.to_string()))?;
        let mut request = hyper::Request::post(self.uri.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| LinkError::NotMcp(error.to_string()))?;
        let headers = request.headers_mut();
        if self.fickle.load(Ordering::Relaxed) {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(session) = self.session.get() {
            session.id.clone().map(|id| headers.insert(SESSION_ID, id));
            session.protocol.clone().map(|protocol| headers.insert(PROTOCOL, protocol));
        }
        let response = self.client.request(request).await.map_err(sort)?;
        Ok((response, id))
    }
}

fn client(dial: Dial) -> Client<Connector, Full<Bytes>> {
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(KEPT)
        .pool_max_idle_per_host(MOST_KEPT)
        // A kept connection that turns out closed before a byte of the request was written is
        // replaced by a new one. Nothing that was written is ever written again.
        .retry_canceled_requests(true)
        .build(Connector(dial))
}

/// Was it ever sent? hyper tells it only by whether it was still connecting.
fn sort(error: ClientError) -> LinkError {
    match io_cause(&error) {
        Some(cause) if error.is_connect() => LinkError::Connect(cause),
        Some(cause) => LinkError::Broken(cause.to_string()),
        None => LinkError::Broken(innermost(&error).to_string()),
    }
}

/// The I/O error below this one, as one that can be kept.
fn io_cause(error: &ClientError) -> Option<io::Error> {
    let mut causes = std::iter::successors(error.source(), |&error| error.source());
    let io = causes.find_map(|error| error.downcast_ref::<io::Error>())?;
    Some(
        io.raw_os_error()
            .map_or_else(|| io::Error::new(io.kind(), io.to_string()), io::Error::from_raw_os_error),
    )
}

fn innermost(error: &dyn Error) -> &dyn Error {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error
}

async fn read_answer(response: Response<Incoming>, id: u64) -> Result<Box<RawValue>, LinkError> {
    let status = response.status();
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if status.is_success() && kind.trim_start().starts_with("text/event-stream") {
        return read_events(response.into_body(), id).await;
    }
    let elsewhere = response.headers().get(LOCATION).map(|place| excerpt(place.as_bytes()));
    let body = collect(response.into_body()).await?;
    match Reply::read(&body, id) {
        Reply::Result(result) if status.is_success() => Ok(result),
        Reply::Error(error) => Err(LinkError::Rpc(error)),
        _ if status.is_redirection() && elsewhere.is_some() => {
            let place = elsewhere.unwrap_or_default();
            Err(LinkError::Http {
                status,
                body: format!("it is at {place}; say so with \"path\" in the manifest"),
            })
        }
        _ if !status.is_success() => Err(LinkError::Http { status, body: excerpt(&body) }),
        Reply::Nonsense(what) => Err(LinkError::NotMcp(what)),
        _ => Err(LinkError::NotMcp(format!("it answered with a message of its own: {}", excerpt(&body)))),
    }
}

/// Passes over what comes before the answer.
async fn read_events(mut body: Incoming, id: u64) -> Result<Box<RawValue>, LinkError> {
    let mut events = Events::default();
    let mut answer = None;
    let mut take = |data: &[u8]| {
        match Reply::read(data, id) {
            Reply::Other => return true,
            reply => answer = Some(reply),
        }
        false
    };
    let mut read = 0;
    while let Some(piece) = body.frame().await {
        let piece = piece.map_err(|error| LinkError::Broken(error.to_string()))?;
        let Some(piece) = piece.data_ref() else { continue };
        read += piece.len();
        if read > LARGEST_ANSWER {
            return Err(LinkError::TooLarge);
        }
        if !events.feed(piece, &mut take) {
            break;
        }
    }
    events.finish(&mut take);
    match answer {
        Some(Reply::Result(result)) => Ok(result),
        Some(Reply::Error(error)) => Err(LinkError::Rpc(error)),
        Some(Reply::Nonsense(what)) => Err(LinkError::NotMcp(what)),
        Some(Reply::Other) | None => {
            Err(LinkError::Broken("its event stream ended without the answer".into()))
        }
    }
}

async fn collect(mut body: Incoming) -> Result<Vec<u8>, LinkError> {
    let mut bytes = Vec::new();
    while let Some(piece) = body.frame().await {
        let piece = piece.map_err(|error| LinkError::Broken(error.to_string()))?;
        let Some(piece) = piece.data_ref() else { continue };
        if bytes.len() + piece.len() > LARGEST_ANSWER {
            return Err(LinkError::TooLarge);
        }
        bytes.extend_from_slice(piece);
    }
    Ok(bytes)
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
