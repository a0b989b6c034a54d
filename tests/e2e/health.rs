//! Members that stop answering while they live: noticed on evidence, taken back, or given up.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::hall::{Hall, House, eventually, is_alive};
use crate::traces::{NEVER, assert_says, connected, curt_mcp, lines, pid};

const MUTE: [&str; 2] = ["--mute-file", "muted"];

fn mute(dir: &Path) {
    fs::write(dir.join("muted"), "").unwrap();
}

fn unmute(dir: &Path) {
    fs::remove_file(dir.join("muted")).unwrap();
}

/// A call that comes to nothing: a reason to look at the member.
fn call_in_vain(hall: &Hall, name: &str) {
    let call = json!({"member": name, "tool": "echo", "arguments": {"text": ""}, "timeoutMs": 100});
    let (status, answer) = hall.post("/v1/call", &call);
    assert_eq!(status, 504, "{answer}");
}

#[test]
fn a_member_that_falls_silent_is_unwell_and_well_again_when_it_answers() {
    let house = House::new();
    let dir = house.rogue_with("moody", &MUTE, json!({"startTimeoutMs": NEVER}));
    let hall = house.start();
    let before = connected(&hall, "moody");
    mute(&dir);
    call_in_vain(&hall, "moody");
    let unwell = hall.until("moody", "unwell");
    assert_says(&unwell, &["does not answer"]);
    assert_eq!(
        (&unwell["status"], &unwell["pid"], &unwell["port"]),
        (&json!("error"), &before["pid"], &before["port"])
    );
    let (status, problem) = hall.call("moody", "echo", json!({"text": ""}));
    assert_eq!(status, 409, "an unwell member is not called: {problem}");

    unmute(&dir);
    let well = hall.until("moody", "connected");
    assert_eq!((pid(&well), &well["restarts"], &well["error"]), (pid(&before), &json!(0), &Value::Null));
    assert_eq!(hall.call_text("moody", "echo", json!({"text": "well"})), "well");
}

#[test]
fn a_member_that_stays_silent_is_restarted_or_given_up() {
    let house = House::new();
    let dir = house.rogue_with("restarted", &MUTE, json!({"startTimeoutMs": 3000, "stopTimeoutMs": 300}));
    let fields = json!({"startTimeoutMs": 6000, "stopTimeoutMs": 300, "restart": "never"});
    let given_up = house.rogue_with("given-up", &MUTE, fields);
    let hall = house.start();
    let names = ["restarted", "given-up"];
    let before = names.map(|name| hall.until(name, "connected"));
    let restarts = before[0]["restarts"].as_u64();
    mute(&dir);
    mute(&given_up);
    for (name, before) in names.into_iter().zip(&before) {
        call_in_vain(&hall, name);
        assert_eq!(pid(&hall.until(name, "unwell")), pid(before));
    }
    hall.until_entry("restarted", "is to be restarted", |entry| entry["restarts"].as_u64() > restarts);
    assert!(!is_alive(pid(&before[0])), "the silent process is ended before another is started");
    unmute(&dir);
    let after = hall.until("restarted", "connected");
    assert_ne!(pid(&after), pid(&before[0]));
    assert_eq!(hall.call_text("restarted", "pid", json!({})), pid(&after).to_string());

    assert_says(
        &hall.until("given-up", "failed"),
        &["did not become well again within 6 s", "does not answer"],
    );
    assert!(!is_alive(pid(&before[1])));
}

#[test]
fn a_member_that_asks_for_it_is_probed_without_a_call() {
    let house = House::new();
    let fields = json!({"startTimeoutMs": NEVER, "healthIntervalMs": 50});
    let dir = house.rogue_with("watched", &[&MUTE[..], &crate::traces::RECORD].concat(), fields);
    let hall = house.start();
    let before = connected(&hall, "watched");
    eventually("it is probed more than once", || {
        (crate::traces::count(&dir, "tools/list") > 3).then_some(())
    });
    assert_eq!(hall.entry("watched")["since"], before["since"], "a probe that succeeds changes nothing");
    mute(&dir);
    assert_says(&hall.until("watched", "unwell"), &["does not answer"]);
    unmute(&dir);
    assert_eq!(pid(&hall.until("watched", "connected")), pid(&before));
}

#[test]
fn a_probe_that_meets_a_stale_connection_is_no_reason_to_call_a_member_unwell() {
    let house = House::new();
    let fields = json!({"mcp": curt_mcp("later"), "startTimeoutMs": NEVER, "healthIntervalMs": 50});
    let dir = house.member("curt", fields);
    let hall = house.start();
    let before = connected(&hall, "curt");
    let probes = || lines(&dir.join("answered")).iter().filter(|method| *method == "tools/list").count() - 1;
    eventually("it is probed more than once", || (probes() > 3).then_some(()));
    let after = hall.entry("curt");
    assert_eq!((&after["phase"], &after["since"]), (&json!("connected"), &before["since"]), "{}", hall.log());
}

#[test]
fn a_frozen_member_is_unwell_and_well_again_when_it_thaws() {
    let house = House::new();
    house.rogue_with("frozen", &[], json!({"startTimeoutMs": NEVER}));
    let hall = house.start();
    let before = connected(&hall, "frozen");
    let process = Pid::from_raw(pid(&before)).unwrap();
    kill_process(process, Signal::STOP).unwrap();
    call_in_vain(&hall, "frozen");
    hall.until("frozen", "unwell");
    kill_process(process, Signal::CONT).unwrap();
    let after = hall.until("frozen", "connected");
    assert_eq!((pid(&after), &after["restarts"]), (pid(&before), &json!(0)));
}

#[test]
fn a_member_whose_process_is_killed_is_never_shown_connected_with_it() {
    let house = House::new();
    house.rogue_with("victim", &[], json!({"startTimeoutMs": NEVER}));
    let hall = house.start();
    let before = connected(&hall, "victim");
    kill_process(Pid::from_raw(pid(&before)).unwrap(), Signal::KILL).unwrap();
    let after = hall.until_entry("victim", "is back", |entry| {
        entry["phase"] == "connected" && entry["pid"] != before["pid"]
    });
    assert_eq!((&after["lastExit"]["signal"], &after["lastExit"]["code"]), (&json!("SIGKILL"), &Value::Null));
    assert_eq!((&after["restarts"], &after["port"]), (&json!(1), &before["port"]));
    assert_eq!(hall.call_text("victim", "pid", json!({})), pid(&after).to_string());
}
