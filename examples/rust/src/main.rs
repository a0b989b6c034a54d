//! Dice on rmcp.

use std::{env, io, process::ExitCode, sync::Arc};

use axum::{Router, serve::ListenerExt};
use rand::random_range;
use rmcp::handler::server::{tool::schema_for_output, wrapper::Parameters};
use rmcp::model::{CallToolResult, ContentBlock};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ServerHandler, schemars, tool, tool_handler, tool_router};
use serde::{Deserialize, Serialize};
use tokio::{net::TcpListener, signal::unix};

#[derive(Deserialize, schemars::JsonSchema)]
struct Roll {
    /// such as d20, 2d6+1 or 4d8-2
    notation: String,
}

#[derive(Serialize, schemars::JsonSchema)]
struct Rolled {
    rolls: Vec<i32>,
    modifier: i32,
    total: i32,
}

#[derive(Serialize, schemars::JsonSchema)]
struct Flipped {
    side: &'static str,
}

struct Dice;

#[tool_handler(name = "dice")] // otherwise rmcp introduces itself
impl ServerHandler for Dice {}

#[tool_router]
impl Dice {
    /// Roll dice. 2d6+1 means two six-sided dice and one more.
    #[tool(output_schema = schema_for_output::<Rolled>())]
    async fn roll(
        &self,
        Parameters(Roll { notation }): Parameters<Roll>,
    ) -> Result<CallToolResult, String> {
        // The Err of a tool reaches the agent as an error result.
        let (count, sides, modifier) = parse(&notation).ok_or_else(|| refusal(&notation))?;
        let rolls: Vec<i32> = (0..count).map(|_| random_range(1..=sides)).collect();
        let total = rolls.iter().sum::<i32>() + modifier;
        let text = format!("{notation} = {total} {rolls:?}");
        let rolled = Rolled {
            rolls,
            modifier,
            total,
        };
        Ok(answer(text, rolled))
    }

    /// Flip a coin.
    #[tool(output_schema = schema_for_output::<Flipped>())]
    async fn flip(&self) -> CallToolResult {
        let side = if rand::random() { "heads" } else { "tails" };
        answer(side, Flipped { side })
    }
}

fn parse(notation: &str) -> Option<(i32, i32, i32)> {
    let number = |text: &str, absent| match text {
        "" => Some(absent),
        text => text.parse().ok(),
    };
    let (count, rest) = notation.split_once(['d', 'D'])?;
    let (sides, modifier) = rest.split_at(rest.find(['+', '-']).unwrap_or(rest.len()));
    let count = number(count, 1).filter(|count| (1..=100).contains(count))?;
    let sides = number(sides, 0).filter(|sides| (2..=1000).contains(sides))?;
    let modifier = number(modifier, 0).filter(|modifier| (-1000..=1000).contains(modifier))?;
    Some((count, sides, modifier))
}

fn refusal(notation: &str) -> String {
    let limits = "1-100 dice, 2-1000 sides, at most 1000 more or less";
    format!("cannot roll \"{notation}\": write 2d6+1; {limits}")
}

fn answer(text: impl Into<String>, structured: impl Serialize) -> CallToolResult {
    let mut result = CallToolResult::structured(serde_json::json!(structured));
    result.content = vec![ContentBlock::text(text)]; // for people; by default it repeats the JSON
    result
}

async fn serve() -> io::Result<()> {
    // Contract 1: the port comes in the arguments, where the hall put it in place of ${PORT}.
    let port = env::args().skip_while(|argument| argument != "--port");
    let port = port.skip(1).find_map(|port| port.parse::<u16>().ok());
    let port = port.ok_or_else(|| io::Error::other("--port takes a number up to 65535"))?;

    // Contract 2: MCP over POST /mcp, on 127.0.0.1 alone. Without sessions: a hall that restarts
    // finds this process and goes on with it.
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .enforce_origin_validation();
    let no_sessions = Arc::new(NeverSessionManager::default());
    let mcp = StreamableHttpService::new(|| Ok(Dice), no_sessions, config);
    let mut stop = unix::signal(unix::SignalKind::terminate())?;
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
