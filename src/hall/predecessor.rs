//! What an earlier hall on this run directory left behind: ended where it is provably ours, left
//! alone where it is not.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rustix::process::{Signal, pidfd_send_signal};

use crate::process::{Cgroups, Identity, PidFiles, sweep};

/// How long leftovers may take to die before the hall starts all the same.
const PATIENCE: Duration = Duration::from_secs(3);

/// Blocks; returns how many processes were ended.
pub(super) fn end(pid_files: &PidFiles, cgroups: Option<&Cgroups>) -> usize {
    let files = pid_files.all();
    let mut groups = cgroups.map(Cgroups::leftovers).unwrap_or_default();
    // The earlier hall may have run in another cgroup than this one.
    groups.extend(
        files.iter().filter_map(|(_, file)| Cgroups::of_instance(file.cgroup.as_ref()?, file.instance)),
    );
    let mut ended = 0;
    for (_, file) in &files {
        if let Some(pidfd) = file.identity.as_ref().and_then(Identity::open) {
            // Of this boot, of this start time, under this handle: it is the one that was launched.
            let _ = pidfd_send_signal(&pidfd, Signal::KILL);
            ended += 1;
        }
    }
    let instances: HashSet<_> = files.iter().map(|(_, file)| file.instance).collect();
    let end = Instant::now() + PATIENCE;
    let left = loop {
        groups.retain(|group| !Cgroups::clear(group));
        let left = sweep(&instances, true);
        if (left.is_empty() && groups.is_empty()) || Instant::now() >= end {
            break left;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    for (path, file) in files {
        // What does not die stays on paper, for the next hall.
        if !left.contains(&file.instance) {
            let _ = std::fs::remove_file(path);
        }
    }
    ended
}
