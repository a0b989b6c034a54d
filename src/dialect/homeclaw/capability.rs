//! Capabilities and their parameters; "Plugin Registration" §3.2 and §3.3.

use std::collections::HashSet;

use serde_json::Value as Json;

use crate::dialect::fields::{Field, Fields, Findings};
use crate::dialect::tree::Value;
use crate::dialect::urls;
use crate::model::porter::{Capability, Kind, Parameter};

const KINDS: [(&str, Kind); 6] = [
    ("string", Kind::String),
    ("number", Kind::Number),
    ("integer", Kind::Integer),
    ("boolean", Kind::Boolean),
    ("object", Kind::Object),
    ("array", Kind::Array),
];

const METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"];

pub(super) fn capabilities(list: &Field, findings: &mut Findings) -> Vec<Capability> {
    each(list, findings, capability, |capability| &capability.id)
}

pub(super) fn parameters(list: &Field, findings: &mut Findings) -> Vec<Parameter> {
    each(list, findings, parameter, |parameter| &parameter.name)
}

/// Reads all items, so that all faults are told at once. No two may have the same name.
fn each<T>(
    list: &Field, findings: &mut Findings, read: impl Fn(&Field, &mut Findings) -> Option<T>,
    name: impl Fn(&T) -> &String,
) -> Vec<T> {
    let (mut all, mut names) = (Vec::new(), HashSet::new());
    for item in list.items(findings).unwrap_or_default() {
        if findings.are_enough() {
            break;
        }
        let Some(one) = read(&item, findings) else { continue };
        if !names.insert(name(&one).clone()) {
            let message = format!("{:?} is already the name of another one in this list", name(&one));
            findings.fault(Some(item.node.place()), &item.name, message);
        }
        all.push(one);
    }
    all
}

fn capability(item: &Field, findings: &mut Findings) -> Option<Capability> {
    let mut fields = Fields::of(item.node, &item.name, findings)?;
    let id = fields.need_text("id", "\"fetch_weather\"", findings).map(|(id, _)| id);
    let name = fields.take_text("name", findings);
    let description = fields.take_text("description", findings);
    let parameters = fields.take_some("parameters").map(|field| parameters(&field, findings));
    let output_description =
        fields.take_some("output_description").and_then(|field| any_text(&field, findings));
    let post_process = fields.take_some("post_process").and_then(|field| field.flag(findings));
    let post_process_prompt = fields.take_text("post_process_prompt", findings);
    let method = fields.take_some("method").and_then(|field| method(&field, findings));
    let path = fields.take_some("path").and_then(|field| path(&field, findings));
    if name.is_none() {
        fields.warn_of_missing("name", "the id is shown instead", findings);
    }
    if description.is_none() {
        fields.warn_of_missing("description", "nobody is told when to choose it", findings);
    }
    let rest = fields.rest(findings);
    let id = id?;
    Some(Capability {
        name: name.unwrap_or_else(|| id.clone()),
        id,
        description: description.unwrap_or_default(),
        parameters: parameters.unwrap_or_default(),
        output_description,
        post_process: post_process.unwrap_or(false),
        post_process_prompt,
        method,
        path,
        rest,
    })
}

fn parameter(item: &Field, findings: &mut Findings) -> Option<Parameter> {
    let mut fields = Fields::of(item.node, &item.name, findings)?;
    let name = fields.need_text("name", "\"city\"", findings).map(|(name, _)| name);
    let kind = fields.take_some("type");
    let required = fields.take_some("required").and_then(|field| field.flag(findings));
    let default = fields.take_some("default");
    let description = fields.take_text("description", findings);
    let kind = match kind {
        Some(field) => field.one_of(&KINDS, findings),
        None => {
            fields.warn_of_missing("type", "it is taken for a \"string\"", findings);
            Some(Kind::String)
        }
    };
    let default = default.and_then(|field| fitting(&field, kind?, findings));
    let rest = fields.rest(findings);
    Some(Parameter {
        name: name?,
        kind: kind?,
        // What has a default can be left out.
        required: required.unwrap_or(default.is_none()),
        default,
        description,
        rest,
    })
}

/// A default value. Texts need no quotes; what does not fit otherwise is told.
fn fitting(field: &Field, kind: Kind, findings: &mut Findings) -> Option<Json> {
    let value = field.json(findings)?;
    let fits = match (kind, &value) {
        (Kind::String, Json::Number(_) | Json::Bool(_)) => return Some(field.node.source().into()),
        (Kind::String, value) => value.is_string(),
        (Kind::Number, value) => value.is_number(),
        (Kind::Integer, value) => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(is_whole),
        (Kind::Boolean, value) => value.is_boolean(),
        (Kind::Object, value) => value.is_object(),
        (Kind::Array, value) => value.is_array(),
    };
    if !fits {
        let word = KINDS.iter().find(|(_, known)| *known == kind).map_or("", |(word, _)| word);
        field.wrong(&format!("of the parameter's type, {word:?}"), findings);
    }
    Some(value)
}

fn is_whole(number: f64) -> bool {
    number.fract() == 0.0
}

/// A text, or an example that is written as what it is.
fn any_text(field: &Field, findings: &mut Findings) -> Option<String> {
    match field.node.value() {
        Value::List(_) | Value::Object(_) => field.json(findings).map(|value| value.to_string()),
        _ => field.text_as_written(findings),
    }
}

fn method(field: &Field, findings: &mut Findings) -> Option<String> {
    let text = field.text(findings)?.trim().to_ascii_uppercase();
    if METHODS.contains(&text.as_str()) {
        return Some(text);
    }
    field.wrong(&format!("one of {}", METHODS.join(", ")), findings);
    None
}

fn path(field: &Field, findings: &mut Findings) -> Option<String> {
    match field.text(findings)? {
        text if urls::is_url(&text) => urls::url(field, findings),
        _ => urls::url_path(field, findings),
    }
}
