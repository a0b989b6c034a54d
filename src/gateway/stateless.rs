//! The revisions without sessions, 2026-07-28: each request says who asks and what it can be asked.

use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde_json::json;
use serde_json::value::RawValue;

use super::Gateway;
use super::answer::{accepted, error, error_with, refusal, result, status, whole};
use super::bridging::complete;
use super::caller::Caller;
use super::scope::Scope;
use crate::mcp::Message;
use crate::mcp::terms::{
    META_CAPABILITIES, META_PROTOCOL, META_SERVER, METHOD, NAME, PROTOCOL, STATELESS, code,
};
use crate::mcp::{Params, RpcError, excerpt, header_text};

impl Gateway {
    pub(super) async fn post_stateless(
        &self, scope: Scope, headers: &HeaderMap, message: Message<'_>,
    ) -> Response {
        let (id, method, params) = match message {
            Message::Request { id, method, params } => (id, method, params),
            Message::Notification { .. } => return accepted(),
            Message::Response { .. } => {
                let what = "nothing was asked: in this revision a client answers with its next request";
                return refusal(StatusCode::BAD_REQUEST, error(code::INVALID_REQUEST, what));
            }
        };
        if let Err(error) = agree(headers, &method, &params) {
            return whole(StatusCode::BAD_REQUEST, &id, &Err(error));
        }
        let Some(caller) = Caller::of_request(&params) else {
            let what = format!("params._meta lacks {META_CAPABILITIES}");
            return whole(StatusCode::BAD_REQUEST, &id, &Err(error(code::INVALID_PARAMS, what)));
        };
        match &*method {
            "server/discover" => self.discover(&scope, &id).await,
            "subscriptions/listen" => self.listen(scope, caller, id, &params).await,
            _ => self.answer(&scope, caller, &id, &method, params, headers).await,
        }
    }

    async fn discover(&self, scope: &Scope, id: &RawValue) -> Response {
        self.until_ready(scope).await;
        let (info, instructions) = self.introduction(scope);
        let mut said = Params::default()
            .with("supportedVersions", &[STATELESS])
            .with("capabilities", &self.capabilities(scope, true))
            .with("_meta", &json!({META_SERVER: info}));
        if let Some(instructions) = instructions {
            said.set("instructions", &instructions);
        }
        let answer = result(&said).map(|said| complete(said, "server/discover"));
        whole(status(&answer), id, &answer)
    }
}

/// Whether the headers say what the body says, and in a revision that is spoken here.
fn agree(headers: &HeaderMap, method: &str, params: &Params) -> Result<(), RpcError> {
    let mismatch = |what: String| Err(error(code::HEADER_MISMATCH, what));
    let text = |name| headers.get(name).and_then(header_text);
    let Some(protocol) = text(PROTOCOL) else {
        return mismatch("the header MCP-Protocol-Version is missing".into());
    };
    let meta = params.object("_meta").unwrap_or_default();
    let missing: Vec<&str> =
        [META_PROTOCOL, META_CAPABILITIES].into_iter().filter(|key| meta.get(key).is_none()).collect();
    if !missing.is_empty() {
        return Err(error(code::INVALID_PARAMS, format!("params._meta lacks {}", missing.join(", "))));
    }
    if meta.text(META_PROTOCOL).is_none_or(|said| said != protocol) {
        return mismatch(format!("MCP-Protocol-Version says {protocol:?}, and {META_PROTOCOL} does not"));
    }
    if protocol != STATELESS {
        let data = json!({"supported": [STATELESS], "requested": protocol});
        let what = format!("the revision {} is not spoken here", excerpt(protocol.as_bytes()));
        return Err(error_with(code::UNSUPPORTED_VERSION, what, &data));
    }
    if text(METHOD).is_none_or(|said| said != method) {
        return mismatch(format!("the header Mcp-Method does not say {method:?}"));
    }
    let named = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        _ => return Ok(()),
    };
    let name = params.text(named);
    if name.is_some() && text(NAME) != name {
        return mismatch(format!("the header Mcp-Name does not say what params.{named} says"));
    }
    Ok(())
}
