//! What an earlier hall on this run directory left behind: its living members are taken over, anything
//! else that is provably its own is ended, and what is not is left alone.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Signal, pidfd_send_signal};

use crate::lifecycle::Survivor;
use crate::model::{Found, Instance, Manifest, Moment, Pid, RestartPolicy, Transport};
use crate::process::{Cgroups, PidFile, PidFiles, argv, boot_id, fault, sweep};

/// How long leftovers may take to die before the hall starts all the same.
const PATIENCE: Duration = Duration::from_secs(3);

/// A member's process that lives, and is proven to be the one of its PID file.
#[derive(Debug)]
pub(super) struct Relic {
    pub(super) pid: Pid,
    pub(super) pidfd: OwnedFd,
    pub(super) file: PidFile,
}

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Remains {
    pub(super) living: Vec<Relic>,
    /// Launches whose process is dead, was never known, or cannot be kept.
    over: Vec<PidFile>,
    /// Cgroups of launches that are over.
    groups: Vec<PathBuf>,
}

impl Remains {
    /// Reads the PID files and looks who lives. Blocks.
    pub(super) fn examine(pid_files: &PidFiles, cgroups: Option<&Cgroups>) -> Self {
        let mut remains = Self::default();
        let (mut instances, mut ports, mut pids) = (HashSet::new(), HashSet::new(), HashSet::new());
        for file in pid_files.all() {
            let opened = file.identity.as_ref().and_then(|known| Some((known.pid, known.open()?)));
            match opened {
                // No two launches share any of these: where they do, somebody has meddled.
                Some((pid, pidfd))
                    if instances.insert(file.instance) && ports.insert(file.port) && pids.insert(pid) =>
                {
                    remains.living.push(Relic { pid, pidfd, file });
                }
                Some((_, pidfd)) => {
                    let _ = fault::around("kill what is left", || pidfd_send_signal(&pidfd, Signal::KILL));
                    remains.over.push(file);
                }
                None => remains.over.push(file),
            }
        }
        let living: HashSet<&Path> =
            remains.living.iter().filter_map(|relic| relic.file.cgroup.as_deref()).collect();
        let mut groups = cgroups.map(Cgroups::leftovers).unwrap_or_default();
        // The earlier hall may have run in another cgroup than this one.
        groups.extend(
            remains.over.iter().filter_map(|file| Cgroups::of_instance(file.cgroup.as_ref()?, file.instance)),
        );
        groups.retain(|group| !living.contains(group.as_path()));
        remains.groups = groups;
        remains
    }

    /// Of one launch whose first process is dead.
    pub(super) fn of(file: PidFile) -> Self {
        let group = file.cgroup.as_ref().and_then(|path| Cgroups::of_instance(path, file.instance));
        Self { living: Vec::new(), over: vec![file], groups: group.into_iter().collect() }
    }

    /// The earlier hall was ending all that it had launched before.
    pub(super) fn were_ending(&mut self, since: Moment) {
        for relic in self.living.iter_mut().filter(|relic| relic.file.launched < since) {
            relic.file.ending.get_or_insert(since);
        }
    }

    /// Ends what cannot be taken over. Blocks, for as long as the kernel takes to bury it.
    pub(super) fn clear(&mut self, pid_files: &PidFiles) {
        let mut instances: HashSet<Instance> =
            self.over.iter().filter(|file| may_have_more(file)).map(|file| file.instance).collect();
        let end = Instant::now() + PATIENCE;
        loop {
            self.groups.retain(|group| !Cgroups::clear(group));
            instances = sweep(&instances, true);
            if (instances.is_empty() && self.groups.is_empty()) || Instant::now() >= end {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        for file in self.over.drain(..) {
            // What does not die stays on paper, for the next hall.
            if !instances.contains(&file.instance) {
                pid_files.remove(&file.member, file.instance);
            }
        }
    }

    /// Ends everything. Blocks; returns how many members' processes were alive.
    pub(super) fn end(mut self, pid_files: &PidFiles) -> usize {
        let ended = self.living.len();
        for Relic { pidfd, file, .. } in self.living.drain(..) {
            let _ = fault::around("kill what is left", || pidfd_send_signal(&pidfd, Signal::KILL));
            self.groups
                .extend(Cgroups::of_instance(file.cgroup.as_deref().unwrap_or(Path::new("")), file.instance));
            self.over.push(file);
        }
        self.clear(pid_files);
        ended
    }
}

/// Is there anything besides its cgroup where processes of this launch may be?
fn may_have_more(file: &PidFile) -> bool {
    match &file.identity {
        // Killed between its two writes: born into the cgroup or not.
        None => true,
        Some(identity) => file.cgroup.is_none() && identity.boot_id == boot_id(),
    }
}

impl Relic {
    /// `None` if the process is no more.
    pub(super) fn open(file: PidFile) -> Option<Self> {
        let known = file.identity.as_ref()?;
        Some(Self { pid: known.pid, pidfd: known.open()?, file })
    }

    /// What the core must know of it.
    pub(super) fn survivor(&self, found: &Found, binary: &Path) -> Survivor {
        let PidFile { member, port, instance, launched, ending, .. } = &self.file;
        let is_its = |paper: &&Arc<Manifest>| {
            paper.digest == self.file.manifest_digest && argv(paper, *port, binary) == self.file.argv
        };
        let paper = found.papers.get(member).and_then(|paper| paper.as_ref().ok()).filter(is_its);
        Survivor {
            key: member.clone(),
            instance: *instance,
            port: *port,
            pid: self.pid,
            launched: *launched,
            ending: *ending,
            manifest: paper.cloned().unwrap_or_else(|| self.stand_in().into()),
        }
    }

    /// For a member whose manifest is not what it was: enough to end it by.
    fn stand_in(&self) -> Manifest {
        let PidFile { member, manifest_digest, argv, .. } = &self.file;
        Manifest {
            name: member.to_string(),
            display_name: member.to_string(),
            description: String::new(),
            version: String::new(),
            dialect: crate::model::Dialect::Guild,
            transport: Transport::Http,
            dir: PathBuf::new(),
            command: argv.first().cloned().unwrap_or_default(),
            args: argv.iter().skip(1).cloned().collect(),
            env: Vec::new(),
            inherit_env: Vec::new(),
            path: "/mcp".into(),
            restart: RestartPolicy::default(),
            start_timeout: Duration::from_secs(10),
            call_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_secs(5),
            porter: None,
            listed: false,
            health_interval: None,
            watch: None,
            warnings: Vec::new(),
            digest: *manifest_digest,
        }
    }
}

/// For who must see to it that nothing of a dead hall is left. Blocks.
pub(super) fn end(pid_files: &PidFiles, cgroups: Option<&Cgroups>) -> usize {
    Remains::examine(pid_files, cgroups).end(pid_files)
}
