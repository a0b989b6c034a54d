//! Who listens on a port: asked of the kernel (`sock_diag`) before a member is spoken to, so that a
//! stranger's server is never taken for the member.

use std::fs;
use std::io;
use std::net::Ipv6Addr;

use rustix::fd::OwnedFd;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

use crate::model::{Pid, Port};

/// One listening TCP socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listener {
    inode: u32,
}

// linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const REQUEST_AND_DUMP: u16 = 0x1 | 0x300;
const DONE: u16 = 3;
const ERROR: u16 = 2;
const HEADER: usize = 16;
const SOURCE_IN_MESSAGE: usize = 8;
const INODE_IN_MESSAGE: usize = 68;
const TCP_LISTEN: u32 = 10;

/// The sockets that a connection to 127.0.0.1 can meet on this port: those of IPv4 where there are any
/// (the kernel prefers them), else those of IPv6 that take both.
pub fn listeners(port: Port) -> io::Result<Vec<Listener>> {
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG))?;
    let mut found = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let family = u8::try_from(family).unwrap_or_default();
        ask(&socket, family, port)?;
        collect(&socket, family, &mut found)?;
        if !found.is_empty() {
            break;
        }
    }
    Ok(found)
}

impl Listener {
    /// True if one of these processes holds the socket.
    pub fn belongs_to(self, pids: &[Pid]) -> bool {
        let name = format!("socket:[{}]", self.inode);
        pids.iter().any(|&pid| holds(pid, &name))
    }
}

/// Which process listens, for a message: `4711 (node)`. Looks through all of `/proc`.
pub fn owner_of(listener: Listener) -> Option<String> {
    let name = format!("socket:[{}]", listener.inode);
    let pids = fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid));
    let pid = pids.into_iter().find(|&pid| holds(pid, &name))?;
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let comm: String = comm.trim().chars().filter(|c| !c.is_control()).collect();
    Some(format!("{pid} ({comm})"))
}

fn holds(pid: Pid, socket: &str) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    descriptors
        .flatten()
        .any(|descriptor| fs::read_link(descriptor.path()).is_ok_and(|target| target.as_os_str() == socket))
}

/// Sends `inet_diag_req_v2`: TCP sockets of one family that listen on one port.
fn ask(socket: &OwnedFd, family: u8, port: Port) -> io::Result<()> {
    let mut request = Vec::with_capacity(72);
    request.extend(72_u32.to_ne_bytes());
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend(REQUEST_AND_DUMP.to_ne_bytes());
    request.extend(1_u32.to_ne_bytes());
    request.extend(0_u32.to_ne_bytes());
    request.extend([family, 6, 0, 0]);
    request.extend((1_u32 << TCP_LISTEN).to_ne_bytes());
    request.extend(port.get().to_be_bytes());
    request.extend([0; 2 + 32 + 4]);
    request.extend([0xff; 8]);
    sendto(socket, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    Ok(())
}

fn collect(socket: &OwnedFd, family: u8, found: &mut Vec<Listener>) -> io::Result<()> {
    let mut buffer = [0_u8; 4096];
    // A port has few listeners: a dump that needs more datagrams than this is not ours.
    for _ in 0..64 {
        let (received, _) = recv(socket, &mut buffer[..], RecvFlags::empty())?;
        let mut rest = buffer.get(..received).unwrap_or_default();
        while let Some((length, kind)) = header(rest) {
            match kind {
                DONE => return Ok(()),
                ERROR => {
                    let errno = word(rest, HEADER).map_or(0, u32::cast_signed);
                    return Err(io::Error::from_raw_os_error(-errno));
                }
                _ if !takes_loopback(rest, family) => {}
                _ => found.extend(word(rest, HEADER + INODE_IN_MESSAGE).map(|inode| Listener { inode })),
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
    Err(io::Error::other("the kernel's answer about listening sockets does not end"))
}

/// Does this socket's address take connections to 127.0.0.1?
fn takes_loopback(message: &[u8], family: u8) -> bool {
    let at = HEADER + SOURCE_IN_MESSAGE;
    let Some(address) = message.get(at..at + 16).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok()) else {
        return false;
    };
    if i32::from(family) == libc::AF_INET {
        return matches!(address, [127, 0, 0, 1, ..] | [0, 0, 0, 0, ..]);
    }
    let address = Ipv6Addr::from(address);
    address.is_unspecified()
        || address.to_ipv4_mapped().is_some_and(|mapped| mapped.is_loopback() || mapped.is_unspecified())
}

/// Length and kind of the netlink message that begins here.
fn header(message: &[u8]) -> Option<(usize, u16)> {
    let length = word(message, 0)? as usize;
    let kind = u16::from_ne_bytes(message.get(4..6)?.try_into().ok()?);
    (length >= HEADER && length <= message.len()).then_some((length, kind))
}

fn word(message: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(message.get(at..at + 4)?.try_into().ok()?))
}
