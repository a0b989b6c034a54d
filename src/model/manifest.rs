//! What a member declares, in our one form: every dialect is translated into this.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::Diagnosis;
use super::porter::{Behind, Porter, Program};

/// A manifest that has been read and found right.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Manifest {
    pub name: String,
    pub display_name: String,
    pub description: String,
    pub version: String,
    pub dialect: Dialect,
    pub transport: Transport,
    /// The member's own directory, absolute: the working directory of its process.
    pub dir: PathBuf,
    /// As written, `${GUILD_HALL}` not yet replaced.
    pub command: String,
    /// As written, `${PORT}` not yet replaced.
    pub args: Vec<String>,
    /// As written, in the order of the document.
    pub env: Vec<(String, String)>,
    /// Names of variables that pass even with a clean environment.
    pub inherit_env: Vec<String>,
    /// Where on its port the member speaks MCP.
    pub path: String,
    pub restart: RestartPolicy,
    /// From the launch until the handshake must be done.
    pub start_timeout: Duration,
    pub call_timeout: Duration,
    /// From SIGTERM until SIGKILL.
    pub stop_timeout: Duration,
    /// The member is a porter: whom it stands in front of.
    #[serde(default)]
    pub porter: Option<Arc<Porter>>,
    /// It was found because the registry lists it.
    #[serde(default)]
    pub listed: bool,
    /// `None`: probed on evidence only.
    pub health_interval: Option<Duration>,
    /// Globs of files whose change restarts the member, relative to `dir`; `None`: its sources.
    pub watch: Option<Vec<String>>,
    pub warnings: Vec<Diagnosis>,
    /// Of the document's bytes: a running member is known again only under the same manifest.
    pub digest: Digest,
}

impl Manifest {
    /// What is executed for a member that a porter stands in front of.
    pub const PORTER_COMMAND: &str = "${GUILD_HALL}";
    pub const PORTER_ARGS: [&str; 3] = ["porter", "--port", "${PORT}"];

    /// What a porter executes.
    pub fn program(&self) -> Option<&Program> {
        match &self.porter.as_ref()?.behind {
            Behind::Stdio { program, .. } | Behind::Subprocess { program } => Some(program),
            Behind::Remote { .. } | Behind::Rest { .. } | Behind::Python { .. } => None,
        }
    }
}

/// The plugin standard that a manifest is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    Guild,
    HomeClaw,
}

/// How the plugin itself is spoken to; whatever it is, the hall speaks MCP over HTTP to the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// MCP over streamable HTTP.
    Http,
    /// MCP over pipes.
    Stdio,
    /// MCP over a stream of events and POST; MCP 2024-11-05.
    Sse,
    /// A process for each call.
    Subprocess,
    /// HTTP requests that are no MCP.
    Rest,
    /// Calls of a Python class.
    Python,
}

/// When a member that ended is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum RestartPolicy {
    /// After a failure, not after exit 0.
    #[default]
    OnFailure,
    /// After exit 0 too.
    Always,
    Never,
}

/// First 16 bytes of a SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest(pub [u8; 16]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let number = u128::from_str_radix(&text, 16).map_err(|_| "not 32 hexadecimal digits")?;
        if text.len() == 32 { Ok(Self(number.to_be_bytes())) } else { Err("not 32 hexadecimal digits") }
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}
