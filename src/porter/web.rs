//! placeholder
use crate::mcp::Stream;
use hyper::Uri;
use std::io;
pub(super) async fn connect(uri: &Uri) -> io::Result<Stream> {
    let port = uri.port_u16().unwrap_or(80);
    let stream = tokio::net::TcpStream::connect((uri.host().unwrap_or_default(), port)).await?;
    stream.set_nodelay(true)?;
    Ok(Stream::Tcp(stream))
}
