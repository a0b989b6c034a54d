//! The snapshot of all members that everyone but the loop reads.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::porter::Porter;
use super::{
    Dialect, Exit, Instance, MemberKey, Offer, PhaseName, Pid, Port, Status, Timestamp, Tool, Transport,
    signal_name,
};

/// All members at one moment, sorted by name.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Roster {
    /// Grows with every change; the `id:` of an event.
    pub generation: u64,
    pub hall: HallFacts,
    pub members: Vec<Arc<Entry>>,
}

/// The supervisor itself.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HallFacts {
    pub version: String,
    pub pid: Pid,
    pub started_at: Timestamp,
    /// Where the gateway listens besides the socket: `127.0.0.1:4180`.
    #[serde(default)]
    pub gateway: Option<String>,
}

/// One member in the roster. The environment of a member is never part of it.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    pub name: MemberKey,
    pub display_name: String,
    pub description: String,
    pub version: String,
    pub dialect: Option<Dialect>,
    pub status: Status,
    pub phase: PhaseName,
    pub transport: Option<Transport>,
    pub port: Option<Port>,
    pub pid: Option<Pid>,
    pub instance: Option<Instance>,
    /// Taken over from an earlier hall, not launched by this one.
    pub adopted: bool,
    /// When the present phase began.
    pub since: Timestamp,
    /// Launches in the present start, one for each port that was tried.
    pub attempts: usize,
    /// Restarts after a failure since the member was last started by a person or a new manifest.
    pub restarts: u32,
    pub last_exit: Option<LastExit>,
    pub retry_at: Option<Timestamp>,
    /// One sentence a person can act on.
    pub error: Option<String>,
    /// The last lines of the launch that failed.
    pub stderr_tail: Arc<[String]>,
    pub tools: Arc<[Tool]>,
    /// Of the whole process tree; `null` where there is none, or it was not measured yet.
    pub memory_bytes: Option<u64>,
    /// Of the present launch's whole process tree, those of its processes that ended included.
    pub cpu_seconds: Option<f64>,
    pub dir: PathBuf,
    /// Nothing more happens by itself soon. For who waits on a command's outcome; not told outside.
    #[serde(skip)]
    pub settled: bool,
    /// It answers, and says that what it stands in front of is not well: it is not waited for, and its tools are
    /// not offered. Not told outside.
    #[serde(skip)]
    pub ailing: bool,
    /// The plugin behind a porter; not told outside, since it holds secrets.
    #[serde(skip)]
    pub porter: Option<Arc<Porter>>,
    /// How long a call may take; not told outside.
    #[serde(skip)]
    pub call_timeout: Duration,
    /// What it offers besides tools; not told outside.
    #[serde(skip)]
    pub offer: Option<Arc<Offer>>,
}

/// How the last process of a member ended; both `null` where the kernel did not tell.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LastExit {
    pub code: Option<i32>,
    /// By name: `SIGKILL`.
    pub signal: Option<String>,
    pub at: Timestamp,
}

/// What a rescan of the members directory changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Changes {
    pub added: Vec<MemberKey>,
    pub changed: Vec<MemberKey>,
    pub removed: Vec<MemberKey>,
    pub unchanged: usize,
}

impl LastExit {
    pub fn new(exit: Exit, at: Timestamp) -> Self {
        let (code, signal) = match exit {
            Exit::Code(code) => (Some(code), None),
            Exit::Signal(signal) => (None, Some(signal_name(signal).into_owned())),
            Exit::Unknown => (None, None),
        };
        Self { code, signal, at }
    }
}

impl Roster {
    pub fn entry(&self, name: &str) -> Option<&Arc<Entry>> {
        let found = self.members.binary_search_by(|entry| entry.name.as_str().cmp(name)).ok()?;
        self.members.get(found)
    }
}
