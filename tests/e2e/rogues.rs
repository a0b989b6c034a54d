//! Misbehaving members side by side with good ones: what the roster says of each, and that nobody
//! else is any the worse for it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::hall::{House, eventually, is_alive};
use crate::traces::{NEVER, assert_harmless, assert_says, connected, done, error, patient, pid, settled};

type Member = (&'static str, &'static [&'static str], &'static [&'static str]);

/// Members that fail by what they do, and the words that the roster must find for it.
const FAILING: &[Member] = &[
    ("crash-at-start", &["--crash-at-start"], &["exited with code 1", "crash line 30 of 30"]),
    ("killed-at-start", &["--die-by-signal", "9"], &["was killed by SIGKILL"]),
    ("deaf-liar", &["--deaf", "--lie", "error"], &["JSON-RPC error -32000"]),
    (
        "error",
        &["--lie", "error"],
        &["initialize", "JSON-RPC error -32000", "the rogue does not feel like it"],
    ),
    ("not-json", &["--lie", "not-json"], &["initialize", "no JSON-RPC message", "<!doctype html>"]),
    ("json-no-rpc", &["--lie", "json-no-rpc"], &["no JSON-RPC response", "{}"]),
    ("wrong-id", &["--lie", "wrong-id"], &["answered request", "was asked"]),
    ("http-500", &["--lie", "http-500"], &["HTTP 500", "oops"]),
    ("redirect", &["--lie", "redirect"], &["HTTP 302"]),
    ("huge", &["--lie", "huge"], &["larger than 16 MiB"]),
    ("bad-tools", &["--lie", "bad-tools"], &["tools/list", "tool list cannot be read", "echo, pid"]),
    ("tool-without-name", &["--lie", "tool-without-name"], &["tool list cannot be read", "name"]),
    ("list-error", &["--lie", "error@tools/list"], &["tools/list", "the rogue does not feel like it"]),
    ("list-500", &["--lie", "http-500@tools/list"], &["tools/list", "HTTP 500"]),
    ("many-tools", &["--lie", "many-tools"], &["more than 10000 tools"]),
    ("endless-pages", &["--lie", "endless-pages"], &["more than 1000 pages"]),
    ("same-cursor", &["--lie", "same-cursor"], &["circle"]),
];

/// Members that are still waited for, and what the roster says is in the way meanwhile.
const OBSTRUCTED: &[Member] = &[
    ("never-binds", &["--start-delay", "600000"], &["does not listen", "refused"]),
    ("http-404-forever", &["--lie", "http-404-forever"], &["HTTP 404"]),
    ("not-yet-503", &["--bind-then-503", "600000"], &["HTTP 503", "not yet"]),
    ("chunked-garbage", &["--lie", "chunked-garbage"], &["connection broke"]),
    ("bad-length", &["--lie", "bad-length"], &["connection broke"]),
    ("close-after-header", &["--lie", "close-after-header"], &["connection broke"]),
    ("always-reset", &["--reset-first", "1000000"], &["connection broke"]),
];

/// Members that are waited for, and only time will tell.
const SILENT: &[(&str, &[&str])] = &[
    ("mute", &["--mute"]),
    ("mute-after-initialize", &["--mute-after", "1"]),
    ("hang-at-initialize", &["--lie", "hang@initialize"]),
    ("hang-at-list", &["--lie", "hang@tools/list"]),
    ("slow-drip", &["--lie", "slow-drip=10000"]),
    ("sse-endless", &["--lie", "sse-endless"]),
];

#[test]
fn healthy_members_are_served_while_all_others_misbehave_at_once() {
    let house = House::new();
    let first = house.first_port();
    let patiently = json!({"startTimeoutMs": NEVER});
    for name in ["healthy", "zoo/healthy"] {
        house.rogue_with(name, &[], patiently.clone());
    }
    for &(name, knobs, _) in FAILING {
        house.rogue_with(
            name,
            knobs,
            json!({"startTimeoutMs": NEVER, "restart": "never", "stopTimeoutMs": 300}),
        );
    }
    for &(name, knobs, _) in OBSTRUCTED {
        house.rogue_with(name, knobs, patiently.clone());
    }
    for &(name, knobs) in SILENT {
        house.rogue_with(name, knobs, patiently.clone());
    }
    house.rogue_with("out-of-time", &["--mute"], json!({"startTimeoutMs": 1500, "restart": "never"}));
    house.rogue("crash-loop", &["--crash-at-start"]);
    let range = format!("{}-{}", first + 10, first + 19);
    for (name, knobs) in [
        ("a-thief", &["--thief", &range][..]),
        ("slow", &["--start-delay", "700"]),
        ("forking", &["--fork", "3"]),
        ("deaf", &["--deaf"]),
    ] {
        house.rogue_with(name, knobs, json!({"startTimeoutMs": NEVER, "stopTimeoutMs": 300}));
    }
    house.rogue_with("flooding", &["--flood", "stderr"], patiently);
    std::fs::write(house.member_dir("torn").join("guild-member.json"), "{\"name\": \"torn\",").unwrap();

    let hall = house.start();
    let healthy = ["healthy", "zoo/healthy"].map(|name| (name, pid(&connected(&hall, name))));
    let serve = || {
        for (name, process) in healthy {
            assert_eq!(hall.call_text(name, "pid", json!({})), process.to_string());
        }
    };
    serve();
    for &(name, _) in SILENT {
        assert_eq!(hall.until(name, "greeting")["status"], "disconnected");
    }
    serve();
    for name in ["a-thief", "slow", "forking", "deaf", "flooding"] {
        connected(&hall, name);
    }
    for &(name, _, words) in FAILING {
        let entry = settled(&hall, name);
        assert_eq!((&entry["phase"], &entry["status"]), (&json!("failed"), &json!("error")), "{entry:#}");
        assert_says(&entry, words);
        assert_eq!((&entry["pid"], &entry["port"]), (&Value::Null, &Value::Null), "{entry:#}");
        serve();
    }
    for &(name, _, words) in OBSTRUCTED {
        let said = |entry: &Value| {
            words.iter().all(|word| entry["error"].as_str().is_some_and(|error| error.contains(word)))
        };
        let entry = hall.until_entry(name, &format!("is said to have {words:?} in its way"), said);
        assert_eq!(entry["phase"], "greeting", "{entry:#}");
    }
    assert_says(&settled(&hall, "out-of-time"), &["no MCP handshake on port", "within 1.5 s"]);
    let entry = hall.until_entry("crash-loop", "waits for its next restart", |entry| {
        entry["phase"] == "waiting" && entry["retryAt"].is_string()
    });
    assert_says(&entry, &["exited with code 1"]);
    assert_says(&hall.until("torn", "invalid"), &["guild-member.json:1:"]);
    let tail = settled(&hall, "crash-at-start")["stderrTail"].clone();
    let wanted: Vec<String> = (11..=30).map(|line| format!("crash line {line} of 30")).collect();
    assert_eq!(tail, json!(wanted), "the last lines of the launch, in order");
    let predecessor = house.run_dir().join("logs/flooding.log.1");
    let size = eventually("the flood is cut", || predecessor.metadata().ok()).len();
    assert!(size <= 10 << 20, "{size} bytes of the flood are kept");

    let table = done(&house, &["roster"]);
    for &(name, _, words) in FAILING {
        assert!(table.contains(name) && table.contains(words[0]), "{name} is not in\n{table}");
    }
    assert_harmless(&table);
    serve();
    for (name, process) in healthy {
        let entry = hall.entry(name);
        assert_eq!((pid(&entry), &entry["restarts"]), (process, &json!(0)), "a healthy member was restarted");
    }
    for &(name, _) in SILENT {
        assert_eq!(hall.entry(name)["phase"], "greeting");
    }

    let (_, roster) = hall.get("/v1/roster");
    let pids: Vec<i32> =
        roster["members"].as_array().unwrap().iter().filter(|entry| entry["pid"].is_i64()).map(pid).collect();
    assert!(pids.len() >= healthy.len() + SILENT.len() + OBSTRUCTED.len(), "{roster:#}");
    hall.stop();
    assert!(!pids.iter().any(|&pid| is_alive(pid)), "a member outlived the hall");
}

#[test]
fn a_member_that_binds_late_and_is_then_mute_is_not_said_to_refuse_connections() {
    let house = House::new();
    let knobs = ["--start-delay", "1000", "--mute"];
    house.rogue_with("mute", &knobs, json!({"startTimeoutMs": 6000, "restart": "never"}));
    let hall = house.start();
    let refused = |entry: &Value| entry["error"].as_str().is_some_and(|error| error.contains("refused"));
    hall.until_entry("mute", "is said to refuse connections before it binds", refused);
    let entry = settled(&hall, "mute");
    assert_says(&entry, &["no MCP handshake on port", "within 6 s"]);
    assert!(!error(&entry).contains("refused"), "it listens, and says nothing: {}", error(&entry));
}

#[test]
fn a_member_that_dies_in_its_handshake_is_told_with_its_exit_whenever_that_is() {
    let house = House::new();
    let moments = ["initialize", "notifications/", "tools/list"];
    for moment in moments {
        let name = format!("at-{}", moment.trim_end_matches('/').replace('/', "-"));
        let lie = format!("crash@{moment}");
        house.rogue_with(&name, &["--lie", &lie, "--exit-code", "3"], patient());
        house.rogue_with(&format!("{name}-killed"), &["--lie", &lie, "--die-by-signal", "9"], patient());
    }
    let hall = house.start();
    for name in ["at-initialize", "at-notifications", "at-tools-list"] {
        assert_says(&settled(&hall, name), &["exited with code 3"]);
        assert_says(&settled(&hall, &format!("{name}-killed")), &["was killed by SIGKILL"]);
    }
}

#[test]
fn a_failed_member_still_tells_how_many_launches_its_start_took() {
    let house = House::new();
    house.rogue_with("crashing", &["--crash-at-start"], patient());
    let hall = house.start();
    let entry = hall.until("crashing", "failed");
    assert_eq!(entry["attempts"], 1, "{entry:#}");
}

#[test]
fn whoever_comes_first_to_the_socket_finds_every_member_in_the_roster() {
    let house = House::new();
    for number in 0..500 {
        std::fs::write(house.member_dir(&format!("m{number}")).join("guild-member.json"), "{}").unwrap();
    }
    for _ in 0..5 {
        let socket = house.run_dir().join("guild-hall.sock");
        let first = std::thread::spawn(move || {
            let mut stream = eventually("the socket is there", || UnixStream::connect(&socket).ok());
            stream.write_all(b"GET /v1/roster/m499 HTTP/1.0\r\nhost: hall\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        });
        let hall = house.start();
        let answer = first.join().unwrap();
        assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
        hall.stop();
    }
}
