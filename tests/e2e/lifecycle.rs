//! From launch to stop, with members that behave.

use serde_json::json;

use crate::hall::{BINARY, House, example, is_alive};

#[test]
fn a_member_is_found_launched_greeted_called_and_stopped() {
    let house = House::new();
    house.member("example", example());
    let hall = house.start();
    let entry = hall.until("example", "connected");
    assert_eq!(
        (entry["status"].as_str(), entry["port"].as_u64()),
        (Some("connected"), Some(house.first_port().into()))
    );
    assert_eq!(entry["tools"].as_array().unwrap().len(), 2);
    assert_eq!(hall.call_text("example", "echo", json!({"text": "hello"})), "hello");

    let pid = i32::try_from(entry["pid"].as_i64().unwrap()).unwrap();
    assert!(is_alive(pid));
    let pid_file = house.run_dir().join(".mcp-servers/example.json");
    let on_paper: serde_json::Value = serde_json::from_slice(&std::fs::read(&pid_file).unwrap()).unwrap();
    assert_eq!(
        (&on_paper["pid"], &on_paper["port"], &on_paper["instance"]),
        (&entry["pid"], &entry["port"], &entry["instance"])
    );
    hall.stop();
    assert!(!is_alive(pid));
    assert!(!pid_file.exists(), "a clean stop leaves no PID file");
    assert!(!house.run_dir().join("guild-hall.sock").exists(), "a clean stop leaves no socket");
}

#[test]
fn a_second_hall_on_the_same_run_directory_names_the_first() {
    let house = House::new();
    house.members();
    let hall = house.start();
    let second = house.cli(&["run", "--members", "members", "--run-dir", "run"]);
    assert_eq!(second.status.code(), Some(1));
    let error = String::from_utf8(second.stderr).unwrap();
    assert!(error.contains(&format!("process {}", hall.pid())), "{error}");
}

#[test]
fn the_binary_knows_its_verbs() {
    for verb in [
        "run",
        "roster",
        "tools",
        "call",
        "start",
        "stop",
        "restart",
        "reload",
        "logs",
        "check",
        "doctor",
        "register",
        "unregister",
    ] {
        let help = std::process::Command::new(BINARY).args([verb, "--help"]).output().unwrap();
        let text = String::from_utf8(help.stdout).unwrap();
        assert!(help.status.success() && text.contains("Example"), "{verb} --help has no example:\n{text}");
    }
}
