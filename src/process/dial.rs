//! Connecting to a member, and to nobody else.
//!
//! Outgoing connections borrow ports of the kernel's ephemeral range, in which the pool lies. What
//! the hall itself dials must neither take a port that it is about to hand out, nor meet itself
//! (a connect to a free port that borrows just that port is answered by its own socket).

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::listener::{Listener, listeners, owner_of};
use super::tree::Tree;
use crate::model::{Pid, Port, PortRange};

/// A loopback connect that takes longer meets a full backlog.
const LONGEST_CONNECT: Duration = Duration::from_secs(2);

/// Ephemeral ports outside the pool, if there are any.
#[derive(Debug, Clone, Copy)]
pub struct OwnPorts(Option<(u16, u16)>);

/// Dials one launch of a member.
#[derive(Debug, Clone)]
pub struct Dialer {
    port: Port,
    leader: Pid,
    tree: Arc<Tree>,
    own_ports: OwnPorts,
}

/// The port is listened on by a process that is not the member's.
#[derive(Debug, thiserror::Error)]
#[error("port {port} is listened on by process {owner}, which is not this member's")]
pub struct Stranger {
    port: Port,
    owner: String,
}

impl OwnPorts {
    /// The larger part of the ephemeral range that lies outside the pool.
    pub fn outside(pool: PortRange) -> Self {
        let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
        let mut bounds = range.split_whitespace().filter_map(|bound| bound.parse::<u16>().ok());
        let (Some(low), Some(high)) = (bounds.next(), bounds.next()) else { return Self(None) };
        let (first, last) = (*pool.numbers().start(), *pool.numbers().end());
        let below = (low, high.min(first.saturating_sub(1)));
        let above = (low.max(last.saturating_add(1)), high);
        let size = |(low, high): (u16, u16)| high.saturating_sub(low);
        let larger = if size(below) >= size(above) { below } else { above };
        Self((size(larger) > 0).then_some(larger))
    }
}

impl Dialer {
    pub fn new(port: Port, leader: Pid, tree: Arc<Tree>, own_ports: OwnPorts) -> Self {
        Self { port, leader, tree, own_ports }
    }

    pub fn port(&self) -> Port {
        self.port
    }

    /// A connection to the member, proven before the first byte is sent: whoever listens on the
    /// port is of its tree. A [`Stranger`] is inside the error otherwise.
    pub async fn dial(&self) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        keep_out_of_pool(&socket, self.own_ports);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port.get()));
        let stream = timeout(LONGEST_CONNECT, socket.connect(address))
            .await
            .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "connecting takes too long")))?;
        if stream.local_addr()? == address {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        stream.set_nodelay(true)?;
        self.prove().await?;
        Ok(stream)
    }

    async fn prove(&self) -> io::Result<()> {
        let found = listeners(self.port)?;
        if found.is_empty() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let stranger = |listener: &&Listener| !listener.belongs_to(&[self.leader]);
        let Some(first) = found.iter().find(stranger) else { return Ok(()) };
        // Not the leader's: look at the whole tree.
        let pids = self.tree.pids(self.leader);
        match found.iter().find(|listener| !listener.belongs_to(&pids)) {
            None => Ok(()),
            Some(_) => {
                let first = *first;
                let owner = tokio::task::spawn_blocking(move || owner_of(first)).await.ok().flatten();
                // A member that has just died is no stranger.
                if owner.is_none() && !listeners(self.port)?.contains(&first) {
                    return Err(io::ErrorKind::ConnectionRefused.into());
                }
                let owner = owner.unwrap_or_else(|| "of another user".into());
                Err(io::Error::other(Stranger { port: self.port, owner }))
            }
        }
    }
}

/// `IP_LOCAL_PORT_RANGE`, Linux 6.3; without it the port is borrowed from anywhere, as before.
fn keep_out_of_pool(socket: &TcpSocket, OwnPorts(range): OwnPorts) {
    const IP_LOCAL_PORT_RANGE: libc::c_int = 51;
    let Some((low, high)) = range else { return };
    let value = u32::from(low) | u32::from(high) << 16;
    // SAFETY: `value` is a valid u32, and 4 bytes long.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            IP_LOCAL_PORT_RANGE,
            (&raw const value).cast(),
            4,
        );
    }
}

/// True if the port can be bound now, as most servers would (`SO_REUSEADDR`): nobody listens on it,
/// on whatever address, and no connection elsewhere has borrowed it.
pub fn can_be_bound(port: Port) -> io::Result<bool> {
    let bind = || -> io::Result<()> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port.get())))
    };
    match bind() {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(false),
        Err(error) => Err(error),
        Ok(()) => Ok(true),
    }
}
