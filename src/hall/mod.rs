//! F3. The supervisor: the loop that tells the core what happened, and the tasks that carry out what
//! it says. [`Hall::start`] brings it up; the handle that it returns is all that others see.

mod audit;
mod calls;
mod crew;
mod estate;
mod flight;
mod greeter;
mod keeper;
mod launcher;
mod ledger;
mod llm;
mod memories;
mod names;
mod opening;
mod plugin_id;
mod publish;
mod registered;
mod registered_file;
mod registration;
mod remains;
mod run_dir;
mod secret;
mod stop_note;
mod sweeper;
mod turn;
mod usage;
mod watching;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::{Mutex, broadcast, mpsc, oneshot, watch};

use crate::discovery::{DiscoveryError, discover};
use crate::lifecycle::{Refusal, Report, Wish};
use crate::mcp::{Link, list_tools};
use crate::model::{
    Changes, Entry, Found, Handshake, Instance, MemberKey, PhaseName, Pid, PortRange, Roster,
};
use crate::process::{Cgroups, PidFiles};

pub use calls::{CallError, CallOutcome, LONGEST_REST, Reached};
pub use estate::{BecomeNext, HandOverError};
pub use ledger::{About, Account, Ledger};
pub use llm::LlmSettings;
pub use names::{NamedTool, named_tools, plain_key};
pub use plugin_id::plugins;
pub use registered::RegisterError;
pub use registration::{Enrolled, UnregisterError};
pub use run_dir::{RunDir, RunDirError};
pub use secret::Secret;

use calls::Links;
use flight::{Flight, Flights};
use keeper::Life;
use registered::Registered;
use stop_note::StopNote;
use usage::Usages;

/// What `run` was told.
#[derive(Debug, Clone)]
pub struct HallSettings {
    pub members: PathBuf,
    pub ports: PortRange,
    pub clean_env: bool,
    /// Changes are taken up as they happen.
    pub watch: bool,
    /// Where the gateway listens besides the socket.
    pub gateway: Option<String>,
    /// What porters may ask.
    pub llm: Option<LlmSettings>,
}

/// One change of one member, for who follows along.
#[derive(Debug, Clone)]
pub struct Change {
    pub generation: u64,
    pub key: MemberKey,
    pub from: Option<PhaseName>,
    /// `None`: it has left the roster.
    pub entry: Option<Arc<Entry>>,
    pub why: String,
}

/// What comes into the loop. The only way to change anything.
enum Message {
    Told {
        key: MemberKey,
        instance: Instance,
        report: Report,
        flight: Option<Flight>,
    },
    Born {
        key: MemberKey,
        instance: Instance,
        pid: Pid,
        life: Life,
        flight: Option<Flight>,
    },
    Wish {
        name: String,
        wish: Wish,
        reply: oneshot::Sender<Result<MemberKey, Refusal>>,
    },
    /// Files that belong to members have changed, one for each member.
    FilesChanged(BTreeMap<MemberKey, String>),
    Reload {
        found: Found,
        reply: oneshot::Sender<Result<Changes, Refusal>>,
    },
    Appraise {
        reply: oneshot::Sender<Result<String, HandOverError>>,
    },
    HandOver {
        become_next: BecomeNext,
        reply: oneshot::Sender<HandOverError>,
    },
    Ping(oneshot::Sender<()>),
    ShutDown,
    KillAll,
}

/// Messages that may wait for the loop; who sends more waits.
const INBOX: usize = 1024;
/// Changes that a follower may be behind before it is shown the whole roster anew.
const BEHIND: usize = 2048;

/// The hall as everyone but its loop sees it: a snapshot to read, an inbox to write to.
#[derive(Debug, Clone)]
pub struct Hall {
    inbox: mpsc::Sender<Message>,
    roster: watch::Receiver<Arc<Roster>>,
    changes: broadcast::Sender<Change>,
    links: Links,
    ledger: Ledger,
    usages: Usages,
    ready: Arc<AtomicBool>,
    leaving: watch::Sender<bool>,
    members: Arc<PathBuf>,
    run_dir: Arc<RunDir>,
    stop_note: StopNote,
    reloads: Arc<Mutex<()>>,
    /// Locked until the core has taken up what is in it.
    registered: Arc<Mutex<Registered>>,
    flights: Flights,
}

/// Whether this image of the hall is about to make way for the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    NotNow,
    Soon,
}

/// Why a rescan did not happen.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the hall is shutting down")]
    Closing,
}

impl Hall {
    /// The members at this moment.
    pub fn roster(&self) -> Arc<Roster> {
        self.roster.borrow().clone()
    }

    /// A receiver of snapshots: for who waits until something is true.
    pub fn watch(&self) -> watch::Receiver<Arc<Roster>> {
        self.roster.clone()
    }

    /// Every change from now on. Subscribe first, then read the roster: a change whose generation is
    /// not above the roster's is in it already.
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    /// Every member that can be started has settled once.
    pub fn is_ready(&self) -> bool {
        self.ready.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub fn run_dir(&self) -> &RunDir {
        &self.run_dir
    }

    pub fn members_dir(&self) -> &std::path::Path {
        &self.members
    }

    /// Lists the tools of a launch anew; returns when the roster shows them.
    pub async fn relist(&self, key: &MemberKey, instance: Instance) {
        let Some(link) = self.links.get(instance) else { return };
        // That a porter lists its tools does not say that its plugin is well again.
        if self.roster().entry(key.as_str()).is_some_and(|entry| entry.ailing) {
            return;
        }
        let Ok(tools) = list_tools(&link, LONGEST_REST).await else { return };
        let protocol_version = link.protocol_version().unwrap_or_default().to_owned();
        let handshake = Handshake { protocol_version, tools, offer: link.offer() };
        let report = Report::Probed(Ok(Some(handshake)));
        self.send(Message::Told { key: key.clone(), instance, report, flight: None }).await;
        self.answers().await;
    }

    /// The link to a launch that is connected.
    pub fn link(&self, instance: Instance) -> Option<Arc<Link>> {
        self.links.get(instance)
    }

    /// Starts, stops or restarts one member; returns when the core has taken it up.
    pub async fn wish(&self, name: &str, wish: Wish) -> Result<MemberKey, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.send(Message::Wish { name: name.into(), wish, reply }).await;
        answer.await.unwrap_or(Err(Refusal::Closing))
    }

    /// Reads the members directory again.
    pub async fn reload(&self) -> Result<Changes, ReloadError> {
        // One after the other: what was read later must be applied later.
        let _turn = self.reloads.lock().await;
        self.apply(walk(self.members.to_path_buf()).await?).await
    }

    /// What [`Hall::hand_over`] would hand over now: for trying out who is to take it.
    pub async fn appraise(&self) -> Result<String, HandOverError> {
        let (reply, answer) = oneshot::channel();
        self.send(Message::Appraise { reply }).await;
        answer.await.unwrap_or(Err(HandOverError::Closing))
    }

    /// Has the next image of the program take the hall over; returns only if that failed, and then
    /// the hall goes on as before.
    pub async fn hand_over(&self, become_next: BecomeNext) -> HandOverError {
        let (reply, answer) = oneshot::channel();
        self.send(Message::HandOver { become_next, reply }).await;
        answer.await.unwrap_or(HandOverError::Closing)
    }

    /// Whether the API is being handed over: answers without an end are then to be ended.
    pub fn set_leaving(&self, leaving: Leaving) {
        self.leaving.send_replace(leaving == Leaving::Soon);
    }

    /// Returns when the API is being handed over.
    pub fn leaving(&self) -> impl Future<Output = ()> + use<> {
        let mut leaving = self.leaving.subscribe();
        async move { drop(leaving.wait_for(|leaving| *leaving).await) }
    }

    /// Asks all members to stop; the loop returned by [`Hall::start`] ends when they have.
    pub async fn shut_down(&self) {
        self.stop_note.write().await;
        self.send(Message::ShutDown).await;
    }

    /// Kills what still runs.
    pub async fn kill_all(&self) {
        self.send(Message::KillAll).await;
    }

    /// True as soon as the loop has taken a turn, false once it has ended. Does not return while it hangs.
    pub async fn answers(&self) -> bool {
        let (reply, answer) = oneshot::channel();
        self.send(Message::Ping(reply)).await;
        answer.await.is_ok()
    }

    async fn send(&self, message: Message) {
        // The loop is gone only when the hall is: nobody is left to be told.
        let _ = self.inbox.send(message).await;
    }
}

/// Ends what a hall that is gone has left running, where it is provably its own; returns how many
/// processes that were. Blocks. For who stops a hall that could not stop its members itself.
pub fn end_leftovers(run_dir: &RunDir) -> usize {
    let cgroups = Cgroups::new(&run_dir.id());
    let ended = remains::end(&PidFiles::new(run_dir.pid_files()), cgroups.as_ref());
    if let Some(cgroups) = cgroups {
        cgroups.remove();
    }
    ended
}

async fn walk(members: PathBuf) -> Result<Found, DiscoveryError> {
    let shown = members.clone();
    tokio::task::spawn_blocking(move || discover(&members))
        .await
        .unwrap_or_else(|panic| Err(DiscoveryError::new(&shown, io::Error::other(panic))))
}
