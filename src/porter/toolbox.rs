//! A plugin as a set of tools: what it is offered as, how it is called, and what becomes of its answers. Called by
//! `server`, for every kind that does not speak MCP itself.

use std::path::PathBuf;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::{Request, Uri};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::offer::{self, Offered};
use super::python::Python;
use super::reply::Reply;
use super::request::Asked;
use super::rest::{Rest, refusal};
use super::subprocess::Subprocess;
use super::{arguments, diary, web};
use crate::mcp::terms::{WITH_SESSIONS, code};
use crate::mcp::{Params, RpcError};
use crate::model::Exit;
use crate::model::porter::{Behind, Capability, Llm, Plugin, Porter};

/// A plugin that is well says so within this time.
const HEALTH: Duration = Duration::from_secs(5);
/// Nobody reads what it says beside.
const LARGEST_HEALTH: usize = 1024 * 1024;

/// Keys of a result's `_meta`.
const POST_PROCESS: &str = "homeclaw/post_process";
const ORIGINAL_TEXT: &str = "homeclaw/original_text";

/// See the module's page.
pub(super) struct Toolbox {
    plugin: Plugin,
    timeout: Duration,
    runner: Runner,
    llm: Option<Llm>,
    offered: Vec<Offered>,
    introduction: Box<RawValue>,
    tools: Box<RawValue>,
}

/// Who is asked.
enum Runner {
    Subprocess(Subprocess),
    Rest(Rest),
    Python(Python),
}

impl Toolbox {
    /// Starts what has to be started. The error says why the plugin cannot be called at all.
    pub(super) async fn open(porter: Porter, dir: PathBuf, llm: Option<Llm>) -> Result<Self, String> {
        let runner = match &porter.behind {
            Behind::Subprocess { program } => Runner::Subprocess(Subprocess::new(program.clone(), dir)),
            Behind::Rest { base_url, path, headers } => Runner::Rest(Rest::new(base_url, path, headers)?),
            Behind::Python { .. } => Runner::Python(Python::start(&porter, &dir).await?),
            Behind::Stdio { .. } | Behind::Remote { .. } => {
                return Err("an MCP server's messages are passed on, not made into tools".into());
            }
        };
        let Porter { plugin, timeout, .. } = porter;
        let (offered, listed) = offer::of(&plugin);
        let written = |value: &Value| to_raw_value(value).map_err(|error| error.to_string());
        let (introduction, tools) = (written(&introduction(&plugin))?, written(&listed)?);
        Ok(Self { plugin, timeout, runner, llm, offered, introduction, tools })
    }

    /// A request of the hall. Dropping it cancels it.
    pub(super) async fn ask(&self, method: &str, params: Params<'_>) -> Result<Box<RawValue>, RpcError> {
        match method {
            "initialize" => Ok(self.introduction.clone()),
            "tools/list" => Ok(self.tools.clone()),
            "tools/call" => self.call(params).await,
            "ping" => match self.health().await {
                Ok(()) => RawValue::from_string("{}".into())
                    .map_err(|error| RpcError::new(code::INTERNAL, error.to_string())),
                Err(what) => Err(RpcError::new(code::UNWELL, what)),
            },
            _ => {
                Err(RpcError::new(code::NO_SUCH_METHOD, format!("a plugin's porter does not know {method}")))
            }
        }
    }

    /// The result of `tools/call`. Dropping it cancels the call.
    async fn call(&self, params: Params<'_>) -> Result<Box<RawValue>, RpcError> {
        let wrong = |what: String| RpcError::new(code::INVALID_PARAMS, what);
        let name = params.text("name").ok_or_else(|| wrong("tools/call needs \"name\", a text".into()))?;
        let tool = self.offered.iter().find(|tool| tool.name == name);
        let tool = tool.ok_or_else(|| {
            let known: Vec<&str> = self.offered.iter().map(|tool| &*tool.name).take(20).collect();
            wrong(format!("{} has no tool {name:?}; it has {}", self.plugin.id, known.join(", ")))
        })?;
        let given = params.get("arguments").map_or("null", RawValue::get);
        let given: Option<Map<String, Value>> = serde_json::from_str(given)
            .map_err(|error| wrong(format!("the arguments of {name} are no object: {error}")))?;
        let given = match arguments::check(&tool.parameters, given.unwrap_or_default()) {
            Ok(given) => given,
            // A model reads results, and not errors.
            Err(faults) => return Ok(Reply::failed(format!("{name} was not called: {faults}")).into_result()),
        };
        let asked = Asked::new(&self.plugin.id, tool.capability.clone(), given);
        let reply = match &self.runner {
            Runner::Subprocess(subprocess) => subprocess.call(&asked, self.timeout).await,
            Runner::Rest(rest) => rest.call(&asked, self.timeout).await,
            Runner::Python(python) => python.call(&asked, self.timeout).await,
        };
        Ok(self.processed(reply, asked.capability.as_deref()).await)
    }

    /// What `ping` is answered; the error says what is wrong with the plugin.
    async fn health(&self) -> Result<(), String> {
        if let Runner::Python(python) = &self.runner {
            python.health().await?;
        }
        let Some(url) = &self.plugin.health_check_url else { return Ok(()) };
        let uri: Uri = url.parse().map_err(|error| format!("health_check_url is no URL: {error}"))?;
        let place = web::place(&uri);
        let request = Request::get(uri).body(Bytes::new()).map_err(|error| error.to_string())?;
        let answer = web::send(request, LARGEST_HEALTH, HEALTH).await;
        let answer = answer.map_err(|fault| format!("the plugin's health check {place} {fault}"))?;
        if answer.status.is_success() {
            return Ok(());
        }
        Err(format!("the plugin is not well: {}", refusal(&place, &answer)))
    }

    /// Returns once the plugin's own process has ended; never where it has none.
    pub(super) async fn ended(&self) -> Exit {
        match &self.runner {
            Runner::Python(python) => python.ended().await.unwrap_or(Exit::Unknown),
            Runner::Subprocess(_) | Runner::Rest(_) => std::future::pending().await,
        }
    }

    /// The member is to stop; bounded by whoever cleans up.
    pub(super) async fn close(&self) {
        if let Runner::Python(python) = &self.runner {
            python.close().await;
        }
    }

    /// A success goes through the language model, where the capability wants that and there is one. It is a
    /// result all the same if it cannot.
    async fn processed(&self, mut reply: Reply, capability: Option<&Capability>) -> Box<RawValue> {
        let Some(capability) = capability.filter(|capability| capability.post_process && reply.success)
        else {
            return reply.into_result();
        };
        let prompt = capability.post_process_prompt.as_deref();
        let retold = match &self.llm {
            _ if reply.text.trim().is_empty() => Err("its text is empty".into()),
            Some(llm) => llm.process(prompt, &reply.text).await,
            None => Err("no language model is configured (`llm` in guild-hall.yaml)".into()),
        };
        let mut meta = Map::new();
        match retold {
            Ok(text) => {
                meta.insert(POST_PROCESS.into(), "processed".into());
                meta.insert(ORIGINAL_TEXT.into(), reply.retold(text).into());
            }
            Err(why) => {
                diary::note(format_args!("the result of {} is not processed: {why}", capability.id));
                meta.insert(POST_PROCESS.into(), format!("not processed: {why}").into());
            }
        }
        reply.into_result_with(meta)
    }
}

fn introduction(plugin: &Plugin) -> Value {
    let mut introduction = json!({
        "protocolVersion": WITH_SESSIONS,
        "capabilities": {"tools": {}},
        "serverInfo": {
            "name": plugin.id,
            "title": plugin.name,
            "version": plugin.version.as_deref().unwrap_or("0.0.0"),
        },
    });
    if !plugin.description.is_empty() {
        introduction["instructions"] = plugin.description.as_str().into();
    }
    introduction
}
