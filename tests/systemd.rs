//! The units in `systemd/`, under a systemd that was booted for the test. Left out, with a line that tells why,
//! where none can be booted.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must say so")]

#[path = "systemd/machine.rs"]
mod machine;

use std::fs;
use std::os::unix::fs::MetadataExt;

use serde_json::{Value, json};

use machine::{Machine, Tree, left_out};

/// Settings that a member inherits from nobody.
const OF_THE_HALL_ALONE: [&str; 4] = ["NOTIFY_SOCKET", "WATCHDOG_", "LISTEN_", "GUILD_HALL_RUN_DIR"];
/// A time that never comes in a test; milliseconds.
const NEVER: u64 = 600_000;

fn plain() -> Value {
    json!({})
}

/// A process that hears no SIGTERM, with children in its group, in a session of their own, and with an environment
/// that tells nothing.
fn family(tree: &Tree, stop_timeout: u64) {
    let knobs = ["--deaf", "--fork", "2", "--setsid-fork", "--setsid-clean-env"];
    tree.rogue("family", &knobs, json!({"stopTimeoutMs": stop_timeout}));
}

#[test]
fn the_units_are_sound_and_leave_little_exposed() {
    let Some(machine) = Machine::boot(|_| ()) else { return };
    let etc = "/etc/systemd/system/";
    let verify = |args: &[&str]| {
        let output = machine.command(&[&["systemd-analyze", "verify"], args].concat()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.trim().is_empty(), "{args:?}: {said}");
    };
    verify(&[&format!("{etc}guild-hall.service"), &format!("{etc}guild-hall.socket")]);
    let threshold = ["systemd-analyze", "security", "--offline=yes", "--threshold=30"];
    let said = machine.run(&[&threshold[..], &[&format!("{etc}guild-hall.service")]].concat());
    assert!(said.contains("Overall exposure level"), "{said}");

    let ports = machine.path("/proc/sys/net/ipv4/ip_local_reserved_ports");
    machine.run(&["/usr/lib/systemd/systemd-sysctl", "90-guild-hall-ports.conf"]);
    assert_eq!(
        machine.run(&["cat", "/proc/sys/net/ipv4/ip_local_reserved_ports"]),
        "50000-51000",
        "{ports:?}"
    );
}

#[test]
fn a_hall_is_ready_tells_its_status_and_reloads() {
    let started = Machine::with_hall(|tree| {
        tree.rogue("one", &[], plain());
        tree.rogue("mute", &["--mute"], json!({"startTimeoutMs": NEVER}));
    });
    let Some(machine) = started else { return };
    assert_eq!(machine.show("ActiveState"), "active", "a mute member keeps no hall from being ready");
    let one = machine.connected("one");
    let status = |wanted: &str| {
        machine.eventually(wanted, || (machine.show("StatusText") == wanted).then_some(()));
    };
    status("2 members: 1 connected, 1 disconnected");
    let shown = machine.run(&["systemctl", "status", "guild-hall"]);
    assert!(shown.contains("Status: \"2 members"), "{shown}");
    let inherited = machine.proc(&one, "environ").unwrap();
    assert!(!OF_THE_HALL_ALONE.iter().any(|name| inherited.contains(name)), "{inherited}");
    assert!(!inherited.contains("RUNTIME_DIRECTORY"), "--clean-env: {inherited}");

    let hall = machine.hall_pid();
    let members = "/var/lib/guild-hall/guild-members";
    machine.run(&["cp", "-a", &format!("{members}/one"), &format!("{members}/two")]);
    machine.run(&["systemctl", "reload", "guild-hall"]);
    machine.connected("two");
    status("3 members: 2 connected, 1 disconnected");
    assert_eq!((machine.hall_pid(), machine.connected("one")), (hall, one), "a reload touches nothing else");
    machine.eventually("the reload is over", || (machine.show("SubState") == "running").then_some(()));
}

#[test]
fn a_hall_that_is_killed_is_started_again() {
    let Some(machine) = Machine::with_hall(|tree| family(tree, 100)) else { return };
    machine.connected("family");
    let hall = machine.hall_pid();
    machine.signal("KILL");
    machine.eventually("another hall runs", || {
        let now = machine.hall_pid();
        (now != hall && now != "0").then_some(())
    });
    assert_eq!(machine.show("NRestarts"), "1");
    machine.connected("family");
    machine.eventually("nobody looks after the members any more but the hall", || {
        (!machine.processes().iter().any(|process| process.contains("end-leftovers"))).then_some(())
    });
    machine.run(&["systemctl", "stop", "guild-hall"]);
    machine.assert_nothing_is_left();
}

#[test]
fn members_keep_their_processes_when_the_hall_is_killed() {
    let started = Machine::with_hall(|tree| {
        tree.rogue("one", &[], plain());
        family(tree, 100);
    });
    let Some(machine) = started else { return };
    let members = || ["one", "family"].map(|name| machine.connected(name));
    let before = members();
    for signal in ["KILL", "ABRT"] {
        let hall = machine.hall_pid();
        machine.signal(signal);
        machine.eventually("another hall runs", || {
            let now = machine.hall_pid();
            (now != hall && now != "0" && machine.show("SubState") == "running").then_some(())
        });
        assert_eq!(members(), before, "{}", machine.journal());
        write_in_tmp_of(&machine, &before[0]);
    }
    machine.run(&["systemctl", "stop", "guild-hall"]);
    machine.assert_nothing_is_left();
}

/// What a member sees as /tmp must stay there when its hall crashes.
fn write_in_tmp_of(machine: &Machine, pid: &str) {
    let file = machine.path(&format!("/proc/{pid}/root/tmp/file"));
    fs::write(&file, "still there").unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}

#[test]
fn members_outlive_a_hall_that_crashed_but_not_for_long() {
    let started = Machine::with_hall(|tree| {
        family(tree, 100);
        let after = "/usr/local/bin/guild-hall end-leftovers --grace 8";
        tree.drop_in(&format!("RestartSec=1h\nExecStopPost=\nExecStopPost={after}"));
    });
    let Some(machine) = started else { return };
    let member = machine.connected("family");
    let family = machine.processes().len() - 1;
    machine.signal("KILL");
    machine.eventually("the next hall is due", || (machine.show("SubState") == "auto-restart").then_some(()));
    assert!(machine.is_alive(&member), "{}", machine.journal());
    let left = machine.processes().into_iter().filter(|process| !process.contains("end-leftovers"));
    assert_eq!(left.count(), family, "no process of a member may end with the hall");
    write_in_tmp_of(&machine, &member);
    // systemd calls nobody when a unit is stopped that waits for its next start.
    machine.run(&["systemctl", "stop", "guild-hall"]);
    machine.eventually("nothing is left", || machine.processes().is_empty().then_some(()));
    machine.assert_nothing_is_left();
}

#[test]
fn an_upgrade_keeps_the_processes_of_the_hall_and_its_members() {
    let started = Machine::with_hall(|tree| {
        tree.rogue("one", &[], plain());
        family(tree, 100);
    });
    let Some(machine) = started else { return };
    let processes = || [machine.hall_pid(), machine.connected("one"), machine.connected("family")];
    let before = processes();
    let program = || fs::metadata(machine.path(&format!("/proc/{}/exe", before[0]))).unwrap().ino();
    let old = program();
    machine.run(&["cp", "/usr/local/bin/guild-hall", "/usr/local/bin/guild-hall.new"]);
    machine.run(&["mv", "/usr/local/bin/guild-hall.new", "/usr/local/bin/guild-hall"]);
    machine.signal("USR2");
    machine.eventually("the new program runs", || (program() != old).then_some(()));
    machine.eventually("it is ready", || (machine.show("SubState") == "running").then_some(()));
    assert_eq!(processes(), before, "{}", machine.journal());
    assert_eq!(machine.show("NRestarts"), "0");
    machine.run(&["systemctl", "stop", "guild-hall"]);
    machine.assert_nothing_is_left();
}

#[test]
fn a_hall_that_hangs_is_found_by_the_watchdog() {
    let started = Machine::with_hall(|tree| {
        tree.rogue("one", &[], plain());
        tree.drop_in("WatchdogSec=2");
    });
    let Some(machine) = started else { return };
    machine.connected("one");
    let hall = machine.hall_pid();
    machine.signal("STOP");
    machine.eventually("another hall runs", || {
        let now = machine.hall_pid();
        (now != hall && now != "0").then_some(())
    });
    assert!(machine.journal().contains("Watchdog timeout"), "{}", machine.journal());
    machine.connected("one");
    assert!(!machine.is_alive(&hall));
}

#[test]
fn a_stop_leaves_nothing() {
    let Some(machine) = Machine::with_hall(|tree| family(tree, 200)) else { return };
    for signal in [None, Some("STOP")] {
        machine.run(&["systemctl", "start", "guild-hall"]);
        machine.connected("family");
        assert!(machine.processes().len() >= 6, "{:?}", machine.processes());
        if let Some(signal) = signal {
            machine.signal(signal);
        }
        machine.run(&["systemctl", "stop", "guild-hall"]);
        machine.assert_nothing_is_left();
        assert_eq!(machine.show("Result"), "success", "{}", machine.journal());
    }
}

/// A stop that is under way, with a hall that waits for its member.
fn stopping() -> Option<Machine> {
    let machine = Machine::with_hall(|tree| {
        family(tree, 60_000);
        tree.drop_in("TimeoutStopSec=2");
    })?;
    machine.connected("family");
    machine.run(&["systemctl", "stop", "--no-block", "guild-hall"]);
    machine.eventually("the hall stops", || machine.show("StatusText").starts_with("stopping").then_some(()));
    Some(machine)
}

fn assert_stops(machine: &Machine, result: &str) {
    machine.eventually("it is stopped", || (machine.show("SubState") == "failed").then_some(()));
    assert_eq!(machine.show("Result"), result, "{}", machine.journal());
    machine.assert_nothing_is_left();
    assert_eq!(machine.show("NRestarts"), "0");
}

#[test]
fn a_stop_leaves_nothing_of_a_hall_that_hangs_in_it() {
    let Some(machine) = stopping() else { return };
    machine.signal("STOP");
    assert_stops(&machine, "timeout");
}

#[test]
fn a_stop_leaves_nothing_of_a_hall_that_is_killed_in_it() {
    let Some(machine) = stopping() else { return };
    machine.signal("KILL");
    assert_stops(&machine, "signal");
}

#[test]
fn a_node_member_runs_hardened() {
    let started = Machine::with_hall(|tree| {
        tree.member(
            "node",
            &["node", "/opt/members/member.mjs", "${PORT}"],
            json!({"startTimeoutMs": NEVER}),
        );
    });
    let Some(machine) = started else { return };
    if !machine.command(&["setpriv", "--reuid=65534", "node", "--version"]).output().unwrap().status.success()
    {
        return left_out("no node that everybody can run is in the search path of services").unwrap_or(());
    }
    machine.connected("node");
    let call = |tool: &str, arguments: Value| {
        machine.run(&["guild-hall", "call", "node", tool, &arguments.to_string()])
    };
    assert_eq!(call("hot", json!({"n": 10_000_000})), "907196");
    let write = |path: &str| call("write", json!({"path": path}));
    for path in ["/tmp/x", "/var/tmp/x", "/var/lib/guild-hall/x", "/var/cache/guild-hall/x", "/dev/shm/x"] {
        assert_eq!(write(path), "ok", "{path}");
    }
    for path in ["/etc/x", "/usr/local/bin/x", "/proc/sys/kernel/hostname"] {
        assert_eq!(write(path), "EROFS", "{path}");
    }
    assert_eq!(write("/root/x"), "EACCES");
    assert!(!machine.path("/tmp/x").exists(), "/tmp is the members' own");
}

#[test]
fn the_socket_unit_passes_the_port_of_the_gateway() {
    let booted = Machine::boot(|tree| tree.rogue("one", &[], plain()));
    let Some(machine) = booted else { return };
    machine.run(&["systemctl", "start", "guild-hall.socket"]);
    machine.run(&["systemctl", "start", "guild-hall.service"]);
    let (hall, member) = (machine.hall_pid(), machine.connected("one"));
    // 127.0.0.1:4180, listening; the tenth field is the inode.
    let sockets = machine.proc(&hall, "net/tcp").unwrap();
    let line = sockets.lines().find(|line| line.contains(" 0100007F:1054 00000000:0000 0A ")).unwrap();
    let socket = format!("socket:[{}]", line.split_whitespace().nth(9).unwrap());
    let descriptors = |pid: &str| {
        let links = fs::read_dir(machine.path(&format!("/proc/{pid}/fd"))).unwrap().flatten();
        let held = links.filter(|link| fs::read_link(link.path()).is_ok_and(|to| to.as_os_str() == &*socket));
        held.map(|link| link.file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    // One for each thread that takes connections from it.
    let held = descriptors(&hall);
    assert!(!held.is_empty(), "{}", machine.journal());
    for descriptor in held {
        let info = machine.proc(&hall, &format!("fdinfo/{descriptor}")).unwrap();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim().to_owned();
        assert_ne!(u32::from_str_radix(&flags, 8).unwrap() & 0o2_000_000, 0, "close-on-exec: {flags}");
    }
    assert!(descriptors(&member).is_empty());
    let inherited = machine.proc(&member, "environ").unwrap();
    assert!(!OF_THE_HALL_ALONE.iter().any(|name| inherited.contains(name)), "{inherited}");
    assert!(machine.journal().contains("127.0.0.1:4180"), "{}", machine.journal());
}

#[test]
fn a_user_has_a_hall_of_its_own() {
    let booted = Machine::boot(|tree| {
        let rogue =
            ["/usr/bin/python3", "-S", "/opt/members/rogue.py", "--port", "${PORT}", "--setsid-clean-env"];
        tree.member_in("var/lib/guild-hall/guild-members", "one", &rogue, plain());
        // The manager of a user, without the login that usually starts it.
        tree.write(
            "etc/systemd/system/manager.service",
            "[Service]\nType=notify\nUser=guild-hall\nDelegate=yes\nKillMode=mixed\nStateDirectory=guild-hall\n\
             RuntimeDirectory=manager\nRuntimeDirectoryMode=0700\nEnvironment=HOME=/var/lib/guild-hall\n\
             Environment=XDG_RUNTIME_DIR=/run/manager\nExecStart=/lib/systemd/systemd --user\n",
        );
    });
    let Some(machine) = booted else { return };
    machine.run(&["systemctl", "start", "manager"]);
    let environment = [
        "HOME=/var/lib/guild-hall",
        "XDG_RUNTIME_DIR=/run/manager",
        "GUILD_HALL_RUN_DIR=/run/manager/guild-hall",
    ];
    let user = |args: &[&str]| {
        let switch = ["setpriv", "--reuid=guild-hall", "--regid=guild-hall", "--clear-groups", "env"];
        machine.run(&[&switch[..], &environment, args].concat())
    };
    user(&["systemd-analyze", "--user", "verify", "/etc/systemd/user/guild-hall.service"]);
    user(&["systemctl", "--user", "start", "guild-hall"]);
    let connected = || {
        machine.eventually("the user's member is connected", || {
            let entry: Value =
                serde_json::from_str(&user(&["guild-hall", "roster", "one", "--json"])).ok()?;
            (entry["phase"] == "connected").then(|| entry["pid"].to_string())
        })
    };
    let member = connected();
    let pid_file = fs::read_to_string(machine.path("/run/manager/guild-hall/.mcp-servers/one.json")).unwrap();
    assert!(pid_file.contains("\"cgroup\""), "each member has a cgroup here too: {pid_file}");
    user(&["systemctl", "--user", "stop", "guild-hall"]);
    assert!(!machine.is_alive(&member));
    let left: Vec<_> = machine
        .processes()
        .into_iter()
        .filter(|process| process.contains("rogue") || process.contains("sleep"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
