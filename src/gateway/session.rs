//! Sessions of the revisions with `initialize`. An id says all that the hall must know of its client and
//! is signed, so any later hall on this run directory knows it, and an abandoned one costs nothing.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::Sha256;

use super::random;
use crate::hall::Secret;

/// Capabilities that take more room than this are not kept: headers have a limit. Bytes.
const LARGEST_CAPABILITIES: usize = 2048;
/// Sessions that were ended and are remembered as such; of older ones only the signature speaks.
const ENDED: usize = 4096;
/// Bytes of a signature that are kept; 128 bits cannot be guessed.
const SIGNATURE: usize = 16;

/// What an id says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Session {
    /// The revision that was settled.
    #[serde(rename = "p")]
    pub(super) protocol: String,
    #[serde(rename = "c")]
    pub(super) capabilities: Box<RawValue>,
    /// Name and version of the client.
    #[serde(rename = "n")]
    pub(super) client: String,
    #[serde(rename = "k")]
    pub(super) key: String,
}

/// Signs ids and knows them again.
pub(super) struct Sessions {
    secret: Secret,
    ended: Mutex<Ended>,
}

#[derive(Default)]
struct Ended {
    keys: HashSet<String>,
    order: VecDeque<String>,
}

impl Sessions {
    pub(super) fn new(secret: Secret) -> Self {
        Self { secret, ended: Mutex::default() }
    }

    /// A new session and its id.
    pub(super) fn open(&self, protocol: &str, capabilities: &RawValue, client: String) -> (Session, String) {
        let capabilities = if capabilities.get().len() <= LARGEST_CAPABILITIES {
            capabilities.to_owned()
        } else {
            super::empty_object()
        };
        let session = Session { protocol: protocol.into(), capabilities, client, key: random() };
        let said = BASE64.encode(serde_json::to_vec(&session).unwrap_or_default());
        let id = format!("{said}.{}", BASE64.encode(self.sign(&said)));
        (session, id)
    }

    /// `None` if it is none of ours, or was ended.
    pub(super) fn find(&self, id: &str) -> Option<Arc<Session>> {
        let (said, signature) = id.split_once('.')?;
        let signature = BASE64.decode(signature).ok()?;
        let is_ours = signature.len() == SIGNATURE
            && self.mac(said).is_some_and(|mac| mac.verify_truncated_left(&signature).is_ok());
        if !is_ours {
            return None;
        }
        let session: Session = serde_json::from_slice(&BASE64.decode(said).ok()?).ok()?;
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        (!ended.keys.contains(&session.key)).then(|| session.into())
    }

    pub(super) fn end(&self, session: &Session) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.keys.insert(session.key.clone()) {
            ended.order.push_back(session.key.clone());
        }
        if ended.order.len() > ENDED
            && let Some(oldest) = ended.order.pop_front()
        {
            ended.keys.remove(&oldest);
        }
    }

    fn sign(&self, said: &str) -> Vec<u8> {
        let signature = self.mac(said).map(|mac| mac.finalize().into_bytes().to_vec()).unwrap_or_default();
        signature.get(..SIGNATURE).map(<[u8]>::to_vec).unwrap_or_default()
    }

    fn mac(&self, said: &str) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.secret.as_bytes()).ok()?;
        mac.update(b"guild-hall session\0");
        mac.update(said.as_bytes());
        Some(mac)
    }
}
