//! What a client is answered: a JSON-RPC message as the body, or as the last event of a stream.

use std::io;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use futures_util::stream::Stream;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::mcp::terms::code;
use crate::mcp::{Outcome, Response as Reply, RpcError};

/// Result or error of one request.
pub(super) type Answer = Result<Box<RawValue>, RpcError>;

/// Any value as a result.
pub(super) fn result(value: &impl Serialize) -> Answer {
    serde_json::value::to_raw_value(value)
        .map_err(|error| RpcError::new(code::INTERNAL, format!("the answer cannot be written: {error}")))
}

pub(super) fn error(code: i64, message: impl Into<String>) -> RpcError {
    RpcError::new(code, message)
}

pub(super) fn error_with(code: i64, message: impl Into<String>, data: &impl Serialize) -> RpcError {
    RpcError { data: serde_json::value::to_raw_value(data).ok(), ..RpcError::new(code, message) }
}

/// The answer as a message.
pub(super) fn message(id: &RawValue, answer: &Answer) -> Vec<u8> {
    if let Ok(result) = answer {
        // Most of what passes: put together rather than written anew.
        return concat(&[ENVELOPE, id.get().as_bytes(), RESULT, result.get().as_bytes(), b"}"]);
    }
    let outcome = match answer {
        Ok(result) => Outcome::Result(result),
        Err(error) => Outcome::Error(error),
    };
    serde_json::to_vec(&Reply { jsonrpc: "2.0", id, outcome }).unwrap_or_default()
}

const ENVELOPE: &[u8] = br#"{"jsonrpc":"2.0","id":"#;
const RESULT: &[u8] = br#","result":"#;

/// The beginning of a message, up to the beginning of its result.
pub(super) fn begin(id: &RawValue, beginning: &[u8], as_event: bool) -> Bytes {
    let head = if as_event { HEAD } else { b"" };
    concat(&[head, ENVELOPE, id.get().as_bytes(), RESULT, beginning]).into()
}

fn concat(parts: &[&[u8]]) -> Vec<u8> {
    let mut text = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
    for part in parts {
        text.extend_from_slice(part);
    }
    text
}

/// A notification or request to the client.
pub(super) fn to_client(id: Option<&str>, method: &str, params: Option<&RawValue>) -> Bytes {
    #[derive(Serialize)]
    struct Said<'a> {
        jsonrpc: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'a str>,
        method: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        params: Option<&'a RawValue>,
    }
    serde_json::to_vec(&Said { jsonrpc: "2.0", id, method, params }).unwrap_or_default().into()
}

/// As the whole body.
pub(super) fn whole(status: StatusCode, id: &RawValue, answer: &Answer) -> Response {
    json(status, message(id, answer))
}

pub(super) fn json(status: StatusCode, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An error that is about no request that could be named.
pub(super) fn refusal(status: StatusCode, error: RpcError) -> Response {
    #[derive(Serialize)]
    struct Refused {
        jsonrpc: &'static str,
        error: RpcError,
    }
    json(status, serde_json::to_vec(&Refused { jsonrpc: "2.0", error }).unwrap_or_default())
}

pub(super) fn accepted() -> Response {
    StatusCode::ACCEPTED.into_response()
}

/// The status that goes with an answer in the stateless revisions; with sessions it is always 200.
pub(super) fn status(answer: &Answer) -> StatusCode {
    match answer {
        Err(RpcError { code: code::NO_SUCH_METHOD, .. }) => StatusCode::NOT_FOUND,
        Err(RpcError {
            code: code::HEADER_MISMATCH | code::MISSING_CAPABILITY | code::UNSUPPORTED_VERSION,
            ..
        }) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// Messages as they come, each an event.
pub(super) fn events(messages: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    event_stream(messages.map(|message| Ok(frame(&message))))
}

/// Events that are written already.
pub(super) fn event_stream(events: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Response {
    let mut response = Response::new(Body::from_stream(events));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Begins each event.
const HEAD: &[u8] = b"event: message\ndata: ";

/// An event of a stream. In JSON a line break can only stand between two parts, where a space will do.
pub(super) fn frame(message: &[u8]) -> Bytes {
    if message.is_empty() {
        // A comment: it says that the stream is alive.
        return Bytes::from_static(b":\n\n");
    }
    let mut frame = Vec::with_capacity(HEAD.len() + message.len() + 2);
    frame.extend_from_slice(HEAD);
    frame.extend(message.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }));
    frame.extend_from_slice(b"\n\n");
    frame.into()
}
