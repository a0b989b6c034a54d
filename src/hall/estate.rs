//! What one image of the hall hands to the next when it is re-executed in place, and taking it up.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;

use crate::lifecycle::Guild;
use crate::mcp::SavedSession;
use crate::model::{Instance, MemberKey, Pid, Timestamp};
use crate::process::{Cgroups, PidFile, inherited, registry};

use super::run_dir::RunDir;

/// Raised when an older hall's estate can no longer be read as it is meant.
const FORMAT: u32 = 1;

/// See the module's page. Descriptors are named by number: they stay open.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Estate {
    format: u32,
    pub(super) guild: Guild,
    pub(super) generation: u64,
    pub(super) started_at: Timestamp,
    /// Members that have settled once.
    pub(super) settled: HashSet<MemberKey>,
    /// Of each launch whose process lives.
    pub(super) files: Vec<PidFile>,
    pub(super) sessions: BTreeMap<Instance, SavedSession>,
    elders: HashSet<Pid>,
    run_dir: PathBuf,
    lock: RawFd,
    cgroups: Option<(PathBuf, RawFd)>,
}

/// Why a hall was not handed over. It goes on as before.
#[derive(Debug, thiserror::Error)]
pub enum HandOverError {
    #[error("the hall is shutting down")]
    Closing,
    #[error("it is being handed over already")]
    Already,
    #[error("launches or burials did not come to an end within {0} s")]
    Restless(u64),
    #[error("what the new program must know cannot be written down: {0}")]
    Unwritable(#[from] serde_json::Error),
    #[error("cannot execute the new program: {0}")]
    Execute(#[from] io::Error),
}

/// Executes the next image with this estate and these descriptors; returns only if that failed.
pub type BecomeNext = Box<dyn FnOnce(&str, &[RawFd]) -> io::Error + Send>;

/// What the loop knows, to be written down.
pub(super) struct Written<'a> {
    pub(super) guild: &'a Guild,
    pub(super) generation: u64,
    pub(super) started_at: Timestamp,
    pub(super) settled: &'a HashSet<MemberKey>,
    pub(super) files: Vec<Arc<PidFile>>,
    pub(super) sessions: BTreeMap<Instance, SavedSession>,
}

impl Written<'_> {
    /// As text, with the descriptors that must stay open.
    pub(super) fn write(
        self, run_dir: &RunDir, cgroups: Option<&Cgroups>,
    ) -> serde_json::Result<(String, Vec<RawFd>)> {
        #[derive(serde::Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Text<'a> {
            format: u32,
            guild: &'a Guild,
            generation: u64,
            started_at: Timestamp,
            settled: &'a HashSet<MemberKey>,
            files: Vec<Arc<PidFile>>,
            sessions: BTreeMap<Instance, SavedSession>,
            elders: HashSet<Pid>,
            run_dir: PathBuf,
            lock: RawFd,
            cgroups: Option<(PathBuf, RawFd)>,
        }
        let cgroups = cgroups.map(|cgroups| (cgroups.root().into(), cgroups.lock().as_raw_fd()));
        let lock = run_dir.lock().as_raw_fd();
        let keep = [lock].into_iter().chain(cgroups.as_ref().map(|(_, lock)| *lock)).collect();
        let Written { guild, generation, started_at, settled, files, sessions } = self;
        let text = Text {
            format: FORMAT,
            guild,
            generation,
            started_at,
            settled,
            files,
            sessions,
            elders: registry().elders(),
            run_dir: run_dir.path().into(),
            lock,
            cgroups,
        };
        Ok((serde_json::to_string(&text)?, keep))
    }
}

impl Estate {
    /// Nothing is taken up yet: this is also what a new binary is tried out with.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        #[derive(serde::Deserialize)]
        struct Head {
            format: u32,
        }
        let unreadable =
            |error: serde_json::Error| format!("what the running hall hands over cannot be read: {error}");
        let Head { format } = serde_json::from_str(text).map_err(unreadable)?;
        if format != FORMAT {
            return Err(format!(
                "the running hall hands over in format {format}, and this program reads {FORMAT}: stop and start it instead"
            ));
        }
        serde_json::from_str(text).map_err(unreadable)
    }

    /// The run directory and the cgroups, locked all along.
    pub(super) fn take_locks(&self) -> io::Result<(RunDir, Option<Cgroups>)> {
        registry().inherit(self.elders.clone());
        let run_dir = RunDir::inherit(self.run_dir.clone(), inherited(self.lock)?);
        let cgroups = match &self.cgroups {
            Some((root, lock)) => Some(Cgroups::inherit(root.clone(), inherited(*lock)?)),
            None => None,
        };
        Ok((run_dir, cgroups))
    }
}
