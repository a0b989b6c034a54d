//! Taking fields out of an object, one after the other, and noting every fault on the way.
//! Used by each dialect: what is asked for is known, what is left over is unknown.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Map;

use super::tree::{Key, Node, SyntaxFault, Value, excerpt};
use crate::model::{Diagnosis, Manifest, Place, Rejection};

/// The faults and warnings of one document.
pub(super) struct Findings {
    file: PathBuf,
    pub(super) faults: Vec<Diagnosis>,
    pub(super) warnings: Vec<Diagnosis>,
}

/// More faults than this are not collected: the first ones tell enough.
const MOST_FINDINGS: usize = 20;

impl Findings {
    pub(super) fn new(file: &Path) -> Self {
        Self { file: file.into(), faults: Vec::new(), warnings: Vec::new() }
    }

    pub(super) fn fault(&mut self, place: Option<Place>, field: &str, message: impl Into<String>) {
        let diagnosis = self.diagnosis(place, field, message.into());
        if self.faults.len() < MOST_FINDINGS {
            self.faults.push(diagnosis);
        }
    }

    pub(super) fn warn(&mut self, place: Place, field: &str, message: impl Into<String>) {
        let diagnosis = self.diagnosis(Some(place), field, message.into());
        if self.warnings.len() < MOST_FINDINGS {
            self.warnings.push(diagnosis);
        }
    }

    /// A fault of the syntax is the only one there is.
    pub(super) fn unreadable(&mut self, fault: SyntaxFault) {
        self.fault(fault.place, &fault.field, fault.message);
    }

    /// What comes of a document of which this was found. A part that is missing has left a fault, and what
    /// was taken in place of a faulty field is never seen.
    pub(super) fn conclude(self, manifest: Option<Manifest>) -> Result<Manifest, Rejection> {
        let mut faults = self.faults.into_iter();
        match (faults.next(), manifest) {
            (Some(first), _) => Err(Rejection { first, rest: faults.collect() }),
            (None, Some(manifest)) => Ok(Manifest { warnings: self.warnings, ..manifest }),
            (None, None) => unreachable!("a manifest is missing without a fault"),
        }
    }

    /// No more faults are collected.
    pub(super) fn are_enough(&self) -> bool {
        self.faults.len() >= MOST_FINDINGS
    }

    fn diagnosis(&self, place: Option<Place>, field: &str, message: String) -> Diagnosis {
        let field = (!field.is_empty()).then(|| field.to_owned());
        Diagnosis { file: self.file.clone(), place, field, message }
    }
}

/// An object whose fields are taken out by name.
pub(super) struct Fields<'a> {
    node: Node<'a>,
    /// Where the object stands in the document: empty for the top, else `mcp`.
    path: String,
    left: Vec<(Key<'a>, Node<'a>)>,
    known: Vec<&'static str>,
}

/// A field that is there: the value and its full name.
pub(super) struct Field<'a> {
    pub(super) node: Node<'a>,
    pub(super) name: String,
}

impl<'a> Fields<'a> {
    /// `None`, with the fault noted, if the value is no object.
    pub(super) fn of(node: Node<'a>, path: &str, findings: &mut Findings) -> Option<Self> {
        let Value::Object(pairs) = node.value() else {
            findings.fault(
                Some(node.place()),
                path,
                format!("is {}; it must be an object", node.described()),
            );
            return None;
        };
        let mut left: Vec<(Key, Node)> = Vec::new();
        let mut names = HashSet::new();
        for (key, value) in pairs {
            if findings.are_enough() {
                break;
            }
            if names.insert(key.text.clone()) {
                left.push((key, value));
            } else {
                let name = join(path, &key.text);
                findings.fault(
                    Some(node.place_of_key(&key, &value)),
                    &name,
                    "stands here a second time; remove one of the two",
                );
            }
        }
        Some(Self { node, path: path.into(), left, known: Vec::new() })
    }

    pub(super) fn take(&mut self, name: &'static str) -> Option<Field<'a>> {
        self.known.push(name);
        let at = self.left.iter().position(|(key, _)| key.text == name)?;
        let (_, node) = self.left.remove(at);
        Some(Field { node, name: join(&self.path, name) })
    }

    /// A field that must be there; `example` is what it could look like.
    pub(super) fn need(
        &mut self, name: &'static str, example: &str, findings: &mut Findings,
    ) -> Option<Field<'a>> {
        let field = self.take(name);
        if field.is_none() && !findings.are_enough() {
            let full = join(&self.path, name);
            let near =
                self.nearest(name).map(|key| format!(" (did you mean it by {key:?}?)")).unwrap_or_default();
            let written = self.node.written(name, example);
            let message = format!("is missing in the object that begins here; add {written}{near}");
            findings.fault(Some(self.node.place()), &full, message);
        }
        field
    }

    /// A text that must be there and not be blank, and where it stands.
    pub(super) fn need_text(
        &mut self, name: &'static str, example: &str, findings: &mut Findings,
    ) -> Option<(String, Node<'a>)> {
        let field = self.need(name, example, findings)?;
        let text = field.text(findings)?;
        if text.trim().is_empty() {
            findings.fault(
                Some(field.node.place()),
                &field.name,
                format!("is empty; it must say something, as in {example}"),
            );
            return None;
        }
        Some((text, field.node))
    }

    /// It is there, and not `null`.
    pub(super) fn has(&self, name: &str) -> bool {
        self.left.iter().any(|(key, node)| key.text == name && !node.is_null())
    }

    /// A field that may be left out; `null` is no value.
    pub(super) fn take_some(&mut self, name: &'static str) -> Option<Field<'a>> {
        self.take(name).filter(|field| !field.node.is_null())
    }

    /// A text that may be left out; a blank one says nothing.
    pub(super) fn take_text(&mut self, name: &'static str, findings: &mut Findings) -> Option<String> {
        let text = self.take_some(name)?.text(findings)?;
        (!text.trim().is_empty()).then_some(text)
    }

    /// Warns of a field that should be there, and tells what is done without it.
    pub(super) fn warn_of_missing(&self, name: &str, instead: &str, findings: &mut Findings) {
        // Finding out where it stands is what costs.
        if findings.warnings.len() < MOST_FINDINGS {
            let message = format!("is missing in the object that begins here; {instead}");
            findings.warn(self.node.place(), &join(&self.path, name), message);
        }
    }

    /// The fields that nobody asked for, as they are.
    pub(super) fn rest(self, findings: &mut Findings) -> Map<String, serde_json::Value> {
        let json = |(key, node): (Key<'a>, Node<'a>)| {
            if findings.are_enough() {
                return None;
            }
            let field = Field { node, name: join(&self.path, &key.text) };
            Some((key.text.into_owned(), field.json(findings)?))
        };
        self.left.into_iter().filter_map(json).collect()
    }

    /// Milliseconds in `least..=most`.
    pub(super) fn millis(
        &mut self, name: &'static str, default: Duration, least: u64, most: u64, findings: &mut Findings,
    ) -> Duration {
        let Some(field) = self.take(name) else { return default };
        let Value::Number(number) = field.node.value() else {
            field.wrong("a number of milliseconds", findings);
            return default;
        };
        match number.as_u64().filter(|millis| (least..=most).contains(millis)) {
            Some(millis) => Duration::from_millis(millis),
            None => {
                field.wrong(&format!("a whole number of milliseconds between {least} and {most}"), findings);
                default
            }
        }
    }

    /// Notes a warning for each field that nobody asked for.
    pub(super) fn warn_of_the_rest(self, findings: &mut Findings) {
        for (key, value) in self.left.iter().take(MOST_FINDINGS) {
            let near = self.known.iter().find(|known| strsim::damerau_levenshtein(known, &key.text) <= 2);
            let near = near.map(|known| format!("; did you mean {known:?}?")).unwrap_or_default();
            let message = format!("is not a field of this standard and is ignored{near}");
            findings.warn(self.node.place_of_key(key, value), &join(&self.path, &key.text), message);
        }
    }

    /// A field that is there under a name close to the wanted one.
    fn nearest(&self, name: &str) -> Option<&str> {
        let close = |key: &str| strsim::damerau_levenshtein(&key.to_lowercase(), &name.to_lowercase()) <= 2;
        self.left.iter().map(|(key, _)| key.text.as_ref()).find(|key| close(key))
    }
}

impl<'a> Field<'a> {
    pub(super) fn wrong(&self, right: &str, findings: &mut Findings) {
        findings.fault(
            Some(self.node.place()),
            &self.name,
            format!("is {}; it must be {right}", self.node.described()),
        );
    }

    pub(super) fn text(&self, findings: &mut Findings) -> Option<String> {
        match self.node.value() {
            Value::Text(text) if text.contains('\0') => {
                self.wrong("a text without NUL characters", findings);
                None
            }
            Value::Text(text) => Some(text),
            _ => {
                self.wrong("a text", findings);
                None
            }
        }
    }

    /// A text, or a number, `true` or `false` as it is written: in YAML few remember the quotes.
    pub(super) fn text_as_written(&self, findings: &mut Findings) -> Option<String> {
        match self.node.value() {
            Value::Number(_) | Value::Bool(_) => Some(self.node.source().to_owned()),
            _ => self.text(findings),
        }
    }

    /// `true` or `false`. What YAML 1.1 takes for these is understood, with a warning.
    pub(super) fn flag(&self, findings: &mut Findings) -> Option<bool> {
        let word = match self.node.value() {
            Value::Bool(value) => return Some(value),
            Value::Text(text) => text.to_ascii_lowercase(),
            _ => String::new(),
        };
        let value = match word.as_str() {
            "yes" | "on" | "true" => true,
            "no" | "off" | "false" => false,
            _ => {
                self.wrong("true or false", findings);
                return None;
            }
        };
        let message = format!("is {}; taken for {value}: write {value}", self.node.described());
        findings.warn(self.node.place(), &self.name, message);
        Some(value)
    }

    /// Whatever stands there.
    pub(super) fn json(&self, findings: &mut Findings) -> Option<serde_json::Value> {
        let message = |why| format!("cannot be read ({why})");
        self.node
            .to_json()
            .map_err(|why| findings.fault(Some(self.node.place()), &self.name, message(why)))
            .ok()
    }

    /// The items of a list, each with its own name.
    pub(super) fn items(&self, findings: &mut Findings) -> Option<Vec<Field<'a>>> {
        let Value::List(items) = self.node.value() else {
            self.wrong("a list", findings);
            return None;
        };
        let named = |(n, node)| Field { node, name: format!("{}[{n}]", self.name) };
        Some(items.into_iter().enumerate().map(named).collect())
    }

    /// One of a few words.
    pub(super) fn one_of<T: Copy>(&self, words: &[(&str, T)], findings: &mut Findings) -> Option<T> {
        let text = self.text(findings)?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let words: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
            self.wrong(&words.join(" or "), findings);
        }
        found
    }

    pub(super) fn texts(&self, findings: &mut Findings) -> Option<Vec<String>> {
        let Value::List(items) = self.node.value() else {
            self.wrong("a list of texts", findings);
            return None;
        };
        let mut item = |(n, node)| Field { node, name: format!("{}[{n}]", self.name) }.text(findings);
        items.into_iter().enumerate().map(&mut item).collect()
    }

    /// An object of texts, in order. The keys are names of environment variables.
    pub(super) fn environment(&self, findings: &mut Findings) -> Vec<(String, String)> {
        self.pairs(variable_name, Self::text, findings)
    }

    /// An object, in order, with what is wrong with a key, and the value that a field has.
    pub(super) fn pairs(
        &self, wrong_key: impl Fn(&str) -> Option<String>,
        value: impl Fn(&Field<'a>, &mut Findings) -> Option<String>, findings: &mut Findings,
    ) -> Vec<(String, String)> {
        let Value::Object(pairs) = self.node.value() else {
            self.wrong("an object of texts", findings);
            return Vec::new();
        };
        let mut taken: Vec<(String, String)> = Vec::new();
        let mut names = HashSet::new();
        for (key, node) in pairs {
            if findings.are_enough() {
                break;
            }
            let name = join(&self.name, &key.text);
            let place = || self.node.place_of_key(&key, &node);
            if let Some(wrong) = wrong_key(&key.text) {
                findings.fault(Some(place()), &name, wrong);
            } else if !names.insert(key.text.clone()) {
                findings.fault(Some(place()), &name, "stands here a second time; remove one of the two");
            } else if let Some(value) = value(&Field { node, name }, findings) {
                taken.push((key.text.into_owned(), value));
            }
        }
        taken
    }
}

/// Why a key cannot be the name of an environment variable.
pub(super) fn variable_name(key: &str) -> Option<String> {
    (key.is_empty() || key.contains(['=', '\0']))
        .then(|| format!("{} cannot be the name of an environment variable", excerpt(key)))
}

fn join(path: &str, name: &str) -> String {
    let plain = name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-' || c == '$');
    let name = if plain && !name.is_empty() { name.to_owned() } else { excerpt(name) };
    if path.is_empty() { name } else { format!("{path}.{name}") }
}
