//! One request to one member: sent once, bridged between the eras, and given up when nobody wants the
//! answer any more. Runs on a task of its own, which tells the client what it hears.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use super::Gateway;
use super::answer::{Answer, error, result};
use super::bridging::INPUT;
use super::caller::{Caller, Era};
use super::ears::Ears;
use super::own::Own;
use super::parked::Parked;
use super::passing::Out;
use super::talk::{End, Sent, Talk};
use crate::hall::{About, CallError, LONGEST_REST, Reached};
use crate::mcp::terms::{META_CAPABILITIES, META_CLIENT, META_LOG_LEVEL, PROGRESS_TOKEN, code};
use crate::mcp::{Ask, LinkError, ParamHeaders, Params, RpcError};

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

/// A member that could not be connected to is looked at again after this time.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// A member may ask for input so often before it answers.
const MOST_ROUNDS: usize = 10;

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
            let ask = self.ask(link.is_stateless(), sent.number, self.request.params.clone());
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

    /// The request as this member has to be asked under this number.
    pub(super) fn ask<'a>(&'a self, stateless: bool, number: u64, mut params: Params<'a>) -> Ask<'a> {
        let Request { method, name, came, headers, .. } = &self.request;
        let mut meta = params.object("_meta").unwrap_or_default().into_owned();
        let has_meta = params.get("_meta").is_some();
        if meta.get(PROGRESS_TOKEN).is_some() {
            // Two clients that share a session may have chosen the same.
            meta.set(PROGRESS_TOKEN, &number);
            params.set("_meta", &meta);
        }
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

    pub(super) fn log_level(&self) -> Option<String> {
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
                End::Begun(beginning) => return self.pass_pieces(talk, beginning).await,
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
                    if let Err(error) = &answer {
                        self.gateway.hall().note_answer(&talk.reached, error);
                    }
                    let size = answer.as_ref().map_or(0, |said| said.get().len());
                    talk.sent.answered(if answer.is_ok() { "ok" } else { "rpc_error" }, size);
                    let answer = self.translate(&talk, answer);
                    talk.finish();
                    return self.finish(answer).await;
                }
            }
        }
        drop(talk);
        let what =
            format!("{} asked for input {MOST_ROUNDS} times and has not answered", self.request.member);
        self.fail(error(code::INTERNAL, what)).await;
    }

    /// What a client is told of a call that has no answer, and whether it may have been carried out.
    pub(super) fn broken(&self, why: &LinkError) -> RpcError {
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
    pub(super) async fn fail(&self, error: RpcError) {
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

    pub(super) async fn finish(&self, answer: Answer) {
        // Who asked may be gone.
        let _ = self.out.send(Out::Done(answer)).await;
    }
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
