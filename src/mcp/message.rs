//! One message of a client, read only as far as it has to be routed.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::params::Params;
use super::terms::code;
use super::wire::RpcError;

/// See the module's page.
#[derive(Debug)]
pub enum Message<'a> {
    Request {
        id: Box<RawValue>,
        method: String,
        params: Params<'a>,
    },
    Notification {
        method: String,
        params: Params<'a>,
    },
    /// The answer to what a member has asked through us.
    Response {
        id: String,
        outcome: Result<Box<RawValue>, RpcError>,
    },
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: Option<String>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<RpcError>,
}

/// What is wrong with a message, and the id under which to say so, if it has one.
#[derive(Debug)]
pub struct Malformed {
    pub id: Option<Box<RawValue>>,
    pub error: RpcError,
}

impl<'a> Message<'a> {
    pub fn read(text: &'a [u8]) -> Result<Self, Malformed> {
        let malformed = |code, what: String| Malformed { id: None, error: RpcError::new(code, what) };
        let envelope: Envelope = serde_json::from_slice(text).map_err(|error| {
            let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
            match error.classify() {
                serde_json::error::Category::Data if first == Some(&b'[') => malformed(
                    code::INVALID_REQUEST,
                    "batches of messages are not taken: send them one by one".into(),
                ),
                serde_json::error::Category::Data => {
                    malformed(code::INVALID_REQUEST, format!("this is no JSON-RPC message: {error}"))
                }
                _ => malformed(code::PARSE, format!("this is no JSON: {error}")),
            }
        })?;
        let id = envelope.id.filter(|id| id.get() != "null").map(ToOwned::to_owned);
        let Some(method) = envelope.method else {
            let id =
                id.ok_or_else(|| malformed(code::INVALID_REQUEST, "a message has a method or an id".into()))?;
            let outcome = match (envelope.result, envelope.error) {
                (_, Some(error)) => Err(error),
                (Some(result), None) => Ok(result.to_owned()),
                (None, None) => {
                    return Err(malformed(
                        code::INVALID_REQUEST,
                        "a message has a method, a result or an error".into(),
                    ));
                }
            };
            let id = serde_json::from_str(id.get()).unwrap_or_else(|_| id.get().to_owned());
            return Ok(Self::Response { id, outcome });
        };
        if id.as_ref().is_some_and(|id| id.get().starts_with(['{', '[', 't', 'f'])) {
            return Err(malformed(code::INVALID_REQUEST, "the id of a request is a text or a number".into()));
        }
        let params = match envelope.params {
            None => Params::default(),
            Some(params) => Params::read(params).map_err(|error| Malformed {
                id: id.clone(),
                error: RpcError::new(code::INVALID_PARAMS, format!("params cannot be read: {error}")),
            })?,
        };
        Ok(match id {
            Some(id) => Self::Request { id, method, params },
            None => Self::Notification { method, params },
        })
    }
}
