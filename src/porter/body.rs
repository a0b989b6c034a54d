//! What the porter answers: a message, or a stream of them.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};

use super::service::Hearing;

/// The body of a response.
pub(super) enum Said {
    Whole(Option<Bytes>),
    /// Events, for as long as something is to be heard.
    Events {
        first: Option<Bytes>,
        hearing: Hearing,
    },
}

impl Body for Said {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>, cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Self::Events { first, hearing } => {
                if let Some(first) = first.take() {
                    return Poll::Ready(Some(Ok(Frame::data(event(&first)))));
                }
                hearing.poll(cx).map(|heard| heard.map(|message| Ok(Frame::data(event(&message)))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Self::Events { .. } => SizeHint::default(),
        }
    }
}

/// A message as an event. A line break can only stand between two parts of it, where a space will do.
fn event(message: &[u8]) -> Bytes {
    const HEAD: &[u8] = b"event: message\ndata: ";
    let mut event = Vec::with_capacity(HEAD.len() + message.len() + 2);
    event.extend_from_slice(HEAD);
    event.extend(message.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }));
    event.extend_from_slice(b"\n\n");
    event.into()
}

pub(super) fn json(status: StatusCode, text: impl Into<Bytes>) -> Response<Said> {
    with_type("application/json", status, Said::Whole(Some(text.into())))
}

pub(super) fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Said> {
    with_type("text/plain; charset=utf-8", status, Said::Whole(Some(text.into())))
}

pub(super) fn empty(status: StatusCode) -> Response<Said> {
    let mut response = Response::new(Said::Whole(None));
    *response.status_mut() = status;
    response
}

pub(super) fn events(first: Option<Bytes>, hearing: Hearing) -> Response<Said> {
    let mut response = with_type("text/event-stream", StatusCode::OK, Said::Events { first, hearing });
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

fn with_type(kind: &'static str, status: StatusCode, said: Said) -> Response<Said> {
    let mut response = Response::new(said);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
