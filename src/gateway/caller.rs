//! Who asks, as far as a call has to know: which era it speaks, what it can be asked in return.

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::session::Session;
use super::visitor::Visitor;
use crate::mcp::Params;
use crate::mcp::terms::{META_CAPABILITIES, META_CLIENT};

#[derive(Clone)]
pub(super) struct Caller {
    pub(super) era: Era,
    pub(super) capabilities: Arc<Capabilities>,
    /// Name and version, for the audit log.
    pub(super) name: String,
}

#[derive(Clone)]
pub(super) enum Era {
    /// 2026-07-28: each request stands for itself.
    Stateless,
    /// 2024-11-05 to 2025-11-25.
    Session(Arc<Visitor>),
}

/// What a client has declared.
#[derive(Debug)]
pub(super) struct Capabilities {
    pub(super) text: Box<RawValue>,
    known: Map<String, Value>,
}

impl Capabilities {
    pub(super) fn of(text: &RawValue) -> Self {
        let known = serde_json::from_str(text.get()).unwrap_or_default();
        Self { text: text.to_owned(), known }
    }

    /// Whether a request of a member may be passed to the client.
    pub(super) fn allow(&self, method: &str) -> bool {
        capability_for(method).is_some_and(|name| self.known.get(name).is_some_and(Value::is_object))
    }

    /// A member may have reason to ask something.
    pub(super) fn are_any(&self) -> bool {
        ["sampling", "elicitation", "roots"].iter().any(|name| self.known.contains_key(*name))
    }
}

/// What a client must have declared to be asked this.
pub(super) fn capability_for(method: &str) -> Option<&'static str> {
    match method {
        "sampling/createMessage" => Some("sampling"),
        "elicitation/create" => Some("elicitation"),
        "roots/list" => Some("roots"),
        _ => None,
    }
}

impl Caller {
    pub(super) fn of_session(session: &Session, visitor: Arc<Visitor>) -> Self {
        Self {
            era: Era::Session(visitor),
            capabilities: Capabilities::of(&session.capabilities).into(),
            name: session.client.clone(),
        }
    }

    /// `None` if the request does not say what it must.
    pub(super) fn of_request(params: &Params) -> Option<Self> {
        let meta = params.object("_meta")?;
        let capabilities = Capabilities::of(meta.get(META_CAPABILITIES)?).into();
        let name = meta.get(META_CLIENT).map(client_name).unwrap_or_default();
        Some(Self { era: Era::Stateless, capabilities, name })
    }

    pub(super) fn is_stateless(&self) -> bool {
        matches!(self.era, Era::Stateless)
    }
}

/// `name/version` of a `clientInfo`.
pub(super) fn client_name(info: &RawValue) -> String {
    const LONGEST: usize = 80;
    let info: Value = serde_json::from_str(info.get()).unwrap_or_default();
    let text = |field: &str| info.get(field).and_then(Value::as_str).unwrap_or("?").to_owned();
    format!("{}/{}", text("name"), text("version")).chars().take(LONGEST).collect()
}
