//! How hyper's client gets its connections: from whoever knows how to dial the member.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

type Dialing = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

/// Makes one connection to one member, proven to be the member's.
pub type Dial = Arc<dyn Fn() -> Dialing + Send + Sync>;

#[derive(Clone)]
pub(super) struct Connector(pub(super) Dial);

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<TcpStream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let dialing = (self.0)();
        Box::pin(async move { dialing.await.map(TokioIo::new) })
    }
}
