//! Handing the hall to the next image of its program: trying the new binary out, and becoming it.
//!
//! The process stays the same, so its children, its PID and the descriptors that are kept pass over.
//! What else the new image must know stands in a memory file.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::process::{Signal, kill_process_group};

use super::fault;
use super::memory_file::memory_file;
use super::spawn::{lower_file_limit, raise_file_limit};
use super::sweep::registry;
use crate::model::Pid;

/// Names the descriptor of the memory file to the new image.
const HANDOVER: &str = "GUILD_HALL_HANDOVER";
/// Asks a new binary to say whether it could take over, and to do nothing else.
const TRIAL: &str = "GUILD_HALL_TRIAL";
/// What a binary answers that can.
const READY: &str = "ready to take over";
/// A binary that needs longer to say so is not trusted.
const LONGEST_TRIAL: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// The program that was started, as it would be found now: a link may lead to a newer one.
pub fn own_program() -> PathBuf {
    let own = || std::env::current_exe().unwrap_or_else(|_| "guild-hall".into());
    let Some(called) = std::env::args_os().next().map(PathBuf::from) else { return own() };
    if called.as_os_str().as_bytes().contains(&b'/') {
        return called;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|dir| dir.join(&called)).find(|path| path.is_file()).unwrap_or_else(own)
}

/// Has the binary read what it would be handed. Blocks; the reason says why it must not be trusted.
pub fn try_out(program: &Path, estate: &[u8]) -> Result<(), String> {
    let memory = memory_file(estate).map_err(|error| format!("cannot make a memory file: {error}"))?;
    let mut command = std::process::Command::new(program);
    command.args(std::env::args_os().skip(1)).env(TRIAL, "1").env_remove(HANDOVER);
    command.stdin(memory).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let birth = registry().birth();
    let mut child =
        command.spawn().map_err(|error| format!("cannot execute {}: {error}", program.display()))?;
    let pid = Pid(child.id().cast_signed());
    registry().add(pid);
    drop(birth);
    let verdict = judge(&mut child);
    registry().remove(pid);
    verdict.map_err(|why| format!("{} {why}", program.display()))
}

fn judge(child: &mut Child) -> Result<(), String> {
    let end = Instant::now() + LONGEST_TRIAL;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < end => std::thread::sleep(LOOK_AGAIN),
            _ => {
                // Unreaped, so its number still names its group and no other.
                if let Some(group) = rustix::process::Pid::from_raw(child.id().cast_signed()) {
                    let kill = || kill_process_group(group, Signal::KILL);
                    let _ = fault::around("kill a program on trial", kill);
                }
                let _ = child.wait();
                return Err(format!(
                    "did not say within {} s whether it can take over",
                    LONGEST_TRIAL.as_secs()
                ));
            }
        }
    };
    let answer = said(child.stdout.take());
    if status.success() && answer.trim_end().ends_with(READY) {
        return Ok(());
    }
    let complaint = said(child.stderr.take());
    let complaint = complaint.lines().next_back().unwrap_or("it is no guild-hall that can take over");
    Err(format!("cannot take over ({status}): {}", complaint.trim()))
}

/// What a child that has ended had written, a pipe's worth at most. Whatever it left behind may hold
/// the other end open, so this must not wait for more.
fn said(pipe: Option<impl Read + AsFd>) -> String {
    let Some(mut pipe) = pipe else { return String::new() };
    let mut bytes = vec![0; 64 * 1024];
    let _ = rustix::io::ioctl_fionbio(&pipe, true);
    let read = pipe.read(&mut bytes).unwrap_or(0);
    bytes.truncate(read);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// In the new binary: what it must read to show that it could take over, if that is all it is to do.
pub fn on_trial() -> Option<io::Result<Vec<u8>>> {
    std::env::var_os(TRIAL)?;
    let mut estate = Vec::new();
    Some(io::stdin().lock().read_to_end(&mut estate).map(|_| estate))
}

/// In the new binary: it can.
pub fn pass_trial() {
    println!("guild-hall {}: {READY}", env!("CARGO_PKG_VERSION"));
}

/// In the new image: what it was handed, if it is one.
pub fn inheritance() -> Option<io::Result<Vec<u8>>> {
    let descriptor: RawFd = std::env::var(HANDOVER).ok()?.parse().ok()?;
    let read = || {
        let mut memory = File::from(inherited(descriptor)?);
        let mut estate = Vec::new();
        memory.read_to_end(&mut estate)?;
        Ok(estate)
    };
    Some(read())
}

/// A descriptor that the image before has kept open for this one.
pub fn inherited(descriptor: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: asked for its flags only, which fails for a number that is no open descriptor.
    let open = unsafe { libc::fcntl(descriptor, libc::F_GETFD) } >= 0;
    if descriptor <= 2 || !open {
        return Err(io::Error::other(format!("descriptor {descriptor} was not handed over")));
    }
    // SAFETY: it is open, and nobody in this image has it: each is taken once, by the one it was kept for.
    let owned = unsafe { OwnedFd::from_raw_fd(descriptor) };
    fcntl_setfd(&owned, FdFlags::CLOEXEC)?;
    Ok(owned)
}

/// Executes the program in this process's place with the same arguments. `keep` stay open in it.
/// Returns only if that failed; then everything is as it was.
pub fn succeed(program: &Path, estate: &[u8], keep: &[RawFd]) -> io::Error {
    let attempt = || -> io::Result<()> {
        let memory = memory_file(estate)?;
        let program = CString::new(program.as_os_str().as_bytes())?;
        let args = std::env::args_os().map(|arg| CString::new(arg.into_vec()));
        let args = args.collect::<Result<Vec<_>, _>>()?;
        let number = memory.as_raw_fd().to_string();
        let own = [(OsString::from(HANDOVER), OsString::from(number))];
        let kept = std::env::vars_os().filter(|(name, _)| name != OsStr::new(HANDOVER));
        let env = kept
            .chain(own)
            .map(|(name, value)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()));
        let env = env.collect::<Result<Vec<_>, _>>()?;
        let all: Vec<RawFd> = keep.iter().copied().chain([memory.as_raw_fd()]).collect();
        inherit(&all, FdFlags::empty())?;
        lower_file_limit();
        // Until the new image has its handlers, a signal waits instead of ending it.
        let mask = super::spawn::block_all_signals();
        let error = super::spawn::execute(&program, &args, &env);
        super::spawn::restore_signals(&mask);
        raise_file_limit();
        inherit(&all, FdFlags::CLOEXEC)?;
        Err(error)
    };
    attempt().err().unwrap_or_else(|| io::Error::other("exec returned"))
}

/// In the new image, once its handlers are there: signals are heard again.
pub fn hear_signals() {
    super::spawn::unblock_all_signals();
}

fn inherit(descriptors: &[RawFd], flags: FdFlags) -> io::Result<()> {
    for &descriptor in descriptors {
        // SAFETY: borrowed for these two calls only, from owners that outlive them.
        let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(descriptor) };
        let others = fcntl_getfd(fd)?.difference(FdFlags::CLOEXEC);
        fcntl_setfd(fd, others.union(flags))?;
    }
    Ok(())
}
