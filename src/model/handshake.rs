//! What a member says of itself when the hall shakes its hand.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The outcome of shaking hands and of `tools/list`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Handshake {
    /// The revision that the member chose, for example `2025-06-18`; MCP lifecycle.
    pub protocol_version: String,
    /// In the order in which the member lists them.
    pub tools: Arc<[Tool]>,
    #[serde(default)]
    pub offer: Arc<Offer>,
}

/// What a member offers besides its tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Offer {
    /// `capabilities` of its handshake; MCP lifecycle, "capability negotiation".
    #[serde(default)]
    pub capabilities: Map<String, Value>,
    #[serde(default)]
    pub server_info: Value,
    #[serde(default)]
    pub instructions: Option<String>,
    /// It speaks the revisions without sessions, 2026-07-28 and later.
    #[serde(default)]
    pub stateless: bool,
}

impl Offer {
    /// It has said that it can do this, for example `resources` or `resources/subscribe`.
    pub fn has(&self, capability: &str) -> bool {
        let (name, detail) = capability.split_once('/').unwrap_or((capability, ""));
        match self.capabilities.get(name) {
            None | Some(Value::Null) => false,
            Some(found) => detail.is_empty() || found.get(detail) == Some(&Value::Bool(true)),
        }
    }
}

/// One tool as the member lists it; MCP tools.
#[derive(Clone, Debug)]
pub struct Tool {
    pub name: String,
    pub description: String,
    /// JSON Schema, untouched.
    pub input_schema: Arc<RawValue>,
    /// Whatever else the member says of it, untouched: title, annotations, output schema.
    pub rest: BTreeMap<String, Arc<RawValue>>,
}

impl PartialEq for Tool {
    fn eq(&self, other: &Self) -> bool {
        let rest = |tool: &Self| {
            tool.rest.iter().map(|(name, value)| (name.clone(), value.get().to_owned())).collect::<Vec<_>>()
        };
        self.name == other.name
            && self.description == other.description
            && self.input_schema.get() == other.input_schema.get()
            && rest(self) == rest(other)
    }
}

impl Tool {
    /// Under another name, with all that the member said of it.
    pub fn named<'a>(&'a self, name: &'a str) -> NamedAs<'a> {
        NamedAs { name, tool: self }
    }
}

/// A tool as it is listed under some name.
#[derive(Debug, Clone, Copy)]
pub struct NamedAs<'a> {
    name: &'a str,
    tool: &'a Tool,
}

impl Serialize for NamedAs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", self.name)?;
        map.serialize_entry("description", &self.tool.description)?;
        map.serialize_entry("inputSchema", &*self.tool.input_schema)?;
        for (name, value) in &self.tool.rest {
            map.serialize_entry(name, &**value)?;
        }
        map.end()
    }
}

impl Serialize for Tool {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.named(&self.name).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Tool {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let mut rest = BTreeMap::<String, Arc<RawValue>>::deserialize(deserializer)?;
        let mut text = |field: &str| -> Result<Option<String>, D::Error> {
            let Some(value) = rest.remove(field) else { return Ok(None) };
            serde_json::from_str(value.get())
                .map_err(|_| D::Error::custom(format!("the {field} of a tool is no text: {}", value.get())))
        };
        let name = text("name")?.ok_or_else(|| D::Error::missing_field("name"))?;
        // `null` is as good as nothing.
        let description = text("description")?.unwrap_or_default();
        let input_schema = rest.remove("inputSchema").unwrap_or_else(any_object);
        Ok(Self { name, description, input_schema, rest })
    }
}

fn any_object() -> Arc<RawValue> {
    let object = RawValue::from_string(r#"{"type":"object"}"#.into());
    object.map_or_else(|_| RawValue::NULL.to_owned().into(), Arc::from)
}
