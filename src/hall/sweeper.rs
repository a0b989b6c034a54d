//! One walk through `/proc` at a time, for everyone who asked meanwhile. Only where there are no cgroups.

use std::collections::HashSet;

use tokio::sync::{mpsc, oneshot};

use crate::model::Instance;
use crate::process::sweep;

/// Questions that may wait for the present walk to end.
const WAITING: usize = 1024;

#[derive(Debug, Clone)]
pub(super) struct Sweeper(mpsc::Sender<Question>);

struct Question {
    instance: Instance,
    kill: bool,
    answer: oneshot::Sender<bool>,
}

impl Sweeper {
    /// The second value is the task that walks; it ends when the last sweeper is dropped.
    pub(super) fn new() -> (Self, impl Future<Output = ()>) {
        let (sender, mut questions) = mpsc::channel(WAITING);
        let walking = async move {
            let mut batch = Vec::new();
            while questions.recv_many(&mut batch, WAITING).await > 0 {
                let walk = tokio::task::spawn_blocking({
                    let of = |kill| {
                        batch
                            .iter()
                            .filter(|question: &&Question| question.kill == kill)
                            .map(|question| question.instance)
                            .collect()
                    };
                    let (kill, look): (HashSet<Instance>, HashSet<Instance>) = (of(true), of(false));
                    move || &sweep(&kill, true) | &sweep(&look, false)
                });
                let found = walk.await.unwrap_or_default();
                for Question { instance, answer, .. } in batch.drain(..) {
                    let _ = answer.send(found.contains(&instance));
                }
            }
        };
        (Self(sender), walking)
    }

    /// True if something carried this id when it was looked for; with `kill` it has got SIGKILL.
    pub(super) async fn sweep(&self, instance: Instance, kill: bool) -> bool {
        let (answer, found) = oneshot::channel();
        let _ = self.0.send(Question { instance, kill, answer }).await;
        found.await.unwrap_or(false)
    }
}
