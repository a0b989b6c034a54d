//! YAML with positions: the one module that knows the crate which parses it.
//!
//! YAML 1.2 with the types of its core schema: `yes` and `0755` are texts. Aliases and `<<` are followed,
//! as far as they do not multiply: whatever a document says, it costs milliseconds and a few megabytes.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::granit_parser::ErrorKind;
use serde_saphyr::{
    DuplicateKeyPolicy, Error, ExternalMessageSource, Location, MessageFormatter, NonFiniteFloatPolicy,
    Options, Spanned, UserMessageFormatter,
};

use super::LARGEST_MANIFEST;
use super::tree::{self, DEEPEST, Key, SyntaxFault, Value, text_of};
use crate::model::Place;

/// Values in a document, and values that its aliases stand for; docs/operation.md, "Limits".
const MOST_VALUES: usize = 10_000;
/// One anchor may be referred to so often.
const MOST_REFERENCES: usize = 100;

/// A whole document.
pub(super) struct Tree<'a> {
    text: &'a str,
    top: Item<'a>,
}

/// A value and where it stands.
struct Item<'a> {
    content: Content<'a>,
    place: Place,
    /// Of a scalar, in bytes of the source.
    from: usize,
    to: usize,
}

enum Content<'a> {
    Null,
    Bool(bool),
    Number(serde_json::Number),
    Text(Cow<'a, str>),
    List(Vec<Item<'a>>),
    Object(Vec<(Spanned<String>, Item<'a>)>),
}

/// One value of a tree.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    text: &'a str,
    item: &'a Item<'a>,
}

impl<'a> Tree<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, SyntaxFault> {
        let text = text_of(bytes)?;
        let empty = || {
            let message = "the file is empty; keys and values are expected, as in `id: weather`";
            SyntaxFault::new(Some(Place { line: 1, column: 1 }), message)
        };
        if is_blank(bytes) {
            return Err(empty());
        }
        let top = serde_saphyr::from_str_with_options(text, options()).map_err(|error| fault(&error))?;
        Ok(Self { text, top })
    }

    pub(super) fn top(&self) -> Node<'_> {
        Node { text: self.text, item: &self.top }
    }
}

impl<'a> Node<'a> {
    pub(super) fn place(&self) -> Place {
        self.item.place
    }

    pub(super) fn value(&self) -> Value<'a> {
        let node = |item| tree::Node::Yaml(Node { text: self.text, item });
        match &self.item.content {
            Content::Null => Value::Null,
            Content::Bool(value) => Value::Bool(*value),
            Content::Number(number) => Value::Number(number.clone()),
            Content::Text(text) => Value::Text(text.to_string()),
            Content::List(items) => Value::List(items.iter().map(node).collect()),
            Content::Object(pairs) => {
                let pair = |(key, item): &'a (Spanned<String>, Item<'a>)| {
                    let text = Cow::Borrowed(key.value.as_str());
                    (Key { text, place: Some(place_of(key.defined)) }, node(item))
                };
                Value::Object(pairs.iter().map(pair).collect())
            }
        }
    }

    /// As it stands in the document.
    pub(super) fn source(&self) -> &'a str {
        self.text.get(self.item.from..self.item.to).unwrap_or_default().trim()
    }

    pub(super) fn to_json(self) -> serde_json::Value {
        self.item.to_json()
    }
}

impl Item<'_> {
    fn to_json(&self) -> serde_json::Value {
        match &self.content {
            Content::Null => serde_json::Value::Null,
            Content::Bool(value) => (*value).into(),
            Content::Number(number) => number.clone().into(),
            Content::Text(text) => text.as_ref().into(),
            Content::List(items) => items.iter().map(Item::to_json).collect(),
            Content::Object(pairs) => {
                pairs.iter().map(|(key, item)| (key.value.clone(), item.to_json())).collect()
            }
        }
    }
}

/// Nothing but comments.
pub(super) fn is_blank(bytes: &[u8]) -> bool {
    let is_blank = |line: &str| {
        let line = line.trim();
        line.is_empty() || line.starts_with('#') || line == "---"
    };
    text_of(bytes).is_ok_and(|text| text.lines().all(is_blank))
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: MOST_VALUES,
            max_depth: DEEPEST,
            flow_nesting_limit: DEEPEST,
            max_aliases: MOST_VALUES,
            max_documents: 2,
            max_recorded_anchor_events: 2 * MOST_VALUES,
            max_recorded_anchor_bytes: LARGEST_MANIFEST,
            // What aliases stand for is limited instead.
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 2 * MOST_VALUES,
            max_replay_stack_depth: DEEPEST,
            max_alias_expansions_per_anchor: MOST_REFERENCES,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}

fn place_of(location: Location) -> Place {
    let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    Place { line: number(location.line()), column: number(location.column()) }
}

fn fault(error: &Error) -> SyntaxFault {
    let error = error.without_snippet();
    let place = error.location().filter(|location| location.line() > 0).map(place_of);
    let multiplied = || {
        format!(
            "aliases (`*name`) multiply here: what they stand for has more than {MOST_VALUES} values, \
             or is used more than {MOST_REFERENCES} times; write it out"
        )
    };
    let deep = || format!("values are nested deeper than {DEEPEST}");
    let message = match error {
        Error::AliasError { error, .. } => return SyntaxFault { place, ..fault(error) },
        Error::DuplicateMappingKey { key, .. } => {
            let message = "stands here a second time; remove one of the two".into();
            return SyntaxFault { place, field: key.clone().unwrap_or_default(), message };
        }
        Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => multiplied(),
        Error::Budget { breach, .. } => match breach {
            BudgetBreach::Depth { .. } => deep(),
            BudgetBreach::Nodes { .. } => {
                format!(
                    "the document has more than {MOST_VALUES} values, with those that its aliases stand for"
                )
            }
            BudgetBreach::Aliases { .. }
            | BudgetBreach::RecordedAnchorEvents { .. }
            | BudgetBreach::RecordedAnchorBytes { .. } => multiplied(),
            other => format!("the document is too large: {other:?}"),
        },
        Error::MultipleDocuments { .. } => "a second document begins here; remove the line `---`".into(),
        Error::UnknownAnchor { .. } => "this alias (`*name`) has no anchor (`&name`) before it".into(),
        Error::Unexpected { expected: "string scalar", .. } | Error::NullIntoString { .. } => {
            "a key must be a text".into()
        }
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            "this alias stands for what it is a part of".into()
        }
        Error::UnsupportedTag { tag, .. } => format!("the tag {tag} has no meaning here; remove it"),
        Error::ExternalMessage { source, msg, .. } => match source.as_ref() {
            ExternalMessageSource::Parser(scan) => match scan.kind() {
                ErrorKind::RecursionLimitExceeded => deep(),
                kind => format!("{msg}{}", hint(kind)),
            },
            _ => msg.clone(),
        },
        other => UserMessageFormatter.format_message(other).into_owned(),
    };
    SyntaxFault::new(place, message)
}

/// What would be right, for what people get wrong most.
fn hint(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::MappingValueNotAllowed => {
            " (a text with \": \" in it stands in quotes, and the keys of one object begin in the same column)"
        }
        ErrorKind::TabNotAllowed | ErrorKind::TabInBlockIndentation | ErrorKind::TabInIndentation => {
            " (YAML is indented with spaces, not with tabs)"
        }
        ErrorKind::UnexpectedCharacter { .. } => " (a text that begins with this character stands in quotes)",
        _ => "",
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Item<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value: content, defined, .. } = Spanned::<Content>::deserialize(deserializer)?;
        let offset = |n: Option<u64>| n.and_then(|n| usize::try_from(n).ok()).unwrap_or_default();
        let from = offset(defined.span().byte_offset());
        let to = from + offset(defined.span().byte_len());
        Ok(Self { content, place: place_of(defined), from, to })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content<'de>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Content::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Content::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Content::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Content::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        // What is not finite comes as a text.
        Ok(serde_json::Number::from_f64(value).map_or(Content::Null, Content::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Content::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Content::Text(Cow::Borrowed(text)))
    }

    fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
        Ok(Content::Text(Cow::Owned(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Content::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(Content::Object(pairs))
    }
}
