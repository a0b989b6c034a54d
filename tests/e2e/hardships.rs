//! What the machine does to a hall: members that run are left alone, what cannot be done is told with its
//! cause, and when the hardship is over all is well again.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::{Value, json};

use crate::hall::{BINARY, Hall, House, eventually, is_alive};
use crate::nobody;
use crate::traces::{assert_says, connected, done, pid, printed, until_dead};

fn kill(entry: &Value) {
    kill_process(Pid::from_raw(pid(entry)).unwrap(), Signal::KILL).unwrap();
}

/// The member is the same process as before, and answers.
#[track_caller]
fn is_untouched(hall: &Hall, name: &str, before: &Value) {
    let now = hall.entry(name);
    assert_eq!((&now["phase"], &now["pid"]), (&json!("connected"), &before["pid"]), "{now:#}");
    assert_eq!(hall.call_text(name, "pid", json!({})), before["pid"].to_string());
}

/// Nothing runs any more.
#[track_caller]
fn stop_leaves_nothing(hall: Hall, names: &[&str]) {
    let pids: Vec<i32> = names.iter().map(|name| pid(&connected(&hall, name))).collect();
    hall.stop();
    assert!(!pids.iter().any(|&pid| is_alive(pid)));
}

/// Waits until a member that was killed is told to be kept from coming back, by all of this.
#[track_caller]
fn is_kept_back(hall: &Hall, name: &str, words: &[&str]) {
    let says = |entry: &Value| {
        entry["error"].as_str().is_some_and(|error| words.iter().all(|word| error.contains(word)))
    };
    let entry = hall.until_entry(name, &format!("says {words:?}"), says);
    assert_eq!(entry["status"], "error", "{entry:#}");
}

/// A hall whose run directory is a file system of its own, of 256 KiB.
fn start_on_small_disk(house: &House) -> Option<Hall> {
    if !geteuid().is_root() {
        eprintln!("skipped: only root can mount a small disk");
        return None;
    }
    fs::create_dir(house.run_dir()).unwrap();
    let mut command = Command::new("unshare");
    let mount = "mount -t tmpfs -o size=256k,mode=0700 none \"$1\" || exit 99; shift; exec \"$0\" \"$@\"";
    command.args(["--mount", "sh", "-c", mount, BINARY]).arg(house.run_dir());
    let mut hall = house.spawn(command, &[]);
    hall.look_through_its_mounts();
    let answers = eventually("the hall answers, or cannot be", || {
        hall.child.try_wait().unwrap().map(|_| false).or(hall.try_http("GET", "/healthz", "").map(|_| true))
    });
    if !answers {
        eprintln!("skipped: nothing can be mounted here: {}", hall.log());
        return None;
    }
    Some(hall)
}

/// A path as the hall sees it.
fn seen_by(hall: &Hall, path: &Path) -> PathBuf {
    PathBuf::from(format!("/proc/{}/root{}", hall.pid(), path.display()))
}

#[test]
fn on_a_full_disk_members_run_on_and_all_is_well_when_there_is_room() {
    let house = House::new();
    for name in ["a", "b", "c"] {
        house.rogue(name, &[]);
    }
    let Some(hall) = start_on_small_disk(&house) else { return };
    let before = ["a", "b", "c"].map(|name| connected(&hall, name));
    // What it leaves free is not what it needs to come back.
    for name in ["a", "c"] {
        assert_eq!(hall.post(&format!("/v1/members/{name}/stop"), &json!({})).1["phase"], "stopped");
    }
    let ballast = seen_by(&hall, &house.run_dir().join("ballast"));
    let mut file = fs::File::create(&ballast).unwrap();
    let full = std::iter::repeat_with(|| file.write_all(&[0; 4096])).take(1000).find_map(Result::err);
    assert_eq!(full.unwrap().raw_os_error(), Some(rustix::io::Errno::NOSPC.raw_os_error()));
    assert_eq!(hall.post("/v1/members/a/start", &json!({})).0, 200);
    is_kept_back(&hall, "a", &["cannot write", "a.json", "No space left on device"]);
    eventually("the log says that a start is not remembered", || {
        hall.log().contains("restarts.json: a restart of the hall will forget").then_some(())
    });
    is_untouched(&hall, "b", &before[1]);
    drop(file);
    fs::remove_file(&ballast).unwrap();
    connected_again(&hall, "a");
    is_untouched(&hall, "b", &before[1]);
    let paper = seen_by(&hall, &house.run_dir().join("restarts.json"));
    eventually("both are remembered", || {
        let text = fs::read_to_string(&paper).ok()?;
        let a_was_stopped = text.matches("asked").count() > 1;
        (text.contains("\"c\"") && !a_was_stopped).then_some(())
    });
    stop_leaves_nothing(hall, &["a", "b"]);
}

/// By itself.
#[track_caller]
fn connected_again(hall: &Hall, name: &str) {
    hall.until(name, "connected");
}

#[test]
fn when_descriptors_are_exhausted_members_run_on_and_the_hall_recovers() {
    let house = House::new();
    for name in ["a", "b"] {
        house.rogue(name, &[]);
    }
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 80; exec \"$0\" \"$@\"", BINARY]);
    let hall = house.start_command(command, &[]);
    let before = ["a", "b"].map(|name| connected(&hall, name));
    // One that asks while nobody new can; the others say nothing at all.
    let mut asking = hall.connect();
    assert!(ask(&mut asking, "/v1/roster/b").contains("connected"));
    let idle: Vec<UnixStream> = (0..300).map_while(|_| hall.connect_if_it_can()).collect();
    assert!(idle.len() >= 60, "only {} connections could be opened", idle.len());
    eventually("the log says that nobody can be let in", || {
        hall.log().contains("cannot accept a connection").then_some(())
    });
    kill(&before[0]);
    eventually("it is kept back", || {
        let entry = ask(&mut asking, "/v1/roster/a");
        entry.contains("Too many open files").then_some(())
    });
    assert!(ask(&mut asking, "/v1/roster/b").contains(&format!("\"pid\":{}", pid(&before[1]))));
    drop(idle);
    connected_again(&hall, "a");
    is_untouched(&hall, "b", &before[1]);
    stop_leaves_nothing(hall, &["a", "b"]);
}

/// One request on a connection that stays open; the body as it is.
fn ask(stream: &mut UnixStream, path: &str) -> String {
    write!(stream, "GET {path} HTTP/1.1\r\nhost: hall\r\n\r\n").unwrap();
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    String::from_utf8(body).unwrap()
}

#[test]
fn when_the_run_directory_is_deleted_members_run_on_and_a_stop_leaves_nothing() {
    let house = House::new();
    for name in ["a", "b"] {
        house.rogue(name, &["--fork", "1"]);
    }
    let mut hall = house.start();
    let before = ["a", "b"].map(|name| connected(&hall, name));
    let mut asking = hall.connect();
    assert!(ask(&mut asking, "/v1/roster/b").contains("connected"));
    fs::remove_dir_all(house.run_dir()).unwrap();
    eventually("the log says what to do", || {
        let log = hall.log();
        (log.contains("is gone") && log.contains("start the hall again")).then_some(())
    });
    kill(&before[0]);
    let told = eventually("it is kept back", || {
        Some(ask(&mut asking, "/v1/roster/a")).filter(|entry| entry.contains("\"status\":\"error\""))
    });
    assert!(told.contains("a.log") && told.contains("start the hall again"), "{told}");
    assert!(ask(&mut asking, "/v1/roster/b").contains(&format!("\"pid\":{}", pid(&before[1]))));
    drop(asking);
    hall.signal(Signal::TERM);
    let status = hall.wait();
    assert!(status.success(), "{status}:\n{}", hall.log());
    until_dead("all members", &before.iter().map(pid).collect::<Vec<_>>());
    // What it was told to do is enough.
    let hall = house.start();
    for name in ["a", "b"] {
        connected(&hall, name);
    }
    stop_leaves_nothing(hall, &["a", "b"]);
}

fn set_modes(dir: &Path, directories: u32, files: u32) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            set_modes(&entry.path(), directories, files);
        } else if kind.is_file() {
            fs::set_permissions(entry.path(), fs::Permissions::from_mode(files)).unwrap();
        }
    }
    fs::set_permissions(dir, fs::Permissions::from_mode(directories)).unwrap();
}

#[test]
fn when_the_run_directory_is_read_only_members_run_on_and_all_is_well_when_it_is_writable() {
    let Some(python) = nobody::python() else { return };
    let house = House::new();
    for name in ["a", "b"] {
        let mut mcp = crate::hall::rogue_mcp(&[]);
        mcp["command"] = python.into();
        house.member(name, json!({"mcp": mcp}));
    }
    let hall = nobody::start(&house);
    let before = ["a", "b"].map(|name| connected(&hall, name));
    set_modes(&house.run_dir(), 0o500, 0o400);
    kill(&before[0]);
    is_kept_back(&hall, "a", &["a.log", "Permission denied"]);
    is_untouched(&hall, "b", &before[1]);
    set_modes(&house.run_dir(), 0o700, 0o600);
    connected_again(&hall, "a");
    is_untouched(&hall, "b", &before[1]);
    stop_leaves_nothing(hall, &["a", "b"]);
}

#[test]
fn a_second_hall_on_a_run_directory_names_the_first() {
    let house = House::new();
    house.rogue("a", &[]);
    let hall = house.start();
    let before = connected(&hall, "a");
    let mut second = house.spawn(Command::new(BINARY), &[]);
    assert_eq!(second.wait().code(), Some(1));
    let said = hall.log();
    for words in ["another hall runs on", &format!("process {}", hall.pid()), "--run-dir"] {
        assert!(said.contains(words), "{said}");
    }
    is_untouched(&hall, "a", &before);
    stop_leaves_nothing(hall, &["a"]);
}

/// A file that not even root can change or remove, until this is dropped.
struct Immutable(PathBuf);

impl Immutable {
    fn new(path: PathBuf) -> Option<Self> {
        let made = Command::new("chattr").arg("+i").arg(&path).stderr(Stdio::null()).status();
        if made.is_ok_and(|status| status.success()) {
            return Some(Self(path));
        }
        eprintln!("skipped: no file can be made immutable here");
        None
    }
}

impl Drop for Immutable {
    fn drop(&mut self) {
        let _ = Command::new("chattr").arg("-i").arg(&self.0).status();
    }
}

#[test]
fn a_pid_file_that_cannot_be_changed_is_named_and_keeps_nobody_else_back() {
    let house = House::new();
    for name in ["a", "b"] {
        house.rogue(name, &[]);
    }
    let hall = house.start();
    let before = ["a", "b"].map(|name| connected(&hall, name));
    let Some(immutable) = Immutable::new(house.run_dir().join(".mcp-servers/a.json")) else { return };
    done(&house, &["stop", "a"]);
    until_dead("it", &[pid(&before[0])]);
    let started = house.cli(&["start", "a"]);
    assert_eq!(started.status.code(), Some(1), "{}", printed(&started));
    let kept_back = hall.entry("a");
    assert_says(&kept_back, &["cannot write", "a.json", "Operation not permitted"]);
    is_untouched(&hall, "b", &before[1]);
    hall.stop();
    // The next hall finds a file about a process that is dead, and can do as little about it.
    let hall = house.start();
    is_kept_back(&hall, "a", &["cannot write", "a.json", "Operation not permitted"]);
    connected(&hall, "b");
    drop(immutable);
    connected_again(&hall, "a");
    stop_leaves_nothing(hall, &["a", "b"]);
}
