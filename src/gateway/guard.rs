//! Who may come in over TCP: whoever has the token, and is no web page that a browser was lured to.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::answer::refusal;
use crate::hall::Secret;
use crate::mcp::RpcError;
use crate::mcp::terms::code;

/// See the module's page.
#[derive(Debug)]
pub struct Guard {
    /// `None`: everyone who reaches the port.
    pub token: Option<Secret>,
    /// Whom the hall listens to: a name or address that is not loopback is then allowed as `Host`.
    pub any_host: bool,
}

/// These routes for those who may come in.
pub fn guarded(router: Router, guard: Guard) -> Router {
    router.layer(from_fn_with_state(Arc::new(guard), check))
}

async fn check(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    if let Err(what) = guard.check_origin(headers) {
        return refusal(StatusCode::FORBIDDEN, RpcError::new(code::INVALID_REQUEST, what));
    }
    if !guard.knows(headers) {
        let what = "a token is needed: Authorization: Bearer <content of the file `token` in the run directory>; \
                    `guild-hall connect` prints the configuration of each client";
        let mut response = refusal(StatusCode::UNAUTHORIZED, RpcError::new(code::INVALID_REQUEST, what));
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return response.into_response();
    }
    next.run(request).await
}

impl Guard {
    /// A page of another site that a browser sends here has its own name as `Host` (DNS rebinding) or `Origin`.
    fn check_origin(&self, headers: &HeaderMap) -> Result<(), String> {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        if !self.any_host && !host.is_some_and(is_loopback) {
            return Err(format!(
                "the host {:?} is not this one: use localhost or 127.0.0.1",
                host.unwrap_or_default()
            ));
        }
        let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
        let origin = origin.to_str().unwrap_or_default();
        let site = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        // What the hall is reached by may also be where a page of its own comes from.
        if site.is_some_and(|site| is_loopback(site) || (self.any_host && Some(site) == host)) {
            return Ok(());
        }
        Err(format!("pages of {origin:?} may not come here"))
    }

    fn knows(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return true };
        let given =
            headers.get(header::AUTHORIZATION).and_then(|given| given.to_str().ok()).unwrap_or_default();
        let given = given.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        given.is_some_and(|(_, given)| is_same(given.trim().as_bytes(), token.as_bytes()))
    }
}

/// Takes as long whatever the difference is: under a key, nothing of the token can be told from the time.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let under = |text: &[u8]| {
        let mut mac = Hmac::<Sha256>::new_from_slice(other).ok()?;
        mac.update(text);
        Some(mac)
    };
    let (Some(one), Some(other)) = (under(one), under(other)) else { return false };
    one.verify(&other.finalize().into_bytes()).is_ok()
}

fn is_loopback(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else { return false };
    let host = authority.host();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_loopback() {
        for here in ["localhost", "LOCALHOST:80", "127.0.0.1:4180", "127.9.9.9", "[::1]:4180"] {
            assert!(is_loopback(here), "{here}");
        }
        for elsewhere in ["evil.example.com", "localhost.evil.com", "127.0.0.1.evil.com:80", "10.0.0.1", ""] {
            assert!(!is_loopback(elsewhere), "{elsewhere}");
        }
    }
}
