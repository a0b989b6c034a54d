//! The gateway through the clients that people use: the SDKs of today and of mid-2025, in TypeScript and Python, and
//! the MCP inspector. All of them stand before the same three members at the same time. `tests/run` installs them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::assigning_clones,
    reason = "a test that cannot go on must say so"
)]

mod client;
mod everyday;
#[path = "../e2e/hall.rs"]
#[allow(dead_code, reason = "it is shared with other tests")]
mod hall;
mod inspector;
mod interruptions;
mod questions;
mod raw;
mod stage;
