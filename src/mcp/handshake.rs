//! Shaking hands with a member that has just been launched: wait until it listens, `initialize`,
//! `notifications/initialized`, `tools/list`. Nothing else is ever sent unasked, but for `server/discover`
//! to a member that does not know `initialize`.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout};

use super::link::{Ask, Link, LinkError, Session, protocol_version};
use super::param_headers::ParamHeaders;
use super::params::Params;
use super::terms::{META_SERVER, STATELESS, WITH_SESSIONS, code};
use super::wire::{beginning, excerpt};
use crate::model::{Failure, Handshake, Offer, Tool};

/// Pages of a tool list, and tools of one member, at the most; docs/operation.md, "Limits".
const MOST_PAGES: usize = 1_000;
const MOST_TOOLS: usize = 10_000;
/// All pages together; as much as one answer may have. Bytes.
const LARGEST_LIST: usize = 16 * 1024 * 1024;
/// The first retry comes after this, later ones after a quarter of the time that has passed...
const SOONEST_RETRY: Duration = Duration::from_millis(1);
/// ...but never later than this.
const LATEST_RETRY: Duration = Duration::from_millis(250);
/// An answer that takes longer is worth telling.
const SLOW: Duration = Duration::from_millis(500);
/// How long an answer to a notification is waited for; nothing depends on it.
const NOTIFICATION: Duration = Duration::from_millis(100);
/// How long a member that has answered `initialize` may take to say that it speaks a revision without it.
const DISCOVERY: Duration = Duration::from_secs(5);
/// One request of a handshake; the launch's own deadline comes first by default.
const PATIENCE: Duration = Duration::from_secs(600);

/// What a porter says of its plugin may be this long; characters.
const LONGEST_COMPLAINT: usize = 500;

/// Why a handshake has not succeeded yet.
pub type Obstacle = String;

/// Tries until it succeeds or the member gives an answer that is no handshake. It has no deadline of
/// its own: who called it drops it. `tell` hears what is in the way, whenever that changes.
pub async fn greet(link: &Link, mut tell: impl FnMut(Obstacle)) -> Result<Handshake, Failure> {
    let begun = Instant::now();
    let mut last = Obstacle::new();
    let (result, session) = loop {
        let silence = "it accepts connections and does not answer initialize";
        let answer = told_if_slow(initialize(link), || tell(silence.into())).await;
        match answer {
            Ok(opened) => break opened,
            Err(error) => {
                let Some(obstacle) = not_yet(&error) else {
                    let refused = refusal("initialize", &error);
                    let silence = format!("{}; and it does not answer server/discover", refused.what);
                    told_if_slow(discover(link, PATIENCE), || tell(silence)).await.ok_or(refused)?;
                    return finish(link, STATELESS.into(), tell).await;
                };
                let waited = begun.elapsed();
                // In the first moments everyone refuses: that is not worth telling.
                if obstacle != last && waited >= LATEST_RETRY {
                    tell(obstacle.clone());
                    last = obstacle;
                }
                sleep((waited / 4).clamp(SOONEST_RETRY, LATEST_RETRY)).await;
            }
        }
    };
    if !result.get().trim_start().starts_with('{') {
        return Err(Failure::new(format!(
            "its result of initialize is no object: {}",
            excerpt(result.get().as_bytes())
        )));
    }
    let protocol_version = protocol_version(&result).unwrap_or_else(|| WITH_SESSIONS.into());
    // In that revision there is no `initialize`; but some say its number and mean an older one.
    if protocol_version == STATELESS && discover(link, DISCOVERY).await.is_some() {
        return finish(link, protocol_version, tell).await;
    }
    link.keep(session);
    link.notify("notifications/initialized", Params::default(), NOTIFICATION).await;
    finish(link, protocol_version, tell).await
}

async fn finish(
    link: &Link, protocol_version: String, mut tell: impl FnMut(Obstacle),
) -> Result<Handshake, Failure> {
    let silence = "it answered initialize and does not answer tools/list";
    let listed = told_if_slow(list_tools(link, PATIENCE), || tell(silence.into())).await;
    let tools = listed.map_err(|error| refusal("tools/list", &error))?;
    Ok(Handshake { protocol_version, tools, offer: link.offer() })
}

/// Asks a member that does not know `initialize` whether it speaks a revision without it.
async fn discover(link: &Link, patience: Duration) -> Option<()> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Discovered {
        supported_versions: Vec<String>,
        #[serde(default, rename = "_meta")]
        meta: serde_json::Map<String, serde_json::Value>,
        #[serde(flatten)]
        offer: Offer,
    }
    let fresh = link.without_session();
    fresh.be_stateless(Offer::default());
    let answer = fresh.request(Ask::new("server/discover", Params::default()), patience).await.ok()?;
    let mut found: Discovered = serde_json::from_str(answer.get()).ok()?;
    if !found.supported_versions.iter().any(|version| version == STATELESS) {
        return None;
    }
    if let Some(info) = found.meta.remove(META_SERVER) {
        found.offer.server_info = info;
    }
    link.be_stateless(found.offer);
    Some(())
}

/// What the hall says at `initialize`, for itself or for a client.
pub fn introduction(capabilities: &RawValue) -> Params<'static> {
    #[derive(Serialize)]
    struct ClientInfo {
        name: &'static str,
        version: &'static str,
    }
    let client_info = ClientInfo { name: "guild-hall", version: env!("CARGO_PKG_VERSION") };
    Params::default()
        .with("protocolVersion", WITH_SESSIONS)
        .with("capabilities", capabilities)
        .with("clientInfo", &client_info)
}

/// Waits for an answer, and tells once if it is slow to come.
async fn told_if_slow<T>(answer: impl Future<Output = T>, tell: impl FnOnce()) -> T {
    let mut answer = std::pin::pin!(answer);
    match timeout(SLOW, &mut answer).await {
        Ok(answer) => answer,
        Err(_) => {
            tell();
            answer.await
        }
    }
}

async fn initialize(link: &Link) -> Result<(Box<RawValue>, Session), LinkError> {
    let nothing = RawValue::from_string("{}".into()).unwrap_or_else(|_| RawValue::NULL.to_owned());
    link.propose(introduction(&nothing), PATIENCE).await
}

/// What only time will mend: a server that does not listen yet, or is not yet the one that will.
fn not_yet(error: &LinkError) -> Option<Obstacle> {
    match error {
        LinkError::Connect(cause) if cause.kind() == std::io::ErrorKind::ConnectionRefused => {
            Some("it does not listen on its port (connection refused)".into())
        }
        LinkError::Connect(cause) => Some(cause.to_string()),
        LinkError::Broken(_)
        | LinkError::Http { status: StatusCode::NOT_FOUND | StatusCode::SERVICE_UNAVAILABLE, .. } => {
            Some(error.to_string())
        }
        _ => None,
    }
}

fn refusal(method: &str, error: &LinkError) -> Failure {
    Failure::new(format!("its answer to {method} is no handshake: {error}"))
}

/// Asks a porter how its plugin is: `Some` tells what is wrong with it. Of what does not know `ping`, nothing
/// is known to be wrong.
pub async fn ping(link: &Link, patience: Duration) -> Result<Option<Failure>, LinkError> {
    let ask = || Ask::new("ping", Params::default());
    let answer = match link.request(ask(), patience).await {
        // As in `page`: a kept connection may have been closed meanwhile.
        Err(LinkError::Broken(_)) => link.request(ask(), patience).await,
        answer => answer,
    };
    match answer {
        Ok(_) => Ok(None),
        Err(LinkError::Rpc(error)) if error.code == code::NO_SUCH_METHOD => Ok(None),
        Err(LinkError::Rpc(error)) => {
            Ok(Some(Failure::new(beginning(error.message.as_bytes(), LONGEST_COMPLAINT))))
        }
        Err(error) => Err(error),
    }
}

/// The whole list, page by page.
pub async fn list_tools(link: &Link, patience: Duration) -> Result<Arc<[Tool]>, LinkError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Listed<'a> {
        #[serde(borrow)]
        tools: &'a RawValue,
        #[serde(default)]
        next_cursor: Option<String>,
    }
    let mut tools: Vec<Tool> = Vec::new();
    let mut cursor: Option<String> = None;
    let mut size = 0;
    for _ in 0..MOST_PAGES {
        let page = page(link, cursor.as_deref(), patience).await?;
        size += page.get().len();
        if size > LARGEST_LIST {
            return Err(LinkError::TooLarge);
        }
        let nonsense = |error: serde_json::Error| {
            LinkError::NotMcp(format!(
                "its tool list cannot be read ({error}): {}",
                excerpt(page.get().as_bytes())
            ))
        };
        let listed: Listed = serde_json::from_str(page.get()).map_err(nonsense)?;
        let listed_tools: Vec<Tool> = serde_json::from_str(listed.tools.get()).map_err(nonsense)?;
        tools.extend(listed_tools.into_iter().filter(|tool| can_be_called(link, tool)));
        if tools.len() > MOST_TOOLS {
            return Err(LinkError::NotMcp(format!("it lists more than {MOST_TOOLS} tools")));
        }
        match listed.next_cursor {
            None => return Ok(tools.into()),
            Some(next) if cursor.as_deref() == Some(next.as_str()) => {
                return Err(LinkError::NotMcp(
                    "its tool list goes in a circle: a page names itself as the next one".into(),
                ));
            }
            next => cursor = next,
        }
    }
    Err(LinkError::NotMcp(format!("its tool list has more than {MOST_PAGES} pages")))
}

/// A tool of a stateless member wants headers that can be sent.
fn can_be_called(link: &Link, tool: &Tool) -> bool {
    if !link.is_stateless() {
        return true;
    }
    let headers = ParamHeaders::of(&tool.input_schema);
    if let Err(why) = &headers {
        let tool = excerpt(tool.name.as_bytes());
        tracing::warn!(at = %link, tool, "a tool is left out, for its input schema has to be mended: {why}");
    }
    headers.is_ok()
}

/// One page. Listing changes nothing, so it may be asked for again by a server that has hung up
/// on a kept connection without saying so before.
async fn page(link: &Link, cursor: Option<&str>, patience: Duration) -> Result<Box<RawValue>, LinkError> {
    let ask = || {
        let params = match cursor {
            Some(cursor) => Params::default().with("cursor", cursor),
            None => Params::default(),
        };
        Ask::new("tools/list", params)
    };
    match link.request(ask(), patience).await {
        Err(LinkError::Broken(_)) => link.request(ask(), patience).await,
        answer => answer,
    }
}
