//! Kept connections to one member. Whoever waits for an answer drives the connection itself: an answer comes
//! without waking any other task, which on a busy machine is most of what a call costs.

use std::error::Error;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::client::conn::http1::{Connection, SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;

use tokio::runtime::{Handle, Id};

use super::connector::{Dial, Stream};
use super::link::LinkError;

/// Connections are kept this long without use: less than the 5 s after which Node, uvicorn and
/// others close their end, so that no request meets a closing connection.
const KEPT: Duration = Duration::from_secs(3);
const MOST_KEPT: usize = 64;

/// See the module's page.
#[derive(Clone)]
pub struct Connections {
    dial: Dial,
    kept: Arc<Kept>,
}

#[derive(Default)]
struct Kept(Mutex<Shelf>);

#[derive(Default)]
struct Shelf {
    idle: Vec<Idle>,
    /// Somebody closes what is not used any more.
    watched: bool,
}

/// A connection that nobody uses.
struct Idle {
    line: Line,
    since: Instant,
    /// Where it is waited on: to use it elsewhere would wake that thread for every piece.
    runtime: Id,
}

type Driver = Connection<TokioIo<Stream>, Full<Bytes>>;

/// One connection.
struct Line {
    sender: SendRequest<Full<Bytes>>,
    /// `None` once it is closed.
    driver: Option<Box<Driver>>,
}

/// The body of an answer, and the connection that it comes by; that is kept when the body is at its end.
pub struct Answering {
    body: Incoming,
    line: Option<Line>,
    kept: Weak<Kept>,
}

impl Connections {
    pub fn new(dial: Dial) -> Self {
        Self { dial, kept: Arc::default() }
    }

    pub(super) fn dial(&self) -> Dial {
        self.dial.clone()
    }

    /// Sends a request once. A kept connection that turns out closed before a byte of it was written is
    /// replaced by another one; nothing that was written is ever written again.
    pub async fn request(
        &self, mut request: Request<Full<Bytes>>, keep: bool,
    ) -> Result<Response<Answering>, LinkError> {
        loop {
            let (mut line, is_new) = match self.kept.take() {
                Some(line) => (line, false),
                None => (self.connect().await?, true),
            };
            let sending = line.sender.try_send_request(request);
            match drive(&mut line.driver, sending).await {
                Ok(response) => {
                    let kept = if keep { Arc::downgrade(&self.kept) } else { Weak::new() };
                    return Ok(response.map(|body| Answering { body, line: Some(line), kept }));
                }
                Err(mut refused) => match refused.take_message() {
                    Some(unsent) if !is_new => request = unsent,
                    _ => return Err(LinkError::Broken(innermost(refused.error()).to_string())),
                },
            }
        }
    }

    async fn connect(&self) -> Result<Line, LinkError> {
        let stream = (self.dial)().await.map_err(LinkError::Connect)?;
        let shaken = handshake(TokioIo::new(stream)).await;
        let (sender, driver) = shaken.map_err(|error| LinkError::Broken(innermost(&error).to_string()))?;
        Ok(Line { sender, driver: Some(Box::new(driver)) })
    }
}

/// Waits for something that comes by a connection, and drives that meanwhile.
fn drive<F: Future>(driver: &mut Option<Box<Driver>>, awaited: F) -> impl Future<Output = F::Output> {
    let mut awaited = Box::pin(awaited);
    std::future::poll_fn(move |cx| {
        // What is to be sent is given to the connection by the first of these, and heard of by the last.
        if let Poll::Ready(come) = awaited.as_mut().poll(cx) {
            return Poll::Ready(come);
        }
        poll_driver(driver, cx);
        awaited.as_mut().poll(cx)
    })
}

fn poll_driver(driver: &mut Option<Box<Driver>>, cx: &mut Context<'_>) {
    let is_over = driver.as_mut().is_some_and(|driver| Pin::new(&mut **driver).poll(cx).is_ready());
    if is_over {
        *driver = None;
    }
}

impl Kept {
    /// One that was used lately; what the member has closed meanwhile is found by using it.
    fn take(&self) -> Option<Line> {
        let mut shelf = self.lock();
        let here = Handle::current().id();
        loop {
            let last = shelf.idle.iter().rposition(|idle| idle.runtime == here)?;
            let Idle { line, since, .. } = shelf.idle.swap_remove(last);
            if since.elapsed() < KEPT && !line.sender.is_closed() {
                return Some(line);
            }
        }
    }

    fn keep(self: &Arc<Self>, line: Line) {
        let mut shelf = self.lock();
        if shelf.idle.len() >= MOST_KEPT {
            return;
        }
        shelf.idle.push(Idle { line, since: Instant::now(), runtime: Handle::current().id() });
        if !std::mem::replace(&mut shelf.watched, true) {
            let kept = Arc::downgrade(self);
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(KEPT).await;
                    let Some(kept) = kept.upgrade() else { return };
                    let mut shelf = kept.lock();
                    shelf.idle.retain(|idle| idle.since.elapsed() < KEPT);
                    if shelf.idle.is_empty() {
                        shelf.watched = false;
                        return;
                    }
                }
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answering {
    /// The next piece; `None` at the end.
    pub async fn piece(&mut self) -> Option<Result<Bytes, LinkError>> {
        loop {
            let frame = std::future::poll_fn(|cx| self.poll_frame(cx)).await;
            match frame {
                None => {
                    self.give_back().await;
                    return None;
                }
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data() {
                        return Some(Ok(piece));
                    }
                }
                Some(Err(error)) => {
                    self.line = None;
                    return Some(Err(LinkError::Broken(innermost(&error).to_string())));
                }
            }
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        if let Some(line) = &mut self.line {
            poll_driver(&mut line.driver, cx);
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    /// The connection has nothing more of this answer to bring.
    async fn give_back(&mut self) {
        let (Some(mut line), Some(kept)) = (self.line.take(), self.kept.upgrade()) else { return };
        // Until it has seen for itself that the answer is at its end.
        let ready = std::future::poll_fn(|cx| {
            poll_driver(&mut line.driver, cx);
            Poll::Ready(line.driver.is_some() && matches!(line.sender.poll_ready(cx), Poll::Ready(Ok(()))))
        });
        if ready.await {
            kept.keep(line);
        }
    }
}

fn innermost<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error
}

impl std::fmt::Debug for Answering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Answering(…)")
    }
}
