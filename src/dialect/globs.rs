//! The globs of `watch`: read here, so that a bad one is told with its place in the manifest, and
//! compiled once more by who watches.

use globset::{GlobBuilder, GlobSet};

use super::fields::{Field, Findings};
use super::tree::Value;

/// A member may have so many globs...
const MOST: usize = 100;
/// ...each of so many bytes.
const LONGEST: usize = 1_000;

/// The files that a glob means, relative to the member's directory. `*` and `?` stay within one
/// directory, `**` does not. What names a directory means everything in it.
pub fn glob(text: &str) -> Result<GlobSet, String> {
    if text.len() > LONGEST {
        return Err(format!("it is longer than {LONGEST} bytes"));
    }
    if text.is_empty() || text.starts_with('/') {
        return Err("it must be relative to the member's directory".into());
    }
    if text.split('/').any(|part| part == "..") {
        return Err("it leads out of the member's directory by \"..\"".into());
    }
    let plain = text.strip_prefix("./").unwrap_or(text).trim_end_matches('/');
    let below = is_literal(plain).then(|| format!("{plain}/**"));
    let mut globs = GlobSet::builder();
    let mut add = |text: &str| {
        globs.add(GlobBuilder::new(text).literal_separator(true).build()?);
        Ok(())
    };
    let added = std::iter::once(plain).chain(below.as_deref()).try_for_each(&mut add);
    added.and_then(|()| globs.build()).map_err(|error: globset::Error| error.kind().to_string())
}

/// It has no characters with a meaning of their own.
pub fn is_literal(part: &str) -> bool {
    !part.contains(['*', '?', '[', ']', '{', '}', '\\'])
}

/// The value of `watch`; a glob that cannot be used is a fault.
pub(super) fn globs(field: &Field, findings: &mut Findings) -> Option<Vec<String>> {
    let Value::List(items) = field.node.value() else {
        field.wrong("a list of globs, as in [\"src/**\"]", findings);
        return None;
    };
    if items.len() > MOST {
        field.wrong(&format!("a list of at most {MOST} globs"), findings);
        return None;
    }
    let mut one = |(n, node)| {
        let field = Field { node, name: format!("{}[{n}]", field.name) };
        let text = field.text(findings)?;
        match glob(&text) {
            Ok(_) => Some(text),
            Err(why) => {
                field.wrong(&format!("a glob of files, as in \"src/**\": {why}"), findings);
                None
            }
        }
    };
    // All of them are looked at, so that all faults are told at once.
    let texts: Vec<Option<String>> = items.into_iter().enumerate().map(&mut one).collect();
    texts.into_iter().collect()
}
