//! What a service manager sees of a hall, and what it gives it: sd_notify(3) and sd_listen_fds(3).

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::hall::{BINARY, Hall, House, eventually, python};
use crate::traces::NEVER;

/// The service manager's end.
struct Manager {
    socket: UnixDatagram,
    heard: Vec<String>,
}

impl Manager {
    fn start(house: &House, watchdog: Option<Duration>) -> (Self, Hall) {
        let path = socket_path(house);
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut command = Command::new(BINARY);
        command.env("NOTIFY_SOCKET", path);
        if let Some(watchdog) = watchdog {
            command.env("WATCHDOG_USEC", watchdog.as_micros().to_string());
        }
        let hall = house.start_command(command, &[]);
        (Self { socket, heard: Vec::new() }, hall)
    }

    /// Waits for a message that holds this line, and forgets it and what came before.
    #[track_caller]
    fn hears(&mut self, wanted: &str) -> String {
        eventually(&format!("the service manager hears {wanted}"), || {
            self.listen();
            let at = self.heard.iter().position(|heard| heard.lines().any(|line| line == wanted))?;
            self.heard.drain(..=at).next_back()
        })
    }

    fn listen(&mut self) {
        let mut buffer = [0; 4096];
        while let Ok(length) = self.socket.recv(&mut buffer) {
            self.heard.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
        }
    }
}

fn socket_path(house: &House) -> PathBuf {
    house.members().with_file_name("notify")
}

#[test]
fn a_service_manager_hears_how_the_hall_is() {
    let house = House::new();
    house.rogue("one", &[]);
    house.rogue_with("mute", &["--mute"], json!({"startTimeoutMs": NEVER}));
    let (mut manager, hall) = Manager::start(&house, None);
    let ready = manager.hears("READY=1");
    assert!(ready.contains(&format!("MAINPID={}\n", hall.pid())), "{ready}");
    assert!(ready.contains("STATUS=2 members: "), "{ready}");
    assert_eq!(
        hall.until("mute", "greeting")["status"],
        "disconnected",
        "no member keeps a hall from being ready"
    );
    manager.hears("STATUS=2 members: 1 connected, 1 disconnected");
    let inherited = hall.call_text("one", "env", json!({}));
    assert!(!inherited.contains("NOTIFY_SOCKET"), "{inherited}");

    house.rogue("two", &[]);
    hall.signal(Signal::HUP);
    let reloading = manager.hears("RELOADING=1");
    assert!(reloading.contains("\nMONOTONIC_USEC="), "{reloading}");
    manager.hears("READY=1");
    manager.hears("STATUS=3 members: 2 connected, 1 disconnected");

    hall.signal(Signal::TERM);
    let stopping = manager.hears("STOPPING=1");
    assert!(stopping.contains("STATUS=stopping: "), "{stopping}");
    manager.listen();
    let pulses = manager.heard.iter().filter(|heard| heard.contains("WATCHDOG")).count();
    assert_eq!(pulses, 0, "nobody has asked for a watchdog");
}

#[test]
fn a_long_stop_asks_for_more_time() {
    let house = House::new();
    house.rogue_with("deaf", &["--deaf"], json!({"stopTimeoutMs": 60_000}));
    let (mut manager, hall) = Manager::start(&house, None);
    hall.until("deaf", "connected");
    hall.signal(Signal::TERM);
    manager.hears("STOPPING=1");
    manager.hears("EXTEND_TIMEOUT_USEC=10000000");
    // The second one, when the hall is dropped, ends it at once.
}

#[test]
fn the_watchdog_is_fed_while_the_loop_takes_its_turns() {
    let house = House::new();
    let (mut manager, hall) = Manager::start(&house, Some(Duration::from_millis(100)));
    manager.hears("STATUS=no members");
    for _ in 0..3 {
        manager.hears("WATCHDOG=1");
    }
    hall.stop();
}

#[test]
fn a_service_manager_that_listens_no_more_holds_nothing_up() {
    let house = House::new();
    house.rogue("one", &[]);
    let (mut manager, hall) = Manager::start(&house, Some(Duration::from_millis(1)));
    manager.hears("READY=1");
    // Its queue is full: whoever says a word more has to wait.
    let full = UnixDatagram::unbound().unwrap();
    full.set_nonblocking(true).unwrap();
    full.connect(socket_path(&house)).unwrap();
    eventually("the queue is full", || full.send(b"X=1").is_err().then_some(()));
    hall.signal(Signal::HUP);
    let (status, changes) = hall.post("/v1/reload", &json!({}));
    assert_eq!((status, &changes["unchanged"]), (200, &json!(1)));
    hall.until("one", "connected");
    hall.stop();
}

/// Starts the hall with a listening socket as its descriptor 3, as systemd does.
const PASS: &str = r#"
import os, socket, sys
s = socket.create_server(("127.0.0.1", 0))
os.dup2(s.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid() + int(sys.argv[1])), LISTEN_FDS="1", LISTEN_FDNAMES="gateway")
os.execv(sys.argv[2], sys.argv[2:])
"#;

fn start_with_socket(house: &House, wrong_by: u8) -> Hall {
    let mut command = Command::new(python());
    command.args(["-S", "-c", PASS, &wrong_by.to_string(), BINARY]);
    house.start_command(command, &[])
}

#[test]
fn a_passed_socket_is_taken_and_never_inherited() {
    let house = House::new();
    house.rogue("one", &[]);
    let hall = start_with_socket(&house, 0);
    let member = hall.until("one", "connected")["pid"].clone();
    assert!(
        hall.log().contains("passed a listening socket") && hall.log().contains("gateway"),
        "{}",
        hall.log()
    );
    let flags = fs::read_to_string(format!("/proc/{}/fdinfo/3", hall.pid())).unwrap();
    let flags = flags.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
    let flags = u32::from_str_radix(flags, 8).unwrap();
    assert_ne!(flags & 0o2_000_000, 0, "close-on-exec");
    let socket = fs::read_link(format!("/proc/{}/fd/3", hall.pid())).unwrap();
    let held = fs::read_dir(format!("/proc/{member}/fd")).unwrap().flatten();
    assert!(!held.into_iter().any(|link| fs::read_link(link.path()).is_ok_and(|to| to == socket)));
    let inherited = hall.call_text("one", "env", json!({}));
    assert!(!inherited.contains("LISTEN_"), "{inherited}");
    // The next image has it too.
    hall.signal(Signal::USR2);
    eventually("the hall is handed over", || {
        (hall.log().matches("passed a listening socket").count() == 2).then_some(())
    });
    let held = fs::read_dir(format!("/proc/{}/fd", hall.pid())).unwrap().flatten();
    assert!(held.into_iter().any(|link| fs::read_link(link.path()).is_ok_and(|to| to == socket)));
    hall.stop();
}

#[test]
fn a_socket_that_was_passed_to_someone_else_is_left_alone() {
    let house = House::new();
    house.rogue("one", &[]);
    let hall = start_with_socket(&house, 1);
    hall.until("one", "connected");
    assert!(!hall.log().contains("passed a listening socket"), "{}", hall.log());
    hall.stop();
}

#[test]
fn a_passed_descriptor_that_does_not_listen_is_refused_by_name() {
    let house = House::new();
    let script = PASS.replace(r#"socket.create_server(("127.0.0.1", 0))"#, "socket.socket()");
    let run_dir = house.run_dir();
    let mut command = Command::new(python());
    command.args(["-S", "-c", &script, "0", BINARY, "run", "--run-dir"]).arg(&run_dir).arg("--members");
    let output = command.arg(house.members()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("\"gateway\" is no TCP socket that listens"), "{said}");
}
