//! F3. The porter: a process in front of a plugin that does not itself speak MCP on a port that it is given.
//!
//! It binds the port, speaks MCP over HTTP to the hall, and the plugin's own language behind. It lives as
//! long as its plugin and ends as that ends; when it dies, so does the plugin. What a plugin says is read
//! here and never in the hall. One thread does it all: nothing here may block.

mod arguments;
mod body;
mod diary;
mod health;
mod listeners;
mod llm;
mod offer;
mod python;
mod remote;
mod reply;
mod request;
mod rest;
mod server;
mod service;
mod stdio;
mod subprocess;
mod switchboard;
mod toolbox;
mod web;
mod wire;

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use server::Server;
use service::Service;

use crate::model::porter::Porter;
use crate::model::{Exit, Port};
use crate::process::adopt_orphans;

/// What a porter is told may be this large; a manifest is smaller. Bytes.
const LARGEST_DOCUMENT: u64 = 4 * 1024 * 1024;

/// Why a porter has ended.
#[derive(Debug)]
pub enum End {
    /// It was asked to.
    Asked,
    PortTaken(io::Error),
    /// It cannot do its work; what is wrong.
    Failed(String),
    /// Its plugin has ended.
    Plugin(Exit),
}

/// Stands in front of the plugin that stdin tells of, on this port, for as long as that lives.
pub async fn stand(port: Port) -> End {
    match work(port).await {
        Ok(end) | Err(end) => end,
    }
}

async fn work(port: Port) -> Result<End, End> {
    let failed = |what: String| End::Failed(what);
    let porter = told().await.map_err(failed)?;
    let dir = std::env::current_dir().map_err(|error| failed(format!("has no directory: {error}")))?;
    adopt_orphans().map_err(|error| failed(format!("cannot become a subreaper: {error}")))?;
    let mut terminate = signal(SignalKind::terminate())
        .map_err(|error| failed(format!("cannot hear when it is to end: {error}")))?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.get())).await.map_err(|error| {
        if error.kind() == io::ErrorKind::AddrInUse {
            End::PortTaken(error)
        } else {
            failed(format!("cannot listen on port {port}: {error}"))
        }
    })?;
    let opening = Service::open(porter, dir);
    let service = tokio::select! {
        opened = opening => Arc::new(opened.map_err(failed)?),
        _ = terminate.recv() => return Ok(End::Asked),
    };
    let server = Server::new(service.clone());
    tokio::select! {
        exit = service.ended() => Ok(End::Plugin(exit)),
        () = server.serve(listener) => Ok(End::Failed("cannot accept connections any more".into())),
        _ = terminate.recv() => {
            service.close().await;
            Ok(End::Asked)
        }
    }
}

/// The document on stdin.
async fn told() -> Result<Porter, String> {
    let mut text = Vec::new();
    let read = tokio::io::stdin().take(LARGEST_DOCUMENT).read_to_end(&mut text).await;
    read.map_err(|error| format!("cannot read what it is to do: {error}"))?;
    serde_json::from_slice(&text).map_err(|error| {
        format!("is started by the hall, which tells it on stdin what it is to do; what stands there is nothing of that kind: {error}")
    })
}
