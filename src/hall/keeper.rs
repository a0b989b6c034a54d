//! One process of one member, from its birth to its burial: a task that waits for its death, runs
//! errands for the loop, and tells the loop what it sees.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::Message;
use super::launcher::Launcher;
use crate::lifecycle::Report;
use crate::mcp::{Dial, Link, LinkError, greet, list_tools};
use crate::model::{Exit, Failure, Handshake, Instance, Manifest, MemberKey, Pid, Port};
use crate::process::{Leader, LogFile, Tree, registry};

/// What the loop asks of a keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Errand {
    Greet,
    Probe,
    Terminate,
    Kill,
}

/// The loop's end of a keeper.
#[derive(Debug)]
pub(super) struct Life(mpsc::Sender<Errand>);

/// Errands that may wait: a process gets one `Greet`, one `Terminate`, one `Kill`, and probes only
/// after the one before was answered.
const ERRANDS: usize = 8;
/// A probe that takes longer has failed.
const PROBE: Duration = Duration::from_secs(4);
/// How long the kernel may take to empty a killed cgroup before the death is told all the same.
const BURIAL: Duration = Duration::from_millis(50);
/// A member that was asked to stop and whose first process is gone: how often the rest is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
const LOOK_RARELY: Duration = Duration::from_millis(100);

impl Life {
    pub(super) fn new() -> (Self, mpsc::Receiver<Errand>) {
        let (sender, receiver) = mpsc::channel(ERRANDS);
        (Self(sender), receiver)
    }

    pub(super) fn send(&self, errand: Errand) {
        if self.0.try_send(errand).is_err() {
            // Its task has ended: so has the process.
            tracing::debug!(?errand, "the process is gone already");
        }
    }
}

pub(super) struct Keeper {
    pub(super) key: MemberKey,
    pub(super) instance: Instance,
    pub(super) manifest: Arc<Manifest>,
    pub(super) leader: Leader,
    pub(super) tree: Arc<Tree>,
    pub(super) log: LogFile,
    pub(super) link: Arc<Link>,
    pub(super) dial: Dial,
    pub(super) port: Port,
    pub(super) launcher: Arc<Launcher>,
}

impl Keeper {
    pub(super) fn pid(&self) -> Pid {
        self.leader.pid()
    }

    /// Runs until the process and all that it left behind are dead, and has then told so.
    pub(super) async fn keep(self, mut errands: mpsc::Receiver<Errand>) {
        // Whatever speaks to the member; aborted when this is dropped.
        let mut talks = JoinSet::new();
        let mut asked = false;
        loop {
            tokio::select! {
                biased;
                () = self.leader.died() => break,
                errand = errands.recv() => match errand {
                    Some(Errand::Greet) => drop(talks.spawn(self.greeting())),
                    Some(Errand::Probe) => drop(talks.spawn(self.probing())),
                    Some(Errand::Terminate) => {
                        talks.abort_all();
                        self.tree.terminate(&self.leader);
                        asked = true;
                    }
                    Some(Errand::Kill) => {
                        talks.abort_all();
                        self.tree.kill(&self.leader);
                        asked = false;
                    }
                    // The loop is gone, and with it the hall.
                    None => return,
                },
                Some(_) = talks.join_next(), if !talks.is_empty() => {}
            }
        }
        drop(talks);
        self.launcher.links.remove(self.instance);
        if asked {
            self.let_the_rest_finish(&mut errands).await;
        }
        self.bury().await;
    }

    /// Children of a launcher script may need their time to stop, as long as nobody says kill.
    async fn let_the_rest_finish(&self, errands: &mut mpsc::Receiver<Errand>) {
        let mut pause = LOOK_AGAIN;
        while !self.is_alone().await {
            tokio::select! {
                _ = errands.recv() => return,
                () = sleep(pause) => pause = (pause * 2).min(LOOK_RARELY),
            }
        }
    }

    async fn is_alone(&self) -> bool {
        match self.tree.is_empty() {
            Some(empty) => empty,
            None => !self.launcher.sweeper.sweep(self.instance, false).await,
        }
    }

    /// Ends what the first process left behind, and tells how it died.
    async fn bury(self) {
        let Self { key, instance, leader, tree, log, launcher, .. } = self;
        if tree.is_empty().is_none() {
            launcher.sweeper.sweep(instance, true).await;
        }
        let (pid_files, member) = (launcher.pid_files.clone(), key.clone());
        let burial = tokio::task::spawn_blocking(move || {
            if !tree.clear(&leader, BURIAL) && tree.is_empty() == Some(false) {
                tracing::warn!(%member, "something that it started does not die, not even by SIGKILL");
            }
            let exit = leader.reap();
            registry().remove(leader.pid());
            pid_files.remove(&member, instance);
            (exit, log.tail())
        });
        let (exit, stderr_tail) = burial.await.unwrap_or((Exit::Unknown, Arc::default()));
        let report = Report::Ended { exit, stderr_tail };
        let _ = launcher.inbox.send(Message::Told { key, instance, report }).await;
    }

    fn greeting(&self) -> impl Future<Output = ()> + use<> {
        let (teller, link, launcher) = (self.teller(), self.link.clone(), self.launcher.clone());
        async move {
            let greeted = greet(&link, |obstacle| teller.hint(Report::Obstacle(obstacle))).await;
            if greeted.is_ok() {
                launcher.links.insert(teller.instance, link);
            }
            teller.tell(greeted.map_or_else(Report::HandshakeFailed, Report::Greeted)).await;
        }
    }

    fn probing(&self) -> impl Future<Output = ()> + use<> {
        let (teller, links, dial) = (self.teller(), self.launcher.links.clone(), self.dial.clone());
        let (port, path) = (self.port, self.manifest.path.clone());
        async move {
            let probe = async {
                let link = links.get(teller.instance).ok_or_else(|| Failure::new("it is not linked"))?;
                match list_tools(&link, PROBE).await {
                    Ok(tools) => Ok(Handshake { protocol_version: link.protocol_version().unwrap_or_default().into(), tools }),
                    // Its session may have ended while it lives: shake hands anew.
                    Err(LinkError::Http { .. }) => {
                        let link = Link::new(port, &path, dial).map_err(|error| Failure::new(error.to_string()))?;
                        let handshake = greet(&link, |_| {}).await?;
                        links.insert(teller.instance, Arc::new(link));
                        Ok(handshake)
                    }
                    Err(error) => Err(Failure::new(format!("does not answer: {error}"))),
                }
            };
            let late = || Err(Failure::new(format!("does not answer: no answer to tools/list within {} s", PROBE.as_secs())));
            let probed = timeout(PROBE, probe).await.unwrap_or_else(|_| late());
            teller.tell(Report::Probed(probed)).await;
        }
    }

    fn teller(&self) -> Teller {
        Teller { key: self.key.clone(), instance: self.instance, inbox: self.launcher.inbox.clone() }
    }
}

/// Tells the loop about one launch.
struct Teller {
    key: MemberKey,
    instance: Instance,
    inbox: mpsc::Sender<Message>,
}

impl Teller {
    /// Something that is good to know and may be lost where the inbox is full.
    fn hint(&self, report: Report) {
        let _ = self.inbox.try_send(Message::Told { key: self.key.clone(), instance: self.instance, report });
    }

    async fn tell(&self, report: Report) {
        let message = Message::Told { key: self.key.clone(), instance: self.instance, report };
        // The loop is gone only when the hall is.
        let _ = self.inbox.send(message).await;
    }
}
