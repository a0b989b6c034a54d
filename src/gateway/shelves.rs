//! Prompts, resources and resource templates: asked of the members when a client first asks for them, kept
//! until the member says that they have changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::value::RawValue;
use tokio::sync::OnceCell;

use super::catalog::page;
use super::scope::Scope;
use crate::hall::{Hall, plain_key};
use crate::mcp::{Ask, Link, LinkError, Params, RpcError};
use crate::model::{Entry, Instance, MemberKey, Roster, Status};

/// A member has so long to list what it has; one that does not is left out until it is asked again.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pages and items of one member.
const MOST_PAGES: usize = 1_000;
const MOST_ITEMS: usize = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Prompts,
    Resources,
    Templates,
}

impl Kind {
    pub(super) fn of_method(method: &str) -> Option<Self> {
        match method {
            "prompts/list" => Some(Self::Prompts),
            "resources/list" => Some(Self::Resources),
            "resources/templates/list" => Some(Self::Templates),
            _ => None,
        }
    }

    fn method(self) -> &'static str {
        match self {
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
        }
    }

    fn field(self) -> &'static str {
        match self {
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    pub(super) fn capability(self) -> &'static str {
        match self {
            Self::Prompts => "prompts",
            Self::Resources | Self::Templates => "resources",
        }
    }

    /// By what an item is asked for.
    fn handle(self) -> &'static str {
        match self {
            Self::Prompts => "name",
            Self::Resources => "uri",
            Self::Templates => "uriTemplate",
        }
    }
}

/// What one member lists.
type Shelf = Arc<Vec<Item>>;

#[derive(Debug)]
pub(super) struct Item {
    handle: String,
    whole: Params<'static>,
}

/// See the module's page.
#[derive(Default)]
pub(super) struct Shelves(Mutex<AllShelves>);

type AllShelves = HashMap<(Instance, Kind), Arc<OnceCell<Shelf>>>;

/// An item of some member, under the handle by which clients ask for it.
struct Shown {
    handle: String,
    whole: Params<'static>,
}

impl Shelves {
    /// One page of what the members of a scope have.
    pub(super) async fn list(
        &self, hall: &Hall, scope: &Scope, kind: Kind, params: &Params<'_>,
    ) -> Result<Params<'static>, RpcError> {
        let roster = hall.roster();
        let mut shown = Vec::new();
        let shelves = self.of_scope(hall, &roster, scope, kind).await;
        for (entry, shelf) in &shelves {
            for item in shelf.iter() {
                let handle = match scope {
                    Scope::One(_) => item.handle.clone(),
                    Scope::All if kind == Kind::Prompts => outer_name(&roster, &entry.name, &item.handle),
                    Scope::All => {
                        let has = |(other, shelf): &&(Arc<Entry>, Shelf)| {
                            other.name != entry.name && shelf.iter().any(|other| other.handle == item.handle)
                        };
                        if shelves.iter().find(has).is_some() {
                            apart(&entry.name, &item.handle)
                        } else {
                            item.handle.clone()
                        }
                    }
                };
                let mut whole = item.whole.clone();
                whole.set(kind.handle(), &handle);
                shown.push(Shown { handle, whole });
            }
        }
        shown.sort_by(|one, other| one.handle.cmp(&other.handle));
        shown.dedup_by(|one, other| one.handle == other.handle);
        page(
            params,
            kind.field(),
            &shown,
            |shown| &shown.handle,
            |shown| serde_json::value::to_raw_value(&shown.whole).ok(),
        )
    }

    /// Whose prompt it is, and by what name its member knows it.
    pub(super) async fn find_prompt(&self, hall: &Hall, name: &str) -> Option<(MemberKey, String)> {
        let roster = hall.roster();
        for (entry, shelf) in self.of_scope(hall, &roster, &Scope::All, Kind::Prompts).await {
            let found = shelf.iter().find(|item| outer_name(&roster, &entry.name, &item.handle) == name);
            if let Some(item) = found {
                return Some((entry.name.clone(), item.handle.clone()));
            }
        }
        None
    }

    /// Whose resource it is, and by what URI its member knows it. An error names those that have it, where
    /// they are several.
    pub(super) async fn find_resource(
        &self, hall: &Hall, uri: &str,
    ) -> Result<Option<(MemberKey, String)>, String> {
        let roster = hall.roster();
        if let Some(found) = from_apart(&roster, uri) {
            return Ok(Some(found));
        }
        let shelves = self.of_scope(hall, &roster, &Scope::All, Kind::Resources).await;
        let has: Vec<MemberKey> = shelves
            .iter()
            .filter(|(_, shelf)| shelf.iter().any(|item| item.handle == uri))
            .map(|(entry, _)| entry.name.clone())
            .collect();
        if let Some(found) = only(has, uri)? {
            return Ok(Some(found));
        }
        let templates = self.of_scope(hall, &roster, &Scope::All, Kind::Templates).await;
        let fits: Vec<MemberKey> = templates
            .iter()
            .filter(|(_, shelf)| shelf.iter().any(|item| item.handle == uri || may_make(&item.handle, uri)))
            .map(|(entry, _)| entry.name.clone())
            .collect();
        only(fits, uri)
    }

    /// The member has said that these have changed.
    pub(super) fn forget(&self, instance: Instance, capability: &str) {
        self.lock().retain(|(of, kind), _| *of != instance || kind.capability() != capability);
    }

    /// Launches that are over have none.
    pub(super) fn retain(&self, lives: impl Fn(Instance) -> bool) {
        self.lock().retain(|(instance, _), _| lives(*instance));
    }

    /// What the members of a scope have, all asked at the same time.
    async fn of_scope(
        &self, hall: &Hall, roster: &Roster, scope: &Scope, kind: Kind,
    ) -> Vec<(Arc<Entry>, Shelf)> {
        let asked = roster.members.iter().filter(|entry| {
            scope.includes(&entry.name)
                && entry.status == Status::Connected
                && entry.offer.as_ref().is_some_and(|offer| offer.has(kind.capability()))
        });
        let shelves = asked.map(async |entry| {
            let instance = entry.instance?;
            let link = hall.link(instance)?;
            let cell = self.lock().entry((instance, kind)).or_default().clone();
            let shelf = cell.get_or_try_init(|| fetch(&link, kind)).await;
            match shelf {
                Ok(shelf) => Some((entry.clone(), shelf.clone())),
                Err(error) => {
                    tracing::warn!(member = %entry.name, "what it lists as {} is left out: {error}", kind.field());
                    None
                }
            }
        });
        join_all(shelves).await.into_iter().flatten().collect()
    }

    fn lock(&self) -> MutexGuard<'_, AllShelves> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn fetch(link: &Link, kind: Kind) -> Result<Shelf, LinkError> {
    let mut items = Vec::new();
    let mut cursor: Option<String> = None;
    for _ in 0..MOST_PAGES {
        let params =
            cursor.as_ref().map_or_else(Params::default, |cursor| Params::default().with("cursor", cursor));
        let page = match link.request(Ask::new(kind.method(), params), PATIENCE).await {
            // A server with resources need not have templates.
            Err(LinkError::Rpc(error)) if error.code == crate::mcp::terms::code::NO_SUCH_METHOD => break,
            page => page?,
        };
        let nonsense = |what: &str| LinkError::NotMcp(format!("its answer to {} {what}", kind.method()));
        let page = Params::read(&page).map_err(|_| nonsense("is no object"))?;
        let listed: Vec<&RawValue> = page
            .get(kind.field())
            .and_then(|listed| serde_json::from_str(listed.get()).ok())
            .ok_or_else(|| nonsense("has no list"))?;
        for whole in listed {
            let whole = Params::read(whole).map_err(|_| nonsense("lists something that is no object"))?;
            let handle = whole
                .text(kind.handle())
                .ok_or_else(|| nonsense("lists something without a name"))?
                .into_owned();
            items.push(Item { handle, whole: whole.into_owned() });
        }
        if items.len() > MOST_ITEMS {
            return Err(nonsense("has too many items"));
        }
        match page.text("nextCursor") {
            Some(next) if cursor.as_deref() != Some(&*next) => cursor = Some(next.into_owned()),
            _ => break,
        }
    }
    Ok(items.into())
}

/// A prompt among those of all members.
fn outer_name(roster: &Roster, member: &MemberKey, name: &str) -> String {
    format!("{}__{name}", plain_key(roster, member))
}

/// A URI that several members have, told apart.
const APART: &str = "guild-hall://";

fn apart(member: &MemberKey, uri: &str) -> String {
    format!(
        "{APART}{}/{uri}",
        percent_encoding::utf8_percent_encode(member.as_str(), percent_encoding::NON_ALPHANUMERIC)
    )
}

fn from_apart(roster: &Roster, uri: &str) -> Option<(MemberKey, String)> {
    let (member, uri) = uri.strip_prefix(APART)?.split_once('/')?;
    let member = percent_encoding::percent_decode_str(member).decode_utf8().ok()?;
    Some((roster.entry(&member)?.name.clone(), uri.into()))
}

fn only(mut members: Vec<MemberKey>, uri: &str) -> Result<Option<(MemberKey, String)>, String> {
    if members.len() > 1 {
        let choice: Vec<String> = members.iter().map(|member| apart(member, uri)).collect();
        return Err(format!("several members have it; ask for one of {}", choice.join(", ")));
    }
    Ok(members.pop().map(|member| (member, uri.to_owned())))
}

/// Could this URI come of the template? Each expression stands for anything; RFC 6570 in its simplest form.
fn may_make(template: &str, uri: &str) -> bool {
    let mut rest = uri;
    let mut open = false;
    let mut parts = template.split('{');
    let first = parts.next().unwrap_or_default();
    let Some(after) = rest.strip_prefix(first) else { return false };
    rest = after;
    for part in parts {
        let Some((_, literal)) = part.split_once('}') else { return false };
        open = literal.is_empty();
        if !open {
            let Some(at) = rest.find(literal) else { return false };
            rest = &rest[at + literal.len()..];
        }
    }
    open || rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_makes_what_has_its_fixed_parts() {
        assert!(may_make("file:///{path}", "file:///a/b"));
        assert!(may_make("test://template/{id}/data", "test://template/123/data"));
        assert!(may_make("x://{a}-{b}", "x://1-2"));
        assert!(!may_make("test://template/{id}/data", "test://template/123/other"));
        assert!(!may_make("test://plain", "test://plain/more"));
        assert!(!may_make("other://{id}", "test://1"));
    }
}
