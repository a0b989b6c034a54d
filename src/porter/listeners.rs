//! Who hears what belongs to no call; the hall is one.

use std::sync::{Mutex, PoisonError};

use hyper::body::Bytes;
use tokio::sync::mpsc;

/// Messages that wait to be heard.
pub(super) const WAITING: usize = 64;
const MOST: usize = 16;

#[derive(Default)]
pub(super) struct Listeners(Mutex<Vec<mpsc::Sender<Bytes>>>);

impl Listeners {
    /// When there are too many, it hears nothing.
    pub(super) fn listen(&self) -> mpsc::Receiver<Bytes> {
        let (listener, heard) = mpsc::channel(WAITING);
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| !listener.is_closed());
        if listeners.len() < MOST {
            listeners.push(listener);
        }
        heard
    }

    /// Who does not keep up is not told of it: its stream ends, and it looks for itself.
    pub(super) fn tell(&self, message: &Bytes) {
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| listener.try_send(message.clone()).is_ok());
    }
}
