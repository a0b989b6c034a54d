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
pub(super) const FORMAT: u32 = 1;

/// See the module's page. It is written from a borrowed core and read as one of its own.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Estate<G = Guild> {
    pub(super) format: u32,
    pub(super) guild: G,
    pub(super) generation: u64,
    pub(super) started_at: Timestamp,
    /// Members that have settled once.
    pub(super) settled: HashSet<MemberKey>,
    /// Of each launch whose process lives.
    pub(super) files: Vec<Arc<PidFile>>,
    pub(super) sessions: BTreeMap<Instance, SavedSession>,
    pub(super) hold: Hold,
}

/// What this process holds. Descriptors are named by number: they stay open.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Hold {
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

impl Estate<&Guild> {
    /// As text, with the descriptors that must stay open.
    pub(super) fn write(&self) -> serde_json::Result<(String, Vec<RawFd>)> {
        let Hold { lock, cgroups, .. } = &self.hold;
        let keep = [*lock].into_iter().chain(cgroups.as_ref().map(|(_, lock)| *lock)).collect();
        Ok((serde_json::to_string(self)?, keep))
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
}

impl Hold {
    pub(super) fn of(run_dir: &RunDir, cgroups: Option<&Cgroups>) -> Self {
        Self {
            elders: registry().elders(),
            run_dir: run_dir.path().into(),
            lock: run_dir.lock().as_raw_fd(),
            cgroups: cgroups.map(|cgroups| (cgroups.root().into(), cgroups.lock().as_raw_fd())),
        }
    }

    /// The run directory and the cgroups, locked all along.
    pub(super) fn take(self) -> io::Result<(RunDir, Option<Cgroups>)> {
        registry().inherit(self.elders);
        let run_dir = RunDir::inherit(self.run_dir, inherited(self.lock)?);
        let cgroups = match self.cgroups {
            Some((root, lock)) => Some(Cgroups::inherit(root, inherited(lock)?)),
            None => None,
        };
        Ok((run_dir, cgroups))
    }
}
