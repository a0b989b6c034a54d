//! What a HomeClaw plugin says of itself, and how it is. Of its configuration nothing is told: addresses,
//! headers and environments hold secrets.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::model::porter::{Behind, Capability, Kind, Parameter, Plugin};
use crate::model::{Entry, MemberKey, PhaseName, Status};

/// See the module's page; HomeClaw, "Plugin Registration" §3.
#[derive(Serialize)]
pub(super) struct Descriptor<'a> {
    id: &'a str,
    name: &'a str,
    description: &'a str,
    description_long: Option<&'a str>,
    version: Option<&'a str>,
    keywords: &'a [String],
    #[serde(rename = "type")]
    kind: &'static str,
    source: &'static str,
    capabilities: Vec<Shown<'a>>,
    health_check_url: Option<String>,
    member: &'a MemberKey,
    status: Status,
    phase: PhaseName,
    error: Option<&'a str>,
}

#[derive(Serialize)]
struct Shown<'a> {
    id: &'a str,
    name: &'a str,
    description: &'a str,
    parameters: Vec<ShownParameter<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_description: Option<&'a str>,
    post_process: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    post_process_prompt: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    #[serde(flatten)]
    rest: &'a Map<String, Value>,
}

#[derive(Serialize)]
struct ShownParameter<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    kind: Kind,
    required: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(flatten)]
    rest: &'a Map<String, Value>,
}

impl<'a> Descriptor<'a> {
    /// `None` for what is no plugin behind a porter.
    pub(super) fn of(entry: &'a Entry) -> Option<Self> {
        let porter = entry.porter.as_ref()?;
        let Plugin {
            id,
            name,
            description,
            description_long,
            version,
            keywords,
            capabilities,
            health_check_url,
        } = &porter.plugin;
        let kind = kind(&porter.behind);
        Some(Self {
            id,
            name,
            description,
            description_long: description_long.as_deref(),
            version: version.as_deref(),
            keywords,
            kind,
            source: if kind == "inline" { "built-in" } else { "external" },
            capabilities: capabilities.iter().map(Shown::of).collect(),
            health_check_url: health_check_url.as_deref().map(without_credentials),
            member: &entry.name,
            status: entry.status,
            phase: entry.phase,
            error: entry.error.as_deref(),
        })
    }
}

impl<'a> Shown<'a> {
    fn of(capability: &'a Capability) -> Self {
        Self {
            id: &capability.id,
            name: &capability.name,
            description: &capability.description,
            parameters: capability.parameters.iter().map(ShownParameter::of).collect(),
            output_description: capability.output_description.as_deref(),
            post_process: capability.post_process,
            post_process_prompt: capability.post_process_prompt.as_deref(),
            method: capability.method.as_deref(),
            path: capability.path.as_deref(),
            rest: &capability.rest,
        }
    }
}

impl<'a> ShownParameter<'a> {
    fn of(parameter: &'a Parameter) -> Self {
        Self {
            name: &parameter.name,
            kind: parameter.kind,
            required: parameter.required,
            default: parameter.default.as_ref(),
            description: parameter.description.as_deref(),
            rest: &parameter.rest,
        }
    }
}

/// The word of the standard.
fn kind(behind: &Behind) -> &'static str {
    match behind {
        Behind::Stdio { .. } | Behind::Remote { .. } => "mcp",
        Behind::Subprocess { .. } => "subprocess",
        Behind::Rest { .. } => "http",
        Behind::Python { .. } => "inline",
    }
}

/// A URL without user and password.
fn without_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.into() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_the_password_in_it() {
        for (url, shown) in [
            ("http://127.0.0.1:3100/health", "http://127.0.0.1:3100/health"),
            ("https://me:secret@host:1/a@b?c=d@e", "https://host:1/a@b?c=d@e"),
            ("http://me@x", "http://x"),
            ("nonsense", "nonsense"),
        ] {
            assert_eq!(without_credentials(url), shown);
        }
    }
}
