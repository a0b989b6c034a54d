//! F4. The local API, its server on the Unix socket and over TCP, and its client.

mod client;
mod conversation;
mod door;
mod events;
mod lanes;
mod logs;
mod members;
mod metrics;
mod plugin_descriptor;
mod plugins;
mod problem;
mod routes;
mod server;
mod stream;
mod tools;

pub use client::{Client, ClientError, Streamed};
pub use door::{Door, DoorError, Place};
pub use lanes::Lanes;
pub use logs::{GOES_ON_AT, STARTS_AT};
pub use problem::Problem;
pub use routes::{health_router, router};
pub use server::{Handed, Paused, Server};
