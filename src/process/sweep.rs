//! Finding processes by what they carry, and burying what nobody else buries.

use std::collections::HashSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

use rustix::process::{PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};

use super::INSTANCE_VARIABLE;
use super::fault;
use super::tree::{children, descendants};
use crate::model::{Instance, Pid};

/// Every process that carries one of these instance ids in its environment, pinned.
fn processes_of(instances: &HashSet<Instance>) -> Vec<(Instance, OwnedFd)> {
    if instances.is_empty() {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid));
    pids.filter_map(|pid| {
        // Pinned first: what is read afterwards is of this process or of none.
        let pidfd = pidfd_open(rustix::process::Pid::from_raw(pid.0)?, PidfdFlags::empty()).ok()?;
        let instance = instance_of(pid)?;
        instances.contains(&instance).then_some((instance, pidfd))
    })
    .collect()
}

fn instance_of(pid: Pid) -> Option<Instance> {
    variable_of(pid, INSTANCE_VARIABLE)?.parse().ok()
}

/// A variable that a process was started with.
fn variable_of(pid: Pid, name: &str) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = environment.split(|&byte| byte == 0);
    let value = variables.find_map(|variable| variable.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    String::from_utf8(value.to_vec()).ok()
}

/// Every descendant of this process that was started with the variable, pinned. A zombie carries nothing.
pub(super) fn carriers(name: &str, value: &str) -> Vec<OwnedFd> {
    let mut pids = vec![Pid(std::process::id().cast_signed())];
    descendants(&mut pids);
    let pin = |pid: Pid| {
        let pidfd = pidfd_open(rustix::process::Pid::from_raw(pid.0)?, PidfdFlags::empty()).ok()?;
        (variable_of(pid, name)? == value).then_some(pidfd)
    };
    pids.into_iter().skip(1).filter_map(pin).collect()
}

/// Whatever still carries one of these ids, after killing it if `kill` is set. One walk through
/// `/proc`, however many ids.
pub fn sweep(instances: &HashSet<Instance>, kill: bool) -> HashSet<Instance> {
    let mut found = HashSet::new();
    for (instance, pidfd) in processes_of(instances) {
        if kill {
            let _ = fault::around("kill by instance", || pidfd_send_signal(&pidfd, Signal::KILL));
        }
        found.insert(instance);
    }
    found
}

/// The leaders that are alive or not yet reaped. Everything else that becomes a child of the hall
/// (it is a subreaper) was left behind by a member.
#[derive(Debug)]
pub struct Registry {
    /// Children that this process was born with: a shell that ran `other & exec guild-hall run` left
    /// them to it. They are reaped like all children, but are not the hall's to end.
    elders: Mutex<HashSet<Pid>>,
    leaders: Mutex<HashSet<Pid>>,
    /// Held for reading from before a birth until the newborn is registered.
    births: RwLock<()>,
}

/// The one registry of this process: who is reaped by whom is a matter of the process as a whole.
/// To be called first before anything is launched.
pub fn registry() -> &'static Registry {
    static REGISTRY: std::sync::LazyLock<Registry> = std::sync::LazyLock::new(|| {
        let elders = children(Pid(std::process::id().cast_signed())).unwrap_or_default();
        Registry {
            elders: Mutex::new(elders.into_iter().collect()),
            leaders: Mutex::default(),
            births: RwLock::default(),
        }
    });
    &REGISTRY
}

impl Registry {
    /// Hold this while a child is born and registered.
    pub fn birth(&self) -> RwLockReadGuard<'_, ()> {
        self.births.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, pid: Pid) {
        self.leaders.lock().unwrap_or_else(PoisonError::into_inner).insert(pid);
    }

    /// The children that this process was born with.
    pub fn elders(&self) -> HashSet<Pid> {
        self.elders.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// In a new image of the hall, whose children are those of the image before: only these are elders.
    pub fn inherit(&self, elders: HashSet<Pid>) {
        *self.elders.lock().unwrap_or_else(PoisonError::into_inner) = elders;
    }

    /// After it was reaped.
    pub fn remove(&self, pid: Pid) {
        self.leaders.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid);
    }
}

/// Reaps dead children that are no leaders: grandchildren whose parents died. With `kill`, also
/// ends those that live, but for the ones that the hall was born with. Returns how many live that it
/// would end; `None` while a birth is under way: it may take as long as the disk takes.
pub fn reap_orphans(kill: bool) -> Option<usize> {
    let registry = registry();
    // Never waits for its turn: a writer that waits would hold up all further births.
    let _no_births = registry.births.try_write().ok()?;
    let own = Pid(std::process::id().cast_signed());
    let elders = registry.elders();
    let mut alive = 0;
    for child in children(own).unwrap_or_default() {
        let leaders = registry.leaders.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(pid) = rustix::process::Pid::from_raw(child.0).filter(|_| !leaders.contains(&child)) else {
            continue;
        };
        // It is our child and unreaped: the number cannot mean another process.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let reaped = fault::around("reap an orphan", || waitid(WaitId::Pid(pid), options));
        if matches!(reaped, Ok(None)) && !elders.contains(&child) {
            alive += 1;
            if kill && let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) {
                let _ = fault::around("kill an orphan", || pidfd_send_signal(&pidfd, Signal::KILL));
            }
        }
    }
    Some(alive)
}
