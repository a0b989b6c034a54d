//! What a request asks for, in either era: answered here, or passed on to a member.

use std::pin::Pin;
use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use futures_util::StreamExt;
use futures_util::stream;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, mpsc};

use super::Gateway;
use super::answer::{Answer, error, error_with, events, message, result, status, whole};
use super::call::{Call, Out, Request, complete};
use super::caller::{Caller, Era};
use super::parked::ParkedCalls;
use super::scope::Scope;
use super::shelves::Kind;
use crate::mcp::terms::{OVER_STDIO, code};
use crate::mcp::{Params, RpcError};
use crate::model::{MemberKey, Offer, Status};

/// Messages of a call that may wait for a client that does not read: then the member waits.
const BEHIND: usize = 16;

impl Gateway {
    /// Answers a request of either era.
    pub(super) async fn answer(
        &self, scope: &Scope, caller: Caller, id: &RawValue, method: &str, params: Params<'_>,
        headers: &HeaderMap,
    ) -> Response {
        let stateless = caller.is_stateless();
        let respond = |answer: Answer| {
            let answer = if stateless { answer.map(|said| complete(said, method)) } else { answer };
            let status = if stateless { status(&answer) } else { StatusCode::OK };
            whole(status, id, &answer)
        };
        let request = match method {
            "tools/list" => {
                self.until_ready(scope).await;
                return respond(self.catalog().list(scope, &params).and_then(|listed| result(&listed)));
            }
            "prompts/list" | "resources/list" | "resources/templates/list" => {
                let Some(kind) = Kind::of_method(method) else { return respond(Err(unknown(method))) };
                self.until_ready(scope).await;
                let listed = self.0.shelves.list(self.hall(), scope, kind, &params).await;
                return respond(listed.and_then(|listed| result(&listed)));
            }
            "tools/call" => self.tool(scope, &caller, params, headers).await,
            "prompts/get" => self.prompt(scope, params).await,
            "resources/read" => self.resource(scope, method, params).await,
            "resources/subscribe" | "resources/unsubscribe" if !stateless => {
                match self.subscribe(scope, &caller, method, &params).await {
                    Some(answer) => return respond(answer),
                    None => self.resource(scope, method, params).await,
                }
            }
            "completion/complete" => self.completion(scope, params).await,
            "logging/setLevel" if !stateless => {
                return respond(self.set_level(scope, &caller, &params).await);
            }
            "ping" if !stateless => return respond(Ok(super::empty_object())),
            _ => Err(unknown(method)),
        };
        match request {
            Ok(request) => self.pass_on(caller, id, request).await,
            Err(error) => respond(Err(error)),
        }
    }

    async fn tool(
        &self, scope: &Scope, caller: &Caller, params: Params<'_>, headers: &HeaderMap,
    ) -> Result<Request, RpcError> {
        let name = params
            .text("name")
            .ok_or_else(|| error(code::INVALID_PARAMS, "params.name is missing, or no text"))?;
        let mut offered = self.catalog().find(scope, &name).cloned();
        if offered.is_none() {
            self.hall().until_at_rest(|member| scope.includes(member)).await;
            offered = self.catalog().find(scope, &name).cloned();
        }
        let Some(offered) = offered else {
            return Err(error(code::INVALID_PARAMS, format!("there is no tool {name:?}; see tools/list")));
        };
        if caller.is_stateless()
            && !headers.contains_key(OVER_STDIO)
            && let Err(what) = offered.headers.check(&params, headers)
        {
            return Err(error(code::HEADER_MISMATCH, what));
        }
        let came = if caller.is_stateless() { param_headers(headers) } else { HeaderMap::new() };
        let mut params = params.into_owned();
        params.set("name", &offered.tool.name);
        Ok(Request {
            member: offered.member.to_string(),
            method: "tools/call".into(),
            name: offered.tool.name.clone(),
            params,
            came,
            headers: (!caller.is_stateless() || headers.contains_key(OVER_STDIO))
                .then(|| offered.headers.clone()),
        })
    }

    async fn prompt(&self, scope: &Scope, params: Params<'_>) -> Result<Request, RpcError> {
        let name = params
            .text("name")
            .ok_or_else(|| error(code::INVALID_PARAMS, "params.name is missing, or no text"))?;
        let (member, name) = self.whose_prompt(scope, &name).await?;
        let mut params = params.into_owned();
        params.set("name", &name);
        Ok(request(&member, "prompts/get", name, params))
    }

    async fn whose_prompt(&self, scope: &Scope, name: &str) -> Result<(MemberKey, String), RpcError> {
        match scope {
            Scope::One(member) => Ok((member.clone(), name.to_owned())),
            Scope::All => {
                let mut found = self.0.shelves.find_prompt(self.hall(), name).await;
                if found.is_none() {
                    self.hall().until_at_rest(|_| true).await;
                    found = self.0.shelves.find_prompt(self.hall(), name).await;
                }
                found.ok_or_else(|| {
                    error(code::INVALID_PARAMS, format!("there is no prompt {name:?}; see prompts/list"))
                })
            }
        }
    }

    async fn resource(&self, scope: &Scope, method: &str, params: Params<'_>) -> Result<Request, RpcError> {
        let uri = params
            .text("uri")
            .ok_or_else(|| error(code::INVALID_PARAMS, "params.uri is missing, or no text"))?;
        let (member, uri) = self.whose_resource(scope, &uri).await?;
        let mut params = params.into_owned();
        params.set("uri", &uri);
        Ok(request(&member, method, uri, params))
    }

    pub(super) async fn whose_resource(
        &self, scope: &Scope, uri: &str,
    ) -> Result<(MemberKey, String), RpcError> {
        match scope {
            Scope::One(member) => Ok((member.clone(), uri.to_owned())),
            Scope::All => {
                let mut found = self.0.shelves.find_resource(self.hall(), uri).await;
                if let Ok(None) = found {
                    self.hall().until_at_rest(|_| true).await;
                    found = self.0.shelves.find_resource(self.hall(), uri).await;
                }
                let found = found.and_then(|found| {
                    found.ok_or_else(|| format!("there is no resource {uri:?}; see resources/list"))
                });
                found.map_err(|what| error_with(code::INVALID_PARAMS, what, &json!({"uri": uri})))
            }
        }
    }

    async fn completion(&self, scope: &Scope, params: Params<'_>) -> Result<Request, RpcError> {
        let missing = || error(code::INVALID_PARAMS, "params.ref is no reference to a prompt or a resource");
        let mut reference = params.object("ref").ok_or_else(missing)?.into_owned();
        let (member, name) = if let Some(name) = reference.text("name") {
            self.whose_prompt(scope, &name).await?
        } else {
            let uri = reference.text("uri").ok_or_else(missing)?;
            self.whose_resource(scope, &uri).await?
        };
        let field = if reference.get("name").is_some() { "name" } else { "uri" };
        reference.set(field, &name);
        let mut params = params.into_owned();
        params.set("ref", &reference);
        Ok(request(&member, "completion/complete", String::new(), params))
    }

    /// Of all members that log, now and from now on.
    async fn set_level(&self, scope: &Scope, caller: &Caller, params: &Params<'_>) -> Answer {
        const LEVELS: [&str; 8] =
            ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
        let level = params.text("level").filter(|level| LEVELS.contains(&&**level));
        let level = level.ok_or_else(|| {
            error(code::INVALID_PARAMS, format!("params.level is none of {}", LEVELS.join(", ")))
        })?;
        let Era::Session(visitor) = &caller.era else { return Err(unknown("logging/setLevel")) };
        visitor.set_level(&level);
        for own in visitor.owns.all() {
            own.set_level(&level).await;
        }
        if let Scope::One(member) = scope
            && let Ok(reached) = self.hall().reach(member.as_str()).await
            && reached.link.has_session()
        {
            self.own_of(visitor, caller, &reached).await;
        }
        Ok(super::empty_object())
    }

    /// Has a member answer. Its first word decides whether the client gets one message or a stream of them;
    /// only a stream needs a task of its own.
    async fn pass_on(&self, caller: Caller, id: &RawValue, request: Request) -> Response {
        let (out, mut heard) = mpsc::channel(BEHIND);
        let cancel = Arc::<Notify>::default();
        let stateless = caller.is_stateless();
        let registered = match &caller.era {
            Era::Session(visitor) => Some(visitor.register(id, &out, cancel.clone())),
            Era::Stateless => None,
        };
        let state =
            request.params.text("requestState").filter(|state| stateless && ParkedCalls::is_ours(state));
        let parked = match state.map(|state| self.parked().take(&state)) {
            None => None,
            Some(Some(parked)) => Some(parked),
            Some(None) => {
                let what =
                    "this requestState is not known: the call that waited is over; call again without it";
                let answer = Err(error(code::INVALID_PARAMS, what));
                return whole(status(&answer), id, &answer);
            }
        };
        let call = Call { gateway: self.clone(), caller, request, out, cancel };
        let mut running: Pin<Box<dyn Future<Output = ()> + Send>> = match parked {
            None => Box::pin(call.run()),
            Some(parked) => Box::pin(call.resume(parked)),
        };
        let first = tokio::select! {
            biased;
            first = heard.recv() => first,
            () = &mut running => heard.recv().await,
        };
        let first = match first {
            Some(Out::Done(answer)) => {
                let status = if stateless { status(&answer) } else { StatusCode::OK };
                return whole(status, id, &answer);
            }
            Some(Out::Event(event)) => event,
            // Cancelled by the client, which wants to hear no more of it.
            None => return super::answer::accepted(),
        };
        tokio::spawn(running);
        let id = id.to_owned();
        let rest = stream::poll_fn(move |cx| heard.poll_recv(cx)).map(move |out| {
            // Until the last of it is on its way.
            let _ = &registered;
            match out {
                Out::Event(event) => event,
                Out::Done(answer) => Bytes::from(message(&id, &answer)),
            }
        });
        events(stream::once(async { first }).chain(rest))
    }

    /// What the members of a scope can do together.
    pub(super) fn capabilities(&self, scope: &Scope, stateless: bool) -> Map<String, Value> {
        let roster = self.hall().roster();
        let offers: Vec<&Offer> = roster
            .members
            .iter()
            .filter(|entry| scope.includes(&entry.name) && entry.status == Status::Connected)
            .filter_map(|entry| entry.offer.as_deref())
            .collect();
        let any = |capability: &str| offers.iter().any(|offer| offer.has(capability));
        let mut capabilities = Map::new();
        if *scope == Scope::All || any("tools") {
            capabilities.insert("tools".into(), json!({"listChanged": true}));
        }
        if any("prompts") {
            capabilities.insert("prompts".into(), json!({"listChanged": true}));
        }
        if any("resources") {
            capabilities.insert(
                "resources".into(),
                json!({"listChanged": true, "subscribe": any("resources/subscribe")}),
            );
        }
        if any("completions") {
            capabilities.insert("completions".into(), json!({}));
        }
        if any("logging") && !stateless {
            capabilities.insert("logging".into(), json!({}));
        }
        if let Scope::One(_) = scope {
            for name in ["extensions", "experimental"] {
                if let Some(value) = offers.iter().find_map(|offer| offer.capabilities.get(name)) {
                    capabilities.insert(name.into(), value.clone());
                }
            }
        }
        capabilities
    }

    /// Who speaks, and what it has to say of itself: of one member what that says.
    pub(super) fn introduction(&self, scope: &Scope) -> (Value, Option<String>) {
        let own =
            || json!({"name": "guild-hall", "title": "Guild Hall", "version": env!("CARGO_PKG_VERSION")});
        let Scope::One(member) = scope else { return (own(), None) };
        let roster = self.hall().roster();
        let offer = roster.entry(member.as_str()).and_then(|entry| entry.offer.clone()).unwrap_or_default();
        let is_usable = ["name", "version"]
            .iter()
            .all(|field| offer.server_info.get(field).is_some_and(Value::is_string));
        let info = if is_usable { offer.server_info.clone() } else { own() };
        (info, offer.instructions.clone())
    }
}

fn request(member: &MemberKey, method: &str, name: String, params: Params<'static>) -> Request {
    Request {
        member: member.to_string(),
        method: method.into(),
        name,
        params,
        came: HeaderMap::new(),
        headers: None,
    }
}

fn unknown(method: &str) -> RpcError {
    error(code::NO_SUCH_METHOD, format!("there is no method {method:?} here"))
}

fn param_headers(headers: &HeaderMap) -> HeaderMap {
    let own = headers.iter().filter(|(name, _)| name.as_str().starts_with("mcp-param-"));
    own.map(|(name, value)| (name.clone(), value.clone())).collect()
}
