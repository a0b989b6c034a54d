//! Which Python runs a plugin, and its start.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::pipe::{PipeFlags, pipe_with};

use crate::model::Instance;
use crate::model::porter::Program;
use crate::process::{CommandError, Ward};

/// Reads the worker from descriptor 3.
const BOOT: &str = include_str!("boot.py");
/// Environments that a plugin may bring, and their interpreters.
const ENVIRONMENTS: [&str; 2] = [".venv", "venv"];
const INTERPRETERS: [&str; 2] = ["bin/python", "bin/python3"];

/// The porter's ends of the worker's pipes.
pub(super) struct Pipes {
    pub(super) requests: OwnedFd,
    pub(super) answers: OwnedFd,
}

/// That of the plugin's own environment, or the one in PATH.
pub(super) fn find(dir: &Path) -> Result<String, String> {
    for environment in ENVIRONMENTS {
        let own = dir.join(environment);
        let found = INTERPRETERS.iter().map(|name| own.join(name)).find(|path| path.exists());
        if let Some(path) = found {
            return path
                .into_os_string()
                .into_string()
                .map_err(|path| format!("the name {} is not UTF-8", path.display()));
        }
        // An environment whose interpreter was moved away is not as good as none.
        if own.join("pyvenv.cfg").exists() {
            return Err(format!(
                "the plugin's environment {environment} has no interpreter any more: make it anew, python3 -m venv --clear {environment}"
            ));
        }
    }
    Ok("python3".into())
}

pub(super) fn start(interpreter: String, dir: &Path) -> Result<(Ward, Pipes), String> {
    let instance = getrandom::u64().map(Instance::from_bits).map_err(|error| error.to_string())?;
    let pipe = || {
        pipe_with(PipeFlags::CLOEXEC)
            .map_err(|error| format!("cannot open a pipe: {}", io::Error::from(error)))
    };
    let (requests_read, requests) = pipe()?;
    let (answers, answers_write) = pipe()?;
    let args = vec!["-u".into(), "-c".into(), BOOT.into()];
    let program = Program { command: interpreter, args, env: Vec::new() };
    let passed = [requests_read.as_fd(), answers_write.as_fd()];
    let ward = Ward::spawn_with(&program, dir, instance, &passed).map_err(|error| match error {
        CommandError::NotInPath { path, .. } => format!(
            "cannot find python3, which runs the plugin; looked in PATH: {path}. Install Python 3.8 or newer, or make the plugin an environment of its own: python3 -m venv .venv"
        ),
        other => other.to_string(),
    })?;
    Ok((ward, Pipes { requests, answers }))
}
