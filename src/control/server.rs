//! Serving the API, connection by connection, so that the next image of the hall can go on with those
//! that are open: a client that keeps its connection does not notice the handover.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout_at};

use super::conversation::{Frozen, converse};
use super::door::{Door, Place};
use super::lanes::Lanes;
use super::stream::Stream;
use crate::hall::{Hall, Leaving};
use crate::process::inherited;

/// So many connections at a time; the next one waits for one of them to end.
const MOST_CONNECTIONS: usize = 2048;
/// How long the requests that are being answered may take before their connections are cut...
const LONGEST_DRAIN: Duration = Duration::from_secs(10);
/// ...at a shutdown, when there is nothing to wait for any more.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The running server, as its owner sees it.
#[derive(Debug)]
pub struct Server {
    hall: Hall,
    door: RawFd,
    orders: mpsc::Sender<Order>,
    serving: JoinHandle<()>,
}

/// Open connections at rest, and where new ones wait. Named by number; they stay open.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub struct Handed {
    door: RawFd,
    connections: Vec<HandedConnection>,
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct HandedConnection {
    descriptor: RawFd,
    /// What was read of the next request.
    unread: Vec<u8>,
}

/// A server that answers nobody until it goes on, or is ended.
#[derive(Debug)]
pub struct Paused {
    door: RawFd,
    frozen: Vec<Frozen>,
}

#[derive(Debug)]
enum Order {
    Pause { drain: Duration, reply: oneshot::Sender<Vec<Frozen>> },
    GoOn(Vec<Frozen>),
}

impl Server {
    /// Serves until it is finished.
    pub fn start(door: Door, router: Router, lanes: &Arc<Lanes>, hall: Hall) -> Self {
        Self::go_on(door, Vec::new(), router, lanes, hall)
    }

    /// Goes on with what the image before has handed over.
    pub fn resume(
        handed: Handed, place: Place<'_>, router: Router, lanes: &Arc<Lanes>, hall: Hall,
    ) -> io::Result<Self> {
        let door = Door::inherit(inherited(handed.door)?, place)?;
        let mut frozen = Vec::new();
        for HandedConnection { descriptor, unread } in handed.connections {
            let stream = Stream::inherit(inherited(descriptor)?, place)?;
            frozen.push(Frozen { stream, unread });
        }
        Ok(Self::go_on(door, frozen, router, lanes, hall))
    }

    fn go_on(door: Door, frozen: Vec<Frozen>, router: Router, lanes: &Arc<Lanes>, hall: Hall) -> Self {
        let (orders, taken) = mpsc::channel(1);
        let number = door.as_raw_fd();
        let serving = tokio::spawn(serve(door, frozen, router, lanes.clone(), taken));
        Self { hall, door: number, orders, serving }
    }

    /// Lets every request that is being answered finish, within bounds, and then answers none.
    pub async fn pause(&self) -> Paused {
        self.hall.set_leaving(Leaving::Soon);
        Paused { door: self.door, frozen: self.drain(LONGEST_DRAIN).await }
    }

    /// It was not handed over after all.
    pub async fn unpause(&self, paused: Paused) {
        self.hall.set_leaving(Leaving::NotNow);
        let _ = self.orders.send(Order::GoOn(paused.frozen)).await;
    }

    /// Says its last words, and closes the door.
    pub async fn finish(self) {
        self.hall.set_leaving(Leaving::Soon);
        self.drain(LAST_WORDS).await;
        drop(self.orders);
        // The door goes with it.
        let _ = self.serving.await;
    }

    async fn drain(&self, drain: Duration) -> Vec<Frozen> {
        let (reply, frozen) = oneshot::channel();
        let _ = self.orders.send(Order::Pause { drain, reply }).await;
        frozen.await.unwrap_or_default()
    }
}

impl Paused {
    /// What the next image must know.
    pub fn handed(&self) -> Handed {
        let connections = self.frozen.iter().map(|frozen| HandedConnection {
            descriptor: frozen.stream.as_raw_fd(),
            unread: frozen.unread.clone(),
        });
        Handed { door: self.door, connections: connections.collect() }
    }
}

impl Handed {
    /// What must stay open.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.connections.iter().map(|connection| connection.descriptor).chain([self.door])
    }
}

/// Ends when its owner is gone.
async fn serve(
    mut door: Door, frozen: Vec<Frozen>, router: Router, lanes: Arc<Lanes>, mut orders: mpsc::Receiver<Order>,
) {
    let (pausing, _) = watch::channel(false);
    let mut conversations = JoinSet::new();
    let go_on = |conversations: &mut JoinSet<Option<Frozen>>, frozen: Vec<Frozen>| {
        for Frozen { stream, unread } in frozen {
            // One that cannot be released or taken is broken.
            let Ok(released) = stream.release() else { continue };
            let (router, pausing) = (router.clone(), pausing.subscribe());
            let conversation = async move {
                let stream = released.take().ok()?;
                converse(Frozen { stream, unread }, router, pausing).await
            };
            conversations.spawn_on(conversation, lanes.next());
        }
    };
    go_on(&mut conversations, frozen);
    loop {
        tokio::select! {
            stream = door.accept(), if conversations.len() < MOST_CONNECTIONS => {
                go_on(&mut conversations, vec![Frozen { stream, unread: Vec::new() }]);
            }
            Some(_) = conversations.join_next(), if !conversations.is_empty() => {}
            order = orders.recv() => match order {
                None => return,
                Some(Order::GoOn(_)) => {}
                Some(Order::Pause { drain, reply }) => {
                    pausing.send_replace(true);
                    let end = Instant::now() + drain;
                    let mut frozen = Vec::new();
                    while let Ok(Some(ended)) = timeout_at(end, conversations.join_next()).await {
                        frozen.extend(ended.ok().flatten());
                    }
                    conversations.shutdown().await;
                    let _ = reply.send(frozen);
                    let Some(Order::GoOn(frozen)) = orders.recv().await else { return };
                    pausing.send_replace(false);
                    go_on(&mut conversations, frozen);
                }
            },
        }
    }
}
