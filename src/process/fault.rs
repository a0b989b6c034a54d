//! Faults on demand: every step by which the hall changes the world goes through here, so that the
//! crash tests can end the hall before and after each of them, let one fail, or take away what newer
//! kernels have. Without the feature `fault-injection` nothing of it is in the program.
//! `tests/floors.rs` sees to it that no step is forgotten.

use std::io;

#[cfg(feature = "fault-injection")]
use injected::{is_off as off, refusal, step};

/// Takes one step.
#[inline]
pub fn around<T>(what: &str, act: impl FnOnce() -> T) -> T {
    step("before", what);
    let done = act();
    step("after", what);
    done
}

/// Takes one step that the system may refuse.
#[inline]
pub fn attempt<T, E: From<io::Error>>(what: &str, act: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    around(what, || refusal(what).map_or_else(act, |error| Err(error.into())))
}

/// The kernel is to be taken for one that does not have this: `pidfs`, `pidfd-info`, `group-signal`,
/// `cgroups` or `clone3`.
#[inline]
pub fn is_off(feature: &str) -> bool {
    off(feature)
}

#[cfg(not(feature = "fault-injection"))]
#[inline]
fn step(_: &str, _: &str) {}

#[cfg(not(feature = "fault-injection"))]
#[inline]
fn refusal(_: &str) -> Option<io::Error> {
    None
}

#[cfg(not(feature = "fault-injection"))]
#[inline]
fn off(_: &str) -> bool {
    false
}

#[cfg(feature = "fault-injection")]
mod injected {
    use std::io::{self, Write};
    use std::path::PathBuf;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// What the environment asks for.
    struct Asked {
        /// `GUILD_HALL_FAULT_AT=n`: end at the n-th step.
        at: Option<u64>,
        /// `GUILD_HALL_FAULT_WHILE=PATH`: steps count while there is such a file.
        while_there: Option<PathBuf>,
        /// `GUILD_HALL_FAULT_FAIL=what:n`: the n-th step of this kind is refused, and all that follow
        /// with `what:n+`.
        refused: Option<(String, u64, bool)>,
        /// `GUILD_HALL_FAULT_WITHOUT=what,what`.
        without: Vec<String>,
    }

    static ASKED: LazyLock<Asked> = LazyLock::new(|| {
        let text = |name: &str| std::env::var(format!("GUILD_HALL_FAULT_{name}")).ok();
        let refused = |asked: String| {
            let (what, n) = asked.rsplit_once(':')?;
            let number = n.trim_end_matches('+').parse().ok()?;
            Some((what.to_owned(), number, n.ends_with('+')))
        };
        Asked {
            at: text("AT").and_then(|n| n.parse().ok()),
            while_there: text("WHILE").map(PathBuf::from),
            refused: text("FAIL").and_then(refused),
            without: text("WITHOUT").map(|all| all.split(',').map(Into::into).collect()).unwrap_or_default(),
        }
    });

    fn is_counted() -> bool {
        ASKED.while_there.as_ref().is_none_or(|path| path.exists())
    }

    pub(super) fn step(when: &str, what: &str) {
        static STEPS: AtomicU64 = AtomicU64::new(0);
        let Some(at) = ASKED.at.filter(|_| is_counted()) else { return };
        if STEPS.fetch_add(1, Ordering::SeqCst) + 1 == at {
            let _ = writeln!(io::stderr(), "fault: the hall ends at step {at}, {when} {what}");
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
    }

    /// As a full disk has it for what makes or writes a file, else as a lack of descriptors.
    pub(super) fn refusal(what: &str) -> Option<io::Error> {
        static STEPS: AtomicU64 = AtomicU64::new(0);
        let (refused, at, and_on) = ASKED.refused.as_ref()?;
        if what != refused || !is_counted() {
            return None;
        }
        let n = STEPS.fetch_add(1, Ordering::SeqCst) + 1;
        let is_file = ["write", "make", "open"].iter().any(|verb| what.starts_with(verb));
        let errno = if is_file { libc::ENOSPC } else { libc::EMFILE };
        (n == *at || (*and_on && n > *at)).then(|| io::Error::from_raw_os_error(errno))
    }

    pub(super) fn is_off(feature: &str) -> bool {
        ASKED.without.iter().any(|off| off == feature)
    }
}
