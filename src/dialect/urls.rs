//! URLs in manifests.

use hyper::Uri;
use hyper::http::uri::Authority;

use super::fields::{Field, Findings};

/// A whole URL of HTTP; without what is not sent, and without what would be told on the way.
pub(super) fn url(field: &Field, findings: &mut Findings) -> Option<String> {
    let text = field.text(findings)?.trim().to_owned();
    match wrong(&text) {
        None => Some(text),
        Some(why) => {
            field.wrong(&format!("a URL, as in \"http://127.0.0.1:3100\": {why}"), findings);
            None
        }
    }
}

pub(super) fn is_url(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}

/// Why a text cannot be asked as a URL.
pub(super) fn wrong(text: &str) -> Option<&'static str> {
    if !is_url(text) {
        return Some("it begins with \"http://\" or \"https://\"");
    }
    if text.contains('#') {
        return Some("it has no part behind a \"#\"");
    }
    let Ok(uri) = text.parse::<Uri>() else {
        return Some("it cannot be read as one");
    };
    match uri.authority() {
        Some(authority) if authority.as_str().contains('@') => {
            Some("it holds no user and password; `headers` may")
        }
        Some(authority) if authority.host().is_empty() => Some("it names no host"),
        Some(authority) if !has_good_port(authority) => Some("its port is a number between 1 and 65535"),
        Some(_) => None,
        None => Some("it names no host"),
    }
}

fn has_good_port(authority: &Authority) -> bool {
    let port = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
    port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse().is_ok_and(|port: u16| port > 0))
}

/// The path of a URL, with the "/" that it begins with.
pub(super) fn url_path(field: &Field, findings: &mut Findings) -> Option<String> {
    let text = field.text(findings)?;
    if text.is_empty() || text.bytes().any(|byte| !byte.is_ascii_graphic() || byte == b'#') {
        field.wrong("the path of a URL, without spaces, as in \"/run\"", findings);
        return None;
    }
    Some(if text.starts_with('/') { text } else { format!("/{text}") })
}

/// Headers of a request, in order.
pub(super) fn headers(field: &Field, findings: &mut Findings) -> Vec<(String, String)> {
    let wrong_name = |name: &str| {
        hyper::header::HeaderName::from_bytes(name.as_bytes())
            .is_err()
            .then(|| format!("{} cannot be the name of a header", super::tree::excerpt(name)))
    };
    let value = |field: &Field, findings: &mut Findings| {
        let text = field.text_as_written(findings)?;
        if hyper::header::HeaderValue::from_str(&text).is_err() {
            // It may be a secret.
            let place = Some(field.node.place());
            findings.fault(place, &field.name, "cannot be the value of a header: it has control characters");
            return None;
        }
        Some(text)
    };
    field.pairs(wrong_name, value, findings)
}

#[cfg(test)]
mod tests {
    use super::wrong;

    #[test]
    fn a_url_is_whole_and_holds_no_password() {
        for good in [
            "http://127.0.0.1:3100",
            "https://example.org/a/b?c=d",
            "http://[::1]:80/",
            "http://x.y:65535/sse",
        ] {
            assert_eq!(wrong(good), None, "{good}");
        }
        for bad in [
            "",
            "127.0.0.1:3100",
            "ftp://x",
            "http://",
            "http:///path",
            "http://a b",
            "http://x#y",
            "http://u:p@x",
            "http://x:70000",
            "http://x:0/",
            "http://x:y/",
            "file:///etc/passwd",
        ] {
            assert!(wrong(bad).is_some(), "{bad}");
        }
    }
}
