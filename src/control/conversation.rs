//! One connection of a client: answered until it ends, or until it is at rest while the hall is being
//! handed over. At rest means that nothing of a request or an answer is in this process's hands, but for
//! the bytes that are handed on with it.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tower_service::Service as _;

use super::stream::Stream;

/// A client may take so long to send the head of a request, and keep a connection unused so long.
const LONGEST_HEAD: Duration = Duration::from_secs(75);

/// A connection at rest.
#[derive(Debug)]
pub(super) struct Frozen {
    pub(super) stream: Stream,
    /// What was read of the next request.
    pub(super) unread: Vec<u8>,
}

/// What is under way on a connection.
#[derive(Debug, Default)]
struct Activity {
    /// Requests that are being answered.
    requests: AtomicUsize,
    /// The client does not read; something is yet to be written.
    blocked: AtomicBool,
}

impl Activity {
    fn is_at_rest(&self) -> bool {
        self.requests.load(Ordering::Relaxed) == 0 && !self.blocked.load(Ordering::Relaxed)
    }
}

/// Answers until the connection ends (`None`), or is at rest while `pausing` is true.
pub(super) async fn converse(
    frozen: Frozen, router: Router, mut pausing: watch::Receiver<bool>,
) -> Option<Frozen> {
    let activity = Arc::new(Activity::default());
    let wire = Wire { stream: frozen.stream, unread: frozen.unread, activity: activity.clone() };
    let answer = hyper::service::service_fn({
        let activity = activity.clone();
        move |request: Request<Incoming>| answer(router.clone(), request, activity.clone())
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(LONGEST_HEAD)
        .serve_connection(TokioIo::new(wire), Boxed(answer));
    let mut paused = Box::pin(async move { drop(pausing.wait_for(|pausing| *pausing).await) });
    let mut is_paused = false;
    let ended = poll_fn(|cx| {
        is_paused = is_paused || paused.as_mut().poll(cx).is_ready();
        if connection.poll_without_shutdown(cx).is_ready() {
            return Poll::Ready(true);
        }
        if is_paused && activity.is_at_rest() { Poll::Ready(false) } else { Poll::Pending }
    });
    if ended.await {
        return None;
    }
    let parts = connection.into_parts();
    let Wire { stream, mut unread, .. } = parts.io.into_inner();
    // What the wire still held comes after what was taken from it.
    let mut all = parts.read_buf.to_vec();
    all.append(&mut unread);
    Some(Frozen { stream, unread: all })
}

async fn answer(
    mut router: Router, request: Request<Incoming>, activity: Arc<Activity>,
) -> Result<Response<Counted>, Infallible> {
    let counted = Count::new(activity);
    let response = router.call(request).await?;
    Ok(response.map(|body| Counted { body, _count: counted }))
}

/// One request that is being answered, for as long as this exists.
struct Count(Arc<Activity>);

impl Count {
    fn new(activity: Arc<Activity>) -> Self {
        activity.requests.fetch_add(1, Ordering::Relaxed);
        Self(activity)
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of an answer: hyper drops it when all of it is on its way.
struct Counted {
    body: Body,
    _count: Count,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>, cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A service whose answers can be moved, as hyper wants it for a connection that can be taken apart.
struct Boxed<S>(S);

impl<S> hyper::service::Service<Request<Incoming>> for Boxed<S>
where
    S: hyper::service::Service<Request<Incoming>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        Box::pin(self.0.call(request))
    }
}

/// The connection itself: first what was read of it before, then what comes.
struct Wire {
    stream: Stream,
    unread: Vec<u8>,
    activity: Arc<Activity>,
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.unread.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let length = self.unread.len().min(buffer.remaining());
        let rest = self.unread.split_off(length);
        buffer.put_slice(&self.unread);
        self.unread = rest;
        Poll::Ready(Ok(()))
    }
}

impl Wire {
    /// Notes whether the client keeps up.
    fn noted<T>(&self, poll: Poll<T>) -> Poll<T> {
        self.activity.blocked.store(poll.is_pending(), Ordering::Relaxed);
        poll
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.noted(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>, cx: &mut Context<'_>, pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.noted(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A socket has nothing to flush.
        Poll::Ready(ready!(Pin::new(&mut self.stream).poll_flush(cx)))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
