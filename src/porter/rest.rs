//! A plugin that is a server of its own: it is sent the PluginRequest, or what a capability's method and path
//! say. HomeClaw, "Plugin Standard" §5.4, and "Plugin Registration" §3.2. Called by `toolbox`.
//!
//! A capability with a path is asked for there, with its method (POST if it has none). `{name}` in the path
//! takes the parameter's place. The other parameters are the query of GET, HEAD and DELETE, where the elements of
//! an array follow each other under one name and an object is its JSON; else they are a JSON object, the body.

use std::io;
use std::str::FromStr;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, Request, Uri};
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

use super::reply::{Reply, reason};
use super::request::Asked;
use super::web::{self, Answer, Fault, Origin};
use crate::mcp::excerpt;
use crate::model::porter::Capability;

/// An answer may be this large; bytes.
const LARGEST_ANSWER: usize = 16 * 1024 * 1024;
/// What stands for itself in a value.
const IN_VALUE: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// What must be written otherwise in a path of a manifest, where everything else is meant as it stands.
const IN_PATH: AsciiSet =
    CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'\\').add(b'^').add(b'`').add(b'|');

/// See the module's page.
#[derive(Debug)]
pub(super) struct Rest {
    base_url: String,
    path: String,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// What is sent.
#[derive(Debug, PartialEq)]
struct Asking {
    method: Method,
    url: String,
    body: Option<String>,
}

impl Rest {
    /// The error says what in the manifest is wrong.
    pub(super) fn new(base_url: &str, path: &str, headers: &[(String, String)]) -> Result<Self, String> {
        let header = |(name, value): &(String, String)| {
            let read = (HeaderName::from_str(name), HeaderValue::from_str(value));
            let (Ok(name), Ok(mut value)) = read else {
                return Err(format!("the header {name:?} of the plugin's configuration cannot be sent"));
            };
            value.set_sensitive(true);
            Ok((name, value))
        };
        let headers = headers.iter().map(header).collect::<Result<_, String>>()?;
        let rest = Self { base_url: base_url.into(), path: path.into(), headers };
        let url = joined(base_url, path);
        let uri: Uri = url.parse().map_err(|error| format!("{url:?} is no URL: {error}"))?;
        Origin::of(&uri).map_err(|error| error.to_string())?;
        Ok(rest)
    }

    /// Dropping it hangs up.
    pub(super) async fn call(&self, asked: &Asked, patience: Duration) -> Reply {
        let Asking { method, url, body } = match self.asking(asked) {
            Ok(asking) => asking,
            Err(fault) => return Reply::failed(fault),
        };
        let uri: Uri = match url.parse() {
            Ok(uri) => uri,
            Err(error) => return Reply::failed(format!("{} is no URL: {error}", excerpt(url.as_bytes()))),
        };
        let place = web::place(&uri);
        let mut request = Request::new(Bytes::from(body.unwrap_or_default()));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*;q=0.5"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.extend(self.headers.iter().cloned());
        if request.body().is_empty() {
            request.headers_mut().remove(CONTENT_TYPE);
        }
        match web::send(request, LARGEST_ANSWER, patience).await {
            Ok(answer) => read(&place, &answer),
            Err(fault) => Reply::failed(format!("{place} {fault}{}", hint(&fault))),
        }
    }

    fn asking(&self, asked: &Asked) -> Result<Asking, String> {
        let said = |capability: &Capability| (capability.method.clone(), capability.path.clone());
        let (method, path) = asked.capability.as_deref().map(said).unwrap_or_default();
        let method = method.as_deref().unwrap_or("POST").parse();
        let method: Method = method.map_err(|_| "the capability's method is none of HTTP".to_owned())?;
        let (path, is_own) = match path {
            Some(path) => (path, true),
            None => (self.path.clone(), method != Method::POST),
        };
        if !is_own {
            let url = joined(&self.base_url, &path);
            return Ok(Asking { method, url, body: Some(asked.request.to_string()) });
        }
        let mut arguments = asked.arguments.clone();
        let path = filled(&path, &mut arguments)?;
        let mut url = joined(&self.base_url, &path);
        if method == Method::GET || method == Method::HEAD || method == Method::DELETE {
            add_query(&mut url, &arguments);
            return Ok(Asking { method, url, body: None });
        }
        Ok(Asking { method, url, body: Some(Value::Object(arguments).to_string()) })
    }
}

/// What to look for, where that is likely.
fn hint(fault: &Fault) -> &'static str {
    match fault {
        Fault::Connect(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            ". Does the plugin's own server run? The hall does not start it"
        }
        _ => "",
    }
}

/// A path below a URL, or a URL of its own.
fn joined(base: &str, path: &str) -> String {
    let is_whole =
        |prefix: &str| path.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    let url = if is_whole("http://") || is_whole("https://") {
        path.to_owned()
    } else if path.is_empty() {
        base.to_owned()
    } else {
        let between = if path.starts_with(['/', '?']) { "" } else { "/" };
        format!("{}{between}{path}", base.trim_end_matches('/'))
    };
    utf8_percent_encode(&url, &IN_PATH).to_string()
}

/// A path with its `{name}`s replaced; what was used is taken out of the arguments.
fn filled(path: &str, arguments: &mut Map<String, Value>) -> Result<String, String> {
    let (mut whole, mut rest) = (String::new(), path);
    let mut used = Vec::new();
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else { break };
        let value = arguments.get(name).map(plain).ok_or_else(|| {
            format!("the plugin was not called: its path {path} needs {name:?}, which was not given")
        })?;
        // Such a value would lead to another place than the path says.
        if matches!(&*value, "" | "." | "..") {
            return Err(format!(
                "the plugin was not called: {name:?} is {value:?}, which cannot stand in {path}"
            ));
        }
        whole += before;
        whole.extend(utf8_percent_encode(&value, &IN_VALUE));
        used.push(name);
        rest = after;
    }
    for name in used {
        arguments.remove(name);
    }
    Ok(whole + rest)
}

fn add_query(url: &mut String, arguments: &Map<String, Value>) {
    let mut add = |name: &str, value: &Value| {
        url.push(if url.contains('?') { '&' } else { '?' });
        url.extend(utf8_percent_encode(name, &IN_VALUE));
        url.push('=');
        url.extend(utf8_percent_encode(&plain(value), &IN_VALUE));
    };
    for (name, value) in arguments {
        match value {
            Value::Array(elements) => elements.iter().for_each(|element| add(name, element)),
            value => add(name, value),
        }
    }
}

/// A value as it stands in a URL.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn read(place: &str, answer: &Answer) -> Reply {
    let body = &*answer.body;
    if !answer.status.is_success() {
        return Reply::failed(refusal(place, answer));
    }
    if let Ok(value) = serde_json::from_slice(body) {
        return Reply::of_json(value);
    }
    match std::str::from_utf8(body) {
        Ok(text) => Reply::of_text(text.into()),
        Err(_) => {
            let kind =
                answer.headers.get(CONTENT_TYPE).map_or("bytes".into(), |kind| excerpt(kind.as_bytes()));
            Reply::failed(format!("{place} answered with {} bytes that are no text ({kind})", body.len()))
        }
    }
}

/// The plugin's words for what went wrong, if it has any.
pub(super) fn refusal(place: &str, answer: &Answer) -> String {
    let said: Option<Value> = serde_json::from_slice(&answer.body).ok();
    let words = said.as_ref().and_then(|said| match said {
        Value::Object(fields) => {
            ["error", "detail", "message"].into_iter().find_map(|name| reason(fields.get(name)?))
        }
        Value::String(text) => Some(text.clone()),
        _ => None,
    });
    let status = answer.status;
    match words {
        Some(words) => format!("{words} ({place} answered {status})"),
        None if answer.body.is_empty() => format!("{place} answered {status}, without a word"),
        None => format!("{place} answered {status}: {}", excerpt(&answer.body)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hyper::StatusCode;
    use hyper::header::HeaderMap;
    use serde_json::json;

    use super::*;

    fn asking(
        base: &str, method: Option<&str>, path: Option<&str>, arguments: Value,
    ) -> Result<Asking, String> {
        let capability = Capability {
            method: method.map(Into::into),
            path: path.map(Into::into),
            ..Capability::default()
        };
        let arguments = arguments.as_object().unwrap().clone();
        Rest::new(base, "/run", &[])?.asking(&Asked::new("p", Some(Arc::new(capability)), arguments))
    }

    fn sent(method: Option<&str>, path: Option<&str>, arguments: Value) -> (String, Option<Value>) {
        let asking = asking("http://h:1/api/", method, path, arguments).unwrap();
        let body = asking.body.map(|body| serde_json::from_str(&body).unwrap());
        (format!("{} {}", asking.method, asking.url), body)
    }

    #[test]
    fn a_capability_is_asked_for_by_its_method_and_path() {
        let arguments = || json!({"q": "a b&c", "n": 3, "list": ["x", 1], "deep": {"y": true}});
        let query = "deep=%7B%22y%22%3Atrue%7D&list=x&list=1&n=3&q=a%20b%26c";
        assert_eq!(
            sent(Some("GET"), Some("/find"), arguments()),
            (format!("GET http://h:1/api/find?{query}"), None)
        );
        assert_eq!(
            sent(Some("DELETE"), Some("find?v=1"), json!({"n": 3})).0,
            "DELETE http://h:1/api/find?v=1&n=3"
        );
        assert_eq!(sent(Some("GET"), Some("/find"), json!({})).0, "GET http://h:1/api/find");
        let put = ("PUT http://h:1/api/find".to_owned(), Some(arguments()));
        assert_eq!(sent(Some("PUT"), Some("/find"), arguments()), put);
        assert_eq!(sent(None, Some("HTTP://o/x y"), json!({})).0, "POST HTTP://o/x%20y");
        // Without a path it is told by its id.
        let (place, body) = sent(Some("POST"), None, json!({"n": 3}));
        assert_eq!(place, "POST http://h:1/api/run");
        assert_eq!(body.unwrap()["capability_parameters"], json!({"n": 3}));
        assert_eq!(sent(Some("GET"), None, json!({"n": 3})).0, "GET http://h:1/api/run?n=3");
    }

    #[test]
    fn a_parameter_in_the_path_is_not_sent_again() {
        let (place, body) =
            sent(Some("POST"), Some("/u/{id}/x-{n}/{id}"), json!({"id": "a/b?", "n": 3, "m": 4}));
        assert_eq!(place, "POST http://h:1/api/u/a%2Fb%3F/x-3/a%2Fb%3F");
        assert_eq!(body, Some(json!({"m": 4})));
        for value in ["", ".", ".."] {
            let refused =
                asking("http://h", Some("DELETE"), Some("/u/{id}"), json!({"id": value})).unwrap_err();
            assert!(refused.contains("\"id\""), "{refused}");
        }
        let refused = asking("http://h", Some("GET"), Some("/u/{id}"), json!({})).unwrap_err();
        assert!(refused.contains("\"id\", which was not given"), "{refused}");
    }

    #[test]
    fn a_base_that_is_no_url_is_refused_before_any_call() {
        for base in ["localhost:3100", "ftp://h", "http://", "", "http://a b"] {
            assert!(asking(base, None, None, json!({})).is_err(), "{base:?}");
        }
    }

    #[test]
    fn a_refusal_is_told_in_the_plugins_words() {
        let told = |status: u16, body: &'static str| {
            let status = StatusCode::from_u16(status).unwrap();
            let answer =
                Answer { status, headers: HeaderMap::new(), body: Bytes::from_static(body.as_bytes()) };
            read("http://h/run", &answer).error.unwrap()
        };
        assert_eq!(
            told(500, r#"{"success": false, "error": "no such city"}"#),
            "no such city (http://h/run answered 500 Internal Server Error)"
        );
        assert_eq!(told(422, r#"{"detail": [1]}"#), "[1] (http://h/run answered 422 Unprocessable Entity)");
        assert_eq!(told(502, "<html>oh"), "http://h/run answered 502 Bad Gateway: <html>oh");
        assert_eq!(told(503, ""), "http://h/run answered 503 Service Unavailable, without a word");
        assert_eq!(told(200, r#"{"success": false, "error": "no"}"#), "no");
    }
}
