//! `GET /v1/members/{name}/logs`: the last lines, and with `follow` what comes after them.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;

use super::problem::Problem;
use crate::hall::Hall;
use crate::process::last_lines;

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
}

fn some_lines() -> usize {
    100
}

pub(super) async fn read(
    State(hall): State<Hall>, name: Result<Path<String>, PathRejection>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Response, Problem> {
    let Path(name) = name?;
    let Query(Wanted { lines, follow }) = wanted?;
    let roster = hall.roster();
    let entry = roster.entry(&name).ok_or_else(|| Problem::no_such_member(&name))?;
    let path = hall.run_dir().log(&entry.name);
    let kind = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    let (text, end) = blocking({
        let path = path.clone();
        move || last_lines(&path, lines.min(MOST_LINES))
    })
    .await?;
    if !follow {
        return Ok((kind, text).into_response());
    }
    let state = Following { path, at: end, first: Some(text) };
    let pieces = stream::unfold(state, async |mut following| {
        Some((Ok::<_, io::Error>(following.next().await), following))
    });
    Ok((kind, Body::from_stream(pieces)).into_response())
}

/// A log that is read as it grows; a log that is cut, or made anew, is read from its start.
struct Following {
    path: PathBuf,
    at: u64,
    first: Option<Vec<u8>>,
}

impl Following {
    async fn next(&mut self) -> Bytes {
        if let Some(first) = self.first.take().filter(|first| !first.is_empty()) {
            return first.into();
        }
        loop {
            let (path, at) = (self.path.clone(), self.at);
            // A log that is not there yet, or no more, may come.
            let (piece, end) = blocking(move || read_from(&path, at)).await.unwrap_or_default();
            self.at = end;
            if !piece.is_empty() {
                return piece.into();
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

fn read_from(path: &std::path::Path, at: u64) -> io::Result<(Vec<u8>, u64)> {
    let mut file = File::open(path)?;
    let from = if file.metadata()?.len() < at { 0 } else { at };
    file.seek(SeekFrom::Start(from))?;
    let mut piece = Vec::new();
    let read = file.take(PIECE).read_to_end(&mut piece)?;
    Ok((piece, from + read as u64))
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
