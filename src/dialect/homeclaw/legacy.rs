//! `config.yml` beside a Python class, and no other manifest: the older way; "Plugin Standard" §5.2.
//! It is the plugin's own configuration, too, so nothing in it is unknown.

use serde_json::Map;

use crate::dialect::Paper;
use crate::dialect::fields::{Fields, Findings};
use crate::dialect::tree::{Node, Value};
use crate::model::RestartPolicy;
use crate::model::porter::{Capability, Kind, Parameter, Plugin};

use super::behind::Config;
use super::{Sheet, capability, plugin};

pub(super) fn sheet(top: Node, paper: &Paper, findings: &mut Findings) -> Option<Sheet> {
    let mut fields = Fields::of(top, "", findings)?;
    let id = fields.take_text("id", findings).unwrap_or_else(|| {
        fields.warn_of_missing("id", "the directory's name is taken instead", findings);
        paper.dir_name.to_owned()
    });
    let name = fields.take_text("name", findings).unwrap_or_else(|| id.clone());
    let plugin = plugin::plugin(&mut fields, findings);
    let parameters =
        fields.take_some("parameters").filter(|field| matches!(field.node.value(), Value::List(_)));
    let parameters = parameters.map(|field| capability::parameters(&field, findings));
    let behind = Config::none().inline(None, paper.beside, findings);
    let mut plugin = Plugin { id, name, ..plugin? };
    if let Some(parameters) = parameters
        && plugin.capabilities.is_empty()
    {
        plugin.capabilities = vec![run(&plugin, parameters)];
    }
    let (behind, timeout) = behind?;
    Some(Sheet { plugin, behind, timeout, restart: RestartPolicy::default(), watch: None })
}

/// The plugin's only method, which takes what the configuration does not hold.
fn run(plugin: &Plugin, parameters: Vec<Parameter>) -> Capability {
    let said = Parameter {
        name: "user_input".into(),
        kind: Kind::String,
        required: false,
        default: None,
        description: Some("What the user has said".into()),
        rest: Map::new(),
    };
    let is_said = parameters.iter().any(|parameter| parameter.name == said.name);
    // Their values stand in the configuration.
    let optional = parameters.into_iter().map(|parameter| Parameter { required: false, ..parameter });
    Capability {
        id: "run".into(),
        name: plugin.name.clone(),
        description: plugin.description.clone(),
        parameters: (!is_said).then_some(said).into_iter().chain(optional).collect(),
        ..Capability::default()
    }
}
