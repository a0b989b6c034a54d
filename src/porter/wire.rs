//! Ways to an MCP server that take one message after the other.

use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::sync::Mutex;

/// Where messages go.
pub(super) enum Wire {
    /// Lines on a pipe.
    Pipe(Arc<Mutex<pipe::Sender>>),
}

/// There is nobody at the other end.
#[derive(Debug, thiserror::Error)]
#[error("the plugin does not take it: it is gone, or has closed its end")]
pub(super) struct Gone;

impl Wire {
    /// Sends one message, whole or not at all, also if nobody waits for that any more.
    pub(super) async fn send(&self, message: Vec<u8>) -> Result<(), Gone> {
        match self {
            Self::Pipe(pipe) => write_line(pipe, message).await,
        }
    }
}

async fn write_line(pipe: &Arc<Mutex<pipe::Sender>>, mut line: Vec<u8>) -> Result<(), Gone> {
    line.push(b'\n');
    let mut pipe = pipe.clone().lock_owned().await;
    let written = match pipe.try_write(&line) {
        Ok(written) if written == line.len() => return Ok(()),
        Ok(written) => written,
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => 0,
        Err(_) => return Err(Gone),
    };
    // On a task of its own: half a line must not stand there when the caller is dropped.
    let rest = tokio::spawn(async move { pipe.write_all(&line[written..]).await });
    rest.await.ok().and_then(Result::ok).ok_or(Gone)
}
