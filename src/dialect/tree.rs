//! One document, JSON or YAML, as values that know where they stand. Who reads fields asks these
//! (`fields.rs`), and is told the notation only where an example is to be written in it.

use std::borrow::Cow;
use std::path::Path;

use super::{json, yaml};
use crate::model::{Diagnosis, Place};

/// Values inside values, at the most; docs/operation.md, "Limits".
pub(super) const DEEPEST: usize = 64;

/// A whole document, its syntax checked.
pub(super) enum Document<'a> {
    Json(json::Node<'a>),
    Yaml(yaml::Tree<'a>),
}

/// A fault of the syntax.
pub(super) struct SyntaxFault {
    pub(super) place: Option<Place>,
    /// The key that is at fault, where it is one.
    pub(super) field: String,
    pub(super) message: String,
}

/// One value, with everything needed to say where it is.
#[derive(Clone, Copy)]
pub(super) enum Node<'a> {
    Json(json::Node<'a>),
    Yaml(yaml::Node<'a>),
}

/// A value by its kind. Scalars are decoded, containers one level deep.
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    Number(serde_json::Number),
    Text(String),
    List(Vec<Node<'a>>),
    /// It has the right syntax and cannot be represented: half of a surrogate pair, a number too large.
    Unreadable(String),
    Object(Vec<(Key<'a>, Node<'a>)>),
}

/// The key of an object's member.
pub(super) struct Key<'a> {
    pub(super) text: Cow<'a, str>,
    /// `None`: to be found out by where `text` lies in the source.
    pub(super) place: Option<Place>,
}

impl SyntaxFault {
    pub(super) fn new(place: Option<Place>, message: impl Into<String>) -> Self {
        Self { place, field: String::new(), message: message.into() }
    }

    pub(super) fn at(self, file: &Path) -> Diagnosis {
        let field = (!self.field.is_empty()).then_some(self.field);
        Diagnosis { file: file.into(), place: self.place, field, message: self.message }
    }
}

impl<'a> Document<'a> {
    pub(super) fn json(bytes: &'a [u8]) -> Result<Self, SyntaxFault> {
        json::Document::parse(bytes).map(Self::Json)
    }

    pub(super) fn yaml(bytes: &'a [u8]) -> Result<Self, SyntaxFault> {
        yaml::Tree::parse(bytes).map(Self::Yaml)
    }

    pub(super) fn top(&self) -> Node<'_> {
        match self {
            Self::Json(top) => Node::Json(*top),
            Self::Yaml(tree) => Node::Yaml(tree.top()),
        }
    }
}

impl<'a> Node<'a> {
    pub(super) fn place(&self) -> Place {
        match self {
            Self::Json(node) => node.place(),
            Self::Yaml(node) => node.place(),
        }
    }

    pub(super) fn value(&self) -> Value<'a> {
        match self {
            Self::Json(node) => node.value(),
            Self::Yaml(node) => node.value(),
        }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self.value(), Value::Null)
    }

    /// A number, `true` or `false`, letter by letter as it stands in the source.
    pub(super) fn source(&self) -> &'a str {
        match self {
            Self::Json(node) => node.source(),
            Self::Yaml(node) => node.source(),
        }
    }

    /// Everything in it; the error says why it cannot be represented.
    pub(super) fn to_json(self) -> Result<serde_json::Value, String> {
        match self {
            Self::Json(node) => node.to_json(),
            Self::Yaml(node) => Ok(node.to_json()),
        }
    }

    /// What stands there, for a message: `the number 3`, `an object`.
    pub(super) fn described(&self) -> String {
        match self.value() {
            Value::Null => "null".into(),
            Value::Bool(value) => value.to_string(),
            Value::Number(number) => format!("the number {number}"),
            Value::Text(text) => format!("the text {}", excerpt(&text)),
            Value::List(items) => format!("a list of {}", items.len()),
            Value::Object(_) => "an object".into(),
            Value::Unreadable(why) => format!("unreadable ({why})"),
        }
    }

    /// The place of one of this object's keys; of the value, where that is not known.
    pub(super) fn place_of_key(&self, key: &Key<'a>, value: &Node<'a>) -> Place {
        let computed = || match self {
            Self::Json(node) => node.place_of_key(key),
            Self::Yaml(_) => None,
        };
        key.place.or_else(computed).unwrap_or_else(|| value.place())
    }

    /// A field as it is written in this notation; `value` is JSON.
    pub(super) fn written(&self, name: &str, value: &str) -> String {
        match self {
            Self::Json(_) => format!("{name:?}: {value}"),
            Self::Yaml(_) => format!("{name}: {value}"),
        }
    }
}

/// The text of a document, without a byte order mark.
pub(super) fn text_of(bytes: &[u8]) -> Result<&str, SyntaxFault> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let valid = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
        SyntaxFault::new(Some(place_after(&valid)), "is not UTF-8 here: save the file as UTF-8")
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// The place that follows `before`.
pub(super) fn place_after(before: &str) -> Place {
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
    Place { line, column: before[line_start..].chars().count() + 1 }
}

/// A text in quotes, escaped and cut for a message.
pub(super) fn excerpt(text: &str) -> String {
    let mut short: String = text.chars().take(40).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("{short:?}")
}
