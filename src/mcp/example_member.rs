//! A member inside the binary, so that the first command works on a machine with nothing but Rust:
//! `guild-hall example-member --port N`. Built on rmcp's server as any Rust plugin would be.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{ServerCapabilities, ServerConfig};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ServerHandler, tool, tool_handler, tool_router};

#[derive(Clone)]
struct Example;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Echo {
    /// What is to be said back.
    text: String,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Sum {
    /// The numbers to be added.
    numbers: Vec<f64>,
}

#[tool_router]
impl Example {
    #[tool(description = "Says back what it is told")]
    fn echo(&self, Parameters(Echo { text }): Parameters<Echo>) -> String {
        text
    }

    #[tool(description = "Adds numbers")]
    fn add(&self, Parameters(Sum { numbers }): Parameters<Sum>) -> String {
        numbers.iter().sum::<f64>().to_string()
    }
}

#[tool_handler]
impl ServerHandler for Example {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

/// Serves until SIGTERM. An error of kind `AddrInUse` is to become exit code 2.
pub async fn serve_example(port: u16) -> io::Result<()> {
    let config =
        StreamableHttpServerConfig::default().with_legacy_session_mode(false).with_json_response(true);
    let service =
        StreamableHttpService::new(|| Ok(Example), Arc::new(NeverSessionManager::default()), config);
    let app = axum::Router::new().nest_service("/mcp", service);
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let serving =
        axum::serve(axum::serve::ListenerExt::tap_io(listener, |stream| drop(stream.set_nodelay(true))), app);
    tokio::select! {
        served = serving => served,
        _ = terminate.recv() => Ok(()),
    }
}
