//! Bridging the eras: what a member of one wants to know, and what it answers, as a client of the other
//! understands it.

use axum::body::Bytes;
use serde_json::value::RawValue;

use super::answer::{Answer, error, error_with, result};
use super::call::Call;
use super::caller::Era;
use super::parked::Parked;
use super::talk::{RawRequest, Talk};
use crate::mcp::terms::code;
use crate::mcp::{Exchange, Params, RpcError, excerpt};

/// The one thing that is asked for at a time.
pub(super) const INPUT: &str = "input";

/// What `complete` adds to a result that is not at hand as a whole.
const COMPLETE: &[u8] = br#"{"resultType":"complete","#;
const COMPLETE_AND_FRESH: &[u8] = br#"{"resultType":"complete","ttlMs":0,"cacheScope":"private","#;

impl Call {
    /// A stateless member wants input that a client with a session is asked for at once.
    pub(super) fn must_ask(&self, talk: &Talk, said: &RawValue) -> bool {
        talk.link().is_stateless() && !self.caller.is_stateless() && is_input_required(said)
    }

    /// Asks the client what a stateless member wants to know, and the member again with the answers. `None`
    /// if nobody wants to know any more.
    pub(super) async fn ask_client(
        &self, talk: &Talk, said: &RawValue,
    ) -> Result<Option<Exchange>, RpcError> {
        let Era::Session(visitor) = &self.caller.era else { return Ok(None) };
        let nonsense =
            |what: &str| error(code::INTERNAL, format!("{} asks for input {what}", self.request.member));
        let said = Params::read(said).map_err(|_| nonsense("in no object"))?;
        let wanted = said.object("inputRequests").unwrap_or_default();
        let mut answers = Params::default();
        for (key, wanted) in wanted.iter() {
            let wanted = Params::read(wanted).map_err(|_| nonsense("in no object"))?;
            let method = wanted.text("method").ok_or_else(|| nonsense("without a method"))?;
            if !self.caller.capabilities.allow(&method) {
                let what = format!(
                    "this client cannot be asked {}, which {} needs",
                    excerpt(method.as_bytes()),
                    self.request.member
                );
                return Err(error(code::INVALID_REQUEST, what));
            }
            let answer = tokio::select! {
                answer = visitor.ask(Some(&self.out), &method, wanted.get("params")) => answer?,
                () = self.unwanted() => return Ok(None),
            };
            answers = answers.into_owned();
            answers.push(key.to_owned(), answer);
        }
        let mut params = self.request.params.clone();
        params.set("inputResponses", &answers);
        if let Some(state) = said.get("requestState") {
            params.set("requestState", state);
        }
        let number = talk.link().number();
        let asked = talk.link().send_as(number, self.ask(true, number, params)).await;
        asked.map(Some).map_err(|error| self.broken(&error))
    }

    /// Has the client ask again, with its answer to what the member wants to know.
    pub(super) async fn park(&self, talk: Talk, request: RawRequest) {
        let params = match &request.params {
            Some(params) => params.clone(),
            None => super::empty_object(),
        };
        let wanted = Params::default().with("method", &request.method).with("params", &params);
        let wanted = Params::default().with(INPUT, &wanted);
        let Some(state) = self.gateway.parked().keep(Parked { talk, request }) else {
            return self.fail(error(code::INTERNAL, "too many calls wait for input; try again later")).await;
        };
        let said = Params::default()
            .with("resultType", "input_required")
            .with("inputRequests", &wanted)
            .with("requestState", &state);
        self.finish(result(&said)).await;
    }

    /// The beginning of a result in the same way.
    pub(super) fn translate_beginning(&self, talk: &Talk, beginning: Bytes) -> Bytes {
        let Some(rest) = beginning.strip_prefix(b"{").filter(|_| self.caller.is_stateless()) else {
            return beginning;
        };
        if talk.link().is_stateless() {
            return beginning;
        }
        let added = if is_cached(&self.request.method) { COMPLETE_AND_FRESH } else { COMPLETE };
        [added, rest].concat().into()
    }

    /// The member's answer as this client's era has it.
    pub(super) fn translate(&self, talk: &Talk, answer: Answer) -> Answer {
        if !self.caller.is_stateless() {
            return answer;
        }
        match answer {
            Ok(said) => Ok(complete(said, &self.request.method)),
            Err(RpcError { code: code::RESOURCE_NOT_FOUND, message, .. }) if !talk.link().is_stateless() => {
                let uri = serde_json::json!({"uri": self.request.name});
                Err(error_with(code::INVALID_PARAMS, message, &uri))
            }
            Err(error) => Err(error),
        }
    }
}

fn is_input_required(said: &RawValue) -> bool {
    said.get().contains("\"input_required\"")
        && Params::read(said)
            .is_ok_and(|said| said.text("resultType").is_some_and(|kind| kind == "input_required"))
}

/// A result of an older revision with what the stateless ones want in it.
pub(super) fn complete(said: Box<RawValue>, method: &str) -> Box<RawValue> {
    let Ok(mut params) = Params::read(&said) else { return said };
    let has_type = params.get("resultType").is_some();
    let waits = has_type && is_input_required(&said);
    let is_cached = is_cached(method);
    if has_type && (!is_cached || waits || params.get("ttlMs").is_some()) {
        return said;
    }
    if !has_type {
        params.set("resultType", "complete");
    }
    if is_cached && !waits && params.get("ttlMs").is_none() {
        params.set("ttlMs", &0);
        params.set("cacheScope", "private");
    }
    result(&params).unwrap_or_else(|_| super::empty_object())
}

/// Results that a client may keep, and has to be told for how long.
fn is_cached(method: &str) -> bool {
    matches!(
        method,
        "tools/list"
            | "prompts/list"
            | "resources/list"
            | "resources/templates/list"
            | "resources/read"
            | "server/discover"
    )
}
