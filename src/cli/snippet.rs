//! A piece of configuration as a client wants it: JSON, TOML or YAML. The fields keep their order.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::Failed;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Snippet {
    Text(String),
    Switch(bool),
    Number(u32),
    List(Vec<String>),
    Table(Vec<(String, Self)>),
}

pub(super) fn table<const N: usize>(fields: [(&str, Snippet); N]) -> Snippet {
    Snippet::Table(fields.into_iter().map(|(name, value)| (name.into(), value)).collect())
}

pub(super) fn text(text: impl Into<String>) -> Snippet {
    Snippet::Text(text.into())
}

impl Serialize for Snippet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Switch(on) => serializer.serialize_bool(*on),
            Self::Number(number) => serializer.serialize_u32(*number),
            Self::List(items) => items.serialize(serializer),
            Self::Table(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (name, value) in fields {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
    }
}

impl Snippet {
    pub(super) fn json(&self) -> Result<String, Failed> {
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| Failed::new(format!("cannot print: {error}")))?;
        Ok(text + "\n")
    }

    /// A table of tables is a heading in brackets, any other one stands in a line.
    pub(super) fn toml(&self) -> String {
        let mut out = String::new();
        self.toml_below(&mut Vec::new(), &mut out);
        out
    }

    fn toml_below(&self, path: &mut Vec<String>, out: &mut String) {
        let Self::Table(fields) = self else { return };
        if !path.is_empty() && !fields.iter().all(|(_, value)| matches!(value, Self::Table(_))) {
            out.push_str(&format!("[{}]\n", path.join(".")));
            for (name, value) in fields {
                out.push_str(&format!("{} = {}\n", toml_key(name), value.toml_value()));
            }
            return;
        }
        for (name, value) in fields {
            path.push(toml_key(name));
            value.toml_below(path, out);
            path.pop();
        }
    }

    fn toml_value(&self) -> String {
        match self {
            Self::Table(fields) => {
                let fields =
                    fields.iter().map(|(name, value)| format!("{} = {}", toml_key(name), value.toml_value()));
                format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "))
            }
            scalar => scalar.scalar(),
        }
    }

    /// In block style, lists and empty tables in one line.
    pub(super) fn yaml(&self) -> String {
        let mut out = String::new();
        self.yaml_below(0, &mut out);
        out
    }

    fn yaml_below(&self, depth: usize, out: &mut String) {
        let Self::Table(fields) = self else { return };
        for (name, value) in fields {
            out.push_str(&format!("{:indent$}{}:", "", yaml_key(name), indent = 2 * depth));
            match value {
                Self::Table(fields) if fields.is_empty() => out.push_str(" {}\n"),
                Self::Table(_) => {
                    out.push('\n');
                    value.yaml_below(depth + 1, out);
                }
                scalar => out.push_str(&format!(" {}\n", scalar.scalar())),
            }
        }
    }

    /// As JSON has it, which TOML and YAML read alike: quoted texts, and lists in brackets.
    fn scalar(&self) -> String {
        match self {
            Self::Text(text) => literal(text),
            Self::Switch(on) => on.to_string(),
            Self::Number(number) => number.to_string(),
            Self::List(items) => {
                format!("[{}]", items.iter().map(|item| literal(item)).collect::<Vec<_>>().join(", "))
            }
            Self::Table(_) => String::new(),
        }
    }
}

fn literal(text: &str) -> String {
    // TOML wants this one escaped, JSON does not.
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

fn toml_key(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !name.is_empty() && name.chars().all(is_bare) { name.into() } else { literal(name) }
}

/// A word that YAML takes for nothing but a text.
fn yaml_key(name: &str) -> String {
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic());
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let means_more = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    let is_word = begins && name.chars().all(is_plain) && !means_more.contains(&&*name.to_lowercase());
    if is_word { name.into() } else { literal(name) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn sample() -> Snippet {
        let entry = table([
            ("url", text("http://127.0.0.1:4180/mcp")),
            ("enabled", Snippet::Switch(true)),
            ("timeout", Snippet::Number(300)),
            ("args", Snippet::List(vec!["a \"b\"".into(), "c\\d #".into()])),
            ("headers", table([("Authorization", text("Bearer x")), ("X y", text("1"))])),
        ]);
        table([("servers", table([("guild-hall", entry.clone()), ("no", entry)]))])
    }

    #[test]
    fn toml_has_headings_and_tables_in_lines() {
        let fields = "url = \"http://127.0.0.1:4180/mcp\"\nenabled = true\ntimeout = 300\nargs = [\"a \\\"b\\\"\", \"c\\\\d #\"]\nheaders = { Authorization = \"Bearer x\", \"X y\" = \"1\" }\n";
        assert_eq!(sample().toml(), format!("[servers.guild-hall]\n{fields}[servers.no]\n{fields}"));
    }

    #[test]
    fn yaml_is_read_back_as_the_same() {
        type Read = BTreeMap<String, BTreeMap<String, serde_json::Value>>;
        let read: Read = serde_saphyr::from_str(&sample().yaml()).unwrap();
        let wanted: Read = serde_json::from_str(&sample().json().unwrap()).unwrap();
        assert_eq!(read, wanted, "{}", sample().yaml());
        assert_eq!(table([("headers", table([]))]).yaml(), "headers: {}\n");
    }

    #[test]
    fn fields_keep_their_order() {
        let at = |field: &str| sample().json().unwrap().find(field).unwrap();
        assert!(at("url") < at("enabled") && at("enabled") < at("args"));
    }
}
