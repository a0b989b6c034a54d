//! Who may come in: the same user, or root.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::serve::Listener;
use tokio::net::{UnixListener, UnixStream};

use crate::process::fault;

/// The listening socket of the local API.
#[derive(Debug)]
pub struct Door {
    listener: UnixListener,
    path: PathBuf,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {}: {source}{}", path.display(), hint(path))]
pub struct DoorError {
    path: PathBuf,
    source: io::Error,
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
        let listener = open().map_err(|source| DoorError { path: path.into(), source })?;
        Ok(Self { listener, path: path.into() })
    }
}

impl Door {
    /// Of the image of the hall before this one: nobody was refused meanwhile.
    pub(super) fn inherit(listener: OwnedFd, path: &Path) -> io::Result<Self> {
        Ok(Self { listener: super::server::listener(listener)?, path: path.into() })
    }

    pub(super) fn as_raw_fd(&self) -> RawFd {
        self.listener.as_raw_fd()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = fault::attempt("remove the socket", || fs::remove_file(&self.path));
    }
}

/// The kernel's limit for the path of a socket; bytes.
const LONGEST_PATH: usize = 107;

fn hint(path: &Path) -> &'static str {
    if path.as_os_str().len() > LONGEST_PATH {
        "; the path is too long for a socket: choose a shorter --run-dir"
    } else {
        ""
    }
}

impl Listener for Door {
    type Io = UnixStream;
    type Addr = ();

    async fn accept(&mut self) -> (UnixStream, ()) {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => match stream.peer_cred() {
                    Ok(peer) if peer.uid() == 0 || peer.uid() == rustix::process::getuid().as_raw() => {
                        return (stream, ());
                    }
                    Ok(peer) => tracing::warn!(
                        "refused a connection of user {}: the socket is for its owner alone",
                        peer.uid()
                    ),
                    Err(error) => tracing::debug!("refused a connection of an unknown user: {error}"),
                },
                // Out of descriptors, most likely: others must be closed first.
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }
}
