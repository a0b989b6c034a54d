//! What the processes of a launch use. Three small files of `/proc` and of the cgroup, read when
//! somebody asks.

use std::fs;
use std::time::Duration;

use super::cgroup::Cgroup;
use super::tree::Tree;
use crate::model::Pid;

/// Of all processes of a tree together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory, bytes: what `ps` calls RSS. Pages that several of its processes share count for each.
    pub memory: u64,
    /// User and system time.
    pub cpu: Duration,
}

impl Tree {
    /// `None` once all of it is dead. With a cgroup the CPU time is the kernel's own count, of the dead
    /// included; without one it is that of the processes that live, and of the children that they have
    /// waited for.
    pub fn usage(&self, leader: Pid) -> Option<Usage> {
        let mut total = Usage::default();
        let mut lives = false;
        for process in self.pids(leader).into_iter().filter_map(of_process) {
            lives = true;
            total.memory += process.memory;
            total.cpu += process.cpu;
        }
        if let Some(cpu) = self.cgroup().and_then(Cgroup::cpu) {
            total.cpu = cpu;
        }
        lives.then_some(total)
    }
}

/// Of this process.
pub fn own_usage() -> Usage {
    of_process(Pid(std::process::id().cast_signed())).unwrap_or_default()
}

/// `None` for one that is gone, or a zombie.
fn of_process(pid: Pid) -> Option<Usage> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// `/proc/PID/stat`: the second field is a name in brackets that may hold anything.
fn parse(stat: &str) -> Option<Usage> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    if matches!(*fields.first()?, "Z" | "X") {
        return None;
    }
    // Counted from the field after the name, which is the third.
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let ticks = number(14)? + number(15)? + number(16)? + number(17)?;
    let ticks_per_second = rustix::param::clock_ticks_per_second().max(1);
    Some(Usage {
        memory: number(24)? * rustix::param::page_size() as u64,
        cpu: Duration::from_micros(ticks * 1_000_000 / ticks_per_second),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_behind_whatever_name() {
        let line =
            "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 100 50 25 25 20 0 1 0 5000 9 3 18446744073709551615";
        let page = rustix::param::page_size() as u64;
        let second = rustix::param::clock_ticks_per_second();
        let cpu = Duration::from_micros(200 * 1_000_000 / second);
        assert_eq!(parse(line), Some(Usage { memory: 3 * page, cpu }));
        assert_eq!(parse(&line.replace(") S", ") Z")), None);
        assert!(own_usage().memory > 0);
    }
}
