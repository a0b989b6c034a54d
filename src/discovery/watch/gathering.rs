//! Changes are gathered until nothing more comes for a moment, and become one answer. Pure: `now` is
//! given. Each member's are gathered by themselves, so that none which changes without end delays another.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::shown;
use crate::model::MemberKey;

/// So long nothing more must come.
const QUIET: Duration = Duration::from_millis(100);
/// No change waits longer. What vanished is waited for so long, since many an editor saves by removing
/// a file and writing it anew. And no member is told of more often: one that writes its own sources
/// must not take the machine for itself.
const LONGEST: Duration = Duration::from_secs(1);
/// When more has vanished than this, the rest is not waited for.
const MOST_VANISHED: usize = 100;

/// What a change of one path means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Members may have come, changed or gone.
    Rescan,
    /// A file of these members has changed: its name below the directory of each.
    Files(Vec<(MemberKey, String)>),
}

/// All that has come and was not yet taken.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    rescan: Pending,
    files: BTreeMap<MemberKey, Pending>,
    /// Members that were told of a moment ago, and until when they are not told of again.
    rested: BTreeMap<MemberKey, Instant>,
}

/// What has come of one kind.
#[derive(Debug, Default)]
struct Pending {
    /// When the first and the last came.
    span: Option<(Instant, Instant)>,
    /// The first that is as it shall stay.
    changed: Option<String>,
    /// Gone, and not yet back.
    vanished: BTreeMap<PathBuf, String>,
}

impl Gathering {
    /// Something is as it shall stay.
    pub(super) fn changed(&mut self, path: &Path, meaning: Meaning, now: Instant) {
        self.each(path, meaning, |pending, name| {
            pending.vanished.remove(path);
            pending.came(now);
            pending.changed.get_or_insert(name);
        });
    }

    /// Something is gone; it may come back at once.
    pub(super) fn vanished(&mut self, path: &Path, meaning: Meaning, now: Instant) {
        self.each(path, meaning, |pending, name| {
            pending.came(now);
            if pending.vanished.len() < MOST_VANISHED {
                pending.vanished.insert(path.into(), name);
            } else {
                pending.changed.get_or_insert(name);
            }
        });
    }

    /// Something is back and is still being written: when that is done, it will have changed.
    pub(super) fn returned(&mut self, path: &Path, meaning: Meaning) {
        self.each(path, meaning, |pending, _| {
            if pending.vanished.remove(path).is_some() && pending.is_empty() {
                pending.span = None;
            }
        });
    }

    /// When there is something to take; `None` while there is nothing.
    pub(super) fn due(&self) -> Option<Instant> {
        let files = self.files.keys().filter_map(|key| self.due_of(key)).min();
        match self.rescan.due() {
            // A manifest and a source that change together are one restart.
            Some(rescan) => Some(rescan),
            None => files,
        }
    }

    /// Whether the members directory must be read again by now. If so, it is not so any more.
    pub(super) fn take_rescan(&mut self, now: Instant) -> bool {
        let is_due = self.rescan.due().is_some_and(|due| due <= now);
        if is_due {
            self.rescan = Pending::default();
        }
        is_due
    }

    /// The members to tell of by now, each with the first of its files that changed.
    pub(super) fn take_files(&mut self, now: Instant) -> BTreeMap<MemberKey, String> {
        self.rested.retain(|_, until| *until > now);
        if self.rescan.due().is_some() {
            return BTreeMap::new();
        }
        let is_due = |key: &&MemberKey| self.due_of(key).is_some_and(|due| due <= now);
        let due: Vec<MemberKey> = self.files.keys().filter(is_due).cloned().collect();
        let mut files = BTreeMap::new();
        for key in due {
            let Some(Pending { changed, mut vanished, .. }) = self.files.remove(&key) else { continue };
            let file = changed.or_else(|| vanished.pop_first().map(|(_, name)| name));
            self.rested.insert(key.clone(), now + LONGEST);
            files.extend(file.map(|file| (key, file)));
        }
        files
    }

    /// A member is started anew in any case.
    pub(super) fn forgive(&mut self, key: &MemberKey) {
        self.files.remove(key);
    }

    fn due_of(&self, key: &MemberKey) -> Option<Instant> {
        let due = self.files.get(key)?.due()?;
        Some(self.rested.get(key).map_or(due, |until| due.max(*until)))
    }

    fn each(&mut self, path: &Path, meaning: Meaning, mut act: impl FnMut(&mut Pending, String)) {
        match meaning {
            Meaning::Rescan => act(&mut self.rescan, shown(path)),
            Meaning::Files(files) => {
                for (key, file) in files {
                    act(self.files.entry(key).or_default(), file);
                }
            }
        }
    }
}

impl Pending {
    fn due(&self) -> Option<Instant> {
        let (first, last) = self.span?;
        let patience = if self.vanished.is_empty() { QUIET } else { LONGEST };
        Some((last + patience).min(first + LONGEST))
    }

    fn is_empty(&self) -> bool {
        self.changed.is_none() && self.vanished.is_empty()
    }

    fn came(&mut self, now: Instant) {
        let first = self.span.map_or(now, |(first, _)| first);
        self.span = Some((first, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> MemberKey {
        MemberKey::parse(name).unwrap()
    }

    fn of(name: &str) -> Meaning {
        Meaning::Files(vec![(key(name), "a.py".into())])
    }

    fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn names(taken: BTreeMap<MemberKey, String>) -> Vec<String> {
        taken.into_keys().map(|key| key.to_string()).collect()
    }

    #[test]
    fn a_change_waits_for_quiet_but_not_for_ever() {
        let start = Instant::now();
        let mut gathering = Gathering::default();
        assert_eq!(gathering.due(), None);
        for n in 0..20 {
            gathering.changed(Path::new("a"), of("a"), start + millis(90 * n));
        }
        assert_eq!(gathering.due(), Some(start + LONGEST));
        assert_eq!(names(gathering.take_files(start + LONGEST)), ["a"]);
        assert_eq!(gathering.due(), None);
        gathering.changed(Path::new("a"), of("a"), start + LONGEST + millis(10));
        assert_eq!(gathering.due(), Some(start + LONGEST * 2), "one restart a second is enough");
    }

    #[test]
    fn one_member_that_changes_without_end_does_not_delay_another() {
        let start = Instant::now();
        let mut gathering = Gathering::default();
        for n in 0..10 {
            gathering.changed(Path::new("a"), of("a"), start + millis(10 * n));
        }
        gathering.changed(Path::new("b"), of("b"), start);
        assert_eq!(gathering.due(), Some(start + QUIET));
        assert_eq!(names(gathering.take_files(start + QUIET)), ["b"]);
    }

    #[test]
    fn what_vanished_and_is_written_anew_is_one_change() {
        let start = Instant::now();
        let mut gathering = Gathering::default();
        gathering.vanished(Path::new("a"), of("a"), start);
        assert_eq!(gathering.due(), Some(start + LONGEST), "it may come back");
        gathering.returned(Path::new("a"), of("a"));
        assert_eq!(gathering.due(), None, "it is being written");
        gathering.changed(Path::new("a"), of("a"), start + millis(700));
        assert_eq!(gathering.due(), Some(start + millis(700) + QUIET));
        assert_eq!(names(gathering.take_files(start + LONGEST)), ["a"]);
    }

    #[test]
    fn files_wait_for_a_rescan_that_starts_their_member_anew() {
        let start = Instant::now();
        let mut gathering = Gathering::default();
        gathering.changed(Path::new("a"), of("a"), start);
        gathering.changed(Path::new("b"), of("b"), start);
        gathering.changed(Path::new("m"), Meaning::Rescan, start + millis(50));
        assert_eq!(gathering.due(), Some(start + millis(150)));
        assert!(!gathering.take_rescan(start + QUIET) && gathering.take_files(start + QUIET).is_empty());
        assert!(gathering.take_rescan(start + millis(150)) && !gathering.take_rescan(start + millis(150)));
        gathering.forgive(&key("a"));
        assert_eq!(names(gathering.take_files(start + millis(150))), ["b"]);
    }

    #[test]
    fn what_stays_away_counts_too_and_in_bounded_memory() {
        let start = Instant::now();
        let mut gathering = Gathering::default();
        for n in 0..100_000 {
            gathering.vanished(&PathBuf::from(n.to_string()), of("a"), start);
        }
        assert_eq!(gathering.files[&key("a")].vanished.len(), MOST_VANISHED);
        gathering.vanished(Path::new("m"), Meaning::Rescan, start);
        assert!(!gathering.take_rescan(start + QUIET) && gathering.take_rescan(start + LONGEST));
        assert_eq!(names(gathering.take_files(start + LONGEST)), ["a"]);
        assert_eq!(gathering.due(), None);
    }
}
