//! SIGUSR2: the hall is re-executed in place, and neither members nor clients notice.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::hall::{BINARY, Hall, House, eventually, is_alive};
use crate::traces::{connected, descendants, launches, pid, until_dead};

/// How often a hall has come up or gone on, by its log.
fn images(hall: &Hall) -> usize {
    hall.log().matches("the hall is up").count()
}

/// Hands over and waits until the next image has taken over.
#[track_caller]
fn hand_over(hall: &Hall) {
    let before = images(hall);
    hall.signal(Signal::USR2);
    eventually("the next image has taken over", || (images(hall) > before).then_some(()));
}

/// An entry without what changes by itself.
fn lasting(entry: &Value) -> Value {
    let mut entry = entry.clone();
    for passing in ["memoryBytes", "cpuSeconds"] {
        entry.as_object_mut().unwrap().remove(passing);
    }
    entry
}

/// A client that keeps its connection.
struct Client(BufReader<UnixStream>);

impl Client {
    fn new(hall: &Hall) -> Self {
        Self(BufReader::new(hall.connect()))
    }

    fn send(&mut self, member: &str, tool: &str, arguments: &Value) {
        let body = json!({"member": member, "tool": tool, "arguments": arguments}).to_string();
        let request = format!(
            "POST /v1/call HTTP/1.1\r\nhost: hall\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
    }

    fn answer(&mut self) -> (u16, Value) {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap_or_else(|| panic!("no answer: {line:?}")).parse().unwrap();
        let mut length = 0;
        loop {
            line.clear();
            self.0.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim().split_once(": ") else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }

    #[track_caller]
    fn call(&mut self, member: &str, tool: &str, arguments: &Value) -> String {
        self.send(member, tool, arguments);
        let (status, answer) = self.answer();
        assert_eq!(status, 200, "{answer}");
        answer["result"]["content"][0]["text"].as_str().unwrap().to_owned()
    }
}

#[test]
fn members_clients_and_the_roster_do_not_notice() {
    let house = House::new();
    let names = ["a", "b", "c/d"];
    let dirs = names.map(|name| house.rogue(name, &["--lie", "session", "--fork", "1"]));
    let hall = house.start();
    let before = names.map(|name| connected(&hall, name));
    let roster = hall.get("/v1/roster").1;
    let mut client = Client::new(&hall);
    client.call("a", "echo", &json!({"text": "before"}));
    for _ in 0..3 {
        hand_over(&hall);
        for (name, before) in names.iter().zip(&before) {
            assert_eq!(lasting(&hall.entry(name)), lasting(before));
            assert_eq!(client.call(name, "pid", &json!({})), before["pid"].to_string());
        }
    }
    let after = hall.get("/v1/roster").1;
    assert_eq!(after["hall"], roster["hall"]);
    assert!(after["generation"].as_u64() >= roster["generation"].as_u64());
    assert!(dirs.iter().all(|dir| launches(dir).len() == 1));
    // Its children are still its own: how they die is known exactly.
    let victim = rustix::process::Pid::from_raw(pid(&before[0])).unwrap();
    rustix::process::kill_process(victim, Signal::SEGV).unwrap();
    let entry = hall.until_entry("a", "came back", |entry| {
        entry["phase"] == "connected" && entry["pid"] != before[0]["pid"]
    });
    assert_eq!((&entry["lastExit"]["signal"], &entry["restarts"]), (&json!("SIGSEGV"), &json!(1)));
    let pids: Vec<i32> = dirs.iter().flat_map(|dir| descendants(dir)).chain(before.iter().map(pid)).collect();
    drop(client);
    hall.stop();
    until_dead("members and their children", &pids);
    assert_eq!(fs::read_dir(house.run_dir().join(".mcp-servers")).unwrap().count(), 0);
    assert!(!house.run_dir().join("guild-hall.sock").exists());
}

#[test]
fn calls_in_flight_finish_and_new_ones_wait() {
    let house = House::new();
    house.rogue("m", &[]);
    let hall = house.start();
    connected(&hall, "m");
    let mut slow = Client::new(&hall);
    slow.send("m", "sleep", &json!({"ms": 1500}));
    let mut idle = Client::new(&hall);
    idle.call("m", "echo", &json!({"text": "x"}));
    // Half a request: the rest comes to the next image.
    let body = json!({"member": "m", "tool": "echo", "arguments": {"text": "half"}}).to_string();
    let mut half = Client::new(&hall);
    half.0.get_mut().write_all(b"POST /v1/call HTTP/1.1\r\nho").unwrap();
    eventually("the slow call is under way", || {
        let (status, _) = hall.call("m", "echo", json!({"text": "y"}));
        (status == 200).then_some(())
    });
    hand_over(&hall);
    let (status, answer) = slow.answer();
    assert_eq!(status, 200, "{answer}");
    assert_eq!(idle.call("m", "echo", &json!({"text": "z"})), "z");
    half.0
        .get_mut()
        .write_all(
            format!(
                "st: hall\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
            .as_bytes(),
        )
        .unwrap();
    let (status, answer) = half.answer();
    assert_eq!((status, &answer["result"]["content"][0]["text"]), (200, &json!("half")), "{answer}");
}

#[test]
fn timers_and_stops_go_on() {
    let house = House::new();
    house.rogue("waiting", &["--crash-at-start"]);
    let deaf = house.rogue_with("deaf", &["--deaf"], json!({"stopTimeoutMs": 3000}));
    let slow = house.rogue("slow", &["--start-delay", "2500"]);
    house.rogue("asked", &[]);
    let hall = house.start();
    let stopping = pid(&connected(&hall, "deaf"));
    connected(&hall, "asked");
    house.cli(&["stop", "asked"]);
    let waiting = hall.until_entry("waiting", "waits", |entry| {
        entry["phase"] == "waiting" && entry["restarts"] == json!(3)
    });
    hall.post("/v1/members/deaf/stop?wait=false", &json!({}));
    hall.until("deaf", "stopping");
    let greeting = hall.entry("slow");
    hand_over(&hall);
    let after = hall.entry("waiting");
    if after["restarts"] == waiting["restarts"] && after["phase"] == "waiting" {
        assert_eq!(lasting(&after), lasting(&waiting));
    }
    hall.until_entry("waiting", "is started again", |entry| entry["restarts"].as_u64() > Some(3));
    hall.until("deaf", "stopped");
    until_dead("the deaf one", &[stopping]);
    assert_eq!(hall.entry("asked")["phase"], "stopped");
    if greeting["phase"] == "greeting" {
        assert_eq!(connected(&hall, "slow")["pid"], greeting["pid"]);
        assert_eq!(launches(&slow).len(), 1);
    }
    assert_eq!(launches(&deaf).len(), 1);
}

/// A hall whose binary can be replaced.
fn start_copy(house: &House) -> (Hall, PathBuf) {
    let copy = house.run_dir().with_file_name("guild-hall");
    fs::copy(BINARY, &copy).unwrap();
    (house.start_command(Command::new(&copy), &[]), copy)
}

/// As an installer does: another file of the same name.
fn replace(path: &Path, content: &[u8]) {
    let next = path.with_extension("new");
    fs::write(&next, content).unwrap();
    fs::set_permissions(&next, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(next, path).unwrap();
}

#[test]
fn a_new_binary_that_cannot_take_over_leaves_the_old_one_going_on() {
    let house = House::new();
    house.rogue("m", &[]);
    let (hall, program) = start_copy(&house);
    let before = connected(&hall, "m");
    let mut client = Client::new(&hall);
    for (content, why) in [
        (&b"#!/bin/sh\necho 'no such thing' >&2\nexit 1\n"[..], "no such thing"),
        (b"#!/bin/sh\nexit 0\n", "it is no guild-hall"),
        (b"\x7fELF is no program", "cannot execute"),
        (b"#!/bin/sh\nexec sleep 60\n", "did not say within"),
    ] {
        replace(&program, content);
        hall.signal(Signal::USR2);
        eventually(&format!("the hall says {why:?}"), || {
            hall.log()
                .lines()
                .rfind(|line| line.contains("goes on as it is"))
                .filter(|line| line.contains(why))
                .map(drop)
        });
        assert_eq!(client.call("m", "pid", &json!({})), before["pid"].to_string());
    }
    fs::remove_file(&program).unwrap();
    hall.signal(Signal::USR2);
    eventually("the hall misses its program", || hall.log().contains("No such file").then_some(()));
    assert_eq!(lasting(&hall.entry("m")), lasting(&before));
    replace(&program, &fs::read(BINARY).unwrap());
    hand_over(&hall);
    assert_eq!(client.call("m", "pid", &json!({})), before["pid"].to_string());
}

#[test]
fn a_hall_that_was_handed_over_can_be_killed_and_followed() {
    let house = House::new();
    house.rogue("m", &["--setsid-fork"]);
    let mut hall = house.start();
    let before = connected(&hall, "m");
    hand_over(&hall);
    hall.signal(Signal::KILL);
    hall.child.wait().unwrap();
    let hall = house.start();
    let after = connected(&hall, "m");
    assert_eq!((&after["pid"], &after["adopted"]), (&before["pid"], &json!(true)));
    hand_over(&hall);
    assert_eq!(lasting(&hall.entry("m")), lasting(&after));
    let left = [descendants(&house.member_dir("m")), vec![pid(&before)]].concat();
    hall.stop();
    until_dead("all of it", &left);
}

/// Every 5 ms a call for each of 20 members in turn, over a connection that is kept.
fn keep_calling(hall: &Hall, names: &[String], until: &AtomicBool) -> usize {
    let mut client = Client::new(hall);
    let mut calls = 0;
    let begun = Instant::now();
    while !until.load(Ordering::Relaxed) {
        let name = &names[calls % names.len()];
        assert_eq!(client.call(name, "echo", &json!({"text": name})), *name);
        calls += 1;
        let due = begun + Duration::from_millis(5) * u32::try_from(calls).unwrap();
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    calls
}

#[test]
fn twenty_handovers_under_load_lose_no_call() {
    let house = House::new();
    let names: Vec<String> = (0..20).map(|n| format!("m{n}")).collect();
    for name in &names {
        house.member(
            name,
            json!({"mcp": {"command": "${GUILD_HALL}", "args": ["example-member", "--port", "${PORT}"]}}),
        );
    }
    let hall = house.start();
    let before: Vec<Value> = names.iter().map(|name| connected(&hall, name)).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| keep_calling(&hall, &names, &done));
        for _ in 0..20 {
            hand_over(&hall);
        }
        done.store(true, Ordering::Relaxed);
        assert!(caller.join().unwrap() > 20);
    });
    for (name, before) in names.iter().zip(&before) {
        assert_eq!(hall.entry(name)["pid"], before["pid"]);
        assert!(is_alive(pid(before)));
    }
}
