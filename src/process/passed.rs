//! Listening sockets that the service manager opened for the hall: `LISTEN_FDS` of systemd.socket(5).

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use rustix::net::sockopt::{socket_acceptconn, socket_domain};
use rustix::net::{AddressFamily, SocketType, sockopt::socket_type};

use super::successor::inherited;

/// A TCP socket that listens already; close-on-exec, non-blocking.
#[derive(Debug)]
pub struct PassedListener {
    /// `FileDescriptorName=` of the socket unit.
    pub name: String,
    pub listener: TcpListener,
}

impl PassedListener {
    /// One that an image of the hall before this one has kept open.
    pub fn inherit(name: String, descriptor: RawFd) -> io::Result<Self> {
        Ok(Self { name, listener: TcpListener::from(inherited(descriptor)?) })
    }
}

/// Takes the sockets that were passed to this process and removes the variables that name them, so that
/// nobody takes them twice. Must be called while the process has one thread: it fails otherwise.
pub fn passed_listeners() -> io::Result<Vec<PassedListener>> {
    let cannot = |why: &str| io::Error::other(format!("cannot take the sockets of LISTEN_FDS: {why}"));
    let own = std::process::id().to_string();
    // Without them nothing was passed; with another number it was passed to a process that we descend from.
    if std::env::var_os("LISTEN_FDS").is_none()
        || std::env::var_os("LISTEN_PID").is_none_or(|pid| *pid != *own)
    {
        return Ok(Vec::new());
    }
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(cannot("other threads run already"));
    }
    // SAFETY: this is the only thread, so nobody reads the environment meanwhile.
    let passed = unsafe { sd_notify::listen_fds_with_names_and_unset_env() };
    let passed = passed.map_err(|error| cannot(&error.to_string()))?;
    let sockets = passed.map(|(fd, name)| {
        // SAFETY: the descriptor is open (it was just made close-on-exec), was opened by who started
        // this process, and is nobody else's here: the variables that name it are gone.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let inet = matches!(socket_domain(&socket), Ok(AddressFamily::INET | AddressFamily::INET6));
        let listens =
            socket_acceptconn(&socket) == Ok(true) && socket_type(&socket) == Ok(SocketType::STREAM);
        if !inet || !listens {
            return Err(cannot(&format!(
                "{name:?} is no TCP socket that listens; see ListenStream= of its unit"
            )));
        }
        let listener = TcpListener::from(socket);
        listener.set_nonblocking(true)?;
        Ok(PassedListener { name, listener })
    });
    sockets.collect()
}
