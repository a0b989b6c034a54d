//! One launch, from a free port to a process with a PID file. Called by the loop, on its own task.

use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::Message;
use super::calls::Links;
use super::crew::Crew;
use super::flight::Flights;
use super::keeper::{Keeper, Life};
use super::remains::{Relic, Remains};
use super::run_dir::RunDir;
use super::stop_note::StopNote;
use super::sweeper::Sweeper;
use super::usage::Usages;
use crate::lifecycle::{Asked, Report};
use crate::mcp::{Dial, Stream};
use crate::model::porter::Llm;
use crate::model::{Exit, Failure, Instance, Manifest, MemberKey, Moment, Port};
use crate::process::{
    Cgroups, Command, Dialer, Environment, Identity, Leader, LogFile, OwnPorts, PidFile, PidFiles, Tree,
    can_be_bound, clean_environment, registry,
};

/// What every launch needs.
pub(super) struct Launcher {
    pub(super) inbox: mpsc::Sender<Message>,
    pub(super) links: Links,
    pub(super) usages: Usages,
    pub(super) pid_files: PidFiles,
    pub(super) run_dir: Arc<RunDir>,
    pub(super) cgroups: Option<Cgroups>,
    pub(super) sweeper: Sweeper,
    /// Those who bury.
    pub(super) crew: Crew,
    pub(super) flights: Flights,
    pub(super) stop_note: StopNote,
    pub(super) own_ports: OwnPorts,
    pub(super) environment: Environment,
    pub(super) clean_env: bool,
    /// What porters are told of the language model; nobody else is.
    pub(super) llm: Option<Llm>,
    /// The running program, for `${GUILD_HALL}`.
    pub(super) binary: PathBuf,
}

impl Launcher {
    /// Launches a member on a task of its own, which tells the loop what became of it.
    pub(super) fn launch(
        self: Arc<Self>, key: MemberKey, instance: Instance, port: Port, manifest: Arc<Manifest>,
    ) {
        let flight = self.flights.depart();
        tokio::spawn(async move {
            let launcher = self.clone();
            let member = key.clone();
            let starting =
                tokio::task::spawn_blocking(move || launcher.start(&member, instance, port, &manifest));
            let started = starting.await.unwrap_or_else(|panic| {
                let what =
                    format!("the hall failed to launch it, which is a fault of the hall itself: {panic}");
                Err(Report::SpawnFailed(Failure::new(what)))
            });
            // The loop is gone only when the hall is.
            match started {
                Err(report) => drop(self.inbox.send(Message::Told { key, instance, report, flight }).await),
                Ok(keeper) => {
                    let (life, errands) = Life::new(keeper.file.clone());
                    let pid = keeper.pid();
                    let _ = self.inbox.send(Message::Born { key, instance, pid, life, flight }).await;
                    keeper.keep(Asked::Nothing, errands).await;
                }
            }
        });
    }

    /// Blocks on the disk and on `exec`.
    fn start(
        self: Arc<Self>, key: &MemberKey, instance: Instance, port: Port, manifest: &Arc<Manifest>,
    ) -> Result<Keeper, Report> {
        let failed = |error: &dyn std::fmt::Display| Report::SpawnFailed(Failure::new(error.to_string()));
        match can_be_bound(port) {
            Ok(true) => {}
            Ok(false) => return Err(Report::PortBusy),
            Err(error) => return Err(failed(&format!("cannot test port {port}: {error}"))),
        }
        let mut base = if self.clean_env {
            clean_environment(&self.environment, &manifest.inherit_env)
        } else {
            self.environment.clone()
        };
        if manifest.porter.is_some() {
            // A type of our own, all of whose keys are texts.
            let llm = self.llm.as_ref().and_then(|llm| serde_json::to_string(llm).ok());
            base.extend(llm.map(|llm| (Llm::VARIABLE.into(), llm.into())));
        }
        let command = Command::new(manifest, port, instance, base, &self.binary);
        let mut tree = Tree::new(instance, self.cgroups.as_ref(), &key.file_stem());
        // First on paper, then in the world: a process that is born while the hall dies is found by
        // the instance id that stands here.
        let begin = || {
            let (log, output) = LogFile::open(self.run_dir.log(key)).map_err(|error| failed(&error))?;
            let pid_file = PidFile {
                identity: None,
                port,
                member: key.clone(),
                instance,
                launched: Moment::now(),
                manifest_digest: manifest.digest,
                argv: command.argv.clone(),
                log_start: log.start(),
                cgroup: tree.cgroup_path().map(PathBuf::from),
                ending: None,
            };
            let draft = self.pid_files.begin(&pid_file).map_err(|error| failed(&error))?;
            let _birth = registry().birth();
            let spawned = command
                .spawn(output.as_fd(), tree.cgroup_dir().as_ref().map(AsFd::as_fd))
                .map_err(|error| failed(&error))?;
            registry().add(spawned.pid);
            Ok((pid_file, draft, log, spawned))
        };
        let (mut pid_file, draft, log, spawned) = match begin() {
            Ok(begun) => begun,
            Err(report) => {
                tree.discard();
                self.pid_files.remove(key, instance);
                return Err(report);
            }
        };
        if !spawned.in_cgroup {
            tree.forget_cgroup();
            pid_file.cgroup = None;
        }
        pid_file.identity = Identity::of(spawned.pid, &spawned.pidfd).ok();
        if let Err(error) = draft.complete(&pid_file) {
            tracing::warn!(member = %key, "after a crash of the hall its process is found by a sweep only: {error}");
        }
        let pid = spawned.pid;
        let leader = Leader::new(spawned).map_err(|error| {
            registry().remove(pid);
            tree.discard();
            self.pid_files.remove(key, instance);
            failed(&format!("cannot watch its process: {error}"))
        })?;
        Ok(self.keeper(pid_file, manifest, leader, tree, log))
    }

    /// Ends what a dead process has left behind, on a task of its own, and then tells that it has ended.
    pub(super) fn clear_up(self: Arc<Self>, key: MemberKey, instance: Instance, file: Option<PidFile>) {
        let flight = self.flights.depart();
        tokio::spawn(async move {
            let pid_files = self.pid_files.clone();
            let clearing = move || file.map(Remains::of).iter_mut().for_each(|left| left.clear(&pid_files));
            // A panic there has been printed.
            let _ = tokio::task::spawn_blocking(clearing).await;
            let report = Report::Ended { exit: Exit::Unknown, stderr_tail: Arc::default() };
            let _ = self.inbox.send(Message::Told { key, instance, report, flight }).await;
        });
    }

    /// Takes over a process that an earlier hall launched. Must be called within a tokio runtime.
    pub(super) fn adopt(self: Arc<Self>, relic: Relic, manifest: &Arc<Manifest>) -> io::Result<Keeper> {
        let Relic { pid, pidfd, file } = relic;
        let leader = Leader::adopt(pid, pidfd)?;
        if leader.is_child() {
            registry().add(pid);
        }
        let tree = Tree::find(file.instance, file.cgroup.as_deref());
        let log = LogFile::resume(self.run_dir.log(&file.member), file.log_start);
        Ok(self.keeper(file, manifest, leader, tree, log))
    }

    fn keeper(
        self: Arc<Self>, file: PidFile, manifest: &Arc<Manifest>, leader: Leader, tree: Tree, log: LogFile,
    ) -> Keeper {
        let PidFile { port, instance, .. } = file;
        let tree = Arc::new(tree);
        let dialer = Dialer::new(port, leader.pid(), tree.clone(), self.own_ports);
        let dial: Dial = Arc::new(move || {
            let dialer = dialer.clone();
            Box::pin(async move { dialer.dial().await.map(Stream::Tcp) })
        });
        Keeper {
            key: file.member.clone(),
            instance,
            manifest: manifest.clone(),
            leader: leader.into(),
            tree,
            log,
            file: file.into(),
            dial,
            port,
            launcher: self,
        }
    }
}
