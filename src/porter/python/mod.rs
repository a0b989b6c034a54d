//! A plugin that is a Python class: a process of its own loads it and calls its methods. Called by
//! `toolbox`.
//!
//! The worker (`worker.py` and its neighbours) is a part of this binary and needs nothing but the standard
//! library of Python 3.8 or newer. It reads lines of JSON from descriptor 3 and answers on 4; what the
//! plugin prints goes to the log. Each line has a number, and so has its answer.

mod config;
mod interpreter;
mod keeping;
mod link;
#[cfg(test)]
mod tests;
mod vigil;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use self::config::Tree;
use self::keeping::Order;
use self::link::{Answer, Link};
use self::vigil::{Health, Vigil, health};
use super::reply::Reply;
use super::request::Asked;
use crate::model::Exit;
use crate::model::porter::{Behind, Plugin, Porter};

/// So many calls are under way at a time; further ones wait.
const MOST_CALLS: usize = 64;
/// What `cleanup` may take.
const LEAVE: Duration = Duration::from_secs(3);
/// What a process that is killed takes to be gone, and one that has closed its end.
const MOMENT: Duration = Duration::from_secs(1);

/// See the module's page. Dropping it ends the process.
#[derive(Debug)]
pub(super) struct Python {
    link: Link,
    places: Semaphore,
    vigil: Vigil,
    orders: Arc<watch::Sender<Order>>,
    exit: watch::Receiver<Option<Exit>>,
}

impl Python {
    /// Starts the worker and waits until the plugin is loaded and initialised. Must be called on the main
    /// thread.
    pub(super) async fn start(porter: &Porter, dir: &Path) -> Result<Self, String> {
        let Behind::Python { file, class, config_file } = &porter.behind else {
            return Err("is no Python plugin".into());
        };
        let interpreter = interpreter::find(dir)?;
        let config = config::read(dir, config_file.as_deref())?;
        let directory = dir.to_str().ok_or_else(|| format!("the name {} is not UTF-8", dir.display()))?;
        let first = First {
            modules: MODULES,
            start: Start {
                dir: directory,
                file,
                class: class.as_deref(),
                config: config.values,
                config_file: config.file,
                plugin: &porter.plugin,
            },
        };
        let (ward, pipes) = interpreter::start(interpreter, dir)?;
        let (orders, ordered) = watch::channel(Order::Live);
        let (told, exit) = watch::channel(None);
        let (link, reading) = Link::open(pipes).map_err(|error| format!("cannot use its pipes: {error}"))?;
        tokio::spawn(keeping::keep(ward, reading, ordered, told, link.clone()));
        let python = Self {
            link,
            places: Semaphore::new(MOST_CALLS),
            vigil: Vigil::new(),
            orders: Arc::new(orders),
            exit,
        };
        match python.link.first(&first).await {
            Some(Answer { failed: None, .. }) => Ok(python),
            Some(Answer { failed: Some(why), .. }) => Err(why),
            None => Err(format!("Python {} before the plugin was ready", python.how_it_ended().await)),
        }
    }

    /// Asks the plugin. Dropping it cancels the call.
    pub(super) async fn call(&self, asked: &Asked, limit: Duration) -> Reply {
        let body = json!({
            "capability": asked.capability.as_ref().map(|capability| &capability.id),
            "arguments": asked.arguments,
            "request": asked.request,
        });
        let ask = async {
            // Never closed.
            let _place = self.places.acquire().await;
            let mut unanswered = Unanswered(Some(self));
            let answer = self.link.ask("call", body).await;
            unanswered.0 = None;
            answer
        };
        match timeout(limit, ask).await {
            Ok(Some(answer)) => answer.into_reply(),
            Ok(None) => {
                Reply::failed(format!("the plugin's process {} during the call", self.how_it_ended().await))
            }
            Err(_) => Reply::failed(format!(
                "the plugin did not answer within {} s, and the call was cancelled",
                limit.as_secs_f64()
            )),
        }
    }

    /// Can it be called? If not, what is in the way.
    pub(super) async fn health(&self) -> Result<(), String> {
        match health(&self.link).await {
            Health::Well => Ok(()),
            Health::Unwell(why) => Err(why),
            Health::Gone => Err(format!("the plugin's process {}", self.how_it_ended().await)),
        }
    }

    /// Returns once the worker has ended.
    pub(super) async fn ended(&self) -> Option<Exit> {
        self.exit.clone().wait_for(Option::is_some).await.ok().and_then(|exit| *exit)
    }

    /// Has the plugin clean up, and ends the process.
    pub(super) async fn close(&self) {
        let leave = async {
            self.link.ask("leave", Value::Null).await;
            self.ended().await
        };
        if timeout(LEAVE, leave).await.is_err() {
            eprintln!(
                "guild-hall porter: the plugin's cleanup takes more than {} s; it is ended",
                LEAVE.as_secs()
            );
            self.orders.send_replace(Order::End);
            let _ = timeout(MOMENT, self.ended()).await;
        }
    }

    async fn how_it_ended(&self) -> String {
        let exit = timeout(MOMENT, self.ended()).await.ok().flatten();
        exit.map_or_else(|| "has closed its pipes".into(), |exit| exit.to_string())
    }
}

/// The first line.
#[derive(serde::Serialize)]
struct First<'a> {
    modules: [(&'static str, &'static str); 8],
    start: Start<'a>,
}

#[derive(serde::Serialize)]
struct Start<'a> {
    dir: &'a str,
    file: &'a str,
    class: Option<&'a str>,
    config: Tree,
    config_file: Option<String>,
    plugin: &'a Plugin,
}

/// A call whose answer nobody has waited for, once it is dropped.
struct Unanswered<'a>(Option<&'a Python>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(python) = self.0 {
            python.vigil.begin(&python.link, &python.orders);
        }
    }
}

/// The worker, in the order in which its modules need each other.
const MODULES: [(&str, &str); 8] = [
    ("results", include_str!("results.py")),
    ("records", include_str!("records.py")),
    ("core", include_str!("core.py")),
    ("homeclaw", include_str!("homeclaw.py")),
    ("loading", include_str!("loading.py")),
    ("attributes", include_str!("attributes.py")),
    ("calls", include_str!("calls.py")),
    ("worker", include_str!("worker.py")),
];
