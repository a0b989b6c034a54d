//! A member of a Guild Hall on rmcp: an MCP server over HTTP.

use std::{env, io, process::ExitCode, sync::Arc};

use axum::{Router, serve::ListenerExt};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ServerHandler, schemars, tool, tool_handler, tool_router};
use serde::Deserialize;
use tokio::{net::TcpListener, signal::unix};

struct Member;

#[tool_handler(name = <<name>>)] // otherwise rmcp introduces itself
impl ServerHandler for Member {}

/// The arguments of `greet`. An agent reads the comments.
#[derive(Deserialize, schemars::JsonSchema)]
struct Greet {
    /// Who is to be greeted
    name: String,
}

// ---- The tools. An Err reaches the agent as an error result, and tells it what to do otherwise. ----

#[tool_router]
impl Member {
    /// Greet somebody by name.
    #[tool]
    async fn greet(&self, Parameters(Greet { name }): Parameters<Greet>) -> Result<String, String> {
        if name.trim().is_empty() {
            return Err("name is empty: say who is to be greeted".into());
        }
        Ok(format!("Hello, {name}!"))
    }
}

// ---- MCP over HTTP, for any tools ----

async fn serve() -> io::Result<()> {
    // Contract 1: the port comes in the arguments, where the hall put it in place of ${PORT}.
    let port = env::args().skip_while(|argument| argument != "--port");
    let port = port.skip(1).find_map(|port| port.parse::<u16>().ok());
    let port = port.ok_or_else(|| io::Error::other("--port takes a number up to 65535"))?;

    // Without sessions: a hall that restarts finds this process and goes on with it.
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .enforce_origin_validation();
    let no_sessions = Arc::new(NeverSessionManager::default());
    let mcp = StreamableHttpService::new(|| Ok(Member), no_sessions, config);
    let mut stop = unix::signal(unix::SignalKind::terminate())?;
    // Contract 2: on 127.0.0.1 alone.
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    // Without it an answer may wait 40 ms; that is all, so a failure is let go.
    let listener = listener.tap_io(|connection| _ = connection.set_nodelay(true));
    axum::serve(listener, Router::new().route_service("/mcp", mcp))
        .with_graceful_shutdown(async move { _ = stop.recv().await })
        .await
}

// Contract 3: 0 when asked to stop; 2 if the port is taken, so that the hall tries another; 1 on any
// other error. `cargo run` becomes the program once it is built, so its exit code is the program's.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot serve: {error}");
            let port_is_taken = error.kind() == io::ErrorKind::AddrInUse;
            ExitCode::from(if port_is_taken { 2 } else { 1 })
        }
    }
}
