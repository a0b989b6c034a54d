//! End to end: through the built binary, with real processes, sockets and signals.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::assigning_clones,
    reason = "a test that cannot go on must say so"
)]

mod api;
mod calls;
mod commands;
mod connect;
mod discovery;
mod endurance;
mod gateway;
mod hall;
mod handover;
mod hardships;
mod health;
mod homeclaw_examples;
mod homeclaw_inline;
mod homeclaw_mcp;
mod homeclaw_papers;
mod homeclaw_tools;
mod lifecycle;
mod llm;
mod logs;
mod mcp;
mod nobody;
mod plugin_health;
mod plugins;
mod porter;
mod ports;
mod real_servers;
mod recovery;
mod registration;
mod restarts;
mod rogues;
mod scaffold;
mod service;
mod stopping;
mod traces;
mod usage;
mod watching;
mod wire;
