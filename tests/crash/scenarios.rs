//! The scenarios.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::sync::LazyLock;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::hall::{House, eventually, is_alive};
use crate::members::{deaf, family, moody, picky, plain, script};
use crate::proof::{
    Aftermath, Counted, Entries, Scenario, Stage, are_connected, dir, entries, is_connected, paper,
};

/// All kinds of newer kernel interfaces that the hall can do without.
const ALL: &str = "pidfs,pidfd-info,group-signal,cgroups,clone3";

const COLD_START: Scenario = Scenario {
    name: "cold start",
    members: |house| {
        plain(house, "a");
        family(house, "of/family");
        deaf(house, "deaf");
    },
    earlier: None,
    counted: Counted::FromBirth,
    act: |stage| {
        stage.until("all are connected", |entries| are_connected(entries, &["a", "of/family", "deaf"]));
    },
    touched: &[],
    check: |after| assert!(are_connected(&after.now, &["a", "of/family", "deaf"]), "{:#?}", after.now),
    without: "",
};

const CRASH: Scenario = Scenario {
    name: "crash of a member and its restart",
    members: |house| {
        plain(house, "a");
        family(house, "victim");
    },
    earlier: None,
    counted: Counted::FromTheAct,
    act: |stage| {
        stage.kill_member("victim");
        let before = stage.before["victim"]["pid"].clone();
        let is_back =
            |entries: &Entries| is_connected(entries, "victim") && entries["victim"]["pid"] != before;
        let _ = stage.until("it is back", is_back)
            && stage.until_seen("it is remembered", |house| paper(house).contains("victim"));
    },
    touched: &["victim"],
    check: |after| {
        assert!(is_connected(&after.now, "victim"));
        assert_ne!(after.now["victim"]["pid"], after.before["victim"]["pid"]);
        assert_is_remembered(after, "victim");
    },
    without: "",
};

const SHUTDOWN: Scenario = Scenario {
    name: "shutdown by SIGTERM",
    members: |house| {
        plain(house, "a");
        family(house, "family");
        deaf(house, "deaf");
    },
    earlier: None,
    counted: Counted::FromTheAct,
    act: |stage| {
        stage.hall.signal(Signal::TERM);
        stage.until_seen("the hall ends", |_| false);
    },
    touched: &["a", "family", "deaf"],
    check: |after| assert!(are_connected(&after.now, &["a", "family", "deaf"]), "{:#?}", after.now),
    without: "",
};

const ADOPTION: Scenario = Scenario {
    name: "adoption",
    members: |house| {
        for name in ["a", "dead", "changed", "gone", "draft", "torn"] {
            plain(house, name);
        }
        family(house, "family");
    },
    earlier: Some(leave_remains),
    counted: Counted::FromBirth,
    act: |stage| {
        let names = ["a", "family", "dead", "changed", "draft", "torn"];
        let before = stage.before["changed"]["pid"].clone();
        stage.until("all are connected", move |entries| {
            are_connected(entries, &names) && entries["changed"]["pid"] != before
        });
    },
    touched: &["dead", "changed", "gone", "draft", "torn"],
    check: |after| {
        let names = ["a", "family", "dead", "changed", "draft", "torn"];
        assert!(are_connected(&after.now, &names), "{:#?}", after.now);
        for name in ["a", "family"] {
            assert_eq!(after.now[name]["adopted"], true);
        }
        for name in ["dead", "changed", "draft", "torn"] {
            assert_ne!(after.now[name]["pid"], after.before[name]["pid"]);
        }
    },
    without: "",
};

/// A hall is killed, and things happen while none runs.
fn leave_remains(house: &House, command: Command) -> Entries {
    let mut hall = house.start_command(command, &[]);
    let before = eventually("all members are connected", || {
        let now = entries(&hall.get("/v1/roster").1);
        (now.len() == 7 && now.values().all(|entry| entry["phase"] == "connected")).then_some(now)
    });
    hall.signal(Signal::KILL);
    hall.child.wait().unwrap();
    let file = |name: &str| house.run_dir().join(format!(".mcp-servers/{name}.json"));
    let dead = i32::try_from(before["dead"]["pid"].as_i64().unwrap()).unwrap();
    let _ = rustix::process::kill_process(rustix::process::Pid::from_raw(dead).unwrap(), Signal::KILL);
    eventually("it is dead", || (!is_alive(dead)).then_some(()));
    script(house, "changed", "exec \"$0\" example-member --port $PORT", &json!({}));
    fs::remove_dir_all(dir(house, "gone")).unwrap();
    let mut draft: Value = serde_json::from_slice(&fs::read(file("draft")).unwrap()).unwrap();
    for fact in ["pid", "bootId", "startTicks", "handle"] {
        draft.as_object_mut().unwrap().remove(fact);
    }
    fs::write(file("draft"), draft.to_string()).unwrap();
    // Without its cgroup nothing tells whose its process is; so this one is of a launch that has failed.
    let torn = i32::try_from(before["torn"]["pid"].as_i64().unwrap()).unwrap();
    let _ = rustix::process::kill_process(rustix::process::Pid::from_raw(torn).unwrap(), Signal::KILL);
    eventually("it is dead", || (!is_alive(torn)).then_some(()));
    fs::write(file("torn"), "{\"pid\":").unwrap();
    before
}

/// What was on paper when the hall died is still counted.
#[track_caller]
fn assert_is_remembered(after: &Aftermath, name: &str) {
    if after.paper.contains(&format!("\"{name}\"")) {
        let restarts = after.now[name]["restarts"].as_u64().unwrap();
        assert!(restarts >= 1, "its restarts are forgotten: {:#}\n{}", after.now[name], after.paper);
    }
}

fn until_stopped(stage: &mut Stage) {
    let _ = stage.until("it is stopped", |entries| entries["m"]["phase"] == "stopped")
        && stage.until_seen("it is remembered", |house| is_on_paper(house, "m"));
}

#[track_caller]
fn assert_stays_stopped(after: &Aftermath) {
    assert_eq!(after.now["m"]["phase"], "stopped", "a person's stop was forgotten: {}", after.paper);
}

fn is_on_paper(house: &House, name: &str) -> bool {
    paper(house).contains(&format!("\"{name}\""))
}

#[test]
fn a_cold_start_can_be_cut_short_anywhere() {
    COLD_START.prove();
}

#[test]
fn a_crash_and_restart_can_be_cut_short_anywhere() {
    CRASH.prove();
}

#[test]
fn a_shutdown_can_be_cut_short_anywhere() {
    SHUTDOWN.prove();
}

#[test]
fn an_adoption_can_be_cut_short_anywhere() {
    ADOPTION.prove();
}

#[test]
fn on_an_old_kernel_a_cold_start_can_be_cut_short_anywhere() {
    Scenario { name: "cold start, old kernel", without: ALL, ..COLD_START }.prove();
}

#[test]
fn on_an_old_kernel_a_crash_and_restart_can_be_cut_short_anywhere() {
    Scenario { name: "crash of a member and its restart, old kernel", without: ALL, ..CRASH }.prove();
}

#[test]
fn on_an_old_kernel_a_shutdown_can_be_cut_short_anywhere() {
    Scenario { name: "shutdown by SIGTERM, old kernel", without: ALL, ..SHUTDOWN }.prove();
}

#[test]
fn on_an_old_kernel_an_adoption_can_be_cut_short_anywhere() {
    Scenario { name: "adoption, old kernel", without: ALL, ..ADOPTION }.prove();
}

#[test]
fn a_port_collision_can_be_cut_short_anywhere() {
    let scenario = Scenario {
        name: "port collision",
        members: |house| plain(house, "a"),
        earlier: None,
        counted: Counted::FromTheAct,
        act: |stage| {
            // The hall sees this one taken; two more are refused by the member.
            let taken = stage.house.first_port() + 1;
            let _holder = TcpListener::bind(("127.0.0.1", taken)).unwrap();
            picky(stage.house, "picky");
            stage.ask("/v1/reload");
            stage.until("it has found a port", |entries| is_connected(entries, "picky"));
        },
        touched: &["picky"],
        check: |after| {
            // It may have been killed before it had read of the member.
            assert!(is_connected(&after.now, "picky"), "{:#?}", after.now);
            let launches = fs::read_to_string(dir(after.house, "picky").join("launches")).unwrap();
            assert!(launches.lines().count() <= 4, "it was started too often: {launches}");
        },
        without: "",
    };
    scenario.prove();
}

#[test]
fn a_reload_can_be_cut_short_anywhere() {
    let scenario = Scenario {
        name: "reload",
        members: |house| {
            for name in ["a", "changed", "gone", "broken"] {
                plain(house, name);
            }
        },
        earlier: None,
        counted: Counted::FromTheAct,
        act: |stage| {
            let house = stage.house;
            plain(house, "new");
            family(house, "changed");
            fs::remove_dir_all(dir(house, "gone")).unwrap();
            fs::remove_file(dir(house, "broken").join("guild-member.json")).unwrap();
            stage.ask("/v1/reload");
            let before = stage.before["changed"]["pid"].clone();
            stage.until("the roster follows", move |entries| {
                are_connected(entries, &["a", "changed", "new"]) && entries["changed"]["pid"] != before
            });
        },
        touched: &["changed", "gone", "broken"],
        check: |after| {
            assert!(are_connected(&after.now, &["a", "changed", "new"]), "{:#?}", after.now);
            assert_ne!(after.now["changed"]["pid"], after.before["changed"]["pid"]);
        },
        without: "",
    };
    scenario.prove();
}

#[test]
fn a_stop_of_a_member_can_be_cut_short_anywhere() {
    let scenario = Scenario {
        name: "stop of a member",
        members: |house| {
            plain(house, "a");
            family(house, "m");
        },
        earlier: None,
        counted: Counted::FromTheAct,
        act: |stage| {
            stage.ask("/v1/members/m/stop");
            until_stopped(stage);
        },
        touched: &["m"],
        check: |after| match &after.answered {
            Some((status, entry)) => {
                assert_eq!((*status, &entry["phase"]), (200, &json!("stopped")), "{entry:#}");
                assert_stays_stopped(after);
            }
            None => assert!(["stopped", "connected"].contains(&after.now["m"]["phase"].as_str().unwrap())),
        },
        without: "",
    };
    scenario.prove();
}

#[test]
fn a_stop_that_nobody_waits_for_can_be_cut_short_anywhere() {
    let scenario = Scenario {
        name: "stop of a member, answered at once",
        members: |house| {
            plain(house, "a");
            deaf(house, "m");
        },
        earlier: None,
        counted: Counted::FromTheAct,
        act: |stage| {
            stage.ask("/v1/members/m/stop?wait=false");
            until_stopped(stage);
        },
        touched: &["m"],
        check: |after| match &after.answered {
            Some((status, entry)) => {
                assert_eq!(*status, 202, "{entry:#}");
                assert_stays_stopped(after);
            }
            None => assert!(["stopped", "connected"].contains(&after.now["m"]["phase"].as_str().unwrap())),
        },
        without: "",
    };
    scenario.prove();
}

#[test]
fn a_start_of_a_member_can_be_cut_short_anywhere() {
    let scenario = Scenario {
        name: "start of a member",
        members: |house| {
            plain(house, "a");
            plain(house, "m");
        },
        earlier: Some(|house, command| {
            let mut hall = house.start_command(command, &[]);
            eventually("all members are connected", || {
                are_connected(&entries(&hall.get("/v1/roster").1), &["a", "m"]).then_some(())
            });
            assert_eq!(hall.post("/v1/members/m/stop", &json!({})).0, 200);
            eventually("it is remembered", || is_on_paper(house, "m").then_some(()));
            let before = entries(&hall.get("/v1/roster").1);
            hall.signal(Signal::KILL);
            hall.child.wait().unwrap();
            before
        }),
        counted: Counted::FromBirth,
        act: |stage: &mut Stage| {
            if stage.until("it is up", |entries| is_connected(entries, "a")) {
                stage.ask("/v1/members/m/start");
                let _ = stage.until("it is started", |entries| is_connected(entries, "m"))
                    && stage.until_seen("its stop is forgotten", |house| !is_on_paper(house, "m"));
            }
        },
        touched: &["m"],
        check: |after| match &after.answered {
            Some((status, entry)) => {
                assert_eq!((*status, &entry["phase"]), (200, &json!("connected")), "{entry:#}");
                assert_eq!(
                    after.now["m"]["pid"], entry["pid"],
                    "a person's start was forgotten: {}",
                    after.paper
                );
            }
            None => assert!(["stopped", "connected"].contains(&after.now["m"]["phase"].as_str().unwrap())),
        },
        without: "",
    };
    scenario.prove();
}

#[test]
fn a_restart_of_a_waiting_member_can_be_cut_short_anywhere() {
    let scenario = Scenario {
        name: "restart of a waiting member",
        members: |house| {
            plain(house, "a");
            moody(house, "m");
        },
        earlier: None,
        counted: Counted::FromTheAct,
        act: |stage| {
            let crash = dir(stage.house, "m").join("crash");
            fs::write(&crash, "").unwrap();
            stage.kill_member("m");
            // The first restart is at once, and fails; the next one is due in a second.
            let waits =
                |entries: &Entries| entries["m"]["phase"] == "waiting" && !entries["m"]["retryAt"].is_null();
            let waits = stage.until("it waits", waits)
                && stage.until_seen("it is remembered", |house| paper(house).contains("waiting"));
            fs::remove_file(&crash).unwrap();
            if waits {
                stage.until("it is back", |entries| is_connected(entries, "m"));
            }
        },
        touched: &["m"],
        check: |after| {
            assert!(is_connected(&after.now, "m"), "{:#?}", after.now);
            assert_is_remembered(after, "m");
            let launches = fs::read_to_string(dir(after.house, "m").join("launches")).unwrap();
            assert!(launches.lines().count() <= 4, "it was started too often: {launches}");
        },
        without: "",
    };
    scenario.prove();
}

#[test]
fn a_cut_of_a_log_can_be_cut_short_anywhere() {
    const CAP: u64 = 10 << 20;
    let scenario = Scenario {
        name: "cut of a log",
        members: |house| plain(house, "a"),
        earlier: None,
        counted: Counted::FromTheAct,
        act: |stage| {
            append(stage.house, &vec![b'\n'; usize::try_from(CAP).unwrap() + 1]);
            stage.until_seen("it is cut", |house| log(house) <= CAP);
        },
        touched: &[],
        check: |after| {
            append(after.house, b"\n");
            eventually("it is cut", || (log(after.house) <= CAP).then_some(()));
            let logs = fs::read_dir(after.house.run_dir().join("logs")).unwrap().flatten();
            assert!(logs.count() <= 2, "a half copy of a log is left");
        },
        without: "",
    };
    scenario.prove();
}

fn append(house: &House, bytes: &[u8]) {
    let log = house.run_dir().join("logs/a.log");
    fs::File::options().append(true).open(log).unwrap().write_all(bytes).unwrap();
}

fn log(house: &House) -> u64 {
    house.run_dir().join("logs/a.log").metadata().unwrap().len()
}

/// A plugin that is a process for each call, so that nothing but its health has to be there.
fn caller(about: &str) -> String {
    let descriptor = json!({
        "plugin_id": "caller", "name": "Caller", "description": about, "type": "subprocess",
        "health_check_url": format!("http://127.0.0.1:{}/health", *WELL), "config": {"command": "cat"},
        "capabilities": [{"id": "say", "name": "Say", "description": "Says it", "parameters": []}],
    });
    descriptor.to_string()
}

/// The port of a server that says to everyone that all is well.
static WELL: LazyLock<u16> = LazyLock::new(|| {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        }
    });
    port
});

const CALLER: &str = "registered/caller";

/// What is said of the plugin on paper: nothing if it is not registered.
fn registered(house: &House) -> Option<String> {
    let text = fs::read(house.run_dir().join("registered.json")).ok()?;
    let written: Value = serde_json::from_slice(&text).expect("the file is never torn");
    written["plugins"].get(0).map(|plugin| plugin["description"].as_str().unwrap().to_owned())
}

/// An earlier hall has registered it.
fn leave_registered(house: &House, command: Command) -> Entries {
    let mut hall = house.start_command(command, &[]);
    assert_eq!(hall.http("POST", "/api/plugins/register", &caller("first")).0, 200);
    let before = eventually("both are connected", || {
        let now = entries(&hall.get("/v1/roster").1);
        are_connected(&now, &["a", CALLER]).then_some(now)
    });
    hall.signal(Signal::KILL);
    hall.child.wait().unwrap();
    before
}

/// The roster is what is on paper, and what was answered is so.
#[track_caller]
fn assert_registered(after: &Aftermath, before: Option<&str>, wanted: Option<&str>) {
    let on_paper = registered(after.house);
    let (_, roster) = after.hall.get("/v1/roster");
    let member = roster["members"].as_array().unwrap().iter().find(|entry| entry["name"] == CALLER);
    assert_eq!(member.map(|entry| entry["description"].as_str().unwrap()), on_paper.as_deref());
    match &after.answered {
        Some((status, answer)) => {
            assert_eq!(*status, 200, "{answer}");
            assert_eq!(on_paper.as_deref(), wanted, "an answer was forgotten");
        }
        None => assert!([before, wanted].contains(&on_paper.as_deref()), "{on_paper:?}"),
    }
    assert!(is_connected(&after.now, "a"), "{:#?}", after.now);
}

#[test]
#[ignore = "needs the porter"]
fn a_registration_can_be_cut_short_anywhere() {
    let scenario = Scenario {
        name: "registration",
        members: |house| plain(house, "a"),
        earlier: None,
        counted: Counted::FromTheAct,
        act: |stage| {
            stage.ask_with("/api/plugins/register", &caller("first"));
            stage.until("it is a member", |entries| are_connected(entries, &["a", CALLER]));
        },
        touched: &[CALLER],
        check: |after| assert_registered(after, None, Some("first")),
        without: "",
    };
    scenario.prove();
}

#[test]
#[ignore = "needs the porter"]
fn a_second_registration_can_be_cut_short_anywhere() {
    let scenario = Scenario {
        name: "second registration",
        members: |house| plain(house, "a"),
        earlier: Some(leave_registered),
        counted: Counted::FromTheAct,
        act: |stage| {
            let before = stage.before[CALLER]["pid"].clone();
            stage.ask_with("/api/plugins/register", &caller("second"));
            stage.until("it is another member", move |entries| {
                are_connected(entries, &["a", CALLER]) && entries[CALLER]["pid"] != before
            });
        },
        touched: &[CALLER],
        check: |after| assert_registered(after, Some("first"), Some("second")),
        without: "",
    };
    scenario.prove();
}

#[test]
#[ignore = "needs the porter"]
fn an_unregistration_can_be_cut_short_anywhere() {
    let scenario = Scenario {
        name: "unregistration",
        members: |house| plain(house, "a"),
        earlier: Some(leave_registered),
        counted: Counted::FromTheAct,
        act: |stage| {
            stage.ask_with("/api/plugins/unregister", &json!({"plugin_id": "caller"}).to_string());
            stage.until("it is gone", |entries| are_connected(entries, &["a"]));
        },
        touched: &[CALLER],
        check: |after| assert_registered(after, Some("first"), None),
        without: "",
    };
    scenario.prove();
}
