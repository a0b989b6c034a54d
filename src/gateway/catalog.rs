//! The tools that are offered, under the names by which they are called. Made once for each change of the
//! roster, and the same for everyone.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::value::RawValue;

use super::scope::Scope;
use crate::hall::named_tools;
use crate::mcp::terms::code;
use crate::mcp::{ParamHeaders, Params, RpcError};
use crate::model::{Entry, MemberKey, PhaseName, Roster, Tool};

/// So many tools are listed at a time; the rest is asked for by cursor.
const PAGE: usize = 500;

/// See the module's page.
#[derive(Default)]
pub(super) struct Catalog {
    pub(super) generation: u64,
    /// Of all members, sorted by name.
    all: Vec<Arc<Offered>>,
    by_name: HashMap<String, Arc<Offered>>,
    members: BTreeMap<MemberKey, Vec<Arc<Offered>>>,
    /// Entries with the tools that they had when they were last connected.
    known: BTreeMap<MemberKey, Arc<Entry>>,
}

/// One tool.
pub(super) struct Offered {
    /// Among those of all members.
    name: String,
    pub(super) member: MemberKey,
    pub(super) tool: Tool,
    pub(super) headers: ParamHeaders,
    /// Its member says of itself that it is not well: who calls it is told so, and nobody is offered it.
    ailing: bool,
}

impl Catalog {
    /// The one that follows from a roster. A member that will be back by itself keeps its tools meanwhile.
    pub(super) fn next(&self, roster: &Roster) -> Self {
        let mut known = BTreeMap::new();
        let members = roster.members.iter().map(|entry| {
            let entry = match self.known.get(&entry.name) {
                Some(before) if is_coming(entry) && entry.tools.is_empty() => {
                    let mut kept = Entry::clone(entry);
                    kept.tools = before.tools.clone();
                    Arc::new(kept)
                }
                _ => entry.clone(),
            };
            known.insert(entry.name.clone(), entry.clone());
            entry
        });
        let roster =
            Roster { generation: roster.generation, hall: roster.hall.clone(), members: members.collect() };
        let mut all: Vec<Arc<Offered>> = named_tools(&roster)
            .into_iter()
            .filter_map(|named| {
                let tool = named.tool()?.clone();
                // Where they are no use, nobody follows them: a stateless member's tool would not be here.
                let headers = ParamHeaders::of(&tool.input_schema).unwrap_or_default();
                let (member, ailing) = (named.entry.name.clone(), named.entry.ailing);
                Some(Arc::new(Offered { name: named.name, member, tool, headers, ailing }))
            })
            .collect();
        let mut members: BTreeMap<MemberKey, Vec<Arc<Offered>>> = BTreeMap::new();
        for offered in &all {
            members.entry(offered.member.clone()).or_default().push(offered.clone());
        }
        for own in members.values_mut() {
            own.sort_by(|one, other| one.tool.name.cmp(&other.tool.name));
        }
        all.sort_by(|one, other| one.name.cmp(&other.name));
        let by_name = all.iter().map(|offered| (offered.name.clone(), offered.clone())).collect();
        Self { generation: roster.generation, all, by_name, members, known }
    }

    /// Members whose tools are not what they were in the other one.
    pub(super) fn differs<'a>(&'a self, before: &'a Self) -> Vec<&'a MemberKey> {
        let empty = Vec::new();
        let keys =
            self.members.keys().chain(before.members.keys().filter(|key| !self.members.contains_key(*key)));
        keys.filter(|key| {
            let (now, then) =
                (self.members.get(*key).unwrap_or(&empty), before.members.get(*key).unwrap_or(&empty));
            now.len() != then.len()
                || now.iter().zip(then).any(|(now, then)| {
                    now.name != then.name || now.tool != then.tool || now.ailing != then.ailing
                })
        })
        .collect()
    }

    /// The tool that is meant by a name.
    pub(super) fn find(&self, scope: &Scope, name: &str) -> Option<&Arc<Offered>> {
        match scope {
            Scope::All => self.by_name.get(name),
            Scope::One(member) => {
                let own = self.members.get(member)?;
                let found = own.binary_search_by(|offered| offered.tool.name.as_str().cmp(name)).ok()?;
                own.get(found)
            }
        }
    }

    /// One page, in the order of the names.
    pub(super) fn list(&self, scope: &Scope, params: &Params) -> Result<Params<'static>, RpcError> {
        let empty = Vec::new();
        let offered = match scope {
            Scope::All => &self.all,
            Scope::One(member) => self.members.get(member).unwrap_or(&empty),
        };
        let offered = offered.iter().filter(|offered| !offered.ailing);
        let named: Vec<_> = offered.map(|offered| (scope.name(offered), offered)).collect();
        page(
            params,
            "tools",
            &named,
            |(name, _)| name,
            |(name, offered)| serde_json::value::to_raw_value(&offered.tool.named(name)).ok(),
        )
    }
}

impl Scope {
    fn name<'a>(&self, offered: &'a Offered) -> &'a str {
        match self {
            Self::All => &offered.name,
            Self::One(_) => &offered.tool.name,
        }
    }
}

/// The part of a sorted list that a cursor asks for. A cursor is the name after which to go on, so that
/// nothing is listed twice or left out when the list changes between two pages.
pub(super) fn page<T>(
    params: &Params, field: &'static str, sorted: &[T], name: impl Fn(&T) -> &str,
    write: impl Fn(&T) -> Option<Box<RawValue>>,
) -> Result<Params<'static>, RpcError> {
    let start = match params.get("cursor") {
        None => 0,
        Some(_) => {
            let cursor = params.text("cursor");
            let after = cursor.as_ref().and_then(|cursor| cursor.strip_prefix("after:"));
            let after = after
                .ok_or_else(|| RpcError::new(code::INVALID_PARAMS, "this is no cursor that was given out"))?;
            sorted.partition_point(|item| name(item) <= after)
        }
    };
    let rest = sorted.get(start..).unwrap_or_default();
    let shown = &rest[..rest.len().min(PAGE)];
    let items: Vec<Box<RawValue>> = shown.iter().filter_map(write).collect();
    let mut listed = Params::default().with(field, &items);
    if rest.len() > PAGE
        && let Some(last) = shown.last()
    {
        listed.set("nextCursor", &format!("after:{}", name(last)));
    }
    Ok(listed)
}

/// It is not connected, and will be without anybody's doing.
fn is_coming(entry: &Entry) -> bool {
    use PhaseName::{Connected, Failed, Invalid, Stopped};
    match entry.phase {
        // What is queued is stopped, and not settled.
        Stopped => !entry.settled,
        Connected | Failed | Invalid => false,
        _ => true,
    }
}
