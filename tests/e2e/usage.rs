//! The memory and CPU of a member's whole tree, in the roster and in /metrics.

use std::cell::Cell;
use std::collections::BTreeMap;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::hall::{Hall, House, python, rogue_mcp};
use crate::traces::{NEVER, connected, done, pid};

const MIB: u64 = 1 << 20;

/// A member whose launcher starts `beside` as a child before it becomes a rogue.
fn with_child(house: &House, name: &str, beside: &str) {
    let rogue = rogue_mcp(&[]);
    let args: Vec<&str> = rogue["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
    let start = "import os,subprocess,sys\nsubprocess.Popen([sys.executable,'-S','-c',sys.argv[1]])\nos.execv(sys.executable,[sys.executable]+sys.argv[2:])";
    let mut all = vec!["-S", "-c", start, beside];
    all.extend(args);
    house.member(name, json!({"mcp": {"command": python(), "args": all}, "startTimeoutMs": NEVER}));
}

/// Ends by itself, if a test has left it.
const HOLD_50_MB: &str = "import time\nheld=b'x'*(50<<20)\ntime.sleep(600)";
const BUSY: &str = "import time\nend=time.monotonic()+300\nwhile time.monotonic()<end: pass";

fn cpu(entry: &Value) -> f64 {
    entry["cpuSeconds"].as_f64().unwrap_or_else(|| panic!("no cpuSeconds in {entry:#}"))
}

fn has_cgroups(hall: &Hall) -> bool {
    !hall.log().contains("no cgroups can be made here")
}

#[test]
fn memory_is_that_of_the_whole_tree() {
    let house = House::new();
    with_child(&house, "child", HOLD_50_MB);
    let detached = format!("import os\nif os.fork(): os._exit(0)\nos.setsid()\n{HOLD_50_MB}");
    with_child(&house, "detached", &detached);
    house.rogue("plain", &[]);
    house.rogue("stopped", &[]);
    let hall = house.start();
    let mut names = vec!["child"];
    if has_cgroups(&hall) {
        names.push("detached");
    }
    for name in names {
        connected(&hall, name);
        hall.until_entry(name, "is as large as its child", |entry| {
            entry["memoryBytes"].as_u64().is_some_and(|bytes| bytes >= 50 * MIB)
        });
    }
    let plain = hall.until_entry("plain", "is measured", |entry| entry["memoryBytes"].is_u64());
    assert!((MIB..50 * MIB).contains(&plain["memoryBytes"].as_u64().unwrap()), "{plain:#}");
    connected(&hall, "stopped");
    let (_, stopped) = hall.post("/v1/members/stopped/stop", &json!({}));
    assert_eq!((&stopped["memoryBytes"], &stopped["cpuSeconds"]), (&Value::Null, &Value::Null));
    let entry = hall.entry("stopped");
    assert_eq!((&entry["memoryBytes"], &entry["cpuSeconds"]), (&Value::Null, &Value::Null));

    let table = done(&house, &["roster"]);
    assert!(table.contains("MEMORY") && table.contains(" MB"), "{table}");
    let details = done(&house, &["roster", "child"]);
    assert!(details.contains("memory") && details.contains(" MB") && details.contains("cpu"), "{details}");
}

#[test]
fn cpu_time_grows_with_a_busy_child_and_never_falls() {
    let house = House::new();
    with_child(&house, "busy", BUSY);
    // Its children come and go: what they used stays counted.
    let spawning = "import subprocess,sys,time\nend=time.monotonic()+300\nwhile time.monotonic()<end: subprocess.run([sys.executable,'-S','-c','sum(range(300000))'])";
    with_child(&house, "spawning", spawning);
    let hall = house.start();
    for name in ["busy", "spawning"] {
        connected(&hall, name);
        let first = hall.until_entry(name, "is measured", |entry| entry["cpuSeconds"].is_f64());
        let last = Cell::new(cpu(&first));
        hall.until_entry(name, "has used 0.3 s more", |entry| {
            assert_eq!(entry["instance"], first["instance"]);
            let now = cpu(entry);
            assert!(now >= last.replace(now), "{now} is less than before");
            now > cpu(&first) + 0.3
        });
    }
    // A new launch begins anew.
    let before = hall.entry("busy");
    kill_process(Pid::from_raw(pid(&before)).unwrap(), Signal::KILL).unwrap();
    hall.until_entry("busy", "is measured anew", |entry| {
        entry["instance"] != before["instance"]
            && entry["cpuSeconds"].as_f64().is_some_and(|now| now < cpu(&before))
    });
}

/// Samples by name and labels, in the text that Prometheus reads; panics on what it would refuse.
fn parse(text: &str) -> BTreeMap<(String, BTreeMap<String, String>), f64> {
    let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
    let mut samples = BTreeMap::new();
    assert!(text.ends_with("# EOF\n"), "it ends as it should: {text}");
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let words: Vec<&str> = comment.splitn(3, ' ').collect();
            match words[..] {
                ["HELP", _, help] => assert!(!help.is_empty()),
                ["TYPE", name, kind] => assert_eq!(kinds.insert(name, kind), None, "{name} twice"),
                ["EOF"] => {}
                _ => panic!("{line:?} is no comment"),
            }
            continue;
        }
        let name: String = line.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let family = name.strip_suffix("_total").filter(|family| kinds.get(family) == Some(&"counter"));
        assert!(kinds.contains_key(family.unwrap_or(&name)), "{name} has no TYPE");
        let mut rest = line[name.len()..].chars().peekable();
        let mut labels = BTreeMap::new();
        if rest.next_if_eq(&'{').is_some() {
            while rest.next_if_eq(&'}').is_none() {
                rest.next_if_eq(&',');
                let label: String = std::iter::from_fn(|| rest.next_if(|&c| c != '=')).collect();
                assert_eq!((rest.next(), rest.next()), (Some('='), Some('"')), "{line}");
                let mut value = String::new();
                loop {
                    match rest.next().unwrap_or_else(|| panic!("no end of a label in {line:?}")) {
                        '"' => break,
                        '\\' => value.push(match rest.next() {
                            Some('n') => '\n',
                            Some(c @ ('"' | '\\')) => c,
                            other => panic!("{other:?} escaped in {line:?}"),
                        }),
                        c => value.push(c),
                    }
                }
                labels.insert(label, value);
            }
        }
        let value =
            rest.collect::<String>().trim().parse().unwrap_or_else(|_| panic!("no number in {line:?}"));
        assert_eq!(samples.insert((name, labels), value), None, "{line:?} twice");
    }
    samples
}

#[test]
fn metrics_can_be_parsed_and_have_what_the_roster_has() {
    let house = House::new();
    let odd = r#"we"ird\name"#;
    house.rogue("box/plain", &[]);
    house.rogue(odd, &[]);
    house.rogue_with("crashing", &["--crash-at-start"], json!({"restart": "never"}));
    let hall = house.start();
    connected(&hall, "box/plain");
    let entry = |name: &str| {
        let (_, roster) = hall.get("/v1/roster");
        roster["members"].as_array().unwrap().iter().find(|entry| entry["name"] == name).unwrap().clone()
    };
    crate::hall::eventually("the odd one is connected", || {
        (entry(odd)["phase"] == "connected").then_some(())
    });
    hall.until("crashing", "failed");
    hall.until_entry("box/plain", "is measured", |entry| entry["memoryBytes"].is_u64());
    let (status, text) = hall.get("/metrics");
    assert_eq!(status, 200);
    let samples = parse(text.as_str().unwrap());
    let value = |name: &str, labels: &[(&str, &str)]| {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        samples.get(&(name.to_owned(), labels)).copied()
    };
    assert_eq!(value("guild_hall_info", &[("version", env!("CARGO_PKG_VERSION"))]), Some(1.0));
    assert_eq!(value("guild_hall_members", &[("status", "connected")]), Some(2.0));
    assert_eq!(value("guild_hall_members", &[("status", "error")]), Some(1.0));
    for (name, up, phase) in
        [("box/plain", 1.0, "connected"), (odd, 1.0, "connected"), ("crashing", 0.0, "failed")]
    {
        assert_eq!(value("guild_hall_member_up", &[("member", name)]), Some(up), "{text}");
        assert_eq!(value("guild_hall_member_phase", &[("member", name), ("phase", phase)]), Some(1.0));
        assert_eq!(value("guild_hall_member_restarts_total", &[("member", name)]), Some(0.0));
    }
    assert!(value("guild_hall_member_memory_bytes", &[("member", "box/plain")]).unwrap() > 1e6);
    assert!(value("guild_hall_member_cpu_seconds_total", &[("member", "box/plain")]).is_some());
    assert_eq!(value("guild_hall_member_memory_bytes", &[("member", "crashing")]), None);
    assert!(value("guild_hall_roster_generation", &[]).unwrap() > 0.0);
    assert!(value("process_resident_memory_bytes", &[]).unwrap() > 1e6);
    assert!(value("process_cpu_seconds_total", &[]).unwrap() >= 0.0);
    assert!(value("process_start_time_seconds", &[]).unwrap() > 1.6e9);
}
