//! What a request asks for, in either era: answered here, or passed on to a member.

use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::Gateway;
use super::answer::{Answer, error, error_with, result, status, whole};
use super::bridging::complete;
use super::call::Request;
use super::caller::{Caller, Era};
use super::scope::Scope;
use super::shelves::Kind;
use crate::mcp::terms::{OVER_STDIO, code};
use crate::mcp::{Params, RpcError};
use crate::model::{MemberKey, Offer, Status};

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
