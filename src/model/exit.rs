//! How a process ended.

use std::borrow::Cow;
use std::fmt;

/// A process id. It names a process only while a pidfd or an unreaped child pins it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Pid(pub i32);

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The end of a process; `Unknown` where the kernel does not tell (it was not our child).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Exit {
    Code(i32),
    Signal(i32),
    Unknown,
}

impl Exit {
    /// Asked-for or normal end.
    pub const CLEAN: Self = Self::Code(0);
    /// The port that it was given is taken (plugin guide, "Use correct exit codes").
    pub const PORT_TAKEN: Self = Self::Code(2);
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(signal) => write!(f, "was killed by {}", signal_name(signal)),
            Self::Unknown => f.write_str("ended, exit status unknown"),
        }
    }
}

/// `SIGKILL` for 9; `signal 64` for one without a name of its own.
pub fn signal_name(signal: i32) -> Cow<'static, str> {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
        "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
        "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    let name = usize::try_from(signal).ok().and_then(|number| NAMES.get(number.checked_sub(1)?));
    name.map_or_else(|| format!("signal {signal}").into(), |name| format!("SIG{name}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_their_linux_names() {
        assert_eq!(signal_name(libc::SIGKILL), "SIGKILL");
        assert_eq!(signal_name(libc::SIGSEGV), "SIGSEGV");
        assert_eq!(signal_name(libc::SIGTERM), "SIGTERM");
        assert_eq!(signal_name(libc::SIGSYS), "SIGSYS");
        assert_eq!(signal_name(64), "signal 64");
        assert_eq!(signal_name(0), "signal 0");
    }
}
