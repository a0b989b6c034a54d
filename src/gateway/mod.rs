//! F4. The gateway: one MCP endpoint in front of all members, `/mcp`, and one for each, `/mcp/{name}`.
//! Both eras of the protocol on the same URL, chosen by each request, and bridged to either era of a member.

mod answer;
mod bridging;
mod call;
mod caller;
mod catalog;
mod ears;
mod follower;
mod guard;
mod listening;
mod methods;
mod own;
mod parked;
mod passing;
mod scope;
mod session;
mod shelves;
mod stateless;
mod talk;
mod visitor;
mod with_sessions;

use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use axum::routing::any;
use serde_json::value::RawValue;
use tokio::sync::broadcast;

pub use guard::{Guard, guarded};
pub use visitor::SavedVisitors;

use crate::mcp::Message;
use answer::refusal;
use caller::Caller;
use catalog::Catalog;
use own::Own;
use parked::ParkedCalls;
use scope::Scope;
use session::Sessions;
use shelves::Shelves;
use visitor::{Visitor, Visitors};

use crate::hall::{Hall, Reached};
use crate::mcp::terms::{META_PROTOCOL, PROTOCOL, REVISIONS, STATELESS, code};
use crate::mcp::{Heard, Params, RpcError};
use crate::model::{Instance, MemberKey};

/// A request may be this large; bytes.
const LARGEST_REQUEST: usize = 4 * 1024 * 1024;
/// Changes that a listener may be behind before it is told that everything has changed.
const BEHIND: usize = 256;
/// Between two looks at what nobody uses any more.
const SWEEP: Duration = Duration::from_secs(15);

/// See the module's page.
#[derive(Clone)]
pub struct Gateway(Arc<House>);

struct House {
    hall: Hall,
    sessions: Sessions,
    visitors: Visitors,
    parked: ParkedCalls,
    catalog: RwLock<Arc<Catalog>>,
    shelves: Shelves,
    changes: broadcast::Sender<Changed>,
}

/// What a member offers has changed.
#[derive(Debug, Clone)]
struct Changed {
    member: MemberKey,
    /// `tools`, `prompts` or `resources`.
    kind: &'static str,
}

impl Gateway {
    /// Goes on with what the image before has saved, if there was one. Must be called within a tokio runtime. An
    /// error is about the key of the sessions.
    pub fn start(hall: Hall, saved: SavedVisitors) -> io::Result<Self> {
        let house = House {
            sessions: Sessions::new(hall.run_dir().session_key()?),
            visitors: Visitors::resume(saved),
            parked: ParkedCalls::default(),
            catalog: RwLock::default(),
            shelves: Shelves::default(),
            changes: broadcast::Sender::new(BEHIND),
            hall,
        };
        let gateway = Self(Arc::new(house));
        gateway.catalog();
        tokio::spawn(follower::follow(gateway.clone()));
        tokio::spawn(sweep(gateway.clone()));
        Ok(gateway)
    }

    /// What the next image of the hall must know of those who come here.
    pub fn save(&self) -> SavedVisitors {
        self.0.visitors.save()
    }

    /// The endpoints.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/mcp", any(all))
            .route("/mcp/{name}", any(one))
            .layer(DefaultBodyLimit::max(LARGEST_REQUEST))
            .with_state(self.clone())
    }

    fn hall(&self) -> &Hall {
        &self.0.hall
    }

    fn parked(&self) -> &ParkedCalls {
        &self.0.parked
    }

    /// The tools that follow from the roster as it is now.
    fn catalog(&self) -> Arc<Catalog> {
        let roster = self.hall().roster();
        let present = self.0.catalog.read().unwrap_or_else(PoisonError::into_inner).clone();
        if present.generation == roster.generation && roster.generation > 0 {
            return present;
        }
        let mut catalog = self.0.catalog.write().unwrap_or_else(PoisonError::into_inner);
        if catalog.generation < roster.generation || catalog.generation == 0 {
            let next = Arc::new(catalog.next(&roster));
            for member in next.differs(&catalog) {
                self.tell(member, "tools");
            }
            *catalog = next;
        }
        catalog.clone()
    }

    fn tell(&self, member: &MemberKey, kind: &'static str) {
        // Nobody may be listening.
        let _ = self.0.changes.send(Changed { member: member.clone(), kind });
    }

    /// A member has said that its lists have changed.
    fn has_changed(&self, member: &MemberKey, instance: Instance, kind: &'static str) {
        let (gateway, member) = (self.clone(), member.clone());
        tokio::spawn(async move {
            if kind == "tools" {
                gateway.hall().relist(&member, instance).await;
                gateway.catalog();
            } else {
                gateway.0.shelves.forget(instance, kind);
            }
            gateway.tell(&member, kind);
        });
    }

    /// The client's own session with a member; `None` where the member has but one session to give.
    async fn own_of(&self, visitor: &Arc<Visitor>, caller: &Caller, reached: &Reached) -> Option<Arc<Own>> {
        let instance = reached.instance;
        if let Some(own) = visitor.owns.get(instance) {
            return Some(own);
        }
        visitor.owns.retain(|instance| self.hall().link(instance).is_some());
        let level = visitor.level();
        let own = Own::open(&reached.link, &caller.capabilities.text, level.as_deref()).await;
        let own = own.inspect_err(|error| {
            tracing::debug!(member = %reached.entry.name, "has no session for one client alone: {error}");
        });
        let own = visitor.owns.keep(instance, Arc::new(own.ok()?));
        let (gateway, member) = (self.clone(), reached.entry.name.clone());
        let (visitor, capabilities, link) =
            (Arc::downgrade(visitor), caller.capabilities.clone(), own.link.clone());
        own.listen(move |mut exchange| {
            let (gateway, member, visitor) = (gateway.clone(), member.clone(), visitor.clone());
            let (capabilities, link) = (capabilities.clone(), link.clone());
            async move {
                while let Ok(heard) = exchange.next().await {
                    let Some(visitor) = visitor.upgrade() else { return };
                    match heard {
                        Heard::Notification { method, params } => match ears::kind_of_change(&method) {
                            Some(kind) => gateway.has_changed(&member, instance, kind),
                            None => visitor.tell(answer::to_client(None, &method, params.as_deref())),
                        },
                        Heard::Request { id, method, params } => {
                            let (link, allowed) = (link.clone(), capabilities.allow(&method));
                            // On a task of its own: a person may take minutes to answer.
                            tokio::spawn(async move {
                                let answer = if method == "ping" {
                                    Ok(empty_object())
                                } else if allowed {
                                    visitor.ask(None, &method, params.as_deref()).await
                                } else {
                                    Err(RpcError::new(
                                        code::NO_SUCH_METHOD,
                                        "this client cannot be asked that",
                                    ))
                                };
                                let outcome = match &answer {
                                    Ok(said) => crate::mcp::Outcome::Result(said),
                                    Err(error) => crate::mcp::Outcome::Error(error),
                                };
                                link.answer(&id, outcome).await;
                            });
                        }
                        Heard::Result(_) | Heard::Error(_) => {}
                    }
                }
            }
        })
        .await;
        Some(own)
    }
}

async fn all(State(gateway): State<Gateway>, method: Method, headers: HeaderMap, body: Bytes) -> Response {
    gateway.serve(Scope::All, &method, &headers, &body).await
}

async fn one(
    State(gateway): State<Gateway>, Path(name): Path<String>, method: Method, headers: HeaderMap, body: Bytes,
) -> Response {
    let roster = gateway.hall().roster();
    let Some(entry) = roster.entry(&name) else {
        let what = format!("no member is called {name:?}; see `guild-hall roster`");
        return refusal(StatusCode::NOT_FOUND, RpcError::new(code::INVALID_REQUEST, what));
    };
    gateway.serve(Scope::One(entry.name.clone()), &method, &headers, &body).await
}

impl Gateway {
    async fn serve(&self, scope: Scope, method: &Method, headers: &HeaderMap, body: &[u8]) -> Response {
        match *method {
            Method::POST => self.post(scope, headers, body).await,
            Method::GET => self.open_stream(scope, headers),
            Method::DELETE => self.end_session(headers),
            _ => refusal(
                StatusCode::METHOD_NOT_ALLOWED,
                RpcError::new(code::INVALID_REQUEST, "an MCP endpoint takes POST, GET and DELETE"),
            ),
        }
    }

    async fn post(&self, scope: Scope, headers: &HeaderMap, body: &[u8]) -> Response {
        let message = match Message::read(body) {
            Ok(message) => message,
            Err(malformed) => {
                return match malformed.id {
                    Some(id) => answer::whole(StatusCode::BAD_REQUEST, &id, &Err(malformed.error)),
                    None => refusal(StatusCode::BAD_REQUEST, malformed.error),
                };
            }
        };
        if is_stateless(headers, &message) {
            self.post_stateless(scope, headers, message).await
        } else {
            self.post_with_session(scope, headers, message).await
        }
    }
}

/// Which era a message is of: the newer one by its header, or by what it says of itself.
fn is_stateless(headers: &HeaderMap, message: &Message) -> bool {
    let is_older =
        |version: &[u8]| REVISIONS.iter().any(|known| *known != STATELESS && known.as_bytes() == version);
    let by_header = headers.get(PROTOCOL).is_some_and(|version| !is_older(version.as_bytes()));
    by_header
        || match message {
            Message::Request { params, .. } | Message::Notification { params, .. } => says_protocol(params),
            Message::Response { .. } => false,
        }
}

fn says_protocol(params: &Params) -> bool {
    params.object("_meta").is_some_and(|meta| meta.get(META_PROTOCOL).is_some())
}

async fn sweep(gateway: Gateway) {
    loop {
        tokio::time::sleep(SWEEP).await;
        gateway.0.visitors.sweep();
        gateway.parked().sweep();
        gateway.0.shelves.retain(|instance| gateway.hall().link(instance).is_some());
    }
}

fn empty_object() -> Box<RawValue> {
    RawValue::from_string("{}".into()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// 128 random bits as text: cannot be guessed.
fn random() -> String {
    let mut bits = [0; 16];
    if getrandom::fill(&mut bits).is_err() {
        // Only where the kernel has no randomness at all.
        std::process::abort();
    }
    bits.iter().map(|byte| format!("{byte:02x}")).collect()
}
