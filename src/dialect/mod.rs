//! F1. A stranger's papers, read and written out as one [`Manifest`].
//!
//! Pure: bytes in, a manifest or its faults out. Which dialect a file is written in is told by its
//! name, or by its shape where two standards share the name; nothing behind this module ever asks again.

mod fields;
mod globs;
mod guild;
mod homeclaw;
mod json;
mod tree;
mod urls;
mod yaml;

use std::path::Path;

use crate::model::porter::Program;
use crate::model::{Diagnosis, Digest, Manifest, Rejection};

pub use globs::{glob, is_literal};
pub use homeclaw::{
    FieldFault, LEGACY_FILE, Listed, REGISTRY_FILE, Refused, Registered, Registry, holds_plugin_class,
    registration, registry,
};

/// The file names of all dialects, in the order in which they win beside each other.
pub const MANIFEST_FILES: [&str; 5] = [guild::FILE, "plugin.yaml", "plugin.yml", PLUGIN_JSON, LEGACY_FILE];

const PLUGIN_JSON: &str = "plugin.json";

/// A manifest may be this large; bytes.
pub const LARGEST_MANIFEST: usize = 256 * 1024;

/// A manifest as it was found.
pub struct Paper<'a> {
    /// The file as messages name it.
    pub shown: &'a Path,
    /// The member's own directory, absolute.
    pub dir: &'a Path,
    /// Its last part, which the manifest's name is compared with.
    pub dir_name: &'a str,
    pub bytes: &'a [u8],
    pub beside: Beside<'a>,
}

/// What stands beside a manifest: a dialect asks, and whoever found the manifest looks.
#[derive(Clone, Copy)]
pub struct Beside<'a> {
    /// The Python files in the directory itself, sorted.
    pub python: &'a dyn Fn() -> Vec<String>,
    /// A file below the directory, no more of it than a manifest may have; `None` where there is none.
    pub read: &'a dyn Fn(&str) -> Option<Vec<u8>>,
}

/// Reads one manifest.
pub fn read(paper: &Paper) -> Result<Manifest, Rejection> {
    too_large(paper.shown, paper.bytes)?;
    match name_of(paper.shown) {
        PLUGIN_JSON => homeclaw::read_json(paper),
        LEGACY_FILE => homeclaw::read_legacy(paper),
        name if is_yaml(name) => homeclaw::read_yaml(paper),
        _ => guild::read(paper.shown, paper.dir, paper.dir_name, paper.bytes),
    }
}

/// The fault of a document's syntax, if there is one: where a HomeClaw manifest has none, another
/// that stands beside it is not asked.
pub fn syntax_fault(shown: &Path, bytes: &[u8]) -> Option<Diagnosis> {
    let document = match name_of(shown) {
        name if is_yaml(name) => tree::Document::yaml(bytes),
        _ => tree::Document::json(bytes),
    };
    Some(document.err()?.at(shown))
}

fn name_of(shown: &Path) -> &str {
    shown.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

fn is_yaml(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

fn too_large(shown: &Path, bytes: &[u8]) -> Result<(), Rejection> {
    if bytes.len() <= LARGEST_MANIFEST {
        return Ok(());
    }
    let message = format!("is {} bytes long: a manifest may have {LARGEST_MANIFEST}", bytes.len());
    Err(Diagnosis { file: shown.into(), place: None, field: None, message }.into())
}

/// What is executed for a member that a porter stands in front of.
fn porter() -> Program {
    Program {
        command: Manifest::PORTER_COMMAND.into(),
        args: Manifest::PORTER_ARGS.map(Into::into).into(),
        env: Vec::new(),
    }
}

/// Of all that a manifest was read from.
fn digest(parts: &[&[u8]]) -> Digest {
    use sha2::Digest as _;
    let mut hasher = sha2::Sha256::new();
    for (n, part) in parts.iter().enumerate() {
        if n > 0 {
            hasher.update([0]);
        }
        hasher.update(part);
    }
    let mut digest = [0; 16];
    digest.copy_from_slice(&hasher.finalize()[..16]);
    Digest(digest)
}
