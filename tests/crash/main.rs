//! The crash-only proof: the hall is killed before and after each step by which it changes the world, in
//! every scenario, for every step that the scenario has; the next hall must put everything right.
//! Needs a hall that is built with the feature `fault-injection`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::assigning_clones,
    reason = "a test that cannot go on must say so"
)]

mod bystander;
mod fallbacks;
#[path = "../e2e/hall.rs"]
#[allow(dead_code, reason = "it is shared with other tests")]
mod hall;
mod invariants;
mod members;
mod processes;
mod proof;
mod reaper;
mod scenarios;
