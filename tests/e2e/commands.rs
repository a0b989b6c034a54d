//! Commands that cannot be run, or end at once: what the roster says of them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::hall::{House, python};
use crate::nobody;
use crate::traces::{assert_harmless, assert_says, done, error, patient, printed, settled};

/// A member of one command that is tried once.
fn member(house: &House, name: &str, mcp: Value) -> std::path::PathBuf {
    house.member(name, json!({"mcp": mcp, "restart": "never"}))
}

fn write_file(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_command_that_cannot_be_run_is_named_with_the_reason() {
    let house = House::new();
    let here = json!({"command": "./tool", "args": []});
    let lost = json!({"command": "guild-hall-no-such-command", "args": []});
    member(&house, "lost", lost.clone());
    let elsewhere = json!({"command": "guild-hall-no-such-command", "args": [], "env": {"PATH": "/nowhere/a:/nowhere/b"}});
    member(&house, "lost-in-its-own-path", elsewhere);
    member(&house, "absent", here.clone());
    let plain = member(&house, "not-executable", here.clone());
    write_file(&plain.join("tool"), "#!/bin/sh\nexit 0\n", 0o644);
    let interpreter = member(&house, "no-interpreter", here.clone());
    write_file(&interpreter.join("tool"), "#!/no/such/interpreter -x\nexit 0\n", 0o755);
    let directory = member(&house, "directory", here.clone());
    fs::create_dir(directory.join("tool")).unwrap();
    let shebang = member(&house, "no-shebang", here.clone());
    write_file(&shebang.join("tool"), "echo no first line\n", 0o755);
    let empty = member(&house, "empty", here.clone());
    write_file(&empty.join("tool"), "", 0o755);
    let by_path =
        json!({"command": "tool", "args": [], "env": {"PATH": format!("{}:/nowhere", plain.display())}});
    member(&house, "not-executable-in-path", by_path);
    let dangling = member(&house, "dangling", here);
    std::os::unix::fs::symlink("gone", dangling.join("tool")).unwrap();

    let hall = house.start();
    let path = std::env::var("PATH").unwrap();
    let dir = |dir: &Path| dir.canonicalize().unwrap().display().to_string();
    for (name, words) in [
        ("lost", &["guild-hall-no-such-command", "PATH", &path][..]),
        ("lost-in-its-own-path", &["guild-hall-no-such-command", "PATH", "/nowhere/a:/nowhere/b"]),
        ("absent", &["./tool", "there is no"]),
        ("dangling", &["./tool", "there is no"]),
        ("not-executable", &["not executable", "chmod +x", &dir(&plain)]),
        ("not-executable-in-path", &["not executable", &dir(&plain)]),
        ("no-interpreter", &["interpreter", "/no/such/interpreter", &dir(&interpreter)]),
        ("directory", &["is a directory", &dir(&directory)]),
        ("no-shebang", &["#!", &dir(&shebang)]),
        ("empty", &["#!", &dir(&empty)]),
    ] {
        let entry = settled(&hall, name);
        assert_eq!(
            (&entry["phase"], &entry["status"], &entry["pid"]),
            (&json!("failed"), &json!("error"), &Value::Null)
        );
        assert_says(&entry, words);
        assert_eq!(entry["lastExit"], Value::Null, "nothing was ever run: {entry:#}");
    }
    let left = fs::read_dir(house.run_dir().join(".mcp-servers")).unwrap().count();
    assert_eq!(left, 0, "what was not launched leaves no PID file");
    hall.stop();
}

#[test]
fn a_command_behind_a_closed_door_is_not_said_to_be_missing() {
    if nobody::python().is_none() {
        return;
    }
    let house = House::new();
    let closed = tempfile::tempdir().unwrap();
    write_file(&closed.path().join("tool"), "#!/bin/sh\nexit 0\n", 0o755);
    fs::set_permissions(closed.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let tool = closed.path().join("tool").display().to_string();
    member(&house, "outside", json!({"command": tool, "args": []}));
    let hall = nobody::start(&house);
    let entry = settled(&hall, "outside");
    assert_says(&entry, &[&tool, "ermission denied"]);
    assert!(!error(&entry).contains("there is no"), "{}", error(&entry));
}

#[test]
fn a_command_that_is_installed_later_is_run_by_the_next_start() {
    let house = House::new();
    let rogue = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/members/rogue.py");
    let mcp = json!({"command": "bin/tool", "args": ["--port", "${PORT}"]});
    let dir = house.member("late", json!({"mcp": mcp}));
    let hall = house.start();
    let entry = hall.until_entry("late", "waits for its next restart", |entry| {
        entry["phase"] == "waiting" && entry["retryAt"].is_string()
    });
    assert_says(&entry, &["bin/tool", "there is no"]);
    let output = house.cli(&["start", "late"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(printed(&output).contains("bin/tool"), "{}", printed(&output));

    fs::create_dir(dir.join("bin")).unwrap();
    write_file(&dir.join("bin/tool"), &format!("#!/bin/sh\nexec {} -S {rogue} \"$@\"\n", python()), 0o755);
    hall.until("late", "connected");
    done(&house, &["restart", "late"]);
    assert_eq!(hall.call_text("late", "echo", json!({"text": "found"})), "found");
}

#[test]
fn a_command_that_dies_at_once_is_told_with_its_exit_and_last_words() {
    let house = House::new();
    let shell = |script: &str| json!({"command": "sh", "args": ["-c", script]});
    member(&house, "speaking", shell("echo one; echo two >&2; echo; exit 3"));
    member(&house, "silent", shell("exit 4"));
    member(&house, "killed", shell("echo dying >&2; kill -KILL $$"));
    member(
        &house,
        "python",
        json!({"command": python(), "args": ["-S", "-c", "import no_such_module_at_all"]}),
    );
    let hall = house.start();
    let speaking = settled(&hall, "speaking");
    assert_says(&speaking, &["exited with code 3", "two"]);
    assert_eq!(speaking["stderrTail"], json!(["one", "two"]), "stdout and stderr, in order");
    let silent = settled(&hall, "silent");
    assert_says(&silent, &["exited with code 4"]);
    assert_eq!((&silent["stderrTail"], &silent["lastExit"]["code"]), (&json!([]), &json!(4)));
    assert_says(&settled(&hall, "killed"), &["was killed by SIGKILL", "dying"]);
    assert_says(&settled(&hall, "python"), &["exited with code 1", "no_such_module_at_all"]);
}

#[test]
fn what_a_dying_member_writes_cannot_steer_a_terminal_or_flood_the_roster() {
    let house = House::new();
    let dies = ["--die-by-signal", "9"];
    house.rogue_with("garbage", &[&dies[..], &["--garbage-stderr"]].concat(), patient());
    house.rogue_with("long-line", &[&dies[..], &["--long-line", "1000000"]].concat(), patient());
    house.rogue_with("many-lines", &[&dies[..], &["--flood-lines", "100000"]].concat(), patient());
    let hall = house.start();
    let garbage = settled(&hall, "garbage");
    assert_says(&garbage, &["was killed by SIGKILL"]);
    let tail =
        |entry: &Value| -> Vec<String> { serde_json::from_value(entry["stderrTail"].clone()).unwrap() };
    let lines = tail(&garbage).join("\n");
    assert!(["broken", "red", "nul", "bidi"].iter().all(|word| lines.contains(word)), "{lines:?}");
    assert!(!lines.contains("[31m") && !lines.contains("[2J"), "escape sequences go whole: {lines:?}");
    let long = tail(&settled(&hall, "long-line"));
    assert!(long.len() == 1 && long[0].starts_with("xxx") && long[0].chars().count() < 1000, "{long:?}");
    let many = tail(&settled(&hall, "many-lines"));
    let wanted: Vec<String> = (99_981..=100_000).map(|line| format!("flood line {line}")).collect();
    assert_eq!(many, wanted);

    for name in ["garbage", "long-line", "many-lines"] {
        let entry = hall.entry(name);
        assert_harmless(error(&entry));
        assert!(error(&entry).len() < 2000, "{entry:#}");
        assert_harmless(&tail(&entry).join("\n"));
        assert_harmless(&done(&house, &["roster", name]));
    }
    assert_harmless(&done(&house, &["roster"]));
    assert_harmless(&hall.log());
}
