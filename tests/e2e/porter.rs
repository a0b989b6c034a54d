//! Members on pipes: a porter stands in front of them, and nobody else can tell.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::hall::{BINARY, Hall, House, eventually, is_alive, python};
use crate::mcp::{At, Mcp};

/// A member of tests/members/piped.py with these knobs.
fn piped(house: &House, name: &str, knobs: &[&str], fields: Value) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/members/piped.py");
    let mut args = vec!["-S".to_owned(), script.display().to_string()];
    args.extend(knobs.iter().map(ToString::to_string));
    let mut all = json!({"transport": "stdio", "mcp": {"command": python(), "args": args}});
    all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    house.member(name, all)
}

/// The process numbers of the porter and of the plugin behind it.
fn pids(hall: &Hall, name: &str) -> (i32, i32) {
    let entry = hall.until(name, "connected");
    let plugin = hall.call_text(name, "pid", json!({})).parse().unwrap();
    (pid(&entry), plugin)
}

fn pid(entry: &Value) -> i32 {
    i32::try_from(entry["pid"].as_i64().unwrap()).unwrap()
}

fn kill(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

fn until_dead(pids: &[i32]) {
    eventually(&format!("{pids:?} are dead"), || pids.iter().all(|&pid| !is_alive(pid)).then_some(()));
}

fn heard(dir: &Path) -> Vec<String> {
    fs::read_to_string(dir.join("heard")).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// A client that can be asked for samples.
fn asked_client(hall: &Hall) -> Mcp {
    Mcp::open_with(At::Socket(hall.socket.clone()), "/mcp", json!({"sampling": {}}))
}

#[test]
fn a_plugin_on_pipes_is_a_member_like_any_other() {
    let house = House::new();
    let dir = piped(&house, "p", &["noise"], json!({}));
    let hall = house.start();
    let entry = hall.until("p", "connected");
    assert_eq!((&entry["transport"], &entry["dialect"]), (&json!("stdio"), &json!("guild")));
    let mcp = Mcp::open(&hall, "/mcp");
    assert!(mcp.tools().contains(&"p__echo".to_owned()));
    assert_eq!(mcp.text("p__echo", json!({"text": "größer"})), "größer");
    assert_eq!(hall.call_text("p", "echo", json!({"text": "over the API"})), "over the API");
    assert_eq!(heard(&dir), ["notifications/initialized "], "it is introduced once");
    let (_, log) = hall.get("/v1/members/p/logs");
    assert!(log.as_str().unwrap().contains("no message: Hello, I am a server!"), "{log}");
}

#[test]
fn its_environment_is_that_of_a_member_less_what_is_the_porters() {
    let house = House::new();
    piped(&house, "p", &[], json!({}));
    let hall = house.start();
    hall.until("p", "connected");
    let env: Value = serde_json::from_str(&hall.call_text("p", "env", json!({}))).unwrap();
    assert_eq!(env["GUILD_HALL_INSTANCE"], hall.entry("p")["instance"]);
    let names: Vec<&String> = env.as_object().unwrap().keys().collect();
    assert!(names.iter().all(|name| *name != "PORT" && !name.starts_with("NOTIFY")), "{names:?}");
}

#[test]
fn it_outlives_the_hall_with_its_porter() {
    let house = House::new();
    let dir = piped(&house, "p", &[], json!({}));
    let mut hall = house.start();
    let before = pids(&hall, "p");
    hall.signal(Signal::KILL);
    hall.wait();
    let hall = house.start();
    assert_eq!(pids(&hall, "p"), before);
    assert_eq!(hall.entry("p")["adopted"], true);
    assert_eq!(heard(&dir).len(), 1, "it is not introduced to each hall anew");
    hall.stop();
    until_dead(&[before.0, before.1]);
}

#[test]
fn porter_and_plugin_end_together() {
    let house = House::new();
    piped(&house, "p", &[], json!({}));
    let hall = house.start();
    let (porter, plugin) = pids(&hall, "p");
    kill(porter, Signal::KILL);
    until_dead(&[plugin]);
    let entry =
        hall.until_entry("p", "came back", |entry| entry["restarts"] == 1 && entry["phase"] == "connected");
    assert_eq!(entry["lastExit"]["signal"], "SIGKILL");
    let (porter, plugin) = pids(&hall, "p");
    kill(plugin, Signal::SEGV);
    let entry = hall.until_entry("p", "came back", |entry| entry["restarts"] == 2);
    assert_eq!(entry["lastExit"]["signal"], "SIGSEGV");
    until_dead(&[porter]);
}

#[test]
fn how_a_plugin_ends_is_how_its_member_ends() {
    let house = House::new();
    for (name, knobs) in [("0", "exit=0"), ("1", "exit=1"), ("2", "exit=2")] {
        piped(&house, name, &[knobs], json!({"restart": "never"}));
    }
    piped(&house, "later", &[], json!({"restart": "never"}));
    let hall = house.start();
    hall.until("0", "stopped");
    assert_eq!(hall.until("1", "failed")["lastExit"]["code"], 1);
    // A porter that exits with 2 has no port; that is not what this plugin means.
    let two = hall.until("2", "failed");
    assert_eq!((&two["lastExit"]["code"], &two["attempts"]), (&json!(1), &json!(1)));
    assert!(two["stderrTail"].to_string().contains("the plugin exited with code 2"), "{two}");
    hall.until("later", "connected");
    let (status, answer) = hall.call("later", "exit", json!({"code": 3}));
    assert_eq!(status, 502, "{answer}");
    assert_eq!(hall.until("later", "failed")["lastExit"]["code"], 3);
}

#[test]
fn a_stop_leaves_nothing_of_it() {
    let house = House::new();
    for (name, knobs) in [("good", &[][..]), ("deaf", &["deaf"])] {
        piped(&house, name, knobs, json!({"stopTimeoutMs": 1000}));
    }
    let hall = house.start();
    let mut all = Vec::new();
    for name in ["good", "deaf"] {
        let (porter, plugin) = pids(&hall, name);
        let child: i32 = hall.call_text(name, "leave_behind", json!({})).parse().unwrap();
        all.extend([porter, plugin, child]);
        assert_eq!(hall.post(&format!("/v1/members/{name}/stop"), &json!({})).0, 200);
    }
    until_dead(&all);
    assert_eq!(hall.entry("good")["lastExit"]["code"], 0);
    assert_eq!(hall.entry("deaf")["lastExit"]["signal"], "SIGKILL");
}

#[test]
fn what_keeps_it_from_starting_is_told() {
    let house = House::new();
    let never = json!({"restart": "never"});
    let with = |fields: Value| {
        let mut all = never.as_object().unwrap().clone();
        all.extend(fields.as_object().unwrap().clone());
        Value::Object(all)
    };
    house.member(
        "missing",
        with(json!({"transport": "stdio", "mcp": {"command": "no-such-program", "args": []}})),
    );
    piped(&house, "mute", &["mute"], with(json!({"startTimeoutMs": 500})));
    let hall = house.start();
    let missing = hall.until("missing", "failed");
    assert!(
        missing["stderrTail"].to_string().contains("cannot find the command \\\"no-such-program\\\""),
        "{missing}"
    );
    let mute = hall.until("mute", "failed");
    assert!(mute["error"].as_str().unwrap().contains("no MCP handshake"), "{mute}");
}

#[test]
fn the_halls_own_binary_is_found_behind_a_porter_too() {
    let house = House::new();
    let mcp = json!({"command": "${GUILD_HALL}", "args": ["--version"]});
    house.member("own", json!({"transport": "stdio", "mcp": mcp}));
    let hall = house.start();
    hall.until("own", "stopped");
    let (_, log) = hall.get("/v1/members/own/logs");
    assert!(log.as_str().unwrap().contains("guild-hall 0."), "{log}");
}

#[test]
fn calls_run_side_by_side_and_a_cancelled_one_is_cancelled_behind() {
    let house = House::new();
    let dir = piped(&house, "p", &[], json!({}));
    let hall = house.start();
    hall.until("p", "connected");
    let mcp = Mcp::open(&hall, "/mcp");
    let hanging = mcp.begin("p__hang");
    for n in 0..20 {
        assert_eq!(mcp.text("p__echo", json!({"text": n.to_string()})), n.to_string());
    }
    drop(hanging);
    eventually("the plugin is told", || {
        heard(&dir).iter().any(|said| said.starts_with("notifications/cancelled")).then_some(())
    });
    assert_eq!(mcp.text("p__echo", json!({"text": "on"})), "on");
}

#[test]
fn progress_and_questions_reach_the_client_that_made_the_call() {
    let house = House::new();
    piped(&house, "p", &[], json!({}));
    let hall = house.start();
    hall.until("p", "connected");
    let mcp = asked_client(&hall);
    let params = json!({"name": "p__progress", "arguments": {"to": 3}, "_meta": {"progressToken": "mine"}});
    let answer =
        mcp.try_post(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})).unwrap();
    let told: Vec<&Value> = answer.messages.iter().map(|said| &said["params"]).collect();
    for (n, told) in told.iter().take(3).enumerate() {
        assert_eq!(**told, json!({"progressToken": "mine", "progress": n + 1}));
    }
    assert_eq!(answer.last()["result"]["content"][0]["text"], "done");

    let mut lines = BufReader::new(mcp.begin("p__ask")).lines();
    let asked = loop {
        let line = lines.next().unwrap().unwrap();
        if let Some(data) = line.strip_prefix("data: ") {
            break serde_json::from_str::<Value>(data).unwrap();
        }
    };
    assert_eq!(asked["method"], "sampling/createMessage", "{asked}");
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"role": "assistant"}});
    assert_eq!(mcp.try_post(&answer).unwrap().status, 202);
    let rest: String = lines.map_while(Result::ok).collect();
    assert!(rest.contains(r#"{\"role\": \"assistant\"}"#), "{rest}");

    // Who cannot be asked is not.
    let refused = Mcp::open(&hall, "/mcp").text("p__ask", json!({}));
    assert!(refused.contains("cannot be asked"), "{refused}");
}

#[test]
fn an_answer_that_is_too_large_is_left_out_and_harms_no_other_call() {
    let house = House::new();
    piped(&house, "p", &[], json!({}));
    let hall = house.start();
    let before = pids(&hall, "p");
    let (status, answer) = hall.call("p", "huge", json!({"bytes": 17 * 1024 * 1024}));
    assert_ne!(status, 200, "{answer}");
    assert!(answer.to_string().contains("more than 16 MiB"), "{answer}");
    assert_eq!(hall.call_text("p", "huge", json!({"bytes": 4_000_000})).len(), 4_000_000);
    assert_eq!(pids(&hall, "p"), before);
}

#[test]
fn a_plugin_that_closes_its_stdout_is_ended() {
    let house = House::new();
    piped(&house, "p", &[], json!({}));
    let hall = house.start();
    let (porter, plugin) = pids(&hall, "p");
    let (status, answer) = hall.call("p", "close", json!({}));
    assert_ne!(status, 200, "{answer}");
    until_dead(&[porter, plugin]);
    hall.until_entry("p", "came back", |entry| entry["restarts"] == 1 && entry["phase"] == "connected");
}

#[test]
fn a_porter_whose_port_is_taken_or_that_is_told_nothing_says_so() {
    let house = House::new();
    let held = TcpListener::bind(("127.0.0.1", house.first_port())).unwrap();
    let port = held.local_addr().unwrap().port().to_string();
    let run = |told: &str| {
        let mut command = Command::new(BINARY);
        command.args(["porter", "--port", &port]).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(told.as_bytes()).unwrap();
        let ended = child.wait_with_output().unwrap();
        (ended.status.code().unwrap(), String::from_utf8(ended.stderr).unwrap())
    };
    let plugin = json!({"id": "x", "name": "x", "description": "x", "keywords": [], "capabilities": []});
    let behind = json!({"Stdio": {"program": {"command": "cat", "args": [], "env": []}}});
    let document = json!({"plugin": plugin, "behind": behind, "timeout": {"secs": 30, "nanos": 0}});
    let (code, said) = run(&document.to_string());
    assert_eq!(code, 2, "{said}");
    assert!(said.contains(&format!("port {port} is taken")), "{said}");
    let (code, said) = run("");
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("is started by the hall"), "{said}");
}
