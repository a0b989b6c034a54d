//! `audit.log` in the run directory: one line of JSON for each call, capped like the logs of members. Who
//! writes a line never waits for the disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use crate::process::fault;

/// Lines that may wait for the disk; what comes after them is lost and counted.
const WAITING: usize = 8192;
/// The log becomes its predecessor, `audit.log.1`, at this size; bytes.
const CAP: u64 = 10 * 1024 * 1024;
/// Lines are gathered for so long: waking a thread for each would cost more than the call.
const GATHERING: Duration = Duration::from_millis(50);
/// After an error the disk is left alone for so long.
const AGAIN: Duration = Duration::from_secs(2);

#[derive(Debug, Clone)]
pub(super) struct Audit {
    lines: SyncSender<String>,
    lost: Arc<AtomicU64>,
}

impl Audit {
    /// Writes on a thread of its own, which ends when nobody holds this any more.
    pub(super) fn open(path: PathBuf) -> Self {
        let (lines, waiting) = sync_channel(WAITING);
        let lost = Arc::<AtomicU64>::default();
        let counter = lost.clone();
        let spawned = thread::Builder::new()
            .name("audit".into())
            .spawn(move || keep_writing(&path, &waiting, &counter));
        if let Err(error) = spawned {
            tracing::warn!("calls are not noted in the audit log: {error}");
        }
        Self { lines, lost }
    }

    pub(super) fn note(&self, line: impl FnOnce() -> String) {
        if self.lines.try_send(line()).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn keep_writing(path: &Path, waiting: &Receiver<String>, lost: &AtomicU64) {
    let mut log: Option<(BufWriter<File>, u64)> = None;
    while let Ok(first) = waiting.recv() {
        thread::sleep(GATHERING);
        let write = || -> io::Result<()> {
            let (mut file, mut size) = match log.take() {
                Some((file, size)) if size < CAP => (file, size),
                _ => open(path)?,
            };
            let missed = lost.swap(0, Ordering::Relaxed);
            if missed > 0 {
                writeln!(file, "{{\"lost\":{missed}}}")?;
            }
            let mut line = Some(first);
            while let Some(text) = line {
                size += text.len() as u64 + 1;
                writeln!(file, "{text}")?;
                line = if size < CAP { waiting.try_recv().ok() } else { None };
            }
            fault::attempt("write the audit log", || file.flush())?;
            log = Some((file, size));
            Ok(())
        };
        if let Err(error) = write() {
            lost.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("cannot write {}, calls are not noted there: {error}", path.display());
            thread::sleep(AGAIN);
        }
    }
}

/// For appending; what is full goes out of the way.
fn open(path: &Path) -> io::Result<(BufWriter<File>, u64)> {
    if fs::metadata(path).is_ok_and(|log| log.len() >= CAP) {
        let old = path.with_extension("log.1");
        fault::attempt("rename the audit log", || fs::rename(path, &old))?;
    }
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600);
    let file = fault::attempt("open the audit log", || options.open(path))?;
    let size = file.metadata()?.len();
    Ok((BufWriter::new(file), size))
}
