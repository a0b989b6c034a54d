//! What a member sends in answer to one request: messages of its own, then the answer.

use std::collections::VecDeque;

use hyper::header::{CONTENT_TYPE, LOCATION};
use hyper::{Response, StatusCode};

use super::connections::Answering;
use super::link::{LARGEST_ANSWER, LinkError};
use super::sse::Events;
use super::wire::{Heard, excerpt};

/// An answer that is being read. Dropping it closes the connection, if it is not at its end.
#[derive(Debug)]
pub struct Exchange {
    /// The request that is to be answered; `None` for a stream that is no answer.
    id: Option<u64>,
    form: Form,
    read: usize,
}

#[derive(Debug)]
enum Form {
    /// One message, read when it is asked for.
    Whole(Option<Response<Answering>>),
    Stream {
        body: Answering,
        events: Events,
        ready: VecDeque<Vec<u8>>,
    },
}

impl Exchange {
    pub(super) fn of(response: Response<Answering>, id: Option<u64>) -> Self {
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let is_stream = kind.is_some_and(|kind| kind.trim_start().starts_with("text/event-stream"));
        let form = if response.status().is_success() && is_stream {
            Form::Stream { body: response.into_body(), events: Events::default(), ready: VecDeque::new() }
        } else {
            Form::Whole(Some(response))
        };
        Self { id, form, read: 0 }
    }

    /// The number of the request that it answers.
    pub fn id(&self) -> Option<u64> {
        self.id
    }

    /// It may say more than one thing.
    pub fn is_stream(&self) -> bool {
        matches!(self.form, Form::Stream { .. })
    }

    /// The next thing that it says. After a result or an error there is none.
    pub async fn next(&mut self) -> Result<Heard, LinkError> {
        match &mut self.form {
            Form::Whole(response) => match response.take() {
                Some(response) => whole(response, self.id).await,
                None => Err(LinkError::Broken("there is no more to its answer".into())),
            },
            Form::Stream { body, events, ready } => loop {
                if let Some(data) = ready.pop_front() {
                    return Heard::read(&data, self.id).map_err(LinkError::NotMcp);
                }
                let mut take = |data: &[u8]| {
                    ready.push_back(data.to_vec());
                    true
                };
                let Some(piece) = body.piece().await else {
                    std::mem::take(events).finish(&mut take);
                    if ready.is_empty() {
                        return Err(LinkError::Broken("its event stream ended without the answer".into()));
                    }
                    continue;
                };
                let piece = piece?;
                self.read += piece.len();
                // A stream that is no answer has no end.
                if self.read > LARGEST_ANSWER && (self.id.is_some() || events.held() > LARGEST_ANSWER) {
                    return Err(LinkError::TooLarge);
                }
                events.feed(&piece, &mut take);
            },
        }
    }
}

async fn whole(response: Response<Answering>, id: Option<u64>) -> Result<Heard, LinkError> {
    let status = response.status();
    let elsewhere = response.headers().get(LOCATION).map(|place| excerpt(place.as_bytes()));
    let body = collect(response.into_body()).await?;
    match Heard::read(&body, id) {
        Ok(Heard::Result(result)) if status.is_success() => Ok(Heard::Result(result)),
        Ok(Heard::Error(error)) => Ok(Heard::Error(error)),
        _ if status.is_redirection() && elsewhere.is_some() => {
            let place = elsewhere.unwrap_or_default();
            let body = format!("it is at {place}; say so with \"path\" in the manifest");
            Err(LinkError::Http { status, body })
        }
        _ if !status.is_success() => Err(LinkError::Http { status, body: excerpt(&body) }),
        Err(what) => Err(LinkError::NotMcp(what)),
        Ok(_) => Err(LinkError::NotMcp(format!("it answered with a message of its own: {}", excerpt(&body)))),
    }
}

/// A body that is not used; read to its end, so that the connection can be kept.
pub(super) async fn discard(response: Response<Answering>) -> StatusCode {
    let status = response.status();
    let _ = collect(response.into_body()).await;
    status
}

async fn collect(mut body: Answering) -> Result<Vec<u8>, LinkError> {
    let mut bytes = Vec::new();
    while let Some(piece) = body.piece().await {
        let piece = piece?;
        if bytes.len() + piece.len() > LARGEST_ANSWER {
            return Err(LinkError::TooLarge);
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}
