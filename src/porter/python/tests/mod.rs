//! The worker with the real interpreter: what a plugin may be, how it is called, and what becomes of it.

mod answers;
mod ends;
mod starts;
mod styles;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::*;
use crate::model::porter::{Capability, Kind, Parameter};

/// Whatever a test waits for comes long before.
const PATIENCE: Duration = Duration::from_secs(60);

struct Folder {
    dir: TempDir,
    capabilities: Vec<Capability>,
}

impl Folder {
    fn new(source: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("plugin-").tempdir().unwrap();
        let folder = Self { dir, capabilities: Vec::new() };
        folder.write("plugin.py", source);
        folder
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn with(mut self, id: &str, parameters: &[&str]) -> Self {
        let parameters = parameters.iter().map(|name| Parameter {
            name: (*name).into(),
            kind: Kind::String,
            required: false,
            default: None,
            description: None,
            rest: Map::new(),
        });
        self.capabilities.push(Capability {
            id: id.into(),
            parameters: parameters.collect(),
            ..Capability::default()
        });
        self
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    async fn open(&self, class: Option<&str>) -> Result<Python, String> {
        let plugin = Plugin {
            id: "weather".into(),
            name: "Weather".into(),
            description: "Tells the weather".into(),
            capabilities: self.capabilities.clone(),
            ..Plugin::default()
        };
        let behind =
            Behind::Python { file: "plugin.py".into(), class: class.map(Into::into), config_file: None };
        let porter = Porter { plugin, behind, timeout: PATIENCE };
        Python::start(&porter, self.path()).await
    }

    async fn start(&self) -> Python {
        self.open(None).await.unwrap()
    }

    async fn refused(&self) -> String {
        self.open(None).await.expect_err("it does not start")
    }
}

fn asked(capability: Option<&str>, arguments: Value) -> Asked {
    let capability = capability.map(|id| Arc::new(Capability { id: id.into(), ..Capability::default() }));
    Asked::new("weather", capability, arguments.as_object().unwrap().clone())
}

impl Python {
    async fn reply(&self, capability: &str, arguments: Value) -> Reply {
        self.call(&asked(Some(capability), arguments), PATIENCE).await
    }

    async fn text(&self, capability: &str, arguments: Value) -> String {
        let reply = self.reply(capability, arguments).await;
        assert!(reply.success, "{reply:?}");
        reply.text
    }

    async fn error(&self, capability: &str) -> String {
        self.reply(capability, json!({})).await.error.unwrap()
    }
}

/// What a plugin needs to tell the test where it is: it makes a file, and waits for one.
const RENDEZVOUS: &str = r#"
import asyncio, os, signal, sys, time
from base.BasePlugin import BasePlugin

def here(name):
    open(name, "w").close()

def until(name):
    while not os.path.exists(name):
        time.sleep(0.005)

async def comes(name):
    while not os.path.exists(name):
        await asyncio.sleep(0.005)
"#;

async fn eventually(what: &str, mut look: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !look().await {
        assert!(Instant::now() < end, "it never came true that {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
