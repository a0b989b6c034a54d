//! A stream that its member ends before all is said, and goes on with when it is asked again: so a member need
//! not keep a connection while it works. MCP 2025-11-25, "Resumability and Redelivery".

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, Uri};
use sync_wrapper::SyncWrapper;
use tokio::time::sleep;

use super::connections::{Answering, Connections};
use super::link::LinkError;
use super::sse::Events;

/// After which event the stream is to go on.
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// A stream is asked for again after this time, if the member does not say when...
const AGAIN: Duration = Duration::from_secs(1);
/// ...and not sooner than this.
const SOONEST: Duration = Duration::from_millis(10);

/// How the streams of one session are asked for again.
#[derive(Clone)]
pub(super) struct Resumption {
    connections: Connections,
    path: Uri,
    headers: HeaderMap,
}

/// A stream that is being asked for again. It may be left and come back to, for it is asked for but once.
pub(super) struct TakingUp(SyncWrapper<Rest>);

type Rest = Pin<Box<dyn Future<Output = Result<Answering, LinkError>> + Send>>;

impl Resumption {
    /// `headers` are those of any GET of the session.
    pub(super) fn new(connections: Connections, path: Uri, headers: HeaderMap) -> Self {
        Self { connections, path, headers }
    }

    /// Asks for the rest of a stream that has ended, when its member wants that; `None` if it can give none.
    pub(super) fn take_up(&self, ended: &Events) -> Option<TakingUp> {
        let last = HeaderValue::from_bytes(ended.last_id()?).ok()?;
        let pause = ended.retry().unwrap_or(AGAIN).max(SOONEST);
        let mut request = hyper::Request::new(Full::new(Bytes::new()));
        *request.uri_mut() = self.path.clone();
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().insert(LAST_EVENT, last);
        let connections = self.connections.clone();
        Some(TakingUp(SyncWrapper::new(Box::pin(async move {
            sleep(pause).await;
            let lost = |why: &dyn fmt::Display| {
                LinkError::Broken(format!("its event stream ended and cannot be taken up again: {why}"))
            };
            // Whatever is in the way now, the member has seen the request.
            let response = connections.request(request, true).await.map_err(|error| lost(&error))?;
            if !is_stream(&response) {
                return Err(lost(&format_args!("HTTP {}", response.status())));
            }
            Ok(response.into_body())
        }))))
    }
}

impl TakingUp {
    pub(super) async fn wait(&mut self) -> Result<Answering, LinkError> {
        self.0.get_mut().as_mut().await
    }
}

/// The response is a stream of events.
pub(super) fn is_stream(response: &Response<Answering>) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    response.status().is_success()
        && kind.is_some_and(|kind| kind.trim_start().starts_with("text/event-stream"))
}

impl fmt::Debug for Resumption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resumption").field("path", &self.path).finish_non_exhaustive()
    }
}

impl fmt::Debug for TakingUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TakingUp(…)")
    }
}
