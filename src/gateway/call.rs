//! One request to one member: sent once, bridged between the eras, and given up when nobody wants the
//! answer any more. Runs on a task of its own, which tells the client what it hears.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use serde_json::value::RawValue;
use tokio::sync::{Notify, mpsc};
use tokio::time::{timeout, timeout_at};

use super::Gateway;
use super::answer::{Answer, error, error_with, result, to_client};
use super::caller::{Caller, Era};
use super::ears::{Ears, kind_of_change};
use super::own::Own;
use super::parked::Parked;
use crate::hall::{About, Account, CallError, LONGEST_REST, Reached};
use crate::mcp::terms::{META_CAPABILITIES, META_CLIENT, META_LOG_LEVEL, code};
use crate::mcp::{Ask, Exchange, Heard, Link, LinkError, Outcome, ParamHeaders, Params, RpcError, excerpt};

/// What goes to the client.
pub(super) enum Out {
    Event(Bytes),
    Done(Answer),
}

/// What a member is to be asked.
pub(super) struct Request {
    pub(super) member: String,
    pub(super) method: String,
    /// Tool, prompt or resource, as the member knows it.
    pub(super) name: String,
    pub(super) params: Params<'static>,
    /// `Mcp-Param-*` as they came, and how to make them.
    pub(super) came: hyper::HeaderMap,
    pub(super) headers: Option<ParamHeaders>,
}

/// See the module's page.
pub(super) struct Call {
    pub(super) gateway: Gateway,
    pub(super) caller: Caller,
    pub(super) request: Request,
    pub(super) out: mpsc::Sender<Out>,
    pub(super) cancel: Arc<Notify>,
}

/// A member that is being talked to.
pub(super) struct Talk {
    reached: Reached,
    /// The session, where it is the client's own.
    own: Option<Arc<Own>>,
    ears: Option<Ears>,
    exchange: Exchange,
    sent: Sent,
}

/// A request that a member has, until it is answered: one that is dropped before is cancelled.
struct Sent {
    link: Arc<Link>,
    number: u64,
    /// `None` once it is over.
    account: Option<Account>,
}

/// A member that could not be connected to is looked at again after this time.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// A call may take so long, however much progress is told of it.
const LONGEST_WORK: Duration = Duration::from_secs(3600);
/// A member may ask for input so often before it answers.
const MOST_ROUNDS: usize = 10;
/// A member that was asked to stop working on something need not say so.
const NOTIFICATION: Duration = Duration::from_secs(2);

/// Why a call ends without an answer of the member.
enum End {
    Answered(Answer),
    /// The member asks something that the client answers with its next request.
    Parked(RawRequest),
    /// Nobody wants the answer.
    Cancelled,
    Broken(LinkError),
}

/// Something that a member asks of the client.
pub(super) struct RawRequest {
    id: Box<RawValue>,
    method: String,
    params: Option<Box<RawValue>>,
}

impl Call {
    /// Asks the member.
    pub(super) async fn run(self) {
        match self.begin().await {
            Ok(talk) => self.follow(talk).await,
            Err(Some(error)) => self.fail(error).await,
            Err(None) => {}
        }
    }

    /// Goes on with what was parked, now that the client has answered.
    pub(super) async fn resume(self, parked: Parked) {
        let Parked { talk, request } = parked;
        let answers = self.request.params.object("inputResponses");
        let answer = answers.and_then(|answers| answers.get(INPUT).map(ToOwned::to_owned));
        match answer.filter(|answer| answer.get().starts_with('{')) {
            Some(answer) => {
                talk.answer(&request.id, &Ok(answer)).await;
                self.follow(talk).await;
            }
            // Asked for once more.
            None => self.park(talk, request).await,
        }
    }

    /// Sends it. A member that cannot be connected to has not seen it: then it is waited for, within bounds.
    async fn begin(&self) -> Result<Talk, Option<RpcError>> {
        let began = Instant::now();
        loop {
            let reached = tokio::select! {
                reached = self.gateway.hall().reach(&self.request.member) => reached,
                () = self.unwanted() => return Err(None),
            };
            let reached = reached.map_err(|error| Some(unreachable(&error)))?;
            let (own, ears) = self.session(&reached).await;
            let link = own.as_ref().map_or(&reached.link, |own| &own.link);
            let mut account = self.gateway.hall().ledger().begin(self.about());
            account.bytes.0 = self.request.params.iter().map(|(_, value)| value.get().len()).sum();
            let mut sent = Sent { link: link.clone(), number: link.number(), account: Some(account) };
            let ask = self.ask(link.is_stateless(), self.request.params.clone());
            let patience = reached.entry.call_timeout;
            let exchange = tokio::select! {
                exchange = timeout(patience, link.send_as(sent.number, ask)) => exchange,
                () = self.unwanted() => return Err(None),
            };
            let error = match exchange.unwrap_or(Err(LinkError::TimedOut(patience))) {
                Ok(exchange) => return Ok(Talk { reached, own, ears, exchange, sent }),
                Err(error) => error,
            };
            if matches!(error, LinkError::Connect(_)) && began.elapsed() < LONGEST_REST {
                // Dead or about to be: the roster will say so.
                sent.settle("not_sent");
                drop((sent, reached));
                tokio::time::sleep(LOOK_AGAIN).await;
                continue;
            }
            self.gateway.hall().note(&reached, &error);
            if let (LinkError::SessionLost, Era::Session(visitor)) = (&error, &self.caller.era) {
                visitor.owns.forget(reached.instance);
            }
            if !matches!(error, LinkError::TimedOut(_)) {
                sent.settle(error.word());
            }
            return Err(Some(self.broken(&error)));
        }
    }

    fn about(&self) -> About {
        let Request { member, method, name, .. } = &self.request;
        About {
            who: self.caller.name.clone(),
            member: member.clone(),
            method: method.clone(),
            name: name.clone(),
        }
    }

    /// The request as this member has to be asked.
    fn ask<'a>(&'a self, stateless: bool, mut params: Params<'a>) -> Ask<'a> {
        let Request { method, name, came, headers, .. } = &self.request;
        let mut meta = params.object("_meta").unwrap_or_default().into_owned();
        let has_meta = params.get("_meta").is_some();
        if stateless {
            if let Era::Session(visitor) = &self.caller.era {
                if let Some(level) = visitor.level() {
                    meta.set(META_LOG_LEVEL, &level);
                }
                meta.set(META_CAPABILITIES, &self.caller.capabilities.text);
                let (name, version) = self.caller.name.split_once('/').unwrap_or((&self.caller.name, "?"));
                meta.set(META_CLIENT, &serde_json::json!({"name": name, "version": version}));
                params.set("_meta", &meta);
            }
        } else if has_meta && self.caller.is_stateless() {
            meta.retain(|key| !key.starts_with("io.modelcontextprotocol/"));
            if meta.is_empty() {
                params.remove("_meta");
            } else {
                params.set("_meta", &meta);
            }
            params.remove("inputResponses");
            params.remove("requestState");
        }
        let mut ask = Ask::new(method, params);
        if stateless {
            ask.name = matches!(&**method, "tools/call" | "prompts/get" | "resources/read").then_some(name);
            ask.headers = came.clone();
            if let Some(headers) = headers {
                ask.headers.extend(headers.write(&ask.params));
            }
        }
        ask
    }

    /// The client's own session with the member, where one is needed: the member keeps something for each
    /// session, and may have reason to ask this client something.
    async fn session(&self, reached: &Reached) -> (Option<Arc<Own>>, Option<Ears>) {
        if reached.link.is_stateless() || !reached.link.has_session() {
            return (None, None);
        }
        match &self.caller.era {
            Era::Session(visitor)
                if self.caller.capabilities.are_any()
                    || visitor.level().is_some()
                    || visitor.owns.get(reached.instance).is_some()
                    || self.request.method == "resources/subscribe" =>
            {
                (self.gateway.own_of(visitor, &self.caller, reached).await, None)
            }
            Era::Session(_) => (None, None),
            Era::Stateless => {
                let level = self.log_level();
                if !self.caller.capabilities.are_any() && level.is_none() {
                    return (None, None);
                }
                let opened = Own::open(&reached.link, &self.caller.capabilities.text, level.as_deref()).await;
                let Ok(own) = opened else { return (None, None) };
                let ears = Ears::open(&own).await;
                (Some(Arc::new(own)), Some(ears))
            }
        }
    }

    fn log_level(&self) -> Option<String> {
        let meta = self.request.params.object("_meta")?;
        meta.text(META_LOG_LEVEL).map(std::borrow::Cow::into_owned)
    }

    /// Passes on what the member says, until it has answered.
    async fn follow(&self, mut talk: Talk) {
        for _ in 0..MOST_ROUNDS {
            match self.listen(&mut talk).await {
                End::Cancelled => return,
                End::Parked(request) => return self.park(talk, request).await,
                End::Broken(error) => {
                    self.gateway.hall().note(&talk.reached, &error);
                    talk.link().note(&error);
                    if !matches!(error, LinkError::TimedOut(_)) {
                        talk.sent.settle(error.word());
                    }
                    drop(talk);
                    return self.fail(self.broken(&error)).await;
                }
                End::Answered(Ok(said)) if self.must_ask(&talk, &said) => {
                    match self.ask_client(&talk, &said).await {
                        Ok(Some(exchange)) => talk.exchange = exchange,
                        Ok(None) => return,
                        Err(error) => {
                            talk.sent.settle("rpc_error");
                            return self.fail(error).await;
                        }
                    }
                }
                End::Answered(answer) => {
                    if let Some(account) = &mut talk.sent.account {
                        account.bytes.1 = answer.as_ref().map_or(0, |said| said.get().len());
                    }
                    talk.sent.settle(if answer.is_ok() { "ok" } else { "rpc_error" });
                    let answer = self.translate(&talk, answer);
                    drop(talk);
                    return self.finish(answer).await;
                }
            }
        }
        drop(talk);
        let what =
            format!("{} asked for input {MOST_ROUNDS} times and has not answered", self.request.member);
        self.fail(error(code::INTERNAL, what)).await;
    }

    /// Hears the member until something has to be done. Progress extends its time, but not without end.
    async fn listen(&self, talk: &mut Talk) -> End {
        let patience = talk.reached.entry.call_timeout;
        let mut until = Instant::now() + patience;
        let end = Instant::now() + patience.max(LONGEST_WORK);
        loop {
            let heard = tokio::select! {
                biased;
                heard = timeout_at(until.min(end).into(), talk.exchange.next()) => {
                    heard.unwrap_or(Err(LinkError::TimedOut(patience)))
                }
                Some(heard) = hear(&mut talk.ears) => Ok(heard),
                () = self.unwanted() => return End::Cancelled,
            };
            match heard {
                Err(error) => return End::Broken(error),
                Ok(Heard::Result(said)) => return End::Answered(Ok(said)),
                Ok(Heard::Error(error)) => return End::Answered(Err(error)),
                Ok(Heard::Notification { method, params }) => {
                    if method == "notifications/progress" {
                        until = Instant::now() + patience;
                    }
                    if self.passes(talk, &method) {
                        let event = Out::Event(to_client(None, &method, params.as_deref()));
                        if self.out.send(event).await.is_err() {
                            return End::Cancelled;
                        }
                    } else if let Some(kind) = kind_of_change(&method) {
                        self.gateway.has_changed(&talk.reached.entry.name, talk.reached.instance, kind);
                    }
                }
                Ok(Heard::Request { id, method, params }) => {
                    let request = RawRequest { id, method, params };
                    if request.method == "ping" {
                        talk.answer(&request.id, &Ok(super::empty_object())).await;
                    } else if !self.caller.capabilities.allow(&request.method) {
                        let what =
                            format!("this client cannot be asked {}", excerpt(request.method.as_bytes()));
                        talk.answer(&request.id, &Err(error(code::NO_SUCH_METHOD, what))).await;
                    } else if let Era::Session(visitor) = &self.caller.era {
                        let asked = visitor.ask(Some(&self.out), &request.method, request.params.as_deref());
                        let answer = tokio::select! {
                            answer = asked => answer,
                            () = self.unwanted() => return End::Cancelled,
                        };
                        talk.answer(&request.id, &answer).await;
                        until = Instant::now() + patience;
                    } else {
                        return End::Parked(request);
                    }
                }
            }
        }
    }

    /// What a member says besides its answer, and belongs to this call.
    fn passes(&self, talk: &Talk, method: &str) -> bool {
        match method {
            "notifications/progress" => true,
            // In the stateless revisions only who has asked for them gets them.
            "notifications/message" => {
                !self.caller.is_stateless() || talk.link().is_stateless() || self.log_level().is_some()
            }
            "notifications/cancelled" => false,
            method => kind_of_change(method).is_none(),
        }
    }

    /// The client is gone, or has said that it does not want the answer.
    async fn unwanted(&self) {
        tokio::select! {
            () = self.out.closed() => {}
            () = self.cancel.notified() => {}
        }
    }

    /// A stateless member wants input that a client with a session is asked for at once.
    fn must_ask(&self, talk: &Talk, said: &RawValue) -> bool {
        talk.link().is_stateless() && !self.caller.is_stateless() && is_input_required(said)
    }

    /// Asks the client what a stateless member wants to know, and the member again with the answers. `None`
    /// if nobody wants to know any more.
    async fn ask_client(&self, talk: &Talk, said: &RawValue) -> Result<Option<Exchange>, RpcError> {
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
        talk.link().send(self.ask(true, params)).await.map(Some).map_err(|error| self.broken(&error))
    }

    /// Has the client ask again, with its answer to what the member wants to know.
    async fn park(&self, talk: Talk, request: RawRequest) {
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

    /// The member's answer as this client's era has it.
    fn translate(&self, talk: &Talk, answer: Answer) -> Answer {
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

    /// What a client is told of a call that has no answer, and whether it may have been carried out.
    fn broken(&self, why: &LinkError) -> RpcError {
        let Request { member, .. } = &self.request;
        match why {
            LinkError::Rpc(error) => error.clone(),
            LinkError::Connect(_) | LinkError::SessionLost => {
                error(code::INTERNAL, format!("{member} {why}; the request was not carried out"))
            }
            _ => error(
                code::INTERNAL,
                format!(
                    "{member} {why}; the request was sent once and is not sent again, it may have been carried out"
                ),
            ),
        }
    }

    /// A tool that could not be called has a result that says so: that is what a model gets to see.
    async fn fail(&self, error: RpcError) {
        if self.request.method != "tools/call" || error.code == code::INVALID_PARAMS {
            return self.finish(Err(error)).await;
        }
        let text = serde_json::json!([{"type": "text", "text": error.message}]);
        let mut said = Params::default().with("content", &text).with("isError", &true);
        if self.caller.is_stateless() {
            said.set("resultType", "complete");
        }
        self.finish(result(&said)).await;
    }

    async fn finish(&self, answer: Answer) {
        // Who asked may be gone.
        let _ = self.out.send(Out::Done(answer)).await;
    }
}

/// The one thing that is asked for at a time.
const INPUT: &str = "input";

impl Talk {
    fn link(&self) -> &Link {
        self.own.as_ref().map_or(&self.reached.link, |own| &own.link)
    }

    async fn answer(&self, id: &RawValue, answer: &Answer) {
        let outcome = match answer {
            Ok(said) => Outcome::Result(said),
            Err(error) => Outcome::Error(error),
        };
        if !self.link().answer(id, outcome).await {
            tracing::debug!(member = %self.reached.entry.name, "does not take the answer to what it has asked");
        }
    }
}

impl Sent {
    /// The member has answered, or cannot any more.
    fn settle(&mut self, outcome: &'static str) {
        if let Some(account) = self.account.take() {
            account.settle(outcome);
        }
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        // Without a session, hanging up says it.
        if self.account.is_none() || self.link.is_stateless() {
            return;
        }
        let (link, number) = (self.link.clone(), self.number);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let params = Params::default()
                    .with("requestId", &number)
                    .with("reason", "nobody waits for the answer any more");
                link.notify("notifications/cancelled", params, NOTIFICATION).await;
            });
        }
    }
}

async fn hear(ears: &mut Option<Ears>) -> Option<Heard> {
    match ears {
        Some(ears) => ears.next().await,
        None => std::future::pending().await,
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
    let is_cached = matches!(
        method,
        "tools/list"
            | "prompts/list"
            | "resources/list"
            | "resources/templates/list"
            | "resources/read"
            | "server/discover"
    );
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

/// A member that cannot be asked.
pub(super) fn unreachable(why: &CallError) -> RpcError {
    match why {
        CallError::NoSuchMember(_) | CallError::NoSuchTool { .. } => {
            error(code::INVALID_PARAMS, why.to_string())
        }
        _ => error(code::INTERNAL, format!("{why}; the request was not sent")),
    }
}
