//! The local API: shapes, status codes, events, and what ten thousand requests leave behind.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::hall::{Hall, House, eventually, example};

/// An open `GET /v1/events`.
struct Events(BufReader<UnixStream>);

impl Events {
    fn follow(hall: &Hall) -> Self {
        let mut stream = hall.connect();
        stream.write_all(b"GET /v1/events HTTP/1.1\r\nhost: hall\r\n\r\n").unwrap();
        Self(BufReader::new(stream))
    }

    /// The next event: its kind, its id and its data.
    fn next(&mut self) -> (String, u64, Value) {
        let (mut kind, mut id) = (String::new(), 0);
        loop {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "the event stream ended");
            if let Some(text) = line.strip_prefix("event: ") {
                kind = text.trim().to_owned();
            } else if let Some(text) = line.strip_prefix("id: ") {
                id = text.trim().parse().unwrap();
            } else if let Some(data) = line.strip_prefix("data: ") {
                let data = serde_json::from_str(data).unwrap();
                // The order of the fields is the sender's.
                let mut rest = String::new();
                while self.0.read_line(&mut rest).unwrap() > 2 {
                    if let Some(text) = rest.strip_prefix("id: ") {
                        id = text.trim().parse().unwrap();
                    } else if let Some(text) = rest.strip_prefix("event: ") {
                        kind = text.trim().to_owned();
                    }
                    rest.clear();
                }
                return (kind, id, data);
            }
        }
    }
}

#[test]
fn the_roster_has_the_documented_shape() {
    let house = House::new();
    house.member("b", example());
    house.member("collection/a", example());
    let hall = house.start();
    hall.until("b", "connected");
    hall.until("collection/a", "connected");
    let (status, roster) = hall.get("/v1/roster");
    assert_eq!(status, 200);
    assert_eq!(roster["hall"]["pid"], hall.pid());
    let names: Vec<&str> =
        roster["members"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["b", "collection/a"]);
    let entry = &roster["members"][0];
    let fields = [
        "name",
        "displayName",
        "description",
        "version",
        "dialect",
        "status",
        "phase",
        "transport",
        "port",
        "pid",
        "instance",
        "adopted",
        "since",
        "attempts",
        "restarts",
        "lastExit",
        "retryAt",
        "error",
        "stderrTail",
        "tools",
        "memoryBytes",
        "cpuSeconds",
        "dir",
    ];
    let mut found: Vec<&str> = entry.as_object().unwrap().keys().map(String::as_str).collect();
    found.sort_unstable();
    let mut wanted = fields.to_vec();
    wanted.sort_unstable();
    assert_eq!(found, wanted);
    assert_eq!(entry["tools"][0]["inputSchema"]["type"], "object");
    assert_eq!(hall.get("/api/roster").1, roster["members"]);
    assert_eq!(hall.get("/v1/roster/collection%2Fa").1["name"], "collection/a");
}

#[test]
fn every_error_is_a_problem_with_its_status() {
    let house = House::new();
    house.member("ok", example());
    house.member("stopped", example());
    std::fs::write(house.member_dir("broken").join("guild-member.json"), "{").unwrap();
    let hall = house.start();
    hall.until("ok", "connected");
    hall.until("stopped", "connected");
    assert_eq!(hall.post("/v1/members/stopped/stop", &json!({})).0, 200);
    let call = |member: &str, tool: &str, arguments: Value| json!({"member": member, "tool": tool, "arguments": arguments});
    for (method, path, body, status, detail) in [
        ("GET", "/v1/roster/nobody", json!({}), 404, "nobody"),
        ("GET", "/nowhere", json!({}), 404, "/nowhere"),
        ("DELETE", "/v1/roster", json!({}), 405, "DELETE"),
        ("POST", "/v1/members/nobody/start", json!({}), 404, "nobody"),
        ("POST", "/v1/members/broken/start", json!({}), 409, "guild-member.json:1"),
        ("POST", "/v1/members/ok/explode", json!({}), 404, "explode"),
        ("POST", "/v1/members/ok/stop?wait=perhaps", json!({}), 400, "wait"),
        ("GET", "/v1/members/broken/logs", json!({}), 404, "never launched"),
        ("POST", "/v1/call", json!({"member": "ok"}), 400, "tool"),
        ("POST", "/v1/call", json!({"member": "ok", "tool": "echo", "argument": {}}), 400, "argument"),
        ("POST", "/v1/call", call("ok", "echo", json!([1])), 400, "object"),
        ("POST", "/v1/call", call("nobody", "echo", json!({})), 404, "nobody"),
        ("POST", "/v1/call", call("ok", "sing", json!({})), 404, "echo"),
        ("POST", "/v1/call", call("stopped", "echo", json!({})), 409, "stopped"),
        ("POST", "/v1/call", call("broken", "echo", json!({})), 409, "guild-member.json:1"),
        ("POST", "/api/tools/invoke", json!({"guildMember": "ok"}), 400, "toolName"),
        ("POST", "/api/tools/invoke", json!({"guildMember": "no", "toolName": "x"}), 404, "no"),
        ("POST", "/api/tools/invoke", json!({"guildMember": "stopped", "toolName": "echo"}), 500, "stopped"),
    ] {
        let (found, problem) = hall.http(method, path, &body.to_string());
        assert_eq!(found, status, "{method} {path}: {problem}");
        assert_eq!(problem["status"], status);
        assert!(problem["detail"].as_str().unwrap().contains(detail), "{method} {path}: {problem}");
    }
    let too_large = "x".repeat(5 * 1024 * 1024);
    let mut stream = hall.connect();
    let head = format!(
        "POST /v1/call HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        too_large.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let _ = stream.write_all(too_large.as_bytes());
    let mut first = String::new();
    BufReader::new(stream).read_line(&mut first).unwrap();
    assert!(first.contains("413"), "{first}");
}

#[test]
fn every_path_of_the_openapi_document_is_served() {
    let house = House::new();
    house.member("ok", example());
    let hall = house.start();
    hall.until("ok", "connected");
    hall.register(&crate::plugins::descriptor("chat"));
    let (_, document) = hall.get("/openapi.json");
    for (path, methods) in document["paths"].as_object().unwrap() {
        if path == "/v1/events" {
            continue;
        }
        for method in methods.as_object().unwrap().keys() {
            let path =
                path.replace("{name}", "ok").replace("{wish}", "restart").replace("{plugin_id}", "chat");
            let (status, answer) = hall.http(&method.to_uppercase(), &path, "{}");
            assert!(!matches!(status, 405 | 404), "{method} {path}: {status} {answer}");
        }
    }
    assert_eq!(hall.get("/healthz").0, 200);
    eventually("all members have settled once", || (hall.get("/readyz").0 == 200).then_some(()));
}

#[test]
fn events_begin_with_the_roster_and_miss_no_change() {
    let house = House::new();
    house.member("m", example());
    let hall = house.start();
    hall.until("m", "connected");
    let mut events = Events::follow(&hall);
    let (kind, begun, roster) = events.next();
    assert_eq!((kind.as_str(), roster["members"][0]["phase"].as_str()), ("roster", Some("connected")));
    assert_eq!(hall.post("/v1/members/m/restart", &json!({})).1["phase"], "connected");
    let mut phases = Vec::new();
    let mut last = begun;
    while phases.last().is_none_or(|phase| phase != "connected") {
        let (kind, id, entry) = events.next();
        assert_eq!((kind.as_str(), id), ("member", last + 1), "no generation is left out");
        last = id;
        phases.push(entry["phase"].as_str().unwrap().to_owned());
    }
    assert_eq!(phases, ["stopping", "starting", "greeting", "connected"]);
    std::fs::remove_dir_all(house.member_dir("m")).unwrap();
    assert_eq!(hall.post("/v1/reload", &json!({})).1["removed"], json!(["m"]));
    let gone = loop {
        let (_, _, data) = events.next();
        if data["removed"] == true {
            break data;
        }
    };
    assert_eq!(gone, json!({"name": "m", "removed": true}));
}

#[test]
fn reload_touches_only_what_has_changed() {
    let house = House::new();
    for name in ["stays", "changes", "goes"] {
        house.member(name, example());
    }
    let hall = house.start();
    let before: Vec<Value> = ["stays", "changes", "goes"].map(|name| hall.until(name, "connected")).into();
    let mut changed = example();
    changed["description"] = json!("Another one");
    house.member("changes", changed);
    house.member("comes", example());
    std::fs::remove_dir_all(house.member_dir("goes")).unwrap();
    let (_, changes) = hall.post("/v1/reload", &json!({}));
    assert_eq!(
        changes,
        json!({"added": ["comes"], "changed": ["changes"], "removed": ["goes"], "unchanged": 1})
    );
    hall.until("comes", "connected");
    let after = hall.until_entry("changes", "has its new description", |entry| {
        entry["description"] == "Another one" && entry["phase"] == "connected"
    });
    assert_ne!(after["pid"], before[1]["pid"]);
    assert_eq!(hall.entry("stays")["pid"], before[0]["pid"]);
    eventually("the removed member is gone", || (hall.get("/v1/roster/goes").0 == 404).then_some(()));

    // What became invalid runs on under its previous manifest, and says so.
    std::fs::write(house.member_dir("stays").join("guild-member.json"), "{ not json").unwrap();
    hall.post("/v1/reload", &json!({}));
    let kept = hall.entry("stays");
    assert_eq!((kept["phase"].as_str(), &kept["pid"]), (Some("connected"), &before[0]["pid"]));
    assert!(kept["error"].as_str().unwrap().contains("guild-member.json:1:3"), "{kept}");
    house.member("stays", example());
    hall.post("/v1/reload", &json!({}));
    assert_eq!(hall.entry("stays")["error"], Value::Null);
    assert_eq!(hall.entry("stays")["pid"], before[0]["pid"]);
}

#[test]
fn logs_are_shown_and_followed() {
    let house = House::new();
    house.rogue("m", &["--flood-lines", "150"]);
    let hall = house.start();
    hall.until("m", "connected");
    let (_, text) = hall.get("/v1/members/m/logs?lines=3");
    assert_eq!(text, "flood line 148\nflood line 149\nflood line 150\n");
    let mut stream = hall.connect();
    stream.write_all(b"GET /v1/members/m/logs?lines=1&follow=true HTTP/1.1\r\nhost: h\r\n\r\n").unwrap();
    let mut reader = BufReader::new(stream);
    let mut until_line = |wanted: &str| {
        let mut line = String::new();
        while !line.contains(wanted) {
            line.clear();
            assert_ne!(reader.read_line(&mut line).unwrap(), 0, "the log ended before {wanted:?}");
        }
    };
    until_line("flood line 150");
    hall.post("/v1/members/m/restart", &json!({}));
    // The same lines again: of the new launch.
    until_line("flood line 1\n");
    until_line("flood line 150");
}

#[test]
fn ten_thousand_requests_leave_nothing_behind() {
    let house = House::new();
    for n in 0..20 {
        house.member(&format!("m{n}"), example());
    }
    let hall = house.start();
    for n in 0..20 {
        hall.until(&format!("m{n}"), "connected");
    }
    let ask = |times: usize| (0..times).for_each(|_| assert_eq!(hall.get("/v1/roster").0, 200));
    // What is allocated once, and the pools of threads, are there after the first round.
    ask(1_000);
    let before = (open_files(hall.pid()), threads(hall.pid()));
    let memory_before = private_kib(hall.pid());
    ask(10_000);
    eventually("as many files are open as before", || (open_files(hall.pid()) <= before.0).then_some(()));
    assert!(threads(hall.pid()) <= before.1 + 1);
    let grown = private_kib(hall.pid()).saturating_sub(memory_before);
    assert!(grown < 1024, "{grown} KiB more after 10,000 requests");
}

fn open_files(pid: i32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

fn threads(pid: i32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count()
}

fn private_kib(pid: i32) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = rollup.lines().find(|line| line.starts_with("Anonymous:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
