//! F4. The local API on the Unix socket, and its client.

mod client;
mod conversation;
mod door;
mod events;
mod logs;
mod members;
mod problem;
mod routes;
mod server;
mod tools;

pub use client::{Client, ClientError, Streamed};
pub use door::{Door, DoorError};
pub use problem::Problem;
pub use server::{Handed, Paused, Server};
