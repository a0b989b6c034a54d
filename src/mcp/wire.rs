//! JSON-RPC 2.0 as MCP uses it. Results stay raw: what a member answers is passed on, not understood.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The revision that is offered; the newest of those with `initialize`.
pub(super) const PROTOCOL_VERSION: &str = "2025-11-25";

/// A request, or without `id` a notification.
#[derive(Debug, Serialize)]
pub(super) struct Request<'a, P> {
    pub(super) jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<u64>,
    pub(super) method: &'a str,
    pub(super) params: P,
}

/// Any message that a member may send; only a response has a result or an error.
#[derive(Debug, Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<RpcError>,
    #[serde(borrow, default)]
    method: Option<&'a RawValue>,
}

/// JSON-RPC's error object.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RpcError {
    #[serde(default)]
    pub code: i64,
    #[serde(default)]
    pub message: String,
}

/// What one message is to somebody who waits for the answer to `id`.
#[derive(Debug)]
pub(super) enum Reply {
    Result(Box<RawValue>),
    Error(RpcError),
    /// A notification or request of the member's own: not the answer.
    Other,
    /// Not a message that could be sent here; with what is wrong.
    Nonsense(String),
}

impl Reply {
    /// Reads one message. `id` is the request that it should answer.
    pub(super) fn read(text: &[u8], id: u64) -> Self {
        let message: Message = match serde_json::from_slice(text) {
            Ok(message) => message,
            Err(error) => {
                return Self::Nonsense(format!(
                    "its answer is no JSON-RPC message ({error}): {}",
                    excerpt(text)
                ));
            }
        };
        if message.method.is_some() {
            return Self::Other;
        }
        let answered = message.id.map(RawValue::get).unwrap_or_default();
        // Some servers answer an error without an id, or turn a number into a text.
        let ours = answered.trim_matches('"') == id.to_string()
            || (message.error.is_some() && matches!(answered, "" | "null"));
        match (message.result, message.error) {
            _ if !ours && answered.is_empty() => {
                Self::Nonsense(format!("its answer is no JSON-RPC response: {}", excerpt(text)))
            }
            _ if !ours => Self::Nonsense(format!(
                "it answered request {}, and was asked {id}",
                excerpt(answered.as_bytes())
            )),
            (_, Some(error)) => Self::Error(error),
            (Some(result), None) => Self::Result(result.to_owned()),
            (None, None) => {
                Self::Nonsense(format!("its answer has neither result nor error: {}", excerpt(text)))
            }
        }
    }
}

/// The beginning of what a member sent, safe to print.
pub(super) fn excerpt(text: &[u8]) -> String {
    const LONGEST: usize = 120;
    let start = String::from_utf8_lossy(text.get(..LONGEST * 4).unwrap_or(text)).into_owned();
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let mut short: String = start.trim().chars().map(printable).take(LONGEST).collect();
    if start.chars().count() > LONGEST || text.len() > LONGEST * 4 {
        short.push('…');
    }
    if short.is_empty() { "(nothing)".into() } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_read_whatever_form_its_id_has() {
        assert!(matches!(Reply::read(br#"{"jsonrpc":"2.0","id":7,"result":{}}"#, 7), Reply::Result(_)));
        assert!(
            matches!(Reply::read(br#"{"id":"7","result":null}"#, 7), Reply::Nonsense(_)),
            "null is no result"
        );
        assert!(matches!(Reply::read(br#"{"id":"7","result":[]}"#, 7), Reply::Result(_)));
        assert!(matches!(
            Reply::read(br#"{"id":null,"error":{"code":1,"message":"no"}}"#, 7),
            Reply::Error(_)
        ));
        assert!(matches!(
            Reply::read(br#"{"method":"notifications/progress","params":{}}"#, 7),
            Reply::Other
        ));
        for nonsense in [&b"{}"[..], b"[]", b"<html>", b"", br#"{"id":8,"result":{}}"#, br#"{"id":7}"#] {
            assert!(matches!(Reply::read(nonsense, 7), Reply::Nonsense(_)), "{nonsense:?}");
        }
    }

    #[test]
    fn an_excerpt_cannot_steer_a_terminal() {
        assert_eq!(excerpt(b"a\x1b[31m\nb"), "a [31m b");
        assert_eq!(excerpt(&[b'x'; 1000]).chars().count(), 121);
        assert_eq!(excerpt(b""), "(nothing)");
    }
}
