//! The official conformance suite of MCP. It plays clients to the gateway, in front of members of either era,
//! so that each era is served as it is and bridged to the other; and it plays members of either era.
//! `tests/run` installs it.
//!
//! What fails has to stand in `exceptions/`, with its reason; what stands there has to fail.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::assigning_clones,
    reason = "a test that cannot go on must say so"
)]

mod asking;
#[path = "../e2e/hall.rs"]
#[allow(dead_code, reason = "it is shared with other tests")]
mod hall;
mod serving;
mod suite;
