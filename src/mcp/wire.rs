//! JSON-RPC 2.0 as MCP uses it. Results stay raw: what a member answers is passed on, not understood.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A request, or without `id` a notification.
#[derive(Debug, Serialize)]
pub(super) struct Request<'a, P> {
    pub(super) jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<u64>,
    pub(super) method: &'a str,
    pub(super) params: P,
}

/// The answer to a request, in either direction.
#[derive(Debug, Serialize)]
pub struct Response<'a> {
    pub jsonrpc: &'static str,
    pub id: &'a RawValue,
    #[serde(flatten)]
    pub outcome: Outcome<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome<'a> {
    Result(&'a RawValue),
    Error(&'a RpcError),
}

/// Any message that a member may send; only a response has a result or an error.
#[derive(Debug, Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<RpcError>,
    #[serde(default)]
    method: Option<String>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

/// JSON-RPC's error object.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RpcError {
    #[serde(default)]
    pub code: i64,
    #[serde(default)]
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
}

impl RpcError {
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }
}

/// What one message is to somebody who waits for the answer to `id`.
#[derive(Debug)]
pub enum Heard {
    Result(Box<RawValue>),
    Error(RpcError),
    /// The member asks something of the client.
    Request {
        id: Box<RawValue>,
        method: String,
        params: Option<Box<RawValue>>,
    },
    Notification {
        method: String,
        params: Option<Box<RawValue>>,
    },
}

impl Heard {
    /// Reads one message. `id` is the request that it should answer, if it may be an answer at all.
    pub(super) fn read(text: &[u8], id: Option<u64>) -> Result<Self, String> {
        let message: Message = serde_json::from_slice(text)
            .map_err(|error| format!("its answer is no JSON-RPC message ({error}): {}", excerpt(text)))?;
        if let Some(method) = message.method {
            let params = message.params.map(ToOwned::to_owned);
            return Ok(match message.id {
                Some(id) => Self::Request { id: id.to_owned(), method, params },
                None => Self::Notification { method, params },
            });
        }
        let answered = message.id.map(RawValue::get).unwrap_or_default();
        // Some servers answer an error without an id, or turn a number into a text.
        let ours = id.is_some_and(|id| {
            answered.trim_matches('"') == id.to_string()
                || (message.error.is_some() && matches!(answered, "" | "null"))
        });
        match (message.result, message.error) {
            _ if !ours && answered.is_empty() => {
                Err(format!("its answer is no JSON-RPC response: {}", excerpt(text)))
            }
            _ if !ours => {
                let asked = id.map_or_else(|| "nothing".into(), |id| id.to_string());
                Err(format!("it answered request {}, and was asked {asked}", excerpt(answered.as_bytes())))
            }
            (_, Some(error)) => Ok(Self::Error(error)),
            (Some(result), None) => Ok(Self::Result(result.to_owned())),
            (None, None) => Err(format!("its answer has neither result nor error: {}", excerpt(text))),
        }
    }
}

/// The beginning of what a member sent, safe to print.
pub fn excerpt(text: &[u8]) -> String {
    beginning(text, 120)
}

/// The first `longest` characters, safe to print.
pub(super) fn beginning(text: &[u8], longest: usize) -> String {
    let start = String::from_utf8_lossy(text.get(..longest * 4).unwrap_or(text)).into_owned();
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let mut short: String = start.trim().chars().map(printable).take(longest).collect();
    if start.chars().count() > longest || text.len() > longest * 4 {
        short.push('…');
    }
    if short.is_empty() { "(nothing)".into() } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_read_whatever_form_its_id_has() {
        let read = |text: &str| Heard::read(text.as_bytes(), Some(7));
        assert!(matches!(read(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#), Ok(Heard::Result(_))));
        assert!(read(r#"{"id":"7","result":null}"#).is_err(), "null is no result");
        assert!(matches!(read(r#"{"id":"7","result":[]}"#), Ok(Heard::Result(_))));
        assert!(matches!(read(r#"{"id":null,"error":{"code":1,"message":"no"}}"#), Ok(Heard::Error(_))));
        assert!(matches!(read(r#"{"method":"m","params":{}}"#), Ok(Heard::Notification { .. })));
        assert!(matches!(read(r#"{"method":"m","id":7}"#), Ok(Heard::Request { .. })));
        for nonsense in ["{}", "[]", "<html>", "", r#"{"id":8,"result":{}}"#, r#"{"id":7}"#] {
            assert!(read(nonsense).is_err(), "{nonsense:?}");
        }
    }

    #[test]
    fn an_excerpt_cannot_steer_a_terminal() {
        assert_eq!(excerpt(b"a\x1b[31m\nb"), "a [31m b");
        assert_eq!(excerpt(&[b'x'; 1000]).chars().count(), 121);
        assert_eq!(excerpt(b""), "(nothing)");
    }
}
