//! Stopping: nothing is left, whatever a member ignores or leaves behind, and nobody waits longer
//! than was said.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::hall::{Hall, House, eventually, is_alive, python};
use crate::nobody;
use crate::traces::{NEVER, RECORD, connected, count, descendants, done, patient, pid, until_dead};

#[test]
fn a_deaf_member_is_killed_when_its_time_to_stop_is_over() {
    let house = House::new();
    let members = [("deaf", 300), ("deaf-without-time", 0)];
    for (name, timeout) in members {
        house.rogue_with(name, &["--deaf"], json!({"startTimeoutMs": NEVER, "stopTimeoutMs": timeout}));
    }
    let hall = house.start();
    let first = members.map(|(name, _)| pid(&connected(&hall, name)));
    done(&house, &["restart", "deaf", "deaf-without-time"]);
    let second = members.map(|(name, _)| {
        let entry = connected(&hall, name);
        assert_eq!((&entry["lastExit"]["signal"], &entry["restarts"]), (&json!("SIGKILL"), &json!(0)));
        pid(&entry)
    });
    assert!(!first.into_iter().any(is_alive));
    hall.stop();
    assert!(!second.into_iter().any(is_alive));
}

#[test]
fn a_member_that_takes_its_time_to_stop_is_given_it() {
    let house = House::new();
    let knobs = ["--term-delay", "700", "--exit-code-on-term", "7"];
    house.rogue_with("slow", &knobs, json!({"startTimeoutMs": NEVER, "stopTimeoutMs": NEVER}));
    let hall = house.start();
    connected(&hall, "slow");
    done(&house, &["stop", "slow"]);
    let entry = hall.entry("slow");
    assert_eq!((&entry["phase"], &entry["lastExit"]["code"]), (&json!("stopped"), &json!(7)), "{entry:#}");
    assert_eq!(
        (&entry["error"], &entry["restarts"]),
        (&Value::Null, &json!(0)),
        "an asked-for end is no failure"
    );
}

#[test]
fn a_frozen_member_is_woken_to_stop() {
    let house = House::new();
    house.rogue_with("frozen", &[], json!({"startTimeoutMs": NEVER, "stopTimeoutMs": NEVER}));
    let hall = house.start();
    let process = pid(&connected(&hall, "frozen"));
    kill_process(Pid::from_raw(process).unwrap(), Signal::STOP).unwrap();
    done(&house, &["stop", "frozen"]);
    assert_eq!(hall.entry("frozen")["lastExit"]["code"], 0, "it ended by itself");
    assert!(!is_alive(process));
}

/// Two deaf families that would take a minute each; returns their directories.
fn write_deaf_families(house: &House, command: &str) -> [PathBuf; 2] {
    let knobs = ["--deaf", "--setsid-fork", "--fork", "1"];
    ["deaf", "deafer"].map(|name| nobody::rogue(house, command, name, &knobs, 60_000))
}

fn assert_the_second_sigterm_kills(mut hall: Hall, dirs: &[PathBuf; 2]) {
    let mut pids: Vec<i32> = ["deaf", "deafer"].map(|name| pid(&connected(&hall, name))).into();
    pids.extend(dirs.iter().flat_map(|dir| descendants(dir)));
    assert_eq!(pids.len(), 6);
    hall.signal(Signal::TERM);
    for name in ["deaf", "deafer"] {
        assert_eq!(hall.until(name, "stopping")["status"], "disconnected");
    }
    assert!(is_alive(pids[0]) && is_alive(pids[1]));
    let asked = Instant::now();
    hall.signal(Signal::TERM);
    let status = hall.wait();
    assert!(status.success(), "{status}:\n{}", hall.log());
    assert!(asked.elapsed() < Duration::from_secs(30), "the second signal must not wait for stopTimeoutMs");
    assert!(!pids.iter().any(|&pid| is_alive(pid)));
}

#[test]
fn a_second_sigterm_kills_the_deaf_at_once() {
    let house = House::new();
    let dirs = write_deaf_families(&house, python());
    assert_the_second_sigterm_kills(house.start(), &dirs);
}

#[test]
fn a_second_sigterm_kills_the_deaf_at_once_without_cgroups_too() {
    let Some(python) = nobody::python() else { return };
    let house = House::new();
    let dirs = write_deaf_families(&house, python);
    assert_the_second_sigterm_kills(nobody::start(&house), &dirs);
}

#[test]
fn sigint_is_heard_as_sigterm_is() {
    let house = House::new();
    house.rogue_with("member", &[], patient());
    house.rogue_with("mute", &["--mute"], patient());
    let mut hall = house.start();
    let pids = [pid(&connected(&hall, "member")), pid(&hall.until("mute", "greeting"))];
    hall.signal(Signal::INT);
    let status = hall.wait();
    assert!(status.success(), "{status}:\n{}", hall.log());
    assert!(!pids.iter().any(|&pid| is_alive(pid)));
    assert!(!house.run_dir().join("guild-hall.sock").exists());
    assert_eq!(
        fs::read_dir(house.run_dir().join(".mcp-servers")).unwrap().count(),
        0,
        "a clean stop leaves no PID file"
    );
}

#[test]
fn a_call_under_way_ends_with_its_member() {
    let house = House::new();
    let dir = house.rogue_with("busy", &RECORD, patient());
    let hall = house.start();
    connected(&hall, "busy");
    let body = json!({"member": "busy", "tool": "sleep", "arguments": {"ms": NEVER}, "timeoutMs": NEVER})
        .to_string();
    let mut call = hall.connect();
    let head = format!(
        "POST /v1/call HTTP/1.1\r\nhost: hall\r\nconnection: close\r\ncontent-length: {}",
        body.len()
    );
    write!(call, "{head}\r\n\r\n{body}").unwrap();
    eventually("the call is under way", || (count(&dir, "tools/call") == 1).then_some(()));
    done(&house, &["stop", "busy"]);
    let mut answer = String::new();
    call.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 502") && answer.contains("busy"), "{answer}");
}

/// A launcher that exits 0 and leaves its server running, and one that waits for its server.
fn write_launchers(house: &House, python: &str) -> PathBuf {
    let rogue = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/members/rogue.py");
    let [daemon, _] = [
        ("daemon", r#""$0" -S "$1" --port "$PORT" & echo $! > server; exit 0"#),
        ("wrapped", r#""$0" -S "$1" --port "$PORT"; true"#),
    ]
    .map(|(name, script)| {
        let mcp = json!({"command": "sh", "args": ["-c", script, python, rogue]});
        house.member(name, json!({"mcp": mcp, "startTimeoutMs": NEVER}))
    });
    daemon
}

fn assert_servers_end_with_their_launchers(house: &House, hall: Hall, daemon: &Path) {
    let left = |entry: &Value| entry["phase"] == "stopped" && !entry["lastExit"].is_null();
    let entry = hall.until_entry("daemon", "has left its server", left);
    assert_eq!((&entry["lastExit"]["code"], &entry["status"]), (&json!(0), &json!("disconnected")));
    let server: i32 = fs::read_to_string(daemon.join("server")).unwrap().trim().parse().unwrap();
    until_dead("the server that was left", &[server]);

    let launcher = pid(&connected(&hall, "wrapped"));
    let server: i32 = hall.call_text("wrapped", "pid", json!({})).parse().unwrap();
    assert_ne!(server, launcher, "the roster tells the process that was launched");
    done(house, &["stop", "wrapped"]);
    until_dead("the wrapper and its server", &[server, launcher]);
    let first = house.first_port();
    eventually("their ports are free", || {
        (first..first + 2).map(|port| TcpListener::bind(("127.0.0.1", port)).ok()).collect::<Option<Vec<_>>>()
    });
    hall.stop();
}

#[test]
fn a_server_ends_with_the_launcher_that_is_the_member() {
    let house = House::new();
    let daemon = write_launchers(&house, python());
    let hall = house.start();
    assert_servers_end_with_their_launchers(&house, hall, &daemon);
}

#[test]
fn a_server_ends_with_the_launcher_that_is_the_member_without_cgroups_too() {
    let Some(python) = nobody::python() else { return };
    let house = House::new();
    let daemon = write_launchers(&house, python);
    let hall = nobody::start(&house);
    assert_servers_end_with_their_launchers(&house, hall, &daemon);
}

const FAMILY: [&str; 4] = ["--fork", "2", "--setsid-fork", "--setsid-clean-env"];

/// Three members with children in their group, an orphan in a session of its own, and one that has
/// thrown away its environment: one is stopped, one crashes, one is there when the hall ends.
/// `command` is the interpreter.
fn write_families(house: &House, command: &str) -> [PathBuf; 3] {
    [("stopped", &[][..]), ("crashing", &["--lie", "crash"]), ("staying", &[])]
        .map(|(name, knobs)| nobody::rogue(house, command, name, &[&FAMILY[..], knobs].concat(), 300))
}

fn assert_families_end(house: &House, hall: Hall, dirs: [PathBuf; 3], has_cgroup: bool) {
    for name in ["stopped", "crashing", "staying"] {
        connected(&hall, name);
    }
    let [stopped, crashing, staying] = dirs.map(|dir| descendants(&dir));
    let all = [&stopped[..], &crashing, &staying].concat();
    assert_eq!(all.len(), 12, "{all:?}");
    assert!(all.iter().all(|&pid| is_alive(pid)), "{all:?}");
    // What has thrown away its environment is found by its cgroup, or when the hall ends.
    let found_at_once = |family: &[i32]| if has_cgroup { family.to_vec() } else { family[..3].to_vec() };

    done(house, &["stop", "stopped"]);
    until_dead("the descendants of a stopped member", &found_at_once(&stopped));
    assert_eq!(hall.call("crashing", "echo", json!({"text": ""})).0, 502);
    hall.until("crashing", "failed");
    until_dead("the descendants of a crashed member", &found_at_once(&crashing));
    assert!(staying.iter().all(|&pid| is_alive(pid)), "another member's family is nobody's business");
    hall.stop();
    assert!(!all.iter().any(|&pid| is_alive(pid)), "something outlived the hall: {all:?}");
}

#[test]
fn whatever_a_member_leaves_behind_ends_with_it() {
    let house = House::new();
    let dirs = write_families(&house, python());
    let hall = house.start();
    connected(&hall, "staying");
    let has_cgroup = nobody::has_cgroup(&house, "staying");
    assert_families_end(&house, hall, dirs, has_cgroup);
}

#[test]
fn whatever_a_member_leaves_behind_ends_with_it_without_cgroups_too() {
    let Some(python) = nobody::python() else { return };
    let house = House::new();
    let dirs = write_families(&house, python);
    let hall = nobody::start(&house);
    connected(&hall, "staying");
    assert!(!nobody::has_cgroup(&house, "staying"), "it has one all the same");
    assert_families_end(&house, hall, dirs, false);
}
