//! The names under which tools are offered to agents: `<member>__<tool>`, in the letters that every
//! client accepts, at most 64 of them, each once.

use std::collections::HashSet;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::model::{Entry, Roster, Tool};

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

/// All tools of all members, in the order of members and of their own lists.
pub fn named_tools(roster: &Roster) -> Vec<NamedTool> {
    let mut taken = HashSet::new();
    let mut named = Vec::new();
    for entry in &roster.members {
        let mut own = HashSet::new();
        for (index, tool) in entry.tools.iter().enumerate() {
            // A member that lists a name twice can be asked for the first only.
            if !own.insert(&tool.name) {
                continue;
            }
            let whole = format!("{}__{}", entry.name, tool.name);
            let plain: String = whole
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '-' })
                .collect();
            let name = if plain.len() <= LONGEST && !taken.contains(&plain) {
                plain
            } else {
                hashed(&plain, &whole)
            };
            if taken.insert(name.clone()) {
                named.push(NamedTool { name, entry: entry.clone(), index });
            }
        }
    }
    named
}

fn hashed(plain: &str, whole: &str) -> String {
    let hash = Sha256::digest(whole).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let kept = plain.len().min(LONGEST - HASH - 1);
    format!("{}-{}", &plain[..kept], &hash[..HASH])
}
