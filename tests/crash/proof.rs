//! One scenario, run as often as it has steps, each time with the hall killed at another one.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::bystander::Bystander;
use crate::hall::{BINARY, Hall, House};
use crate::invariants::{assert_all_is_well, assert_nothing_is_left, until_settled};

/// Members by name.
pub type Entries = BTreeMap<String, Value>;

/// What is brought about, and what must be true after it.
pub struct Scenario {
    pub name: &'static str,
    /// Writes the manifests.
    pub members: fn(&House),
    /// Has an earlier hall leave something behind, started with this command.
    pub earlier: Option<fn(&House, Command) -> Entries>,
    /// Whether the steps of bringing the hall up count.
    pub counted: Counted,
    /// Brings it about, and returns when it is over or the hall is dead.
    pub act: fn(&mut Stage),
    /// Members that it is about; all others must keep their processes.
    pub touched: &'static [&'static str],
    /// What must be true of this scenario besides the invariants.
    pub check: fn(&Aftermath),
    /// What newer kernels have that is taken away.
    pub without: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    FromBirth,
    FromTheAct,
}

/// The hall that is to be killed.
pub struct Stage<'a> {
    pub house: &'a House,
    pub hall: Hall,
    /// The members as they were before.
    pub before: Entries,
    /// What the hall has answered to what was asked of it.
    pub answered: Option<(u16, Value)>,
}

/// What the next hall has made of it.
pub struct Aftermath<'a> {
    pub house: &'a House,
    pub hall: &'a Hall,
    pub before: Entries,
    pub answered: Option<(u16, Value)>,
    /// `restarts.json` as the killed hall left it.
    pub paper: String,
    pub now: Entries,
}

/// Whatever is waited for comes long before.
const PATIENCE: Duration = Duration::from_secs(60);
/// Steps that follow when a scenario looks to be over come within this time.
const AFTERMATH: Duration = Duration::from_millis(100);
/// A scenario that is wrong at every step need not say so at every step.
const MOST_FAILURES: usize = 4;
/// More steps than any scenario has.
const MOST_STEPS: u64 = 2000;

impl Stage<'_> {
    pub fn is_dead(&mut self) -> bool {
        self.hall.child.try_wait().unwrap().is_some()
    }

    pub fn entries(&self) -> Option<Entries> {
        let (status, roster) = self.hall.try_http("GET", "/v1/roster", "")?;
        (status == 200).then(|| entries(&roster))
    }

    /// Waits until the roster is as wanted; false if the hall ends before.
    pub fn until(&mut self, what: &str, wanted: impl Fn(&Entries) -> bool) -> bool {
        let end = Instant::now() + PATIENCE;
        loop {
            if self.entries().is_some_and(|entries| wanted(&entries)) {
                return true;
            }
            if self.is_dead() {
                return false;
            }
            assert!(Instant::now() < end, "it never came true that {what}: {:#?}", self.entries());
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    /// Waits until something is true outside of the hall; false if the hall ends before.
    pub fn until_seen(&mut self, what: &str, mut seen: impl FnMut(&House) -> bool) -> bool {
        let house = self.house;
        let end = Instant::now() + PATIENCE;
        while !seen(house) {
            if self.is_dead() {
                return seen(house);
            }
            assert!(Instant::now() < end, "it never came true that {what}");
            std::thread::sleep(Duration::from_millis(3));
        }
        true
    }

    /// Asks something of the hall, which may die of it.
    pub fn ask(&mut self, path: &str) {
        self.ask_with(path, "");
    }

    pub fn ask_with(&mut self, path: &str, body: &str) {
        self.answered = self.hall.try_http("POST", path, body);
    }

    pub fn kill_member(&self, name: &str) {
        let pid = i32::try_from(self.before[name]["pid"].as_i64().unwrap()).unwrap();
        let _ = rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), Signal::KILL);
    }
}

/// What is remembered on paper.
pub fn paper(house: &House) -> String {
    fs::read_to_string(house.run_dir().join("restarts.json")).unwrap_or_default()
}

pub fn entries(roster: &Value) -> Entries {
    let members = roster["members"].as_array().unwrap();
    let told = |entry: &Value| {
        let mut entry = entry.clone();
        // Long, and in nobody's way.
        entry.as_object_mut().unwrap().retain(|name, _| name != "tools" && name != "description");
        (entry["name"].as_str().unwrap().to_owned(), entry)
    };
    members.iter().map(told).collect()
}

/// All of these, and no others, are connected.
pub fn are_connected(entries: &Entries, names: &[&str]) -> bool {
    entries.len() == names.len() && names.iter().all(|name| is_connected(entries, name))
}

pub fn is_connected(entries: &Entries, name: &str) -> bool {
    entries.get(name).is_some_and(|entry| entry["phase"] == "connected")
}

impl Scenario {
    /// Runs until the scenario comes to its end without the fault, and tells how many points there were.
    pub fn prove(&self) {
        let (next, points, began) = (AtomicU64::new(1), AtomicUsize::new(0), Instant::now());
        let failures: Mutex<Vec<String>> = Mutex::default();
        let lanes = std::thread::available_parallelism().map_or(2, usize::from);
        let lane = || {
            while failures.lock().unwrap().len() < MOST_FAILURES {
                let n = next.fetch_add(1, Ordering::SeqCst);
                assert!(n < MOST_STEPS, "{} has no end", self.name);
                match self.kill_at(n) {
                    Ok(true) => points.fetch_add(1, Ordering::SeqCst),
                    Ok(false) => break,
                    Err(failure) => {
                        failures.lock().unwrap().push(failure);
                        points.fetch_add(1, Ordering::SeqCst)
                    }
                };
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..lanes {
                scope.spawn(lane);
            }
        });
        let failures = failures.into_inner().unwrap();
        assert!(failures.is_empty(), "{}\n{}", self.name, failures.join("\n\n"));
        let points = points.into_inner();
        assert!(points >= 6, "{} has only {points} steps: are they counted?", self.name);
        // Past the harness, which would swallow it.
        let _ = writeln!(
            std::io::stderr(),
            "{}: {points} kill points, {:.0} s",
            self.name,
            began.elapsed().as_secs_f32()
        );
    }

    /// True if the hall was killed, false if the scenario was over before; or what was wrong.
    fn kill_at(&self, n: u64) -> Result<bool, String> {
        let house = House::new();
        (self.members)(&house);
        let bystander = Bystander::new(&house);
        catch_unwind(AssertUnwindSafe(|| self.run(n, &house, &bystander))).map_err(|panic| {
            let what = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            for process in crate::processes::processes(&house, &[bystander.pid()]) {
                let pid = rustix::process::Pid::from_raw(process.pid).unwrap();
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
            let log = fs::read_to_string(house.run_dir().with_file_name("hall.log")).unwrap_or_default();
            format!("── killed at step {n}: {}\n{log}", what.unwrap_or_default())
        })
    }

    fn run(&self, n: u64, house: &House, bystander: &Bystander) -> bool {
        let earlier = self.earlier.map(|earlier| earlier(house, self.command()));
        let armed = house.run_dir().with_file_name("armed");
        let mut command = self.command();
        command.env("GUILD_HALL_FAULT_AT", n.to_string());
        if self.counted == Counted::FromTheAct {
            command.env("GUILD_HALL_FAULT_WHILE", &armed);
        }
        let hall = house.spawn(command, &[]);
        let mut stage = Stage { house, hall, before: earlier.unwrap_or_default(), answered: None };
        if self.counted == Counted::FromTheAct {
            let all = |entries: &Entries| {
                !entries.is_empty() && entries.values().all(|entry| entry["phase"] == "connected")
            };
            assert!(stage.until("all members are connected", all), "the hall died too early");
            stage.before = stage.entries().unwrap();
            fs::write(&armed, "").unwrap();
        }
        (self.act)(&mut stage);
        // The last steps may come after what can be seen of it.
        let end = Instant::now() + AFTERMATH;
        while Instant::now() < end && !stage.is_dead() {
            std::thread::sleep(Duration::from_millis(3));
        }
        let _ = fs::remove_file(&armed);
        let Stage { mut hall, before, answered, .. } = stage;
        // What was over without the fault is killed all the same: one more point.
        let _ = hall.child.kill();
        hall.child.wait().unwrap();
        let fired = hall.log().contains("fault: the hall ends at step");
        let paper = paper(house);

        let hall = house.start_command(self.command(), &[]);
        let now = until_settled(&hall, house, bystander);
        assert_all_is_well(house, &now, bystander);
        for (name, entry) in before.iter().filter(|(name, _)| !self.touched.contains(&name.as_str())) {
            let pid = now.get(name).map(|entry| &entry["pid"]);
            assert_eq!(pid, Some(&entry["pid"]), "{name} had no part in it and was started anew");
        }
        let aftermath = Aftermath { house, hall: &hall, before, answered, paper, now };
        (self.check)(&aftermath);
        assert_nothing_is_left(house, hall, bystander);
        fired
    }

    fn command(&self) -> Command {
        let mut command = Command::new(BINARY);
        if !self.without.is_empty() {
            command.env("GUILD_HALL_FAULT_WITHOUT", self.without);
        }
        command
    }
}

/// The directory of a member, made if it is not there.
pub fn dir(house: &House, name: &str) -> PathBuf {
    house.member_dir(name)
}
