//! What members leave behind for a test to read: the files of tests/members/rogue.py, their
//! processes, and where a launch has ended.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::hall::{Hall, House, eventually, is_alive, python};

/// The knob that makes a rogue keep what [`requests`] reads.
pub const RECORD: [&str; 2] = ["--record", "requests"];
/// A time that never comes in a test; milliseconds.
pub const NEVER: u64 = 600_000;

/// The port of each launch of a rogue, in order.
pub fn launches(dir: &Path) -> Vec<u16> {
    lines(&dir.join("launches")).iter().map(|port| port.parse().unwrap()).collect()
}

/// The processes that a rogue has left behind.
pub fn descendants(dir: &Path) -> Vec<i32> {
    lines(&dir.join("descendants")).iter().map(|pid| pid.parse().unwrap()).collect()
}

/// Every request that a rogue has read, its body parsed.
pub fn requests(dir: &Path) -> Vec<Value> {
    let parsed = lines(&dir.join("requests")).into_iter().map(|line| {
        let mut request: Value = serde_json::from_str(&line).unwrap();
        request["body"] = serde_json::from_str(request["body"].as_str().unwrap()).unwrap();
        request
    });
    parsed.collect()
}

/// How often a JSON-RPC method was asked for.
pub fn count(dir: &Path, method: &str) -> usize {
    requests(dir).iter().filter(|request| request["body"]["method"] == method).count()
}

/// The complete lines of a file, none if it is not there.
pub fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(Into::into).collect()
}

/// Fields of a manifest for a member that has all the time it wants and fails only once.
pub fn patient() -> Value {
    json!({"startTimeoutMs": NEVER, "restart": "never"})
}

/// `mcp` of a manifest that runs tests/members/curt.py, which hangs up `now` or `later`.
pub fn curt_mcp(when: &str) -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/members/curt.py");
    json!({"command": python(), "args": ["-S", script, when]})
}

/// Waits until a launch has come to its end, for better or worse, and returns the entry.
#[track_caller]
pub fn settled(hall: &Hall, name: &str) -> Value {
    let at_rest = |entry: &Value| matches!(entry["phase"].as_str(), Some("connected" | "failed"));
    hall.until_entry(name, "is at rest", at_rest)
}

/// Waits until a member is connected; one that has failed is not waited for.
#[track_caller]
pub fn connected(hall: &Hall, name: &str) -> Value {
    let entry = settled(hall, name);
    assert_eq!(entry["phase"], "connected", "{entry:#}\n{}", hall.log());
    entry
}

pub fn pid(entry: &Value) -> i32 {
    i32::try_from(entry["pid"].as_i64().unwrap_or_else(|| panic!("no pid in {entry:#}"))).unwrap()
}

/// What is wrong, as the roster has it.
pub fn error(entry: &Value) -> &str {
    entry["error"].as_str().unwrap_or_else(|| panic!("no error in {entry:#}"))
}

/// Asserts that an error says all of this.
#[track_caller]
pub fn assert_says(entry: &Value, words: &[&str]) {
    let error = error(entry);
    for word in words {
        assert!(error.contains(word), "{} should say {word:?}: {error}", entry["name"]);
    }
}

#[track_caller]
pub fn until_dead(what: &str, pids: &[i32]) {
    eventually(&format!("{what} are dead: {pids:?}"), || {
        (!pids.iter().any(|&pid| is_alive(pid))).then_some(())
    });
}

/// Runs a verb that must succeed, and returns what it printed.
#[track_caller]
pub fn done(house: &House, args: &[&str]) -> String {
    let output = house.cli(args);
    assert!(output.status.success(), "{args:?}: {}", printed(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// All that a verb has printed.
pub fn printed(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Asserts that a text cannot steer a terminal.
#[track_caller]
pub fn assert_harmless(text: &str) {
    let bidi =
        |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let bad = text.chars().find(|&c| c != '\n' && (c.is_control() || bidi(c)));
    assert_eq!(bad, None, "in {text:?}");
}
