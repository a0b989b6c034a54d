//! Proxies of the environment: `https_proxy` and `http_proxy` (or in capitals), less what `no_proxy` names. This
//! machine is always spoken to directly.

use std::io;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::Uri;
use hyper::header::HeaderValue;
use percent_encoding::percent_decode_str;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Origin;
use crate::mcp::excerpt;

/// What a proxy may say before the tunnel is there; bytes.
const LONGEST_HEAD: usize = 8 * 1024;

/// An HTTP proxy.
#[derive(Debug, PartialEq)]
pub(super) struct Proxy {
    pub(super) host: String,
    pub(super) port: u16,
    /// Of the header `Proxy-Authorization`.
    pub(super) credentials: Option<HeaderValue>,
}

/// The proxy for an origin. A variable that cannot be read is an error: to go round a proxy is not what was meant.
pub(super) fn of_environment(origin: &Origin) -> io::Result<Option<Proxy>> {
    choose(origin, |name| std::env::var(name).ok())
}

fn choose(origin: &Origin, variable: impl Fn(&str) -> Option<String>) -> io::Result<Option<Proxy>> {
    if origin.is_here() {
        return Ok(None);
    }
    let either = |name: &'static str| {
        let upper = name.to_ascii_uppercase();
        let named = [name, &upper].map(|name| variable(name).map(|value| (name.to_owned(), value)));
        named.into_iter().flatten().find(|(_, value)| !value.trim().is_empty())
    };
    let Some((name, value)) = either(if origin.is_secure { "https_proxy" } else { "http_proxy" }) else {
        return Ok(None);
    };
    if either("no_proxy").is_some_and(|(_, list)| list.split(',').any(|entry| is_meant(entry, origin))) {
        return Ok(None);
    }
    let wrong = || {
        let what = format!("{name} names no http:// proxy, and others are not known here");
        io::Error::new(io::ErrorKind::InvalidInput, what)
    };
    Proxy::read(value.trim()).ok_or_else(wrong).map(Some)
}

/// Does an entry of `no_proxy` mean this origin? A name means what is below it too.
fn is_meant(entry: &str, origin: &Origin) -> bool {
    let entry = entry.trim().to_ascii_lowercase();
    let (host, port) = match entry.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port.parse().ok()),
        _ => (&*entry, None),
    };
    let host = host.trim_start_matches("*.").trim_start_matches(['.', '[']).trim_end_matches(']');
    let is_below = || origin.host.strip_suffix(host).is_some_and(|below| below.ends_with('.'));
    !host.is_empty()
        && port.is_none_or(|port: u16| port == origin.port)
        && (host == "*" || host == origin.host || is_below())
}

impl Proxy {
    fn read(text: &str) -> Option<Self> {
        let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = whole.parse().ok()?;
        let Origin { host, port, is_secure: false } = Origin::of(&uri).ok()? else { return None };
        let user = uri.authority()?.as_str().rsplit_once('@').map(|(user, _)| user);
        let basic = |user| BASE64_STANDARD.encode(percent_decode_str(user).collect::<Vec<u8>>());
        let credentials = user.map(|user| HeaderValue::from_str(&format!("Basic {}", basic(user))));
        let credentials = credentials.transpose().ok()?;
        Some(Self { host, port, credentials })
    }

    /// Asks for a tunnel; RFC 9110 §9.3.6.
    pub(super) async fn tunnel(&self, mut stream: TcpStream, origin: &Origin) -> io::Result<TcpStream> {
        let target = origin.with_port();
        let mut asked = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
        if let Some(credentials) = self.credentials.as_ref().and_then(|value| value.to_str().ok()) {
            asked += &format!("Proxy-Authorization: {credentials}\r\n");
        }
        asked += "\r\n";
        stream.write_all(asked.as_bytes()).await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            // One by one: what follows is not for us to read.
            head.push(stream.read_u8().await?);
            if head.len() > LONGEST_HEAD {
                return Err(io::Error::other("the proxy does not come to the point"));
            }
        }
        let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
        let status = line.split(|&byte| byte == b' ').nth(1).unwrap_or_default();
        if status.first() == Some(&b'2') {
            return Ok(stream);
        }
        Err(io::Error::other(format!("the proxy {}:{} answered {}", self.host, self.port, excerpt(line))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The proxy for a URL in an environment, as `host:port`.
    fn chosen(url: &str, environment: &[(&str, &str)]) -> Result<String, String> {
        let origin = Origin::of(&url.parse().unwrap()).unwrap();
        let variable = |name: &str| {
            environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into())
        };
        let chosen = choose(&origin, variable).map_err(|error| error.to_string())?;
        Ok(chosen.map_or_else(|| "none".into(), |proxy| format!("{}:{}", proxy.host, proxy.port)))
    }

    #[test]
    fn this_machine_is_never_spoken_to_by_a_proxy() {
        let environment = [("http_proxy", "http://proxy:3128"), ("HTTPS_PROXY", "proxy:8443")];
        for here in [
            "127.0.0.1:80",
            "127.9.9.9",
            "localhost:1",
            "[::1]",
            "0.0.0.0",
            "a.localhost",
            "[::ffff:127.0.0.1]",
        ] {
            assert_eq!(chosen(&format!("http://{here}/"), &environment).as_deref(), Ok("none"), "{here}");
            assert_eq!(chosen(&format!("https://{here}/"), &environment).as_deref(), Ok("none"), "{here}");
        }
        assert_eq!(chosen("http://example.org/", &environment).as_deref(), Ok("proxy:3128"));
        assert_eq!(chosen("https://example.org/", &environment).as_deref(), Ok("proxy:8443"));
        assert_eq!(chosen("https://127.example.org/", &environment).as_deref(), Ok("proxy:8443"));
    }

    #[test]
    fn what_no_proxy_names_is_spoken_to_directly() {
        let with = |list| [("http_proxy", "http://proxy:3128"), ("no_proxy", list)];
        for list in ["*", "a.org", "x, .a.org", "*.a.org", "b.a.org:80", "A.ORG"] {
            assert_eq!(chosen("http://b.a.org/", &with(list)).as_deref(), Ok("none"), "{list}");
        }
        for list in ["", ",", "ba.org", "c.b.a.org", "b.a.org:81", ".org.a"] {
            assert_eq!(chosen("http://b.a.org/", &with(list)).as_deref(), Ok("proxy:3128"), "{list}");
        }
        assert_eq!(chosen("http://[2001:db8::1]/", &with("2001:db8::1")).as_deref(), Ok("none"));
        assert_eq!(chosen("http://[2001:db8::1]:8/", &with("[2001:db8::1]:8")).as_deref(), Ok("none"));
    }

    #[test]
    fn a_proxy_that_is_not_understood_is_not_gone_round() {
        for value in ["socks5://proxy:1080", "https://proxy", "http://", "a b"] {
            let refused = chosen("http://a.org/", &[("http_proxy", value)]).unwrap_err();
            assert!(refused.contains("http_proxy"), "{refused}");
        }
        let proxy = Proxy::read("http://me:se%40cret@proxy:1").unwrap();
        assert_eq!(proxy.credentials.unwrap(), "Basic bWU6c2VAY3JldA==");
    }
}
