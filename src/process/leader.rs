//! The first process of a member, watched through its pidfd.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::process::{PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout;

use super::fault;
use super::spawn::Spawned;
use crate::model::{Exit, Pid};

/// A process that is the hall's child, or that it has adopted. A child has not been reaped: until
/// [`Leader::reap`] its number, and that of its process group, cannot be given to anyone else.
#[derive(Debug)]
pub struct Leader {
    pid: Pid,
    pidfd: AsyncFd<OwnedFd>,
    kin: Kin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kin {
    Child,
    /// Launched by an earlier hall: somebody else reaps it.
    Adopted,
}

/// However the kernel wakes us, a dead process is looked at this often until it is reaped.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// `PIDFD_SIGNAL_PROCESS_GROUP`, Linux 6.9.
const WHOLE_GROUP: libc::c_uint = 1 << 2;

impl Leader {
    /// Must be called within a tokio runtime. A process that cannot be watched is ended.
    pub fn new(spawned: Spawned) -> io::Result<Self> {
        let Spawned { pid, pidfd, .. } = spawned;
        let pidfd = watch(pidfd).inspect_err(|_| {
            // Our child and unreaped: the number is still its own.
            if let Some(pid) = rustix::process::Pid::from_raw(pid.0) {
                let kill = || rustix::process::kill_process_group(pid, Signal::KILL);
                let _ = fault::around("kill a process that cannot be watched", kill);
                let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
            }
        })?;
        Ok(Self { pid, pidfd, kin: Kin::Child })
    }

    /// A process that was proven to be the one ([`Identity::open`](super::Identity::open)). Must be
    /// called within a tokio runtime.
    pub fn adopt(pid: Pid, pidfd: OwnedFd) -> io::Result<Self> {
        let looked = waitid(
            WaitId::PidFd(pidfd.as_fd()),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT,
        );
        // After a re-execution of the hall its children are still its own.
        let kin = if looked.is_ok() { Kin::Child } else { Kin::Adopted };
        Ok(Self { pid, pidfd: watch(pidfd)?, kin })
    }

    pub fn is_child(&self) -> bool {
        self.kin == Kin::Child
    }

    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns once the process is dead; it is then a zombie until it is reaped.
    pub async fn died(&self) {
        // An error would mean that the reactor is gone, and the hall with it.
        let _ = self.pidfd.readable().await;
    }

    /// Ends a dead process for good and tells how it died; `None` as long as somebody else has yet
    /// to do that.
    pub fn reap(&self) -> Option<Exit> {
        match self.kin {
            Kin::Child => Some(self.reap_child()),
            Kin::Adopted => exit_of_reaped(self.pidfd.as_fd()),
        }
    }

    /// Returns once a dead process is reaped. Who called it bounds the wait.
    pub async fn reaped(&self) -> Exit {
        loop {
            let ready = self.pidfd.readable().await;
            if let Some(exit) = self.reap() {
                return exit;
            }
            if let Ok(mut ready) = ready {
                // The next event is that it was reaped.
                ready.clear_ready();
            }
            let _ = timeout(LOOK_AGAIN, self.pidfd.readable()).await;
        }
    }

    fn reap_child(&self) -> Exit {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let status = fault::around("reap", || waitid(WaitId::PidFd(self.pidfd.as_fd()), options));
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
            // An older kernel. A child is unreaped (see `Leader`), so its number still names this
            // group and no other.
            match (self.kin, rustix::process::Pid::from_raw(self.pid.0)) {
                (Kin::Child, Some(pid)) => {
                    let send = || rustix::process::kill_process_group(pid, signal);
                    let _ = fault::around("signal a group by its number", send);
                }
                (Kin::Adopted, Some(pid)) => self.signal_members(pid, signal),
                (_, None) => {}
            }
            let _ = fault::around("signal a leader", || pidfd_send_signal(fd, signal));
        }
    }

    /// One by one: whoever was in the group while its leader lived is in this group and no other.
    fn signal_members(&self, group: rustix::process::Pid, signal: Signal) {
        let Ok(entries) = std::fs::read_dir("/proc") else { return };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let members: Vec<OwnedFd> = pids
            .filter_map(|pid| {
                let pid = rustix::process::Pid::from_raw(pid)?;
                let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
                (group_of(Pid(pid.as_raw_pid())) == Some(Pid(group.as_raw_pid()))).then_some(pidfd)
            })
            .collect();
        let leader_lives = !is_reaped(self.pidfd.as_fd());
        for member in members.iter().filter(|_| leader_lives) {
            let _ = fault::around("signal one of a group", || pidfd_send_signal(member, signal));
        }
    }
}

/// The process group of a process. Not rustix's: that of a thread of the kernel, or of a process of
/// another PID namespace, is 0, which no number of rustix can be.
pub(super) fn group_of(pid: Pid) -> Option<Pid> {
    // SAFETY: no memory is passed.
    let group = unsafe { libc::getpgid(pid.0) };
    (group > 0).then_some(Pid(group))
}

fn watch(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is the same open descriptor for as long as it exists.
    Ok(unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }?)
}

/// linux/pidfd.h: `PIDFD_GET_INFO`, Linux 6.13; `PIDFD_INFO_EXIT`, Linux 6.15.
const GET_INFO: libc::Ioctl = 0xc040_ff0b_u32 as libc::Ioctl;
const INFO_EXIT: u64 = 1 << 3;

/// The exit of a process that was not our child. A dead one that is not reaped yet has none, and the
/// kernel then answers without it (`None`); where it never will, the exit is unknown.
fn exit_of_reaped(pidfd: BorrowedFd) -> Option<Exit> {
    #[repr(C)]
    struct Info {
        mask: u64,
        others: [u8; 52],
        exit_code: i32,
    }
    let mut info = Info { mask: INFO_EXIT, others: [0; 52], exit_code: 0 };
    // SAFETY: `info` is as large as the request number says (64 bytes), and ours.
    let result = unsafe { libc::ioctl(pidfd.as_raw_fd(), GET_INFO, &raw mut info) };
    if result != 0 || fault::is_off("pidfd-info") {
        return Some(Exit::Unknown);
    }
    if info.mask & INFO_EXIT == 0 {
        return if is_reaped(pidfd) { Some(Exit::Unknown) } else { None };
    }
    let status = info.exit_code;
    Some(if libc::WIFSIGNALED(status) {
        Exit::Signal(libc::WTERMSIG(status))
    } else {
        Exit::Code(libc::WEXITSTATUS(status))
    })
}

/// A zombie still takes signals.
fn is_reaped(pidfd: BorrowedFd) -> bool {
    send(pidfd, 0, 0).is_err()
}

/// False where the kernel does not know the flag.
fn signal_through(pidfd: BorrowedFd, signal: Signal, flags: libc::c_uint) -> bool {
    if fault::is_off("group-signal") {
        return false;
    }
    let sent = fault::around("signal a group", || send(pidfd, signal.as_raw(), flags));
    !sent.is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL))
}

/// Signal 0 only asks whether there is anyone to be signalled.
fn send(pidfd: BorrowedFd, signal: libc::c_int, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: no pointer is passed but a null one, which asks for the default siginfo.
    let result = unsafe {
        let no_info = std::ptr::null::<libc::siginfo_t>();
        libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, no_info, flags)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
