//! Servers that know nothing of the hall, or stand on somebody's SDK: they come up with their tools,
//! answer a call, restart, and leave nothing behind. `tests/run` installs them.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::hall::{BINARY, Hall, House, eventually, is_alive, rogue_mcp};

/// A path below the fixtures, which must be there.
#[track_caller]
pub fn fixture(path: &str) -> String {
    let in_target = || repository().join("target/fixtures");
    let fixtures = std::env::var_os("GUILD_HALL_FIXTURES").map_or_else(in_target, PathBuf::from);
    let found = std::path::absolute(fixtures.join(path)).unwrap();
    assert!(found.exists(), "{} is not there: run ./tests/run, which installs it", found.display());
    found.display().to_string()
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A manifest's fields; a start may take long where many servers start at once.
fn launched_by(command: &str, args: &[&str]) -> Value {
    json!({"mcp": {"command": command, "args": args}, "startTimeoutMs": 60_000})
}

/// The launch of an example as its own manifest has it, in its own directory.
fn example(name: &str) -> Value {
    let dir = fixture(&format!("examples/{name}"));
    let manifest = fs::read(fixture(&format!("examples/{name}/guild-member.json"))).unwrap();
    let shipped: Value = serde_json::from_slice(&manifest).unwrap();
    let mut launch = vec!["-C", &dir, shipped["mcp"]["command"].as_str().unwrap()];
    launch.extend(shipped["mcp"]["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()));
    let mut fields = launched_by("env", &launch);
    fields["mcp"]["env"] = shipped["mcp"].get("env").cloned().unwrap_or_else(|| json!({}));
    fields
}

/// A hall that finds `bun`, and whose `cargo` finds what tests/run has built.
pub fn start(house: &House, flags: &[&str]) -> Hall {
    let path = format!("{}:{}", fixture("node_modules/.bin"), std::env::var("PATH").unwrap());
    let mut command = Command::new(BINARY);
    command.env("PATH", path).env("CARGO_TARGET_DIR", fixture("examples/rust/target"));
    house.start_command(command, flags)
}

/// A member of this house comes up with these tools and works, also after a restart, and ends without a trace.
#[track_caller]
fn lives_well(fields: Value, tools: &[&str], works: impl Fn(&Hall, &str)) {
    let house = House::new();
    house.member("server", fields);
    let hall = start(&house, &[]);
    lives_well_in(&house, &hall, "server", tools, works);
    hall.stop();
}

#[track_caller]
fn lives_well_in(house: &House, hall: &Hall, name: &str, tools: &[&str], works: impl Fn(&Hall, &str)) {
    let first = hall.until(name, "connected");
    assert_eq!(tool_names(&first), tools, "the tools of {name}");
    works(hall, name);
    assert!(!processes_of(&first).is_empty(), "no process of {name} is found");

    succeeds(&house.cli(&["restart", name]));
    let second = hall.entry(name);
    assert_eq!(second["phase"], "connected", "{second:#}");
    assert_ne!(first["pid"], second["pid"]);
    assert_eq!(tool_names(&second), tools, "the tools of {name} after a restart");
    assert_gone(&first);
    works(hall, name);

    succeeds(&house.cli(&["stop", name]));
    let ended = hall.entry(name);
    assert_eq!((&ended["phase"], &ended["error"]), (&json!("stopped"), &Value::Null), "{ended:#}");
    assert_gone(&second);
    let port = u16::try_from(second["port"].as_u64().unwrap()).unwrap();
    eventually("its port is free", || TcpListener::bind(("127.0.0.1", port)).ok());
    let pid_file = house.run_dir().join(format!(".mcp-servers/{}.json", name.replace('/', "--")));
    assert!(!pid_file.exists(), "{} is still there", pid_file.display());
}

/// Sorted, because the order of the tools is nobody's promise.
fn tool_names(entry: &Value) -> Vec<&str> {
    let mut names: Vec<&str> =
        entry["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    names
}

#[track_caller]
fn succeeds(output: &Output) {
    let said = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {said:?}", output.status);
}

/// The processes of this launch, whatever it forked.
fn processes_of(entry: &Value) -> Vec<i32> {
    let mark = format!("GUILD_HALL_INSTANCE={}", entry["instance"].as_str().unwrap());
    let is_marked = |pid: &i32| {
        let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        variables.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes())
    };
    let numbers =
        fs::read_dir("/proc").unwrap().filter_map(|found| found.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter(is_marked).filter(|&pid| is_alive(pid)).collect()
}

#[track_caller]
fn assert_gone(entry: &Value) {
    let left = processes_of(entry);
    assert!(left.is_empty(), "{} left processes behind: {left:?}", entry["name"]);
}

/// What the examples promise of `roll`.
#[track_caller]
fn rolls_dice(hall: &Hall, name: &str) {
    let (status, answer) = hall.call(name, "roll", json!({"notation": "2d6+1"}));
    assert_eq!(status, 200, "{answer}");
    let rolled = &answer["result"]["structuredContent"];
    let rolls: Vec<u64> =
        rolled["rolls"].as_array().unwrap().iter().map(|roll| roll.as_u64().unwrap()).collect();
    assert!(rolls.len() == 2 && rolls.iter().all(|roll| (1..=6).contains(roll)), "{answer}");
    let total = rolls.iter().sum::<u64>() + 1;
    assert_eq!(*rolled, json!({"rolls": rolls, "modifier": 1, "total": total}));
    assert_eq!(answer["result"]["content"][0]["text"], format!("2d6+1 = {total} {rolls:?}"));
}

#[test]
fn the_everything_server_of_npm() {
    let script = fixture("node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    let tools = [
        "echo",
        "get-annotated-message",
        "get-env",
        "get-resource-links",
        "get-resource-reference",
        "get-structured-content",
        "get-sum",
        "get-tiny-image",
        "gzip-file-as-resource",
        "simulate-research-query",
        "toggle-simulated-logging",
        "toggle-subscriber-updates",
        "trigger-long-running-operation",
    ];
    // Its port comes from PORT alone.
    lives_well(launched_by("node", &[&script, "streamableHttp"]), &tools, |hall, name| {
        let sum = hall.call_text(name, "get-sum", json!({"a": 2, "b": 40}));
        assert_eq!(sum, "The sum of 2 and 40 is 42.");
    });
}

#[track_caller]
fn adds(hall: &Hall, name: &str) {
    assert_eq!(hall.call_text(name, "add", json!({"a": 2, "b": 40})), "42");
}

#[test]
fn a_fastmcp_server_started_by_its_own_last_line() {
    let script = repository().join("tests/fixtures/fastmcp_server.py");
    let fields = launched_by(&fixture("venv/bin/python"), &[script.to_str().unwrap(), "${PORT}"]);
    lives_well(fields, &["add"], adds);
}

#[test]
fn a_fastmcp_server_started_by_fastmcp_run() {
    let script = repository().join("tests/fixtures/fastmcp_server.py");
    let args = ["run", script.to_str().unwrap(), "--transport", "http", "--port", "${PORT}"];
    lives_well(launched_by(&fixture("venv/bin/fastmcp"), &args), &["add"], adds);
}

#[test]
fn the_python_example() {
    lives_well(example("python"), &["flip", "roll"], rolls_dice);
}

#[test]
fn the_typescript_example_under_node() {
    lives_well(example("typescript/node"), &["flip", "roll"], rolls_dice);
}

#[test]
fn the_typescript_example_under_bun() {
    lives_well(example("typescript/bun"), &["flip", "roll"], rolls_dice);
}

#[test]
fn the_rust_example() {
    lives_well(example("rust"), &["flip", "roll"], rolls_dice);
}

#[test]
fn a_server_that_answers_three_requests_and_hangs_up_on_all_else() {
    let fields = json!({"mcp": rogue_mcp(&["--lie", "strict-three"])});
    lives_well(fields, &["echo", "env", "pid", "sleep"], |hall, name| {
        assert_eq!(hall.call_text(name, "echo", json!({"text": "hello"})), "hello");
    });
}

#[test]
fn a_shell_script_behind_socat() {
    let house = House::new();
    let dir = house.member("server", launched_by("sh", &["serve.sh", "${PORT}"]));
    for script in ["serve.sh", "handle.sh"] {
        fs::copy(repository().join("tests/members/socat").join(script), dir.join(script)).unwrap();
    }
    let hall = house.start();
    lives_well_in(&house, &hall, "server", &["upper"], |hall, name| {
        assert_eq!(hall.call_text(name, "upper", json!({"text": "hello"})), "HELLO");
    });
    hall.stop();
}

#[test]
fn the_shipped_members_come_up_as_they_are() {
    let house = House::new();
    let shipped = repository().join("guild-members");
    let hall = house.start_with(&["--members", shipped.to_str().unwrap()]);
    lives_well_in(&house, &hall, "example", &["add", "echo"], |hall, name| {
        assert_eq!(hall.call_text(name, "echo", json!({"text": "hello"})), "hello");
    });
    lives_well_in(&house, &hall, "toolbox/calc", &["convert", "evaluate"], |hall, name| {
        assert_eq!(hall.call_text(name, "evaluate", json!({"expression": "2 * 21"})), "42");
    });
    lives_well_in(&house, &hall, "toolbox/clock", &["between", "convert", "now"], |hall, name| {
        let days = hall.call_text(name, "between", json!({"start": "2026-03-02", "end": "2026-03-09"}));
        assert_eq!(days, "7 days; weekdays: 5");
    });
    assert_eq!(hall.get("/v1/roster").1["members"].as_array().unwrap().len(), 3);
    hall.stop();
}

#[test]
fn the_examples_come_up_as_they_are() {
    let house = House::new();
    let hall = start(&house, &["--members", &fixture("examples")]);
    let dice = ["python", "rust", "typescript/bun", "typescript/node"];
    // And `homeclaw/http`, whose server somebody has to start.
    let homeclaw = ["inline", "legacy", "mcp", "subprocess"].map(|name| format!("homeclaw/{name}"));
    let connected = |name: &str| hall.until(name, "connected");
    let mut entries: Vec<Value> = homeclaw.iter().map(|name| connected(name)).collect();
    for name in dice {
        entries.push(connected(name));
        rolls_dice(&hall, name);
    }
    assert_eq!(hall.get("/v1/roster").1["members"].as_array().unwrap().len(), entries.len() + 1);
    hall.stop();
    entries.iter().for_each(assert_gone);
}

#[test]
fn check_has_nothing_to_say_about_what_is_shipped() {
    let shipped = ["guild-members", "examples"].map(|dir| repository().join(dir).display().to_string());
    let checked = House::new().cli(&["check", &shipped[0], &shipped[1]]);
    succeeds(&checked);
    assert_eq!(String::from_utf8_lossy(&checked.stdout), "12 valid, 0 invalid\n");
}
