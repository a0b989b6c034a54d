//! What a member says of itself when the hall shakes its hand.

use std::sync::Arc;

use serde_json::value::RawValue;

/// The outcome of `initialize` and `tools/list`.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Handshake {
    /// The revision that the member chose, for example `2025-06-18`; MCP lifecycle.
    pub protocol_version: String,
    /// In the order in which the member lists them.
    pub tools: Arc<[Tool]>,
}

/// One tool as the member lists it; MCP tools.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    pub name: String,
    #[serde(default, deserialize_with = "or_empty")]
    pub description: String,
    /// JSON Schema, untouched.
    #[serde(default = "any_object")]
    pub input_schema: Arc<RawValue>,
}

impl PartialEq for Tool {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.description == other.description
            && self.input_schema.get() == other.input_schema.get()
    }
}

/// `null` is as good as nothing.
fn or_empty<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text: Option<String> = serde::Deserialize::deserialize(deserializer)?;
    Ok(text.unwrap_or_default())
}

fn any_object() -> Arc<RawValue> {
    let object = RawValue::from_string(r#"{"type":"object"}"#.into());
    object.map_or_else(|_| RawValue::NULL.to_owned().into(), Arc::from)
}
