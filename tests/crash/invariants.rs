//! What must be true of every house after every crash.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use guild_hall::model::{Pid, Port};
use guild_hall::process::listeners;
use serde_json::Value;

use crate::bystander::Bystander;
use crate::hall::{Hall, House, eventually, is_alive};
use crate::processes::{doubles, processes};
use crate::proof::{Entries, entries};

/// A hall that has not settled by then never does.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until nothing more happens by itself; at no time may a member have two processes.
pub fn until_settled(hall: &Hall, house: &House, bystander: &Bystander) -> Entries {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some((one, other)) = doubles(house, &[bystander.pid()]) {
            panic!("two launches of one member live at the same time: {one:?} and {other:?}");
        }
        // A child that the killed hall was about to start holds on to its socket until it runs: whoever
        // comes to that one gets no answer.
        let now =
            hall.try_http("GET", "/v1/roster", "").map(|(_, roster)| entries(&roster)).unwrap_or_default();
        let at_rest = |entry: &Value| entry["phase"] == "connected" || entry["phase"] == "stopped";
        let is_ready = hall.try_http("GET", "/readyz", "").is_some_and(|(status, _)| status == 200);
        if is_ready && !now.is_empty() && now.values().all(at_rest) {
            return now;
        }
        assert!(Instant::now() < end && is_alive(hall.pid()), "it never settles: {now:#?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The invariants, of a hall that has settled.
pub fn assert_all_is_well(house: &House, now: &Entries, bystander: &Bystander) {
    let mut ports = BTreeSet::new();
    for entry in now.values().filter(|entry| !entry["pid"].is_null()) {
        let pid = i32::try_from(entry["pid"].as_i64().unwrap()).unwrap();
        assert!(is_alive(pid), "the roster has a process that is dead: {entry:#}");
        let port = u16::try_from(entry["port"].as_u64().unwrap()).unwrap();
        assert!(ports.insert(port), "two members have port {port}: {now:#?}");
        let port = Port::new(port).unwrap();
        let of_it: Vec<Pid> = processes(house, &[bystander.pid()])
            .into_iter()
            .filter(|process| process.instance.as_deref() == entry["instance"].as_str())
            .map(|process| Pid(process.pid))
            .collect();
        assert!(of_it.contains(&Pid(pid)), "{pid} is not of its launch: {entry:#}");
        let heard = listeners(port).unwrap();
        assert!(
            !heard.is_empty() && heard.iter().all(|listener| listener.belongs_to(&of_it)),
            "its port is not listened on by it: {entry:#}"
        );
    }
    eventually("every process is one that the roster knows", || {
        let known: BTreeSet<&str> = now.values().filter_map(|entry| entry["instance"].as_str()).collect();
        let strangers: Vec<_> = processes(house, &[bystander.pid()])
            .into_iter()
            .filter(|process| !process.instance.as_deref().is_some_and(|instance| known.contains(instance)))
            .collect();
        strangers.is_empty().then_some(())
    });
    assert!(!bystander.was_signalled(), "a process that is no member was signalled");
}

/// Stops the hall; after that the house must be as empty as before it was first opened.
pub fn assert_nothing_is_left(house: &House, hall: Hall, bystander: &Bystander) {
    let cgroups = cgroups(house);
    hall.stop();
    let left = processes(house, &[bystander.pid()]);
    assert!(left.is_empty(), "a stop leaves {left:?}");
    let pid_files: Vec<_> = fs::read_dir(house.run_dir().join(".mcp-servers")).unwrap().flatten().collect();
    assert!(pid_files.is_empty(), "a stop leaves {pid_files:?}");
    assert!(!house.run_dir().join("guild-hall.sock").exists(), "a stop leaves the socket");
    assert!(!cgroups.is_some_and(|path| path.exists()), "a stop leaves the directory of cgroups");
    assert!(!bystander.was_signalled(), "a process that is no member was signalled");
}

/// Where this house's hall makes its cgroups, if it makes any.
fn cgroups(house: &House) -> Option<PathBuf> {
    fs::read_dir(house.run_dir().join(".mcp-servers")).unwrap().flatten().find_map(|file| {
        let file: Value = serde_json::from_slice(&fs::read(file.path()).ok()?).ok()?;
        Some(PathBuf::from(file["cgroup"].as_str()?).parent()?.into())
    })
}
