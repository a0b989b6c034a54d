//! Calls of tools: what comes through, what is said where nothing can, and that no call is sent twice.

use std::io::Write;

use serde_json::{Value, json};

use crate::hall::{Hall, House, eventually};
use crate::traces::{NEVER, RECORD, connected, count, done, patient, pid, printed};

fn call_within(hall: &Hall, member: &str, tool: &str, arguments: &Value, timeout: u64) -> (u16, Value) {
    hall.post(
        "/v1/call",
        &json!({"member": member, "tool": tool, "arguments": arguments, "timeoutMs": timeout}),
    )
}

/// What a problem says.
fn detail(problem: &Value) -> &str {
    problem["detail"].as_str().unwrap_or_else(|| panic!("no problem: {problem}"))
}

#[test]
fn a_tools_own_error_passes_through_as_the_member_gave_it() {
    let house = House::new();
    house.rogue_with("refusing", &["--lie", "is-error"], patient());
    let hall = house.start();
    connected(&hall, "refusing");
    let (status, answer) = hall.call("refusing", "echo", json!({"text": ""}));
    let refused = json!({"content": [{"type": "text", "text": "the rogue refuses"}], "isError": true});
    assert_eq!((status, &answer["result"]), (200, &refused));
    let output = house.cli(&["call", "refusing", "pid"]);
    assert_eq!(output.status.code(), Some(5), "{}", printed(&output));
    assert!(printed(&output).contains("the rogue refuses"), "{}", printed(&output));
}

/// Members whose answer to a call is none; what the caller is told; whether it is a reason to probe.
const BROKEN: &[(&str, &str, &str, bool)] = &[
    ("close", "close", "connection broke", true),
    ("close-after-header", "close-after-header@tools/call", "connection broke", true),
    ("bad-length", "bad-length@tools/call", "connection broke", true),
    ("chunked-garbage", "chunked-garbage@tools/call", "connection broke", true),
    ("not-json", "not-json@tools/call", "no JSON-RPC message", true),
    ("json-no-rpc", "json-no-rpc@tools/call", "no JSON-RPC response", true),
    ("wrong-id", "wrong-id@tools/call", "answered request", true),
    ("http-500", "http-500@tools/call", "HTTP 500", true),
    ("http-404", "http-404-forever@tools/call", "HTTP 404", true),
    ("redirect", "redirect@tools/call", "HTTP 302", true),
    ("rpc-error", "rpc-error-call", "-32000: the rogue does not feel like it", false),
    ("huge", "huge-call", "larger than 16 MiB", false),
];

#[test]
fn a_call_without_an_answer_is_a_502_and_sent_once_and_no_reason_to_restart() {
    let house = House::new();
    let dirs: Vec<_> = BROKEN
        .iter()
        .map(|(name, lie, ..)| house.rogue_with(name, &[&RECORD[..], &["--lie", lie]].concat(), patient()))
        .collect();
    let hall = house.start();
    let before: Vec<Value> = BROKEN.iter().map(|(name, ..)| connected(&hall, name)).collect();
    for (name, _, words, _) in BROKEN {
        let (status, problem) = hall.call(name, "echo", json!({"text": "once"}));
        assert_eq!((status, &problem["status"]), (502, &json!(502)), "{name}: {problem}");
        assert!(detail(&problem).contains(name) && detail(&problem).contains(words), "{name}: {problem}");
        assert!(detail(&problem).len() < 1000, "{problem}");
    }
    for ((name, _, _, probed), dir) in BROKEN.iter().zip(&dirs) {
        let lists = 1 + usize::from(*probed);
        eventually(&format!("{name} is probed"), || (count(dir, "tools/list") >= lists).then_some(()));
        assert_eq!(count(dir, "tools/call"), 1, "{name}");
    }
    for ((name, ..), before) in BROKEN.iter().zip(before) {
        let now = hall.entry(name);
        assert_eq!(
            (&now["phase"], &now["pid"], &now["since"]),
            (&json!("connected"), &before["pid"], &before["since"])
        );
    }
    hall.stop();
    for ((name, ..), dir) in BROKEN.iter().zip(&dirs) {
        assert_eq!((count(dir, "tools/call"), count(dir, "initialize")), (1, 1), "{name}");
    }
}

#[test]
fn a_call_is_sent_once_however_often_connections_are_closed_on_it() {
    let house = House::new();
    let dir = house.rogue_with("closing", &[&RECORD[..], &["--lie", "close"]].concat(), patient());
    let hall = house.start();
    connected(&hall, "closing");
    for nth in 1..=50 {
        let (status, problem) = hall.call("closing", "echo", json!({"text": nth.to_string()}));
        assert_eq!(status, 502, "{problem}");
        assert_eq!(count(&dir, "tools/call"), nth);
    }
    assert_eq!(hall.entry("closing")["restarts"], 0);
}

#[test]
fn an_answer_of_almost_16_mib_is_passed_on_whole() {
    let house = House::new();
    house.rogue_with("large", &["--lie", "huge-call=16000000"], patient());
    let hall = house.start();
    connected(&hall, "large");
    assert_eq!(hall.call_text("large", "echo", json!({"text": ""})).len(), 16_000_000);
}

#[test]
fn a_call_that_is_not_answered_in_time_is_a_504_and_the_member_stays_connected() {
    let house = House::new();
    let members =
        [("hang", "hang"), ("endless", "sse-endless@tools/call"), ("drip", "slow-drip=10000@tools/call")];
    let dirs = members
        .map(|(name, lie)| house.rogue_with(name, &[&RECORD[..], &["--lie", lie]].concat(), patient()));
    house.rogue_with("impatient", &["--lie", "hang"], json!({"callTimeoutMs": 100}));
    let hall = house.start();
    for ((name, _), dir) in members.into_iter().zip(&dirs) {
        let before = connected(&hall, name);
        let (status, problem) = call_within(&hall, name, "echo", &json!({"text": ""}), 100);
        assert_eq!(status, 504, "{problem}");
        assert!(detail(&problem).contains("100 ms"), "{problem}");
        eventually("it is probed", || (count(dir, "tools/list") == 2).then_some(()));
        let (status, problem) = call_within(&hall, name, "echo", &json!({"text": ""}), 100);
        assert_eq!(status, 504, "it is still connected: {problem}");
        let after = hall.entry(name);
        assert_eq!(
            (&after["phase"], &after["pid"], &after["since"]),
            (&json!("connected"), &before["pid"], &before["since"])
        );
    }
    connected(&hall, "impatient");
    assert_eq!(
        hall.call("impatient", "echo", json!({"text": ""})).0,
        504,
        "callTimeoutMs holds where nothing else is said"
    );
}

#[test]
fn a_call_under_way_holds_up_no_other() {
    let house = House::new();
    let dir = house.rogue_with("busy", &RECORD, patient());
    house.rogue_with("other", &[], patient());
    let hall = house.start();
    connected(&hall, "busy");
    connected(&hall, "other");
    let body = json!({"member": "busy", "tool": "sleep", "arguments": {"ms": NEVER}, "timeoutMs": NEVER})
        .to_string();
    let calls: Vec<_> = (1..=20)
        .map(|nth| {
            let mut call = hall.connect();
            write!(
                call,
                "POST /v1/call HTTP/1.1\r\nhost: hall\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
            .unwrap();
            eventually("the call is under way", || (count(&dir, "tools/call") == nth).then_some(()));
            call
        })
        .collect();
    for name in ["busy", "other"] {
        assert_eq!(hall.call_text(name, "echo", json!({"text": "quick"})), "quick");
    }
    drop(calls);
    hall.stop();
}

#[test]
fn a_member_that_crashes_in_a_call_is_back_by_itself() {
    let house = House::new();
    let dir = house.rogue_with(
        "fragile",
        &[&RECORD[..], &["--lie", "crash"]].concat(),
        json!({"startTimeoutMs": NEVER}),
    );
    let hall = house.start();
    let before = connected(&hall, "fragile");
    let (status, problem) = hall.call("fragile", "echo", json!({"text": ""}));
    assert_eq!(status, 502, "{problem}");
    let after = hall
        .until_entry("fragile", "is back", |entry| entry["phase"] == "connected" && entry["restarts"] == 1);
    assert_ne!(pid(&before), pid(&after));
    assert_ne!(before["instance"], after["instance"]);
    assert_eq!((&after["lastExit"]["code"], &after["error"]), (&json!(1), &Value::Null));
    assert_eq!(count(&dir, "tools/call"), 1, "the call was not sent again");
}

#[test]
fn a_call_that_cannot_be_sent_says_why() {
    let house = House::new();
    house.rogue_with("resting", &[], patient());
    house.rogue_with("failing", &["--lie", "error"], patient());
    house.rogue_with("mute", &["--mute"], patient());
    let hall = house.start();
    connected(&hall, "resting");
    let says = |member: &str, tool: &str, status: u16, words: &[&str]| {
        let (got, problem) = hall.call(member, tool, json!({}));
        assert_eq!((got, &problem["status"]), (status, &json!(status)), "{problem}");
        for word in words {
            assert!(detail(&problem).contains(word), "{problem} should say {word:?}");
        }
    };
    says("nobody", "echo", 404, &["nobody"]);
    says("resting", "nothing", 404, &["resting", "nothing", "echo, pid, env, sleep"]);
    done(&house, &["stop", "resting"]);
    says("resting", "echo", 409, &["resting is stopped"]);
    hall.until("failing", "failed");
    says("failing", "echo", 409, &["failing is failed", "the rogue does not feel like it"]);
    hall.until("mute", "greeting");
    says("mute", "echo", 409, &["mute is greeting"]);
    for (args, code) in [(["call", "nobody", "echo"], 4), (["call", "resting", "echo"], 1)] {
        let output = house.cli(&args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", printed(&output));
    }
}
