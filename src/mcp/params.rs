//! The parameters of a request as they stand in its text: names can be looked up and replaced, and what
//! nobody asked for is passed on untouched.

use std::borrow::Cow;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// More than any request has.
const MOST_FIELDS: usize = 256;

/// An object whose values nobody has read.
#[derive(Debug, Clone, Default)]
pub struct Params<'a>(Vec<(Cow<'a, str>, Cow<'a, RawValue>)>);

impl<'a> Params<'a> {
    /// Of a text that is no object: what is wrong with it.
    pub fn read(text: &'a RawValue) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text.get())
    }

    pub fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// A value that is a text.
    pub fn text(&self, name: &str) -> Option<Cow<'_, str>> {
        serde_json::from_str::<Borrowed>(self.get(name)?.get()).ok().map(|text| text.0)
    }

    /// An object among the values.
    pub fn object(&self, name: &str) -> Option<Params<'_>> {
        Params::read(self.get(name)?).ok()
    }

    pub fn set(&mut self, name: &'a str, value: &(impl Serialize + ?Sized)) {
        let Ok(value) = serde_json::value::to_raw_value(value) else { return };
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, present)) => *present = Cow::Owned(value),
            None => self.0.push((name.into(), Cow::Owned(value))),
        }
    }

    pub fn with(mut self, name: &'a str, value: &(impl Serialize + ?Sized)) -> Self {
        self.set(name, value);
        self
    }

    /// A value that was read elsewhere.
    pub fn push(&mut self, name: String, value: Box<RawValue>) {
        self.0.push((name.into(), Cow::Owned(value)));
    }

    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.0.retain(|(name, _)| keep(name));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// One that keeps nothing of the text that it was read from.
    pub fn into_owned(self) -> Params<'static> {
        let own = |(name, value): (Cow<'_, str>, Cow<'_, RawValue>)| {
            (Cow::Owned(name.into_owned()), Cow::Owned(value.into_owned()))
        };
        Params(self.0.into_iter().map(own).collect())
    }
}

#[derive(Deserialize)]
struct Borrowed<'a>(#[serde(borrow)] Cow<'a, str>);

impl Serialize for Params<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, &**value)?;
        }
        map.end()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Params<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Params<'de>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Params<'de>, A::Error> {
                let mut entries: Vec<(Cow<str>, Cow<RawValue>)> = Vec::new();
                while let Some((name, value)) = map.next_entry::<Borrowed, &RawValue>()? {
                    let is_known = entries.iter().any(|(known, _)| *known == name.0);
                    if is_known || entries.len() >= MOST_FIELDS {
                        return Err(serde::de::Error::custom(if is_known {
                            format!("it has {:?} twice", name.0)
                        } else {
                            format!("it has more than {MOST_FIELDS} fields")
                        }));
                    }
                    entries.push((name.0, Cow::Borrowed(value)));
                }
                Ok(Params(entries))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_asked_for_is_passed_on_untouched() {
        let text = RawValue::from_string(r#"{"a\n":1.50, "name":"x","b":[ 1 ]}"#.into()).unwrap();
        let mut params = Params::read(&text).unwrap();
        assert_eq!(params.text("name").unwrap(), "x");
        assert!(params.text("b").is_none());
        params.set("name", "y");
        params.set("_meta", &serde_json::json!({}));
        assert_eq!(
            serde_json::to_string(&params).unwrap(),
            r#"{"a\n":1.50,"name":"y","b":[ 1 ],"_meta":{}}"#
        );
    }
}
