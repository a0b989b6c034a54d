//! F1. A stranger's papers, read and written out as one [`Manifest`].
//!
//! Pure: bytes in, a manifest or its faults out. Which dialect a file is written in is told by its
//! name; nothing behind this module ever asks again.

mod fields;
mod globs;
mod guild;
mod json;
mod registration;

use std::path::Path;

use crate::model::{Diagnosis, Digest, Manifest, Rejection};

pub use globs::{glob, is_literal};
pub use registration::{FieldFault, Refused, Registered, registration};

/// The file names of all dialects, in the order in which they win beside each other.
pub const MANIFEST_FILES: [&str; 1] = [guild::FILE];

/// A manifest may be this large; bytes.
pub const LARGEST_MANIFEST: usize = 256 * 1024;

/// Reads one manifest. `shown` is the file as messages name it, `dir` the member's own directory,
/// absolute, and `dir_name` its last part, which the manifest's name is compared with.
pub fn read(shown: &Path, dir: &Path, dir_name: &str, bytes: &[u8]) -> Result<Manifest, Rejection> {
    if bytes.len() > LARGEST_MANIFEST {
        let message = format!("is {} bytes long: a manifest may have {LARGEST_MANIFEST}", bytes.len());
        return Err(Diagnosis { file: shown.into(), place: None, field: None, message }.into());
    }
    guild::read(shown, dir, dir_name, bytes)
}

fn digest(bytes: &[u8]) -> Digest {
    use sha2::Digest as _;
    let hash = sha2::Sha256::digest(bytes);
    let mut digest = [0; 16];
    digest.copy_from_slice(&hash[..16]);
    Digest(digest)
}
