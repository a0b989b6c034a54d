//! A thousand members, millions of random faults: the core alone, in a world that lies, dies,
//! answers late, turns its clock, kills the hall and hands it over. The six invariants of ARCHITECTURE.md are asserted after every
//! step, for every member that the step touched; a failure names the seed that replays it:
//! `GUILD_HALL_SIMULATION_SEED=N cargo test --profile checked --test simulation`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::struct_excessive_bools,
    reason = "a test that cannot go on must say so"
)]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use guild_hall::lifecycle::{Action, Guild, Memory, Order, Report, Settings, Survivor, Transition, Wish};
use guild_hall::model::porter::{Behind, Plugin, Porter};
use guild_hall::model::{
    Diagnosis, Dialect, Digest, Entry, Exit, Failure, Found, Handshake, Instance, Manifest, MemberKey,
    Moment, PhaseName, Pid, Port, PortRange, Rejection, RestartPolicy, Status, Timestamp, Transport,
};

const MEMBERS: usize = 1_200;
/// Fewer than members, so that the pool runs dry.
const PORTS: &str = "50000-51000";
const STEPS: u64 = 650_000;
const AT_ONCE: usize = 64;

#[test]
fn invariants_hold_through_random_faults_first_half() {
    simulate_seeds(0..4);
}

#[test]
fn invariants_hold_through_random_faults_second_half() {
    simulate_seeds(4..8);
}

fn simulate_seeds(seeds: std::ops::Range<u64>) {
    let seeds: Vec<u64> = match std::env::var("GUILD_HALL_SIMULATION_SEED") {
        Ok(seed) => vec![seed.parse().expect("GUILD_HALL_SIMULATION_SEED is a number")],
        Err(_) => seeds.collect(),
    };
    for seed in seeds {
        let mut world = World::new(seed);
        let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
        if let Err(panic) = outcome {
            eprintln!(
                "step {} of seed {seed}; replay it with GUILD_HALL_SIMULATION_SEED={seed}",
                world.steps
            );
            resume_unwind(panic);
        }
    }
}

/// What the world has prepared to tell the core.
#[derive(Debug, Clone)]
enum Tiding {
    Report(Report),
    /// The process dies now; the core hears of it a little later.
    Death(Exit),
}

struct Process {
    key: MemberKey,
    port: Port,
    alive: bool,
    /// The core was told of its death: it must not be signalled any more.
    reported: bool,
    /// Its handshake was told: without it the member cannot be connected.
    greeted: bool,
    deaf: bool,
    manifest: Arc<Manifest>,
    launched: Moment,
    ending: Option<Moment>,
}

struct World {
    guild: Guild,
    chance: Chance,
    now: Moment,
    steps: u64,
    serial: u64,
    tidings: BinaryHeap<Reverse<(Moment, u64)>>,
    contents: HashMap<u64, (MemberKey, Instance, Tiding)>,
    processes: HashMap<Instance, Process>,
    living: BTreeMap<MemberKey, Instance>,
    ports_in_use: HashMap<Port, Instance>,
    /// Ports that strangers hold.
    stolen: BTreeSet<Port>,
    range: PortRange,
    found: Found,
    held: BTreeMap<MemberKey, Port>,
    /// Which changes of phase have occurred.
    seen: BTreeSet<(PhaseName, PhaseName)>,
    /// Members that somebody asked to stop, and nothing else since.
    resting: BTreeSet<MemberKey>,
    /// No fault happens any more: what is well must stay so.
    calm: bool,
    /// How often the hall was killed, and handed over.
    kills: u64,
    handovers: u64,
    /// How often a porter said that its plugin is ill.
    ailments: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let range: PortRange = PORTS.parse().unwrap();
        let settings = Settings { ports: range, launches_at_once: AT_ONCE, epoch: Timestamp(0), seed };
        let mut chance = Chance(seed);
        let papers = (0..MEMBERS).map(|n| (key(n), Ok(manifest(n, &mut chance)))).collect();
        let found = Found { papers, ..Found::default() };
        Self {
            guild: Guild::new(settings),
            chance,
            now: Moment::ZERO,
            steps: 0,
            serial: 0,
            tidings: BinaryHeap::new(),
            contents: HashMap::new(),
            processes: HashMap::new(),
            living: BTreeMap::new(),
            ports_in_use: HashMap::new(),
            stolen: BTreeSet::new(),
            range,
            found,
            held: BTreeMap::new(),
            seen: BTreeSet::new(),
            resting: BTreeSet::new(),
            calm: false,
            kills: 0,
            handovers: 0,
            ailments: 0,
        }
    }

    fn run(&mut self) {
        self.guild.reload(&self.found, self.now).unwrap();
        self.settle(None);
        while self.steps < STEPS {
            self.step();
        }
        self.calm_down();
        self.close();
        self.check_coverage();
    }

    /// A world in which nothing happens would prove nothing.
    fn check_coverage(&self) {
        use PhaseName::{Connected, Failed, Greeting, Invalid, Starting, Stopped, Stopping, Unwell, Waiting};
        assert!(self.kills > 5 && self.handovers > 5, "the hall was left in peace");
        assert!(self.ailments > 1_000, "no plugin was ever ill");
        for change in [
            (Stopped, Starting),
            (Starting, Greeting),
            (Starting, Waiting),
            (Starting, Failed),
            (Starting, Stopping),
            (Greeting, Connected),
            (Greeting, Unwell),
            (Greeting, Starting),
            (Greeting, Waiting),
            (Greeting, Stopping),
            (Greeting, Stopped),
            (Greeting, Failed),
            (Connected, Unwell),
            (Connected, Waiting),
            (Connected, Starting),
            (Connected, Stopped),
            (Connected, Stopping),
            (Connected, Failed),
            (Unwell, Connected),
            (Unwell, Stopping),
            (Unwell, Waiting),
            (Waiting, Starting),
            (Waiting, Stopped),
            (Waiting, Invalid),
            (Stopping, Starting),
            (Stopping, Stopped),
            (Stopping, Waiting),
            (Stopping, Failed),
            (Stopped, Invalid),
            (Invalid, Starting),
            (Failed, Starting),
            (Failed, Stopped),
        ] {
            assert!(self.seen.contains(&change), "the world never led a member through {change:?}");
        }
    }

    fn transitions(&mut self) -> Vec<Transition> {
        let transitions = self.guild.take_transitions();
        self.seen
            .extend(transitions.iter().filter_map(|transition| Some((transition.from?, transition.to?))));
        transitions
    }

    fn step(&mut self) {
        self.steps += 1;
        match self.chance.below(1000) {
            0..20 => self.somebody_wishes(),
            20..23 => self.thief_comes_and_goes(),
            23 => self.clock_jumps(),
            24 if self.chance.below(5) == 0 => self.reload(),
            25..45 => self.somebody_suspects(),
            45 if self.chance.below(25) == 0 => self.hall_is_killed(),
            46 if self.chance.below(25) == 0 => self.hall_is_handed_over(),
            45..55 => self.somebody_saves_a_file(),
            _ => self.time_passes(),
        }
    }

    fn time_passes(&mut self) {
        let due = self.guild.next_deadline();
        let next = self.tidings.peek().map(|Reverse((at, _))| *at);
        match (due, next) {
            (Some(due), Some(at)) if due <= at => self.tick(due),
            (_, Some(_)) => self.tell(),
            (Some(due), None) => self.tick(due),
            (None, None) => self.now = self.now + Duration::from_secs(1),
        }
    }

    fn tick(&mut self, due: Moment) {
        self.now = self.now.max(due);
        self.guild.tick(self.now);
        self.settle(None);
    }

    fn tell(&mut self) {
        let Some(Reverse((at, serial))) = self.tidings.pop() else { return };
        self.now = self.now.max(at);
        self.tell_now(serial);
    }

    fn tell_now(&mut self, serial: u64) {
        let Some((key, instance, tiding)) = self.contents.remove(&serial) else { return };
        let report = match tiding {
            Tiding::Report(report) => report,
            Tiding::Death(exit) => return self.die(instance, exit),
        };
        match report {
            Report::Ended { .. } => self.processes.get_mut(&instance).unwrap().reported = true,
            Report::Greeted(_) | Report::GreetedAiling(..) => {
                self.processes.get_mut(&instance).unwrap().greeted = true;
            }
            _ => {}
        }
        let is_ailing = matches!(report, Report::Ailing(_) | Report::GreetedAiling(..));
        let before = self.guild.entry(&key).filter(|_| self.guild.instance(&key) == Some(instance));
        self.guild.report(&key, instance, report, self.now);
        if let Some(before) = before.filter(|_| is_ailing) {
            self.check_ailing(&before);
        }
        self.settle(Some(&key));
    }

    /// That its plugin is ill costs a member neither its process nor a restart.
    fn check_ailing(&mut self, before: &Entry) {
        let after = self.guild.entry(&before.name).unwrap();
        assert_eq!(
            (after.pid, after.instance, after.restarts),
            (before.pid, before.instance, before.restarts),
            "an ailing plugin changed more than the phase of {}",
            before.name
        );
        if before.phase != PhaseName::Stopping {
            assert!(after.ailing && after.phase == PhaseName::Unwell, "{} is {:?}", after.name, after.phase);
            self.ailments += 1;
        }
    }

    fn die(&mut self, instance: Instance, exit: Exit) {
        let process = self.processes.get_mut(&instance).unwrap();
        if !std::mem::replace(&mut process.alive, false) {
            return;
        }
        let (key, port) = (process.key.clone(), process.port);
        self.living.remove(&key);
        self.ports_in_use.remove(&port);
        let tail = Arc::from(["last words".to_owned()]);
        let delay = self.chance.millis(0, 40);
        self.later(delay, key, instance, Tiding::Report(Report::Ended { exit, stderr_tail: tail }));
    }

    fn somebody_wishes(&mut self) {
        let wish = [Wish::Start, Wish::Start, Wish::Stop, Wish::Restart][self.chance.below(4) as usize];
        let key = self.anyone();
        if self.guild.wish(key.as_str(), wish, self.now).is_ok() {
            match wish {
                Wish::Stop => drop(self.resting.insert(key.clone())),
                Wish::Start | Wish::Restart => drop(self.resting.remove(&key)),
            }
        }
        self.settle(Some(&key));
    }

    fn somebody_suspects(&mut self) {
        let key = self.anyone();
        let Some(instance) = self.guild.instance(&key) else { return };
        self.guild.report(&key, instance, Report::Suspected, self.now);
        self.settle(Some(&key));
    }

    /// Whatever the member was doing, it is started anew, with a clean slate; but not one that was asked
    /// to stop.
    fn somebody_saves_a_file(&mut self) {
        let key = self.anyone();
        let phase = |guild: &Guild| guild.entry(&key).map(|entry| entry.phase);
        let before = phase(&self.guild);
        self.guild.file_changed(&key, "server.py", self.now);
        let after = phase(&self.guild);
        if self.resting.contains(&key) || matches!(before, None | Some(PhaseName::Invalid)) {
            assert_eq!(after, before, "a changed file moved {key}, which was asked to stop or is no member");
        } else {
            use PhaseName::{Connected, Failed, Greeting, Unwell};
            let runs_on = matches!(after, Some(Connected | Failed | Greeting | Unwell));
            assert!(!runs_on, "{key} was {before:?} when a file changed, and is {after:?}");
        }
        self.settle(Some(&key));
    }

    fn thief_comes_and_goes(&mut self) {
        let ports = self.range.len() as u64;
        let first = *self.range.numbers().start();
        for _ in 0..self.chance.below(30) {
            let port = Port::new(first + self.chance.below(ports) as u16).unwrap();
            if !self.stolen.remove(&port) && !self.ports_in_use.contains_key(&port) {
                self.stolen.insert(port);
            }
        }
    }

    /// Forward by up to an hour, or back: the core must not care.
    fn clock_jumps(&mut self) {
        if self.chance.below(2) == 0 {
            self.now = self.now + self.chance.millis(0, 3_600_000);
            self.guild.tick(self.now);
        } else {
            self.guild.tick(Moment::ZERO);
        }
        self.settle(None);
    }

    fn reload(&mut self) {
        for _ in 0..self.chance.below(30) {
            let n = self.chance.below(MEMBERS as u64) as usize;
            match self.chance.below(4) {
                0 => drop(self.found.papers.remove(&key(n))),
                1 => drop(self.found.papers.insert(key(n), Err(rejection(n)))),
                _ => drop(self.found.papers.insert(key(n), Ok(manifest(n, &mut self.chance)))),
            }
        }
        let changes = self.guild.reload(&self.found, self.now).unwrap();
        let touched: BTreeSet<_> =
            changes.added.iter().chain(&changes.changed).chain(&changes.removed).cloned().collect();
        // What is no member any more, or not yet, was not asked to stop.
        let guild = &self.guild;
        self.resting.retain(|key| guild.entry(key).is_some_and(|entry| entry.phase != PhaseName::Invalid));
        self.resting.retain(|key| !changes.removed.contains(key) && !changes.added.contains(key));
        self.settle_many(&touched);
    }

    /// The next hall finds what lives, and remembers what the one before had written down.
    fn hall_is_killed(&mut self) {
        self.kills += 1;
        // Only fate goes on: what tasks were about to tell is lost with them.
        self.contents.retain(|_, (_, _, tiding)| matches!(tiding, Tiding::Death(_)));
        self.held.clear();
        let known: Vec<MemberKey> = self.guild.keys().cloned().collect();
        let memories: BTreeMap<MemberKey, Memory> =
            known.iter().filter_map(|key| Some((key.clone(), self.guild.memory(key)?))).collect();
        let mut survivors = Vec::new();
        for (key, instance) in self.living.clone() {
            let process = self.processes.get_mut(&instance).unwrap();
            process.greeted = false;
            // One in twenty cannot be proven to be the one: it is ended before anything is launched.
            if self.chance.below(20) == 0 {
                process.alive = false;
                self.ports_in_use.remove(&process.port);
                self.living.remove(&key);
                continue;
            }
            survivors.push(Survivor {
                key,
                instance,
                port: process.port,
                pid: Pid(1),
                launched: process.launched,
                ending: process.ending,
                manifest: process.manifest.clone(),
            });
        }
        let alive = self.living.clone();
        let settings = Settings {
            ports: self.range,
            launches_at_once: AT_ONCE,
            epoch: Timestamp(0),
            seed: self.chance.next(),
        };
        self.guild = Guild::new(settings);
        self.guild.reopen(&self.found, survivors, memories.clone(), self.now);
        for (key, memory) in memories.into_iter().filter(|(key, _)| !alive.contains_key(key)) {
            if matches!(self.found.papers.get(&key), Some(Ok(_))) {
                assert_eq!(self.guild.memory(&key), Some(memory), "{key} is not remembered");
            }
        }
        self.settle(None);
    }

    /// The next image of the hall goes on from what this one wrote, once nothing is under way.
    fn hall_is_handed_over(&mut self) {
        self.handovers += 1;
        self.guild.pause();
        let mut under_way: Vec<u64> = self.contents.keys().copied().collect();
        under_way.sort_unstable();
        for serial in under_way {
            let told = matches!(
                self.contents[&serial].2,
                Tiding::Report(
                    Report::Spawned(_) | Report::PortBusy | Report::SpawnFailed(_) | Report::Ended { .. }
                )
            );
            if told {
                self.tell_now(serial);
            }
        }
        self.contents.retain(|_, (_, _, tiding)| matches!(tiding, Tiding::Death(_)));
        let estate = serde_json::to_string(&self.guild).unwrap();
        let before: Vec<_> = self.guild.keys().map(|key| self.guild.entry(key)).collect();
        self.guild = serde_json::from_str(&estate).unwrap();
        let after: Vec<_> = self.guild.keys().map(|key| self.guild.entry(key)).collect();
        assert_eq!(before, after, "a handover changes the roster");
        self.guild.resume(self.now);
        self.settle(None);
    }

    /// Carries out what the core says, and asserts the invariants.
    fn settle(&mut self, told: Option<&MemberKey>) {
        match told {
            Some(key) => {
                let one = BTreeSet::from([key.clone()]);
                self.check_isolation(&one);
                self.perform();
            }
            None => {
                self.perform();
                self.check_touched();
            }
        }
    }

    fn settle_many(&mut self, told: &BTreeSet<MemberKey>) {
        self.check_isolation(told);
        self.perform();
    }

    fn perform(&mut self) {
        for action in self.guild.take_actions() {
            self.act(action);
        }
    }

    fn act(&mut self, Action { key, instance, order }: Action) {
        match order {
            Order::Launch { port, manifest } => self.launch(key, instance, port, &manifest),
            Order::Greet { .. } => self.greet(key, instance),
            Order::Probe => {
                self.not_reported_dead(instance);
                let is_porter = self.processes[&instance].manifest.porter.is_some();
                if !self.calm && is_porter && self.chance.below(2) == 0 {
                    let delay = self.chance.millis(1, 9_000);
                    self.later(delay, key, instance, Tiding::Report(Report::Ailing(Failure::new("ill"))));
                } else if self.calm || self.chance.below(10) < 6 {
                    let delay = self.chance.millis(1, 50);
                    self.later(delay, key, instance, Tiding::Report(Report::Probed(Ok(Some(handshake())))));
                } else if self.chance.below(4) > 0 {
                    let delay = self.chance.millis(1, 20_000);
                    self.later(
                        delay,
                        key,
                        instance,
                        Tiding::Report(Report::Probed(Err(Failure::new("mute")))),
                    );
                }
            }
            Order::Terminate => {
                self.not_reported_dead(instance);
                self.processes.get_mut(&instance).unwrap().ending = Some(self.now);
                if !self.processes[&instance].deaf {
                    let exit = if self.chance.below(2) == 0 { Exit::CLEAN } else { Exit::Signal(15) };
                    let delay = self.chance.millis(0, 300);
                    self.later(delay, key, instance, Tiding::Death(exit));
                }
            }
            Order::Kill => {
                self.not_reported_dead(instance);
                let delay = self.chance.millis(0, 5);
                self.later(delay, key, instance, Tiding::Death(Exit::Signal(9)));
            }
        }
    }

    /// Invariant 4: no signal to a process that is known to be gone, or was never ours.
    fn not_reported_dead(&self, instance: Instance) {
        let process =
            self.processes.get(&instance).expect("a signal or probe for a process that was never started");
        assert!(!process.reported, "a signal or probe for {}, whose process is known dead", process.key);
    }

    fn launch(&mut self, key: MemberKey, instance: Instance, port: Port, manifest: &Arc<Manifest>) {
        assert!(self.range.numbers().contains(&port.get()), "{port} is outside the range");
        if let Some(old) = self.living.get(&key) {
            panic!("invariant 1: {key} is launched while {old} lives");
        }
        if let Some(holder) = self.ports_in_use.get(&port) {
            panic!("invariant 2: {port} is given to {key} while process {holder} holds it");
        }
        let delay = self.chance.millis(0, 30);
        if self.stolen.contains(&port) && self.chance.below(3) > 0 {
            return self.later(delay, key, instance, Tiding::Report(Report::PortBusy));
        }
        if !self.calm && !is_steady(&key) && self.chance.below(20) == 0 {
            let failure = Failure::new("cannot start");
            return self.later(delay, key, instance, Tiding::Report(Report::SpawnFailed(failure)));
        }
        let deaf = self.chance.below(5) == 0;
        let process = Process {
            key: key.clone(),
            port,
            alive: true,
            reported: false,
            greeted: false,
            deaf,
            manifest: manifest.clone(),
            launched: self.now,
            ending: None,
        };
        self.processes.insert(instance, process);
        self.living.insert(key.clone(), instance);
        self.ports_in_use.insert(port, instance);
        self.later(delay, key.clone(), instance, Tiding::Report(Report::Spawned(Pid(1))));
        if self.stolen.contains(&port) {
            let late = delay + self.chance.millis(1, 500);
            return self.later(late, key, instance, Tiding::Death(Exit::PORT_TAKEN));
        }
        if !self.calm && !is_steady(&key) {
            let exit = match self.chance.below(12) {
                0..2 => Exit::PORT_TAKEN,
                2 => Exit::CLEAN,
                3..6 => Exit::Code(1),
                6 => Exit::Signal(11),
                7 => Exit::Unknown,
                _ => return,
            };
            let life = match self.chance.below(3) {
                0 => self.chance.millis(0, 5),
                1 => self.chance.millis(0, 20_000),
                _ => self.chance.millis(0, 900_000),
            };
            self.later(delay + life, key, instance, Tiding::Death(exit));
        }
    }

    fn greet(&mut self, key: MemberKey, instance: Instance) {
        let is_porter = self.processes[&instance].manifest.porter.is_some();
        if !self.calm && is_porter && self.chance.below(4) == 0 {
            let (delay, failure) = (self.chance.millis(0, 5_000), Failure::new("ill"));
            let report = Report::GreetedAiling(handshake(), failure);
            return self.later(delay, key, instance, Tiding::Report(report));
        }
        let (delay, report) = match if self.calm || is_steady(&key) { 9 } else { self.chance.below(10) } {
            0 => return,
            1 => (self.chance.millis(0, 30_000), Report::Greeted(handshake())),
            2 => (self.chance.millis(0, 2_000), Report::HandshakeFailed(Failure::new("no handshake"))),
            3 => (self.chance.millis(0, 2_000), Report::Obstacle("refused".into())),
            _ => (self.chance.millis(0, 200), Report::Greeted(handshake())),
        };
        self.later(delay, key, instance, Tiding::Report(report));
    }

    fn later(&mut self, delay: Duration, key: MemberKey, instance: Instance, tiding: Tiding) {
        self.serial += 1;
        self.tidings.push(Reverse((self.now + delay, self.serial)));
        self.contents.insert(self.serial, (key, instance, tiding));
    }

    /// Invariant 6: what happened to these members changed no other, except that one which stood
    /// in the queue may have got its turn.
    fn check_isolation(&mut self, told: &BTreeSet<MemberKey>) {
        for transition in self.transitions() {
            if !told.contains(&transition.key) {
                let queue = matches!(transition.from, Some(PhaseName::Stopped | PhaseName::Waiting));
                let turn = matches!(
                    transition.to,
                    Some(PhaseName::Starting | PhaseName::Waiting | PhaseName::Stopped)
                );
                assert!(queue && turn, "invariant 6: {told:?} changed {transition:?}");
            }
            self.check(&transition.key);
        }
        self.check_ports();
    }

    fn check_touched(&mut self) {
        for transition in self.transitions() {
            self.check(&transition.key);
        }
        self.check_ports();
    }

    fn check(&mut self, key: &MemberKey) {
        let entry = self.guild.entry(key);
        match entry.as_ref().and_then(|entry| entry.port) {
            Some(port) => drop(self.held.insert(key.clone(), port)),
            None => drop(self.held.remove(key)),
        }
        let living = self.living.get(key).copied();
        if let Some(living) = living {
            // Invariant 3: what lives is known, and its port is not given away.
            assert_eq!(
                self.guild.instance(key),
                Some(living),
                "invariant 3: a process of {key} is forgotten"
            );
        }
        let Some(entry) = entry else { return };
        assert_eq!(entry.status, entry.phase.status());
        if entry.status == Status::Connected {
            let instance = entry.instance.expect("a connected member has an instance");
            assert!(!self.processes[&instance].reported, "invariant 5: {key} is connected after its death");
            assert!(self.processes[&instance].greeted, "{key} is connected by the answer of another launch");
            assert!(entry.port.is_some() && entry.pid.is_some());
        }
        if entry.status == Status::Error {
            assert!(entry.error.is_some(), "an error of {key} without a reason");
        }
        assert!(entry.attempts <= guild_hall::lifecycle::MOST_PORTS_TRIED, "{key} tried too many ports");
    }

    /// Invariant 2, from the other side: every port is held by one member or by none.
    fn check_ports(&self) {
        let held = self.held.len();
        assert_eq!(
            self.guild.unheld_ports() + held,
            self.range.len(),
            "invariant 2: a port is lost or held twice"
        );
    }

    /// Without further faults everyone who is not stopped, spent or without a port comes up, and
    /// members that never had a fault of their own are connected.
    fn calm_down(&mut self) {
        self.calm = true;
        self.stolen.clear();
        let end = self.now + Duration::from_secs(7_200);
        while self.now < end {
            self.time_passes();
        }
        let keys: Vec<MemberKey> = self.guild.keys().cloned().collect();
        for key in keys {
            self.check(&key);
            let entry = self.guild.entry(&key).unwrap();
            let waits_for_port = entry.error.as_deref().is_some_and(|error| error.contains("no free port"));
            let at_rest = matches!(entry.phase, PhaseName::Stopped | PhaseName::Failed | PhaseName::Invalid);
            assert!(
                at_rest || waits_for_port || entry.phase == PhaseName::Connected,
                "{key} is {} after two calm hours: {:?}",
                entry.phase,
                entry.error
            );
        }
    }

    fn close(&mut self) {
        self.calm = false;
        self.guild.shut_down(self.now);
        self.settle(None);
        let mut turns = 0;
        while !self.guild.is_quiet() {
            if turns == 500 {
                self.guild.kill_all(self.now);
                self.settle(None);
            }
            turns += 1;
            assert!(turns < 100_000, "the shutdown does not end");
            self.time_passes();
        }
        assert_eq!(self.living.len(), 0, "invariant 3: processes are left after a clean stop");
        assert_eq!(
            self.guild.unheld_ports(),
            self.range.len(),
            "invariant 2: ports are held after a clean stop"
        );
    }

    fn anyone(&mut self) -> MemberKey {
        key(self.chance.below(MEMBERS as u64) as usize)
    }
}

/// SplitMix64: the world's own stream, apart from the core's.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0 ^ 0x5555_5555_5555_5555;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_micros(self.below((most - least) * 1000 + 1) + least * 1000)
    }
}

fn key(n: usize) -> MemberKey {
    MemberKey::parse(&if n.is_multiple_of(3) { format!("c/m{n}") } else { format!("m{n}") }).unwrap()
}

static PORTER: LazyLock<Arc<Porter>> = LazyLock::new(|| {
    let behind = Behind::Rest { base_url: String::new(), path: String::new(), headers: Vec::new() };
    Arc::new(Porter { plugin: Plugin::default(), behind, timeout: Duration::from_secs(30) })
});

/// One in twenty never has a fault of its own.
fn is_steady(key: &MemberKey) -> bool {
    key.as_str().ends_with("00") || key.as_str().ends_with("50")
}

fn manifest(n: usize, chance: &mut Chance) -> Arc<Manifest> {
    let restart =
        [RestartPolicy::OnFailure, RestartPolicy::OnFailure, RestartPolicy::Always, RestartPolicy::Never];
    Arc::new(Manifest {
        name: format!("m{n}"),
        display_name: format!("Member {n}"),
        description: "simulated".into(),
        version: format!("{}", chance.below(3)),
        dialect: Dialect::Guild,
        transport: Transport::Http,
        dir: PathBuf::new(),
        command: "true".into(),
        args: Vec::new(),
        env: Vec::new(),
        inherit_env: Vec::new(),
        path: "/mcp".into(),
        restart: restart[chance.below(4) as usize],
        start_timeout: Duration::from_secs(10),
        call_timeout: Duration::from_secs(30),
        stop_timeout: chance.millis(0, 5_000),
        porter: n.is_multiple_of(4).then(|| PORTER.clone()),
        listed: false,
        health_interval: (chance.below(4) == 0).then_some(Duration::from_secs(5)),
        watch: None,
        warnings: Vec::new(),
        digest: Digest([0; 16]),
    })
}

fn rejection(n: usize) -> Rejection {
    Diagnosis {
        file: format!("m{n}/guild-member.json").into(),
        place: None,
        field: None,
        message: "broken".into(),
    }
    .into()
}

fn handshake() -> Handshake {
    Handshake { protocol_version: "2025-11-25".into(), tools: Arc::default(), offer: Arc::default() }
}
