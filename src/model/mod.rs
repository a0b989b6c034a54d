//! F0. The words of the house as types, without behaviour beyond their own sense.
//! Every floor above speaks in these.

mod diagnosis;
mod exit;
mod failure;
mod handshake;
mod instance;
mod key;
mod manifest;
mod moment;
mod phase;
mod port;
pub mod porter;
mod roster;

pub use diagnosis::{Diagnosis, Place, Rejection};
pub use exit::{Exit, Pid, signal_name};
pub use failure::Failure;
pub use handshake::{Handshake, NamedAs, Offer, Tool};
pub use instance::Instance;
pub use key::{KeyError, MemberKey};
pub use manifest::{Dialect, Digest, Manifest, RestartPolicy, Transport};
pub use moment::{Moment, Timestamp};
pub use phase::{PhaseName, Status};
pub use port::{Port, PortRange, PortRangeError};
pub use roster::{Changes, Entry, HallFacts, LastExit, Roster};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a walk through the members directory found, and what is registered besides.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// A manifest, or the reason why there is none.
    pub papers: BTreeMap<MemberKey, Result<Arc<Manifest>, Rejection>>,
    /// Collections that stand there and could not be read: nothing is known of their members.
    pub unread: BTreeSet<String>,
    /// Nothing was looked for but these; `None`: everything was.
    pub only: Option<BTreeSet<MemberKey>>,
    /// The registry stands there and could not be read: nothing is known of the members that it lists.
    pub unlisted: bool,
}
