//! The names and numbers of the protocol that more than one place needs.

use hyper::header::HeaderName;

/// The first revision without sessions; MCP 2026-07-28.
pub const STATELESS: &str = "2026-07-28";
/// The newest of those with `initialize`.
pub const WITH_SESSIONS: &str = "2025-11-25";
/// All that are spoken, the newest first.
pub const REVISIONS: [&str; 5] = [STATELESS, WITH_SESSIONS, "2025-06-18", "2025-03-26", "2024-11-05"];

pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub const PROTOCOL: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// Of the stateless revisions: what the body says, for who routes without reading it.
pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// Ours: the client speaks over a pipe, where there are no headers that could repeat arguments.
pub const OVER_STDIO: HeaderName = HeaderName::from_static("x-guild-hall-stdio");

/// Keys of `_meta` in every request of the stateless revisions.
pub const META_PROTOCOL: &str = "io.modelcontextprotocol/protocolVersion";
pub const META_CLIENT: &str = "io.modelcontextprotocol/clientInfo";
pub const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub const META_LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
pub const META_SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
pub const META_SERVER: &str = "io.modelcontextprotocol/serverInfo";

/// Key of `_meta` in a request whose progress is to be told.
pub const PROGRESS_TOKEN: &str = "progressToken";

/// Codes of JSON-RPC errors; JSON-RPC 2.0 §5.1 and MCP 2026-07-28.
pub mod code {
    pub const PARSE: i64 = -32700;
    pub const INVALID_REQUEST: i64 = -32600;
    pub const NO_SUCH_METHOD: i64 = -32601;
    pub const INVALID_PARAMS: i64 = -32602;
    pub const INTERNAL: i64 = -32603;
    /// Ours: what a porter answers to `ping` while its plugin is unwell.
    pub const UNWELL: i64 = -32000;
    /// Of the revisions with sessions.
    pub const RESOURCE_NOT_FOUND: i64 = -32002;
    pub const HEADER_MISMATCH: i64 = -32020;
    pub const MISSING_CAPABILITY: i64 = -32021;
    pub const UNSUPPORTED_VERSION: i64 = -32022;
}
