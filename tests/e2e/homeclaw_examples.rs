//! The HomeClaw examples, one of each type, as they ship: through the gateway, over a crash of the hall and of their own.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::hall::{Hall, House, eventually, is_alive};
use crate::mcp::Mcp;

/// Each with a tool, its arguments, and a part of what it answers.
fn calls() -> [(&'static str, &'static str, Value, &'static str); 5] {
    [
        ("inline", "convert", json!({"value": 1000, "unit": "m", "to": "km"}), "1"),
        ("legacy", "echo", json!({"user_input": "hello"}), "hello"),
        ("subprocess", "roll", json!({"notation": "2d6+1"}), "2d6+1 = "),
        ("mcp", "handle_request", json!({"user_input": "please roll 3d4"}), "3d4 = "),
        ("http", "roll", json!({"notation": "2d6+1"}), "2d6+1 = "),
    ]
}

/// The example `http` runs its own server.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// All examples, the one that is a server on a port of this test's own.
fn house() -> (House, Server) {
    let house = House::new();
    let port = (house.first_port() + 59).to_string();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/homeclaw");
    for (name, ..) in calls() {
        let dir = house.member_dir(&format!("homeclaw/{name}"));
        for file in fs::read_dir(shipped.join(name)).unwrap().map(|file| file.unwrap().path()) {
            if file.is_file() {
                fs::copy(&file, dir.join(file.file_name().unwrap())).unwrap();
            }
        }
    }
    let dir = house.member_dir("homeclaw/http");
    let manifest = fs::read_to_string(dir.join("plugin.yaml")).unwrap();
    assert!(manifest.contains(":3100"), "{manifest}");
    fs::write(dir.join("plugin.yaml"), manifest.replace("3100", &port)).unwrap();
    let mut command = Command::new(crate::hall::python());
    let server = command.args(["server.py", &port]).current_dir(&dir);
    let server = Server(server.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    eventually("its server listens", || {
        std::net::TcpStream::connect(("127.0.0.1", port.parse().unwrap())).ok()
    });
    (house, server)
}

fn member(name: &str) -> String {
    format!("homeclaw/{name}")
}

fn pid(entry: &Value) -> i32 {
    i32::try_from(entry["pid"].as_i64().unwrap()).unwrap()
}

/// Calls each of them through the gateway, when they are all there; their process numbers.
fn all_answer(hall: &Hall) -> Vec<i32> {
    let pids = calls().map(|(name, ..)| pid(&hall.until(&member(name), "connected")));
    let mcp = Mcp::open(hall, "/mcp");
    for (name, tool, arguments, part) in calls() {
        let answer = mcp.call(&format!("homeclaw-{name}__{tool}"), arguments);
        assert_ne!(answer["result"]["isError"], true, "{name}: {answer}");
        let text =
            answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{name}: {answer}"));
        assert!(text.contains(part), "{name}: {answer}");
    }
    pids.into()
}

#[test]
fn each_type_is_found_called_taken_over_and_comes_back() {
    let (house, _server) = house();
    let mut hall = house.start();
    let before = all_answer(&hall);

    hall.signal(Signal::KILL);
    hall.wait();
    let hall = house.start();
    assert_eq!(all_answer(&hall), before, "none was restarted");
    for (name, ..) in calls() {
        assert_eq!(hall.entry(&member(name))["adopted"], true, "{name}");
    }

    for &pid in &before {
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }
    for (name, ..) in calls() {
        hall.until_entry(&member(name), "came back", |entry| {
            entry["restarts"] == 1 && entry["phase"] == "connected"
        });
    }
    let after = all_answer(&hall);
    assert!(after.iter().all(|pid| !before.contains(pid)));
    hall.stop();
    eventually("nothing is left", || after.iter().all(|&pid| !is_alive(pid)).then_some(()));
}
