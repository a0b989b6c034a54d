//! An MCP server on pipes: the plugin is started once, and all calls go over its stdin and stdout.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::{Mutex, OnceCell, watch};
use tokio::time::timeout;

use super::service::{Asked, Hearing};
use super::switchboard::Switchboard;
use super::wire::Wire;
use crate::mcp::terms::code;
use crate::mcp::{Params, RpcError, excerpt};
use crate::model::porter::{Plugin, Program};
use crate::model::{Exit, Instance};
use crate::process::{Stderr, Ward};

/// One line, and so one answer, may be this large; bytes.
const LARGEST_LINE: u64 = 16 * 1024 * 1024;
/// What a read takes at the most; bytes.
const BUFFER: usize = 16 * 1024;
/// A plugin that does not answer a ping within this time is unwell.
const PING: Duration = Duration::from_secs(3);
/// How long a plugin may take to end after its stdin was closed, before it is asked by SIGTERM.
const HINT: Duration = Duration::from_millis(500);
/// What a dead plugin has written may still be read for this time.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// See the module's page.
pub(super) struct Stdio {
    switchboard: Switchboard,
    /// What the plugin has answered to `initialize`: it is asked once, however many halls come.
    introduction: Arc<OnceCell<Box<RawValue>>>,
    pipe: Arc<Mutex<pipe::Sender>>,
    /// The tool that is meant when none is named.
    designated: Option<String>,
    orders: watch::Sender<Order>,
    exit: watch::Receiver<Option<Exit>>,
}

/// What is to become of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Live,
    Terminate,
}

impl Stdio {
    pub(super) fn open(
        plugin: &Plugin, program: &Program, designated: Option<String>, dir: &Path,
    ) -> Result<Self, String> {
        let instance = getrandom::u64().map(Instance::from_bits).map_err(|error| error.to_string())?;
        let (ward, pipes) = Ward::spawn(program, dir, instance, Stderr::Log)
            .map_err(|error| format!("cannot start {}: {error}", plugin.id))?;
        let unusable = |error| format!("cannot use its pipes: {error}");
        let sender = pipe::Sender::from_owned_fd(pipes.stdin).map_err(unusable)?;
        let receiver = pipe::Receiver::from_owned_fd(pipes.stdout).map_err(unusable)?;
        let pipe = Arc::new(Mutex::new(sender));
        let switchboard = Switchboard::new(Wire::Pipe(pipe.clone()));
        let (orders, orders_heard) = watch::channel(Order::Live);
        let (told, exit) = watch::channel(None);
        let reading = tokio::spawn(read(receiver, switchboard.clone()));
        tokio::spawn(keep(ward, reading, orders_heard, told, switchboard.clone()));
        Ok(Self { switchboard, introduction: Arc::default(), pipe, designated, orders, exit })
    }

    pub(super) fn switchboard(&self) -> &Switchboard {
        &self.switchboard
    }

    pub(super) async fn ask(&self, id: &RawValue, method: &str, params: Params<'_>) -> Asked {
        let answer = match (method, &self.designated) {
            ("initialize", _) => self.introduce(params).await,
            ("ping", _) => self.ping().await,
            // Pipes are a session, and the plugin has been asked for one.
            ("server/discover", _) => {
                Err(RpcError::new(code::NO_SUCH_METHOD, "a plugin on pipes is asked to initialize"))
            }
            ("tools/list", Some(tool)) => {
                self.switchboard.request(method, params).await.map(|list| designate(list, tool))
            }
            _ => match self.switchboard.call(id, method, params).await {
                Err(error) => Err(error),
                Ok((line, mut heard)) => {
                    let first = heard.recv().await;
                    return match first {
                        Some(answer) if line.is_over() && heard.is_empty() => Asked::Message(answer),
                        Some(first) => Asked::Stream { first, hearing: Hearing { heard, _line: Some(line) } },
                        None => Asked::Error(RpcError::new(code::INTERNAL, "the plugin has ended")),
                    };
                }
            },
        };
        match answer {
            Ok(result) => Asked::Result(result),
            Err(error) => Asked::Error(error),
        }
    }

    /// Has the plugin introduce itself. On a task of its own: it is asked once, whoever waits for it.
    async fn introduce(&self, params: Params<'_>) -> Result<Box<RawValue>, RpcError> {
        let (cell, switchboard) = (self.introduction.clone(), self.switchboard.clone());
        // Whose client can be asked is seen when the plugin asks. Roots would be those of one client.
        let params = params.with("capabilities", &json!({"sampling": {}, "elicitation": {}})).into_owned();
        let asking = tokio::spawn(async move {
            let ask = async {
                let result = switchboard.request("initialize", params).await?;
                switchboard.notify("notifications/initialized", None).await;
                Ok(result)
            };
            cell.get_or_try_init(|| ask).await.cloned()
        });
        let over = |_| Err(RpcError::new(code::INTERNAL, "the plugin has ended"));
        asking.await.unwrap_or_else(over)
    }

    async fn ping(&self) -> Result<Box<RawValue>, RpcError> {
        match timeout(PING, self.switchboard.request("ping", Params::default())).await {
            // Whatever it says, it answers.
            Ok(_) => RawValue::from_string("{}".into())
                .map_err(|error| RpcError::new(code::INTERNAL, error.to_string())),
            Err(_) => {
                let what = format!("the plugin does not answer a ping within {} s", PING.as_secs());
                Err(RpcError::new(code::UNWELL, what))
            }
        }
    }

    pub(super) async fn ended(&self) -> Exit {
        let mut exit = self.exit.clone();
        exit.wait_for(Option::is_some).await.ok().and_then(|exit| *exit).unwrap_or(Exit::Unknown)
    }

    /// Closes its stdin, which asks a server on pipes to end; then asks by SIGTERM. Whoever wants it to end
    /// sooner kills the porter.
    pub(super) async fn close(&self) {
        if let Ok(mut pipe) = timeout(HINT, self.pipe.lock()).await {
            let _ = tokio::io::AsyncWriteExt::shutdown(&mut *pipe).await;
        }
        if timeout(HINT, self.ended()).await.is_err() {
            self.orders.send_replace(Order::Terminate);
            self.ended().await;
        }
    }
}

/// Holds the process until it has ended.
async fn keep(
    mut ward: Ward, reading: tokio::task::JoinHandle<()>, mut orders: watch::Receiver<Order>,
    told: watch::Sender<Option<Exit>>, switchboard: Switchboard,
) {
    let mut reading = reading;
    let mut is_read = false;
    let exit = loop {
        tokio::select! {
            exit = ward.wait() => break exit,
            () = ordered(&mut orders) => {
                ward.terminate();
                break ward.wait().await;
            }
            // Without its stdout it is of no use to anybody.
            _ = &mut reading, if !is_read => {
                is_read = true;
                switchboard.fail("the plugin has closed its stdout");
                if let Ok(exit) = timeout(LAST_WORDS, ward.wait()).await {
                    break exit;
                }
                eprintln!("guild-hall porter: the plugin has closed its stdout and is ended");
                ward.kill();
            }
        }
    };
    if !is_read {
        let _ = timeout(LAST_WORDS, reading).await;
    }
    switchboard.fail("the plugin has ended before it answered");
    told.send_replace(Some(exit.unwrap_or(Exit::Unknown)));
}

async fn ordered(orders: &mut watch::Receiver<Order>) {
    if orders.wait_for(|order| *order == Order::Terminate).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Reads what the plugin says until it has closed its stdout.
async fn read(pipe: pipe::Receiver, switchboard: Switchboard) {
    let mut pipe = BufReader::with_capacity(BUFFER, pipe);
    let mut line = Vec::new();
    let mut skipping = false;
    loop {
        line.clear();
        line.shrink_to(BUFFER);
        match (&mut pipe).take(LARGEST_LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let is_whole = line.last() == Some(&b'\n');
        let text = line.trim_ascii();
        if !is_whole && line.len() as u64 == LARGEST_LINE {
            if !skipping {
                eprintln!(
                    "guild-hall porter: the plugin writes a line of more than {LARGEST_LINE} bytes; it is left out"
                );
                switchboard
                    .fail(&format!("the plugin answered with more than {} MiB", LARGEST_LINE / 1024 / 1024));
            }
            skipping = true;
        } else if std::mem::take(&mut skipping) || text.is_empty() {
            // The end of a line that is left out.
        } else if !switchboard.hear(text).await {
            eprintln!("guild-hall porter: on the plugin's stdout, and no message: {}", excerpt(text));
        }
    }
}

/// Marks one tool of a list as the one that is meant when none is named.
pub(super) fn designate(list: Box<RawValue>, tool: &str) -> Box<RawValue> {
    let Ok(mut value) = serde_json::from_str::<Value>(list.get()) else { return list };
    let tools = value.get_mut("tools").and_then(Value::as_array_mut);
    let meant = tools.into_iter().flatten().filter_map(Value::as_object_mut);
    for meant in meant.filter(|one| one.get("name").and_then(Value::as_str) == Some(tool)) {
        let meta = meant.entry("_meta").or_insert_with(|| json!({}));
        if let Some(meta) = meta.as_object_mut() {
            meta.insert("homeclaw/designated".into(), Value::Bool(true));
        }
    }
    serde_json::value::to_raw_value(&value).unwrap_or(list)
}
