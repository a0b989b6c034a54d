//! What a HomeClaw plugin says of itself: the same in every document; "Plugin Registration" §3.1.

use crate::dialect::fields::{Field, Fields, Findings};
use crate::dialect::tree::{Node, Value};
use crate::dialect::urls;
use crate::model::porter::Plugin;

use super::capability;

/// `id`, by either of its names, and where it stands.
pub(super) fn id<'a>(fields: &mut Fields<'a>, findings: &mut Findings) -> Option<(String, Node<'a>)> {
    if fields.has("plugin_id") && !fields.has("id") {
        return fields.need_text("plugin_id", "\"weather\"", findings);
    }
    let id = fields.need_text("id", "\"weather\"", findings);
    // Beside `id` it says the same once more.
    fields.take("plugin_id");
    id
}

/// For people; the id, where there is none.
pub(super) fn name(fields: &mut Fields, id: Option<&String>, findings: &mut Findings) -> Option<String> {
    if let Some(field) = fields.take_some("name") {
        let text = field.text(findings)?;
        if !text.trim().is_empty() {
            return Some(text);
        }
    }
    fields.warn_of_missing("name", "the id is shown instead", findings);
    id.cloned()
}

/// All but `id` and `name`.
pub(super) fn plugin(fields: &mut Fields, findings: &mut Findings) -> Option<Plugin> {
    let description = fields.need_text("description", "\"What it does, and when to choose it\"", findings);
    let description_long = fields.take_text("description_long", findings);
    let version = fields.take_some("version").and_then(|field| field.text_as_written(findings));
    let keywords = fields.take_some("keywords").and_then(|field| keywords(&field, findings));
    let health_check_url = fields.take_some("health_check_url").and_then(|field| urls::url(&field, findings));
    let capabilities =
        fields.take_some("capabilities").map(|field| capability::capabilities(&field, findings));
    Some(Plugin {
        id: String::new(),
        name: String::new(),
        description: description?.0,
        description_long,
        version: version.filter(|version| !version.trim().is_empty()),
        keywords: keywords.unwrap_or_default(),
        capabilities: capabilities.unwrap_or_default(),
        health_check_url,
    })
}

/// Warns of an id that has nothing to do with the directory's name, which is the member's.
pub(super) fn compare(id: &str, node: Node, dir_name: &str, findings: &mut Findings) {
    if normal(id) != normal(dir_name) {
        let message =
            format!("is {id:?}, but the directory is called {dir_name:?}, and that is the member's name");
        findings.warn(node.place(), "id", message);
    }
}

/// A list; one word needs none.
fn keywords(field: &Field, findings: &mut Findings) -> Option<Vec<String>> {
    if let Value::Text(word) = field.node.value() {
        return Some(vec![word]);
    }
    field.items(findings)?.iter().map(|item| item.text_as_written(findings)).collect()
}

/// Ids are looked up so.
fn normal(id: &str) -> String {
    id.trim().to_lowercase().replace(['-', ' '], "_")
}
