//! Ways to an MCP server that take one message after the other.

use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::sync::Mutex;

use super::remote::Place;

/// Where messages go.
pub(super) enum Wire {
    /// Lines on a pipe.
    Pipe(Arc<Mutex<pipe::Sender>>),
    /// Requests to a server that answers elsewhere.
    Post(Arc<Place>),
}

/// There is nobody at the other end who takes it; why.
#[derive(Debug, thiserror::Error)]
#[error("the plugin does not take it: {0}")]
pub(super) struct Gone(pub(super) String);

impl Wire {
    /// Sends one message, whole or not at all, also if nobody waits for that any more.
    pub(super) async fn send(&self, message: Vec<u8>) -> Result<(), Gone> {
        match self {
            Self::Pipe(pipe) => write_line(pipe, message).await,
            Self::Post(place) => place.post(message).await,
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
        Err(error) => return Err(gone(&error)),
    };
    // On a task of its own: half a line must not stand there when the caller is dropped.
    let rest = tokio::spawn(async move { pipe.write_all(&line[written..]).await });
    match rest.await {
        Ok(written) => written.map_err(|error| gone(&error)),
        Err(panic) => Err(Gone(panic.to_string())),
    }
}

fn gone(why: &std::io::Error) -> Gone {
    Gone(format!("it is gone, or has closed its stdin ({why})"))
}
