//! F4. The local API on the Unix socket, and its client.

mod client;
mod door;
mod events;
mod logs;
mod members;
mod metrics;
mod problem;
mod routes;
mod tools;

pub use client::{Client, ClientError, Streamed};
pub use door::{Door, DoorError};
pub use logs::{GOES_ON_AT, STARTS_AT};
pub use problem::Problem;

use crate::hall::Hall;

/// Serves the API until it is dropped.
pub async fn serve(door: Door, hall: Hall) -> std::io::Result<()> {
    axum::serve(door, routes::router(hall)).await
}
