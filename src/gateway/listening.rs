//! Clients that listen: the stream of a session, and `subscriptions/listen` of the stateless revisions.
//! Each hears what has changed in its scope, and what members have to say to it alone.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::response::Response;
use futures_util::stream;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::answer::{Answer, error, events, message, result, to_client, whole};
use super::caller::{Caller, Era};
use super::own::Own;
use super::scope::Scope;
use super::visitor::{Visitor, Watch};
use super::{Changed, Gateway};
use crate::mcp::terms::{META_SUBSCRIPTION, code};
use crate::mcp::{Ask, Exchange, Heard, Params};
use crate::model::MemberKey;

/// How long a member may take to accept a notification.
pub(super) const NOTIFICATION: Duration = Duration::from_secs(2);
/// Members that are being started have so long before a client is told what they can do.
const READY: Duration = Duration::from_secs(10);
/// A line that says nothing, so that both ends notice when the other is gone.
const ALIVE: Duration = Duration::from_secs(30);
/// Messages that may wait for a client that does not read.
const BEHIND: usize = 256;
const ALL_KINDS: [&str; 3] = ["tools", "prompts", "resources"];
/// Resources that one client may watch.
pub(super) const MOST_WATCHED: usize = 1000;
/// A member has so long to begin to watch a resource.
const WATCHED: Duration = Duration::from_secs(5);

impl Gateway {
    /// Until members have had the chance to say what they can do.
    pub(super) async fn until_ready(&self, scope: &Scope) {
        let hall = self.hall();
        let mut rosters = hall.watch();
        let is_ready = |roster: &Arc<crate::model::Roster>| match scope {
            Scope::All => hall.is_ready(),
            Scope::One(member) => roster.entry(member.as_str()).is_none_or(|entry| entry.settled),
        };
        let _ = timeout(READY, rosters.wait_for(is_ready)).await;
    }

    /// What a session's client hears outside of its calls.
    pub(super) fn stream_of(&self, scope: Scope, visitor: Arc<Visitor>) -> Response {
        let (number, messages, has_missed) = visitor.open_stream();
        let mut listener = Listener {
            scope,
            changes: self.0.changes.subscribe(),
            leaving: Box::pin(self.hall().leaving()),
            messages,
            kinds: ALL_KINDS.to_vec(),
            subscription: None,
            visitor: Some((visitor, number)),
            watching: JoinSet::new(),
            waiting: Vec::new(),
        };
        if has_missed {
            // While it did not listen, or listened to a hall before this one, anything may have changed.
            listener.announce(&ALL_KINDS);
        }
        listener.respond()
    }

    /// `subscriptions/listen`: hears what it has asked for, for as long as it listens.
    pub(super) async fn listen(
        &self, scope: Scope, caller: Caller, id: Box<RawValue>, params: &Params<'_>,
    ) -> Response {
        let wanted = params.object("notifications").unwrap_or_default();
        let is_wanted = |field: &str| wanted.get(field).is_some_and(|value| value.get() == "true");
        let mut honoured = serde_json::Map::new();
        let mut kinds = Vec::new();
        for (field, kind) in [
            ("toolsListChanged", "tools"),
            ("promptsListChanged", "prompts"),
            ("resourcesListChanged", "resources"),
        ] {
            if is_wanted(field) {
                honoured.insert(field.into(), Value::Bool(true));
                kinds.push(kind);
            }
        }
        let uris: Vec<String> = wanted
            .get("resourceSubscriptions")
            .and_then(|uris| serde_json::from_str(uris.get()).ok())
            .unwrap_or_default();
        if uris.len() > MOST_WATCHED {
            let what = format!("no more than {MOST_WATCHED} resources can be watched at a time");
            let refused = Err(error(code::INVALID_PARAMS, what));
            return whole(axum::http::StatusCode::BAD_REQUEST, &id, &refused);
        }
        // Before anything is looked at: what changes from now on is heard.
        let changes = self.0.changes.subscribe();
        let (sender, messages) = mpsc::channel(BEHIND);
        let mut watching = JoinSet::new();
        let mut watched = Vec::new();
        for uri in uris {
            if let Some(exchange) = self.watch_resource(&scope, &caller, &uri).await {
                let to = sender.clone();
                let tell = move |message| {
                    let to = to.clone();
                    async move { to.send(message).await.is_ok() }
                };
                watching.spawn(forward(exchange, uri.clone(), Some(id.clone()), tell));
                watched.push(uri);
            }
        }
        if !watched.is_empty() {
            honoured.insert("resourceSubscriptions".into(), json!(watched));
        }
        let acknowledged = json!({"_meta": {META_SUBSCRIPTION: &id}, "notifications": honoured});
        let first = acknowledged
            .to_raw()
            .map(|params| to_client(None, "notifications/subscriptions/acknowledged", Some(&params)));
        let listener = Listener {
            scope,
            changes,
            leaving: Box::pin(self.hall().leaving()),
            messages,
            kinds,
            subscription: Some(id),
            visitor: None,
            watching,
            waiting: first.into_iter().collect(),
        };
        listener.respond()
    }

    /// `resources/subscribe` and its opposite are remembered, to be said again to a member that was restarted.
    /// What a member without sessions says is heard here for the client. `None` for any other, which is asked
    /// itself.
    pub(super) async fn subscribe(
        &self, scope: &Scope, caller: &Caller, method: &str, params: &Params<'_>,
    ) -> Option<Answer> {
        let Era::Session(visitor) = &caller.era else { return None };
        let uri = params.text("uri")?;
        let (member, _) = self.whose_resource(scope, &uri).await.ok()?;
        let is_stateless = self.hall().roster().entry(member.as_str())?.offer.as_ref()?.stateless;
        let done = || is_stateless.then(|| Ok(super::empty_object()));
        if method == "resources/unsubscribe" {
            visitor.unwatch(&uri);
            return done();
        }
        let task = if is_stateless {
            let Some(task) = self.hear_of(scope, caller, visitor, &uri).await else {
                let what = format!("{member} does not tell of changes of {uri:?}");
                return Some(Err(error(code::INVALID_PARAMS, what)));
            };
            Some(task)
        } else {
            None
        };
        if visitor.watch(uri.into_owned(), Watch::new(scope, caller, task)) {
            return done();
        }
        let what = format!("no more than {MOST_WATCHED} resources can be watched at a time");
        Some(Err(error(code::INTERNAL, what)))
    }

    /// Tells a client with a session of changes of a resource, which a member without sessions has.
    async fn hear_of(
        &self, scope: &Scope, caller: &Caller, visitor: &Arc<Visitor>, uri: &str,
    ) -> Option<AbortHandle> {
        let watched = self.watch_resource(scope, caller, uri).await?;
        let told = Arc::downgrade(visitor);
        let watching = tokio::spawn(forward(watched, uri.to_owned(), None, move |message| {
            let visitor = told.upgrade();
            async move { visitor.map(|visitor| visitor.tell(message)).is_some() }
        }));
        Some(watching.abort_handle())
    }

    /// A member is there again: what clients with sessions have watched of it they go on watching.
    pub(super) fn watch_again(&self, member: &MemberKey) {
        for visitor in self.0.visitors.all() {
            let (gateway, member) = (self.clone(), member.clone());
            let watched = visitor.watched();
            if watched.is_empty() {
                continue;
            }
            tokio::spawn(async move {
                for (uri, scope, caller) in watched {
                    match gateway.whose_resource(&scope, &uri).await {
                        Ok((whose, own_uri)) if whose == member => {
                            gateway.watch_anew(&scope, &caller, &visitor, &uri, &whose, &own_uri).await;
                        }
                        _ => {}
                    }
                }
            });
        }
    }

    /// And are told that it has changed, which it may have while the member was not there.
    async fn watch_anew(
        &self, scope: &Scope, caller: &Caller, visitor: &Arc<Visitor>, uri: &str, member: &MemberKey,
        own_uri: &str,
    ) {
        let Ok(reached) = self.hall().reach(member.as_str()).await else { return };
        if reached.link.is_stateless() {
            let Some(task) = self.hear_of(scope, caller, visitor, uri).await else { return };
            visitor.watch(uri.to_owned(), Watch::new(scope, caller, Some(task)));
        } else {
            let Some(own) = self.own_of(visitor, caller, &reached).await else { return };
            let params = Params::default().with("uri", own_uri);
            if own.link.request(Ask::new("resources/subscribe", params), WATCHED).await.is_err() {
                return;
            }
        }
        let params = json!({"uri": uri}).to_raw();
        visitor.tell(to_client(None, "notifications/resources/updated", params.as_deref()));
    }

    /// Has a member tell of changes of a resource; `None` if it cannot.
    async fn watch_resource(&self, scope: &Scope, caller: &Caller, uri: &str) -> Option<Watched> {
        let (member, own_uri) = self.whose_resource(scope, uri).await.ok()?;
        let reached = self.hall().reach(member.as_str()).await.ok()?;
        if !reached.entry.offer.as_ref()?.has("resources/subscribe") {
            return None;
        }
        if reached.link.is_stateless() {
            let wanted = json!({"resourceSubscriptions": [own_uri]});
            let params = Params::default().with("notifications", &wanted);
            let exchange =
                timeout(WATCHED, reached.link.send(Ask::new("subscriptions/listen", params))).await;
            return Some(Watched { exchange: exchange.ok()?.ok()?, _own: None });
        }
        let own = Own::open(&reached.link, &caller.capabilities.text, None).await.ok()?;
        let exchange = timeout(WATCHED, own.link.listen()).await.ok()?.ok()?;
        let params = Params::default().with("uri", &own_uri);
        own.link.request(Ask::new("resources/subscribe", params), WATCHED).await.ok()?;
        Some(Watched { exchange, _own: Some(own) })
    }
}

/// A resource that a member watches.
struct Watched {
    exchange: Exchange,
    /// The session that it is watched in.
    _own: Option<Own>,
}

/// Passes on what a member says of a resource, under the name by which the client knows it, until nobody
/// hears it any more.
async fn forward<F: Future<Output = bool>>(
    mut watched: Watched, uri: String, id: Option<Box<RawValue>>, tell: impl Fn(Bytes) -> F,
) {
    while let Ok(heard) = watched.exchange.next().await {
        let Heard::Notification { method, .. } = heard else { continue };
        if method != "notifications/resources/updated" {
            continue;
        }
        let params = match &id {
            Some(id) => json!({"uri": uri, "_meta": {META_SUBSCRIPTION: id}}),
            None => json!({"uri": uri}),
        };
        let Some(params) = params.to_raw() else { continue };
        if !tell(to_client(None, &method, Some(&params))).await {
            return;
        }
    }
}

trait ToRaw {
    fn to_raw(&self) -> Option<Box<RawValue>>;
}

impl ToRaw for Value {
    fn to_raw(&self) -> Option<Box<RawValue>> {
        serde_json::value::to_raw_value(self).ok()
    }
}

/// One client that listens.
struct Listener {
    scope: Scope,
    changes: broadcast::Receiver<Changed>,
    leaving: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>,
    messages: mpsc::Receiver<Bytes>,
    kinds: Vec<&'static str>,
    /// The id of the request that listens, in the stateless revisions.
    subscription: Option<Box<RawValue>>,
    visitor: Option<(Arc<Visitor>, u64)>,
    watching: JoinSet<()>,
    /// To be said next.
    waiting: Vec<Bytes>,
}

impl Listener {
    fn respond(self) -> Response {
        events(stream::unfold(Some(self), |listener| async move {
            let mut listener = listener?;
            match listener.next().await {
                Some(message) => Some((message, Some(listener))),
                None => listener.last().map(|message| (message, None)),
            }
        }))
    }

    /// `None` when the hall is about to make way for the next.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(message) = self.waiting.pop() {
                return Some(message);
            }
            tokio::select! {
                biased;
                () = &mut self.leaving => return None,
                Some(message) = self.messages.recv() => return Some(message),
                changed = self.changes.recv() => match changed {
                    Ok(changed) if self.scope.includes(&changed.member) => self.announce(&[changed.kind]),
                    Ok(_) => {}
                    Err(RecvError::Lagged(_)) => self.announce(&ALL_KINDS),
                    Err(RecvError::Closed) => return None,
                },
                () = tokio::time::sleep(ALIVE) => return Some(Bytes::new()),
            }
        }
    }

    fn announce(&mut self, kinds: &[&'static str]) {
        for kind in kinds.iter().filter(|kind| self.kinds.contains(*kind)) {
            let method = format!("notifications/{kind}/list_changed");
            let params =
                self.subscription.as_ref().and_then(|id| json!({"_meta": {META_SUBSCRIPTION: id}}).to_raw());
            self.waiting.push(to_client(None, &method, params.as_deref()));
        }
    }

    /// A subscription ends with the answer to its request.
    fn last(&self) -> Option<Bytes> {
        let id = self.subscription.as_ref()?;
        let said =
            Params::default().with("resultType", "complete").with("_meta", &json!({META_SUBSCRIPTION: id}));
        let answer: Answer = result(&said);
        Some(message(id, &answer).into())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.watching.abort_all();
        if let Some((visitor, number)) = &self.visitor {
            visitor.close_stream(*number);
        }
    }
}
