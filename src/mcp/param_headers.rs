//! Arguments that a tool wants repeated in headers, `x-mcp-header` in its input schema; MCP 2026-07-28,
//! "Custom Headers from Tool Parameters".

use hyper::header::{HeaderMap, HeaderName};
use serde_json::value::RawValue;
use serde_json::{Number, Value};

use super::headers::{header_text, header_value};
use super::params::Params;

const ANNOTATION: &str = "x-mcp-header";
/// Where a schema has others in it, besides `properties`: nothing there has a place among the arguments
/// that could be told beforehand.
const PARTS: [&str; 21] = [
    "$defs",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "contentSchema",
    "definitions",
    "dependencies",
    "dependentSchemas",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "patternProperties",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// Where the arguments stand, and the headers that repeat them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParamHeaders(Vec<(Vec<String>, HeaderName)>);

impl ParamHeaders {
    /// Of the input schema of a tool. An error says what its annotations must not be: then the tool must not
    /// be used.
    pub fn of(schema: &RawValue) -> Result<Self, String> {
        let mut found = Self::default();
        // Nearly no schema has any.
        if schema.get().contains("\"x-mcp-header\"")
            && let Ok(schema) = serde_json::from_str(schema.get())
        {
            found.collect(&schema, &mut Vec::new())?;
        }
        Ok(found)
    }

    /// Goes no deeper than serde_json reads, 128 levels.
    fn collect(&mut self, schema: &Value, path: &mut Vec<String>) -> Result<(), String> {
        if let Some(annotation) = schema.get(ANNOTATION) {
            self.add(annotation, schema.get("type"), path)?;
        }
        for part in PARTS.iter().filter_map(|part| schema.get(part)) {
            if is_annotated(part) {
                return Err(format!("{ANNOTATION} stands where it belongs to no certain argument"));
            }
        }
        for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            path.push(name.clone());
            self.collect(property, path)?;
            path.pop();
        }
        Ok(())
    }

    fn add(&mut self, annotation: &Value, kind: Option<&Value>, path: &[String]) -> Result<(), String> {
        let name = annotation.as_str().filter(|name| !name.is_empty());
        let header = name.and_then(|name| format!("mcp-param-{name}").parse::<HeaderName>().ok());
        let header = header.ok_or_else(|| format!("{ANNOTATION} {annotation} is no name of a header"))?;
        if path.is_empty() || kind.is_some_and(|kind| !is_plain(kind)) {
            return Err(format!(
                "{ANNOTATION} {annotation} is on {}, and only text, integers and booleans can be in a header",
                if path.is_empty() { "all arguments".into() } else { format!("{:?}", path.join(".")) }
            ));
        }
        if self.0.iter().any(|(_, known)| *known == header) {
            return Err(format!("{ANNOTATION} {annotation} is there twice, and a header has one value"));
        }
        self.0.push((path.to_vec(), header));
        Ok(())
    }

    /// The headers that go with these arguments.
    pub fn write(&self, params: &Params) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let arguments = self.arguments(params);
        for (path, name) in &self.0 {
            if let Some(text) = argument(&arguments, path).and_then(text) {
                headers.insert(name.clone(), header_value(&text));
            }
        }
        headers
    }

    /// Whether headers and arguments agree; else what does not.
    pub fn check(&self, params: &Params, headers: &HeaderMap) -> Result<(), String> {
        let arguments = self.arguments(params);
        for (path, name) in &self.0 {
            let agree = match (headers.get(name), argument(&arguments, path)) {
                (None, meant) => meant.and_then(text).is_none(),
                (Some(said), Some(meant)) => header_text(said).is_some_and(|said| says(&said, meant)),
                (Some(_), None) => false,
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

    fn arguments(&self, params: &Params) -> Value {
        if self.0.is_empty() {
            return Value::Null;
        }
        let arguments = params.get("arguments");
        arguments.and_then(|arguments| serde_json::from_str(arguments.get()).ok()).unwrap_or_default()
    }
}

/// Somewhere in this part of a schema; names of properties are no annotations.
fn is_annotated(part: &Value) -> bool {
    match part {
        Value::Array(parts) => parts.iter().any(is_annotated),
        Value::Object(parts) => parts.iter().any(|(name, part)| match (name.as_str(), part) {
            (ANNOTATION, Value::String(_)) => true,
            ("const" | "enum" | "default" | "examples", _) => false,
            (_, part) => is_annotated(part),
        }),
        _ => false,
    }
}

/// Of a `type`, which may be a list.
fn is_plain(kind: &Value) -> bool {
    match kind {
        Value::String(kind) => matches!(kind.as_str(), "string" | "integer" | "boolean"),
        // What is null has no header.
        Value::Array(kinds) => kinds.iter().all(|kind| kind == "null" || is_plain(kind)),
        _ => false,
    }
}

fn argument<'a>(arguments: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(arguments, |value, name| value.get(name))
}

/// As a header has it; `None` for what has none.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn says(said: &str, meant: &Value) -> bool {
    let is_same_number = |meant: &Number| {
        let said = serde_json::from_str::<Number>(said).ok().and_then(|said| said.as_f64());
        said.zip(meant.as_f64()).is_some_and(|(said, meant)| said.total_cmp(&meant).is_eq())
    };
    text(meant).is_some_and(|meant| meant == said)
        // 42.0 is 42.
        || matches!(meant, Value::Number(meant) if is_same_number(meant))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(schema: &Value) -> Result<ParamHeaders, String> {
        ParamHeaders::of(&RawValue::from_string(schema.to_string()).unwrap())
    }

    fn params(arguments: Value) -> Params<'static> {
        Params::default().with("arguments", &arguments)
    }

    #[test]
    fn arguments_are_repeated_in_headers_wherever_they_stand() {
        let schema = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "size": {"type": ["integer", "null"], "x-mcp-header": "Size"},
            "where": {"properties": {"deep": {"type": "boolean", "x-mcp-header": "Deep"}}},
            "x-mcp-header": {"type": "number"},
        }});
        let headers = of(&schema).unwrap();
        let given =
            params(json!({"region": "Köln", "size": 42, "where": {"deep": true}, "x-mcp-header": 1.5}));
        let mut written = headers.write(&given);
        assert_eq!(written.len(), 3);
        assert_eq!(written["mcp-param-region"], "=?base64?S8O2bG4=?=");
        assert_eq!(written["mcp-param-deep"], "true");
        assert!(headers.check(&given, &written).is_ok());
        written.insert("mcp-param-size", "42.0".parse().unwrap());
        assert!(headers.check(&given, &written).is_ok());
        assert!(
            headers.check(&params(json!({"region": "Köln", "where": {"deep": true}})), &written).is_err()
        );
        let nothing = params(json!({"region": null, "size": null}));
        assert!(headers.write(&nothing).is_empty() && headers.check(&nothing, &HeaderMap::new()).is_ok());
        assert!(headers.check(&given, &HeaderMap::new()).is_err());
    }

    #[test]
    fn a_text_that_looks_like_a_number_is_none() {
        let headers = of(&json!({"properties": {"n": {"type": "string", "x-mcp-header": "N"}}})).unwrap();
        let written = HeaderMap::from_iter([("mcp-param-n".parse().unwrap(), "1.0".parse().unwrap())]);
        assert!(headers.check(&params(json!({"n": "1.0"})), &written).is_ok());
        assert!(headers.check(&params(json!({"n": "1"})), &written).is_err());
    }

    #[test]
    fn annotations_that_no_header_can_follow_are_told() {
        let on =
            |kind: Value, name: Value| json!({"properties": {"a": {"type": kind, "x-mcp-header": name}}});
        for wrong in [
            on(json!("string"), json!("")),
            on(json!("string"), json!(7)),
            on(json!("string"), json!("My Region")),
            on(json!("string"), json!("Region:Primary")),
            on(json!("string"), json!("Région")),
            on(json!("string"), json!("Region\t1")),
            on(json!("number"), json!("Score")),
            on(json!("object"), json!("Data")),
            on(json!("array"), json!("Items")),
            on(json!("null"), json!("Nil")),
            json!({"x-mcp-header": "All"}),
            json!({"properties": {
                "a": {"type": "string", "x-mcp-header": "Field"},
                "b": {"properties": {"c": {"type": "string", "x-mcp-header": "field"}}},
            }}),
            json!({"properties": {"a": {"items": {"type": "string", "x-mcp-header": "Item"}}}}),
            json!({"allOf": [{"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}]}),
            json!({"$defs": {"a": {"type": "string", "x-mcp-header": "A"}}}),
        ] {
            assert!(of(&wrong).is_err(), "{wrong}");
        }
        let harmless = json!({"properties": {"a": {"items": {"const": {"x-mcp-header": "a value"}}}}});
        assert_eq!(of(&harmless).unwrap(), ParamHeaders::default());
    }
}
