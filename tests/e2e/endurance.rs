//! Faults that come again and again, under load: nothing may be lost that was not on its way, and
//! nothing may pile up.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::hall::{Hall, House, eventually, example, is_alive};
use crate::traces::{connected, pid};

/// A client that calls every 5 ms, and dials again when the hall is gone.
struct Caller<'a> {
    house: &'a House,
    connection: Option<BufReader<UnixStream>>,
}

/// What became of one call.
#[derive(Debug, PartialEq)]
enum Fate {
    Answered(Value),
    /// Sent, and no answer came.
    Lost,
}

impl Caller<'_> {
    fn call(&mut self, member: &str) -> Fate {
        let body = json!({"member": member, "tool": "echo", "arguments": {"text": member}}).to_string();
        let request = format!(
            "POST /v1/call HTTP/1.1\r\nhost: hall\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        // What cannot be sent was not lost: it is sent to the next hall.
        let mut connection = eventually("a hall takes the call", || {
            let mut connection = match self.connection.take() {
                Some(connection) => connection,
                None => {
                    BufReader::new(UnixStream::connect(self.house.run_dir().join("guild-hall.sock")).ok()?)
                }
            };
            connection.get_mut().write_all(request.as_bytes()).ok()?;
            Some(connection)
        });
        match answer(&mut connection) {
            Some(answer) => {
                self.connection = Some(connection);
                Fate::Answered(answer)
            }
            None => Fate::Lost,
        }
    }
}

fn answer(connection: &mut BufReader<UnixStream>) -> Option<Value> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        connection.read_line(&mut line).ok().filter(|&read| read > 0)?;
        match line.trim().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().unwrap();
            }
            None if line.trim().is_empty() => break,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body).ok()?;
    serde_json::from_slice(&body).ok()
}

#[test]
fn twenty_kills_of_the_hall_under_load_lose_only_calls_in_flight() {
    let house = House::new();
    let names: Vec<String> = (0..20).map(|n| format!("m{n}")).collect();
    for name in &names {
        house.member(name, example());
    }
    let mut hall = house.start();
    let before: Vec<Value> = names.iter().map(|name| connected(&hall, name)).collect();
    let (done, answered) = (AtomicBool::new(false), AtomicU32::new(0));
    // From when on a hall was being killed, and when it was gone.
    let mut kills: Vec<(Instant, Instant)> = Vec::new();
    let lost = std::thread::scope(|scope| {
        let caller = scope.spawn(|| {
            let mut caller = Caller { house: &house, connection: None };
            let (mut lost, begun) = (Vec::new(), Instant::now());
            for calls in 1.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let name = &names[calls as usize % names.len()];
                let sent = Instant::now();
                match caller.call(name) {
                    Fate::Lost => lost.push((sent, Instant::now())),
                    Fate::Answered(answer) => {
                        assert_eq!(answer["result"]["content"][0]["text"], json!(name), "{answer}");
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                }
                let due = begun + Duration::from_millis(5) * calls;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            lost
        });
        for round in 0..20 {
            let enough = answered.load(Ordering::Relaxed) + 10;
            eventually("calls are answered", || (answered.load(Ordering::Relaxed) >= enough).then_some(()));
            let kill = Instant::now();
            hall.signal(Signal::KILL);
            hall.child.wait().unwrap();
            kills.push((kill, Instant::now()));
            hall = house.start();
            let (name, before) = (&names[round], &before[round]);
            let now = connected(&hall, name);
            assert_eq!((&now["pid"], &now["adopted"]), (&before["pid"], &json!(true)));
        }
        done.store(true, Ordering::Relaxed);
        caller.join().unwrap()
    });
    for (sent, lost) in lost {
        let in_flight = kills.iter().any(|(kill, gone)| sent <= *gone && lost >= *kill);
        assert!(in_flight, "a call was lost that no kill had met");
    }
    for (name, before) in names.iter().zip(&before) {
        assert_eq!(connected(&hall, name)["pid"], before["pid"]);
        assert!(is_alive(pid(before)));
    }
}

/// What a hall holds: descriptors, children (zombies included), and kilobytes.
fn holds(hall: &Hall) -> (usize, usize, u64) {
    let dir = format!("/proc/{}", hall.pid());
    let descriptors = fs::read_dir(format!("{dir}/fd")).unwrap().count();
    let children = fs::read_dir(format!("{dir}/task")).unwrap().flatten();
    let children = children
        .map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default())
        .map(|children| children.split_whitespace().count())
        .sum();
    let status = fs::read_to_string(format!("{dir}/status")).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    (descriptors, children, resident.trim().trim_end_matches(" kB").parse().unwrap())
}

#[test]
fn a_member_that_is_killed_a_thousand_times_leaves_nothing_behind() {
    let house = House::new();
    let dir = house.member("m", example());
    let hall = house.start();
    let mut last = connected(&hall, "m");
    let mut kill = || {
        let victim = pid(&last);
        kill_process(Pid::from_raw(victim).unwrap(), Signal::KILL).unwrap();
        last = hall.until_entry("m", "came back", |entry| {
            entry["phase"] == "connected" && entry["pid"] != json!(victim)
        });
        // A start that a person asks for also renews the budget of restarts.
        if last["restarts"] == json!(1) {
            let (status, entry) = hall.post("/v1/members/m/restart", &json!({}));
            assert_eq!((status, &entry["phase"]), (200, &json!("connected")), "{entry}");
            last = entry;
        }
    };
    // The first hundred fill what is filled once: pools, caches, the threads' stacks.
    (0..100).for_each(|_| kill());
    let before = holds(&hall);
    (0..900).for_each(|_| kill());
    let at_rest = |before: &(usize, usize, u64)| {
        let now = holds(&hall);
        (now.0 <= before.0 + 2 && now.1 == 1 && now.2 <= before.2 + 4096).then_some(())
    };
    eventually(&format!("the hall holds no more than {before:?}, and one child"), || at_rest(&before));
    let port = &last["port"];
    let listening = fs::read_to_string("/proc/net/tcp").unwrap();
    let of_house = listening.lines().filter(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let address =
            fields.next().and_then(|address| u16::from_str_radix(address.split_once(':')?.1, 16).ok());
        let is_listening = fields.nth(1) == Some("0A");
        is_listening
            && address.is_some_and(|port| (house.first_port()..house.first_port() + 60).contains(&port))
    });
    assert_eq!(of_house.count(), 1, "only {port} is to be listened on");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let of_member =
        processes.filter(|entry| fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == dir));
    assert_eq!(of_member.count(), 1);
    assert_eq!(fs::read_dir(house.run_dir().join(".mcp-servers")).unwrap().count(), 1);
}
