//! Plugins that register themselves: the body of `POST /api/plugins/register`; "Plugin Standard" §3 and
//! "Plugin Registration" §7.

use std::path::Path;

use crate::dialect::fields::{Fields, Findings};
use crate::dialect::tree::{Document, Node, Value};
use crate::dialect::{LARGEST_MANIFEST, digest};
use crate::model::porter::Plugin;
use crate::model::{Diagnosis, Manifest, Place, RestartPolicy};

use super::behind::{self, Config};
use super::{Sheet, capability, plugin};

/// A plugin that may be taken up.
#[derive(Debug)]
pub struct Registered {
    /// As the plugin wrote it.
    pub id: String,
    pub manifest: Manifest,
}

/// Why a plugin is not taken up.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// Fields that are missing or of the wrong type: at least one. 422.
    Fields(Vec<FieldFault>),
    /// All is there, and it cannot be so. 400.
    Meaning(String),
}

/// What is wrong with one field.
#[derive(Debug, PartialEq, Eq)]
pub struct FieldFault {
    /// A path into the body: `config.base_url`; `body` for the whole.
    pub field: String,
    pub message: String,
}

/// The fields that must be there and say something.
const NEEDED: [&str; 5] = ["plugin_id", "id", "name", "description", "health_check_url"];

/// Reads a body. `dir` is the directory that the plugin's process gets, absolute.
pub fn registration(body: &[u8], dir: &Path) -> Result<Registered, Refused> {
    let whole = |message: String| Refused::Fields(vec![FieldFault { field: "body".into(), message }]);
    if body.len() > LARGEST_MANIFEST {
        return Err(whole(format!("is {} bytes long: it may have {LARGEST_MANIFEST}", body.len())));
    }
    let document = Document::json(body).map_err(|fault| {
        let place = fault.place.map(|Place { line, column }| format!("line {line}, column {column}: "));
        whole(format!("{}{}", place.unwrap_or_default(), fault.message))
    })?;
    let top = document.top();
    let meaningless = meaningless(top);
    let mut findings = Findings::new(Path::new("body"));
    let sheet = sheet(top, &mut findings);
    let is_missing =
        |fault: &Diagnosis| meaningless.iter().all(|(name, _)| fault.field.as_deref() != Some(*name));
    let faults: Vec<FieldFault> =
        findings.faults.into_iter().filter(is_missing).map(FieldFault::new).collect();
    if !faults.is_empty() {
        return Err(Refused::Fields(faults));
    }
    if let Some((_, why)) = meaningless.into_iter().next() {
        return Err(Refused::Meaning(why));
    }
    // Without a fault it is whole.
    let sheet = sheet.ok_or_else(|| whole("cannot be read".into()))?;
    let text = top.to_json().map(|value| value.to_string()).unwrap_or_default();
    let manifest = sheet.manifest(dir, digest(&[text.as_bytes()]));
    Ok(Registered {
        id: manifest.name.clone(),
        manifest: Manifest { warnings: findings.warnings, ..manifest },
    })
}

impl FieldFault {
    fn new(diagnosis: Diagnosis) -> Self {
        Self {
            field: diagnosis.field.unwrap_or_else(|| "body".into()),
            message: diagnosis.message.replace(" in the object that begins here", ""),
        }
    }
}

/// The fields that are there, of the right type, and say nothing that can be meant.
fn meaningless(top: Node) -> Vec<(&'static str, String)> {
    let Value::Object(pairs) = top.value() else { return Vec::new() };
    let text = |name: &str| {
        let (_, node) = pairs.iter().find(|(key, _)| key.text == name)?;
        match node.value() {
            Value::Text(text) => Some(text),
            _ => None,
        }
    };
    let is_blank = |name: &&'static str| text(name).is_some_and(|text| text.trim().is_empty());
    let blank = NEEDED.into_iter().filter(is_blank).map(|name| (name, format!("{name} is empty")));
    let strange = text("type")
        .filter(|word| behind::external_kind(word).is_none())
        .map(|word| ("type", format!("type is {word:?}; it must be \"http\", \"subprocess\" or \"mcp\"")));
    blank.chain(strange).collect()
}

fn sheet(top: Node, findings: &mut Findings) -> Option<Sheet> {
    let mut fields = Fields::of(top, "", findings)?;
    let id = if fields.has("id") && !fields.has("plugin_id") {
        fields.need_text("id", "\"slack-bot\"", findings)
    } else {
        let id = fields.need_text("plugin_id", "\"slack-bot\"", findings);
        fields.take("id");
        id
    };
    let name = fields.need_text("name", "\"Slack Plugin\"", findings);
    let health_example = "\"http://127.0.0.1:3100/health\"";
    if !fields.has("health_check_url") {
        let null = fields.need("health_check_url", health_example, findings);
        null.and_then(|field| field.text(findings));
    }
    let plugin = plugin::plugin(&mut fields, findings);
    let tools = fields.take_some("tools").map(|field| capability::capabilities(&field, findings));
    let kind = fields.need("type", "\"http\"", findings).and_then(|field| field.text(findings));
    let kind = kind.and_then(|word| behind::external_kind(&word));
    let config = match kind {
        Some(kind) => {
            Config::take(&mut fields, kind, findings).and_then(|config| config.external(kind, findings))
        }
        None => {
            let field = fields.need("config", "{\"base_url\": \"http://127.0.0.1:3100\"}", findings);
            field.and_then(|field| Fields::of(field.node, &field.name, findings));
            None
        }
    };
    fields.warn_of_the_rest(findings);
    let (behind, timeout) = config?;
    let mut plugin = Plugin { id: id?.0, name: name?.0, ..plugin? };
    if let Some(tools) = tools
        && plugin.capabilities.is_empty()
    {
        plugin.capabilities = tools;
    }
    Some(Sheet { plugin, behind, timeout, restart: RestartPolicy::default(), watch: Some(Vec::new()) })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value as Json, json};

    use super::*;
    use crate::model::Transport;
    use crate::model::porter::Behind;

    fn good() -> Json {
        json!({
            "plugin_id": "slack-bot", "name": "Slack Plugin", "description": "Post messages.",
            "health_check_url": "http://127.0.0.1:3100/health", "type": "http",
            "config": {"base_url": "http://127.0.0.1:3100", "path": "/run", "timeout_sec": 30},
            "capabilities": [{"id": "post_message", "name": "Post", "description": "It posts.", "method": "POST",
                "path": "/post", "parameters": [{"name": "channel", "type": "string", "required": true}]}],
        })
    }

    fn with(field: &str, value: Json) -> Json {
        let mut body = good();
        body[field] = value;
        body
    }

    fn without(field: &str) -> Json {
        let mut body = good();
        body.as_object_mut().unwrap().remove(field);
        body
    }

    fn register(body: &Json) -> Result<Registered, Refused> {
        registration(body.to_string().as_bytes(), Path::new("/x"))
    }

    /// The names of the fields that are at fault.
    fn fields(body: &Json) -> Vec<String> {
        match register(body) {
            Err(Refused::Fields(faults)) => faults.into_iter().map(|fault| fault.field).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_documented_body_is_a_plugin() {
        let Registered { id, manifest } = register(&good()).unwrap();
        assert_eq!((id.as_str(), manifest.transport), ("slack-bot", Transport::Rest));
        assert_eq!(manifest.health_interval, Some(Duration::from_secs(10)));
        assert_eq!((manifest.dir.as_path(), manifest.watch.as_deref()), (Path::new("/x"), Some(&[][..])));
        assert!(manifest.warnings.is_empty(), "{:?}", manifest.warnings);
        let porter = manifest.porter.unwrap();
        assert_eq!(porter.plugin.capabilities[0].parameters[0].name, "channel");
        assert!(matches!(porter.behind, Behind::Rest { .. }));
        let spaced = serde_json::to_string_pretty(&good()).unwrap();
        let again = registration(spaced.as_bytes(), Path::new("/x")).unwrap();
        assert_eq!(again.manifest.digest, manifest.digest, "white space says nothing");
        let mut by_id = without("plugin_id");
        by_id["id"] = "Slack Bot".into();
        assert_eq!(register(&by_id).unwrap().id, "Slack Bot");
        let mut tools = without("capabilities");
        tools["tools"] = good()["capabilities"].clone();
        let porter = register(&tools).unwrap().manifest.porter.unwrap();
        assert_eq!(porter.plugin.capabilities.len(), 1);
    }

    #[test]
    fn every_field_that_is_missing_or_of_the_wrong_type_is_named() {
        for field in ["plugin_id", "name", "description", "health_check_url", "type", "config"] {
            assert_eq!(fields(&without(field)), [field]);
            assert_eq!(fields(&with(field, json!(3))), [field]);
            assert_eq!(fields(&with(field, json!(null))), [field]);
        }
        assert_eq!(
            fields(&json!({})),
            ["plugin_id", "name", "health_check_url", "description", "type", "config"]
        );
        assert_eq!(fields(&with("config", json!({}))), ["config.base_url"]);
        assert_eq!(fields(&with("config", json!({"base_url": 3}))), ["config.base_url"]);
        assert_eq!(fields(&with("health_check_url", json!("health"))), ["health_check_url"]);
        assert_eq!(fields(&with("capabilities", json!([{"id": 1}]))), ["capabilities[0].id"]);
        assert_eq!(fields(&json!([])), ["body"]);
        let Err(Refused::Fields(faults)) = registration(b"{\"a\"", Path::new("/x")) else { panic!() };
        assert_eq!(faults[0].field, "body");
        assert!(faults[0].message.starts_with("line 1, column 4: "), "{faults:?}");
        let Err(Refused::Fields(faults)) = register(&without("name")) else { panic!() };
        assert_eq!(faults[0].message, "is missing; add \"name\": \"Slack Plugin\"");
    }

    #[test]
    fn what_is_there_and_cannot_be_meant_is_told_in_words() {
        let meaning = |body: Json| match register(&body) {
            Err(Refused::Meaning(why)) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(meaning(with("plugin_id", json!("  "))), "plugin_id is empty");
        assert_eq!(meaning(with("health_check_url", json!(""))), "health_check_url is empty");
        for strange in ["inline", "ftp", ""] {
            let wanted = format!("type is {strange:?}; it must be \"http\", \"subprocess\" or \"mcp\"");
            assert_eq!(meaning(with("type", json!(strange))), wanted);
        }
        assert_eq!(
            fields(&{
                let mut body = with("type", json!("ftp"));
                body["name"] = json!(3);
                body
            }),
            ["name"],
            "what is missing or mistyped comes first"
        );
    }
}
