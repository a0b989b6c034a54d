//! Where clients come in: the socket, for the same user and root; a TCP port, for whom its routes let in.

use std::fs::{self, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener, UnixStream};

use super::stream::Stream;
use crate::process::fault;

/// A listening socket.
#[derive(Debug)]
pub enum Door {
    /// Its file goes with it.
    Socket {
        listener: UnixListener,
        path: PathBuf,
    },
    Tcp(TcpListener),
}

/// Which of the doors.
#[derive(Debug, Clone, Copy)]
pub enum Place<'a> {
    Socket(&'a Path),
    Tcp,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {place}: {source}{hint}")]
pub struct DoorError {
    place: String,
    source: io::Error,
    hint: &'static str,
}

impl Door {
    /// Call it with the lock of the run directory held: a socket that stands there is a dead one.
    pub fn open(path: &Path) -> Result<Self, DoorError> {
        let open = || {
            match fault::attempt("remove a socket", || fs::remove_file(path)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            // The directory is 0700: nobody else gets here before the mode is set.
            let listener = fault::attempt("bind the socket", || UnixListener::bind(path))?;
            fault::attempt("close the socket to others", || {
                fs::set_permissions(path, Permissions::from_mode(0o600))
            })?;
            Ok(listener)
        };
        let listener = open().map_err(|source| DoorError {
            place: path.display().to_string(),
            source,
            hint: too_long(path),
        })?;
        Ok(Self::Socket { listener, path: path.into() })
    }

    /// Must be called within a tokio runtime.
    pub async fn open_tcp(address: SocketAddr) -> Result<Self, DoorError> {
        let listener = TcpListener::bind(address).await.map_err(|source| DoorError {
            place: address.to_string(),
            hint: match source.kind() {
                io::ErrorKind::AddrInUse => {
                    "; another program has the port: choose one with --listen, or none with --listen none"
                }
                io::ErrorKind::AddrNotAvailable => {
                    "; no interface of this machine has the address: see --listen"
                }
                io::ErrorKind::PermissionDenied => "; ports below 1024 are for root: see --listen",
                _ => "",
            },
            source,
        })?;
        Ok(Self::Tcp(listener))
    }

    /// One that the service manager has opened.
    pub fn passed(listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self::Tcp(TcpListener::from_std(listener)?))
    }

    /// Of the image of the hall before this one: nobody was refused meanwhile.
    pub(super) fn inherit(listener: OwnedFd, place: Place<'_>) -> io::Result<Self> {
        match place {
            Place::Socket(path) => {
                let listener = std::os::unix::net::UnixListener::from(listener);
                listener.set_nonblocking(true)?;
                Ok(Self::Socket { listener: UnixListener::from_std(listener)?, path: path.into() })
            }
            Place::Tcp => Self::passed(listener.into()),
        }
    }

    /// Where a TCP door listens.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Socket { .. } => None,
            Self::Tcp(listener) => listener.local_addr().ok(),
        }
    }

    pub(super) fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Socket { listener, .. } => listener.as_raw_fd(),
            Self::Tcp(listener) => listener.as_raw_fd(),
        }
    }

    /// The next one who may come in.
    pub(super) async fn accept(&mut self) -> Stream {
        loop {
            let accepted = match self {
                Self::Socket { listener, .. } => listener.accept().await.map(|(stream, _)| known(stream)),
                Self::Tcp(listener) => listener.accept().await.map(|(stream, _)| {
                    // Small answers must not wait for an acknowledgment.
                    let _ = stream.set_nodelay(true);
                    Some(Stream::Tcp(stream))
                }),
            };
            match accepted {
                Ok(Some(stream)) => return stream,
                Ok(None) => {}
                // Out of descriptors, most likely: others must be closed first.
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

/// The socket is for the same user, and root.
fn known(stream: UnixStream) -> Option<Stream> {
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == 0 || peer.uid() == rustix::process::getuid().as_raw() => {
            return Some(Stream::Unix(stream));
        }
        Ok(peer) => {
            tracing::warn!("refused a connection of user {}: the socket is for its owner alone", peer.uid());
        }
        Err(error) => tracing::debug!("refused a connection of an unknown user: {error}"),
    }
    None
}

impl Drop for Door {
    fn drop(&mut self) {
        if let Self::Socket { path, .. } = self {
            let _ = fault::attempt("remove the socket", || fs::remove_file(path));
        }
    }
}

/// The kernel's limit for the path of a socket; bytes.
const LONGEST_PATH: usize = 107;

fn too_long(path: &Path) -> &'static str {
    if path.as_os_str().len() > LONGEST_PATH {
        "; the path is too long for a socket: choose a shorter --run-dir"
    } else {
        ""
    }
}
