//! The revisions with `initialize`, 2024-11-05 to 2025-11-25.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::value::RawValue;

use super::answer::{accepted, error, refusal, result, whole};
use super::caller::{Caller, client_name};
use super::scope::Scope;
use super::session::Session;
use super::{Gateway, empty_object, listening};
use crate::mcp::Message;
use crate::mcp::terms::{PROTOCOL, REVISIONS, SESSION_ID, STATELESS, WITH_SESSIONS, code};
use crate::mcp::{Params, RpcError, excerpt};

impl Gateway {
    pub(super) async fn post_with_session(
        &self, scope: Scope, headers: &HeaderMap, message: Message<'_>,
    ) -> Response {
        if let Message::Request { id, method, params } = &message
            && method == "initialize"
        {
            return self.initialize(&scope, id, params).await;
        }
        let session = match self.session(headers) {
            Ok(session) => session,
            Err((status, error)) => return refusal(status, error),
        };
        let Some(visitor) = self.0.visitors.find(&session.key) else {
            let what = "too many clients have something under way; try again later";
            return refusal(StatusCode::SERVICE_UNAVAILABLE, error(code::INTERNAL, what));
        };
        match message {
            Message::Request { id, method, params } => {
                let caller = Caller::of_session(&session, visitor);
                self.answer(&scope, caller, &id, &method, params, headers).await
            }
            Message::Notification { method, params } => {
                match &*method {
                    "notifications/cancelled" => {
                        if let Some(id) = params.get("requestId") {
                            visitor.cancel(id);
                        }
                    }
                    "notifications/roots/list_changed" => {
                        for own in visitor.owns.all() {
                            tokio::spawn(async move {
                                own.link
                                    .notify(
                                        "notifications/roots/list_changed",
                                        Params::default(),
                                        listening::NOTIFICATION,
                                    )
                                    .await;
                            });
                        }
                    }
                    _ => {}
                }
                accepted()
            }
            Message::Response { id, outcome } => {
                visitor.answered(&id, outcome);
                accepted()
            }
        }
    }

    async fn initialize(&self, scope: &Scope, id: &RawValue, params: &Params<'_>) -> Response {
        // What members can do is known once they have shaken hands.
        self.until_ready(scope).await;
        let asked = params.text("protocolVersion").unwrap_or_default();
        let protocol = REVISIONS
            .into_iter()
            .find(|known| *known == asked && *known != STATELESS)
            .unwrap_or(WITH_SESSIONS);
        let nothing = empty_object();
        let capabilities = params.get("capabilities").unwrap_or(&nothing);
        let client = params.get("clientInfo").map(client_name).unwrap_or_default();
        let (session, session_id) = self.0.sessions.open(protocol, capabilities, client);
        if let Some(visitor) = self.0.visitors.find(&session.key) {
            visitor.begin();
        }
        let (info, instructions) = self.introduction(scope);
        let mut said = Params::default()
            .with("protocolVersion", protocol)
            .with("capabilities", &self.capabilities(scope, false))
            .with("serverInfo", &info);
        if let Some(instructions) = instructions {
            said.set("instructions", &instructions);
        }
        let mut response = whole(StatusCode::OK, id, &result(&said));
        if let Ok(value) = HeaderValue::from_str(&session_id) {
            response.headers_mut().insert(SESSION_ID, value);
        }
        response
    }

    /// The session that a request belongs to.
    fn session(&self, headers: &HeaderMap) -> Result<Arc<Session>, (StatusCode, RpcError)> {
        let bad = |status, what: String| (status, error(code::INVALID_REQUEST, what));
        if let Some(version) = headers.get(PROTOCOL)
            && !REVISIONS.iter().any(|known| known.as_bytes() == version.as_bytes())
        {
            let what = format!("the revision {} is not known here", excerpt(version.as_bytes()));
            return Err(bad(StatusCode::BAD_REQUEST, what));
        }
        let Some(id) = headers.get(SESSION_ID) else {
            let what =
                "Mcp-Session-Id is missing: send initialize first, and then the id that it answers with";
            return Err(bad(StatusCode::BAD_REQUEST, what.into()));
        };
        let session = id.to_str().ok().and_then(|id| self.0.sessions.find(id));
        session.ok_or_else(|| bad(StatusCode::NOT_FOUND, "there is no such session: send initialize".into()))
    }

    /// The stream of a session.
    pub(super) fn open_stream(&self, scope: Scope, headers: &HeaderMap) -> Response {
        let wants_events = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
        if headers.get(SESSION_ID).is_none()
            || !wants_events.is_some_and(|accept| accept.contains("text/event-stream"))
        {
            let what = "GET is for the event stream of a session: it needs Mcp-Session-Id and Accept: text/event-stream";
            return refusal(StatusCode::METHOD_NOT_ALLOWED, error(code::INVALID_REQUEST, what));
        }
        let session = match self.session(headers) {
            Ok(session) => session,
            Err((status, error)) => return refusal(status, error),
        };
        match self.0.visitors.find(&session.key) {
            Some(visitor) => self.stream_of(scope, visitor),
            None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        }
    }

    pub(super) fn end_session(&self, headers: &HeaderMap) -> Response {
        if headers.get(SESSION_ID).is_none() {
            let what = "DELETE is for ending a session: it needs Mcp-Session-Id";
            return refusal(StatusCode::METHOD_NOT_ALLOWED, error(code::INVALID_REQUEST, what));
        }
        match self.session(headers) {
            Ok(session) => {
                self.0.sessions.end(&session);
                self.0.visitors.forget(&session.key);
                StatusCode::NO_CONTENT.into_response()
            }
            Err((status, error)) => refusal(status, error),
        }
    }
}
