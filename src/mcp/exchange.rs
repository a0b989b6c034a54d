//! What a member sends in answer to one request: messages of its own, then the answer.

use std::collections::VecDeque;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::{CONTENT_LENGTH, LOCATION};
use hyper::{Response, StatusCode};
use tokio::time::timeout;

use super::connections::Answering;
use super::large::{LARGE, Rest};
use super::link::{LARGEST_ANSWER, LinkError};
use super::resumption::{Resumption, TakingUp, is_stream};
use super::sse::Events;
use super::wire::{Heard, excerpt};

/// A member has so long to end a stream after its answer, or its connection is not kept.
const SOON: Duration = Duration::from_millis(100);

/// An answer that is being read. Dropping it closes the connection, if it is not at its end.
#[derive(Debug)]
pub struct Exchange {
    /// The request that is to be answered; `None` for a stream that is no answer.
    id: Option<u64>,
    form: Form,
    read: usize,
}

/// What a member says next.
#[derive(Debug)]
pub enum Said {
    Message(Heard),
    /// The beginning of a result that is too large to be held.
    Beginning(Bytes),
}

#[derive(Debug)]
enum Form {
    /// One message, read when it is asked for.
    Whole(Response<Answering>),
    Stream(Box<Stream>),
    /// A result that has begun.
    Rest(Box<Rest>),
    Over,
}

#[derive(Debug)]
struct Stream {
    source: Source,
    events: Events,
    ready: VecDeque<Vec<u8>>,
    resumption: Option<Resumption>,
    /// Some members repeat all that they have said, whomever to, in a stream that was taken up again.
    resumed: bool,
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
                resumed: false,
            }))
        } else {
            Form::Whole(response)
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
        match self.read(false).await? {
            Said::Message(heard) => Ok(heard),
            Said::Beginning(_) => Err(LinkError::TooLarge),
        }
    }

    /// The same, but a result that is large is not held: what follows its beginning is fetched with `rest`.
    pub async fn next_in_pieces(&mut self) -> Result<Said, LinkError> {
        self.read(true).await
    }

    /// The next piece of a large result; `None` if there is no more.
    pub async fn rest(&mut self) -> Result<Option<Bytes>, LinkError> {
        match &mut self.form {
            Form::Rest(rest) => rest.next().await,
            _ => Ok(None),
        }
    }

    /// It has answered. What is left of a stream is read on the side, so that its connection can be kept.
    pub fn finish(self) {
        if let Form::Stream(stream) = self.form
            && let Source::Open(mut body) = stream.source
        {
            tokio::spawn(timeout(SOON, async move { while let Some(Ok(_)) = body.piece().await {} }));
        }
    }

    async fn read(&mut self, in_pieces: bool) -> Result<Said, LinkError> {
        if let Form::Whole(_) = &self.form
            && let Form::Whole(response) = std::mem::replace(&mut self.form, Form::Over)
        {
            return self.whole(response, in_pieces).await;
        }
        loop {
            let Form::Stream(stream) = &mut self.form else {
                return Err(LinkError::Broken("there is no more to its answer".into()));
            };
            if let Some(data) = stream.ready.pop_front() {
                match Heard::read(&data, self.id) {
                    Ok(heard) => return Ok(Said::Message(heard)),
                    Err(_) if stream.resumed => continue,
                    Err(what) => return Err(LinkError::NotMcp(what)),
                }
            }
            self.read += stream.advance().await?;
            if in_pieces && let Some((beginning, rest)) = stream.large(self.id) {
                self.form = Form::Rest(Box::new(rest));
                return Ok(Said::Beginning(beginning));
            }
            // A stream that is no answer has no end.
            if self.read > LARGEST_ANSWER && (self.id.is_some() || stream.events.held() > LARGEST_ANSWER) {
                return Err(LinkError::TooLarge);
            }
        }
    }

    async fn whole(&mut self, response: Response<Answering>, in_pieces: bool) -> Result<Said, LinkError> {
        let status = response.status();
        let elsewhere = response.headers().get(LOCATION).map(|place| excerpt(place.as_bytes()));
        let mut may_be_large = in_pieces && status.is_success();
        let length = response.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        if length.and_then(|length| length.parse().ok()).is_some_and(|length: usize| length > LARGEST_ANSWER)
        {
            return Err(LinkError::TooLarge);
        }
        let mut body = response.into_body();
        let mut text = Vec::new();
        while let Some(piece) = body.piece().await {
            let piece = piece?;
            if text.len() + piece.len() > LARGEST_ANSWER {
                return Err(LinkError::TooLarge);
            }
            text.extend_from_slice(&piece);
            if may_be_large && text.len() > LARGE {
                match Rest::of(text, self.id, body, false) {
                    Ok((beginning, rest)) => {
                        self.form = Form::Rest(Box::new(rest));
                        return Ok(Said::Beginning(beginning));
                    }
                    Err(given_back) => (text, body) = given_back,
                }
                may_be_large = false;
            }
        }
        match Heard::read(&text, self.id) {
            Ok(heard @ Heard::Error(_)) => Ok(Said::Message(heard)),
            Ok(heard @ Heard::Result(_)) if status.is_success() => Ok(Said::Message(heard)),
            _ if status.is_redirection() && elsewhere.is_some() => {
                let place = elsewhere.unwrap_or_default();
                let body = format!("it is at {place}; say so with \"path\" in the manifest");
                Err(LinkError::Http { status, body })
            }
            _ if !status.is_success() => Err(LinkError::Http { status, body: excerpt(&text) }),
            Err(what) => Err(LinkError::NotMcp(what)),
            Ok(_) => {
                Err(LinkError::NotMcp(format!("it answered with a message of its own: {}", excerpt(&text))))
            }
        }
    }
}

impl Stream {
    /// The result that it is in the middle of, if that is too large to be held.
    fn large(&mut self, id: Option<u64>) -> Option<(Bytes, Rest)> {
        if self.events.held() <= LARGE || !self.ready.is_empty() {
            return None;
        }
        let text = self.events.take_unfinished()?;
        let Source::Open(body) = std::mem::replace(&mut self.source, Source::Ended) else {
            // There is nothing to come of it.
            return None;
        };
        match Rest::of(text, id, body, true) {
            Ok(large) => Some(large),
            Err((text, body)) => {
                self.events.put_back(text);
                self.source = Source::Open(body);
                None
            }
        }
    }

    /// Takes what comes next; how many bytes that are.
    async fn advance(&mut self) -> Result<usize, LinkError> {
        let Self { source, events, ready, resumption, resumed } = self;
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
                let rest = taking_up.wait().await;
                *source = Source::Ended;
                *source = Source::Open(rest?);
                *resumed = true;
            }
            Source::Ended => {
                return Err(LinkError::Broken("its event stream ended without the answer".into()));
            }
        }
        Ok(0)
    }
}

/// A body that is not used; read to its end, so that the connection can be kept.
pub(super) async fn discard(response: Response<Answering>) -> StatusCode {
    let status = response.status();
    let mut body = response.into_body();
    let mut read = 0;
    while let Some(Ok(piece)) = body.piece().await {
        read += piece.len();
        if read > LARGEST_ANSWER {
            break;
        }
    }
    status
}
