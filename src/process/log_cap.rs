//! Keeping logs small, however much a member writes: event-driven, so quiet members cost nothing.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::fault;

/// A log is cut when it is larger than this; bytes.
const CAP: u64 = 10 * 1024 * 1024;
/// Room in the predecessor for what is written while it is copied; bytes.
const MEANWHILE: u64 = 1024 * 1024;
/// Changes are looked at this often, at the most.
const PAUSE: Duration = Duration::from_millis(200);

/// Watches the logs of a directory and cuts each that outgrows the cap; runs until it is dropped.
/// What was in it becomes the one predecessor, `.log.1`.
pub async fn cap_logs(dir: PathBuf) -> io::Result<()> {
    let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    inotify::add_watch(&watch, &dir, WatchFlags::MODIFY | WatchFlags::DELETE)?;
    // SAFETY: an `OwnedFd` is the same open descriptor for as long as it exists.
    let watch = unsafe { AsyncFd::register_with_interest(watch, Interest::READABLE) }?;
    loop {
        let mut ready = watch.readable().await?;
        let changed = changed_files(watch.get_ref());
        ready.clear_ready();
        let logs = dir.clone();
        let cut = tokio::task::spawn_blocking(move || {
            for name in changed {
                let path = logs.join(name);
                if let Err(error) = cut(&path)
                    && error.kind() != io::ErrorKind::NotFound
                {
                    tracing::warn!("cannot cut the log {} to its cap: {error}", path.display());
                }
            }
        });
        // A panic there has been printed; the next change is looked at all the same.
        let _ = cut.await;
        tokio::time::sleep(PAUSE).await;
        // The directory itself cannot be watched for its end: who writes to a log holds on to it.
        if !dir.exists() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "it is gone"));
        }
    }
}

fn changed_files(watch: &OwnedFd) -> BTreeSet<String> {
    let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
    let mut events = inotify::Reader::new(watch, &mut buffer);
    let mut changed = BTreeSet::new();
    // The queue of the kernel is bounded (and one change of many to the same file); what is
    // written meanwhile wakes us again.
    while let Ok(event) = events.next() {
        let name = event.file_name().and_then(|name| name.to_str().ok());
        changed.extend(
            name.filter(|name| Path::new(name).extension() == Some("log".as_ref())).map(str::to_owned),
        );
        if changed.len() >= 4096 {
            break;
        }
    }
    changed
}

/// Its writers hold the file itself, so it is copied and emptied, not renamed. What they write
/// between the end of the copy and the cut is lost: microseconds' worth, of a log that is cut anyway.
/// A disk that has no room for the copy gets its room back all the same.
fn cut(path: &Path) -> io::Result<()> {
    let log = OpenOptions::new().read(true).write(true).open(path)?;
    let size = log.metadata()?.len();
    if size <= CAP {
        return Ok(());
    }
    let kept = keep(&log, size - (CAP - MEANWHILE), path);
    fault::attempt("cut a log", || log.set_len(0))?;
    kept
}

/// Makes what follows `from` the predecessor.
fn keep(mut log: &File, from: u64, path: &Path) -> io::Result<()> {
    use io::{Read, Seek, SeekFrom};
    let next = path.with_extension("log.1.new");
    let mut copy = || {
        log.seek(SeekFrom::Start(from))?;
        let mut copied = fault::attempt("make the copy of a log", || File::create(&next))?;
        fault::attempt("write the copy of a log", || io::copy(&mut log.take(CAP), &mut copied))?;
        fault::attempt("rename the copy of a log", || std::fs::rename(&next, path.with_extension("log.1")))
    };
    copy().inspect_err(|_| {
        let _ = fault::attempt("remove the copy of a log", || std::fs::remove_file(&next));
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_over_the_cap_becomes_its_own_predecessor() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.log");
        let mut bytes = vec![b'a'; 100];
        bytes.extend(vec![b'b'; usize::try_from(CAP).unwrap()]);
        std::fs::write(&path, bytes).unwrap();
        cut(&path).unwrap();
        assert_eq!(path.metadata().unwrap().len(), 0);
        let old = std::fs::read(dir.path().join("m.log.1")).unwrap();
        assert!(old.len() as u64 == CAP - MEANWHILE && old.iter().all(|&byte| byte == b'b'));
    }
}
