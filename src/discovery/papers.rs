//! The manifests of one directory, and which of them counts.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::dialect::{self, Beside, LEGACY_FILE, MANIFEST_FILES, Paper};
use crate::model::{Diagnosis, Manifest, Rejection};

/// Python files that are looked into for a class, at the most.
const MOST_MODULES: usize = 64;
/// Entries of a directory that are looked at for them.
const MOST_ENTRIES: usize = 10_000;

/// Reads the manifest of one member directory; `None` if it holds none.
/// `shown` is the directory as messages name it.
pub fn read_member(shown: &Path) -> Option<Result<Manifest, Rejection>> {
    let mut papers = manifests_in(shown);
    let first = shown.join(papers.next()?);
    let read = read_manifest(&first);
    if read.is_ok() || !gives_way(&first) {
        return Some(read);
    }
    let Some(fault) = read_bounded(&first).ok().and_then(|bytes| dialect::syntax_fault(&first, &bytes))
    else {
        return Some(read);
    };
    for other in papers {
        if let Ok(mut manifest) = read_manifest(&shown.join(other)) {
            let message = format!("{}; {other}, which stands beside it, is read instead", fault.message);
            manifest.warnings.insert(0, Diagnosis { message, ..fault });
            return Some(Ok(manifest));
        }
    }
    Some(read)
}

/// Reads one manifest file.
pub fn read_manifest(shown: &Path) -> Result<Manifest, Rejection> {
    let refused = |message: String| Diagnosis { file: shown.into(), place: None, field: None, message };
    let bytes = read_bounded(shown).map_err(|error| refused(format!("cannot be read: {error}")))?;
    let parent = parent_of(shown);
    let dir = fs::canonicalize(parent)
        .map_err(|error| refused(format!("its directory cannot be resolved: {error}")))?;
    let shown_name = parent.file_name().or(dir.file_name()).unwrap_or_default();
    dialect::read(&Paper {
        shown,
        dir: &dir,
        dir_name: &shown_name.to_string_lossy(),
        bytes: &bytes,
        beside: Beside {
            python: &|| modules_in(parent),
            read: &|file| read_bounded(&parent.join(file)).ok(),
        },
    })
}

/// The manifests in a directory, the one that wins first. A `config.yml` is one only beside a Python
/// class: half of all programs have one.
pub(super) fn manifests_in(dir: &Path) -> impl Iterator<Item = &'static str> {
    // One that cannot be looked at is there all the same.
    let is_there = |file: &str| {
        !fs::symlink_metadata(dir.join(file)).is_err_and(|error| {
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        })
    };
    let counts = |file: &str| {
        let beside = Beside { python: &|| modules_in(dir), read: &|file| read_bounded(&dir.join(file)).ok() };
        file != LEGACY_FILE || dialect::holds_plugin_class(beside)
    };
    MANIFEST_FILES.into_iter().filter(move |file| is_there(file) && counts(file))
}

/// Where its syntax is at fault, another manifest beside it is read.
fn gives_way(manifest: &Path) -> bool {
    manifest.file_name().is_some_and(|name| name != MANIFEST_FILES[0])
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The Python files in a directory, sorted.
fn modules_in(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let is_module = |name: &String| {
        Path::new(name).extension().is_some_and(|extension| extension == "py") && name != "__init__.py"
    };
    let names = entries.take(MOST_ENTRIES).flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut modules: Vec<String> = names.filter(is_module).collect();
    modules.sort();
    modules.truncate(MOST_MODULES);
    modules
}

/// Reads no more than a manifest may have, and a little, so that the dialect can say it is too large.
pub(super) fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    // A FIFO would otherwise be waited for until somebody writes to it.
    let file = fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(dialect::LARGEST_MANIFEST as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
