//! Buries what the killed halls leave behind, at once, as the init of a real system does. Where these
//! tests run it may be a lazy one, and a hall waits for seconds to hear how an adopted member ended.

use std::fs;
use std::sync::Once;
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, getpid, set_child_subreaper, waitid};

/// From now on this process inherits all orphans of the halls that it starts.
pub fn start() {
    static START: Once = Once::new();
    START.call_once(|| {
        set_child_subreaper(Some(getpid())).unwrap();
        std::thread::spawn(|| {
            loop {
                reap();
                std::thread::sleep(Duration::from_millis(2));
            }
        });
    });
}

fn reap() {
    // SAFETY: no memory is passed.
    let group_of = |pid: i32| unsafe { libc::getpgid(pid) };
    // What the tests start themselves is of their own group and is waited for by them; members lead theirs.
    let own = group_of(0);
    for task in fs::read_dir("/proc/self/task").unwrap().flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for pid in children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()) {
            if group_of(pid) != own {
                let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
                let _ = waitid(WaitId::Pid(Pid::from_raw(pid).unwrap()), options);
            }
        }
    }
}
