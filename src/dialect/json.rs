//! JSON with positions: every value knows the line and column where it stands.
//!
//! serde_json parses; its raw values are slices of the source, so where one stands is the distance
//! between two pointers. Objects keep their duplicates, so that one can be named.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::tree::{self, DEEPEST, Key, SyntaxFault, Value, place_after, text_of};
use crate::model::Place;

/// One document.
#[derive(Clone, Copy)]
pub(super) struct Document<'a> {
    text: &'a str,
}

/// One value, with everything needed to say where it is.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    document: Document<'a>,
    raw: &'a str,
}

impl<'a> Document<'a> {
    /// Checks the syntax of the whole document and returns its top value.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Node<'a>, SyntaxFault> {
        let text = text_of(bytes)?;
        if text.trim().is_empty() {
            let message = "the file is empty; a JSON object is expected: { \"name\": … }";
            return Err(SyntaxFault::new(Some(Place { line: 1, column: 1 }), message));
        }
        if let Some(place) = too_deep(text) {
            return Err(SyntaxFault::new(Some(place), format!("values are nested deeper than {DEEPEST}")));
        }
        let raw: &RawValue = serde_json::from_str(text).map_err(|error| syntax_fault(text, &error))?;
        Ok(Node { document: Self { text }, raw: raw.get() })
    }
}

impl<'a> Node<'a> {
    pub(super) fn place(&self) -> Place {
        self.document.place_of(self.raw)
    }

    pub(super) fn value(&self) -> Value<'a> {
        let raw = self.raw;
        let node = |raw: &'a RawValue| tree::Node::Json(Node { document: self.document, raw: raw.get() });
        match raw.as_bytes().first() {
            Some(b'{') => read(raw, |Pairs(pairs)| {
                Value::Object(
                    pairs.into_iter().map(|(text, raw)| (Key { text, place: None }, node(raw))).collect(),
                )
            }),
            Some(b'[') => {
                read(raw, |items: Vec<&'a RawValue>| Value::List(items.into_iter().map(node).collect()))
            }
            Some(b'"') => read(raw, Value::Text),
            Some(b't') => Value::Bool(true),
            Some(b'f') => Value::Bool(false),
            Some(b'n') => Value::Null,
            _ => read(raw, Value::Number),
        }
    }

    /// As it stands in the source.
    pub(super) fn source(&self) -> &'a str {
        self.raw
    }

    /// Everything in it, of objects the last of those with the same key.
    pub(super) fn to_json(self) -> Result<serde_json::Value, String> {
        serde_json::from_str(self.raw).map_err(|error| plain(&error))
    }

    /// The place of one of this object's keys; `None` where the key is written with escapes.
    pub(super) fn place_of_key(&self, key: &Key<'a>) -> Option<Place> {
        let Cow::Borrowed(text) = key.text else { return None };
        let place = self.document.place_of(text);
        // The slice begins behind the quote.
        Some(Place { column: place.column - 1, ..place })
    }
}

impl<'a> Document<'a> {
    /// `slice` must be a part of this document's text.
    fn place_of(&self, slice: &'a str) -> Place {
        let offset = (slice.as_ptr() as usize).wrapping_sub(self.text.as_ptr() as usize);
        place_after(self.text.get(..offset).unwrap_or_default())
    }
}

/// Decodes what was found to have the right syntax.
fn read<'a, T: Deserialize<'a>>(raw: &'a str, value: impl FnOnce(T) -> Value<'a>) -> Value<'a> {
    match serde_json::from_str(raw) {
        Ok(decoded) => value(decoded),
        Err(error) => Value::Unreadable(plain(&error)),
    }
}

/// The message without its place, which is one within a part of the document.
fn plain(error: &serde_json::Error) -> String {
    error.to_string().split(" at line ").next().unwrap_or_default().to_owned()
}

fn syntax_fault(text: &str, error: &serde_json::Error) -> SyntaxFault {
    let full = error.to_string();
    let message = full.split(" at line ").next().unwrap_or(&full).to_owned();
    // serde_json counts columns in bytes; 0 means the end of the line before.
    let line = text.split('\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    let upto = error.column().saturating_sub(1).min(line.len());
    let column = line.get(..upto).map_or(error.column(), |before| before.chars().count() + 1);
    let found = line.get(upto..).and_then(|rest| rest.chars().next());
    let found = match found {
        Some(c) => format!("; found {c:?}"),
        None if error.is_eof() => "; the file ends here".into(),
        None => String::new(),
    };
    let hint = match found.as_str() {
        "; found '\\''" => " (JSON strings stand in double quotes)",
        "; found '/'" | "; found '#'" => " (JSON has no comments)",
        "; found '}'" | "; found ']'" if message.contains("key must be a string") => {
            " (JSON allows no comma before a closing bracket)"
        }
        _ if message.contains("trailing comma") => " (JSON allows no comma before a closing bracket)",
        _ => "",
    };
    let place = Place { line: error.line(), column: column.max(1) };
    SyntaxFault::new(Some(place), format!("{message}{found}{hint}"))
}

/// The first bracket that opens one level too many.
fn too_deep(text: &str) -> Option<Place> {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => {
                depth += 1;
                if depth > DEEPEST {
                    return Some(place_after(&text[..at]));
                }
            }
            b'}' | b']' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// An object as it stands: in order, duplicates kept.
struct Pairs<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Pairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some((Borrowable(key), value)) = map.next_entry()? {
                    pairs.push((key, value));
                }
                Ok(Pairs(pairs))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Self::Value, A::Error> {
                Ok(Pairs(Vec::new()))
            }
        }
        deserializer.deserialize_map(PairsVisitor)
    }
}

/// A string that stays a slice of the source where it can.
#[derive(serde::Deserialize)]
struct Borrowable<'a>(#[serde(borrow)] Cow<'a, str>);
