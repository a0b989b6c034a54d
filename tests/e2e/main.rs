//! End to end: through the built binary, with real processes, sockets and signals.

mod api;
mod hall;
mod lifecycle;
mod real_servers;
mod rogues;
