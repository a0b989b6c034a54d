//! The client of the local API that the verbs use.

use std::io;
use std::path::{Path, PathBuf};

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use super::problem::Problem;

/// An answer of the hall may be this large: many members with many tools; bytes.
const LARGEST_ANSWER: usize = 256 * 1024 * 1024;

/// Where the hall listens.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no hall is running on {}: {source}. Start one with `guild-hall run`, or name its socket with --socket", socket.display())]
    NoHall { socket: PathBuf, source: io::Error },
    #[error("{}", .0.detail)]
    Problem(Problem),
    #[error("the hall broke off: {0}")]
    Broken(String),
}

/// A body that comes in pieces for as long as it is read.
#[derive(Debug)]
pub struct Streamed {
    response: Response<Incoming>,
    broken: bool,
}

impl Client {
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.into() }
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.ask(Method::GET, path, Bytes::new()).await
    }

    pub async fn post<T: DeserializeOwned>(
        &self, path: &str, body: impl Into<Bytes>,
    ) -> Result<T, ClientError> {
        self.ask(Method::POST, path, body.into()).await
    }

    /// A body that may have no end.
    pub async fn stream(&self, path: &str) -> Result<Streamed, ClientError> {
        let response = self.send(Method::GET, path, Bytes::new()).await?;
        Ok(Streamed { response, broken: false })
    }

    /// A member's name as one segment of a path.
    pub fn segment(name: &str) -> String {
        utf8_percent_encode(name, NON_ALPHANUMERIC).to_string()
    }

    async fn ask<T: DeserializeOwned>(
        &self, method: Method, path: &str, body: Bytes,
    ) -> Result<T, ClientError> {
        let bytes = read(self.send(method, path, body).await?).await?;
        serde_json::from_slice(&bytes).map_err(broken)
    }

    /// Whatever is answered, as it comes, also where it is an error.
    pub async fn exchange(
        &self, method: Method, path: &str, headers: &[(HeaderName, HeaderValue)], body: impl Into<Bytes>,
    ) -> Result<Streamed, ClientError> {
        let response = self.send_with(method, path, headers, body.into()).await?;
        Ok(Streamed { response, broken: false })
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<Response<Incoming>, ClientError> {
        let response = self.send_with(method, path, &[], body).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = read(response).await?;
        let unreadable = || Problem {
            title: String::new(),
            status: status.as_u16(),
            detail: format!("the hall answered {status}"),
        };
        Err(ClientError::Problem(serde_json::from_slice(&body).unwrap_or_else(|_| unreadable())))
    }

    async fn send_with(
        &self, method: Method, path: &str, headers: &[(HeaderName, HeaderValue)], body: Bytes,
    ) -> Result<Response<Incoming>, ClientError> {
        let connected = UnixStream::connect(&self.socket).await;
        let stream =
            connected.map_err(|source| ClientError::NoHall { socket: self.socket.clone(), source })?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "guild-hall")
            .header(CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        sender.send_request(request.body(Full::new(body)).map_err(broken)?).await.map_err(broken)
    }
}

impl Streamed {
    /// The next piece; `None` at the end.
    pub async fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.response.body_mut().frame().await? {
                Ok(frame) => {
                    if let Ok(piece) = frame.into_data() {
                        return Some(piece);
                    }
                }
                Err(_) => {
                    self.broken = true;
                    return None;
                }
            }
        }
    }

    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// It ended because the hall is gone, not because all was said.
    pub fn is_broken_off(&self) -> bool {
        self.broken
    }

    /// Where in its log the answer is: the number in one of the headers that openapi.json describes.
    pub fn position(&self, header: &str) -> Option<u64> {
        self.header(header)?.parse().ok()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }
}

async fn read(response: Response<Incoming>) -> Result<Bytes, ClientError> {
    let body = Limited::new(response.into_body(), LARGEST_ANSWER).collect().await;
    Ok(body.map_err(broken)?.to_bytes())
}

fn broken(error: impl std::fmt::Display) -> ClientError {
    ClientError::Broken(error.to_string())
}
