//! A member that has a client's request: what it says is heard and passed on until it has answered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use serde_json::value::RawValue;
use tokio::time::{timeout, timeout_at};

use super::answer::{Answer, error, result, to_client};
use super::call::Call;
use super::caller::Era;
use super::ears::{Ears, kind_of_change};
use super::own::Own;
use super::passing::Out;
use crate::hall::{Account, Reached};
use crate::mcp::terms::{PROGRESS_TOKEN, code};
use crate::mcp::{Exchange, Heard, Link, LinkError, Outcome, Params, Said, excerpt};

/// A member that is being talked to.
pub(super) struct Talk {
    pub(super) reached: Reached,
    /// The session, where it is the client's own.
    pub(super) own: Option<Arc<Own>>,
    pub(super) ears: Option<Ears>,
    pub(super) exchange: Exchange,
    pub(super) sent: Sent,
}

/// A request that a member has, until it is answered: one that is dropped before is cancelled.
pub(super) struct Sent {
    pub(super) link: Arc<Link>,
    pub(super) number: u64,
    /// `None` once it is over.
    pub(super) account: Option<Account>,
}

const PROGRESS: &str = "notifications/progress";
/// A call may take so long, however much progress is told of it.
const LONGEST_WORK: Duration = Duration::from_secs(3600);
/// A member that was asked to stop working on something need not say so.
const NOTIFICATION: Duration = Duration::from_secs(2);

/// Why a member is not heard any further.
pub(super) enum End {
    Answered(Answer),
    /// It has begun to answer, with a result that is too large to be held.
    Begun(Bytes),
    /// The member asks something that the client answers with its next request.
    Parked(RawRequest),
    /// Nobody wants the answer.
    Cancelled,
    Broken(LinkError),
}

/// Something that a member asks of the client.
pub(super) struct RawRequest {
    pub(super) id: Box<RawValue>,
    pub(super) method: String,
    pub(super) params: Option<Box<RawValue>>,
}

impl Call {
    /// Hears the member until something has to be done. Progress extends its time, but not without end.
    pub(super) async fn listen(&self, talk: &mut Talk) -> End {
        let patience = talk.reached.entry.call_timeout;
        let mut until = Instant::now() + patience;
        let end = Instant::now() + patience.max(LONGEST_WORK);
        loop {
            let said = tokio::select! {
                biased;
                said = timeout_at(until.min(end).into(), talk.exchange.next_in_pieces()) => {
                    said.unwrap_or(Err(LinkError::TimedOut(patience)))
                }
                Some(heard) = hear(&mut talk.ears) => Ok(Said::Message(heard)),
                () = self.unwanted() => return End::Cancelled,
            };
            let heard = match said {
                Ok(Said::Beginning(beginning)) => return End::Begun(beginning),
                Ok(Said::Message(heard)) => Ok(heard),
                Err(error) => Err(error),
            };
            match heard {
                Err(error) => return End::Broken(error),
                Ok(Heard::Result(said)) => return End::Answered(Ok(said)),
                Ok(Heard::Error(error)) => return End::Answered(Err(error)),
                Ok(Heard::Notification { method, mut params }) => {
                    if method == PROGRESS {
                        params = self.progress(talk, params.as_deref());
                        if params.is_none() {
                            continue;
                        }
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

    /// Passes on a result that is too large to be held, as fast as the client takes it; neither may keep the other
    /// waiting for longer than a call may take. A result that breaks off is broken off for the client, too.
    pub(super) async fn pass_pieces(&self, mut talk: Talk, beginning: Bytes) {
        let patience = talk.reached.entry.call_timeout;
        let mut size = 0;
        let mut piece = self.translate_beginning(&talk, beginning);
        loop {
            size += piece.len();
            match timeout(patience, self.out.send(Out::Piece(piece))).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return,
            }
            let next = tokio::select! {
                next = timeout(patience, talk.exchange.rest()) => next,
                () = self.unwanted() => return,
            };
            match next.unwrap_or(Err(LinkError::TimedOut(patience))) {
                Ok(Some(next)) => piece = next,
                Ok(None) => break,
                Err(error) => {
                    self.gateway.hall().note(&talk.reached, &error);
                    talk.link().note(&error);
                    if !matches!(error, LinkError::TimedOut(_)) {
                        talk.sent.settle(error.word());
                    }
                    return;
                }
            }
        }
        talk.sent.answered("ok", size);
        let _ = self.out.send(Out::End).await;
    }

    /// The progress of this call under the token that the client has chosen; `None` if it is that of another.
    fn progress(&self, talk: &Talk, params: Option<&RawValue>) -> Option<Box<RawValue>> {
        let mut params = Params::read(params?).ok()?;
        // Some turn a number into a text.
        let token = params.get(PROGRESS_TOKEN)?.get().trim_matches('"').parse().ok();
        if token != talk.exchange.id() {
            return None;
        }
        let meta = self.request.params.object("_meta")?;
        params.set(PROGRESS_TOKEN, meta.get(PROGRESS_TOKEN)?);
        result(&params).ok()
    }

    /// What a member says besides its answer, and belongs to this call.
    fn passes(&self, talk: &Talk, method: &str) -> bool {
        match method {
            // In the stateless revisions only who has asked for them gets them.
            "notifications/message" => {
                !self.caller.is_stateless() || talk.link().is_stateless() || self.log_level().is_some()
            }
            "notifications/cancelled" => false,
            method => kind_of_change(method).is_none(),
        }
    }

    /// The client is gone, or has said that it does not want the answer.
    pub(super) async fn unwanted(&self) {
        tokio::select! {
            () = self.out.closed() => {}
            () = self.cancel.notified() => {}
        }
    }
}

impl Talk {
    pub(super) fn link(&self) -> &Link {
        self.own.as_ref().map_or(&self.reached.link, |own| &own.link)
    }

    /// The member has answered; its place is free.
    pub(super) fn finish(self) {
        self.exchange.finish();
    }

    pub(super) async fn answer(&self, id: &RawValue, answer: &Answer) {
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
    /// The member has answered with so many bytes.
    pub(super) fn answered(&mut self, outcome: &'static str, size: usize) {
        if let Some(account) = &mut self.account {
            account.bytes.1 = size;
        }
        self.settle(outcome);
    }

    /// The member has answered, or cannot any more.
    pub(super) fn settle(&mut self, outcome: &'static str) {
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
