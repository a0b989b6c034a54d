//! From a manifest to a program that can be executed: placeholders, environment, search path.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::INSTANCE_VARIABLE;
use super::memory_file::memory_file;
use super::spawn::{Spawn, Spawned, Step, spawn};
use crate::model::{Instance, Manifest, Port};

/// Variables by name.
pub type Environment = BTreeMap<OsString, OsString>;

/// What a member is executed with.
#[derive(Debug)]
pub struct Command {
    /// As the manifest has it, with `${GUILD_HALL}` and `${PORT}` replaced.
    pub argv: Vec<String>,
    env: Environment,
    dir: PathBuf,
    /// What it reads from stdin.
    input: Option<Vec<u8>>,
}

/// Why a command could not be started, in the words of the roster.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error(
        "cannot find the command {command:?}; looked in PATH: {path}. Install it, or write the command as a path"
    )]
    NotInPath { command: String, path: String },
    #[error("cannot find the command {command:?}: there is no {}; a command with a \"/\" is looked up from the member's directory", path.display())]
    NoSuchFile { command: String, path: PathBuf },
    #[error("cannot execute {}: {why}", path.display())]
    NotExecutable { path: PathBuf, why: &'static str },
    #[error("cannot execute {}: {source}{hint}", path.display())]
    Execute { path: PathBuf, source: io::Error, hint: String },
    #[error("cannot enter the directory {}: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("cannot start a process: {0}")]
    Fork(io::Error),
    #[error("cannot write down what it is to read: {0}")]
    Input(io::Error),
    #[error("an argument or variable holds a NUL character")]
    Nul,
}

/// The environment that members inherit: the hall's own, less what belongs to the hall alone.
pub fn hall_environment() -> Environment {
    std::env::vars_os().filter(|(name, _)| !is_the_halls_own(name)).collect()
}

/// With `--clean-env`: what any program needs, and what the manifest asks for by name.
pub fn clean_environment(environment: &Environment, inherit: &[String]) -> Environment {
    const NEEDED: [&str; 6] = ["PATH", "HOME", "USER", "LANG", "TZ", "TMPDIR"];
    let passes = |name: &OsStr| {
        let name = name.to_string_lossy();
        NEEDED.contains(&name.as_ref())
            || name.starts_with("LC_")
            || name.starts_with("XDG_")
            || inherit.iter().any(|asked| *asked == name)
    };
    environment
        .iter()
        .filter(|(name, _)| passes(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn is_the_halls_own(name: &OsStr) -> bool {
    let name = name.as_bytes();
    [&b"GUILD_HALL_"[..], b"WATCHDOG_", b"LISTEN_"].iter().any(|prefix| name.starts_with(prefix))
        || name == b"NOTIFY_SOCKET"
}

impl Command {
    /// `base` is what the member inherits; `hall` is the running binary.
    pub fn new(manifest: &Manifest, port: Port, instance: Instance, base: Environment, hall: &Path) -> Self {
        let mut env = base;
        env.insert("PORT".into(), port.to_string().into());
        env.insert(INSTANCE_VARIABLE.into(), instance.to_string().into());
        env.extend(manifest.env.iter().map(|(name, value)| (name.into(), with_port(value, port).into())));
        // A manifest must not make its member look like another launch.
        env.insert(INSTANCE_VARIABLE.into(), instance.to_string().into());
        // A type of our own, all of whose keys are texts.
        let input = manifest.porter.as_ref().and_then(|porter| serde_json::to_vec(porter).ok());
        Self { argv: argv(manifest, port, hall), env, dir: manifest.dir.clone(), input }
    }

    /// Starts it; stdout and stderr go to `output`.
    pub fn spawn(&self, output: BorrowedFd, cgroup: Option<BorrowedFd>) -> Result<Spawned, CommandError> {
        let input = self.input.as_ref().map(|text| memory_file(text)).transpose();
        let input = input.map_err(CommandError::Input)?;
        let ends = Ends {
            input: input.as_ref().map(AsFd::as_fd),
            output,
            errors: output,
            passed: &[],
            cgroup,
            dies_with_parent: false,
        };
        start(&self.argv, &self.env, &self.dir, &ends)
    }
}

/// What a new process has beside its program.
pub(super) struct Ends<'a> {
    pub(super) input: Option<BorrowedFd<'a>>,
    pub(super) output: BorrowedFd<'a>,
    pub(super) errors: BorrowedFd<'a>,
    pub(super) passed: &'a [BorrowedFd<'a>],
    pub(super) cgroup: Option<BorrowedFd<'a>>,
    pub(super) dies_with_parent: bool,
}

/// Finds a program and starts it.
pub(super) fn start(
    argv: &[String], env: &Environment, dir: &Path, ends: &Ends,
) -> Result<Spawned, CommandError> {
    let command = argv.first().map(String::as_str).unwrap_or_default();
    let search = env.get(OsStr::new("PATH")).cloned().unwrap_or_default();
    let program = look_up(command, dir, &search)?;
    let variables = env.iter().map(|(name, value)| {
        let mut text = name.clone().into_vec();
        text.push(b'=');
        text.extend_from_slice(value.as_bytes());
        c_string(text)
    });
    let start = Spawn {
        program: &c_string(program.as_os_str().as_bytes())?,
        argv: &argv.iter().map(|arg| c_string(arg.as_bytes())).collect::<Result<Vec<_>, _>>()?,
        env: &variables.collect::<Result<Vec<_>, _>>()?,
        dir: &c_string(dir.as_os_str().as_bytes())?,
        input: ends.input,
        output: ends.output,
        errors: ends.errors,
        passed: ends.passed,
        cgroup: ends.cgroup,
        dies_with_parent: ends.dies_with_parent,
    };
    spawn(&start).map_err(|(step, source)| match step {
        Step::Fork => CommandError::Fork(source),
        Step::ChangeDirectory => CommandError::Directory { path: dir.into(), source },
        Step::Execute => CommandError::Execute { hint: hint(&program, &source), path: program, source },
    })
}

/// What a member is executed with on this port, by the hall that is this program.
pub fn argv(manifest: &Manifest, port: Port, hall: &Path) -> Vec<String> {
    let command = with_hall(&manifest.command, hall);
    std::iter::once(command).chain(manifest.args.iter().map(|arg| with_port(arg, port))).collect()
}

/// Is the plugin's command there, where it would be looked for?
pub fn find_command(manifest: &Manifest) -> Result<PathBuf, CommandError> {
    let (command, env) = match manifest.program() {
        Some(program) => (&program.command, &program.env),
        None => (&manifest.command, &manifest.env),
    };
    let own = env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, path)| OsString::from(path));
    let search = own.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    let hall = std::env::current_exe().unwrap_or_default();
    look_up(&with_hall(command, &hall), &manifest.dir, &search)
}

fn with_port(text: &str, port: Port) -> String {
    text.replace("${PORT}", &port.to_string())
}

pub(super) fn with_hall(command: &str, hall: &Path) -> String {
    command.replace("${GUILD_HALL}", &hall.to_string_lossy())
}

/// Finds the program as `execvp` would, but says what it saw.
fn look_up(command: &str, dir: &Path, search: &OsStr) -> Result<PathBuf, CommandError> {
    if command.contains('/') {
        let path = dir.join(command);
        return match fs::metadata(&path) {
            Ok(_) => executable(&path)
                .map(|()| path.clone())
                .map_err(|why| CommandError::NotExecutable { path, why }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(CommandError::NoSuchFile { command: command.into(), path })
            }
            Err(source) => Err(CommandError::Execute { path, source, hint: String::new() }),
        };
    }
    let mut refused = None;
    for dir in std::env::split_paths(search).filter(|dir| dir.is_absolute()) {
        let candidate = dir.join(command);
        if fs::metadata(&candidate).is_err() {
            continue;
        }
        match executable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(why) => refused = refused.or(Some(CommandError::NotExecutable { path: candidate, why })),
        }
    }
    let not_found =
        || CommandError::NotInPath { command: command.into(), path: search.to_string_lossy().into_owned() };
    Err(refused.unwrap_or_else(not_found))
}

fn executable(path: &Path) -> Result<(), &'static str> {
    if path.is_dir() {
        Err("it is a directory")
    } else if access(path, Access::EXEC_OK).is_err() {
        Err("it is not executable (chmod +x makes it so)")
    } else {
        Ok(())
    }
}

/// What the kernel means when it refuses a file that is there and executable.
fn hint(program: &Path, error: &io::Error) -> String {
    let first_line = || -> Option<String> {
        let mut start = Vec::new();
        fs::File::open(program).ok()?.take(256).read_to_end(&mut start).ok()?;
        let line = start.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
        Some(String::from_utf8_lossy(line).trim().to_owned())
    };
    match error.raw_os_error() {
        Some(libc::ENOEXEC) => {
            "; it is neither a program of this machine nor a script that begins with \"#!\"".into()
        }
        Some(libc::ENOENT) => match first_line() {
            Some(line) => format!("; its first line asks for an interpreter that is not there: {line:?}"),
            None => "; the loader that it was linked for is not there".into(),
        },
        _ => String::new(),
    }
}

fn c_string(bytes: impl Into<Vec<u8>>) -> Result<CString, CommandError> {
    CString::new(bytes).map_err(|_| CommandError::Nul)
}
