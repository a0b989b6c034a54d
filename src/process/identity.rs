//! Knowing a process again: a PID alone is not an identity.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::OnceLock;

use super::fault;
use crate::model::Pid;

/// What makes a process itself, beyond its number. In a PID file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    pub pid: Pid,
    /// The kernel's id of this boot: a number from another boot means nothing.
    pub boot_id: String,
    /// When the process was started, in clock ticks since boot; field 22 of `/proc/PID/stat`.
    pub start_ticks: u64,
    /// The pidfs file handle: exact, issued by the kernel, never used again within a boot. Hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle: Option<String>,
}

/// The kernel's random id of the present boot; empty where `/proc` does not tell.
pub fn boot_id() -> &'static str {
    static BOOT_ID: OnceLock<String> = OnceLock::new();
    BOOT_ID.get_or_init(|| {
        fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map(|id| id.trim().to_owned())
            .unwrap_or_default()
    })
}

impl Identity {
    /// Of a process that `pidfd` pins.
    pub fn of(pid: Pid, pidfd: &OwnedFd) -> io::Result<Self> {
        Ok(Self { pid, boot_id: boot_id().into(), start_ticks: start_ticks(pid)?, handle: handle(pidfd) })
    }

    /// Opens the process if, and only if, it is still the same one.
    pub fn open(&self) -> Option<OwnedFd> {
        if self.boot_id != boot_id() {
            return None;
        }
        let pid = rustix::process::Pid::from_raw(self.pid.0)?;
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()?;
        // The descriptor pins whoever has the number now; only then is it compared.
        let now = Self::of(self.pid, &pidfd).ok()?;
        let same = match (&self.handle, &now.handle) {
            (Some(then), Some(now)) => then == now,
            _ => true,
        };
        (same && now.start_ticks == self.start_ticks).then_some(pidfd)
    }
}

fn start_ticks(pid: Pid) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field is a name in brackets that may hold anything.
    let after_name = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    after_name
        .split_ascii_whitespace()
        .nth(19)
        .and_then(|field| field.parse().ok())
        .ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat has no start time")))
}

/// `None` on kernels without pidfs (before 6.9) or without its file handles (before 6.14).
fn handle(pidfd: &OwnedFd) -> Option<String> {
    #[repr(C)]
    struct FileHandle {
        bytes: libc::c_uint,
        kind: libc::c_int,
        data: [u8; 128],
    }
    if fault::is_off("pidfs") {
        return None;
    }
    let mut handle = FileHandle { bytes: 128, kind: 0, data: [0; 128] };
    let mut mount = 0_i32;
    // SAFETY: `handle` has room for as many bytes as it says, and the kernel writes no more.
    let result = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            pidfd.as_fd().as_raw_fd(),
            c"".as_ptr(),
            &raw mut handle,
            &raw mut mount,
            libc::AT_EMPTY_PATH,
        )
    };
    let bytes = handle.data.get(..handle.bytes as usize)?;
    (result == 0).then(|| bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
