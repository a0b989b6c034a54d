//! `GET /v1/members/{name}/logs`: the last lines, or the log from a position on; with `follow` also
//! what comes after it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};

use super::problem::Problem;
use crate::hall::Hall;
use crate::process::{LogText, Piece, gap};

/// In an answer to `from`: the position of its first byte.
pub const STARTS_AT: &str = "guild-hall-log-from";
/// In an answer with the last lines: the position after them.
pub const GOES_ON_AT: &str = "guild-hall-log-next";

/// How often a followed log is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Sent in one piece; who reads slowly gets the rest later. Bytes.
const PIECE: u64 = 64 * 1024;
const MOST_LINES: usize = 100_000;

#[derive(serde::Deserialize)]
pub(super) struct Wanted {
    #[serde(default = "some_lines")]
    lines: usize,
    #[serde(default)]
    follow: bool,
    from: Option<u64>,
}

fn some_lines() -> usize {
    100
}

pub(super) async fn read(
    State(hall): State<Hall>, name: Result<Path<String>, PathRejection>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Response, Problem> {
    let Path(name) = name?;
    let Query(Wanted { lines, follow, from }) = wanted?;
    let roster = hall.roster();
    let entry = roster.entry(&name).ok_or_else(|| Problem::no_such_member(&name))?;
    let path = hall.run_dir().log(&entry.name);
    let kind = (header::CONTENT_TYPE.as_str(), "text/plain; charset=utf-8".to_owned());
    let text = LogText::of(&path);
    if let Some(from) = from {
        let until = if follow { None } else { Some(end(&text).await?) };
        let mut following = Following { text, at: from, first: None, reader: Reader::Counting { until } };
        let first = following.read().await.or_else(|problem| not_there_yet(problem, follow, from))?;
        following.at = first.at + first.bytes.len() as u64;
        following.first = Some(first.bytes);
        let starts_at = (STARTS_AT, first.at.to_string());
        return Ok(([kind, starts_at], following.into_body(&hall)).into_response());
    }
    let last = blocking({
        let text = text.clone();
        move || text.last_lines(lines.min(MOST_LINES))
    });
    let (lines, end) = match last.await {
        // It may come: a member that is not launched yet can be followed.
        Err(problem) if follow && problem.status == StatusCode::NOT_FOUND => (Vec::new(), end(&text).await?),
        last => last?,
    };
    if !follow {
        return Ok(([kind, (GOES_ON_AT, end.to_string())], lines).into_response());
    }
    let line_end = lines.last().copied().unwrap_or(b'\n');
    let following =
        Following { text, at: end, first: Some(lines), reader: Reader::Person { last: line_end } };
    Ok(([kind], following.into_body(&hall)).into_response())
}

fn not_there_yet(problem: Problem, follow: bool, at: u64) -> Result<Piece, Problem> {
    if follow && problem.status == StatusCode::NOT_FOUND {
        return Ok(Piece { at, bytes: Vec::new() });
    }
    Err(problem)
}

/// A log that is read as it grows.
struct Following {
    text: Arc<LogText>,
    at: u64,
    first: Option<Vec<u8>>,
    reader: Reader,
}

/// Who reads, and what it is told when bytes were cut before they could be read.
enum Reader {
    /// A line that says so; the last byte that was sent tells whether it needs a line of its own.
    Person { last: u8 },
    /// Knows its position by counting: its answer ends there, and it asks anew.
    Counting { until: Option<u64> },
}

impl Following {
    /// It also ends when the API is handed over: who follows then asks again.
    fn into_body(self, hall: &Hall) -> Body {
        let pieces = stream::unfold(self, async |mut following| {
            let piece = following.next().await?;
            Some((Ok::<_, io::Error>(piece), following))
        });
        Body::from_stream(pieces.take_until(hall.leaving()))
    }

    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take().filter(|first| !first.is_empty()) {
            return Some(first.into());
        }
        loop {
            if matches!(self.reader, Reader::Counting { until: Some(until) } if self.at >= until) {
                return None;
            }
            // A log that is not there yet, or no more, may come.
            let piece = self.read().await.unwrap_or(Piece { at: self.at, bytes: Vec::new() });
            let mut told = Vec::new();
            match &mut self.reader {
                Reader::Counting { .. } if piece.at != self.at => return None,
                Reader::Counting { .. } => {}
                Reader::Person { last } => {
                    // Where it is not beyond, someone else has emptied the log and it begins anew.
                    if let Some(missed @ 1..) = piece.at.checked_sub(self.at) {
                        told = gap(missed, Some(last));
                    }
                    *last = piece.bytes.last().or(told.last()).copied().unwrap_or(*last);
                }
            }
            self.at = piece.at + piece.bytes.len() as u64;
            told.extend(piece.bytes);
            if !told.is_empty() {
                return Some(told.into());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn read(&self) -> Result<Piece, Problem> {
        let (text, at) = (self.text.clone(), self.at);
        let most = match self.reader {
            Reader::Counting { until: Some(until) } => until.saturating_sub(at).clamp(1, PIECE),
            _ => PIECE,
        };
        blocking(move || text.read(at, most)).await
    }
}

async fn end(text: &Arc<LogText>) -> Result<u64, Problem> {
    let text = text.clone();
    blocking(move || Ok(text.end())).await
}

async fn blocking<T: Send + 'static>(
    read: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Problem> {
    let read = tokio::task::spawn_blocking(read).await.unwrap_or_else(|panic| Err(io::Error::other(panic)));
    read.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Problem::new(StatusCode::NOT_FOUND, "it has no log yet: it was never launched")
        }
        _ => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot read its log: {error}")),
    })
}
