//! A plugin that registers itself: the body of `POST /api/plugins/register`.
//!
//! MERGER: this file stands in for what the dialect `homeclaw` provides under the same names. Keep that one's
//! `registration`, `Registered`, `Refused` and `FieldFault`, and remove this file.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::digest;
use crate::model::porter::{Behind, Capability, Kind, Parameter, Plugin, Porter, Program, RemoteWire};
use crate::model::{Dialect, Manifest, RestartPolicy, Transport};

/// How often a plugin with a health check is looked at.
const HEALTH_INTERVAL: Duration = Duration::from_secs(10);

/// A descriptor that has been read and found right.
#[derive(Debug, Clone)]
pub struct Registered {
    /// As it is written.
    pub id: String,
    pub manifest: Manifest,
}

/// Why a plugin cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// These are missing, or of another type than they must be.
    Fields(Vec<FieldFault>),
    /// All is there, and it makes no sense.
    Meaning(String),
}

/// A field, by its path (`capabilities[0].id`; `body` for the whole), and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldFault {
    pub field: String,
    pub message: String,
}

struct Reader {
    wrong: Vec<FieldFault>,
}

/// Reads a descriptor. `dir` is the directory that the plugin's process gets.
pub fn registration(body: &[u8], dir: &Path) -> Result<Registered, Refused> {
    let mut reader = Reader { wrong: Vec::new() };
    let value: Value = serde_json::from_slice(body).map_err(|error| {
        Refused::Fields(vec![FieldFault { field: "body".into(), message: format!("is not JSON: {error}") }])
    })?;
    let Value::Object(all) = value else {
        let message = "is no object".to_owned();
        return Err(Refused::Fields(vec![FieldFault { field: "body".into(), message }]));
    };
    let id = reader.text(&all, "", "plugin_id");
    let name = reader.text(&all, "", "name");
    let description = reader.text(&all, "", "description");
    let health_check_url = reader.text(&all, "", "health_check_url");
    let kind = reader.text(&all, "", "type");
    let config = match all.get("config") {
        Some(Value::Object(config)) => config.clone(),
        other => {
            reader.wrong("config", other, "an object");
            Map::new()
        }
    };
    let capabilities = reader.capabilities(&all);
    let described = match kind.as_str() {
        _ if !reader.wrong.is_empty() => return Err(Refused::Fields(reader.wrong)),
        _ if id.trim().is_empty() => return Err(Refused::Meaning("plugin_id is blank".into())),
        "http" => {
            let base_url = reader.text(&config, "config.", "base_url");
            let path = config.get("path").and_then(Value::as_str).unwrap_or("/run").to_owned();
            (Transport::Rest, Behind::Rest { base_url, path, headers: pairs(&config, "headers") })
        }
        "subprocess" => (Transport::Subprocess, Behind::Subprocess { program: reader.program(&config) }),
        "mcp" => reader.mcp(&config),
        other => {
            let message = format!("type is {other:?}; it must be \"http\", \"subprocess\" or \"mcp\"");
            return Err(Refused::Meaning(message));
        }
    };
    if !reader.wrong.is_empty() {
        return Err(Refused::Fields(reader.wrong));
    }
    let timeout = Duration::from_secs(config.get("timeout_sec").and_then(Value::as_u64).unwrap_or(30));
    let version = all.get("version").and_then(Value::as_str).map(ToOwned::to_owned);
    let plugin = Plugin {
        id: id.clone(),
        name: name.clone(),
        description: description.clone(),
        description_long: all.get("description_long").and_then(Value::as_str).map(ToOwned::to_owned),
        version: version.clone(),
        keywords: texts(&all, "keywords"),
        capabilities,
        health_check_url: Some(health_check_url),
    };
    let (transport, behind) = described;
    let manifest = Manifest {
        name: id.clone(),
        display_name: name,
        description,
        version: version.unwrap_or_default(),
        dialect: Dialect::HomeClaw,
        transport,
        dir: dir.into(),
        command: Manifest::PORTER_COMMAND.into(),
        args: Manifest::PORTER_ARGS.map(Into::into).into(),
        env: Vec::new(),
        inherit_env: Vec::new(),
        path: "/mcp".into(),
        restart: RestartPolicy::default(),
        start_timeout: Duration::from_secs(10),
        call_timeout: timeout + Duration::from_secs(5),
        stop_timeout: Duration::from_secs(5),
        porter: Some(Arc::new(Porter { plugin, behind, timeout })),
        health_interval: Some(HEALTH_INTERVAL),
        watch: None,
        warnings: Vec::new(),
        digest: digest(body),
    };
    Ok(Registered { id, manifest })
}

impl Reader {
    fn wrong(&mut self, field: &str, found: Option<&Value>, right: &str) {
        let message = match found {
            None => format!("is missing; it must be {right}"),
            Some(_) => format!("must be {right}"),
        };
        self.wrong.push(FieldFault { field: field.into(), message });
    }

    fn text(&mut self, from: &Map<String, Value>, path: &str, name: &str) -> String {
        match from.get(name) {
            Some(Value::String(text)) => text.clone(),
            other => {
                self.wrong(&format!("{path}{name}"), other, "a text");
                String::new()
            }
        }
    }

    fn program(&mut self, config: &Map<String, Value>) -> Program {
        let command = self.text(config, "config.", "command");
        Program { command, args: texts(config, "args"), env: pairs(config, "env") }
    }

    fn mcp(&mut self, config: &Map<String, Value>) -> (Transport, Behind) {
        let tool = config.get("tool").and_then(Value::as_str).map(ToOwned::to_owned);
        match config.get("transport").and_then(Value::as_str) {
            Some("stdio") => (Transport::Stdio, Behind::Stdio { program: self.program(config), tool }),
            wire => {
                let url = self.text(config, "config.", "base_url");
                let (transport, wire) = match wire {
                    Some("sse") => (Transport::Sse, RemoteWire::Sse),
                    _ => (Transport::Http, RemoteWire::Http),
                };
                (transport, Behind::Remote { url, headers: pairs(config, "headers"), wire, tool })
            }
        }
    }

    fn capabilities(&mut self, all: &Map<String, Value>) -> Vec<Capability> {
        let listed = all.get("capabilities").and_then(Value::as_array).cloned().unwrap_or_default();
        let objects = listed.into_iter().enumerate();
        objects.filter_map(|(n, value)| self.capability(&format!("capabilities[{n}]"), value)).collect()
    }

    fn capability(&mut self, at: &str, value: Value) -> Option<Capability> {
        let Value::Object(mut rest) = value else {
            self.wrong(at, Some(&value), "an object");
            return None;
        };
        let path = format!("{at}.");
        let [id, name, description] =
            ["id", "name", "description"].map(|field| self.text(&rest, &path, field));
        let parameters = match rest.remove("parameters") {
            Some(Value::Array(items)) => items,
            None => Vec::new(),
            Some(other) => {
                self.wrong(&format!("{path}parameters"), Some(&other), "a list");
                Vec::new()
            }
        };
        let parameters = parameters.into_iter().enumerate();
        let parameters = parameters
            .filter_map(|(n, value)| self.parameter(&format!("{path}parameters[{n}]"), value))
            .collect();
        for known in ["id", "name", "description"] {
            rest.remove(known);
        }
        Some(Capability {
            id,
            name,
            description,
            parameters,
            output_description: take(&mut rest, "output_description"),
            post_process: rest.remove("post_process") == Some(Value::Bool(true)),
            post_process_prompt: take(&mut rest, "post_process_prompt"),
            method: take(&mut rest, "method"),
            path: take(&mut rest, "path"),
            rest,
        })
    }

    fn parameter(&mut self, at: &str, value: Value) -> Option<Parameter> {
        let Value::Object(mut rest) = value else {
            self.wrong(at, Some(&value), "an object");
            return None;
        };
        let path = format!("{at}.");
        let name = self.text(&rest, &path, "name");
        let kind = rest.remove("type").and_then(|kind| serde_json::from_value::<Kind>(kind).ok());
        if kind.is_none() {
            self.wrong(&format!("{path}type"), Some(&Value::Null), "the name of a type");
        }
        rest.remove("name");
        Some(Parameter {
            name,
            kind: kind?,
            required: rest.remove("required") != Some(Value::Bool(false)),
            default: rest.remove("default"),
            description: take(&mut rest, "description"),
            rest,
        })
    }
}

fn take(from: &mut Map<String, Value>, name: &str) -> Option<String> {
    from.remove(name).and_then(|value| value.as_str().map(ToOwned::to_owned))
}

fn texts(from: &Map<String, Value>, name: &str) -> Vec<String> {
    let items = from.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    items.iter().filter_map(|item| item.as_str().map(ToOwned::to_owned)).collect()
}

fn pairs(from: &Map<String, Value>, name: &str) -> Vec<(String, String)> {
    let pairs = from.get(name).and_then(Value::as_object).cloned().unwrap_or_default();
    pairs.into_iter().filter_map(|(name, value)| Some((name, value.as_str()?.to_owned()))).collect()
}
