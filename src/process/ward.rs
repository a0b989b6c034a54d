//! A process that a porter starts: it dies with the porter, and is ended with all that it has started.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, pidfd_send_signal};
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::INSTANCE_VARIABLE;
use super::command::{CommandError, Ends, hall_environment, start, with_hall};
use super::fault;
use super::leader::Leader;
use super::sweep::{carriers, reap_orphans, registry};
use crate::model::porter::Program;
use crate::model::{Exit, Instance, Pid};

/// Stands in the environment of everything that one ward has started.
const MARK: &str = "GUILD_HALL_WARD";
/// A tree is looked through so often until nothing new is found in it.
const ROUNDS: usize = 10;
/// So long is waited for the killed, each time.
const ROUND: Duration = Duration::from_millis(2);

/// The first of the processes, and a mark that the others are known by. Dropping it kills them all.
#[derive(Debug)]
pub struct Ward {
    leader: Arc<Leader>,
    mark: String,
    reaped: bool,
}

/// The porter's ends of a ward's pipes.
#[derive(Debug)]
pub struct Pipes {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    /// `None` where stderr goes to the log.
    pub stderr: Option<OwnedFd>,
}

/// Where a ward's stderr goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stderr {
    /// Where the porter's own goes.
    Log,
    Pipe,
}

impl Ward {
    /// Starts a program with pipes. The environment is the porter's own, less what is the porter's
    /// alone, and the program's. Must be called on the main thread, within a tokio runtime.
    pub fn spawn(
        program: &Program, dir: &Path, instance: Instance, stderr: Stderr,
    ) -> Result<(Self, Pipes), CommandError> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|error| CommandError::Fork(error.into()));
        let (stdin_read, stdin) = pipe()?;
        let (stdout, stdout_write) = pipe()?;
        let (stderr_read, stderr_write) = match stderr {
            Stderr::Log => (None, None),
            Stderr::Pipe => pipe().map(|(read, write)| (Some(read), Some(write)))?,
        };
        let own_stderr = rustix::stdio::stderr();
        let ends = Ends {
            input: Some(stdin_read.as_fd()),
            output: stdout_write.as_fd(),
            errors: stderr_write.as_ref().map_or(own_stderr, AsFd::as_fd),
            passed: &[],
            cgroup: None,
            dies_with_parent: true,
        };
        let ward = Self::start(program, dir, instance, &ends)?;
        Ok((ward, Pipes { stdin, stdout, stderr: stderr_read }))
    }

    /// Starts a program whose stdin is empty and whose output goes to the log; `passed` are its
    /// descriptors from 3 on.
    pub fn spawn_with(
        program: &Program, dir: &Path, instance: Instance, passed: &[BorrowedFd],
    ) -> Result<Self, CommandError> {
        let (output, errors) = (rustix::stdio::stdout(), rustix::stdio::stderr());
        let ends = Ends { input: None, output, errors, passed, cgroup: None, dies_with_parent: true };
        Self::start(program, dir, instance, &ends)
    }

    fn start(program: &Program, dir: &Path, instance: Instance, ends: &Ends) -> Result<Self, CommandError> {
        let mark = instance.to_string();
        let mut env = hall_environment();
        env.remove(std::ffi::OsStr::new("PORT"));
        env.extend(program.env.iter().map(|(name, value)| (name.into(), value.into())));
        // A plugin must not make itself look like another launch.
        for own in [INSTANCE_VARIABLE, MARK] {
            env.remove(std::ffi::OsStr::new(own));
        }
        env.extend(std::env::var_os(INSTANCE_VARIABLE).map(|id| (INSTANCE_VARIABLE.into(), id)));
        env.insert(MARK.into(), mark.clone().into());
        let command = with_hall(&program.command, &std::env::current_exe().unwrap_or_default());
        let argv: Vec<String> = std::iter::once(command).chain(program.args.iter().cloned()).collect();
        let _birth = registry().birth();
        let spawned = start(&argv, &env, dir, ends)?;
        registry().add(spawned.pid);
        let leader = Leader::new(spawned).map_err(CommandError::Fork)?;
        Ok(Self { leader: leader.into(), mark, reaped: false })
    }

    pub fn pid(&self) -> Pid {
        self.leader.pid()
    }

    /// Waits until the first process has ended; then ends what it has left behind.
    pub async fn wait(&mut self) -> Option<Exit> {
        self.leader.died().await;
        self.end()
    }

    /// Asks it to end.
    pub fn terminate(&self) {
        self.leader.signal_group(Signal::TERM);
    }

    /// Kills everything that it has started.
    pub fn kill(&self) {
        self.leader.signal_group(Signal::KILL);
        for _ in 0..ROUNDS {
            // Whatever left the group has the porter for a parent, sooner or later.
            let carriers = carriers(MARK, &self.mark);
            if carriers.is_empty() {
                return;
            }
            for pidfd in carriers {
                let _ = fault::around("kill by mark", || pidfd_send_signal(&pidfd, Signal::KILL));
            }
        }
    }

    /// Of a dead leader.
    fn end(&mut self) -> Option<Exit> {
        self.kill();
        self.reaped = true;
        let exit = self.leader.reap();
        registry().remove(self.leader.pid());
        reap_orphans(false);
        exit
    }
}

impl Drop for Ward {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
            // It dies in a moment, which is not waited for here.
            let leader = self.leader.clone();
            let burial = async move {
                leader.died().await;
                let _ = leader.reap();
                registry().remove(leader.pid());
                // So do those that it had started, who are the porter's children now.
                for _ in 0..ROUNDS {
                    if reap_orphans(false).unwrap_or(0) == 0 {
                        break;
                    }
                    sleep(ROUND).await;
                }
            };
            match Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn(burial)),
                Err(_) => registry().remove(self.leader.pid()),
            }
        }
    }
}

/// Becomes the parent of all that wards leave behind.
pub fn adopt_orphans() -> io::Result<()> {
    registry();
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Ends this process as another has ended; a core has been dumped where that was wanted.
pub fn die_as(exit: Exit) -> std::process::ExitCode {
    match exit {
        Exit::Code(code) => u8::try_from(code).unwrap_or(1).into(),
        Exit::Unknown => std::process::ExitCode::FAILURE,
        Exit::Signal(signal) => {
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: a valid rlimit, and a signal of this process to itself; a number that is none is refused.
            unsafe {
                libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
            }
            std::process::ExitCode::FAILURE
        }
    }
}
