//! `end-leftovers`, hidden: what the system unit calls when its hall has ended. Members outlive a hall that
//! crashed, for the next one; they do not outlive a hall that was stopped, however it came to its end.
//!
//! systemd tells by `$SERVICE_RESULT` how the hall ended, but not whether another one follows: a hall that
//! is killed while it stops looks like one that crashed. So `ExecStop=` leaves a note. And where a crash is
//! followed by no hall after all (the start limit was hit, or someone stopped the unit between two halls, when
//! systemd calls nothing), a process stays behind that ends the members a little later.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;

use super::{Failed, run_dir};
use crate::hall::{RunDir, RunDirError, end_leftovers};

/// End what a hall that is gone has left running
#[derive(Debug, Args)]
pub(super) struct EndLeftovers {
    /// Only note that the hall is being stopped (ExecStop=)
    #[arg(long, conflicts_with = "unless_taken_within")]
    note_stop: bool,
    /// Wait for a hall to take the run directory, and end what is left if none does; seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    unless_taken_within: Option<u64>,
    /// After a crash: seconds that the next hall has to come up
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    grace: u64,
    /// The run directory of the hall
    #[arg(long, value_name = "DIR", env = "GUILD_HALL_RUN_DIR")]
    run_dir: Option<PathBuf>,
}

/// In the run directory: the process number of the hall that is being stopped.
const NOTE: &str = "stopping";
/// In the run directory: the process number of the last hall.
const LOCK: &str = "lock";
const LOOK_AGAIN: Duration = Duration::from_millis(100);

impl EndLeftovers {
    pub(super) fn execute(self) -> Result<(), Failed> {
        let dir = run_dir(self.run_dir);
        if self.note_stop {
            return note_stop(&dir);
        }
        if let Some(seconds) = self.unless_taken_within {
            return if taken_within(&dir, Duration::from_secs(seconds)) { Ok(()) } else { end(&dir) };
        }
        let asked = asked_to_stop(&dir);
        let result = std::env::var("SERVICE_RESULT").unwrap_or_default();
        if asked || matches!(result.as_str(), "" | "success") {
            end(&dir)
        } else {
            stay_behind(&dir, self.grace)
        }
    }
}

/// systemd runs `ExecStop=` after a crash as well, but then without a main process.
fn note_stop(dir: &Path) -> Result<(), Failed> {
    let Some(hall) = std::env::var("MAINPID").ok().filter(|pid| !pid.is_empty()) else { return Ok(()) };
    let path = dir.join(NOTE);
    fs::write(&path, hall).map_err(|error| Failed::new(format!("cannot write {}: {error}", path.display())))
}

/// True if the note is about the hall that ran last; takes it away.
fn asked_to_stop(dir: &Path) -> bool {
    let read = |name| fs::read_to_string(dir.join(name)).ok().map(|text| text.trim().to_owned());
    let noted = read(NOTE);
    let _ = fs::remove_file(dir.join(NOTE));
    noted.is_some() && noted == read(LOCK)
}

fn end(dir: &Path) -> Result<(), Failed> {
    if !dir.exists() {
        return Ok(());
    }
    match RunDir::open(dir) {
        Ok(run_dir) => {
            let ended = end_leftovers(&run_dir);
            if ended > 0 {
                eprintln!("ended {ended} processes that the hall left behind");
            }
            Ok(())
        }
        // A hall has come: they are its members.
        Err(RunDirError::Taken { .. }) => Ok(()),
        Err(error) => Err(Failed::new(error)),
    }
}

/// Leaves a process behind that looks after the members, and does not wait for it.
fn stay_behind(dir: &Path, grace: u64) -> Result<(), Failed> {
    let failed = |error| Failed::new(format!("cannot stay behind to look after the members: {error}"));
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(["end-leftovers", "--unless-taken-within", &grace.to_string(), "--run-dir"]).arg(dir);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn().map(drop).map_err(failed)
}

/// True as soon as another hall than the last one has, or had, the run directory.
fn taken_within(dir: &Path, grace: Duration) -> bool {
    let lock = dir.join(LOCK);
    let last = fs::read(&lock).ok();
    let end = Instant::now() + grace;
    while Instant::now() < end {
        std::thread::sleep(LOOK_AGAIN);
        if fs::read(&lock).ok() != last {
            return true;
        }
    }
    false
}
