//! A hall of a user who owns nothing: where no cgroup can be made, and doors are closed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::hall::{self, BINARY, Hall, House, rogue_mcp};
use crate::traces::NEVER;

/// Starts the hall of a house as that user, who may write everywhere in it.
pub fn start(house: &House) -> Hall {
    open_to_all(house.run_dir().parent().unwrap());
    let mut command = nobody();
    command.arg(BINARY);
    house.start_command(command, &[])
}

/// An interpreter that this user can run; `None`, with the reason printed, where there is no such
/// user or no such interpreter. To be asked before [`start`].
pub fn python() -> Option<&'static str> {
    let skipped = |why: &str| {
        eprintln!("skipped: {why}");
        None
    };
    if !rustix::process::geteuid().is_root() {
        return skipped("only root can become another user");
    }
    // By way of `env`: setpriv itself still has what root may at its own exec.
    let runs = |args: &[&str]| {
        let mut command = nobody();
        command.arg("env").args(args).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if !runs(&["true"]) {
        return skipped("setpriv is missing, or may not change the user");
    }
    if !runs(&[BINARY, "--version"]) {
        return skipped("another user cannot reach the binary");
    }
    let rogue = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/members/rogue.py");
    match [hall::python(), "/usr/bin/python3"]
        .into_iter()
        .find(|python| runs(&[python, "-S", rogue, "--help"]))
    {
        None => skipped("another user cannot run python3 or tests/members/rogue.py"),
        python => python,
    }
}

/// A rogue that `python` runs, which fails only once.
pub fn rogue(house: &House, python: &str, name: &str, knobs: &[&str], stop_timeout: u64) -> PathBuf {
    let mut mcp = rogue_mcp(knobs);
    mcp["command"] = python.into();
    let fields =
        json!({"mcp": mcp, "startTimeoutMs": NEVER, "restart": "never", "stopTimeoutMs": stop_timeout});
    house.member(name, fields)
}

/// Whether a member that runs has a cgroup of its own.
pub fn has_cgroup(house: &House, name: &str) -> bool {
    let pid_file = fs::read(house.run_dir().join(format!(".mcp-servers/{name}.json"))).unwrap();
    serde_json::from_slice::<Value>(&pid_file).unwrap()["cgroup"].is_string()
}

fn nobody() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command
}

fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    for entry in fs::read_dir(path).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            open_to_all(&entry.path());
        }
    }
}
