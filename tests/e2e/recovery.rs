//! A hall that is killed loses nothing: the next one takes its members up where they are, and remembers
//! what it has to.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::hall::{Hall, House, eventually, is_alive, rogue_mcp};
use crate::traces::{assert_says, connected, descendants, error, launches, pid, until_dead};

/// SIGKILL, and gone.
fn kill(mut hall: Hall) {
    hall.signal(Signal::KILL);
    hall.child.wait().unwrap();
}

fn pid_file(house: &House, name: &str) -> std::path::PathBuf {
    house.run_dir().join(".mcp-servers").join(format!("{}.json", name.replace('/', "--")))
}

/// Changes a PID file as `change` says.
fn forge(house: &House, name: &str, change: impl FnOnce(&mut Value)) {
    let path = pid_file(house, name);
    let mut file: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut file);
    fs::write(&path, file.to_string()).unwrap();
}

/// The member is the same process as before, and answers.
#[track_caller]
fn is_taken_over(hall: &Hall, name: &str, before: &Value) {
    let now = connected(hall, name);
    for same in ["pid", "port", "instance"] {
        assert_eq!(now[same], before[same], "{same} of {now:#}");
    }
    assert_eq!((&now["adopted"], &now["tools"]), (&json!(true), &before["tools"]));
    let answered = hall.call_text(name, "pid", json!({}));
    assert_eq!(answered, before["pid"].to_string());
}

#[test]
fn members_outlive_the_hall_and_are_taken_over_by_the_next() {
    let house = House::new();
    let names = ["a", "b", "c/d"];
    let dirs = names.map(|name| house.rogue(name, &["--fork", "1"]));
    let hall = house.start();
    let before = names.map(|name| connected(&hall, name));
    kill(hall);
    let hall = house.start();
    for ((name, before), dir) in names.iter().zip(&before).zip(&dirs) {
        is_taken_over(&hall, name, before);
        assert_eq!(launches(dir).len(), 1);
    }
    // It is supervised as before: what is killed comes back.
    let victim = pid(&before[0]);
    rustix::process::kill_process(rustix::process::Pid::from_raw(victim).unwrap(), Signal::KILL).unwrap();
    let entry = hall.until_entry("a", "came back", |entry| {
        entry["phase"] == "connected" && entry["pid"] != json!(victim)
    });
    assert_eq!((&entry["adopted"], &entry["lastExit"]["signal"]), (&json!(false), &json!("SIGKILL")));
    hall.stop();
    for (dir, before) in dirs.iter().zip(&before) {
        until_dead("members and their children", &[descendants(dir), vec![pid(before)]].concat());
    }
    assert_eq!(fs::read_dir(house.run_dir().join(".mcp-servers")).unwrap().count(), 0);
}

#[test]
fn an_exit_of_an_adopted_member_means_what_it_means_for_a_child() {
    let house = House::new();
    for code in ["0", "1"] {
        house.rogue(code, &["--lie", "crash", "--exit-code", code]);
    }
    let hall = house.start();
    for code in ["0", "1"] {
        connected(&hall, code);
    }
    kill(hall);
    let hall = house.start();
    for code in ["0", "1"] {
        assert_eq!(connected(&hall, code)["adopted"], true);
        assert_ne!(hall.call(code, "pid", json!({})).0, 200);
    }
    let clean = hall.until("0", "stopped");
    assert_eq!((&clean["lastExit"]["code"], &clean["error"]), (&json!(0), &Value::Null));
    let failed =
        hall.until_entry("1", "is back", |entry| entry["phase"] == "connected" && entry["adopted"] == false);
    assert_eq!((&failed["lastExit"]["code"], &failed["restarts"]), (&json!(1), &json!(1)));
}

#[test]
fn an_adopted_member_that_exits_2_before_its_handshake_gets_another_port() {
    let house = House::new();
    let dir = house.member("late", json!({"mcp": {"command": "sh", "args": ["-c",
        "echo $PORT >>launches; [ -e go ] || { while ! [ -e refuse ]; do sleep 0.01; done; touch go; exit 2; }; exec \"$0\" \"$@\"",
        rogue_mcp(&[])["command"], "-S", rogue_mcp(&[])["args"][1], "--port", "${PORT}"]}}));
    let hall = house.start();
    let before = hall.until("late", "greeting");
    eventually("it is launched", || (launches(&dir).len() == 1).then_some(()));
    kill(hall);
    let hall = house.start();
    assert_eq!(hall.until("late", "greeting")["instance"], before["instance"]);
    fs::write(dir.join("refuse"), "").unwrap();
    let after = connected(&hall, "late");
    assert_eq!(after["attempts"], 2);
    assert_ne!(after["port"], before["port"]);
    assert_eq!(after["restarts"], 0);
}

#[test]
fn a_member_whose_manifest_changed_while_no_hall_ran_is_started_anew() {
    let house = House::new();
    let dirs = ["same", "changed", "gone", "broken"].map(|name| house.rogue(name, &[]));
    let hall = house.start();
    let before = ["same", "changed", "gone", "broken"].map(|name| connected(&hall, name));
    kill(hall);
    house.rogue_with("changed", &[], json!({"description": "Another one"}));
    fs::remove_dir_all(&dirs[2]).unwrap();
    fs::write(dirs[3].join("guild-member.json"), "{").unwrap();
    let hall = house.start();
    is_taken_over(&hall, "same", &before[0]);
    let changed = hall.until_entry("changed", "is started anew", |entry| {
        entry["phase"] == "connected" && entry["pid"] != before[1]["pid"]
    });
    assert_eq!((&changed["restarts"], &changed["adopted"]), (&json!(0), &json!(false)));
    hall.until("broken", "invalid");
    until_dead("those without a manifest", &[pid(&before[2]), pid(&before[3])]);
    eventually("the one without a directory has left", || {
        (hall.get("/v1/roster/gone").0 == 404).then_some(())
    });
}

#[test]
fn a_mute_survivor_is_ended_and_started_anew() {
    let house = House::new();
    let mute = house.run_dir().with_file_name("mute");
    let dir =
        house.rogue_with("m", &["--mute-file", mute.to_str().unwrap()], json!({"startTimeoutMs": 1500}));
    let hall = house.start();
    let before = connected(&hall, "m");
    kill(hall);
    fs::write(&mute, "").unwrap();
    let hall = house.start();
    let entry = hall.until_entry("m", "is told to be mute", |entry| !entry["error"].is_null());
    assert!(error(&entry).contains("does not answer initialize"), "{entry:#}");
    until_dead("the mute one", &[pid(&before)]);
    fs::remove_file(&mute).unwrap();
    let after = hall.until("m", "connected");
    assert_eq!((&after["adopted"], launches(&dir).len()), (&json!(false), 2));
}

#[test]
fn a_reused_pid_is_left_alone() {
    let house = House::new();
    house.rogue("m", &[]);
    let hall = house.start();
    let before = connected(&hall, "m");
    kill(hall);
    let mut stranger = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
    // As if the member had died, and its number had come round.
    let member = rustix::process::Pid::from_raw(pid(&before)).unwrap();
    rustix::process::kill_process(member, Signal::KILL).unwrap();
    until_dead("the member", &[pid(&before)]);
    forge(&house, "m", |file| file["pid"] = stranger.id().into());
    let hall = house.start();
    let after = connected(&hall, "m");
    assert_eq!(after["adopted"], false);
    hall.stop();
    assert!(is_alive(stranger.id().cast_signed()), "a process of somebody else was ended");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[test]
fn a_pid_file_of_another_boot_is_about_nobody() {
    let house = House::new();
    house.rogue("m", &[]);
    let hall = house.start();
    let before = connected(&hall, "m");
    kill(hall);
    forge(&house, "m", |file| file["bootId"] = json!("00000000-0000-0000-0000-000000000000"));
    let hall = house.start();
    let after = connected(&hall, "m");
    assert_eq!(after["adopted"], false);
    assert_ne!(after["pid"], before["pid"]);
    // Whatever is in a cgroup of the hall's own is the hall's; without one it cannot be known.
    if fs::read_to_string(pid_file(&house, "m")).unwrap().contains("cgroup") {
        until_dead("the one before", &[pid(&before)]);
    } else {
        let member = rustix::process::Pid::from_raw(pid(&before)).unwrap();
        rustix::process::kill_process(member, Signal::KILL).unwrap();
    }
}

#[test]
fn torn_empty_hostile_and_foreign_pid_files_do_no_harm() {
    let house = House::new();
    let names = ["torn", "empty", "garbage", "huge", "link", "fifo", "dir", "swapped", "draft", "well"];
    for name in names {
        house.rogue(name, &[]);
    }
    let hall = house.start();
    let before = names.map(|name| connected(&hall, name));
    kill(hall);
    let file = |name| pid_file(&house, name);
    let torn = fs::read(file("torn")).unwrap();
    fs::write(file("torn"), &torn[..torn.len() / 2]).unwrap();
    fs::write(file("empty"), "").unwrap();
    fs::write(file("garbage"), b"\xff\x00[[[[").unwrap();
    fs::write(file("huge"), vec![b' '; 3 << 20]).unwrap();
    let precious = house.run_dir().with_file_name("precious");
    fs::write(&precious, "precious").unwrap();
    fs::remove_file(file("link")).unwrap();
    std::os::unix::fs::symlink(&precious, file("link")).unwrap();
    fs::remove_file(file("fifo")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        file("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    fs::remove_file(file("dir")).unwrap();
    fs::create_dir(file("dir")).unwrap();
    // One that says to be about another member than its name does.
    forge(&house, "swapped", |file| file["member"] = json!("well"));
    forge(&house, "draft", |file| drop(file.as_object_mut().unwrap().remove("pid")));
    fs::write(house.run_dir().join(".mcp-servers/notes.txt"), "foreign").unwrap();
    let hall = house.start();
    is_taken_over(&hall, "well", &before[9]);
    for (name, before) in names.iter().zip(&before).take(9) {
        let after = connected(&hall, name);
        assert_eq!(after["adopted"], false, "{after:#}");
        assert_ne!(after["pid"], before["pid"]);
    }
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    let has_cgroups = fs::read_to_string(file("well")).unwrap().contains("cgroup");
    hall.stop();
    let pids: Vec<i32> = before.iter().map(pid).collect();
    if has_cgroups {
        until_dead("all that the first hall had started", &pids);
    } else {
        // Nothing proves any more whose they are: they are left alone.
        for pid in pids.into_iter().filter(|&pid| is_alive(pid)) {
            let _ = rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
    }
}

#[test]
fn a_recorded_port_that_a_stranger_has_is_not_taken_for_the_member() {
    let house = House::new();
    let dir = house.rogue_with("m", &[], json!({"startTimeoutMs": 1500}));
    let hall = house.start();
    let before = connected(&hall, "m");
    kill(hall);
    // The process lives, but its record says a port that another MCP server has.
    let stranger = house.first_port() + 30;
    let other = House::new();
    let mut server = rogue_command(&other, stranger);
    eventually("the stranger listens", || TcpListener::bind(("127.0.0.1", stranger)).err());
    forge(&house, "m", |file| {
        file["argv"] = serde_json::from_str(
            &file["argv"].to_string().replace(&before["port"].to_string(), &stranger.to_string()),
        )
        .unwrap();
        file["port"] = json!(stranger);
    });
    let hall = house.start();
    let entry = hall.until_entry("m", "is told not to be there", |entry| {
        entry["error"].as_str().is_some_and(|error| error.contains("not this member's"))
    });
    assert_says(&entry, &["listened on by process", &server.id().to_string()]);
    let after = hall.until_entry("m", "is started anew", |entry| {
        entry["phase"] == "connected" && entry["adopted"] == false
    });
    assert_ne!(after["port"], json!(stranger));
    assert_eq!(launches(&dir).len(), 2);
    until_dead("the one before", &[pid(&before)]);
    assert!(is_alive(server.id().cast_signed()));
    server.kill().unwrap();
    server.wait().unwrap();
}

/// A rogue that no hall knows.
fn rogue_command(house: &House, port: u16) -> std::process::Child {
    let mcp = rogue_mcp(&[]);
    let args = mcp["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|arg| arg.as_str().unwrap().replace("${PORT}", &port.to_string()));
    Command::new(mcp["command"].as_str().unwrap())
        .args(args)
        .current_dir(house.members())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_crash_loop_is_not_forgotten_by_restarting_the_hall() {
    let house = House::new();
    let dir = house.rogue("loop", &["--crash-at-start", "--exit-code", "3"]);
    house.rogue_with("never", &["--crash-at-start"], json!({"restart": "never"}));
    house.rogue("asked", &[]);
    house.rogue("clean", &["--lie", "crash", "--exit-code", "0"]);
    let hall = house.start();
    let waiting = hall
        .until_entry("loop", "waits", |entry| entry["phase"] == "waiting" && entry["restarts"] == json!(3));
    let failed = hall.until("never", "failed");
    connected(&hall, "asked");
    house.cli(&["stop", "asked"]);
    connected(&hall, "clean");
    hall.call("clean", "pid", json!({}));
    hall.until("clean", "stopped");
    eventually("it is on paper", || {
        let text = fs::read_to_string(house.run_dir().join("restarts.json")).unwrap_or_default();
        (["loop", "never", "asked", "clean"].iter().all(|name| text.contains(name))).then_some(())
    });
    kill(hall);
    let launched = launches(&dir).len();
    let hall = house.start();
    let remembered = hall.entry("loop");
    assert!(remembered["restarts"].as_u64().unwrap() >= 3, "{remembered:#}");
    if remembered["phase"] == "waiting" && launches(&dir).len() == launched {
        assert_eq!(remembered["error"], waiting["error"]);
        assert!(!remembered["retryAt"].is_null());
        assert_eq!(remembered["stderrTail"], waiting["stderrTail"]);
    }
    assert_eq!(hall.entry("never")["error"], failed["error"]);
    assert_eq!(hall.entry("never")["phase"], "failed");
    assert_eq!(hall.entry("asked")["phase"], "stopped");
    assert_eq!(hall.entry("clean")["phase"], "stopped");
    // A start that a person asked for starts everyone, but the count goes on.
    hall.stop();
    let hall = house.start();
    connected(&hall, "asked");
    connected(&hall, "clean");
    assert!(hall.entry("loop")["restarts"].as_u64().unwrap() >= 3);
}

#[test]
fn what_was_being_stopped_stays_stopped() {
    let house = House::new();
    let dir = house.rogue("deaf", &["--deaf"]);
    let hall = house.start();
    let before = connected(&hall, "deaf");
    assert_eq!(hall.post("/v1/members/deaf/stop?wait=false", &json!({})).0, 202);
    hall.until("deaf", "stopping");
    eventually("it is on paper", || {
        fs::read_to_string(house.run_dir().join("restarts.json")).ok().filter(|text| text.contains("deaf"))
    });
    kill(hall);
    let hall = house.start();
    hall.until("deaf", "stopped");
    assert!(!is_alive(pid(&before)));
    assert_eq!(launches(&dir).len(), 1);
}

#[test]
fn calls_that_come_while_members_are_taken_over_wait_for_them() {
    let house = House::new();
    let dir = house.rogue("m", &[]);
    let hall = house.start();
    let before = connected(&hall, "m");
    kill(hall);
    let hall = house.start();
    assert_eq!(hall.call_text("m", "pid", json!({})), before["pid"].to_string());
    assert_eq!(launches(&dir).len(), 1);
}

#[test]
fn a_cgroup_without_a_pid_file_is_emptied() {
    let house = House::new();
    house.rogue("m", &["--setsid-clean-env"]);
    let hall = house.start();
    let before = connected(&hall, "m");
    let has_cgroup = fs::read_to_string(pid_file(&house, "m")).unwrap().contains("cgroup");
    let left = descendants(&house.member_dir("m"));
    kill(hall);
    if !has_cgroup {
        eprintln!("skipped: no cgroups can be made here");
        return drop(house.start());
    }
    fs::remove_file(pid_file(&house, "m")).unwrap();
    let hall = house.start();
    connected(&hall, "m");
    until_dead("what the first hall had started", &[left, vec![pid(&before)]].concat());
    assert!(Path::new(&house.run_dir()).exists());
}

#[test]
fn a_lock_that_outlives_its_hall_is_waited_for() {
    let house = House::new();
    house.rogue("m", &[]);
    fs::create_dir_all(house.run_dir()).unwrap();
    let path = house.run_dir().join("lock");
    let mut dead = Command::new("true").spawn().unwrap();
    dead.wait().unwrap();
    fs::write(&path, format!("{}\n", dead.id())).unwrap();
    // As a child of that hall holds it which has yet to execute its program.
    let held = fs::File::open(&path).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    std::thread::scope(|scope| {
        let starting = scope.spawn(|| house.start());
        eventually("a hall is at the lock", || {
            let mut processes = fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
                let is_other = entry
                    .file_name()
                    .to_str()
                    .is_some_and(|name| name.parse::<u32>().is_ok_and(|pid| pid != std::process::id()));
                let descriptors = fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten();
                is_other
                    && descriptors.into_iter().any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == path))
            });
            processes.next().map(drop)
        });
        drop(held);
        connected(&starting.join().unwrap(), "m");
    });
}
