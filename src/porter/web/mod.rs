//! A small client of HTTP/1.1: what the porter asks of servers that are not its own. Called by `rest`, `llm` and
//! `toolbox`.
//!
//! Connections are kept for a while, those of one origin for that origin. Redirections of a GET are followed.
//! Proxies of the environment are used, but never for this machine (`proxies`).

mod kept;
mod proxies;
mod stream;
mod tls;

use std::error::Error;
use std::io;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, CONTENT_LENGTH, HOST, HeaderMap, HeaderValue, LOCATION, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode, Uri};
use tokio::time::timeout;

use crate::mcp::excerpt;
pub(super) use stream::{Origin, connect};

/// Redirections of one request.
const MOST_REDIRECTIONS: usize = 5;

/// A whole answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Why there is no answer; said of a URL: "http://… cannot be reached: …".
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("cannot be reached: {0}")]
    Connect(#[source] io::Error),
    #[error("did not answer within {0:?}")]
    Slow(Duration),
    #[error("answered with more than {} MiB", .0 >> 20)]
    TooLarge(usize),
    #[error("broke off: {0}")]
    Broken(String),
    #[error("redirects more than {MOST_REDIRECTIONS} times")]
    Redirections,
    #[error("redirects to {0}, which is no URL")]
    Astray(String),
}

/// Where a URL is, without what may be secret: no query, no user.
pub(super) fn place(uri: &Uri) -> String {
    let scheme = uri.scheme_str().unwrap_or("http");
    let host = uri.host().unwrap_or_default();
    let port = uri.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{scheme}://{host}{port}{}", uri.path())
}

/// Sends a request to the URL that it has, and reads the whole answer. Whatever `limit` (bytes) and `patience` do not
/// allow is a fault. Dropping it hangs up.
pub(super) async fn send(request: Request<Bytes>, limit: usize, patience: Duration) -> Result<Answer, Fault> {
    timeout(patience, follow(request, limit)).await.map_err(|_| Fault::Slow(patience))?
}

async fn follow(mut request: Request<Bytes>, limit: usize) -> Result<Answer, Fault> {
    for _ in 0..=MOST_REDIRECTIONS {
        let next =
            (request.method() == Method::GET).then(|| (request.uri().clone(), request.headers().clone()));
        let answer = exchange(request, limit).await?;
        let location = answer.headers.get(LOCATION).filter(|_| answer.status.is_redirection());
        let (Some((from, headers)), Some(location)) = (next, location) else { return Ok(answer) };
        let to = location.to_str().ok().and_then(|location| elsewhere(&from, location));
        let to = to.ok_or_else(|| Fault::Astray(excerpt(location.as_bytes())))?;
        request = Request::new(Bytes::new());
        // What was meant for one server is not another's to know.
        if Origin::of(&from).ok() == Origin::of(&to).ok() {
            *request.headers_mut() = headers;
        } else if let Some(accept) = headers.get(ACCEPT) {
            request.headers_mut().insert(ACCEPT, accept.clone());
        }
        *request.uri_mut() = to;
    }
    Err(Fault::Redirections)
}

/// What a `Location` means; RFC 9110 §10.2.2.
fn elsewhere(from: &Uri, location: &str) -> Option<Uri> {
    let location = location.split('#').next().unwrap_or_default();
    let scheme = from.scheme_str()?;
    let origin = format!("{scheme}://{}", from.authority()?);
    let path = from.path();
    let to = if location.contains("://") {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{origin}{location}")
    } else if location.starts_with('?') {
        format!("{origin}{path}{location}")
    } else {
        format!("{origin}{}/{location}", path.rsplit_once('/').map_or("", |(directory, _)| directory))
    };
    to.parse().ok()
}

async fn exchange(request: Request<Bytes>, limit: usize) -> Result<Answer, Fault> {
    let origin = Origin::of(request.uri()).map_err(Fault::Connect)?;
    let mut request = prepared(request, &origin).map_err(Fault::Connect)?;
    loop {
        let (mut line, is_new) = match kept::take(&origin).await {
            Some(line) => (line, false),
            None => (kept::Line::open(origin.clone()).await?, true),
        };
        let whole = request.uri().clone();
        line.address(&mut request);
        match line.sender().try_send_request(request).await {
            Ok(response) => {
                let answer = read(response, limit).await?;
                kept::keep(line);
                return Ok(answer);
            }
            // A kept connection that turns out closed before a byte of the request was written is replaced by
            // another one; nothing that was written is ever written again.
            Err(mut refused) => match refused.take_message() {
                Some(unsent) if !is_new => {
                    request = unsent;
                    *request.uri_mut() = whole;
                }
                _ => return Err(broken(refused.error())),
            },
        }
    }
}

/// With the headers that every request has.
fn prepared(request: Request<Bytes>, origin: &Origin) -> io::Result<Request<Full<Bytes>>> {
    let mut request = request.map(Full::new);
    let headers = request.headers_mut();
    headers.insert(HOST, HeaderValue::from_str(&origin.host_header()).map_err(io::Error::other)?);
    let agent = HeaderValue::from_static(concat!("guild-hall/", env!("CARGO_PKG_VERSION")));
    headers.entry(USER_AGENT).or_insert(agent);
    Ok(request)
}

async fn read(response: Response<Incoming>, limit: usize) -> Result<Answer, Fault> {
    let (head, body) = response.into_parts();
    let length =
        head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > limit as u64) {
        return Err(Fault::TooLarge(limit));
    }
    let body = Limited::new(body, limit).collect().await.map_err(|error| {
        if error.is::<http_body_util::LengthLimitError>() { Fault::TooLarge(limit) } else { broken(&*error) }
    })?;
    Ok(Answer { status: head.status, headers: head.headers, body: body.to_bytes() })
}

fn broken(error: &(dyn Error + 'static)) -> Fault {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    Fault::Broken(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirection_is_read_as_it_is_meant() {
        let from: Uri = "http://a.org:81/x/y?z".parse().unwrap();
        let to = |location| elsewhere(&from, location).map(|uri| uri.to_string());
        assert_eq!(to("https://b.org/p#here").as_deref(), Some("https://b.org/p"));
        assert_eq!(to("//b.org/p").as_deref(), Some("http://b.org/p"));
        assert_eq!(to("/p?q").as_deref(), Some("http://a.org:81/p?q"));
        assert_eq!(to("p").as_deref(), Some("http://a.org:81/x/p"));
        assert_eq!(to("?q").as_deref(), Some("http://a.org:81/x/y?q"));
        assert_eq!(to("http://b org/"), None);
    }

    #[test]
    fn a_place_tells_no_secrets() {
        let uri: Uri = "https://me:secret@[::1]:8443/a/b?key=secret".parse().unwrap();
        assert_eq!(place(&uri), "https://[::1]:8443/a/b");
        let origin = Origin::of(&uri).unwrap();
        let request = Request::builder().uri(uri).body(Bytes::new()).unwrap();
        let request = prepared(request, &origin).unwrap();
        assert_eq!(request.headers()[HOST], "[::1]:8443");
    }
}
