//! One run of the suite: what it prints is judged by the list of exceptions that belongs to the run.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where it lies below the fixtures.
const SUITE: &str = "conformance/node_modules/@modelcontextprotocol/conformance/dist/index.js";

/// Runs all that a revision requires, and what it names besides. `exceptions` is a file in the suite's
/// own form: a list of scenarios or `scenario:check`.
#[track_caller]
pub fn conforms(role: &str, revision: &str, exceptions: &str, more: &[&str]) {
    let list = directory().join("exceptions").join(format!("{exceptions}.yml"));
    let output = node()
        .args([&fixture(SUITE), Path::new(role)])
        .args(["--requirements", revision, "--expected-failures"])
        .arg(&list)
        .args(more)
        .env("NO_COLOR", "1")
        .output()
        .expect("node is needed");
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "the suite ended with {}:\n{said}", output.status);
    // What a revision names and does not require the suite does not judge.
    let listed = fs::read_to_string(&list).unwrap();
    let known: BTreeSet<&str> = listed.lines().filter_map(excepted).collect();
    let unknown: Vec<&str> = said.lines().filter_map(failing).filter(|name| !known.contains(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?} fail, and are not in {}:\n{said}", list.display());
    let total = said.lines().find(|line| line.starts_with("Total: "));
    println!("{exceptions}: {}", total.unwrap_or_else(|| panic!("the suite counted nothing:\n{said}")));
}

/// `✗ scenario: 1 passed, 2 failed`
fn failing(line: &str) -> Option<&str> {
    line.strip_prefix("✗ ")?.split_once(": ").map(|(scenario, _)| scenario)
}

/// `  - scenario:check  # why`
fn excepted(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("- ")?.split([':', ' ']).next()
}

/// The one that tests/run has installed, where that of this machine is too old.
fn node() -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut node = Command::new("node");
    node.env("PATH", format!("{}:{path}", fixtures().join("node/bin").display()));
    node
}

fn fixture(path: &str) -> PathBuf {
    let found = fixtures().join(path);
    assert!(found.exists(), "{} is not there: run ./tests/run, which installs it", found.display());
    found
}

fn fixtures() -> PathBuf {
    let in_target = || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/fixtures");
    std::env::var_os("GUILD_HALL_FIXTURES").map_or_else(in_target, PathBuf::from)
}

pub fn directory() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance"))
}
