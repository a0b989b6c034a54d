//! F2. The Model Context Protocol: connecting to a member, tolerant of the smallest servers.
//! Called by `hall` (handshakes, probes) and `control` (calls).

mod connector;
mod example_member;
mod handshake;
mod link;
mod sse;
mod wire;

pub use connector::Dial;
pub use example_member::serve_example;
pub use handshake::{Obstacle, greet, list_tools};
pub use link::{Link, LinkError, SavedSession};
