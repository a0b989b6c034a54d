//! Logs: capped however much is written, followed across cuts, restarts of the member and of the hall.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::hall::{BINARY, Hall, House, eventually};
use crate::traces::{NEVER, assert_harmless, assert_says, connected, done, patient, pid, printed, settled};

/// A log and its predecessor; bytes.
const CAP: u64 = 10 << 20;

fn size(path: &Path) -> u64 {
    path.metadata().map_or(0, |meta| meta.len())
}

/// What a rogue writes to its log from outside: as its own output would come.
fn append(house: &House, name: &str, text: &[u8]) {
    let path = house.run_dir().join(format!("logs/{name}.log"));
    File::options().append(true).open(path).unwrap().write_all(text).unwrap();
}

/// Lines `from..to`, a hundred bytes each.
fn numbered(from: usize, to: usize) -> Vec<u8> {
    (from..to).flat_map(|n| format!("line {n:0>94}\n").into_bytes()).collect()
}

/// The numbers of the lines that [`numbered`] made, and the lines that it did not make.
fn numbers(text: &str) -> (Vec<usize>, Vec<String>) {
    let (mut numbers, mut others) = (Vec::new(), Vec::new());
    for line in text.lines() {
        match line.strip_prefix("line ").and_then(|number| number.parse().ok()) {
            Some(number) if line.len() == 99 => numbers.push(number),
            _ => others.push(line.to_owned()),
        }
    }
    (numbers, others)
}

/// `logs -f` of the binary, and what it has printed so far.
struct Followed {
    child: Child,
    out: std::path::PathBuf,
    err: std::path::PathBuf,
}

impl Followed {
    fn start(house: &House, args: &[&str]) -> Self {
        let [out, err] = ["followed.out", "followed.err"].map(|name| house.run_dir().join(name));
        let child = Command::new(BINARY)
            .args(args)
            .env("GUILD_HALL_SOCKET", house.run_dir().join("guild-hall.sock"))
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&err).unwrap())
            .spawn()
            .unwrap();
        Self { child, out, err }
    }

    fn out(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.out).unwrap()).into_owned()
    }

    fn err(&self) -> String {
        fs::read_to_string(&self.err).unwrap()
    }

    #[track_caller]
    fn until(&mut self, what: &str) -> String {
        eventually(&format!("{what:?} is printed; stderr: {}", self.err()), || {
            assert!(self.child.try_wait().unwrap().is_none(), "it ended: {}", self.err());
            let out = self.out();
            out.contains(what).then_some(out)
        })
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Follows over the API.
fn follow(hall: &Hall, name: &str, query: &str) -> BufReader<impl Read + use<>> {
    let mut stream = hall.connect();
    let request = format!("GET /v1/members/{name}/logs?{query} HTTP/1.0\r\nhost: h\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut header = String::new();
    while reader.read_line(&mut header).unwrap() > 2 {}
    assert!(header.starts_with("HTTP/1.0 200"), "{header}");
    reader
}

#[test]
fn floods_are_cut_to_their_caps_and_their_members_live_on() {
    let house = House::new();
    let names = ["one", "two", "three"];
    for name in names {
        house.rogue_with(name, &["--flood", "stdout"], json!({"startTimeoutMs": NEVER}));
    }
    let hall = house.start();
    let before = names.map(|name| connected(&hall, name));
    let log = |name: &str, end: &str| house.run_dir().join(format!("logs/{name}.{end}"));
    for name in names {
        let inode = || {
            use std::os::unix::fs::MetadataExt;
            log(name, "log.1").metadata().map_or(0, |meta| meta.ino())
        };
        let first = inode();
        eventually(&format!("{name} is cut, and cut again"), || (inode() != first).then_some(()));
        assert!(size(&log(name, "log.1")) <= CAP);
    }
    for (name, before) in names.into_iter().zip(&before) {
        assert_eq!(hall.call_text(name, "pid", json!({})), pid(before).to_string());
        assert_eq!(hall.entry(name)["restarts"], 0);
        hall.post(&format!("/v1/members/{name}/stop"), &json!({}));
    }
    for name in names {
        eventually("the log is back under its cap", || (size(&log(name, "log")) <= CAP).then_some(()));
        assert!(size(&log(name, "log.1")) <= CAP);
        let (status, text) = hall.get(&format!("/v1/members/{name}/logs?lines=2"));
        assert!(status == 200 && text.as_str().is_some_and(|text| text.contains("flood")), "{text}");
    }
    hall.stop();
}

#[test]
fn a_follower_loses_no_line_at_a_cut() {
    let house = House::new();
    house.rogue("m", &[]);
    let hall = house.start();
    connected(&hall, "m");
    let mut follower = follow(&hall, "m", "lines=0&follow=true");
    let predecessor = house.run_dir().join("logs/m.log.1");
    let read = Arc::new(AtomicUsize::new(0));
    let writing = std::thread::spawn({
        let (log, read) = (house.run_dir().join("logs/m.log"), read.clone());
        move || {
            let mut log = File::options().append(true).open(log).unwrap();
            for n in (0..250_000).step_by(500) {
                log.write_all(&numbered(n, n + 500)).unwrap();
                // Never far ahead of the follower, however slow the machine.
                eventually("it is read", || (read.load(Ordering::Relaxed) + 5_000 > n).then_some(()));
            }
        }
    });
    let mut line = String::new();
    for n in 0..250_000 {
        line.clear();
        follower.read_line(&mut line).unwrap();
        assert_eq!(numbers(&line).0, [n], "{line:?}");
        read.store(n, Ordering::Relaxed);
    }
    writing.join().unwrap();
    assert!(size(&predecessor) > 0, "it was cut meanwhile");
}

#[test]
fn a_reader_that_is_too_slow_is_told_what_it_missed() {
    let house = House::new();
    house.rogue("m", &[]);
    let hall = house.start();
    connected(&hall, "m");
    let log = house.run_dir().join("logs/m.log");
    let mut written = 0;
    // Three times what the two files hold.
    for n in 0..6 {
        append(&house, "m", &numbered(n * 110_000, (n + 1) * 110_000));
        written += 11_000_000;
        eventually("it is cut", || (size(&log) <= CAP).then_some(()));
    }
    let mut text = String::new();
    follow(&hall, "m", "from=0").read_to_string(&mut text).unwrap();
    let (read, _) = numbers(&text);
    assert!(read.windows(2).all(|pair| pair[0] + 1 == pair[1]), "without a gap");
    assert_eq!(read.last(), Some(&659_999));
    let mut stream = hall.connect();
    stream.write_all(b"GET /v1/members/m/logs?from=0 HTTP/1.0\r\nhost: h\r\n\r\n").unwrap();
    let mut head = [0; 512];
    let got = stream.read(&mut head).unwrap();
    let head = String::from_utf8_lossy(&head[..got]);
    let begin = head.lines().find_map(|line| line.strip_prefix("guild-hall-log-from: ")).unwrap();
    let begin: usize = begin.trim().parse().unwrap();
    assert!(begin > 0 && begin + text.len() >= written, "{begin} + {} < {written}", text.len());

    let out = done(&house, &["logs", "m", "-n", "3"]);
    assert_eq!(numbers(&out).0, [659_997, 659_998, 659_999]);
}

#[test]
fn a_log_is_followed_across_restarts_of_the_member_and_a_crash_of_the_hall() {
    let house = House::new();
    house.rogue("m", &["--flood-lines", "3"]);
    let mut hall = house.start();
    connected(&hall, "m");
    let mut followed = Followed::start(&house, &["logs", "m", "-n", "1", "-f"]);
    followed.until("flood line 3\n");
    append(&house, "m", b"before the restart\n");
    followed.until("before the restart\n");
    done(&house, &["restart", "m"]);
    let out = followed.until("before the restart\nflood line 1\nflood line 2\nflood line 3\n");
    assert!(out.starts_with("flood line 3\n"), "{out}");

    // Across a cut, too: positions go on where the earlier hall left them.
    for n in (0..110_000).step_by(11_000) {
        append(&house, "m", &numbered(n, n + 11_000));
        followed.until(&format!("line {:0>94}\n", n + 10_999));
    }
    eventually("it is cut", || (size(&house.run_dir().join("logs/m.log")) <= CAP).then_some(()));
    append(&house, "m", b"before the crash\n");
    followed.until("before the crash\n");
    kill_process(Pid::from_raw(hall.pid()).unwrap(), Signal::KILL).unwrap();
    hall.wait();
    append(&house, "m", b"while no hall is there\n");
    eventually("it says that the hall is gone", || followed.err().contains("the hall is gone").then_some(()));
    let hall = house.start();
    connected(&hall, "m");
    append(&house, "m", b"after the crash\n");
    let out = followed.until("after the crash\n");
    let (lines, others) = numbers(&out);
    assert_eq!((lines.len(), lines.first(), lines.last()), (110_000, Some(&0), Some(&109_999)));
    let count = |line: &str| others.iter().filter(|other| *other == line).count();
    for line in ["before the restart", "before the crash", "while no hall is there", "after the crash"] {
        assert_eq!(count(line), 1, "{line:?} in {others:?}");
    }
    assert_eq!(followed.err(), "the hall is gone; waiting for it\nthe hall is back\n");
    hall.stop();
}

#[test]
fn a_follower_starts_with_a_hall_and_a_member_that_are_there() {
    let house = House::new();
    fs::create_dir_all(house.member_dir("never")).unwrap();
    fs::write(house.member_dir("never").join("guild-member.json"), "{").unwrap();
    assert_eq!(house.cli(&["logs", "m", "-f"]).status.code(), Some(3));
    let hall = house.start();
    hall.until("never", "invalid");
    let output = house.cli(&["logs", "nobody", "-f"]);
    assert_eq!(output.status.code(), Some(4), "{}", printed(&output));
    assert_eq!(house.cli(&["logs", "never"]).status.code(), Some(4), "it has no log");
    // It can be waited for all the same.
    let mut followed = Followed::start(&house, &["logs", "never", "-f"]);
    house.rogue("never", &["--flood-lines", "2"]);
    hall.post("/v1/reload", &json!({}));
    followed.until("flood line 1\nflood line 2\n");
}

#[test]
fn a_roster_that_is_watched_comes_back_with_the_hall() {
    let house = House::new();
    house.rogue("m", &[]);
    let mut hall = house.start();
    connected(&hall, "m");
    let mut watched = Followed::start(&house, &["roster", "--watch"]);
    watched.until("1 connected");
    kill_process(Pid::from_raw(hall.pid()).unwrap(), Signal::KILL).unwrap();
    hall.wait();
    eventually("it says that the hall is gone", || watched.err().contains("the hall is gone").then_some(()));
    let drawn = watched.out().len();
    let hall = house.start();
    connected(&hall, "m");
    eventually("it is drawn anew", || watched.out()[drawn..].contains("1 connected").then_some(()));
    assert_eq!(watched.err(), "the hall is gone; waiting for it\nthe hall is back\n");
    assert!(watched.child.try_wait().unwrap().is_none());
    hall.stop();
}

#[test]
fn the_last_lines_of_a_flood_are_in_the_error() {
    let house = House::new();
    let dies = "import os,time\nend=time.monotonic()+1\nwhile time.monotonic()<end: os.write(1,b'flood\\n'*10000)\n\
                os.write(2,b'the last words\\n')\nos._exit(7)";
    let mut fields = patient();
    fields["mcp"] = json!({"command": crate::hall::python(), "args": ["-S", "-c", dies]});
    house.member("flooding", fields);
    house.rogue_with("long", &["--long-line", "100000000", "--die-by-signal", "9"], patient());
    let hall = house.start();
    let entry = settled(&hall, "flooding");
    assert_says(&entry, &["exited with code 7", "the last words"]);
    let tail: Vec<String> = serde_json::from_value(entry["stderrTail"].clone()).unwrap();
    // What came just before them may have been cut away: more is written than can be kept.
    assert!((1..=20).contains(&tail.len()) && tail.last().unwrap() == "the last words", "{tail:?}");
    let entry = settled(&hall, "long");
    let tail: Vec<String> = serde_json::from_value(entry["stderrTail"].clone()).unwrap();
    assert!(tail.len() == 1 && tail[0].starts_with("xxx") && tail[0].chars().count() <= 501, "{tail:?}");
    assert_says(&entry, &["SIGKILL"]);
    assert_ne!(entry["error"], Value::Null);
    assert_harmless(crate::traces::error(&entry));
    eventually("the long line is cut", || {
        (size(&house.run_dir().join("logs/long.log")) <= CAP).then_some(())
    });
}
