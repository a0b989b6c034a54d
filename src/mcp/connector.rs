//! How connections to a member are made: by whoever can prove that they are the member's.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use tokio::net::TcpStream;

type Dialing = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

/// Makes one connection to one member, proven to be the member's.
pub type Dial = Arc<dyn Fn() -> Dialing + Send + Sync>;
