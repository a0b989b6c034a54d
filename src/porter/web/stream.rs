//! Opening a connection to a URL: directly or by a proxy, plain or with TLS.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper::header::HeaderValue;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::{proxies, tls};
use crate::mcp::Stream as Duplex;

/// A connection, its handshakes included, that takes longer is given up.
const LONGEST: Duration = Duration::from_secs(10);

/// Scheme, host and port: what a connection is good for; RFC 6454.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::porter) struct Origin {
    pub(super) is_secure: bool,
    /// An IPv6 address without its brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

/// A connection to a server, or to the proxy that speaks with it.
pub(super) enum Stream {
    Plain(TcpStream),
    /// To a proxy, which wants the whole URL in each request line, and to know who asks.
    Proxy(TcpStream, Option<HeaderValue>),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Origin {
    pub(in crate::porter) fn of(uri: &Uri) -> io::Result<Self> {
        let is_secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(invalid(format!("{uri} begins with neither http:// nor https://"))),
        };
        let host = uri.host().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| invalid(format!("{uri} has no host")))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        Ok(Self { is_secure, host, port })
    }

    /// On this machine.
    pub(super) fn is_here(&self) -> bool {
        if self.host == "localhost" || self.host.ends_with(".localhost") {
            return true;
        }
        match self.host.parse() {
            Ok(std::net::IpAddr::V4(address)) => address.is_loopback() || address.is_unspecified(),
            Ok(std::net::IpAddr::V6(address)) => {
                let mapped = address.to_ipv4_mapped().is_some_and(|address| address.is_loopback());
                address.is_loopback() || address.is_unspecified() || mapped
            }
            Err(_) => false,
        }
    }

    /// RFC 9110 §7.2: without the port that goes without saying.
    pub(super) fn host_header(&self) -> String {
        let usual = if self.is_secure { 443 } else { 80 };
        if self.port == usual { self.bracketed() } else { self.with_port() }
    }

    pub(super) fn with_port(&self) -> String {
        format!("{}:{}", self.bracketed(), self.port)
    }

    fn bracketed(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() }
    }
}

/// A connection to where this URL is, with nothing of a proxy to be seen in it. The error does not name the URL.
pub(in crate::porter) async fn connect(uri: &Uri) -> io::Result<Duplex> {
    Ok(match open(&Origin::of(uri)?, Proxied::ByTunnel).await? {
        Stream::Plain(stream) | Stream::Proxy(stream, _) => Duplex::Tcp(stream),
        Stream::Tls(stream) => Duplex::Other(Box::into_pin(stream)),
    })
}

/// How a proxy is asked for what needs no TLS. Many have no tunnels for that.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Proxied {
    ByTunnel,
    ByRequest,
}

pub(super) async fn open(origin: &Origin, proxied: Proxied) -> io::Result<Stream> {
    let opened = timeout(LONGEST, open_slowly(origin, proxied)).await;
    opened.unwrap_or_else(|_| {
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {LONGEST:?}")))
    })
}

async fn open_slowly(origin: &Origin, proxied: Proxied) -> io::Result<Stream> {
    let stream = match proxies::of_environment(origin)? {
        Some(proxy) => {
            let stream = tcp(&proxy.host, proxy.port).await.map_err(|error| {
                io::Error::new(error.kind(), format!("the proxy {}:{}: {error}", proxy.host, proxy.port))
            })?;
            if !origin.is_secure && proxied == Proxied::ByRequest {
                return Ok(Stream::Proxy(stream, proxy.credentials));
            }
            proxy.tunnel(stream, origin).await?
        }
        None => tcp(&origin.host, origin.port).await?,
    };
    if !origin.is_secure {
        return Ok(Stream::Plain(stream));
    }
    Ok(Stream::Tls(tls::over(stream, &origin.host).await?.into()))
}

async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    // Needs nobody to be asked, which would be another thread.
    let here = [SocketAddr::from((Ipv4Addr::LOCALHOST, port)), SocketAddr::from((Ipv6Addr::LOCALHOST, port))];
    let stream = match host {
        "localhost" => TcpStream::connect(&here[..]).await?,
        host => TcpStream::connect((host, port)).await?,
    };
    // A connection that borrows the very port that it looks for is answered by itself.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) | Self::Proxy(stream, _) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) | Self::Proxy(stream, _) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>, cx: &mut Context<'_>, pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) | Self::Proxy(stream, _) => Pin::new(stream).poll_write_vectored(cx, pieces),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) | Self::Proxy(stream, _) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) | Self::Proxy(stream, _) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) | Self::Proxy(stream, _) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
