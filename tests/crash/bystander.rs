//! A process that looks like a member and is none: whoever signals it is found out.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use crate::hall::{BINARY, House, is_alive};

/// The command and the directory of the member `a`, but not the hall's child.
pub struct Bystander(Child);

impl Bystander {
    pub fn new(house: &House) -> Self {
        crate::reaper::start();
        let mut command = Command::new(BINARY);
        // A port that no hall of this house comes to.
        let port = house.first_port() + 59;
        command.args(["example-member", "--port", &port.to_string()]).current_dir(house.member_dir("a"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: between fork and exec only async-signal-safe functions are called, on a set of its own.
        unsafe {
            command.pre_exec(|| {
                let mut all: libc::sigset_t = std::mem::zeroed();
                libc::sigfillset(&raw mut all);
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
                Ok(())
            });
        }
        Self(command.spawn().unwrap())
    }

    pub fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }

    /// It blocks every signal, so that one that was sent to it is pending still.
    pub fn was_signalled(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let pending = status.lines().filter_map(|line| {
            line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:")).map(str::trim)
        });
        let pending: Vec<&str> = pending.collect();
        !is_alive(self.pid())
            || pending.len() != 2
            || pending.iter().any(|set| !set.trim_matches('0').is_empty())
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
