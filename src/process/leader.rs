//! The first process of a member, watched through its pidfd.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::spawn::Spawned;
use crate::model::{Exit, Pid};

/// A child of the hall that has not been reaped: until [`Leader::reap`] its number, and that of its
/// process group, cannot be given to anyone else.
#[derive(Debug)]
pub struct Leader {
    pid: Pid,
    pidfd: AsyncFd<OwnedFd>,
}

/// `PIDFD_SIGNAL_PROCESS_GROUP`, Linux 6.9.
const WHOLE_GROUP: libc::c_uint = 1 << 2;

impl Leader {
    /// Must be called within a tokio runtime. A process that cannot be watched is ended.
    pub fn new(spawned: Spawned) -> io::Result<Self> {
        let Spawned { pid, pidfd, .. } = spawned;
        // SAFETY: an `OwnedFd` is the same open descriptor for as long as it exists.
        let watched = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) };
        let pidfd = watched.inspect_err(|_| {
            // Our child and unreaped: the number is still its own.
            if let Some(pid) = rustix::process::Pid::from_raw(pid.0) {
                let _ = rustix::process::kill_process_group(pid, Signal::KILL);
                let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
            }
        })?;
        Ok(Self { pid, pidfd })
    }

    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns once the process is dead; it is then a zombie until it is reaped.
    pub async fn died(&self) {
        // An error would mean that the reactor is gone, and the hall with it.
        let _ = self.pidfd.readable().await;
    }

    /// Ends a dead process for good and tells how it died.
    pub fn reap(&self) -> Exit {
        let status = waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        match status {
            Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => Exit::Code(code),
                (_, Some(signal)) => Exit::Signal(signal),
                _ => Exit::Unknown,
            },
            _ => Exit::Unknown,
        }
    }

    /// Signals the process and its whole group. A process that is gone is no error.
    pub fn signal_group(&self, signal: Signal) {
        let fd = self.pidfd.as_fd();
        if !signal_through(fd, signal, WHOLE_GROUP) {
            // An older kernel. The leader is our child and unreaped (see `Leader`), so its number
            // still names this group and no other.
            if let Some(pid) = rustix::process::Pid::from_raw(self.pid.0) {
                let _ = rustix::process::kill_process_group(pid, signal);
            }
            let _ = pidfd_send_signal(fd, signal);
        }
    }
}

/// False where the kernel does not know the flag.
fn signal_through(pidfd: BorrowedFd, signal: Signal, flags: libc::c_uint) -> bool {
    // SAFETY: no pointer is passed but a null one, which asks for the default siginfo.
    let result = unsafe {
        let no_info = std::ptr::null::<libc::siginfo_t>();
        libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal.as_raw(), no_info, flags)
    };
    result == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL)
}
