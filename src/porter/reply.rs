//! What a plugin has answered, before it becomes the result of a tool call.
//!
//! An answer that is a JSON object is read as PluginResult (HomeClaw, "Plugin Standard" §5.1), whichever of
//! its fields are there:
//!
//! - `success: false` is a failure; so is an `error` where there is neither `success` nor `text`.
//! - `text` is the text content. Without one it is what else the object says, as JSON.
//! - Structured content is the object without `request_id`, `plugin_id`, `success` and `error`, if that holds
//!   anything but `text`: so `metadata` stands there under its name, beside whatever else the plugin has
//!   said. `text` stays in it, since some clients show their model nothing but structured content.
//! - The text of a failure is the plugin's `error`; its `text`, if there is one, follows as another one.
//!
//! An array is its JSON, structured as `{"result": …}`. Anything else is a text.

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

/// See the module's page.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Reply {
    pub(super) success: bool,
    pub(super) text: String,
    /// Why it is no success.
    pub(super) error: Option<String>,
    pub(super) metadata: Option<Map<String, Value>>,
    /// Without `metadata`.
    pub(super) structured: Option<Map<String, Value>>,
}

/// What belongs to the request and not to what was asked for.
const ENVELOPE: [&str; 4] = ["request_id", "plugin_id", "success", "error"];

impl Reply {
    /// A PluginResult, or whatever else a plugin may say in JSON.
    pub(super) fn of_json(value: Value) -> Self {
        match value {
            Value::Object(object) => Self::of_object(object),
            Value::String(text) => Self::of_text(text),
            Value::Array(_) => {
                let text = value.to_string();
                let structured = Map::from_iter([("result".into(), value)]);
                Self { structured: Some(structured), ..Self::of_text(text) }
            }
            Value::Null => Self::of_text(String::new()),
            Value::Bool(_) | Value::Number(_) => Self::of_text(value.to_string()),
        }
    }

    pub(super) fn of_text(text: String) -> Self {
        Self { success: true, text, ..Self::default() }
    }

    /// What went wrong, in words for who asked.
    pub(super) fn failed(error: String) -> Self {
        Self { error: Some(error), ..Self::default() }
    }

    fn of_object(mut object: Map<String, Value>) -> Self {
        let error = object.get("error").and_then(reason);
        let success = match object.get("success") {
            Some(Value::Bool(success)) => *success,
            _ => error.is_none() || object.contains_key("text"),
        };
        let is_result = is_result(&object);
        let whole = Value::Object(object.clone());
        for field in ENVELOPE {
            object.remove(field);
        }
        let metadata = match object.remove("metadata") {
            Some(Value::Object(metadata)) => Some(metadata).filter(|metadata| !metadata.is_empty()),
            Some(Value::Null) | None => None,
            Some(other) => {
                object.insert("metadata".into(), other);
                None
            }
        };
        let text = match object.get("text") {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) => String::new(),
            Some(other) => other.to_string(),
            None if !is_result => whole.to_string(),
            None if object.is_empty() => String::new(),
            None => Value::Object(object.clone()).to_string(),
        };
        let structured = Some(object).filter(|object| object.keys().any(|name| name != "text"));
        Self { success, text, error, metadata, structured }
    }

    /// A text that takes the place of the plugin's.
    pub(super) fn retold(&mut self, text: String) -> String {
        if let Some(told @ Value::String(_)) =
            self.structured.as_mut().and_then(|object| object.get_mut("text"))
        {
            *told = text.clone().into();
        }
        std::mem::replace(&mut self.text, text)
    }

    pub(super) fn into_result(self) -> Box<RawValue> {
        self.into_result_with(Map::new())
    }

    /// As CallToolResult; MCP 2025-11-25 §tools.
    pub(super) fn into_result_with(self, meta: Map<String, Value>) -> Box<RawValue> {
        let mut texts = Vec::new();
        if !self.success {
            let silent = || "the plugin reported a failure, and not which".into();
            texts.push(self.error.filter(|error| !error.is_empty()).unwrap_or_else(silent));
        }
        if self.success || !self.text.is_empty() {
            texts.push(self.text.clone());
        }
        let content: Vec<Value> =
            texts.into_iter().map(|text| json!({"type": "text", "text": text})).collect();
        let mut result = Map::from_iter([("content".into(), content.into())]);
        if !self.success {
            result.insert("isError".into(), true.into());
        }
        if self.structured.is_some() || self.metadata.is_some() {
            let alone = || Map::from_iter([("text".into(), self.text.into())]);
            let mut structured = self.structured.unwrap_or_else(alone);
            structured.extend(self.metadata.map(|metadata| ("metadata".into(), metadata.into())));
            result.insert("structuredContent".into(), structured.into());
        }
        if !meta.is_empty() {
            result.insert("_meta".into(), meta.into());
        }
        // All keys are texts, and no number is infinite: it cannot fail.
        to_raw_value(&result).unwrap_or_default()
    }
}

/// It says of itself what a PluginResult says.
pub(super) fn is_result(object: &Map<String, Value>) -> bool {
    object.get("success").is_some_and(Value::is_boolean)
        || object.get("text").is_some_and(Value::is_string)
        || object.get("error").and_then(reason).is_some()
}

/// The words in what a plugin calls an error; `None` if it is empty.
pub(super) fn reason(error: &Value) -> Option<String> {
    match error {
        Value::Null | Value::Bool(_) => None,
        Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
        Value::Object(fields) => {
            let named =
                ["message", "error", "detail"].into_iter().find_map(|name| fields.get(name)?.as_str());
            Some(named.map_or_else(|| error.to_string(), Into::into))
        }
        Value::Array(_) | Value::Number(_) => Some(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(answer: Value) -> Value {
        serde_json::from_str(Reply::of_json(answer).into_result().get()).unwrap()
    }

    #[test]
    fn a_plugin_result_is_its_text() {
        let full = json!({"request_id": "r", "plugin_id": "p", "success": true, "text": "sunny", "error": null, "metadata": {}});
        assert_eq!(result(full), json!({"content": [{"type": "text", "text": "sunny"}]}));
        assert_eq!(result(json!({"text": "sunny"})), json!({"content": [{"type": "text", "text": "sunny"}]}));
        assert_eq!(result(json!({"success": true})), json!({"content": [{"type": "text", "text": ""}]}));
        let told = result(json!({"success": true, "request_id": "r", "temperature": 20}));
        assert_eq!(told["content"][0]["text"], r#"{"temperature":20}"#);
    }

    #[test]
    fn what_is_beside_the_text_is_structured_content() {
        let rich = json!({"success": true, "text": "sunny", "temperature": 20, "metadata": {"source": "x"}});
        assert_eq!(
            result(rich),
            json!({
                "content": [{"type": "text", "text": "sunny"}],
                "structuredContent": {"text": "sunny", "temperature": 20, "metadata": {"source": "x"}},
            })
        );
        let alone = json!({"success": true, "text": "sunny", "metadata": {"source": "x"}});
        assert_eq!(result(alone)["structuredContent"], json!({"text": "sunny", "metadata": {"source": "x"}}));
        let own = result(json!({"temperature": 20}));
        assert_eq!(own["content"][0]["text"], r#"{"temperature":20}"#);
        assert_eq!(own["structuredContent"], json!({"temperature": 20}));
        assert_eq!(result(json!([1, 2]))["structuredContent"], json!({"result": [1, 2]}));
        assert_eq!(result(json!(42)), json!({"content": [{"type": "text", "text": "42"}]}));
    }

    #[test]
    fn a_failure_is_told_in_the_plugins_words() {
        let failure = |answer: Value| {
            let result = result(answer);
            assert_eq!(result["isError"], true, "{result}");
            result["content"].as_array().unwrap().iter().map(|part| part["text"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(failure(json!({"success": false, "error": "no such city"})), ["no such city"]);
        assert_eq!(
            failure(json!({"success": false, "error": {"message": "no"}, "text": "sorry"})),
            ["no", "sorry"]
        );
        assert_eq!(failure(json!({"error": "no such city"})), ["no such city"]);
        assert_eq!(failure(json!({"success": false})), ["the plugin reported a failure, and not which"]);
        assert_eq!(result(json!({"text": "well", "error": "partly"}))["isError"], Value::Null);
        assert_eq!(result(json!({"text": "well", "error": ""}))["isError"], Value::Null);
    }

    #[test]
    fn a_text_that_is_told_again_is_so_everywhere() {
        let mut reply = Reply::of_json(json!({"text": "raw", "temperature": 20}));
        assert_eq!(reply.retold("fine".into()), "raw");
        let result: Value = serde_json::from_str(reply.into_result().get()).unwrap();
        assert_eq!(result["content"][0]["text"], "fine");
        assert_eq!(result["structuredContent"], json!({"text": "fine", "temperature": 20}));
    }
}
