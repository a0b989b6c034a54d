//! The file that a plugin calls its configuration. Its keys are the plugin's own matter.

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::Number;

/// The name that HomeClaw's documents give it.
const DEFAULT: &str = "config.yml";
/// Bytes.
const LARGEST: u64 = 256 * 1024;
/// Values of a document, and values inside values.
const MOST_VALUES: usize = 10_000;
const DEEPEST: usize = 64;

#[derive(Debug)]
pub(super) struct Config {
    pub(super) values: Tree,
    /// As the plugin finds it; `None` if there is no such file.
    pub(super) file: Option<String>,
}

/// What a document holds, in its order: to a plugin that may mean something.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Tree {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Tree>),
    Map(Vec<(String, Tree)>),
}

impl Tree {
    const EMPTY: Self = Self::Map(Vec::new());
}

/// Reads YAML or JSON. A file that is not there is an empty configuration.
pub(super) fn read(dir: &Path, file: Option<&str>) -> Result<Config, String> {
    let name = file.unwrap_or(DEFAULT);
    let path = dir.join(name);
    let failed = |what: &dyn std::fmt::Display| format!("cannot read {name}: {what}");
    let mut text = String::new();
    match std::fs::metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(Config { values: Tree::EMPTY, file: None });
        }
        Err(error) => return Err(failed(&error)),
        Ok(meta) if !meta.is_file() => return Err(failed(&"it is no file")),
        Ok(meta) if meta.len() > LARGEST => {
            return Err(format!("{name} is {} bytes long: it may have {LARGEST}", meta.len()));
        }
        Ok(_) => {}
    }
    let opened = File::open(&path).and_then(|file| file.take(LARGEST + 1).read_to_string(&mut text));
    opened.map_err(|error| failed(&error))?;
    match parse(&text).map_err(|error| format!("{name}: {error}"))? {
        values @ Tree::Map(_) => Ok(Config { values, file: path.to_str().map(Into::into) }),
        Tree::Null => Ok(Config { values: Tree::EMPTY, file: path.to_str().map(Into::into) }),
        _ => Err(format!("{name} holds no configuration: \"key: value\" is expected at its top")),
    }
}

fn parse(text: &str) -> Result<Tree, String> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_nodes: MOST_VALUES, max_depth: DEEPEST, max_documents: 1 },
        with_snippet: false,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MOST_VALUES },
    };
    serde_saphyr::from_str_with_options(text.trim_start_matches('\u{feff}'), options)
        .map_err(|error| error.to_string())
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Tree;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<Tree, E> {
                Ok(Tree::Null)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
                Ok(Tree::Bool(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
                Ok(Tree::Number(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
                Ok(Tree::Number(value.into()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
                Ok(Number::from_f64(value).map_or_else(|| Tree::Text(value.to_string()), Tree::Number))
            }

            fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
                Ok(Tree::Text(value.into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(Tree::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Tree, A::Error> {
                let mut map = Vec::new();
                while let Some(entry) = entries.next_entry()? {
                    map.push(entry);
                }
                Ok(Tree::Map(map))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

impl Serialize for Tree {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(value) => value.serialize(serializer),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(items) => serializer.collect_seq(items),
            Self::Map(entries) => serializer.collect_map(entries.iter().map(|(key, value)| (key, value))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::{Value, json};

    use super::*;

    fn written(text: &str) -> Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(DEFAULT), text).unwrap();
        read(dir.path(), None).map(|config| serde_json::to_string(&config.values).unwrap())
    }

    fn config(text: &str) -> Result<Value, String> {
        written(text).map(|text| serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn a_configuration_is_read_as_plugins_expect_it() {
        let text = "id: weather\nport: 465\non_air: yes\nratio: 1.5\nnothing:\ncontacts:\n  - {name: Ann, email: a@b}\nbase: &base {a: 1}\nmore: {<<: *base, b: 2}\n1: one\n";
        assert_eq!(
            config(text).unwrap(),
            json!({"id": "weather", "port": 465, "on_air": true, "ratio": 1.5, "nothing": null,
                   "contacts": [{"name": "Ann", "email": "a@b"}], "base": {"a": 1}, "more": {"a": 1, "b": 2}, "1": "one"})
        );
        assert_eq!(config("").unwrap(), json!({}));
        assert_eq!(config("# nothing yet\n").unwrap(), json!({}));
        assert_eq!(config(r#"{"a": [1]}"#).unwrap(), json!({"a": [1]}));
        assert_eq!(written("b: 1\na: {d: .5, c: x}\n").unwrap(), r#"{"b":1,"a":{"d":0.5,"c":"x"}}"#);
        let none = read(tempfile::tempdir().unwrap().path(), Some("other.yml")).unwrap();
        assert!(none.values == Tree::EMPTY && none.file.is_none());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let wrong = config("a: 1\nb: [1\nc: 2\n").unwrap_err();
        assert!(wrong.starts_with("config.yml: ") && wrong.contains("line 3"), "{wrong}");
        assert_eq!(wrong.lines().count(), 1, "{wrong}");
        assert!(config("a: 1\na: 2\n").unwrap_err().contains("line 2"), "{wrong}");
        assert!(config("- a\n").unwrap_err().contains("key: value"));
        let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned()
            + &(b'b'..b'z').fold(String::new(), |text, letter| {
                let (this, before) = (letter as char, (letter - 1) as char);
                text + &format!("{this}: &{this} [{}]\n", vec![format!("*{before}"); 9].join(","))
            });
        assert!(config(&bomb).is_err());
        assert!(config(&"[".repeat(20_000)).is_err());
        assert!(config(&format!("a: {}", "x".repeat(300_000))).unwrap_err().contains("it may have"));
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(DEFAULT)).unwrap();
        assert!(read(dir.path(), None).unwrap_err().contains("it is no file"));
    }
}
