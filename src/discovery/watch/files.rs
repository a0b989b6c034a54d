//! Which files of a member restart it when they change, and which of its directories hold any. Pure.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use globset::GlobSet;

use crate::dialect::{glob, is_literal};
use crate::model::Manifest;

/// What a person writes and a program reads. Not what members write into their own directory: `json`,
/// `db`, `log`, `csv`, `txt`.
const SOURCES: [&str; 58] = [
    "bash", "c", "cc", "cjs", "clj", "cpp", "cs", "cts", "dart", "env", "erl", "ex", "exs", "fs", "go",
    "graphql", "groovy", "h", "hpp", "hs", "java", "jl", "js", "jsx", "kt", "kts", "lisp", "lua", "mjs",
    "ml", "mts", "nim", "php", "pl", "pm", "proto", "ps1", "py", "pyi", "pyx", "r", "rb", "rkt", "rs",
    "scala", "scm", "sh", "sql", "svelte", "swift", "toml", "ts", "tsx", "vue", "yaml", "yml", "zig", "zsh",
];
/// Files of the same kind that are known by their whole name.
const NAMES: [&str; 2] = [".env", "package.json"];
/// Directories that others fill: entered only where a glob or the manifest's command names them.
const LEFT_OUT: [&str; 4] = ["node_modules", "__pycache__", "target", "venv"];

/// The files of one member that count.
#[derive(Debug)]
pub(super) enum Files {
    /// `watch` is absent: sources, and the program itself where it lies in the member's directory.
    Sources {
        program: Option<PathBuf>,
    },
    Globs(Vec<Pattern>),
}

#[derive(Debug)]
pub(super) struct Pattern {
    globs: GlobSet,
    /// Its literal beginning: a directory, or the one file that it means.
    base: PathBuf,
    /// So many directories below `base` are looked into; `None`: all.
    depth: Option<usize>,
}

impl Files {
    pub(super) fn of(manifest: &Manifest) -> Self {
        match &manifest.watch {
            None => Self::Sources { program: program(manifest) },
            // The dialect has let in only what can be compiled.
            Some(globs) => Self::Globs(globs.iter().filter_map(|text| Pattern::parse(text)).collect()),
        }
    }

    /// Whether a directory (relative to the member's) holds files that count, or leads to one that does.
    pub(super) fn enters(&self, dir: &Path) -> bool {
        match self {
            Self::Sources { program } => {
                is_open(dir) || program.as_ref().is_some_and(|program| program.starts_with(dir))
            }
            Self::Globs(patterns) => {
                patterns.iter().any(|pattern| pattern.base.starts_with(dir) || pattern.covers(dir))
            }
        }
    }

    /// Whether a file (relative to the member's directory) counts.
    pub(super) fn counts(&self, file: &Path) -> bool {
        let (Some(name), Some(dir)) = (file.file_name(), file.parent()) else { return false };
        match self {
            Self::Sources { program } if program.as_deref() == Some(file) => true,
            Self::Sources { .. } => is_source(name) && !is_temporary(name) && is_open(dir),
            Self::Globs(patterns) => patterns.iter().any(|pattern| {
                let there = pattern.base == file || pattern.covers(dir) && !is_temporary(name);
                there && pattern.globs.is_match(file)
            }),
        }
    }
}

impl Pattern {
    fn parse(text: &str) -> Option<Self> {
        let globs = glob(text).ok()?;
        let parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        let literal = parts.iter().take_while(|part| is_literal(part)).count();
        let (base, rest) = parts.split_at(literal);
        let deep = rest.is_empty() || text.contains("**");
        Some(Self {
            globs,
            base: base.iter().collect(),
            depth: (!deep).then(|| rest.len().saturating_sub(1)),
        })
    }

    /// Files right in this directory may be meant.
    fn covers(&self, dir: &Path) -> bool {
        let Ok(below) = dir.strip_prefix(&self.base) else { return false };
        self.depth.is_none_or(|depth| below.components().count() <= depth) && is_open(below)
    }
}

/// The command where it is a file in the member's directory.
fn program(manifest: &Manifest) -> Option<PathBuf> {
    let command = manifest.program().map_or(&manifest.command, |program| &program.command);
    if !command.contains('/') {
        return None;
    }
    let command = Path::new(command);
    let below = if command.is_absolute() { command.strip_prefix(&manifest.dir).ok()? } else { command };
    let mut parts = below.components().filter(|part| *part != Component::CurDir).peekable();
    parts.peek()?;
    parts.map(|part| matches!(part, Component::Normal(_)).then_some(part)).collect()
}

/// No part of it is a directory that is left out.
fn is_open(dir: &Path) -> bool {
    let left_out = |name: &OsStr| {
        name.as_encoded_bytes().starts_with(b".") || LEFT_OUT.iter().any(|out| name == OsStr::new(out))
    };
    !dir.iter().any(left_out)
}

fn is_source(name: &OsStr) -> bool {
    let is_one_of = |list: &[&str], part: &OsStr| list.iter().any(|known| part == OsStr::new(known));
    is_one_of(&NAMES, name)
        || name.as_encoded_bytes().starts_with(b".env.")
        || Path::new(name).extension().is_some_and(|extension| is_one_of(&SOURCES, extension))
}

/// What editors leave beside a file for a moment.
fn is_temporary(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    let begins = |with: &str| bytes.starts_with(with.as_bytes());
    let ends = |with: &str| bytes.ends_with(with.as_bytes());
    begins(".#")
        || begins("#") && ends("#")
        || begins(".goutputstream-")
        || name == OsStr::new("4913")
        || ["~", ".swp", ".swo", ".swx", ".tmp", ".bak", "___jb_tmp___", "___jb_old___"].into_iter().any(ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn globs(texts: &[&str]) -> Files {
        Files::Globs(texts.iter().map(|text| Pattern::parse(text).unwrap()).collect())
    }

    fn counted<'a>(files: &Files, paths: &[&'a str]) -> Vec<&'a str> {
        let reached = |path: &Path| path.ancestors().skip(1).all(|dir| files.enters(dir));
        paths
            .iter()
            .copied()
            .filter(|path| files.counts(Path::new(path)) && reached(Path::new(path)))
            .collect()
    }

    const TREE: [&str; 16] = [
        "server.py",
        "server.py~",
        ".server.py.swp",
        "#server.py#",
        "4913",
        ".env",
        "package.json",
        "data.json",
        "state.db",
        "src/deep/er/a.ts",
        "src/.cache/a.ts",
        "src/b.json",
        "node_modules/x/index.js",
        "__pycache__/server.cpython-311.pyc",
        "target/release/weather",
        "target/release/build.rs",
    ];

    #[test]
    fn without_globs_sources_and_the_program_count() {
        let files = Files::Sources { program: Some("target/release/weather".into()) };
        let wanted = ["server.py", ".env", "package.json", "src/deep/er/a.ts", "target/release/weather"];
        assert_eq!(counted(&files, &TREE), wanted);
    }

    #[test]
    fn a_glob_counts_what_it_means_and_enters_what_it_names() {
        for (given, wanted) in [
            (vec!["*.py"], vec!["server.py"]),
            (vec!["src/**"], vec!["src/deep/er/a.ts", "src/b.json"]),
            (vec!["src"], vec!["src/deep/er/a.ts", "src/b.json"]),
            (vec!["./src/*.json"], vec!["src/b.json"]),
            (vec!["**/*.ts"], vec!["src/deep/er/a.ts"]),
            (vec!["{server,x}.py", "data.json"], vec!["server.py", "data.json"]),
            (vec!["target/release/weather"], vec!["target/release/weather"]),
            (vec!["**/*.js"], vec![]),
            (vec!["node_modules/**/*.js"], vec!["node_modules/x/index.js"]),
            (vec!["**/*.js", "node_modules/x/y.js"], vec![]),
            (
                vec!["**/*.json", ".server.py.swp"],
                vec![".server.py.swp", "package.json", "data.json", "src/b.json"],
            ),
            (vec![], vec![]),
        ] {
            assert_eq!(counted(&globs(&given), &TREE), wanted, "{given:?}");
        }
    }

    #[test]
    fn no_more_directories_are_entered_than_a_glob_needs() {
        let entered = |given: &[&str], dir: &str| globs(given).enters(Path::new(dir));
        assert!(entered(&["src/*/a.py"], "src/x") && !entered(&["src/*/a.py"], "src/x/y"));
        assert!(entered(&["a/b/c.py"], "a/b") && !entered(&["a/b/c.py"], "a/d"));
        assert!(!entered(&["*.py"], "src") && !entered(&[], "src"));
    }
}
