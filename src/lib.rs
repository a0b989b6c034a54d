//! Guild Hall, the supervisor that AI-agent plugins live under. The map of the house, from the ground
//! up; a room uses the floors below its own only (tests/floors.rs). ARCHITECTURE.md tells the rest.

/// F0: words as types.
pub mod model;

/// F1: a plugin's papers, read into one manifest. Pure.
pub mod dialect;
/// F1: deciding without doing. Pure.
pub mod lifecycle;

/// F2: from a members directory to manifests.
pub mod discovery;
/// F2: the Model Context Protocol, towards a member.
pub mod mcp;
/// F2: processes of Linux, and the files about them.
pub mod process;

/// F3: the loop, and the tasks that carry out what the core decides.
pub mod hall;
/// F3: the processes in front of plugins that do not speak MCP on a port.
pub mod porter;

/// F4: the local API, its server and its client.
pub mod control;

/// F4: one MCP endpoint in front of all members.
pub mod gateway;

/// F5: one file a verb.
pub mod cli;
