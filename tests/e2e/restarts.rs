//! What follows an exit, by policy; and the verbs that people have.

use serde_json::{Value, json};

use crate::hall::{House, is_alive};
use crate::traces::{NEVER, assert_says, connected, done, launches, patient, pid, printed, until_dead};

/// A policy, the knobs of an end, what the member is then, and how its end is told.
const ENDS: &[(&str, &[&str], &str, &str)] = &[
    ("on-failure", &["--exit-code", "0"], "stopped", "0"),
    ("on-failure", &["--exit-code", "1"], "connected", "1"),
    ("on-failure", &["--die-by-signal", "9"], "connected", "SIGKILL"),
    ("on-failure", &["--die-by-signal", "15"], "connected", "SIGTERM"),
    ("always", &["--exit-code", "0"], "connected", "0"),
    ("always", &["--exit-code", "1"], "connected", "1"),
    ("always", &["--die-by-signal", "11"], "connected", "SIGSEGV"),
    ("never", &["--exit-code", "0"], "stopped", "0"),
    ("never", &["--exit-code", "77"], "failed", "77"),
    ("never", &["--die-by-signal", "6"], "failed", "SIGABRT"),
];

#[test]
fn what_follows_an_exit_is_decided_by_the_policy_and_the_exit() {
    let house = House::new();
    let name = |(policy, _, _, end): &(&str, &[&str], &str, &str)| format!("{policy}-{end}");
    for end in ENDS {
        let fields = json!({"startTimeoutMs": NEVER, "restart": end.0});
        house.rogue_with(&name(end), &[&["--lie", "crash"], end.1].concat(), fields);
    }
    let hall = house.start();
    let before: Vec<Value> = ENDS.iter().map(|end| connected(&hall, &name(end))).collect();
    for (end, before) in ENDS.iter().zip(&before) {
        assert_eq!((&before["lastExit"], &before["restarts"]), (&Value::Null, &json!(0)));
        assert_eq!(hall.call(&name(end), "echo", json!({"text": ""})).0, 502);
    }
    for (end, before) in ENDS.iter().zip(&before) {
        let &(_, _, phase, how) = end;
        let ended = |entry: &Value| {
            entry["phase"] == phase && !entry["lastExit"].is_null() && entry["pid"] != before["pid"]
        };
        let entry = hall.until_entry(&name(end), &format!("is {phase} after its end"), ended);
        let told = match how.parse::<i32>() {
            Ok(code) => json!({"code": code, "signal": null}),
            Err(_) => json!({"code": null, "signal": how}),
        };
        let exit = &entry["lastExit"];
        assert_eq!(json!({"code": exit["code"], "signal": exit["signal"]}), told, "{entry:#}");
        assert!(exit["at"].is_string(), "{entry:#}");
        assert_eq!(entry["restarts"], u64::from(phase == "connected"), "{entry:#}");
        match phase {
            "failed" => assert_says(&entry, &[how, "unasked"]),
            _ => assert_eq!(entry["error"], Value::Null, "{entry:#}"),
        }
        let status = match phase {
            "stopped" => "disconnected",
            "failed" => "error",
            connected => connected,
        };
        assert_eq!(entry["status"], status);
    }
}

#[test]
fn a_member_is_stopped_started_and_restarted_by_its_verbs() {
    let house = House::new();
    let names = ["one", "box/two"];
    for name in names {
        house.rogue_with(name, &[], patient());
    }
    let hall = house.start();
    let first = names.map(|name| pid(&connected(&hall, name)));

    let text = done(&house, &["stop", "one", "box/two"]);
    for (name, process) in names.into_iter().zip(first) {
        assert!(text.contains(&format!("{name} is stopped")), "{text}");
        let entry = hall.entry(name);
        assert_eq!((&entry["phase"], &entry["status"]), (&json!("stopped"), &json!("disconnected")));
        assert_eq!(
            (&entry["pid"], &entry["port"], &entry["error"]),
            (&Value::Null, &Value::Null, &Value::Null)
        );
        assert_eq!(entry["tools"], json!([]));
        assert!(!is_alive(process), "a verb returns when it is done");
    }
    done(&house, &["stop", "one"]);

    let text = done(&house, &["start", "one", "box/two"]);
    let second = names.map(|name| {
        let entry = hall.entry(name);
        assert!(text.contains(&format!("{name} is connected on port {}", entry["port"])), "{text}");
        assert_eq!((&entry["phase"], &entry["restarts"]), (&json!("connected"), &json!(0)));
        pid(&entry)
    });
    done(&house, &["start", "one"]);
    assert_eq!(pid(&hall.entry("one")), second[0], "to start what runs changes nothing");

    done(&house, &["restart", "box/two"]);
    let entry = hall.entry("box/two");
    assert_eq!(
        (&entry["phase"], &entry["restarts"]),
        (&json!("connected"), &json!(0)),
        "a person's restart is none"
    );
    assert!(pid(&entry) != second[1] && !is_alive(second[1]));
    done(&house, &["stop", "one"]);
    done(&house, &["restart", "one"]);
    assert_eq!(hall.entry("one")["phase"], "connected", "to restart what is stopped starts it");

    for verb in ["start", "stop", "restart"] {
        let output = house.cli(&[verb, "nobody"]);
        assert_eq!(output.status.code(), Some(4), "{}", printed(&output));
        assert!(printed(&output).contains("nobody"), "{}", printed(&output));
    }
}

#[test]
fn a_member_that_fails_again_and_again_waits_longer_and_can_be_stopped_meanwhile() {
    let house = House::new();
    let dir = house.rogue("crashing", &["--crash-at-start"]);
    let hall = house.start();
    let waiting =
        |entry: &Value| entry["phase"] == "waiting" && entry["retryAt"].is_string() && entry["restarts"] == 2;
    let entry = hall.until_entry("crashing", "waits for its second restart", waiting);
    assert_says(&entry, &["exited with code 1", "crash line 30 of 30"]);
    assert!(entry["retryAt"].as_str() > entry["since"].as_str(), "{entry:#}");
    assert_eq!(
        (launches(&dir).len(), &entry["status"]),
        (2, &json!("error")),
        "the first restart came at once"
    );

    let output = house.cli(&["start", "crashing"]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("crashing did not come up") && error.contains("exited with code 1"), "{error}");
    done(&house, &["stop", "crashing"]);
    let entry = hall.entry("crashing");
    assert_eq!(
        (&entry["phase"], &entry["retryAt"], &entry["error"]),
        (&json!("stopped"), &Value::Null, &Value::Null)
    );
    let before = launches(&dir).len();
    hall.stop();
    assert_eq!(launches(&dir).len(), before);
}

#[test]
fn a_stop_while_a_member_is_greeted_ends_it_and_is_no_failure() {
    let house = House::new();
    house.rogue_with("mute", &["--mute"], json!({"startTimeoutMs": NEVER}));
    let hall = house.start();
    let process = pid(&hall.until("mute", "greeting"));
    done(&house, &["stop", "mute"]);
    let entry = hall.entry("mute");
    assert_eq!(
        (&entry["phase"], &entry["error"], &entry["restarts"]),
        (&json!("stopped"), &Value::Null, &json!(0))
    );
    until_dead("the mute process", &[process]);
}

#[test]
fn a_failed_member_is_started_again_by_a_person_and_by_nobody_else() {
    let house = House::new();
    let dir = house.rogue_with("crashing", &["--crash-at-start"], patient());
    let hall = house.start();
    hall.until("crashing", "failed");
    assert_eq!(launches(&dir).len(), 1);
    for (verb, launched) in [("start", 2), ("restart", 3)] {
        let output = house.cli(&[verb, "crashing"]);
        assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
        assert_eq!(
            (hall.entry("crashing")["phase"].as_str(), launches(&dir).len()),
            (Some("failed"), launched)
        );
    }
}
