//! Ids of HomeClaw plugins: how they are looked up, and which member one is that was registered.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::model::{Dialect, Entry, KeyError, MemberKey, Roster};

/// The collection that registered plugins are members of.
const COLLECTION: &str = "registered";
/// Longest id that is a name as it is; bytes.
const LONGEST: usize = 100;
/// Characters of the hash that ends any other.
const HASH: usize = 8;

/// Two ids that are the same but for case, or for `-`, `_` and space, mean the same plugin.
pub(super) fn fold(id: &str) -> String {
    let alike = |c: char| if matches!(c, '_' | ' ') { '-' } else { c };
    id.trim().chars().flat_map(char::to_lowercase).map(alike).collect()
}

/// The member that a registered plugin is: `registered/<id>`, in small letters. What cannot stand in the name
/// of a file becomes `-`, and a hash tells such ids apart.
pub(super) fn key_of(id: &str) -> Result<MemberKey, KeyError> {
    let folded = fold(id);
    let plain = |c: char| if c.is_alphanumeric() || matches!(c, '-' | '.') { c } else { '-' };
    let mut name: String = folded.chars().map(plain).collect();
    if name != folded || name.starts_with('.') || name.len() > LONGEST {
        let hash = Sha256::digest(&folded).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let mut short = String::new();
        for c in name.trim_start_matches('.').chars() {
            if short.len() + c.len_utf8() > LONGEST {
                break;
            }
            short.push(c);
        }
        name = format!("{short}-{}", &hash[..HASH]);
    }
    MemberKey::parse(&format!("{COLLECTION}/{name}"))
}

/// The entries of all HomeClaw plugins, of the members directory and registered.
pub fn plugins(roster: &Roster) -> impl Iterator<Item = &Arc<Entry>> {
    roster.members.iter().filter(|entry| entry.dialect == Some(Dialect::HomeClaw) && entry.porter.is_some())
}

/// The plugin of this id: one of the members directory before a registered one.
pub(super) fn find<'a>(roster: &'a Roster, id: &str) -> Option<&'a Arc<Entry>> {
    let folded = fold(id);
    let registered = key_of(id).ok()?;
    let has_id =
        |entry: &&Arc<Entry>| entry.porter.as_ref().is_some_and(|porter| fold(&porter.plugin.id) == folded);
    let in_directory = plugins(roster).filter(has_id).find(|entry| entry.name != registered);
    in_directory.or_else(|| roster.entry(registered.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_are_looked_up_alike_are_one_member() {
        for id in ["Slack Bot", "slack_bot", "SLACK-BOT", " slack-bot "] {
            assert_eq!(key_of(id).unwrap().as_str(), "registered/slack-bot");
        }
    }

    #[test]
    fn whatever_an_id_is_made_of_it_is_a_key_of_its_own() {
        let long = "x".repeat(5_000);
        let odd = ["a/b", "a-b", "a\nb", "..", ".", "...", "/", "\u{202e}a", "ü/ñ", &long, "a:b", "a\0b"];
        let keys: std::collections::BTreeSet<_> = odd.iter().map(|id| key_of(id).unwrap()).collect();
        assert_eq!(keys.len(), odd.len(), "{keys:?}");
        assert!(keys.iter().all(|key| key.as_str().len() < 150), "{keys:?}");
    }
}
