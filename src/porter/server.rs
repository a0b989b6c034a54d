//! The porter's port: HTTP and the envelope of JSON-RPC, as much as the hall needs.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use super::body::{Said, empty, events, json, text};
use super::service::{Asked, Service};
use crate::mcp::terms::code;
use crate::mcp::{Malformed, Message, Outcome, Response as Reply, RpcError};

/// What the hall may ask at once is smaller; bytes.
const LARGEST_REQUEST: usize = 8 * 1024 * 1024;
/// A request that was begun is to be whole within this time.
const BODY: Duration = Duration::from_secs(30);
/// When descriptors are short, some become free meanwhile.
const BREATH: Duration = Duration::from_millis(50);
/// Where MCP is spoken.
const PATH: &str = "/mcp";

#[derive(Clone)]
pub(super) struct Server {
    service: Arc<Service>,
}

impl Server {
    pub(super) fn new(service: Arc<Service>) -> Self {
        Self { service }
    }

    /// Never returns.
    pub(super) async fn serve(&self, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => drop(tokio::spawn(self.clone().converse(stream))),
                Err(_) => sleep(BREATH).await,
            }
        }
    }

    /// One connection. A client that hangs up drops what it has asked for.
    async fn converse(self, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let answering = service_fn(|request| async { Ok::<_, Infallible>(self.answer(request).await) });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new());
        let _ = http.serve_connection(TokioIo::new(stream), answering).await;
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Said> {
        if request.uri().path() != PATH {
            return text(StatusCode::NOT_FOUND, format!("MCP is spoken at {PATH}\n"));
        }
        match *request.method() {
            Method::POST => self.post(request.into_body()).await,
            Method::GET => match self.service.overhear() {
                Some(hearing) => events(None, hearing),
                None => empty(StatusCode::METHOD_NOT_ALLOWED),
            },
            // There are no sessions.
            _ => empty(StatusCode::METHOD_NOT_ALLOWED),
        }
    }

    async fn post(&self, body: Incoming) -> Response<Said> {
        let body = match timeout(BODY, Limited::new(body, LARGEST_REQUEST).collect()).await {
            Ok(Ok(body)) => body.to_bytes(),
            _ => return text(StatusCode::BAD_REQUEST, "the request is too large, or does not come\n"),
        };
        let (id, method, params) = match Message::read(&body) {
            Ok(Message::Request { id, method, params }) => (id, method, params),
            Ok(Message::Notification { method, params }) => {
                self.service.note(&method, params).await;
                return empty(StatusCode::ACCEPTED);
            }
            Ok(Message::Response { id, outcome }) => {
                self.service.answered(&id, outcome).await;
                return empty(StatusCode::ACCEPTED);
            }
            Err(Malformed { id, error }) => return refuse(id.as_deref().unwrap_or(RawValue::NULL), &error),
        };
        match self.service.ask(&id, &method, params).await {
            Asked::Result(result) => answer(&id, Outcome::Result(&result)),
            Asked::Error(error) => answer(&id, Outcome::Error(&error)),
            Asked::Message(message) => json(StatusCode::OK, message),
            Asked::Stream { first, hearing } => events(Some(first), hearing),
            Asked::Again(why) => text(StatusCode::CONFLICT, why),
        }
    }
}

fn answer(id: &RawValue, outcome: Outcome) -> Response<Said> {
    json(StatusCode::OK, message(&Reply { jsonrpc: "2.0", id, outcome }))
}

/// A message that is none.
fn refuse(id: &RawValue, error: &RpcError) -> Response<Said> {
    let status = if error.code == code::INVALID_PARAMS { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    json(status, message(&Reply { jsonrpc: "2.0", id, outcome: Outcome::Error(error) }))
}

fn message(reply: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(reply).unwrap_or_default()
}
