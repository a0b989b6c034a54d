//! Members that speak the protocol oddly, but speak it: each is connected and called.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use crate::hall::{House, eventually};
use crate::traces::{
    NEVER, RECORD, assert_harmless, connected, count, curt_mcp, done, launches, patient, requests,
};

/// Whatever the standard, or kindness, allows.
const ODD: &[(&str, &[&str])] = &[
    ("plain", &[]),
    ("strict-three", &["--lie", "strict-three"]),
    ("notify-404", &["--lie", "notify-404"]),
    ("notify-405", &["--lie", "notify-405"]),
    ("notify-500", &["--lie", "notify-500"]),
    ("notify-200-text", &["--lie", "notify-200-text"]),
    ("notify-close", &["--lie", "close@notifications/"]),
    ("notify-hang", &["--lie", "hang@notifications/"]),
    ("notify-huge-length", &["--lie", "bad-length=1000000@notifications/"]),
    ("no-server-info", &["--lie", "no-server-info"]),
    ("no-capabilities", &["--lie", "no-capabilities"]),
    ("bare", &["--lie", "no-capabilities", "--lie", "no-server-info", "--lie", "strict-three"]),
    ("sse", &["--lie", "sse"]),
    ("sse-crlf-split", &["--lie", "sse-crlf-split"]),
    ("sse-byte-by-byte", &["--lie", "sse-crlf-split=1"]),
    ("chunked", &["--lie", "chunked"]),
    ("session", &["--lie", "session"]),
    ("session-sse", &["--lie", "session", "--lie", "sse", "--lie", "notify-404"]),
    ("slow-drip", &["--lie", "slow-drip=1"]),
    ("paged", &["--lie", "paged"]),
    ("paged-1000", &["--lie", "paged=1000"]),
    ("many-tools", &["--lie", "many-tools=9999", "--lie", "name-clash"]),
    ("bind-then-404", &["--bind-then-404", "300"]),
    ("bind-then-503", &["--bind-then-503", "300"]),
    ("reset-first", &["--reset-first", "5"]),
    ("slow-start", &["--start-delay", "600"]),
];

/// Members whose first answers are no answers: `initialize` is sent to them until one is.
const NOT_YET: [&str; 3] = ["bind-then-404", "bind-then-503", "reset-first"];

#[test]
fn an_odd_member_is_connected_and_called_and_hears_only_what_it_promised_to_hear() {
    let house = House::new();
    let dirs: Vec<_> = ODD
        .iter()
        .map(|(name, knobs)| house.rogue_with(name, &[&RECORD, *knobs].concat(), patient()))
        .collect();
    let hall = house.start();
    for (name, _) in ODD {
        let entry = connected(&hall, name);
        assert_eq!((&entry["attempts"], &entry["error"]), (&json!(1), &Value::Null), "{entry:#}");
        let text = format!("hello {name}, größer als ein \"Stück\"\n");
        assert_eq!(hall.call_text(name, "echo", json!({"text": text})), text);
    }
    assert_eq!(hall.entry("paged")["tools"].as_array().unwrap().len(), 3);
    assert_eq!(hall.entry("many-tools")["tools"].as_array().unwrap().len(), 10_000);
    hall.stop();
    for ((name, _), dir) in ODD.iter().zip(dirs) {
        assert_promised(name, &dir);
        assert_eq!(launches(&dir).len(), 1, "{name}");
    }
}

/// Three kinds of requests and one notification, each sent once.
fn assert_promised(name: &str, dir: &Path) {
    let requests = requests(dir);
    let mut ids = BTreeSet::new();
    let mut asked = BTreeSet::new();
    for request in &requests {
        let body = &request["body"];
        let method = body["method"].as_str().unwrap();
        let promised =
            ["initialize", "notifications/initialized", "tools/list", "tools/call"].contains(&method);
        assert!(
            promised && request["verb"] == "POST" && request["path"] == "/mcp",
            "{name} heard {request:#}"
        );
        let first_time = method == "initialize" && NOT_YET.contains(&name)
            || asked.insert(format!("{method} {}", body["params"]));
        assert!(first_time, "{name} heard {method} twice");
        assert!(body["id"].is_null() || ids.insert(body["id"].to_string()), "{name} heard an id twice");
        assert_eq!(body["id"].is_null(), method.starts_with("notifications/"), "{request:#}");
        let version = &request["headers"]["mcp-protocol-version"];
        assert_eq!(version.is_null(), method == "initialize", "{name} heard {request:#}");
    }
    let count = |method: &str| requests.iter().filter(|request| request["body"]["method"] == method).count();
    assert_eq!((count("notifications/initialized"), count("tools/call")), (1, 1), "{name}");
}

#[test]
fn a_member_that_forgot_its_session_is_greeted_anew() {
    let house = House::new();
    let dir = house.rogue_with("forgetful", &[&RECORD[..], &["--forget-session"]].concat(), patient());
    let hall = house.start();
    let before = connected(&hall, "forgetful");
    let call = || hall.call("forgetful", "echo", json!({"text": "remember?"}));
    let (status, problem) = call();
    assert_eq!(status, 502, "{problem}");
    eventually("it is called in a new session", || (call().0 == 200).then_some(()));
    let after = hall.until("forgetful", "connected");
    assert_eq!((&before["pid"], &before["restarts"]), (&after["pid"], &after["restarts"]));
    assert_eq!(count(&dir, "initialize"), 2);
}

#[test]
fn tools_with_tricky_names_are_listed_harmlessly() {
    let house = House::new();
    house.rogue_with("tricky", &["--lie", "control-chars", "--lie", "name-clash"], patient());
    let hall = house.start();
    let entry = connected(&hall, "tricky");
    assert_eq!(entry["tools"][4]["name"], "red\u{1b}[31m", "the API tells names as they are");
    assert_eq!(hall.call_text("tricky", "red\u{1b}[31m", json!({})), "called red\u{1b}[31m");

    let (_, tools) = hall.get("/v1/tools");
    let names: Vec<&str> =
        tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 7, "each name once: {names:?}");
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), 7, "{names:?}");
    for name in names {
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        assert!(plain && name.len() <= 64, "{name:?}");
    }
    for verb in [&["tools"][..], &["tools", "tricky"], &["roster"], &["roster", "tricky"]] {
        assert_harmless(&done(&house, verb));
    }
    assert_harmless(&hall.log());
}

#[test]
fn a_member_that_hangs_up_after_each_answer_is_connected_at_once() {
    let house = House::new();
    let names: Vec<String> = (0..20).map(|number| format!("curt-{number}")).collect();
    for name in &names {
        house.member(name, json!({"mcp": curt_mcp("now"), "startTimeoutMs": NEVER, "restart": "never"}));
    }
    let hall = house.start();
    for name in &names {
        connected(&hall, name);
        assert_eq!(hall.call_text(name, "hello", json!({})), "hello");
    }
}
