//! `shutdown.json` in the run directory: on paper before a shutdown asks the first member to end, once for
//! all of them, so that a hall which follows takes no such exit for one of the member's own accord.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::model::Moment;
use crate::process::{PidFile, boot_id, fault};

/// Moments of another boot mean nothing.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    boot_id: String,
    stopping: Moment,
}

/// A larger file is none of ours; bytes.
const LARGEST: u64 = 4096;
/// How long a note may take before a stop comes without it: a disk that hangs is not waited for.
pub(super) const LONGEST_NOTE: Duration = Duration::from_millis(200);

#[derive(Debug, Clone)]
pub(super) struct StopNote {
    path: PathBuf,
    written: Arc<OnceLock<Moment>>,
}

impl StopNote {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, written: Arc::default() }
    }

    /// Where it cannot be written, each member gets a note of its own.
    pub(super) async fn write(&self) {
        let note = self.clone();
        let _ = timeout(LONGEST_NOTE, spawn_blocking(move || note.write_now())).await;
    }

    fn write_now(&self) {
        let now = Moment::now();
        let write = || {
            let text = serde_json::to_vec(&Written { boot_id: boot_id().into(), stopping: now })?;
            // Less than a page: a crash of the hall cannot tear it.
            fault::attempt("write the stop note", || fs::write(&self.path, text))
        };
        match write() {
            Ok(()) => drop(self.written.set(now)),
            Err(error) => tracing::debug!("cannot write {}: {error}", self.path.display()),
        }
    }

    /// It is on paper that this launch is being ended.
    pub(super) fn covers(&self, launch: &PidFile) -> bool {
        self.written.get().is_some_and(|written| launch.launched < *written)
    }

    /// Every launch that it is about is over. Blocks.
    pub(super) fn remove(&self) {
        if self.written.get().is_some() {
            let _ = fault::attempt("remove the stop note", || fs::remove_file(&self.path));
        }
    }
}

/// When the last hall that did not come to its end began to stop. What it says of launches before that
/// stays true, so it needs not be removed.
pub(super) fn recall(path: &Path) -> Option<Moment> {
    let read = || -> io::Result<Written> {
        if fs::metadata(path)?.len() > LARGEST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    };
    let written = read().ok()?;
    (written.boot_id == boot_id()).then_some(written.stopping)
}
