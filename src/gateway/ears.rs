//! What members say outside of any call: the stream of a session, or a subscription.

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::own::Own;
use crate::mcp::Heard;

/// Messages that may wait to be heard; then the member waits.
const WAITING: usize = 64;

/// Hears one session of a member, for as long as this is held.
pub(super) struct Ears {
    heard: mpsc::Receiver<Heard>,
    _listening: Option<Aborted>,
}

struct Aborted(JoinHandle<()>);

impl Drop for Aborted {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Ears {
    /// A member need not have such a stream.
    pub(super) async fn open(own: &Own) -> Self {
        let (sender, heard) = mpsc::channel(WAITING);
        let stream = tokio::time::timeout(std::time::Duration::from_secs(2), own.link.listen()).await;
        let listening = match stream {
            Ok(Ok(mut exchange)) => Some(Aborted(tokio::spawn(async move {
                while let Ok(heard) = exchange.next().await {
                    if sender.send(heard).await.is_err() {
                        return;
                    }
                }
            }))),
            _ => None,
        };
        Self { heard, _listening: listening }
    }

    /// `None` when there is nothing more to hear.
    pub(super) async fn next(&mut self) -> Option<Heard> {
        match self.heard.recv().await {
            Some(heard) => Some(heard),
            None => std::future::pending().await,
        }
    }
}

/// The capability whose lists have changed, if that is what a notification says.
pub(super) fn kind_of_change(method: &str) -> Option<&'static str> {
    match method {
        "notifications/tools/list_changed" => Some("tools"),
        "notifications/prompts/list_changed" => Some("prompts"),
        "notifications/resources/list_changed" => Some("resources"),
        _ => None,
    }
}
