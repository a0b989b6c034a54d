//! The names under which tools are offered to agents: `<member>__<tool>`, in the letters that every
//! client accepts, at most 64 of them, each once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::model::{Entry, MemberKey, Roster, Tool};

/// Longest name that clients accept.
const LONGEST: usize = 64;
/// Characters of the hash that end a name which had to be changed.
const HASH: usize = 8;

/// A tool under its gateway name.
#[derive(Debug, Clone)]
pub struct NamedTool {
    pub name: String,
    pub entry: Arc<Entry>,
    /// Its place in `entry.tools`.
    index: usize,
}

impl NamedTool {
    pub fn tool(&self) -> Option<&Tool> {
        self.entry.tools.get(self.index)
    }
}

/// All tools of all members, in the order of members and of their own lists. A name depends on the
/// keys in the roster and on the member's own list alone, not on who is connected.
pub fn named_tools(roster: &Roster) -> Vec<NamedTool> {
    let plain_keys: Vec<String> = roster.members.iter().map(|entry| plain(entry.name.as_str())).collect();
    let mut named = Vec::new();
    for (entry, key) in roster.members.iter().zip(&plain_keys) {
        let shared = is_shared(key, &plain_keys);
        let mut own: HashMap<String, usize> = HashMap::new();
        for tool in &*entry.tools {
            *own.entry(plain(&tool.name)).or_default() += 1;
        }
        let mut seen = HashSet::new();
        for (index, tool) in entry.tools.iter().enumerate() {
            // A member that lists a name twice can be asked for the first only.
            if !seen.insert(&tool.name) {
                continue;
            }
            let plain_tool = plain(&tool.name);
            let twice = own.get(&plain_tool).is_some_and(|&count| count > 1);
            let whole = format!("{key}__{plain_tool}");
            let name = if shared || twice || whole.len() > LONGEST {
                hashed(&whole, entry.name.as_str(), &tool.name)
            } else {
                whole
            };
            named.push(NamedTool { name, entry: entry.clone(), index });
        }
    }
    named
}

/// A member's key as it begins the names of what it offers; with a hash where another one reads alike.
pub fn plain_key(roster: &Roster, member: &MemberKey) -> String {
    let keys: Vec<String> = roster.members.iter().map(|entry| plain(entry.name.as_str())).collect();
    let key = plain(member.as_str());
    if is_shared(&key, &keys) { hashed(&key, member.as_str(), "") } else { key }
}

/// Every character that clients may not accept, as `-`.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '-' }).collect()
}

/// Could a tool of this member have the name of another member's? Its key reads like another's, or like
/// another's followed by a tool.
fn is_shared(key: &str, keys: &[String]) -> bool {
    let like = |other: &&String| other.as_str() == key;
    let begins = |other: &String| key.strip_prefix(other.as_str()).is_some_and(|rest| rest.starts_with("__"));
    keys.iter().filter(like).count() > 1 || keys.iter().any(begins)
}

fn hashed(plain: &str, member: &str, tool: &str) -> String {
    let hash = Sha256::digest(format!("{member}\0{tool}"));
    let hash = hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let kept = plain.len().min(LONGEST - HASH - 1);
    format!("{}-{}", &plain[..kept], &hash[..HASH])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{HallFacts, Pid, Timestamp};

    fn roster(members: &[(&str, &[&str])]) -> Roster {
        let entry = |(name, tools): &(&str, &[&str])| {
            let tools: Vec<_> = tools.iter().map(|tool| serde_json::json!({"name": tool})).collect();
            let entry = serde_json::json!({
                "name": name, "displayName": "", "description": "", "version": "", "dialect": null, "status": "connected",
                "phase": "connected", "transport": null, "port": null, "pid": null, "instance": null, "adopted": false,
                "since": "2026-01-01T00:00:00Z", "attempts": 0, "restarts": 0, "lastExit": null, "retryAt": null,
                "error": null, "stderrTail": [], "tools": tools, "dir": "",
            });
            Arc::new(serde_json::from_value::<Entry>(entry).unwrap())
        };
        let hall = HallFacts { version: String::new(), pid: Pid(1), started_at: Timestamp(0), gateway: None };
        Roster { generation: 0, hall, members: members.iter().map(entry).collect() }
    }

    fn names(members: &[(&str, &[&str])]) -> Vec<String> {
        named_tools(&roster(members)).into_iter().map(|named| named.name).collect()
    }

    #[test]
    fn a_name_is_member_and_tool_in_letters_that_every_client_takes() {
        assert_eq!(names(&[("home/weather", &["fetch it"])]), ["home-weather__fetch-it"]);
        let long = names(&[("m", &["x".repeat(90).as_str()])]);
        assert_eq!(long[0].len(), LONGEST);
    }

    #[test]
    fn names_are_unique_and_do_not_move_when_another_member_goes() {
        let both = names(&[("a-b", &["c"]), ("a/b", &["c"])]);
        let one_stopped = names(&[("a-b", &[]), ("a/b", &["c"])]);
        assert_ne!(both[0], both[1]);
        assert_eq!(both[1], one_stopped[0]);
        let split = names(&[("a", &["b__c"]), ("a__b", &["c"])]);
        assert_ne!(split[0], split[1]);
        let own = names(&[("m", &["x y", "x-y", "x y"])]);
        assert!(own.len() == 2 && own[0] != own[1], "{own:?}");
    }
}
