//! All processes of one launch: what is signalled and killed is the tree, not its leader alone.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::cgroup::{Cgroup, Cgroups};
use super::fault;
use super::leader::{Leader, group_of};
use crate::model::{Instance, Pid};

/// The processes of a launch: its cgroup where there is one; else its process group, and whatever
/// a sweep finds by its instance id.
#[derive(Debug)]
pub struct Tree {
    cgroup: Option<Cgroup>,
}

impl Tree {
    /// Without a cgroup where none can be made.
    pub fn new(instance: Instance, cgroups: Option<&Cgroups>, stem: &str) -> Self {
        let name = format!("{}.{instance}", stem.chars().take(100).collect::<String>());
        Self { cgroup: cgroups.and_then(|cgroups| cgroups.make(&name).ok()) }
    }

    /// Of a launch of an earlier hall: in the cgroup that its PID file names, if it is still there.
    pub fn find(instance: Instance, cgroup: Option<&Path>) -> Self {
        let group = cgroup.and_then(|path| Cgroups::of_instance(path, instance));
        Self { cgroup: group.map(Cgroup::at) }
    }

    /// Nothing was started in it, or what was is dead.
    pub fn discard(&self) {
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill();
            cgroup.remove();
        }
    }

    /// The launch was born outside of its cgroup, which must not be asked about it.
    pub fn forget_cgroup(&mut self) {
        if let Some(cgroup) = self.cgroup.take() {
            cgroup.remove();
        }
    }

    /// The cgroup for its processes to be born into.
    pub fn cgroup_dir(&self) -> Option<File> {
        self.cgroup.as_ref()?.open().ok()
    }

    pub fn cgroup_path(&self) -> Option<&Path> {
        self.cgroup.as_ref().map(Cgroup::path)
    }

    pub(super) fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    /// Asks the leader and its group to end: almost always that is everything.
    pub fn terminate(&self, leader: &Leader) {
        leader.signal_group(Signal::TERM);
    }

    /// Asks what [`Tree::terminate`] did not reach: processes that left the group, and stopped ones,
    /// which hear nothing before they are continued.
    pub fn terminate_the_rest(&self, leader: &Leader) {
        leader.signal_group(Signal::CONT);
        self.signal_outside_group(leader.pid(), Signal::TERM);
    }

    /// Kills everything in it; without a cgroup, a sweep must follow.
    pub fn kill(&self, leader: &Leader) {
        leader.signal_group(Signal::KILL);
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill();
        }
    }

    /// What has left the leader's group, with `setsid` or `setpgid`.
    fn signal_outside_group(&self, leader: Pid, signal: Signal) {
        let Some(cgroup) = &self.cgroup else { return };
        let pids = cgroup.pids();
        if pids.iter().all(|&pid| pid == leader) {
            return;
        }
        // Pinned first, then proven to be in the cgroup still.
        let pinned: Vec<(Pid, OwnedFd)> =
            pids.into_iter().filter_map(|pid| Some((pid, open(pid)?))).collect();
        let still: HashSet<Pid> = cgroup.pids().into_iter().collect();
        for (pid, pidfd) in pinned.iter().filter(|(pid, _)| still.contains(pid)) {
            if group_of(*pid).is_some_and(|group| group != leader) {
                let _ = fault::around("signal outside a group", || pidfd_send_signal(pidfd, signal));
            }
        }
    }

    /// Every process in it, the leader first.
    pub fn pids(&self, leader: Pid) -> Vec<Pid> {
        let mut pids = vec![leader];
        match &self.cgroup {
            Some(cgroup) => pids.extend(cgroup.pids().into_iter().filter(|&pid| pid != leader)),
            None => descendants(&mut pids),
        }
        pids
    }

    /// Whatever it starts is in a cgroup of its own.
    pub fn has_cgroup(&self) -> bool {
        self.cgroup.is_some()
    }

    /// Nothing is left but perhaps a zombie. `None` without a cgroup: only a sweep can tell.
    pub fn is_empty(&self) -> Option<bool> {
        self.cgroup.as_ref().map(Cgroup::is_empty)
    }

    /// Kills what a dead leader left behind and removes the cgroup. Waits for the kernel up to
    /// `patience`; false if something may still be there: without a cgroup, or in uninterruptible sleep.
    pub fn clear(&self, patience: Duration) -> bool {
        let Some(cgroup) = &self.cgroup else { return false };
        // The usual case: nothing is left, and the cgroup goes at once.
        if cgroup.remove() {
            return true;
        }
        cgroup.kill();
        let step = Duration::from_millis(1);
        let mut waited = Duration::ZERO;
        while !cgroup.remove() {
            if waited >= patience {
                return false;
            }
            std::thread::sleep(step);
            waited += step;
        }
        true
    }
}

fn open(pid: Pid) -> Option<OwnedFd> {
    pidfd_open(rustix::process::Pid::from_raw(pid.0)?, PidfdFlags::empty()).ok()
}

/// Completes a list of processes by their children, and theirs.
pub(super) fn descendants(pids: &mut Vec<Pid>) {
    let mut next = 0;
    while let Some(&pid) = pids.get(next) {
        next += 1;
        pids.extend(children(pid).unwrap_or_default());
    }
}

/// The children of a process, from all its threads.
pub(super) fn children(pid: Pid) -> io::Result<Vec<Pid>> {
    let mut pids = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        pids.extend(children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok().map(Pid)));
    }
    Ok(pids)
}
