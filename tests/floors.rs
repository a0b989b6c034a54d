//! The floors of the house: a module may use the floors below its own, never a neighbour or a floor
//! above. Reads every path that begins with `crate::`; ARCHITECTURE.md tells why.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must say so")]

use std::fs;
use std::path::{Path, PathBuf};

/// Each room and its floor. A new module at the top of `src` must be added here.
const FLOORS: [(&str, u8); 11] = [
    ("model", 0),
    ("dialect", 1),
    ("lifecycle", 1),
    ("discovery", 2),
    ("process", 2),
    ("mcp", 2),
    ("hall", 3),
    ("porter", 3),
    ("control", 4),
    ("gateway", 4),
    ("cli", 5),
];

#[test]
fn no_module_uses_its_own_floor_or_one_above() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut faults = Vec::new();
    for room in fs::read_dir(&src).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        let name = room.file_name().unwrap().to_str().unwrap().to_owned();
        let Some(floor) = floor(&name) else {
            faults.push(format!("src/{name} has no floor: add it to FLOORS in tests/floors.rs"));
            continue;
        };
        for file in files(&room) {
            for (number, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
                let place = format!("{}:{}", file.strip_prefix(&src).unwrap().display(), number + 1);
                if line.contains("crate::{") {
                    faults.push(format!(
                        "src/{place}: write one `use crate::room::…` a room, so that this test can read it"
                    ));
                }
                for used in rooms_used(line) {
                    match self::floor(&used) {
                        Some(below) if below < floor || used == name => {}
                        Some(above) => faults.push(format!(
                            "src/{place}: {name} (floor {floor}) uses {used} (floor {above}): {}",
                            line.trim()
                        )),
                        None => faults.push(format!("src/{place}: crate::{used} is no room of this house")),
                    }
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn only_process_is_unsafe() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for file in files(&src).into_iter().filter(|file| !file.starts_with(src.join("process"))) {
        let text = fs::read_to_string(&file).unwrap();
        assert!(!text.contains("unsafe "), "{} holds unsafe code", file.display());
    }
}

/// What changes the world. Each stands in the statement of a `fault::` call, so that the crash tests end
/// the hall before and after it.
const STEPS: [&str; 18] = [
    "fs::write(",
    "fs::rename(",
    "fs::remove_file(",
    "fs::remove_dir(",
    "fs::remove_dir_all(",
    "fs::create_dir(",
    "fs::set_permissions(",
    "DirBuilder::new()",
    "File::create(",
    "options.open(",
    ".set_len(",
    ".write_all_at(",
    "io::copy(",
    "flock(&",
    "UnixListener::bind(",
    "pidfd_send_signal(&",
    "pidfd_send_signal(fd",
    "kill_process_group(",
];

#[test]
fn no_step_that_changes_the_world_is_hidden_from_the_crash_tests() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut hidden = Vec::new();
    for room in ["process", "hall", "control"] {
        for file in files(&src.join(room)).into_iter().filter(|file| !file.ends_with("process/fault.rs")) {
            let text = fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            for (at, step) in STEPS.iter().flat_map(|step| code.match_indices(step)) {
                let number = code[..at].lines().count();
                // The closure may have been named one statement before.
                let nearby: Vec<&str> = code.lines().skip(number.saturating_sub(4)).take(8).collect();
                if !nearby.iter().any(|line| line.contains("fault::")) {
                    let place = file.strip_prefix(&src).unwrap().display();
                    hidden.push(format!("src/{place}:{number}: take {step} through crate::process::fault"));
                }
            }
        }
    }
    assert!(hidden.is_empty(), "{}", hidden.join("\n"));
}

fn floor(room: &str) -> Option<u8> {
    FLOORS.iter().find(|(name, _)| *name == room).map(|(_, floor)| *floor)
}

/// Every first segment behind `crate::` in a line that is no comment.
fn rooms_used(line: &str) -> Vec<String> {
    if line.trim_start().starts_with("//") {
        return Vec::new();
    }
    let segment =
        |rest: &str| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    line.split("crate::").skip(1).map(segment).filter(|segment| !segment.is_empty()).collect()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}
