//! A minute of everything at once: members and halls are killed, handed over and reloaded at random,
//! members come and go, calls go on all the while, and every invariant holds. Longer, and from the same
//! dice: `GUILD_HALL_SOAK_SECONDS=600 GUILD_HALL_SOAK_SEED=N tests/run soak`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::assigning_clones,
    reason = "a test that cannot go on must say so"
)]

#[path = "crash/bystander.rs"]
mod bystander;
#[path = "e2e/hall.rs"]
#[allow(dead_code, reason = "it is shared with other tests")]
mod hall;
#[path = "crash/members.rs"]
mod members;
#[path = "crash/processes.rs"]
mod processes;
#[path = "crash/reaper.rs"]
mod reaper;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use bystander::Bystander;
use hall::{Hall, House, eventually, example, is_alive};
use processes::{doubles, processes};

/// Members that nobody touches but by killing their hall: they keep their process all the way.
const STEADY: usize = 4;

#[test]
fn every_invariant_holds_under_random_faults() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() & 0xffff_ffff;
    let seed = number("GUILD_HALL_SOAK_SEED").unwrap_or_else(|| u64::try_from(clock()).unwrap());
    let length = Duration::from_secs(number("GUILD_HALL_SOAK_SECONDS").unwrap_or(60));
    // Printed where the test fails, and always with --nocapture.
    println!("GUILD_HALL_SOAK_SEED={seed}, for {} s", length.as_secs());
    let house = House::new();
    let stop = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        let caller = scope.spawn(|| keep_calling(&house.run_dir().join("guild-hall.sock"), &stop));
        // The caller must end also when this fails.
        let soaked = catch_unwind(AssertUnwindSafe(|| soak(&house, seed, length)));
        stop.store(true, Ordering::Relaxed);
        let answered = caller.join();
        soaked.map(|soak| (soak, answered))
    });
    let outcome = done.and_then(|(mut soak, answered)| {
        let answered = answered?;
        assert!(answered > 0, "no call was answered all the while");
        println!("{:?}, {answered} calls answered", soak.done);
        catch_unwind(AssertUnwindSafe(|| soak.close()))
    });
    if let Err(panic) = outcome {
        eprintln!("GUILD_HALL_SOAK_SEED={seed}");
        resume_unwind(panic);
    }
}

/// How often each kind of fault was brought about.
type Done = BTreeMap<&'static str, u64>;

struct Soak<'a> {
    house: &'a House,
    hall: Option<Hall>,
    bystander: Bystander,
    dice: Dice,
    done: Done,
    /// The process of each steady member.
    steady: BTreeMap<String, Value>,
    edits: u64,
}

fn soak(house: &House, seed: u64, length: Duration) -> Soak<'_> {
    for n in 0..STEADY {
        members::plain(house, &format!("steady{n}"));
    }
    members::plain(house, "a");
    members::family(house, "family");
    members::deaf(house, "deaf");
    members::moody(house, "moody");
    members::picky(house, "picky");
    for n in 0..4 {
        members::plain(house, &format!("c/m{n}"));
    }
    let bystander = Bystander::new(house);
    let mut soak = Soak {
        house,
        hall: Some(house.start()),
        bystander,
        dice: Dice(seed),
        done: Done::new(),
        steady: BTreeMap::new(),
        edits: 0,
    };
    for n in 0..STEADY {
        let name = format!("steady{n}");
        let entry = soak.hall().until(&name, "connected");
        soak.steady.insert(name, entry["pid"].clone());
    }
    let end = Instant::now() + length;
    while Instant::now() < end {
        soak.fault();
        soak.check();
    }
    soak.come_to_rest();
    soak
}

impl Soak<'_> {
    fn hall(&self) -> &Hall {
        self.hall.as_ref().unwrap()
    }

    fn count(&mut self, what: &'static str) {
        *self.done.entry(what).or_default() += 1;
    }

    /// One thing that may happen.
    fn fault(&mut self) {
        match self.dice.below(20) {
            0..7 => self.kill_a_member(),
            7..9 => self.kill_the_hall(),
            9..11 => self.hand_over(),
            11..14 => self.wish(),
            14..16 => self.change_a_manifest(),
            16 => self.come_or_go(),
            17 => self.toggle_mood(),
            18 => {
                self.count("SIGHUP");
                self.hall().signal(Signal::HUP);
            }
            _ => std::thread::sleep(Duration::from_millis(self.dice.below(200))),
        }
    }

    fn kill_a_member(&mut self) {
        let entries = self.entries();
        let lives: Vec<&Value> =
            entries.iter().filter(|entry| !entry["pid"].is_null() && !is_steady(entry)).collect();
        let Some(entry) = lives.get(self.dice.index(lives.len())) else { return };
        let pid = i32::try_from(entry["pid"].as_i64().unwrap()).unwrap();
        // The roster may be a moment old: only what stands in the house is killed.
        if processes(self.house, &[self.bystander.pid()]).iter().any(|process| process.pid == pid) {
            let signal = [Signal::KILL, Signal::SEGV, Signal::TERM][self.dice.index(3)];
            let _ = kill_process(Pid::from_raw(pid).unwrap(), signal);
            self.count("member killed");
        }
    }

    fn kill_the_hall(&mut self) {
        self.count("hall killed");
        let mut hall = self.hall.take().unwrap();
        hall.signal(Signal::KILL);
        hall.child.wait().unwrap();
        std::thread::sleep(Duration::from_millis(self.dice.below(50)));
        self.hall = Some(self.house.start());
    }

    fn hand_over(&mut self) {
        self.count("handed over");
        self.hall().signal(Signal::USR2);
        // The next fault meets it half way, or when it is over.
        std::thread::sleep(Duration::from_millis(self.dice.below(60)));
    }

    fn wish(&mut self) {
        self.count("wish");
        let entries = self.entries();
        let others: Vec<&Value> = entries.iter().filter(|entry| !is_steady(entry)).collect();
        let Some(entry) = others.get(self.dice.index(others.len())) else { return };
        let wish = ["start", "start", "stop", "restart"][self.dice.index(4)];
        let name = entry["name"].as_str().unwrap().replace('/', "%2F");
        self.hall().post(&format!("/v1/members/{name}/{wish}?wait=false"), &json!({}));
    }

    fn change_a_manifest(&mut self) {
        self.count("manifest changed");
        self.edits += 1;
        let name = format!("c/m{}", self.dice.below(4));
        if self.dice.below(4) == 0 {
            let dir = self.house.member_dir(&name);
            fs::write(dir.join("guild-member.json"), "{ not yet").unwrap();
        } else {
            let mut fields = example();
            fields["description"] = json!(format!("Edit {}", self.edits));
            self.house.member(&name, fields);
        }
        self.reload();
    }

    fn come_or_go(&mut self) {
        self.count("member came or went");
        let name = format!("guest{}", self.dice.below(3));
        let dir: PathBuf = self.house.members().join(&name);
        if dir.exists() {
            fs::remove_dir_all(&dir).unwrap();
        } else {
            members::plain(self.house, &name);
        }
        self.reload();
    }

    fn toggle_mood(&mut self) {
        self.count("crash loop begun or ended");
        let crash = self.house.member_dir("moody").join("crash");
        if crash.exists() { fs::remove_file(crash).unwrap() } else { fs::write(crash, "").unwrap() }
    }

    fn reload(&self) {
        let (status, changes) = self.hall().post("/v1/reload", &json!({}));
        assert_eq!(status, 200, "{changes}");
    }

    fn entries(&self) -> Vec<Value> {
        let (status, roster) = self.hall().get("/v1/roster");
        assert_eq!(status, 200, "{roster}");
        roster["members"].as_array().unwrap().clone()
    }

    /// What must be true at any moment.
    fn check(&self) {
        if let Some((one, other)) = doubles(self.house, &[self.bystander.pid()]) {
            panic!("invariant 1: two launches of one member live at once: {one:?}, {other:?}");
        }
        let entries = self.entries();
        let ports: Vec<&Value> =
            entries.iter().map(|entry| &entry["port"]).filter(|port| !port.is_null()).collect();
        let distinct: BTreeSet<String> = ports.iter().map(ToString::to_string).collect();
        assert_eq!(distinct.len(), ports.len(), "invariant 2: a port is held twice: {entries:#?}");
        for entry in entries.iter().filter(|entry| entry["status"] == "connected") {
            let pid = i32::try_from(entry["pid"].as_i64().unwrap()).unwrap();
            let name = entry["name"].as_str().unwrap();
            if !is_alive(pid) {
                self.hall().until_entry(name, "is told to be dead (invariant 5)", |now| {
                    now["pid"] != entry["pid"] || now["status"] != "connected"
                });
            }
        }
        assert!(!self.bystander.was_signalled(), "invariant 4: a process that is no member was signalled");
        for (name, pid) in &self.steady {
            let pid = i32::try_from(pid.as_i64().unwrap()).unwrap();
            assert!(is_alive(pid), "invariant 6: {name} was ended by what happened to others");
        }
    }

    /// Without further faults all is well.
    fn come_to_rest(&mut self) {
        let crash = self.house.member_dir("moody").join("crash");
        let _ = fs::remove_file(crash);
        for n in 0..4 {
            self.house.member(&format!("c/m{n}"), example());
        }
        // A handover may be under way, and refuse whatever comes at its end.
        let own = eventually("the hall is itself again", || {
            let (status, _) = self.hall().post("/v1/reload", &json!({}));
            (status == 200).then(|| self.entries())
        });
        for entry in &own {
            let name = entry["name"].as_str().unwrap();
            if !is_steady(entry) {
                self.hall()
                    .post(&format!("/v1/members/{}/start?wait=false", name.replace('/', "%2F")), &json!({}));
            }
            self.hall().until(name, "connected");
        }
        for (name, pid) in &self.steady {
            assert_eq!(self.hall().entry(name)["pid"], *pid, "{name} was restarted");
        }
        self.check();
    }

    /// After a stop nothing is left.
    fn close(&mut self) {
        let hall = self.hall.take().unwrap();
        hall.stop();
        eventually("nothing is left after the stop (invariant 3)", || {
            processes(self.house, &[self.bystander.pid()]).is_empty().then_some(())
        });
        assert_eq!(fs::read_dir(self.house.run_dir().join(".mcp-servers")).unwrap().count(), 0);
        assert!(!self.bystander.was_signalled(), "invariant 4: a process that is no member was signalled");
    }
}

fn is_steady(entry: &Value) -> bool {
    entry["name"].as_str().unwrap().starts_with("steady")
}

/// Calls steady members until it is told to stop. A hall that is not there, or gone in the middle, is no
/// fault; an answer that is wrong is. Returns how many were answered.
fn keep_calling(socket: &Path, stop: &AtomicBool) -> u64 {
    let mut answered = 0;
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let member = format!("steady{}", n % STEADY);
        let body = json!({"member": member, "tool": "echo", "arguments": {"text": member}}).to_string();
        let request = format!(
            "POST /v1/call HTTP/1.1\r\nhost: hall\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut answer = String::new();
        let asked = UnixStream::connect(socket).and_then(|mut stream| {
            stream.write_all(request.as_bytes())?;
            stream.read_to_string(&mut answer)
        });
        if asked.is_ok() && !answer.is_empty() {
            assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(&member), "{answer}");
            answered += 1;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    answered
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }

    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap()
    }
}
