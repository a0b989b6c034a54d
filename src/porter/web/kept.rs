//! Connections that are kept for the next request to the same origin. The porter has one thread, and so one shelf.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{HeaderValue, PROXY_AUTHORIZATION};
use hyper_util::rt::TokioIo;

use super::stream::{Proxied, Stream, open};
use super::{Fault, Origin, broken};

/// Connections are kept this long without use: less than the 5 s after which Node, uvicorn and others close
/// their end, so that no request meets a closing connection.
const KEPT: Duration = Duration::from_secs(3);
const MOST_KEPT: usize = 32;

thread_local! {
    static SHELF: RefCell<Shelf> = RefCell::default();
}

#[derive(Default)]
struct Shelf {
    idle: Vec<(Line, Instant)>,
    /// Somebody closes what is not used any more.
    watched: bool,
}

/// A connection.
pub(super) struct Line {
    origin: Origin,
    form: Form,
    sender: SendRequest<Full<Bytes>>,
}

/// What stands in a request line; RFC 9112 §3.2.
enum Form {
    Path,
    /// For a proxy, which may want to know who asks.
    WholeUrl(Option<HeaderValue>),
}

impl Line {
    pub(super) async fn open(origin: Origin) -> Result<Self, Fault> {
        let stream = open(&origin, Proxied::ByRequest).await.map_err(Fault::Connect)?;
        let form = match &stream {
            Stream::Proxy(_, credentials) => Form::WholeUrl(credentials.clone()),
            Stream::Plain(_) | Stream::Tls(_) => Form::Path,
        };
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
        // It ends when both ends of it do: the sender is dropped, or the server hangs up.
        tokio::spawn(connection);
        Ok(Self { origin, form, sender })
    }

    /// Addresses a request as the other end wants it.
    pub(super) fn address(&self, request: &mut Request<Full<Bytes>>) {
        match &self.form {
            Form::WholeUrl(credentials) => {
                let credentials = credentials.clone().map(|credentials| (PROXY_AUTHORIZATION, credentials));
                request.headers_mut().extend(credentials);
            }
            Form::Path => {
                let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
                *request.uri_mut() = target.parse().unwrap_or_default();
            }
        }
    }

    pub(super) fn sender(&mut self) -> &mut SendRequest<Full<Bytes>> {
        &mut self.sender
    }
}

/// One that was used lately and is open, as far as is known.
pub(super) async fn take(origin: &Origin) -> Option<Line> {
    if SHELF.with_borrow(|shelf| shelf.idle.is_empty()) {
        return None;
    }
    // What servers have closed meanwhile is heard of.
    tokio::task::yield_now().await;
    loop {
        let mut line = SHELF.with_borrow_mut(|shelf| {
            let is_good = |(line, since): &(Line, Instant)| {
                line.origin == *origin && since.elapsed() < KEPT && !line.sender.is_closed()
            };
            let at = shelf.idle.iter().rposition(is_good)?;
            Some(shelf.idle.swap_remove(at).0)
        })?;
        if line.sender.ready().await.is_ok() {
            return Some(line);
        }
    }
}

/// After an answer was read to its end.
pub(super) fn keep(line: Line) {
    let is_first = SHELF.with_borrow_mut(|shelf| {
        shelf.idle.retain(|(line, since)| since.elapsed() < KEPT && !line.sender.is_closed());
        if line.sender.is_closed() || shelf.idle.len() >= MOST_KEPT {
            return false;
        }
        shelf.idle.push((line, Instant::now()));
        !std::mem::replace(&mut shelf.watched, true)
    });
    if is_first {
        tokio::spawn(async {
            loop {
                tokio::time::sleep(KEPT).await;
                let is_empty = SHELF.with_borrow_mut(|shelf| {
                    shelf.idle.retain(|(_, since)| since.elapsed() < KEPT);
                    shelf.watched = !shelf.idle.is_empty();
                    !shelf.watched
                });
                if is_empty {
                    return;
                }
            }
        });
    }
}
