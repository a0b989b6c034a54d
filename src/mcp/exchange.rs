//! What a member sends in answer to one request: messages of its own, then the answer.

use std::collections::VecDeque;

use hyper::header::LOCATION;
use hyper::{Response, StatusCode};

use super::connections::Answering;
use super::link::{LARGEST_ANSWER, LinkError};
use super::resumption::{Resumption, TakingUp, is_stream};
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
    Stream(Box<Stream>),
}

#[derive(Debug)]
struct Stream {
    source: Source,
    events: Events,
    ready: VecDeque<Vec<u8>>,
    resumption: Option<Resumption>,
}

#[derive(Debug)]
enum Source {
    Open(Answering),
    /// It has ended, and will go on.
    Paused(TakingUp),
    Ended,
}

impl Exchange {
    pub(super) fn of(response: Response<Answering>, id: Option<u64>) -> Self {
        let form = if is_stream(&response) {
            Form::Stream(Box::new(Stream {
                source: Source::Open(response.into_body()),
                events: Events::default(),
                ready: VecDeque::new(),
                resumption: None,
            }))
        } else {
            Form::Whole(Some(response))
        };
        Self { id, form, read: 0 }
    }

    /// If it is a stream that ends too early, it is taken up again by these means.
    pub(super) fn resumed_by(mut self, means: Resumption) -> Self {
        if let Form::Stream(stream) = &mut self.form {
            stream.resumption = Some(means);
        }
        self
    }

    /// The number of the request that it answers.
    pub fn id(&self) -> Option<u64> {
        self.id
    }

    /// It may say more than one thing.
    pub fn is_stream(&self) -> bool {
        matches!(self.form, Form::Stream(_))
    }

    /// The next thing that it says. After a result or an error there is none.
    pub async fn next(&mut self) -> Result<Heard, LinkError> {
        let stream = match &mut self.form {
            Form::Whole(response) => {
                return match response.take() {
                    Some(response) => whole(response, self.id).await,
                    None => Err(LinkError::Broken("there is no more to its answer".into())),
                };
            }
            Form::Stream(stream) => stream,
        };
        loop {
            if let Some(data) = stream.ready.pop_front() {
                return Heard::read(&data, self.id).map_err(LinkError::NotMcp);
            }
            self.read += stream.advance().await?;
            // A stream that is no answer has no end.
            if self.read > LARGEST_ANSWER && (self.id.is_some() || stream.events.held() > LARGEST_ANSWER) {
                return Err(LinkError::TooLarge);
            }
        }
    }
}

impl Stream {
    /// Takes what comes next; how many bytes that are.
    async fn advance(&mut self) -> Result<usize, LinkError> {
        let Self { source, events, ready, resumption } = self;
        let mut take = |data: &[u8]| {
            ready.push_back(data.to_vec());
            true
        };
        match source {
            Source::Open(body) => match body.piece().await {
                Some(piece) => {
                    let piece = piece?;
                    events.feed(&piece, take);
                    return Ok(piece.len());
                }
                None => {
                    events.finish(&mut take);
                    let rest = resumption.as_ref().and_then(|means| means.take_up(events));
                    *source = rest.map_or(Source::Ended, Source::Paused);
                }
            },
            Source::Paused(taking_up) => {
                let resumed = taking_up.wait().await;
                *source = Source::Ended;
                *source = Source::Open(resumed?);
            }
            Source::Ended => {
                return Err(LinkError::Broken("its event stream ended without the answer".into()));
            }
        }
        Ok(0)
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
