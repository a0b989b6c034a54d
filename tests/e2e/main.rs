//! End to end: through the built binary, with real processes, sockets and signals.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must say so")]

mod api;
mod discovery;
mod hall;
mod lifecycle;
mod real_servers;
mod rogues;
