//! A connection of a client, whichever door it came in by.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::door::Place;

#[derive(Debug)]
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// A connection that belongs to no runtime.
#[derive(Debug)]
pub(super) enum Released {
    Unix(std::os::unix::net::UnixStream),
    Tcp(std::net::TcpStream),
}

impl Released {
    /// In the runtime that this is called in.
    pub(super) fn take(self) -> io::Result<Stream> {
        Ok(match self {
            Self::Unix(stream) => Stream::Unix(UnixStream::from_std(stream)?),
            Self::Tcp(stream) => Stream::Tcp(TcpStream::from_std(stream)?),
        })
    }
}

impl Stream {
    /// Of the image of the hall before this one.
    pub(super) fn inherit(descriptor: OwnedFd, place: Place<'_>) -> io::Result<Self> {
        Ok(match place {
            Place::Socket(_) => Self::Unix(UnixStream::from_std(descriptor.into())?),
            Place::Tcp => Self::Tcp(TcpStream::from_std(descriptor.into())?),
        })
    }

    /// Without the runtime that it belonged to: it can go on in any.
    pub(super) fn release(self) -> io::Result<Released> {
        Ok(match self {
            Self::Unix(stream) => Released::Unix(stream.into_std()?),
            Self::Tcp(stream) => Released::Tcp(stream.into_std()?),
        })
    }

    pub(super) fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Unix(stream) => stream.as_raw_fd(),
            Self::Tcp(stream) => stream.as_raw_fd(),
        }
    }
}

/// Does the same with whichever it is.
macro_rules! either {
    ($self:ident, $stream:ident => $does:expr) => {
        match $self.get_mut() {
            Self::Unix($stream) => $does,
            Self::Tcp($stream) => $does,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_read(cx, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, stream => Pin::new(stream).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>, cx: &mut Context<'_>, pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, stream => Pin::new(stream).poll_write_vectored(cx, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}
