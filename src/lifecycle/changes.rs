//! A rescan as a value: what was added, changed and removed. Computed here, applied by `guild`.

use std::collections::BTreeMap;

use super::seat::Seat;
use crate::model::{Changes, Found, MemberKey};

/// Compares the members that are known with what was found now.
pub(super) fn compare(known: &BTreeMap<MemberKey, Seat>, found: &Found) -> Changes {
    let mut changes = Changes::default();
    for (key, paper) in &found.papers {
        match known.get(key) {
            None => changes.added.push(key.clone()),
            Some(seat) if seat.holds(paper) => changes.unchanged += 1,
            Some(_) => changes.changed.push(key.clone()),
        }
    }
    let is_gone = |key: &MemberKey, seat: &Seat| {
        let collection = key.as_str().split_once('/').map(|(collection, _)| collection);
        let is_looked_for = found.only.as_ref().is_none_or(|only| only.contains(key));
        let is_unknown =
            collection.is_some_and(|name| found.unread.contains(name)) || found.unlisted && seat.is_listed();
        is_looked_for && !found.papers.contains_key(key) && !is_unknown
    };
    let removed = known.iter().filter(|(key, seat)| is_gone(key, seat) && !seat.is_leaving());
    changes.removed = removed.map(|(key, _)| key.clone()).collect();
    changes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::{Diagnosis, Moment, Rejection};

    fn key(text: &str) -> MemberKey {
        MemberKey::parse(text).unwrap()
    }

    fn broken() -> Rejection {
        Diagnosis { file: "m".into(), place: None, field: None, message: "broken".into() }.into()
    }

    #[test]
    fn what_was_not_looked_for_is_not_missed() {
        let known = ["a", "c/b", "c/d"]
            .map(|name| (key(name), Seat::Invalid { rejection: broken(), since: Moment::ZERO }));
        let known = BTreeMap::from(known);
        let nothing = Found::default();
        assert_eq!(compare(&known, &nothing).removed, [key("a"), key("c/b"), key("c/d")]);
        let unread = Found { unread: BTreeSet::from(["c".to_owned()]), ..Found::default() };
        assert_eq!(compare(&known, &unread).removed, [key("a")]);
        let only = Found { only: Some(BTreeSet::from([key("c/b"), key("c/e")])), ..Found::default() };
        assert_eq!(compare(&known, &only).removed, [key("c/b")]);
    }
}
