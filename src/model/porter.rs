//! What a porter is told: whom it stands in front of, and how it reaches it.

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value};

/// A plugin that does not itself speak MCP on a port that it is given.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Porter {
    pub plugin: Plugin,
    pub behind: Behind,
    /// The plugin may take so long over one call.
    pub timeout: Duration,
}

impl Porter {
    /// The plugin is ill or well by itself: starting the porter anew would mend nothing. One that is part of the
    /// porter's own process tree is started with it, and so is not, unless something else says how it is.
    pub fn is_apart(&self) -> bool {
        let is_within = matches!(self.behind, Behind::Stdio { .. } | Behind::Python { .. });
        !is_within || self.plugin.health_check_url.is_some()
    }
}

/// What a plugin says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Plugin {
    /// As it is written.
    pub id: String,
    pub name: String,
    pub description: String,
    pub description_long: Option<String>,
    pub version: Option<String>,
    pub keywords: Vec<String>,
    /// What it can be asked for; a plugin with none is asked with what the user has said.
    pub capabilities: Vec<Capability>,
    /// Answers 2xx while the plugin is well.
    pub health_check_url: Option<String>,
}

/// One thing that a plugin can be asked for; HomeClaw, "Plugin Registration" §3.2.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Capability {
    pub id: String,
    pub name: String,
    pub description: String,
    pub parameters: Vec<Parameter>,
    pub output_description: Option<String>,
    /// A language model is to see the output before the user does.
    pub post_process: bool,
    pub post_process_prompt: Option<String>,
    /// Of HTTP, in capitals.
    pub method: Option<String>,
    /// Relative to the plugin's URL, or a whole URL.
    pub path: Option<String>,
    /// Fields that the standard does not know.
    pub rest: Map<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Parameter {
    pub name: String,
    pub kind: Kind,
    pub required: bool,
    pub default: Option<Value>,
    pub description: Option<String>,
    /// Fields that the standard does not know.
    pub rest: Map<String, Value>,
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    String,
    Number,
    Integer,
    Boolean,
    Object,
    Array,
}

/// Where the plugin is, and what it speaks.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Behind {
    /// An MCP server on pipes. `tool` is the one that is meant when none is named.
    Stdio { program: Program, tool: Option<String> },
    /// An MCP server elsewhere.
    Remote { url: String, headers: Vec<(String, String)>, wire: RemoteWire, tool: Option<String> },
    /// A process for each call.
    Subprocess { program: Program },
    /// A server that is asked with the plugin request at `path`, or as a capability says.
    Rest { base_url: String, path: String, headers: Vec<(String, String)> },
    /// A Python class in the member's directory.
    Python {
        /// Of the class, relative to the member's directory.
        file: String,
        /// `None`: the one class there is.
        class: Option<String>,
        /// What the plugin calls its configuration; relative to the member's directory.
        config_file: Option<String>,
    },
}

/// How a remote MCP server is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RemoteWire {
    /// Streamable HTTP.
    Http,
    /// A stream of events, and POST to where its first event says; MCP 2024-11-05.
    Sse,
}

/// A program and what it is executed with.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Program {
    pub command: String,
    pub args: Vec<String>,
    /// In the order of the document.
    pub env: Vec<(String, String)>,
}

/// A language model behind an OpenAI-compatible endpoint.
#[derive(Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Llm {
    /// Up to `/chat/completions`.
    pub base_url: String,
    pub model: String,
    pub api_key: Option<String>,
}

impl Llm {
    /// Stands in the environment of a porter, as JSON; what a porter starts does not get it.
    pub const VARIABLE: &str = "GUILD_HALL_LLM";
}

impl fmt::Debug for Llm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Llm({} at {})", self.model, self.base_url)
    }
}
