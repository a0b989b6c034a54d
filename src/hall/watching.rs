//! `run --watch`: what the watcher of the members directory sees goes to the loop, as a reload or as
//! the members whose files changed. A thread of its own, since it waits for the kernel and the disk.

use std::path::PathBuf;

use tokio::sync::oneshot;

use super::{Hall, Message, walk};
use crate::discovery::{DiscoveryError, Watcher};
use crate::model::{Changes, Found};

/// Reads the members directory for the first time, where it is to be watched with everything in it
/// under watch already. Members may run unwatched: that is a warning.
pub(super) async fn open(members: PathBuf, watch: bool) -> Result<(Found, Option<Watcher>), DiscoveryError> {
    if !watch {
        return Ok((walk(members).await?, None));
    }
    let path = members.clone();
    let opening = tokio::task::spawn_blocking(move || {
        let mut watcher = Watcher::new(&path)?;
        Ok::<_, std::io::Error>((watcher.rescan(), watcher))
    });
    match opening.await.unwrap_or_else(|panic| Err(std::io::Error::other(panic))) {
        Ok((found, watcher)) => Ok((found?, Some(watcher))),
        Err(error) => {
            tracing::warn!(
                "changes are not watched, only `reload` takes them up: {error}; if this user has too many inotify \
                 instances, raise the sysctl fs.inotify.max_user_instances"
            );
            Ok((walk(members).await?, None))
        }
    }
}

/// In a new image of the hall: what changed meanwhile is taken up, and what comes is watched.
pub(super) async fn go_on(hall: Hall) {
    match open(hall.members.to_path_buf(), true).await {
        Ok((found, watcher)) => {
            // Only a hall that is shutting down does not take it up.
            let _ = hall.apply(found).await;
            if let Some(watcher) = watcher {
                follow(watcher, hall);
            }
        }
        Err(error) => tracing::warn!("changes are not watched, only `reload` takes them up: {error}"),
    }
}

/// Until the hall ends.
pub(super) fn follow(mut watcher: Watcher, hall: Hall) {
    let following = move || {
        loop {
            if let Err(error) = watcher.wait() {
                tracing::warn!("changes are not watched any more, only `reload` takes them up: {error}");
                return;
            }
            if tell(&mut watcher, &hall).is_none() {
                return;
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("watch".into()).spawn(following) {
        tracing::warn!("changes are not watched, only `reload` takes them up: {error}");
    }
}

/// `None` once the hall is ending.
fn tell(watcher: &mut Watcher, hall: &Hall) -> Option<()> {
    // As in `Hall::reload`: what was read later must be applied later.
    let turn = hall.reloads.blocking_lock();
    match watcher.take_rescan() {
        Some(Ok(mut found)) => {
            let mut registered = hall.registered.blocking_lock();
            registered.join(&mut found);
            let (reply, answer) = oneshot::channel();
            hall.inbox.blocking_send(Message::Reload { found, reply }).ok()?;
            let Changes { added, changed, removed, unchanged } = answer.blocking_recv().ok()?.ok()?;
            drop(registered);
            // These are started by the reload itself.
            for key in added.iter().chain(&changed) {
                watcher.forgive(key);
            }
            if !added.is_empty() || !changed.is_empty() || !removed.is_empty() {
                let (added, changed, removed) = (added.len(), changed.len(), removed.len());
                tracing::info!(added, changed, removed, unchanged, "rescanned, since something changed");
            }
        }
        Some(Err(error)) => {
            tracing::warn!("{error}; members run on as they are, until it can be read again");
        }
        None => {}
    }
    drop(turn);
    let files = watcher.take_files();
    if !files.is_empty() {
        hall.inbox.blocking_send(Message::FilesChanged(files)).ok()?;
    }
    Some(())
}
