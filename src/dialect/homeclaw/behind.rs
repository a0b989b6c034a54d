//! `type` and `config`: where a HomeClaw plugin is and what it speaks; "Plugin Standard" §4 and §5.

use std::time::Duration;

use crate::dialect::Beside;
use crate::dialect::fields::{Field, Fields, Findings, variable_name};
use crate::dialect::tree::Value;
use crate::dialect::urls;
use crate::model::porter::{Behind, Program, RemoteWire};

use super::python;

/// A call may take so long, if the plugin does not say.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
/// No plugin may take longer over a call; seconds.
const LONGEST: f64 = 3_600.0;
/// Where an HTTP plugin takes requests.
const PATH: &str = "/run";

/// How a plugin is run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Inline,
    Subprocess,
    Http,
    Mcp,
}

const TYPES: [(&str, Type); 4] =
    [("inline", Type::Inline), ("subprocess", Type::Subprocess), ("http", Type::Http), ("mcp", Type::Mcp)];

/// `type`; one that is left out means a Python class.
pub(super) fn kind(fields: &mut Fields, findings: &mut Findings) -> Option<Type> {
    match fields.take_some("type") {
        None => Some(Type::Inline),
        Some(field) => word(&field, &TYPES, findings),
    }
}

/// `type`, of a plugin that is elsewhere.
pub(super) fn external_kind(text: &str) -> Option<Type> {
    let text = text.trim().to_ascii_lowercase();
    TYPES[1..].iter().find(|(word, _)| *word == text).map(|(_, kind)| *kind)
}

/// `type`, of a plugin that has nothing but a URL.
pub(super) fn remote_kind(field: &Field, findings: &mut Findings) -> Option<Type> {
    word(field, &TYPES[2..], findings)
}

/// One of a few words, in whatever case.
fn word<T: Copy>(field: &Field, words: &[(&str, T)], findings: &mut Findings) -> Option<T> {
    let text = field.text(findings)?.trim().to_ascii_lowercase();
    match words.iter().find(|(word, _)| *word == text) {
        Some((_, value)) => Some(*value),
        None => field.one_of(words, findings),
    }
}

/// The fields of `config`.
pub(super) struct Config<'a> {
    /// `None`: there is none, and none is needed.
    fields: Option<Fields<'a>>,
}

impl<'a> Config<'a> {
    pub(super) fn none() -> Self {
        Self { fields: None }
    }

    pub(super) fn take(fields: &mut Fields<'a>, kind: Type, findings: &mut Findings) -> Option<Self> {
        let example = match kind {
            Type::Inline => {
                let field = fields.take_some("config");
                let fields = match field {
                    Some(field) => Some(Fields::of(field.node, &field.name, findings)?),
                    None => None,
                };
                return Some(Self { fields });
            }
            Type::Subprocess => "{\"command\": \"node\", \"args\": [\"plugin.js\"]}",
            Type::Http => "{\"base_url\": \"http://127.0.0.1:3100\"}",
            Type::Mcp => "{\"transport\": \"stdio\", \"command\": \"node\", \"args\": [\"server.js\"]}",
        };
        let field = fields.need("config", example, findings)?;
        Some(Self { fields: Some(Fields::of(field.node, &field.name, findings)?) })
    }

    /// A Python class; `module` is what stands outside of `config`.
    pub(super) fn inline(
        self, module: Option<Field>, beside: Beside, findings: &mut Findings,
    ) -> Option<(Behind, Duration)> {
        let Some(mut fields) = self.fields else {
            return Some((python::behind(module.as_ref(), None, beside, findings)?, TIMEOUT));
        };
        let config_file = fields.take_some("config_file");
        let module = module.or(fields.take_some("plugin_module"));
        let timeout = timeout(&mut fields, findings);
        fields.warn_of_the_rest(findings);
        let behind = python::behind(module.as_ref(), config_file.as_ref(), beside, findings);
        Some((behind?, timeout?))
    }

    pub(super) fn external(self, kind: Type, findings: &mut Findings) -> Option<(Behind, Duration)> {
        let mut fields = self.fields?;
        let timeout = timeout(&mut fields, findings);
        let behind = match kind {
            Type::Inline => None,
            Type::Subprocess => program(&mut fields, findings).map(|program| Behind::Subprocess { program }),
            Type::Http => {
                let url = base_url(&mut fields, findings);
                rest(url, &mut fields, findings)
            }
            Type::Mcp => mcp(&mut fields, findings),
        };
        fields.warn_of_the_rest(findings);
        Some((behind?, timeout?))
    }

    /// A plugin of type `http` or `mcp` at a URL that is known.
    pub(super) fn remote(
        self, kind: Type, url: String, findings: &mut Findings,
    ) -> Option<(Behind, Duration)> {
        let Some(mut fields) = self.fields else {
            return Some((default_behind(kind, url), TIMEOUT));
        };
        let timeout = timeout(&mut fields, findings);
        let behind = if kind == Type::Http {
            rest(Some(url), &mut fields, findings)
        } else {
            let wire =
                fields.take_some("transport").and_then(|field| word(&field, &WIRES[1..], findings)).flatten();
            remote(Some(url), wire, &mut fields, findings)
        };
        fields.warn_of_the_rest(findings);
        Some((behind?, timeout?))
    }
}

/// Of a URL and nothing else.
fn default_behind(kind: Type, url: String) -> Behind {
    let headers = Vec::new();
    match kind {
        Type::Http => Behind::Rest { base_url: trimmed(&url), path: PATH.into(), headers },
        _ => Behind::Remote { headers, wire: wire_of(&url), tool: None, url },
    }
}

fn program(fields: &mut Fields, findings: &mut Findings) -> Option<Program> {
    let command = fields.need_text("command", "\"node\"", findings);
    let args = fields.take_some("args").and_then(|field| args(&field, findings));
    let env =
        fields.take_some("env").map(|field| field.pairs(variable_name, Field::text_as_written, findings));
    Some(Program { command: command?.0, args: args.unwrap_or_default(), env: env.unwrap_or_default() })
}

fn args(field: &Field, findings: &mut Findings) -> Option<Vec<String>> {
    let Value::List(_) = field.node.value() else {
        field.wrong("a list of texts", findings);
        return None;
    };
    field.items(findings)?.iter().map(|item| item.text_as_written(findings)).collect()
}

fn rest(base_url: Option<String>, fields: &mut Fields, findings: &mut Findings) -> Option<Behind> {
    let path = fields.take_some("path").and_then(|field| urls::url_path(&field, findings));
    let headers = fields.take_some("headers").map(|field| urls::headers(&field, findings));
    Some(Behind::Rest {
        base_url: trimmed(&base_url?),
        path: path.unwrap_or_else(|| PATH.into()),
        headers: headers.unwrap_or_default(),
    })
}

/// The words of `transport`; `None` is `stdio`.
const WIRES: [(&str, Option<RemoteWire>); 5] = [
    ("stdio", None),
    ("sse", Some(RemoteWire::Sse)),
    ("http", Some(RemoteWire::Http)),
    ("streamable-http", Some(RemoteWire::Http)),
    ("streamable_http", Some(RemoteWire::Http)),
];

fn mcp(fields: &mut Fields, findings: &mut Findings) -> Option<Behind> {
    let wire = match fields.take_some("transport") {
        Some(field) => match word(&field, &WIRES, findings)? {
            None => return stdio(fields, findings),
            wire => wire,
        },
        None if fields.has("base_url") => None,
        None => return stdio(fields, findings),
    };
    let url = base_url(fields, findings);
    remote(url, wire, fields, findings)
}

fn stdio(fields: &mut Fields, findings: &mut Findings) -> Option<Behind> {
    let tool = fields.take_text("tool", findings);
    program(fields, findings).map(|program| Behind::Stdio { program, tool })
}

/// `wire`: as the manifest says, if it does.
fn remote(
    url: Option<String>, wire: Option<RemoteWire>, fields: &mut Fields, findings: &mut Findings,
) -> Option<Behind> {
    let path = fields.take_some("path").and_then(|field| urls::url_path(&field, findings));
    let headers = fields.take_some("headers").map(|field| urls::headers(&field, findings));
    let tool = fields.take_text("tool", findings);
    let url = match path {
        None => url?,
        Some(path) => trimmed(&url?) + &path,
    };
    let wire = wire.unwrap_or_else(|| wire_of(&url));
    Some(Behind::Remote { url, headers: headers.unwrap_or_default(), wire, tool })
}

/// By custom, the older transport is served at `/sse`.
pub(super) fn wire_of(url: &str) -> RemoteWire {
    let path = url.split('?').next().unwrap_or_default();
    if path.trim_end_matches('/').ends_with("/sse") { RemoteWire::Sse } else { RemoteWire::Http }
}

fn base_url(fields: &mut Fields, findings: &mut Findings) -> Option<String> {
    let field = fields.need("base_url", "\"http://127.0.0.1:3100\"", findings)?;
    urls::url(&field, findings)
}

/// For a path to follow.
fn trimmed(url: &str) -> String {
    url.trim_end_matches('/').to_owned()
}

fn timeout(fields: &mut Fields, findings: &mut Findings) -> Option<Duration> {
    let Some(field) = fields.take_some("timeout_sec") else { return Some(TIMEOUT) };
    let seconds = match field.node.value() {
        Value::Number(number) => number.as_f64(),
        _ => None,
    };
    let duration = seconds
        .filter(|seconds| (0.001..=LONGEST).contains(seconds))
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    if duration.is_none() {
        field.wrong(&format!("a number of seconds, more than 0 and at most {LONGEST}"), findings);
    }
    duration
}
