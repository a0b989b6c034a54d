//! The name of a member: its path below the members directory.

use std::fmt;
use std::sync::Arc;

/// `name` or `collection/name`. Safe to print, and to use as a file name (see [`MemberKey::file_stem`]).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberKey(Arc<str>);

/// Longest key in bytes: with a suffix it must still fit a file name (255).
const LONGEST: usize = 200;

/// Why a directory's name cannot be a member's key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("the name is empty, or has an empty part beside a \"/\"")]
    Empty,
    #[error("the name has more than one \"/\": members stand at most two levels deep")]
    TooDeep,
    #[error("the name is {0} bytes long: {LONGEST} is the longest that can be used")]
    TooLong(usize),
    #[error("the name holds a control character: rename the directory")]
    Control,
}

impl MemberKey {
    /// Parses `name` or `collection/name`.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        if text.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
            return Err(KeyError::Empty);
        }
        if text.matches('/').count() > 1 {
            return Err(KeyError::TooDeep);
        }
        if text.len() > LONGEST {
            return Err(KeyError::TooLong(text.len()));
        }
        if text
            .chars()
            .any(|c| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'))
        {
            return Err(KeyError::Control);
        }
        Ok(Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of this member's files in the run directory, without suffix: `/` as `--`.
    pub fn file_stem(&self) -> String {
        self.0.replace('/', "--")
    }
}

impl fmt::Display for MemberKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl serde::Serialize for MemberKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> serde::Deserialize<'de> for MemberKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_name_or_two() {
        assert!(MemberKey::parse("weather").is_ok());
        assert_eq!(MemberKey::parse("home/weather").unwrap().file_stem(), "home--weather");
        for bad in ["", "/", "a/", "/a", "a/../b", "..", "a/b/c", "a\nb", "\u{202e}a"] {
            assert!(MemberKey::parse(bad).is_err(), "{bad:?}");
        }
        assert!(MemberKey::parse(&"x".repeat(201)).is_err());
    }
}
