//! Kernels that lack what the hall likes best: each newer way is switched off by itself, then all.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::bystander::Bystander;
use crate::hall::{BINARY, Hall, House};
use crate::invariants::{assert_all_is_well, assert_nothing_is_left, until_settled};
use crate::members::{deaf, family, plain, script};
use crate::proof::Entries;

fn start(house: &House, without: &str) -> Hall {
    let mut command = Command::new(BINARY);
    command.env("GUILD_HALL_FAULT_WITHOUT", without);
    house.start_command(command, &[])
}

fn pid_file(house: &House, name: &str) -> Value {
    serde_json::from_slice(&fs::read(house.run_dir().join(format!(".mcp-servers/{name}.json"))).unwrap())
        .unwrap()
}

fn kill(entry: &Value, signal: Signal) {
    let pid = i32::try_from(entry["pid"].as_i64().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// A hall without `without` is killed, and the next one takes over all members.
fn prove(without: &str) {
    let house = House::new();
    plain(&house, "a");
    family(&house, "family");
    deaf(&house, "deaf");
    let bystander = Bystander::new(&house);
    let mut hall = start(&house, without);
    let before = until_settled(&hall, &house, &bystander);
    let file = pid_file(&house, "a");
    assert!(!without.contains("pidfs") || file["handle"].is_null(), "{file}");
    assert!(!without.contains("cgroups") || file["cgroup"].is_null(), "{file}");
    hall.signal(Signal::KILL);
    hall.child.wait().unwrap();

    let hall = start(&house, without);
    let now = until_settled(&hall, &house, &bystander);
    let same = |entries: &Entries| -> BTreeSet<String> {
        entries
            .values()
            .map(|entry| format!("{} {} {}", entry["name"], entry["pid"], entry["port"]))
            .collect()
    };
    assert_eq!(same(&now), same(&before));
    assert!(now.values().all(|entry| entry["adopted"] == true), "{now:#?}");
    assert_all_is_well(&house, &now, &bystander);
    // What it has adopted it also stops and restarts.
    for (name, wish, phase) in [("family", "restart", "connected"), ("deaf", "stop", "stopped")] {
        let (status, entry) = hall.post(&format!("/v1/members/{name}/{wish}"), &json!({}));
        assert_eq!((status, &entry["phase"]), (200, &json!(phase)), "{entry:#}");
    }
    let now = until_settled(&hall, &house, &bystander);
    assert_all_is_well(&house, &now, &bystander);
    assert_nothing_is_left(&house, hall, &bystander);
}

#[test]
fn members_are_taken_over_on_a_kernel_that_has_all() {
    prove("");
}

#[test]
fn members_are_taken_over_without_pidfs_handles() {
    prove("pidfs");
}

#[test]
fn members_are_taken_over_without_information_about_pidfds() {
    prove("pidfd-info");
}

#[test]
fn members_are_taken_over_without_signals_to_groups() {
    prove("group-signal");
    prove("group-signal,cgroups");
}

#[test]
fn members_are_taken_over_without_cgroups() {
    prove("cgroups");
}

#[test]
fn members_are_taken_over_without_births_into_cgroups() {
    prove("clone3");
}

#[test]
fn members_are_taken_over_without_any_of_it() {
    prove("pidfs,pidfd-info,group-signal,cgroups,clone3");
}

#[test]
fn without_pidfs_handles_a_process_is_known_by_its_boot_and_its_birth() {
    let house = House::new();
    plain(&house, "a");
    plain(&house, "b");
    let bystander = Bystander::new(&house);
    let mut hall = start(&house, "pidfs");
    let before = until_settled(&hall, &house, &bystander);
    hall.signal(Signal::KILL);
    hall.child.wait().unwrap();
    // As if `a` had died, and its number had come round to a process that was born later.
    kill(&before["a"], Signal::KILL);
    let path = house.run_dir().join(".mcp-servers/a.json");
    let mut file = pid_file(&house, "a");
    file["pid"] = bystander.pid().into();
    fs::write(path, file.to_string()).unwrap();
    let hall = start(&house, "pidfs");
    let now = until_settled(&hall, &house, &bystander);
    assert_eq!(now["b"]["pid"], before["b"]["pid"]);
    assert_eq!(now["a"]["adopted"], false);
    assert_all_is_well(&house, &now, &bystander);
    assert_nothing_is_left(&house, hall, &bystander);
}

#[test]
fn without_information_about_pidfds_the_exit_of_an_adopted_member_is_unknown_and_a_failure() {
    let house = House::new();
    // It ends with 0 on SIGTERM.
    script(&house, "a", "exec \"$0\" example-member --port $PORT", &json!({}));
    let bystander = Bystander::new(&house);
    for (without, code) in [("", json!(0)), ("pidfd-info", Value::Null)] {
        let mut hall = start(&house, without);
        let before = until_settled(&hall, &house, &bystander);
        hall.signal(Signal::KILL);
        hall.child.wait().unwrap();
        let hall = start(&house, without);
        assert_eq!(until_settled(&hall, &house, &bystander)["a"]["pid"], before["a"]["pid"]);
        kill(&before["a"], Signal::TERM);
        let ended = hall.until_entry("a", "has ended", |entry| !entry["lastExit"].is_null());
        assert_eq!(ended["lastExit"]["code"], code, "{ended:#}");
        let then = if without.is_empty() { "stopped" } else { "connected" };
        hall.until("a", then);
        hall.stop();
    }
}
