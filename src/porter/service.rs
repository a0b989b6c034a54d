//! What stands behind a porter, ready to be asked.

use std::path::PathBuf;
use std::task::{Context, Poll};

use hyper::body::Bytes;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::health::Health;
use super::remote::Remote;
use super::stdio::Stdio;
use super::switchboard::Line;
use super::toolbox::Toolbox;
use crate::mcp::terms::code;
use crate::mcp::{Params, RpcError};
use crate::model::Exit;
use crate::model::porter::{Behind, Llm, Porter};

/// See the module's page.
pub(super) enum Service {
    Stdio(Stdio, Health),
    Remote(Remote, Health),
    /// Whatever does not speak MCP.
    Tools(Toolbox),
}

/// What becomes of a request.
pub(super) enum Asked {
    Result(Box<RawValue>),
    Error(RpcError),
    /// The answer as a message.
    Message(Bytes),
    /// Something is said before the answer.
    Stream {
        first: Bytes,
        hearing: Hearing,
    },
    /// Whoever asks has to initialize anew first.
    Again(String),
}

/// What is still to be heard of a call, or for as long as somebody listens.
pub(super) struct Hearing {
    pub(super) heard: mpsc::Receiver<Bytes>,
    /// Ends the call when it is dropped.
    pub(super) _line: Option<Line>,
}

impl Service {
    pub(super) async fn open(porter: Porter, dir: PathBuf) -> Result<Self, String> {
        if !matches!(porter.behind, Behind::Stdio { .. } | Behind::Remote { .. }) {
            return Toolbox::open(porter, dir, Llm::from_environment()?).await.map(Self::Tools);
        }
        let Porter { plugin, behind, .. } = porter;
        let health = Health::of(&plugin);
        match behind {
            Behind::Stdio { program, tool } => {
                Stdio::open(&plugin, &program, tool, &dir).map(|stdio| Self::Stdio(stdio, health))
            }
            Behind::Remote { url, headers, wire, tool } => {
                Remote::open(plugin, &url, &headers, wire, tool).map(|remote| Self::Remote(remote, health))
            }
            _ => Err(String::new()),
        }
    }

    /// A request under the client's own id.
    pub(super) async fn ask(&self, id: &RawValue, method: &str, params: Params<'_>) -> Asked {
        match self {
            Self::Stdio(stdio, health) => well(stdio.ask(id, method, params), method, health).await,
            Self::Remote(remote, health) => {
                well(Box::pin(remote.ask(id, method, params)), method, health).await
            }
            Self::Tools(toolbox) => match toolbox.ask(method, params).await {
                Ok(result) => Asked::Result(result),
                Err(error) => Asked::Error(error),
            },
        }
    }

    /// A notification of the client.
    pub(super) async fn note(&self, method: &str, params: Params<'_>) {
        match self {
            Self::Stdio(stdio, _) => stdio.switchboard().note(method, params).await,
            Self::Remote(remote, _) => remote.note(method, params).await,
            Self::Tools(_) => {}
        }
    }

    /// The client's answer to what the plugin has asked it.
    pub(super) async fn answered(&self, id: &str, outcome: Result<Box<RawValue>, RpcError>) {
        match self {
            Self::Stdio(stdio, _) => stdio.switchboard().answered(id, outcome).await,
            Self::Remote(remote, _) => remote.answered(id, outcome).await,
            // It never asks.
            Self::Tools(_) => {}
        }
    }

    /// What the plugin says besides answers; `None` if it never does.
    pub(super) fn overhear(&self) -> Option<Hearing> {
        let heard = match self {
            Self::Stdio(stdio, _) => stdio.switchboard().listen(),
            Self::Remote(remote, _) => remote.listen(),
            Self::Tools(_) => return None,
        };
        Some(Hearing { heard, _line: None })
    }

    /// Returns once the plugin has ended.
    pub(super) async fn ended(&self) -> Exit {
        match self {
            Self::Stdio(stdio, _) => stdio.ended().await,
            Self::Remote(..) => std::future::pending().await,
            Self::Tools(toolbox) => toolbox.ended().await,
        }
    }

    /// Ends the plugin.
    pub(super) async fn close(&self) {
        match self {
            Self::Stdio(stdio, _) => stdio.close().await,
            Self::Remote(remote, _) => remote.close().await,
            Self::Tools(toolbox) => toolbox.close().await,
        }
    }
}

/// A server that answers `ping` is well if its health check says so, too; both are asked at the same time.
async fn well(asking: impl Future<Output = Asked>, method: &str, health: &Health) -> Asked {
    if method != "ping" {
        return asking.await;
    }
    match tokio::join!(asking, Box::pin(health.check())) {
        (Asked::Result(_), Err(what)) => Asked::Error(RpcError::new(code::UNWELL, what)),
        (asked, _) => asked,
    }
}

impl Hearing {
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.heard.poll_recv(cx)
    }
}
