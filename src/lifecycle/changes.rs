//! A rescan as a value: what was added, changed and removed. Computed here, applied by `guild`.

use std::collections::BTreeMap;

use super::seat::Seat;
use crate::model::{Changes, Found, MemberKey};

/// Compares the members that are known with what stands in the directory now.
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
        let is_unknown =
            collection.is_some_and(|name| found.unread.contains(name)) || found.unlisted && seat.is_listed();
        !found.papers.contains_key(key) && !is_unknown
    };
    let removed = known.iter().filter(|(key, seat)| is_gone(key, seat) && !seat.is_leaving());
    changes.removed = removed.map(|(key, _)| key.clone()).collect();
    changes
}
