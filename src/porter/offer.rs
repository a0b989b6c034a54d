//! What a plugin is offered as: one tool for each capability, or one for the plugin. Made once, by `toolbox`.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::request;
use crate::model::porter::{Capability, Kind, Parameter, Plugin};

/// Characters of a name; MCP 2025-11-25 §tools has 128.
const LONGEST_NAME: usize = 100;
/// A field of a parameter that the standard does not know and JSON Schema does, and what it must be for a client to
/// read the schema.
type SchemaField = (&'static str, fn(&Value) -> bool);
const SCHEMA_FIELDS: [SchemaField; 7] = [
    ("enum", |value| value.as_array().is_some_and(|all| !all.is_empty())),
    ("items", Value::is_object),
    ("format", Value::is_string),
    ("minimum", Value::is_number),
    ("maximum", Value::is_number),
    ("minLength", Value::is_u64),
    ("maxLength", Value::is_u64),
];

/// One tool.
#[derive(Debug)]
pub(super) struct Offered {
    pub(super) name: String,
    /// What is asked for; `None`: the plugin as such.
    pub(super) capability: Option<Arc<Capability>>,
    pub(super) parameters: Vec<Parameter>,
}

/// A plugin's tools, and how they are listed.
pub(super) fn of(plugin: &Plugin) -> (Vec<Offered>, Value) {
    let mut taken = HashSet::new();
    if plugin.capabilities.is_empty() {
        let parameters = request::parameters();
        let name = name(&plugin.id, &mut taken);
        let listed = json!({
            "name": &name,
            "title": plugin.name,
            "description": plugin.description,
            "inputSchema": schema(&parameters),
            "_meta": about_plugin(plugin),
        });
        return (vec![Offered { name, capability: None, parameters }], json!({"tools": [listed]}));
    }
    let (mut offered, mut listed) = (Vec::new(), Vec::new());
    for capability in &plugin.capabilities {
        let name = name(&capability.id, &mut taken);
        listed.push(json!({
            "name": &name,
            "title": capability.name,
            "description": description(capability),
            "inputSchema": schema(&capability.parameters),
            "_meta": about(plugin, capability),
        }));
        let (capability, parameters) = (Arc::new(capability.clone()), capability.parameters.clone());
        offered.push(Offered { name, capability: Some(capability), parameters });
    }
    (offered, json!({"tools": listed}))
}

/// An id in the letters that clients accept, and no other tool's.
fn name(id: &str, taken: &mut HashSet<String>) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '-' };
    let short: String = id.chars().map(plain).take(LONGEST_NAME).collect();
    let short = if short.is_empty() { "plugin".into() } else { short };
    let others = (2_u32..).map(|number| format!("{short}-{number}"));
    let free = std::iter::once(short.clone()).chain(others).find(|name| !taken.contains(name));
    let free = free.unwrap_or(short);
    taken.insert(free.clone());
    free
}

/// What is said of the output stands here and is no output schema: plugins write examples where a schema is
/// expected, and a client refuses every result that is not as its schema says.
fn description(capability: &Capability) -> String {
    match capability.output_description.as_deref().map(str::trim).filter(|output| !output.is_empty()) {
        Some(output) => format!("{}\n\nReturns: {output}", capability.description.trim_end()),
        None => capability.description.clone(),
    }
}

fn schema(parameters: &[Parameter]) -> Value {
    let properties: Map<String, Value> =
        parameters.iter().map(|parameter| (parameter.name.clone(), property(parameter))).collect();
    let must_be_given = |parameter: &&Parameter| parameter.required && parameter.default.is_none();
    let required: Vec<&str> =
        parameters.iter().filter(must_be_given).map(|parameter| &*parameter.name).collect();
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    schema
}

fn property(parameter: &Parameter) -> Value {
    let mut property = json!({"type": parameter.kind});
    // Some models' APIs refuse an array of nobody knows what.
    if parameter.kind == Kind::Array {
        property["items"] = json!({});
    }
    for (field, is_right) in SCHEMA_FIELDS {
        if let Some(value) = parameter.rest.get(field).filter(|value| is_right(value)) {
            property[field] = value.clone();
        }
    }
    if let Some(description) = &parameter.description {
        property["description"] = description.as_str().into();
    }
    if let Some(default) = &parameter.default {
        property["default"] = default.clone();
    }
    property
}

fn about_plugin(plugin: &Plugin) -> Map<String, Value> {
    let mut meta = Meta::default();
    meta.add("plugin", &plugin.id);
    meta.add("keywords", &plugin.keywords);
    meta.add("description_long", &plugin.description_long);
    meta.0
}

fn about(plugin: &Plugin, capability: &Capability) -> Map<String, Value> {
    let mut meta = Meta(about_plugin(plugin));
    meta.add("capability", &capability.id);
    meta.add("post_process", capability.post_process);
    meta.add("post_process_prompt", &capability.post_process_prompt);
    meta.add("output_description", &capability.output_description);
    meta.add("method", &capability.method);
    meta.add("path", &capability.path);
    for (field, value) in &capability.rest {
        meta.add(field, value);
    }
    let unknown: Map<String, Value> = capability
        .parameters
        .iter()
        .filter(|parameter| !parameter.rest.is_empty())
        .map(|parameter| (parameter.name.clone(), parameter.rest.clone().into()))
        .collect();
    meta.add("parameters", unknown);
    meta.0
}

/// What is worth knowing and has no place in a tool.
#[derive(Default)]
struct Meta(Map<String, Value>);

impl Meta {
    /// Not what says nothing, and nothing twice.
    fn add(&mut self, name: &str, value: impl serde::Serialize) {
        let says_nothing = |value: &Value| match value {
            Value::Null | Value::Bool(false) => true,
            Value::Array(all) => all.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        if let Some(value) = serde_json::to_value(value).ok().filter(|value| !says_nothing(value)) {
            self.0.entry(format!("homeclaw/{name}")).or_insert(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capability(id: &str, parameters: Vec<Parameter>) -> Capability {
        let (name, description) = (format!("Name of {id}"), format!("Does {id}."));
        Capability { id: id.into(), name, description, parameters, ..Capability::default() }
    }

    #[test]
    fn a_capability_is_a_tool_with_all_that_is_known_of_it() {
        let city = Parameter {
            name: "city".into(),
            kind: Kind::String,
            required: true,
            default: None,
            description: Some("A city".into()),
            rest: Map::from_iter([("enum".into(), json!(["Bern"])), ("hint".into(), json!("x"))]),
        };
        let days = Parameter { name: "days".into(), default: Some(json!(3)), ..city.clone() };
        let days = Parameter { kind: Kind::Integer, description: None, rest: Map::new(), ..days };
        let tags = Parameter { name: "tags".into(), kind: Kind::Array, required: false, ..days.clone() };
        let tags = Parameter { default: None, ..tags };
        let fetch = Capability {
            output_description: Some(r#"{"text": "string"}"#.into()),
            post_process: true,
            rest: Map::from_iter([("icon".into(), json!("sun"))]),
            ..capability("fetch", vec![city, days, tags])
        };
        let plugin = Plugin { id: "weather".into(), capabilities: vec![fetch], ..Plugin::default() };
        let (offered, listed) = of(&plugin);
        assert_eq!(offered[0].name, "fetch");
        assert_eq!(
            listed["tools"][0],
            json!({
                "name": "fetch",
                "title": "Name of fetch",
                "description": "Does fetch.\n\nReturns: {\"text\": \"string\"}",
                "inputSchema": {
                    "type": "object",
                    "properties": {
                        "city": {"type": "string", "description": "A city", "enum": ["Bern"]},
                        "days": {"type": "integer", "default": 3},
                        "tags": {"type": "array", "items": {}},
                    },
                    "required": ["city"],
                },
                "_meta": {
                    "homeclaw/plugin": "weather",
                    "homeclaw/capability": "fetch",
                    "homeclaw/post_process": true,
                    "homeclaw/output_description": "{\"text\": \"string\"}",
                    "homeclaw/icon": "sun",
                    "homeclaw/parameters": {"city": {"enum": ["Bern"], "hint": "x"}},
                },
            })
        );
    }

    #[test]
    fn every_tool_has_a_name_of_its_own_that_clients_accept() {
        let ids = ["a b", "a-b", "a_b", "a/b", "Ä", "", "a.b"];
        let capabilities = ids.map(|id| capability(id, Vec::new())).to_vec();
        let (offered, _) = of(&Plugin { capabilities, ..Plugin::default() });
        let names: Vec<&str> = offered.iter().map(|tool| &*tool.name).collect();
        assert_eq!(names, ["a-b", "a-b-2", "a_b", "a-b-3", "-", "plugin", "a.b"]);
    }

    #[test]
    fn a_plugin_without_capabilities_is_one_tool() {
        let plugin = Plugin { id: "mail".into(), name: "Mail Plugin".into(), ..Plugin::default() };
        let (offered, listed) = of(&plugin);
        assert_eq!((offered.len(), &*offered[0].name), (1, "mail"));
        let schema = &listed["tools"][0]["inputSchema"];
        assert_eq!(schema["required"], json!(["user_input"]));
        let fields: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
        let expected = [
            "app_id",
            "channel_name",
            "channel_type",
            "chat_context",
            "metadata",
            "request_id",
            "user_id",
            "user_input",
            "user_name",
        ];
        assert_eq!(fields, expected);
    }
}
