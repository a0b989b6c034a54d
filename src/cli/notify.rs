//! Tells the service manager how the hall is (sd_notify(3)): ready, reloading, stopping, alive, and one
//! line for `systemctl status`. Nothing of it where `NOTIFY_SOCKET` is not set. Called by `run`.

use std::io;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::hall::Hall;
use crate::model::{Roster, Status};

/// Where `run` says what it is about to do. Clones speak to the same service manager.
#[derive(Debug, Clone)]
pub(super) struct Notifier(Option<mpsc::Sender<News>>);

#[derive(Debug)]
enum News {
    /// The service manager has been told once the sender is dropped.
    Reloading(oneshot::Sender<()>),
    Reloaded,
    Stopping,
}

/// Pieces of news that may wait; a service manager that does not take them misses what comes after.
const WAITING: usize = 16;
/// The status line changes no more often than this.
const BETWEEN_STATUSES: Duration = Duration::from_secs(1);
/// A service manager that takes longer to hear a word is not waited for.
const LONGEST_WORD: Duration = Duration::from_secs(1);
/// How much longer than now a shutdown may take, said again and again while the loop takes its turns. Until
/// the last process is buried it says so no more: that is bounded by less than this.
const EXTENSION: Duration = Duration::from_secs(10);

impl Notifier {
    /// Says `READY=1` as soon as the loop answers, and keeps what is said true from then on. To be called when
    /// the socket is served. Must be called within a tokio runtime.
    pub(super) fn start(hall: Hall) -> Self {
        if std::env::var_os("NOTIFY_SOCKET").is_none_or(|path| path.is_empty()) {
            return Self(None);
        }
        let (news, waiting) = mpsc::channel(WAITING);
        if let Some(patience) = sd_notify::watchdog_enabled() {
            tokio::spawn(pulse(hall.clone(), patience / 2));
        }
        tokio::spawn(herald(hall, waiting));
        Self(Some(news))
    }

    /// Says `RELOADING=1`, and returns when it is said: what follows may be the end of this program's code.
    pub(super) async fn reloading(&self) {
        let (heard, said) = oneshot::channel();
        self.tell(News::Reloading(heard));
        let _ = timeout(LONGEST_WORD, said).await;
    }

    pub(super) fn reloaded(&self) {
        self.tell(News::Reloaded);
    }

    pub(super) fn stopping(&self) {
        self.tell(News::Stopping);
    }

    fn tell(&self, news: News) {
        if let Some(sender) = &self.0 {
            let _ = sender.try_send(news);
        }
    }
}

/// Everything but the watchdog, one word after the other.
async fn herald(hall: Hall, mut news: mpsc::Receiver<News>) {
    if !hall.answers().await {
        return;
    }
    let mut roster = hall.watch();
    let mut closing = false;
    let mut said = status(&roster.borrow_and_update(), closing);
    say_with_status(&said, || vec![main_pid(), NotifyState::Ready]).await;
    let mut quiet_until = Instant::now() + BETWEEN_STATUSES;
    let mut stale = false;
    loop {
        tokio::select! {
            piece = news.recv() => match piece {
                None => return,
                Some(News::Reloading(heard)) => {
                    say(|| {
                        let now = NotifyState::monotonic_usec_now()?;
                        sd_notify::notify(&[NotifyState::Reloading, now])
                    }).await;
                    drop(heard);
                }
                Some(News::Reloaded) => say(|| sd_notify::notify(&[NotifyState::Ready])).await,
                Some(News::Stopping) => {
                    closing = true;
                    said = status(&roster.borrow_and_update(), closing);
                    say_with_status(&said, || vec![NotifyState::Stopping]).await;
                    tokio::spawn(extension(hall.clone()));
                }
            },
            changed = roster.changed(), if !stale => match changed {
                Ok(()) => stale = true,
                Err(_) => return,
            },
            () = sleep_until(quiet_until), if stale => {
                stale = false;
                let now = status(&roster.borrow_and_update(), closing);
                if now != said {
                    said = now;
                    say_with_status(&said, Vec::new).await;
                    quiet_until = Instant::now() + BETWEEN_STATUSES;
                }
            }
        }
    }
}

/// `WATCHDOG=1`, but only while the loop takes its turns: a hall whose loop hangs is not alive.
async fn pulse(hall: Hall, every: Duration) {
    let mut next = Instant::now();
    loop {
        match timeout(every, hall.answers()).await {
            Ok(true) => say(|| sd_notify::notify(&[NotifyState::Watchdog])).await,
            Ok(false) => return,
            Err(_) => tracing::warn!(
                "the loop has not answered for {} ms: unless it does, the service manager ends this hall and starts another",
                every.as_millis()
            ),
        }
        next = (next + every).max(Instant::now());
        sleep_until(next).await;
    }
}

/// A shutdown takes as long as the members' own timeouts, bounded by the loop; while it goes on, it is not stuck.
async fn extension(hall: Hall) {
    while hall.answers().await {
        let until = u32::try_from(EXTENSION.as_micros()).unwrap_or(u32::MAX);
        say(move || sd_notify::notify(&[NotifyState::ExtendTimeoutUsec(until)])).await;
        sleep(EXTENSION / 3).await;
    }
}

/// Said with `READY=1`, since after a handover the service manager may know another one.
fn main_pid() -> NotifyState<'static> {
    NotifyState::MainPid(std::process::id())
}

async fn say_with_status(status: &str, words: impl FnOnce() -> Vec<NotifyState<'static>> + Send + 'static) {
    let status = status.to_owned();
    say(move || {
        let mut all: Vec<NotifyState> = words();
        all.push(NotifyState::Status(&status));
        sd_notify::notify(&all)
    })
    .await;
}

/// On a thread that may block: a service manager that reads nothing must not hold up the hall.
async fn say(words: impl FnOnce() -> io::Result<()> + Send + 'static) {
    if let Ok(Err(error)) = tokio::task::spawn_blocking(words).await {
        tracing::warn!("cannot notify the service manager: {error}");
    }
}

/// `12 members: 11 connected, 1 error`.
fn status(roster: &Roster, closing: bool) -> String {
    let all = roster.members.len();
    let members = if all == 1 { "member" } else { "members" };
    if closing {
        let left = roster.members.iter().filter(|entry| entry.pid.is_some()).count();
        return format!("stopping: {left} of {all} {members} left");
    }
    let count = |status| roster.members.iter().filter(|entry| entry.status == status).count();
    let counts =
        [Status::Connected, Status::Disconnected, Status::Error].map(|status| (count(status), status));
    let parts: Vec<String> =
        counts.iter().filter(|(n, _)| *n > 0).map(|(n, status)| format!("{n} {status}")).collect();
    if parts.is_empty() { "no members".into() } else { format!("{all} {members}: {}", parts.join(", ")) }
}
