//! Arguments that a tool wants repeated in headers, `x-mcp-header` in its input schema; MCP 2026-07-28.

use hyper::header::{HeaderMap, HeaderName};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::mcp::{Params, header_text, header_value};

/// Deeper schemas have no such arguments.
const DEEPEST: usize = 16;

/// Where the arguments stand, and the headers that repeat them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ParamHeaders(Vec<(Vec<String>, HeaderName)>);

impl ParamHeaders {
    pub(super) fn of(schema: &RawValue) -> Self {
        let mut found = Self::default();
        if schema.get().contains("\"x-mcp-header\"")
            && let Ok(schema) = serde_json::from_str(schema.get())
        {
            found.collect(&schema, &mut Vec::new());
        }
        found
    }

    fn collect(&mut self, schema: &Value, path: &mut Vec<String>) {
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
        if path.len() >= DEEPEST {
            return;
        }
        for (name, property) in properties {
            path.push(name.clone());
            let annotated = property.get("x-mcp-header").and_then(Value::as_str);
            if let Some(header) = annotated.and_then(|name| format!("mcp-param-{name}").parse().ok()) {
                self.0.push((path.clone(), header));
            }
            self.collect(property, path);
            path.pop();
        }
    }

    /// The headers that go with these arguments.
    pub(super) fn write(&self, params: &Params) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (path, name) in &self.0 {
            if let Some(text) = argument(params, path) {
                headers.insert(name.clone(), header_value(&text));
            }
        }
        headers
    }

    /// Whether headers and arguments agree; else what does not.
    pub(super) fn check(&self, params: &Params, headers: &HeaderMap) -> Result<(), String> {
        for (path, name) in &self.0 {
            let (said, meant) = (headers.get(name), argument(params, path));
            let agree = match (said, &meant) {
                (None, None) => true,
                (Some(said), Some(meant)) => header_text(said).is_some_and(|text| text == meant.as_str()),
                _ => false,
            };
            if !agree {
                return Err(format!(
                    "the header {name} does not say what the argument {} says",
                    path.join(".")
                ));
            }
        }
        Ok(())
    }
}

/// As a header has it; `None` where there is none.
fn argument(params: &Params, path: &[String]) -> Option<String> {
    let arguments: Value = serde_json::from_str(params.get("arguments")?.get()).ok()?;
    match path.iter().try_fold(&arguments, |value, name| value.get(name))? {
        Value::String(text) => Some(text.clone()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
