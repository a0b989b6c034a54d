//! F2. The Model Context Protocol: connecting to a member, tolerant of the smallest servers.
//! Called by `hall` (handshakes, probes, calls) and `gateway`.

mod connections;
mod connector;
mod example_member;
mod exchange;
mod handshake;
mod headers;
mod large;
mod link;
mod message;
mod param_headers;
mod params;
mod resumption;
mod sse;
pub mod terms;
mod wire;

pub use connections::{Answering, Connections};
pub use connector::{Dial, Duplex, Stream};
pub use example_member::serve_example;
pub use exchange::{Exchange, Said};
pub use handshake::{Obstacle, greet, introduction, list_tools, ping};
pub use headers::{header_text, header_value};
pub use link::{Ask, Link, LinkError, SavedSession};
pub use message::{Malformed, Message};
pub use param_headers::ParamHeaders;
pub use params::Params;
pub use sse::Events;
pub use wire::{Heard, Outcome, Response, RpcError, excerpt};
