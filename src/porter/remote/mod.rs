//! An MCP server elsewhere. It may come and go: the porter stays, says what is wrong, and has the hall shake
//! hands anew when the server is there.

mod http;
mod sse;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::Uri;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::mpsc;
use tokio::time::timeout;

use self::http::Http;
pub(super) use self::sse::Place;
use self::sse::Sse;
use super::service::{Asked, Hearing};
use super::stdio::designate;
use crate::mcp::terms::{WITH_SESSIONS, code};
use crate::mcp::{Params, RpcError};
use crate::model::porter::{Plugin, RemoteWire};
use hyper::body::Bytes;

/// A server that takes longer to introduce itself, or to answer a ping, cannot be reached.
const PATIENCE: Duration = Duration::from_secs(3);

/// See the module's page.
pub(super) struct Remote {
    plugin: Plugin,
    url: String,
    /// The tool that is meant when none is named.
    designated: Option<String>,
    peer: Peer,
    meeting: Mutex<Meeting>,
    /// Held while the server is being asked to introduce itself.
    asking: tokio::sync::Mutex<()>,
}

enum Peer {
    Http(Http),
    Sse(Sse),
}

/// What is known of the server.
#[derive(Default)]
struct Meeting {
    /// Its answer to `initialize`, while it can be reached.
    introduction: Option<Box<RawValue>>,
    /// The hall has that answer, and no other.
    is_told: bool,
    /// It has introduced itself before.
    was_met: bool,
}

/// Why a request has no answer of the server's.
pub(super) enum Fault {
    /// It does not know the session any more, and has not taken the request.
    Forgotten,
    /// It says so itself.
    Rpc(RpcError),
    /// It cannot be reached, or breaks off.
    Lost(String),
}

impl Remote {
    pub(super) fn open(
        plugin: Plugin, url: &str, headers: &[(String, String)], wire: RemoteWire, designated: Option<String>,
    ) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|error| format!("{url:?} is no URL: {error}"))?;
        if uri.host().is_none() {
            return Err(format!("{url:?} names no host: a URL is as in \"http://127.0.0.1:3100/mcp\""));
        }
        let mut carried = HeaderMap::new();
        for (name, value) in headers {
            let parsed = name.parse::<HeaderName>().ok().zip(HeaderValue::from_str(value).ok());
            let (name, mut value) = parsed.ok_or_else(|| format!("the header {name:?} cannot be sent"))?;
            value.set_sensitive(true);
            carried.insert(name, value);
        }
        let peer = match wire {
            RemoteWire::Http => Peer::Http(Http::new(uri, carried)),
            RemoteWire::Sse => Peer::Sse(Sse::new(uri, carried)),
        };
        Ok(Self {
            plugin,
            url: url.into(),
            designated,
            peer,
            meeting: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
        })
    }

    pub(super) async fn ask(&self, id: &RawValue, method: &str, params: Params<'_>) -> Asked {
        let answer = match (method, &self.designated) {
            ("initialize", _) => Ok(self.introduce().await),
            ("ping", _) => self.ping().await,
            ("server/discover", _) => {
                Err(RpcError::new(code::NO_SUCH_METHOD, "a porter is asked to initialize"))
            }
            ("tools/list", designated) => match self.is_known().await {
                Known::NotYet => to_raw_value(&json!({"tools": []}))
                    .map_err(|error| RpcError::new(code::INTERNAL, error.to_string())),
                Known::Otherwise => {
                    return Asked::Again(format!("{} can be reached now: initialize once more\n", self.url));
                }
                Known::AsItIs => match self.relay(id, method, params).await {
                    Asked::Result(list) => {
                        Ok(designated.as_ref().map_or(list.clone(), |tool| designate(list, tool)))
                    }
                    other => return other,
                },
            },
            _ => return self.relay(id, method, params).await,
        };
        answer.map_or_else(Asked::Error, Asked::Result)
    }

    pub(super) async fn note(&self, method: &str, params: Params<'_>) {
        match &self.peer {
            Peer::Http(http) => http.note(method, params).await,
            Peer::Sse(sse) => sse.switchboard().note(method, params).await,
        }
    }

    pub(super) async fn answered(&self, id: &str, outcome: Result<Box<RawValue>, RpcError>) {
        match &self.peer {
            Peer::Http(http) => http.answered(id, outcome).await,
            Peer::Sse(sse) => sse.switchboard().answered(id, outcome).await,
        }
    }

    pub(super) fn listen(&self) -> mpsc::Receiver<Bytes> {
        match &self.peer {
            Peer::Http(http) => http.listen(),
            Peer::Sse(sse) => sse.switchboard().listen(),
        }
    }

    pub(super) async fn close(&self) {
        if let Peer::Http(http) = &self.peer {
            http.end().await;
        }
    }

    /// The server's introduction; of one that cannot be reached, what the manifest says.
    async fn introduce(&self) -> Box<RawValue> {
        match self.meet().await {
            Ok(introduction) => {
                self.lock().is_told = true;
                introduction
            }
            Err(why) => {
                eprintln!("guild-hall porter: cannot reach {}: {why}", self.url);
                self.lock().is_told = false;
                to_raw_value(&json!({
                    "protocolVersion": WITH_SESSIONS,
                    "capabilities": {"tools": {"listChanged": true}},
                    "serverInfo": {"name": self.plugin.id, "version": self.plugin.version.as_deref().unwrap_or("0.0.0")},
                }))
                .unwrap_or_else(|_| RawValue::NULL.to_owned())
            }
        }
    }

    /// Has the server introduce itself, if it has not.
    async fn meet(&self) -> Result<Box<RawValue>, String> {
        let _asking = self.asking.lock().await;
        if !self.is_gone()
            && let Some(introduction) = &self.lock().introduction
        {
            return Ok(introduction.clone());
        }
        let meeting = async {
            match &self.peer {
                Peer::Http(http) => http.meet().await,
                Peer::Sse(sse) => sse.meet().await,
            }
        };
        let late = || Err(format!("it does not introduce itself within {} s", PATIENCE.as_secs()));
        let introduction = timeout(PATIENCE, meeting).await.unwrap_or_else(|_| late())?;
        let mut meeting = self.lock();
        meeting.introduction = Some(introduction.clone());
        if std::mem::replace(&mut meeting.was_met, true) {
            // Another launch of it may have other tools.
            let changed =
                Bytes::from_static(br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
            match &self.peer {
                Peer::Http(http) => http.tell(&changed),
                Peer::Sse(sse) => sse.switchboard().tell(&changed),
            }
        }
        Ok(introduction)
    }

    async fn relay(&self, id: &RawValue, method: &str, params: Params<'_>) -> Asked {
        let unsent = |why: String| {
            let what = format!("cannot reach {}: {why}; the request was not sent", self.url);
            Asked::Error(RpcError::new(code::UNWELL, what))
        };
        if let Err(why) = self.meet().await {
            return unsent(why);
        }
        let mut fault = match self.call(id, method, params.clone()).await {
            Ok(asked) => return asked,
            Err(fault) => fault,
        };
        if matches!(fault, Fault::Forgotten) {
            self.lock().introduction = None;
            if let Err(why) = self.meet().await {
                return unsent(why);
            }
            // It has refused the request for want of a session: it has not begun to work on it.
            match self.call(id, method, params).await {
                Ok(asked) => return asked,
                Err(again) => fault = again,
            }
        }
        Asked::Error(match fault {
            Fault::Rpc(error) => error,
            Fault::Lost(why) => RpcError::new(code::UNWELL, format!("{}: {why}", self.url)),
            Fault::Forgotten => {
                RpcError::new(code::INTERNAL, format!("{} forgets its sessions at once", self.url))
            }
        })
    }

    async fn call(&self, id: &RawValue, method: &str, params: Params<'_>) -> Result<Asked, Fault> {
        match &self.peer {
            Peer::Http(http) => http.call(id, method, params).await,
            // Whole, for it may have to be marked.
            Peer::Sse(sse) if method == "tools/list" => {
                sse.switchboard().request(method, params).await.map(Asked::Result).map_err(Fault::Rpc)
            }
            Peer::Sse(sse) => {
                let (line, mut heard) =
                    sse.switchboard().call(id, method, params).await.map_err(Fault::Rpc)?;
                match heard.recv().await {
                    Some(answer) if line.is_over() && heard.is_empty() => Ok(Asked::Message(answer)),
                    Some(first) => Ok(Asked::Stream { first, hearing: Hearing { heard, _line: Some(line) } }),
                    None => Err(Fault::Lost("its stream has ended".into())),
                }
            }
        }
    }

    /// Whether the server is there.
    async fn ping(&self) -> Result<Box<RawValue>, RpcError> {
        let was_apart = self.lock().introduction.is_none();
        let mut alive = self.meet().await.map(drop);
        if alive.is_ok() && !was_apart {
            let pinging = async {
                match &self.peer {
                    Peer::Http(http) => http.ping(PATIENCE).await,
                    Peer::Sse(sse) => sse
                        .switchboard()
                        .request("ping", Params::default())
                        .await
                        .map(drop)
                        .map_err(Fault::Rpc),
                }
            };
            let late =
                || Err(Fault::Lost(format!("it does not answer a ping within {} s", PATIENCE.as_secs())));
            match timeout(PATIENCE, pinging).await.unwrap_or_else(|_| late()) {
                // Whatever it says, it answers.
                Ok(()) | Err(Fault::Rpc(_)) => {}
                Err(Fault::Forgotten) => {
                    self.lock().introduction = None;
                    alive = self.meet().await.map(drop);
                }
                Err(Fault::Lost(why)) => {
                    self.lock().introduction = None;
                    alive = Err(why);
                }
            }
        }
        match alive {
            Ok(()) => {
                to_raw_value(&json!({})).map_err(|error| RpcError::new(code::INTERNAL, error.to_string()))
            }
            Err(why) => Err(RpcError::new(code::UNWELL, format!("cannot reach {}: {why}", self.url))),
        }
    }

    async fn is_known(&self) -> Known {
        let is_told = self.lock().is_told;
        match (self.meet().await, is_told) {
            (Ok(_), true) => Known::AsItIs,
            (Ok(_), false) => Known::Otherwise,
            // What the hall knows of its tools may hold again.
            (Err(_), true) => Known::AsItIs,
            (Err(_), false) => Known::NotYet,
        }
    }

    fn is_gone(&self) -> bool {
        match &self.peer {
            Peer::Http(_) => false,
            Peer::Sse(sse) => sse.is_gone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Meeting> {
        self.meeting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How the hall knows the server.
enum Known {
    AsItIs,
    /// The hall was told what the manifest says, and can be told better now.
    Otherwise,
    /// It cannot be reached.
    NotYet,
}
