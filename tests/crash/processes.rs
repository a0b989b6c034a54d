//! The processes of a house: all that stand in its members directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::hall::{House, is_alive};

/// A process that lives.
#[derive(Debug, Clone)]
pub struct Process {
    pub pid: i32,
    /// Its working directory, which may be deleted.
    pub dir: PathBuf,
    /// The launch that it says to be of; a process between its birth and its program says nothing.
    pub instance: Option<String>,
}

/// Every process whose working directory is below the members directory, but for those named.
pub fn processes(house: &House, except: &[i32]) -> Vec<Process> {
    let members = house.members();
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| !except.contains(pid)).filter_map(|pid| look(pid, &members)).collect()
}

fn look(pid: i32, members: &Path) -> Option<Process> {
    let dir = fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
    if !dir.starts_with(members) {
        return None;
    }
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let instance = environment
        .split(|&byte| byte == 0)
        .find_map(|variable| variable.strip_prefix(b"GUILD_HALL_INSTANCE="))
        .map(|value| String::from_utf8_lossy(value).into_owned());
    is_alive(pid).then_some(Process { pid, dir, instance })
}

/// Two processes that are of different launches of the same member, both alive at the same time.
pub fn doubles(house: &House, except: &[i32]) -> Option<(Process, Process)> {
    let mut seen: BTreeMap<PathBuf, Process> = BTreeMap::new();
    for process in processes(house, except).into_iter().filter(|process| process.instance.is_some()) {
        match seen.get(&process.dir) {
            Some(other) if other.instance != process.instance => {
                // The first may have ended before the second began.
                if look(other.pid, &house.members()).is_some_and(|now| now.instance == other.instance) {
                    return Some((other.clone(), process));
                }
                seen.insert(process.dir.clone(), process);
            }
            _ => drop(seen.insert(process.dir.clone(), process)),
        }
    }
    None
}
