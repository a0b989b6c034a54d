//! A remote server that speaks as MCP 2024-11-05 had it: all that it says comes by one stream of events, and
//! what it is told is posted to where the first of them says.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, Uri};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::mcp::{Answering, Connections, Dial, Events, LinkError, Params, excerpt, introduction};
use crate::porter::switchboard::Switchboard;
use crate::porter::web;
use crate::porter::wire::{Gone, Wire};

/// One event may be this large; bytes.
const LARGEST_EVENT: usize = 16 * 1024 * 1024;

pub(super) struct Sse {
    place: Arc<Place>,
    switchboard: Switchboard,
    reading: Mutex<Option<JoinHandle<()>>>,
}

/// Where the server is.
pub(crate) struct Place {
    url: Uri,
    headers: HeaderMap,
    connections: Connections,
    /// Where it wants to be told things; `None` while there is no stream.
    post: Mutex<Option<Uri>>,
}

impl Sse {
    pub(super) fn new(url: Uri, headers: HeaderMap) -> Self {
        let target = url.clone();
        let dial: Dial = Arc::new(move || {
            let target = target.clone();
            Box::pin(async move { web::connect(&target).await })
        });
        let place =
            Arc::new(Place { url, headers, connections: Connections::new(dial), post: Mutex::default() });
        let switchboard = Switchboard::new(Wire::Post(place.clone()));
        Self { place, switchboard, reading: Mutex::default() }
    }

    pub(super) fn switchboard(&self) -> &Switchboard {
        &self.switchboard
    }

    /// There is no stream, or no more.
    pub(super) fn is_gone(&self) -> bool {
        self.place.lock().is_none()
    }

    /// Opens the stream and has the server introduce itself.
    pub(super) async fn meet(&self) -> Result<Box<RawValue>, String> {
        let stream = self.place.open().await?;
        let (told, endpoint) = oneshot::channel();
        let reading = tokio::spawn(read(stream, told, self.place.clone(), self.switchboard.clone()));
        if let Some(former) = self.reading.lock().unwrap_or_else(PoisonError::into_inner).replace(reading) {
            former.abort();
        }
        let endpoint =
            endpoint.await.map_err(|_| "its stream ends before it says where to post".to_owned())??;
        *self.place.lock() = Some(endpoint);
        let offered =
            to_raw_value(&json!({"sampling": {}, "elicitation": {}})).map_err(|error| error.to_string())?;
        let said = self.switchboard.request("initialize", introduction(&offered)).await;
        let said = said.map_err(|error| error.message)?;
        self.switchboard.notify("notifications/initialized", Some(Params::default())).await;
        Ok(said)
    }
}

impl Place {
    /// Posts one message.
    pub(crate) async fn post(&self, message: Vec<u8>) -> Result<(), Gone> {
        let Some(uri) = self.lock().clone() else {
            return Err(Gone("its stream of events has ended".into()));
        };
        let mut request = self.request(Method::POST, &uri, message.into());
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let response =
            self.connections.request(request, true).await.map_err(|error| Gone(error.to_string()))?;
        let status = response.status();
        let mut body = response.into_body();
        let mut text = Vec::new();
        while let Some(Ok(piece)) = body.piece().await {
            text.extend_from_slice(piece.get(..4096.min(piece.len())).unwrap_or_default());
            if text.len() > LARGEST_EVENT {
                break;
            }
        }
        if status.is_success() {
            return Ok(());
        }
        Err(Gone(format!("it answered HTTP {status}: {}", excerpt(&text))))
    }

    async fn open(&self) -> Result<Answering, String> {
        let request = self.request(Method::GET, &self.url, Bytes::new());
        let response: Response<Answering> =
            self.connections.request(request, false).await.map_err(|error| match error {
                LinkError::Connect(why) => why.to_string(),
                error => error.to_string(),
            })?;
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if response.status().is_success() && kind.trim_start().starts_with("text/event-stream") {
            return Ok(response.into_body());
        }
        Err(format!(
            "it answered HTTP {} and no stream of events; is it a streamable HTTP server?",
            response.status()
        ))
    }

    fn request(&self, method: Method, uri: &Uri, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() =
            uri.path_and_query().map_or_else(|| Uri::from_static("/"), |path| path.clone().into());
        let mut headers = self.headers.clone();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        if let Some(host) = self.url.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok()) {
            headers.insert(HOST, host);
        }
        *request.headers_mut() = headers;
        request
    }

    fn lock(&self) -> MutexGuard<'_, Option<Uri>> {
        self.post.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hears the stream to its end.
async fn read(
    mut stream: Answering, told: oneshot::Sender<Result<Uri, String>>, place: Arc<Place>,
    switchboard: Switchboard,
) {
    let mut told = Some(told);
    let mut events = Events::default();
    let mut heard = Vec::new();
    while let Some(Ok(piece)) = stream.piece().await {
        events.feed(&piece, |data| {
            heard.push(data.to_vec());
            true
        });
        for data in heard.drain(..) {
            match told.take() {
                Some(told) => drop(told.send(endpoint(&place.url, &data))),
                None if switchboard.hear(&data).await => {}
                None => eprintln!("guild-hall porter: an event that is no message: {}", excerpt(&data)),
            }
        }
        if events.held() > LARGEST_EVENT {
            eprintln!("guild-hall porter: an event is larger than {LARGEST_EVENT} bytes; the stream is left");
            break;
        }
    }
    *place.lock() = None;
    switchboard
        .fail("the stream of events has ended before the answer came; the request may have been carried out");
}

/// Where to post, as the first event says: a path, or a URL of the same origin, for nobody else gets to see the headers.
fn endpoint(stream: &Uri, said: &[u8]) -> Result<Uri, String> {
    let nonsense = || format!("it says that one posts to {}", excerpt(said));
    let text = std::str::from_utf8(said).map_err(|_| nonsense())?.trim();
    if text.is_empty() {
        return Err(nonsense());
    }
    let beside = stream.path().rsplit_once('/').map_or("", |(before, _)| before);
    let whole =
        if text.starts_with('/') || text.contains("://") { text.into() } else { format!("{beside}/{text}") };
    let uri: Uri = whole.parse().map_err(|_| nonsense())?;
    match uri.authority() {
        Some(authority) if Some(authority) != stream.authority() => {
            Err(format!("{}, which is not where its stream is", nonsense()))
        }
        _ => Ok(uri),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_posted_to_the_origin_of_the_stream_alone() {
        let stream = Uri::from_static("http://127.0.0.1:3100/mcp/sse");
        let path = |said: &str| {
            endpoint(&stream, said.as_bytes()).map(|uri| uri.path_and_query().unwrap().to_string())
        };
        assert_eq!(path("/messages?id=1").unwrap(), "/messages?id=1");
        assert_eq!(path(" messages?id=1\n").unwrap(), "/mcp/messages?id=1");
        assert_eq!(path("http://127.0.0.1:3100/m").unwrap(), "/m");
        for nowhere in ["http://127.0.0.1:3101/m", "http://evil/m", "{\"jsonrpc\": \"2.0\"}", ""] {
            assert!(path(nowhere).is_err(), "{nowhere}");
        }
    }
}
