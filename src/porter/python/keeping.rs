//! The worker's process, from its birth to its burial.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::link::Link;
use crate::model::Exit;
use crate::process::Ward;

/// A dead process's last answers may still be read for this time; and one that has closed its answers has
/// it to end.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// What is to become of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Live,
    End,
}

/// Holds the process until it has ended, and ends it when it is told to, or when nobody is left who could.
pub(super) async fn keep(
    mut ward: Ward, mut reading: JoinHandle<()>, mut orders: watch::Receiver<Order>,
    told: watch::Sender<Option<Exit>>, link: Link,
) {
    let mut is_read = false;
    let exit = loop {
        tokio::select! {
            exit = ward.wait() => break exit,
            () = ended(&mut orders) => {
                ward.kill();
                break ward.wait().await;
            }
            _ = &mut reading, if !is_read => {
                is_read = true;
                if let Ok(exit) = timeout(LAST_WORDS, ward.wait()).await {
                    break exit;
                }
                eprintln!("guild-hall porter: the plugin's process does not answer any more and is ended");
                ward.kill();
            }
        }
    };
    if !is_read {
        let _ = timeout(LAST_WORDS, reading).await;
    }
    told.send_replace(Some(exit.unwrap_or(Exit::Unknown)));
    link.close();
}

async fn ended(orders: &mut watch::Receiver<Order>) {
    let _ = orders.wait_for(|order| *order == Order::End).await;
}
