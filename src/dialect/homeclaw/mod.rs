//! The HomeClaw standard: `plugin.yaml`, `plugin.yml`, `plugin.json`, the older `config.yml` beside a
//! Python class, plugins that `registry.yaml` lists, and such that register themselves (docs/homeclaw.md).

mod behind;
mod capability;
mod legacy;
mod plugin;
mod python;
mod registration;
mod registry;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use super::fields::{Fields, Findings};
use super::tree::{Document, Node, SyntaxFault};
use super::{Paper, digest, globs, guild};
use crate::model::porter::{Behind, Plugin, Porter, RemoteWire};
use crate::model::{Dialect, Digest, Manifest, Rejection, RestartPolicy, Transport};

use behind::{Config, Type};

pub use python::holds_plugin_class;
pub use registration::{FieldFault, Refused, Registered, registration};
pub use registry::{FILE as REGISTRY_FILE, Listed, Registry, registry};

/// The older manifest, which is one only beside a Python class.
pub const LEGACY_FILE: &str = "config.yml";

/// What the roster shows of a plugin that names no version.
const NO_VERSION: &str = "0.0.0";
/// From the launch until the handshake, of plugins that are started for it...
const SLOW_START: Duration = Duration::from_secs(30);
/// ...and of those that are there already.
const START: Duration = Duration::from_secs(10);
const STOP: Duration = Duration::from_secs(5);
/// A plugin with a `health_check_url` is asked so often.
const HEALTH: Duration = Duration::from_secs(10);
/// The hall waits so much longer than the porter, which has more to say.
const GRACE: Duration = Duration::from_secs(2);
/// What a language model may take over an answer.
const POST_PROCESSING: Duration = Duration::from_secs(60);

pub(super) fn read_yaml(paper: &Paper) -> Result<Manifest, Rejection> {
    read(paper, Document::yaml(paper.bytes))
}

/// `plugin.json` is a name that two standards share.
pub(super) fn read_json(paper: &Paper) -> Result<Manifest, Rejection> {
    let document = Document::json(paper.bytes);
    if let Ok(document) = &document
        && let Some(why) = not_homeclaw(document.top())
    {
        let mut findings = Findings::new(paper.shown);
        findings.fault(Some(document.top().place()), "", why);
        return findings.conclude(None);
    }
    read(paper, document)
}

pub(super) fn read_legacy(paper: &Paper) -> Result<Manifest, Rejection> {
    read_with(paper, Document::yaml(paper.bytes), legacy::sheet)
}

fn read(paper: &Paper, document: Result<Document, SyntaxFault>) -> Result<Manifest, Rejection> {
    read_with(paper, document, sheet)
}

fn read_with(
    paper: &Paper, document: Result<Document, SyntaxFault>,
    sheet: impl Fn(Node, &Paper, &mut Findings) -> Option<Sheet>,
) -> Result<Manifest, Rejection> {
    let mut findings = Findings::new(paper.shown);
    let sheet = match document {
        Ok(document) => sheet(document.top(), paper, &mut findings),
        Err(fault) => {
            findings.unreadable(fault);
            None
        }
    };
    // Beside `plugin.yaml` it is the plugin's own configuration, and counts as much.
    let config =
        if super::name_of(paper.shown) == LEGACY_FILE { None } else { (paper.beside.read)(LEGACY_FILE) };
    let digest = match &config {
        Some(config) => digest(&[paper.bytes, config]),
        None => digest(&[paper.bytes]),
    };
    findings.conclude(sheet.map(|sheet| sheet.manifest(paper.dir, digest)))
}

/// Why a `plugin.json` is not of this standard.
fn not_homeclaw(top: Node) -> Option<String> {
    let super::tree::Value::Object(pairs) = top.value() else { return None };
    let first = |names: [&'static str; 2]| {
        names.into_iter().find(|name| pairs.iter().any(|(key, _)| key.text == *name))
    };
    match (first(["apps", "manifestVersion"]), first(["type", "capabilities"])) {
        (None, Some(_)) => None,
        (Some(chatos), None) => Some(format!(
            "is the manifest of a ChatOS plugin (it has {chatos:?}), which this hall does not read yet"
        )),
        (Some(chatos), Some(homeclaw)) => Some(format!(
            "has {chatos:?}, which makes it a ChatOS plugin, and {homeclaw:?}, which makes it a HomeClaw plugin; \
             remove one of the two, or write the HomeClaw manifest as plugin.yaml"
        )),
        (None, None) => Some(
            "is neither a HomeClaw plugin (it would have \"type\" or \"capabilities\") nor a ChatOS plugin \
             (\"apps\" or \"manifestVersion\"); add \"type\": \"inline\", \"subprocess\", \"http\" or \"mcp\""
                .into(),
        ),
    }
}

/// Everything that a HomeClaw document says, however it came.
struct Sheet {
    plugin: Plugin,
    behind: Behind,
    timeout: Duration,
    restart: RestartPolicy,
    watch: Option<Vec<String>>,
}

/// A manifest of a plugin's own; `None` where something is missing, and the faults say what.
fn sheet(top: Node, paper: &Paper, findings: &mut Findings) -> Option<Sheet> {
    let mut fields = Fields::of(top, "", findings)?;
    let id = plugin::id(&mut fields, findings);
    let name = plugin::name(&mut fields, id.as_ref().map(|(id, _)| id), findings);
    let plugin = plugin::plugin(&mut fields, findings);
    let kind = behind::kind(&mut fields, findings);
    let module = fields.take_some("plugin_module");
    let config = kind.and_then(|kind| Config::take(&mut fields, kind, findings));
    let restart = fields.take_some("restart").and_then(|field| guild::restart_policy(&field, findings));
    let watch = fields.take_some("watch").and_then(|field| globs::globs(&field, findings));
    fields.warn_of_the_rest(findings);
    let behind = match (kind?, config?) {
        (Type::Inline, config) => config.inline(module, paper.beside, findings),
        (kind, config) => config.external(kind, findings),
    };
    let (id, id_node) = id?;
    plugin::compare(&id, id_node, paper.dir_name, findings);
    let (behind, timeout) = behind?;
    Some(Sheet {
        plugin: Plugin { id, name: name?, ..plugin? },
        behind,
        timeout,
        restart: restart.unwrap_or_default(),
        watch,
    })
}

impl Sheet {
    fn manifest(self, dir: &std::path::Path, digest: Digest) -> Manifest {
        let Self { plugin, behind, timeout, restart, watch } = self;
        let transport = match &behind {
            Behind::Stdio { .. } => Transport::Stdio,
            Behind::Remote { wire: RemoteWire::Http, .. } => Transport::Http,
            Behind::Remote { wire: RemoteWire::Sse, .. } => Transport::Sse,
            Behind::Subprocess { .. } => Transport::Subprocess,
            Behind::Rest { .. } => Transport::Rest,
            Behind::Python { .. } => Transport::Python,
        };
        let start_timeout = match &behind {
            Behind::Stdio { .. } | Behind::Python { .. } => SLOW_START,
            _ => START,
        };
        let is_processed = plugin.capabilities.iter().any(|capability| capability.post_process);
        let processing = if is_processed { POST_PROCESSING } else { Duration::ZERO };
        let porter = super::porter();
        // It may be away at any time, and nothing else would tell.
        let is_remote = matches!(behind, Behind::Remote { .. });
        Manifest {
            name: plugin.id.clone(),
            display_name: plugin.name.clone(),
            description: plugin.description.clone(),
            version: plugin.version.clone().unwrap_or_else(|| NO_VERSION.into()),
            dialect: Dialect::HomeClaw,
            transport,
            dir: dir.into(),
            command: porter.command,
            args: porter.args,
            env: porter.env,
            inherit_env: Vec::new(),
            path: "/mcp".into(),
            restart,
            start_timeout,
            call_timeout: timeout + processing + GRACE,
            stop_timeout: STOP,
            health_interval: (plugin.health_check_url.is_some() || is_remote).then_some(HEALTH),
            porter: Some(Arc::new(Porter { plugin, behind, timeout })),
            listed: false,
            watch,
            warnings: Vec::new(),
            digest,
        }
    }
}
