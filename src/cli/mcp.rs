//! `mcp`: the gateway over stdin and stdout, for clients that start their servers. Each line is a message;
//! what it asks is posted to the hall, and what comes back is printed as it comes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Stdout};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use super::{Failed, Target};
use crate::control::{Client, ClientError};
use crate::mcp::terms::{META_PROTOCOL, METHOD, NAME, OVER_STDIO, PROTOCOL, SESSION_ID, code};
use crate::mcp::{RpcError, header_value};

/// Speak MCP over stdin and stdout, with the tools of every member
///
/// For clients that start their servers themselves; `guild-hall connect` prints their configuration. The hall
/// has to run already. A hall that is restarted is waited for: the client does not notice.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  guild-hall mcp\n  guild-hall mcp --member toolbox/clock\n  npx @modelcontextprotocol/inspector guild-hall mcp"
)]
pub(super) struct Mcp {
    /// One member alone, its tools under their own names
    #[arg(long, value_name = "NAME")]
    member: Option<String>,
    #[command(flatten)]
    target: Target,
}

/// A hall that is being restarted is waited for this long.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Messages that are under way at a time; a client that sends more waits.
const AT_ONCE: usize = 256;
/// After the client has hung up, what is under way has this long.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What of a message is needed to post it.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    params: Option<Value>,
}

struct Bridge {
    client: Client,
    path: String,
    /// The session id, once there is one, and the revision.
    session: Mutex<(Option<String>, Option<String>)>,
    out: tokio::sync::Mutex<Stdout>,
    /// What can be cancelled: stateless requests, by id.
    under_way: Mutex<HashMap<String, AbortHandle>>,
}

impl Mcp {
    pub(super) async fn execute(self) -> Result<(), Failed> {
        let path = match &self.member {
            Some(member) => format!("/mcp/{}", Client::segment(member)),
            None => "/mcp".into(),
        };
        let client = self.target.client();
        // Better now than at the first request: a client shows what is printed before it begins.
        let _: Value = client.get("/v1/roster").await?;
        if let Some(member) = &self.member {
            let _: Value = client.get(&format!("/v1/roster/{}", Client::segment(member))).await?;
        }
        let bridge = Arc::new(Bridge {
            client,
            path,
            session: Mutex::default(),
            out: tokio::sync::Mutex::new(tokio::io::stdout()),
            under_way: Mutex::default(),
        });
        let mut posting = JoinSet::new();
        let places = Arc::new(Semaphore::new(AT_ONCE));
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        let mut listening: Option<AbortHandle> = None;
        while let Some(line) =
            lines.next_line().await.map_err(|error| Failed::new(format!("cannot read stdin: {error}")))?
        {
            while posting.try_join_next().is_some() {}
            if line.trim().is_empty() {
                continue;
            }
            let Ok(envelope) = serde_json::from_str::<Envelope>(&line) else {
                bridge.refuse(None, code::PARSE, "this is no JSON-RPC message").await;
                continue;
            };
            if envelope.method.as_deref() == Some("notifications/cancelled")
                && bridge.cancel(envelope.params.as_ref())
            {
                continue;
            }
            // What follows needs the session; and everyone waits for the first answer anyway.
            if envelope.method.as_deref() == Some("initialize") {
                bridge.post(&line).await;
                continue;
            }
            let is_first_word = envelope.method.as_deref() == Some("notifications/initialized");
            let stateless_id =
                envelope.id.filter(|_| is_stateless(envelope.params.as_ref())).map(|id| id.get().to_owned());
            let place = places.clone().acquire_owned().await;
            let (bridge_, line_) = (bridge.clone(), line.clone());
            let id = stateless_id.clone();
            let task = posting.spawn(async move {
                bridge_.post(&line_).await;
                if let Some(id) = id {
                    bridge_.under_way().remove(&id);
                }
                drop(place);
            });
            if let Some(id) = stateless_id {
                bridge.under_way().insert(id, task);
            }
            if is_first_word && listening.is_none() {
                let bridge = bridge.clone();
                listening = Some(tokio::spawn(async move { bridge.listen().await }).abort_handle());
            }
        }
        let _ = timeout(LAST_WORDS, async { while posting.join_next().await.is_some() {} }).await;
        posting.abort_all();
        if let Some(listening) = listening {
            listening.abort();
        }
        bridge.end().await;
        Ok(())
    }
}

impl Bridge {
    /// Posts one message and prints all that is answered.
    async fn post(&self, line: &str) {
        let envelope: Option<Envelope> = serde_json::from_str(line).ok();
        let id = envelope.as_ref().and_then(|envelope| envelope.id).map(ToOwned::to_owned);
        let headers = self.headers(envelope.as_ref());
        let begun = Instant::now();
        let mut response = loop {
            match self.client.exchange(hyper::Method::POST, &self.path, &headers, line.to_owned()).await {
                // Nobody was there to hear it: it can be sent to the next hall.
                Err(ClientError::NoHall { .. }) if begun.elapsed() < PATIENCE => sleep(LOOK_AGAIN).await,
                Err(error) => {
                    if let Some(id) = id {
                        let what = format!("{error}; the request may have been carried out");
                        self.refuse(Some(&id), code::INTERNAL, &what).await;
                    }
                    return;
                }
                Ok(response) => break response,
            }
        };
        if envelope.and_then(|envelope| envelope.method).as_deref() == Some("initialize") {
            let id = response.header(SESSION_ID.as_str()).map(ToOwned::to_owned);
            self.session().0 = id;
        }
        let answered = self.print(&mut response).await;
        if let Some(id) = id.filter(|_| !answered) {
            self.refuse(
                Some(&id),
                code::INTERNAL,
                "the hall broke off before it had answered; the request may have been carried out",
            )
            .await;
        }
    }

    /// Prints messages as they come; true if one of them was an answer.
    async fn print(&self, response: &mut crate::control::Streamed) -> bool {
        let is_stream =
            response.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        let mut answered = false;
        let mut events = crate::mcp::Events::default();
        let mut whole = Vec::new();
        while let Some(piece) = response.next().await {
            if !is_stream {
                whole.extend_from_slice(&piece);
                continue;
            }
            let mut messages = Vec::new();
            events.feed(&piece, |data| {
                messages.push(data.to_vec());
                true
            });
            for message in messages {
                answered |= self.say(&message).await;
            }
        }
        // One that was broken off is no answer.
        if serde_json::from_slice::<&RawValue>(&whole).is_ok() {
            answered |= self.say(&whole).await;
        }
        answered
    }

    /// True if it was an answer.
    async fn say(&self, message: &[u8]) -> bool {
        #[derive(Deserialize)]
        struct Said {
            #[serde(default)]
            method: Option<Value>,
            #[serde(default)]
            result: Option<Settled>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Settled {
            #[serde(default)]
            protocol_version: Option<String>,
        }
        let said: Option<Said> = serde_json::from_slice(message).ok();
        let is_answer = said.as_ref().is_none_or(|said| said.method.is_none());
        if let Some(protocol) = said.and_then(|said| said.result).and_then(|settled| settled.protocol_version)
        {
            self.session().1 = Some(protocol);
        }
        // One line a message, whatever breaks the member has put into it.
        let mut line: Vec<u8> =
            message.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect();
        line.push(b'\n');
        let mut out = self.out.lock().await;
        // A client that is gone closes stdin as well.
        let _ = out.write_all(&line).await;
        let _ = out.flush().await;
        is_answer
    }

    async fn refuse(&self, id: Option<&RawValue>, code: i64, what: &str) {
        #[derive(serde::Serialize)]
        struct Refused<'a> {
            jsonrpc: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            id: Option<&'a RawValue>,
            error: RpcError,
        }
        let refused = Refused { jsonrpc: "2.0", id, error: RpcError::new(code, what) };
        self.say(&serde_json::to_vec(&refused).unwrap_or_default()).await;
    }

    /// The stream of the session, asked for again when a hall is restarted.
    async fn listen(&self) {
        loop {
            let headers = self.headers(None);
            if let Ok(mut response) =
                self.client.exchange(hyper::Method::GET, &self.path, &headers, String::new()).await
            {
                self.print(&mut response).await;
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    async fn end(&self) {
        let headers = self.headers(None);
        if self.session().0.is_some() {
            let _ = timeout(
                LAST_WORDS,
                self.client.exchange(hyper::Method::DELETE, &self.path, &headers, String::new()),
            )
            .await;
        }
    }

    /// A stateless request is cancelled by hanging up.
    fn cancel(&self, params: Option<&Value>) -> bool {
        let id = params.and_then(|params| params.get("requestId")).map(Value::to_string);
        let task = id.and_then(|id| self.under_way().remove(&id));
        task.inspect(AbortHandle::abort).is_some()
    }

    /// What goes with a message: of the session, or of the message itself.
    fn headers(
        &self, envelope: Option<&Envelope>,
    ) -> Vec<(hyper::header::HeaderName, hyper::header::HeaderValue)> {
        let mut headers = vec![(
            hyper::header::ACCEPT,
            hyper::header::HeaderValue::from_static("application/json, text/event-stream"),
        )];
        let params = envelope.and_then(|envelope| envelope.params.as_ref());
        let protocol = params
            .and_then(|params| params.pointer("/_meta"))
            .and_then(|meta| meta.get(META_PROTOCOL))
            .and_then(Value::as_str);
        if let (Some(protocol), Some(envelope)) = (protocol, envelope) {
            headers.push((PROTOCOL, header_value(protocol)));
            headers.push((OVER_STDIO, header_value("1")));
            if let Some(method) = &envelope.method {
                headers.push((METHOD, header_value(method)));
                let field = if method == "resources/read" { "uri" } else { "name" };
                let names = matches!(&**method, "tools/call" | "prompts/get" | "resources/read");
                if let Some(name) =
                    params.and_then(|params| params.get(field)).and_then(Value::as_str).filter(|_| names)
                {
                    headers.push((NAME, header_value(name)));
                }
            }
            return headers;
        }
        let (id, protocol) = &*self.session();
        if let Some(id) = id {
            headers.push((SESSION_ID, header_value(id)));
        }
        if let Some(protocol) = protocol {
            headers.push((PROTOCOL, header_value(protocol)));
        }
        headers
    }

    fn session(&self) -> MutexGuard<'_, (Option<String>, Option<String>)> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<String, AbortHandle>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_stateless(params: Option<&Value>) -> bool {
    params.and_then(|params| params.pointer("/_meta")).is_some_and(|meta| meta.get(META_PROTOCOL).is_some())
}
