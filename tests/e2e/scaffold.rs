//! `new`: what it writes runs as it is, and what it cannot write leaves nothing behind.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::hall::{BINARY, Hall, House, eventually, python};
use crate::traces::{connected, done, printed};

/// Runs `new` in a house.
fn new(house: &House, args: &[&str]) -> Output {
    let members = house.members().display().to_string();
    house.cli(&[&["new", "--members", &members], args].concat())
}

#[track_caller]
fn written(house: &House, args: &[&str]) -> String {
    let output = new(house, args);
    assert!(output.status.success(), "{args:?}: {}", printed(&output));
    assert!(output.stderr.is_empty(), "{}", printed(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// All that stands below a directory, hidden or not.
fn below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            found.extend(below(&path));
        }
        found.push(path);
    }
    found
}

/// What every scaffold promises, whatever it is written in.
#[track_caller]
fn greets(house: &House, hall: &Hall, name: &str) {
    let entry = connected(hall, name);
    assert_eq!(entry["tools"].as_array().unwrap().len(), 1, "{entry:#}");
    let tool = &entry["tools"][0];
    assert_eq!(tool["name"], "greet");
    assert_eq!(tool["inputSchema"]["required"], json!(["name"]), "{tool:#}");
    assert_eq!(tool["inputSchema"]["properties"]["name"]["type"], "string", "{tool:#}");

    assert_eq!(done(house, &["call", name, "greet", r#"{"name":"Ada"}"#]), "Hello, Ada!\n");
    let refused = house.cli(&["call", name, "greet", r#"{"name":" "}"#]);
    assert_eq!(refused.status.code(), Some(5), "{}", printed(&refused));
    assert!(printed(&refused).contains("name is empty"), "{}", printed(&refused));
    let wrong = hall.call(name, "greet", json!({"name": 7}));
    assert!(wrong.1["result"]["isError"] == true || wrong.0 >= 400, "{wrong:?}");
    assert_eq!(hall.call_text(name, "greet", json!({"name": "Bo"})), "Hello, Bo!", "it lives on");

    let stopped = done(house, &["stop", name]);
    assert!(stopped.contains("stopped"), "{stopped}");
    let entry = hall.entry(name);
    assert_eq!((&entry["error"], &entry["lastExit"]["code"]), (&Value::Null, &json!(0)), "{entry:#}");
}

/// Its command on a port that is taken; it must say so with its exit code.
#[track_caller]
fn leaves_a_taken_port(dir: &Path, command: &[&str]) {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let mut launch = Command::new(command[0]);
    let output = launch.args(&command[1..]).args(["--port", &port]).current_dir(dir).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", printed(&output));
    assert!(!output.stderr.is_empty(), "its log tells why");
}

#[test]
fn a_member_in_python_runs_as_it_is() {
    let house = House::new();
    let told = written(&house, &["weather", "--lang", "python"]);
    for word in ["weather", "server.py", "guild-member.json", "guild-hall run", "call weather greet"] {
        assert!(told.contains(word), "{word} is not in {told}");
    }
    let hall = house.start();
    greets(&house, &hall, "weather");
    leaves_a_taken_port(&house.member_dir("weather"), &[python(), "server.py"]);
    hall.stop();
}

#[test]
fn a_member_in_typescript_runs_as_it_is() {
    let house = House::new();
    written(&house, &["box/weather", "--lang", "typescript"]);
    let hall = house.start();
    greets(&house, &hall, "box/weather");
    leaves_a_taken_port(&house.member_dir("box/weather"), &["node", "server.mjs"]);
    hall.stop();
}

/// Built beside a copy of what tests/run has built for the Rust example: others build there too.
#[test]
fn a_member_in_rust_runs_as_it_is() {
    let house = House::new();
    written(&house, &["box/weather", "--lang", "rust"]);
    let dir = house.member_dir("box/weather");
    let in_target = || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/fixtures");
    let fixtures = std::env::var_os("GUILD_HALL_FIXTURES").map_or_else(in_target, PathBuf::from);
    let example = std::path::absolute(fixtures.join("examples/rust")).unwrap();
    let target = dir.parent().unwrap().with_file_name("target");
    fs::create_dir_all(target.join("release")).unwrap();
    for part in ["deps", "build", ".fingerprint"] {
        let from = example.join("target/release").join(part);
        assert!(from.exists(), "{} is not there: run ./tests/run, which builds it", from.display());
        let copied = Command::new("cp").arg("-a").args([&from, &target.join("release")]).status().unwrap();
        assert!(copied.success());
    }
    // The versions that were built there.
    fs::copy(example.join("Cargo.lock"), dir.join("Cargo.lock")).unwrap();
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--quiet"]).current_dir(&dir).env("CARGO_TARGET_DIR", &target);
    let built = build.output().unwrap();
    assert!(built.status.success(), "{}", printed(&built));

    let mut command = Command::new(BINARY);
    command.env("CARGO_TARGET_DIR", &target);
    let hall = house.start_command(command, &[]);
    greets(&house, &hall, "box/weather");
    let program = target.join("release/member-box--weather");
    leaves_a_taken_port(&dir, &[program.to_str().unwrap()]);
    hall.stop();
}

#[test]
fn a_running_hall_that_watches_takes_up_a_new_member_by_itself() {
    let house = House::new();
    let hall = house.start_with(&["--watch"]);
    written(&house, &["box/weather", "--lang", "python"]);
    eventually("the new member is in the roster", || {
        (hall.get("/v1/roster/box%2Fweather").0 == 200).then_some(())
    });
    greets(&house, &hall, "box/weather");
}

#[test]
fn any_name_that_a_member_can_have_will_do() {
    let house = House::new();
    let odd = "it's a \"\\\" <<key>> $(id) 天気";
    let told = written(&house, &[odd, "--lang", "python"]);
    // What it says to do next does it.
    let call = told.lines().find(|line| line.contains(" call ")).unwrap();
    for lang in ["typescript", "rust"] {
        written(&house, &[&format!("{lang}/{odd}"), "--lang", lang]);
    }
    let checked = house.cli(&["check", house.members().to_str().unwrap()]);
    assert_eq!(String::from_utf8_lossy(&checked.stdout), "3 valid, 0 invalid\n", "{}", printed(&checked));
    let hall = house.start();
    eventually("it is connected", || {
        let (_, roster) = hall.get("/v1/roster");
        let entries = roster["members"].as_array().unwrap().clone();
        entries.iter().any(|entry| entry["name"] == odd && entry["phase"] == "connected").then_some(())
    });
    let line = call.replace("guild-hall", BINARY);
    let socket = house.run_dir().join("guild-hall.sock");
    let called = Command::new("sh").args(["-c", &line]).env("GUILD_HALL_SOCKET", socket).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&called.stdout), "Hello, Ada!\n", "{line}: {}", printed(&called));
}

#[test]
fn what_is_there_is_not_touched() {
    let house = House::new();
    written(&house, &["weather", "--lang", "python"]);
    let server = house.member_dir("weather").join("server.py");
    fs::write(&server, "mine").unwrap();
    let before = below(&house.members());
    let again = new(&house, &["weather", "--lang", "rust"]);
    assert_eq!(again.status.code(), Some(1), "{}", printed(&again));
    let said = printed(&again);
    assert!(said.contains("members/weather is there already") && said.contains("another name"), "{said}");
    let inside = new(&house, &["weather/inside", "--lang", "python"]);
    assert_eq!(inside.status.code(), Some(1));
    assert!(printed(&inside).contains("weather is a member itself"), "{}", printed(&inside));
    assert_eq!(below(&house.members()), before);
    assert_eq!(fs::read_to_string(server).unwrap(), "mine");

    house.member_dir("empty");
    written(&house, &["empty", "--lang", "typescript"]);
}

#[test]
fn a_scaffold_that_fails_leaves_nothing_behind() {
    let house = House::new();
    let root = house.members();
    fs::write(root.join("file"), "").unwrap();
    let into_a_file = new(&house, &["file/weather", "--lang", "rust"]);
    assert_eq!(into_a_file.status.code(), Some(1), "{}", printed(&into_a_file));
    assert!(printed(&into_a_file).contains("file/weather"), "{}", printed(&into_a_file));

    // The directory can be made, its files cannot be written: RLIMIT_FSIZE stands for a full disk.
    let members = root.join("not/there/yet");
    let line = format!(
        "ulimit -f 0; trap '' XFSZ; exec {BINARY} new box/weather --lang rust --members {}",
        members.display()
    );
    let full = Command::new("sh").args(["-c", &line]).output().unwrap();
    assert_eq!(full.status.code(), Some(1), "{}", printed(&full));
    assert!(printed(&full).contains("cannot write"), "{}", printed(&full));
    assert_eq!(below(&root), [root.join("file")]);
}

#[test]
fn what_cannot_be_a_member_is_wrong_usage() {
    let house = House::new();
    for (args, words) in [
        (&["a/b/c", "--lang", "python"][..], "two levels"),
        (&[".hidden", "--lang", "python"], "no hall looks"),
        (&["..", "--lang", "python"], "name"),
        (&["weather", "--lang", "pyton"], "similar value exists: 'python'"),
        (&["weather"], "--lang"),
    ] {
        let output = new(&house, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", printed(&output));
        assert!(printed(&output).contains(words), "{args:?}: {}", printed(&output));
    }
    assert_eq!(below(&house.members()), Vec::<PathBuf>::new());
}

#[test]
fn a_language_that_is_not_installed_is_said_so() {
    let house = House::new();
    let mut command = Command::new(BINARY);
    command.args(["new", "weather", "--lang", "typescript", "--members"]).arg(house.members());
    let output = command.env("PATH", "/nowhere").output().unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("\"node\"") && said.contains("/nowhere"), "{said}");
}
