//! Ports: exit code 2, strangers, and a pool that is too small.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::hall::{House, eventually, python};
use crate::traces::{
    NEVER, RECORD, assert_says, connected, done, launches, patient, pid, printed, requests, settled,
};

const ROGUE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/members/rogue.py");

/// An MCP server that is nobody's member.
struct Stranger(Child);

impl Stranger {
    fn on(port: u16, dir: &Path) -> Self {
        let mut command = Command::new(python());
        command.args(["-S", ROGUE, "--port", &port.to_string()]).args(RECORD).current_dir(dir);
        let stranger =
            Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        // Not by a connection: it is to see none but the hall's.
        eventually("the stranger listens", || TcpListener::bind(("127.0.0.1", port)).is_err().then_some(()));
        stranger
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Ports in the order of the launches, each once.
fn distinct(ports: &[u16]) -> usize {
    ports.iter().collect::<BTreeSet<_>>().len()
}

#[test]
fn a_member_that_refuses_nine_ports_is_connected_on_the_tenth() {
    let house = House::new();
    let dir = house.rogue_with("picky", &["--exit-2", "9"], patient());
    let hall = house.start();
    let entry = connected(&hall, "picky");
    let ports = launches(&dir);
    assert_eq!((ports.len(), distinct(&ports)), (10, 10), "{ports:?}");
    assert_eq!((&entry["attempts"], &entry["port"]), (&json!(10), &json!(ports[9])));
    assert_eq!(entry["restarts"], 0, "another port is no restart");
    assert_eq!(hall.call_text("picky", "echo", json!({"text": "at last"})), "at last");
}

#[test]
fn a_member_that_refuses_every_port_has_failed_after_ten_launches() {
    let house = House::new();
    let dir = house.rogue("picky", &["--exit-2", "-1"]);
    let hall = house.start();
    let entry = settled(&hall, "picky");
    assert_eq!(
        (&entry["phase"], &entry["attempts"], &entry["lastExit"]["code"]),
        (&json!("failed"), &json!(10), &json!(2))
    );
    assert_says(&entry, &["exited with code 2", "10 ports", &house.first_port().to_string()]);
    assert_eq!(distinct(&launches(&dir)), 10);

    let again = house.cli(&["start", "picky"]);
    assert_eq!(again.status.code(), Some(1), "{}", printed(&again));
    assert!(printed(&again).contains("exited with code 2"), "{}", printed(&again));
    hall.stop();
    let ports = launches(&dir);
    assert_eq!(ports.len(), 20, "ten launches for each start, and not one more: {ports:?}");
    assert_eq!(distinct(&ports[10..]), 10, "{ports:?}");
}

#[test]
fn exit_2_of_a_connected_member_is_a_failure_like_any_other() {
    let house = House::new();
    let knobs = ["--lie", "crash", "--exit-code", "2"];
    let once = house.rogue_with("once", &knobs, patient());
    let dir = house.rogue_with("again", &knobs, json!({"startTimeoutMs": NEVER}));
    let hall = house.start();
    let port = connected(&hall, "again")["port"].clone();
    connected(&hall, "once");
    for name in ["once", "again"] {
        assert_eq!(hall.call(name, "echo", json!({"text": ""})).0, 502);
    }
    assert_says(&hall.until("once", "failed"), &["exited with code 2 unasked"]);
    let entry =
        hall.until_entry("again", "is back", |entry| entry["phase"] == "connected" && entry["restarts"] == 1);
    assert_eq!((&entry["port"], &entry["attempts"]), (&port, &json!(1)), "a restart keeps the port");
    assert_eq!((launches(&once).len(), launches(&dir).len()), (1, 2));
}

#[test]
fn a_strangers_server_on_the_port_is_never_taken_for_the_member() {
    let house = House::new();
    let script =
        r#"[ -e go ] && exec "$0" -S "$1" --port "$PORT"; until [ -e go ]; do sleep 0.05; done; exit 2"#;
    let mcp = json!({"command": "sh", "args": ["-c", script, python(), ROGUE]});
    let dir = house.member("late", json!({"mcp": mcp, "startTimeoutMs": NEVER, "restart": "never"}));
    let strange_dir = house.run_dir().with_file_name("stranger");
    std::fs::create_dir(&strange_dir).unwrap();
    let hall = house.start();
    let port = hall.until("late", "greeting")["port"].as_u64().unwrap();
    let stranger = Stranger::on(u16::try_from(port).unwrap(), &strange_dir);
    let entry = hall.until_entry("late", "is said to have a stranger on its port", |entry| {
        entry["error"].as_str().is_some_and(|error| error.contains("not this member's"))
    });
    assert_eq!((&entry["phase"], &entry["status"]), (&json!("greeting"), &json!("disconnected")));
    assert_says(&entry, &[&port.to_string(), &stranger.0.id().to_string()]);
    assert_eq!(hall.call("late", "echo", json!({"text": "who are you?"})).0, 409);

    std::fs::write(dir.join("go"), "").unwrap();
    let entry = connected(&hall, "late");
    assert_ne!(entry["port"], port);
    assert_eq!(entry["attempts"], 2);
    assert_eq!(hall.call_text("late", "pid", json!({})), pid(&entry).to_string());
    assert_eq!(requests(&strange_dir), [] as [Value; 0], "nothing was ever said to the stranger");
}

#[test]
fn a_port_that_another_program_holds_is_passed_over_and_no_attempt() {
    let house = House::new();
    let first = house.first_port();
    let _listening = TcpListener::bind(("127.0.0.1", first)).unwrap();
    let _everywhere = TcpListener::bind(("0.0.0.0", first + 1)).unwrap();
    let dir = house.rogue_with("member", &[], patient());
    let hall = house.start();
    let entry = connected(&hall, "member");
    assert_eq!((&entry["port"], &entry["attempts"]), (&json!(first + 2), &json!(1)));
    assert_eq!(launches(&dir), [first + 2]);
}

#[test]
fn a_member_keeps_its_port_although_a_lower_one_is_free() {
    let house = House::new();
    for name in ["a", "b"] {
        house.rogue_with(name, &[], patient());
    }
    let hall = house.start();
    let names = ["a", "b"].map(|name| (connected(&hall, name)["port"].as_u64().unwrap(), name));
    let (low, high) = (names.iter().min().unwrap(), names.iter().max().unwrap());
    assert_eq!((low.0, high.0), (house.first_port().into(), u64::from(house.first_port()) + 1));
    done(&house, &["stop", low.1]);
    done(&house, &["restart", high.1]);
    assert_eq!(connected(&hall, high.1)["port"], high.0);
}

#[test]
fn a_member_without_a_port_says_so_and_is_connected_once_one_is_freed() {
    let house = House::new();
    let names = ["a", "b", "c"];
    for name in names {
        house.rogue_with(name, &[], patient());
    }
    let first = house.first_port();
    let range = format!("{first}-{}", first + 1);
    let hall = house.start_with(&["--ports", &range]);
    let hungry = eventually("one of three finds no port", || {
        names.into_iter().find(|name| hall.entry(name)["phase"] == "waiting")
    });
    let entry = hall.entry(hungry);
    assert_says(&entry, &["no free port", &range, "2 of 2"]);
    assert_eq!(
        (&entry["status"], &entry["pid"], &entry["attempts"]),
        (&json!("error"), &Value::Null, &json!(0))
    );
    let fed: Vec<&str> = names.into_iter().filter(|name| *name != hungry).collect();
    for name in &fed {
        connected(&hall, name);
    }

    done(&house, &["stop", fed[0]]);
    hall.until(hungry, "connected");
    let refused = house.cli(&["start", fed[0]]);
    assert_eq!(refused.status.code(), Some(1), "{}", printed(&refused));
    assert!(printed(&refused).contains("no free port"), "{}", printed(&refused));
    done(&house, &["stop", fed[1]]);
    hall.until(fed[0], "connected");
}

#[test]
fn a_member_whose_ports_are_all_held_by_strangers_says_so_and_is_not_launched() {
    let house = House::new();
    let dir = house.rogue_with("member", &[], patient());
    let first = house.first_port();
    let strangers = [first, first + 1].map(|port| TcpListener::bind(("127.0.0.1", port)).unwrap());
    let hall = house.start_with(&["--ports", &format!("{first}-{}", first + 1)]);
    let entry = hall.until("member", "waiting");
    assert_says(&entry, &["no free port", "0 of 2 are held by members", "2 by other programs"]);
    assert!(entry["retryAt"].is_string(), "it looks again by itself: {entry:#}");
    drop(strangers);
    hall.stop();
    assert_eq!(launches(&dir), [] as [u16; 0]);
}

#[test]
fn a_member_that_refuses_all_ports_there_are_has_failed_although_they_are_fewer_than_ten() {
    let house = House::new();
    let dir = house.rogue("picky", &["--exit-2", "-1"]);
    let first = house.first_port();
    let hall = house.start_with(&["--ports", &format!("{first}-{}", first + 2)]);
    let entry = settled(&hall, "picky");
    assert_eq!((&entry["phase"], &entry["attempts"]), (&json!("failed"), &json!(3)), "{entry:#}");
    assert_says(&entry, &["exited with code 2", "3 ports"]);
    hall.stop();
    assert_eq!((launches(&dir).len(), distinct(&launches(&dir))), (3, 3));
}

#[test]
fn a_member_that_refused_all_ports_there_are_tries_them_again_when_a_person_starts_it() {
    let house = House::new();
    house.rogue_with("picky", &["--exit-2", "2"], json!({"startTimeoutMs": NEVER}));
    let first = house.first_port();
    let hall = house.start_with(&["--ports", &format!("{first}-{}", first + 1)]);
    hall.until("picky", "failed");
    house.cli(&["start", "picky"]);
    hall.until("picky", "connected");
}
