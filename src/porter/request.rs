//! What a plugin is asked: the PluginRequest of HomeClaw, "Plugin Standard" §5.1. Made by `toolbox`.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::model::porter::{Capability, Kind, Parameter};

/// One call of a plugin.
#[derive(Debug)]
pub(super) struct Asked {
    /// `None`: the plugin has no capabilities, and is asked with what the user has said.
    pub(super) capability: Option<Arc<Capability>>,
    /// Checked, and with their defaults.
    pub(super) arguments: Map<String, Value>,
    /// The PluginRequest; for a capability with `capability_id` and `capability_parameters`.
    pub(super) request: Value,
}

/// The fields of a request that are texts, and what they mean to who fills them in.
const TEXTS: [(&str, &str); 8] = [
    ("user_input", "What the user has said"),
    ("user_id", "Who the user is"),
    ("user_name", "What the user is called"),
    ("channel_name", "The channel that the user speaks through"),
    ("channel_type", "What kind of channel that is"),
    ("app_id", "The application that asks"),
    ("chat_context", "What was said lately"),
    ("request_id", "An id of this request; one is made if none is given"),
];
const METADATA: &str = "metadata";

impl Asked {
    pub(super) fn new(
        plugin: &str, capability: Option<Arc<Capability>>, arguments: Map<String, Value>,
    ) -> Self {
        let mut request: Map<String, Value> =
            TEXTS.iter().map(|(name, _)| ((*name).into(), Value::String(String::new()))).collect();
        request.insert(METADATA.into(), Value::Object(Map::new()));
        match &capability {
            None => request.extend(arguments.clone()),
            Some(capability) => {
                if let Some(Value::String(said)) = arguments.get("user_input") {
                    request.insert("user_input".into(), said.as_str().into());
                }
                request.insert("capability_id".into(), capability.id.as_str().into());
                request.insert("capability_parameters".into(), arguments.clone().into());
            }
        }
        request.insert("plugin_id".into(), plugin.into());
        if request.get("request_id").is_none_or(|id| id == "") {
            request.insert("request_id".into(), random_id().into());
        }
        Self { capability, arguments, request: request.into() }
    }
}

/// What a plugin without capabilities takes.
pub(super) fn parameters() -> Vec<Parameter> {
    let parameter = |name: &str, kind, about: &str| Parameter {
        name: name.into(),
        kind,
        required: name == "user_input",
        default: None,
        description: Some(about.into()),
        rest: Map::new(),
    };
    let texts = TEXTS.iter().map(|(name, about)| parameter(name, Kind::String, about));
    texts.chain([parameter(METADATA, Kind::Object, "Whatever else the plugin is to know")]).collect()
}

/// Tells one request from another; nothing secret.
fn random_id() -> String {
    let mut bits = [0; 16];
    // The kernel's source does not fail once the machine is up.
    let _ = getrandom::fill(&mut bits);
    format!("{:032x}", u128::from_ne_bytes(bits))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn arguments(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn every_documented_field_is_there_whatever_is_given() {
        let given =
            json!({"user_input": "hello", "user_id": "u", "metadata": {"a": 1}, "plugin_id": "x", "b": 2});
        let mut request = Asked::new("weather", None, arguments(given)).request;
        let id = request["request_id"].take();
        assert_eq!(id.as_str().map(str::len), Some(32));
        let expected = json!({
            "request_id": null, "plugin_id": "weather", "user_input": "hello", "user_id": "u", "user_name": "",
            "channel_name": "", "channel_type": "", "app_id": "", "chat_context": "", "metadata": {"a": 1}, "b": 2,
        });
        assert_eq!(request, expected);
        let named = Asked::new("weather", None, arguments(json!({"user_input": "", "request_id": "r"})));
        assert_eq!(named.request["request_id"], "r");
    }

    #[test]
    fn a_capability_is_asked_for_by_its_id_and_parameters() {
        let capability = Arc::new(Capability { id: "fetch".into(), ..Capability::default() });
        let asked =
            Asked::new("weather", Some(capability), arguments(json!({"city": "Bern", "user_id": "u"})));
        assert_eq!(asked.request["capability_id"], "fetch");
        assert_eq!(asked.request["capability_parameters"], json!({"city": "Bern", "user_id": "u"}));
        // A parameter is the capability's own matter, but for what the user has said.
        assert_eq!((&asked.request["user_id"], &asked.request["user_input"]), (&json!(""), &json!("")));
    }
}
