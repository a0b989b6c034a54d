//! The client's side of a call: what is passed on to it, as one message, as a stream of events, or piece by piece.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use futures_util::stream;
use serde_json::value::RawValue;
use tokio::sync::{Notify, mpsc};

use super::Gateway;
use super::answer::{Answer, accepted, begin, error, event_stream, frame, message, status, whole};
use super::call::{Call, Request};
use super::caller::{Caller, Era};
use super::parked::ParkedCalls;
use super::visitor::Registered;
use crate::mcp::terms::code;

/// Messages of a call that may wait for a client that does not read: then the member waits.
const BEHIND: usize = 16;

/// What goes to the client.
pub(super) enum Out {
    Event(Bytes),
    Done(Answer),
    /// A part of a result.
    Piece(Bytes),
    /// That was all of it.
    End,
}

impl Gateway {
    /// Has a member answer. Its first word decides whether the client gets one message or a stream of them;
    /// only what takes longer needs a task of its own.
    pub(super) async fn pass_on(&self, caller: Caller, id: &RawValue, request: Request) -> Response {
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
            Some(first) => first,
            // Cancelled by the client, which wants to hear no more of it.
            None => return accepted(),
        };
        tokio::spawn(running);
        let as_events = matches!(first, Out::Event(_));
        let passing =
            Passing { id: id.to_owned(), as_events, in_result: false, heard, _registered: registered };
        passing.respond(first)
    }
}

/// What is passed on while it comes.
struct Passing {
    id: Box<RawValue>,
    as_events: bool,
    /// A result has begun and not ended.
    in_result: bool,
    heard: mpsc::Receiver<Out>,
    /// Until the last of it is on its way.
    _registered: Option<Registered>,
}

impl Passing {
    fn respond(mut self, first: Out) -> Response {
        let as_events = self.as_events;
        let first = self.write(Some(first));
        let body = stream::unfold((self, first), |(mut passing, next)| async move {
            let next = match next {
                Some(next) => next,
                None => {
                    let out = passing.heard.recv().await;
                    passing.write(out)?
                }
            };
            Some((next, (passing, None)))
        });
        if as_events {
            return event_stream(body);
        }
        let mut response = Response::new(Body::from_stream(body));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }

    /// As the client gets it. An error breaks the connection: nobody shall take half a result for a whole one.
    fn write(&mut self, out: Option<Out>) -> Option<io::Result<Bytes>> {
        Some(Ok(match out {
            None if self.in_result => {
                self.in_result = false;
                return Some(Err(io::Error::other("the member broke off in the middle of its result")));
            }
            None => return None,
            Some(Out::Event(event)) => frame(&event),
            Some(Out::Done(answer)) => frame(&message(&self.id, &answer)),
            Some(Out::Piece(piece)) if self.in_result => piece,
            Some(Out::Piece(piece)) => {
                self.in_result = true;
                begin(&self.id, &piece, self.as_events)
            }
            Some(Out::End) => {
                self.in_result = false;
                Bytes::from_static(if self.as_events { b"}\n\n" } else { b"}" })
            }
        }))
    }
}
