//! Starting a program: one `clone3`, as `vfork` does it, straight into its cgroup.
//!
//! Why not `std::process::Command`: it cannot put the child into a cgroup at birth, and moving a
//! process later costs an RCU grace period (8 ms measured); it gives no pidfd on stable Rust; and
//! with any code before `exec` it copies the page tables of the hall for each launch.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::OnceLock;

use rustix::io::fcntl_dupfd_cloexec;

use super::fault;
use crate::model::Pid;

/// A program ready to be executed: everything is resolved, nothing is looked up any more.
#[derive(Debug)]
pub(super) struct Spawn<'a> {
    pub(super) program: &'a CStr,
    pub(super) argv: &'a [CString],
    pub(super) env: &'a [CString],
    pub(super) dir: &'a CStr,
    /// What it reads from stdin; `None`: nothing.
    pub(super) input: Option<BorrowedFd<'a>>,
    pub(super) output: BorrowedFd<'a>,
    pub(super) errors: BorrowedFd<'a>,
    /// Has the numbers from 3 on.
    pub(super) passed: &'a [BorrowedFd<'a>],
    /// It is killed when the thread that starts it ends.
    pub(super) dies_with_parent: bool,
    /// The directory of a cgroup v2.
    pub(super) cgroup: Option<BorrowedFd<'a>>,
}

/// A process that was started, pinned by its pidfd.
#[derive(Debug)]
pub struct Spawned {
    pub pid: Pid,
    pub pidfd: OwnedFd,
    /// It was born into the cgroup that was given, or has joined it.
    pub in_cgroup: bool,
}

/// What the kernel refused, in the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Fork,
    ChangeDirectory,
    Execute,
}

/// The child's; it makes a few dozen system calls, one after the other. Bytes.
const STACK: usize = 16 * 1024;
/// linux/sched.h; Linux 5.7.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The soft limit of open files that the hall itself was started with: its children get it back.
static FILE_LIMIT: OnceLock<libc::rlimit> = OnceLock::new();

/// Lets this process open as many files as it may; children are started with the old limit.
pub fn raise_file_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for one rlimit.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0 {
        let old = *FILE_LIMIT.get_or_init(|| limit);
        let raised = libc::rlimit { rlim_cur: old.rlim_max, ..old };
        // SAFETY: `raised` is a valid rlimit; failing leaves the old limit.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) };
    }
}

/// Back to the limit that this process was started with, for who is executed in its place.
pub(super) fn lower_file_limit() {
    if let Some(old) = FILE_LIMIT.get() {
        // SAFETY: `old` is a valid rlimit; what is open above it stays open.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, ptr::from_ref(old)) };
    }
}

/// Replaces this process's program; returns only with the reason why not.
pub(super) fn execute(program: &CStr, argv: &[CString], env: &[CString]) -> io::Error {
    let (argv, env) = (pointers(argv), pointers(env));
    // SAFETY: both lists end with a null pointer, and every other one in them is a live C string.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

/// All that the child touches between its birth and `exec`. It lives on the parent's stack, which
/// stays put because the parent is suspended until then.
struct Cradle {
    program: *const c_char,
    argv: *const *const c_char,
    env: *const *const c_char,
    dir: *const c_char,
    input: c_int,
    output: c_int,
    errors: c_int,
    passed: *const c_int,
    passed_count: c_int,
    dies_with_parent: bool,
    /// `cgroup.procs` to join by hand, or -1.
    join: c_int,
    joined: bool,
    file_limit: *const libc::rlimit,
    failed: Option<(Step, c_int)>,
}

/// Starts the program. Returns once the new program runs, or with the step that failed.
pub(super) fn spawn(spawn: &Spawn) -> Result<Spawned, (Step, io::Error)> {
    let fork_failed = |error: io::Error| (Step::Fork, error);
    let null = std::fs::File::options().read(true).write(true).open("/dev/null").map_err(fork_failed)?;
    let argv = pointers(spawn.argv);
    let env = pointers(spawn.env);
    // Above the numbers that they are to have, so that none takes another's.
    let above = |fd: &BorrowedFd| fcntl_dupfd_cloexec(fd, 64);
    let moved: Vec<OwnedFd> = spawn
        .passed
        .iter()
        .map(above)
        .collect::<Result<_, _>>()
        .map_err(|error| fork_failed(error.into()))?;
    let passed: Vec<c_int> = moved.iter().map(AsRawFd::as_raw_fd).collect();
    let mut cradle = Cradle {
        program: spawn.program.as_ptr(),
        argv: argv.as_ptr(),
        env: env.as_ptr(),
        dir: spawn.dir.as_ptr(),
        input: spawn.input.map_or(null.as_raw_fd(), |input| input.as_raw_fd()),
        output: spawn.output.as_raw_fd(),
        errors: spawn.errors.as_raw_fd(),
        passed: passed.as_ptr(),
        passed_count: c_int::try_from(passed.len()).unwrap_or(0),
        dies_with_parent: spawn.dies_with_parent,
        join: -1,
        joined: false,
        file_limit: FILE_LIMIT.get().map_or(ptr::null(), ptr::from_ref),
        failed: None,
    };
    let mut stack = vec![0_u128; STACK / size_of::<u128>()];

    // No handler of the hall may run in the child, which shares its memory.
    let old_mask = block_all_signals();
    // Not in the child, which shares this memory.
    let born = fault::around("clone", || born(spawn.cgroup, &mut cradle, &mut stack));
    restore_signals(&old_mask);

    let spawned = born.map_err(fork_failed)?;
    match cradle.failed {
        None => Ok(spawned),
        Some((step, errno)) => {
            // The child has ended itself; nobody else knows it, so it is reaped here.
            let _ = rustix::process::waitid(
                rustix::process::WaitId::PidFd(std::os::fd::AsFd::as_fd(&spawned.pidfd)),
                rustix::process::WaitIdOptions::EXITED,
            );
            Err((step, io::Error::from_raw_os_error(errno)))
        }
    }
}

/// Into the cgroup at birth where the kernel can; else by hand; else without.
fn born(cgroup: Option<BorrowedFd>, cradle: &mut Cradle, stack: &mut [u128]) -> io::Result<Spawned> {
    let Some(cgroup) = cgroup else { return by_clone(cradle, stack) };
    let by_clone3 = if fault::is_off("clone3") { no_clone3 } else { by_clone3 };
    match by_clone3(cgroup, cradle, stack) {
        Ok(spawned) => Ok(Spawned { in_cgroup: true, ..spawned }),
        // Kernels before 5.7, and containers whose seccomp filter does not know clone3.
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::ENOSYS | libc::EPERM | libc::EINVAL | libc::E2BIG)
            ) =>
        {
            let procs = rustix::fs::openat(
                cgroup,
                c"cgroup.procs",
                rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC,
                rustix::fs::Mode::empty(),
            );
            cradle.join = procs.as_ref().map_or(-1, AsRawFd::as_raw_fd);
            let spawned = by_clone(cradle, stack)?;
            Ok(Spawned { in_cgroup: cradle.joined, ..spawned })
        }
        // The group is not one that processes can be born into: the tree is then ended without it.
        Err(_) => by_clone(cradle, stack),
    }
}

/// glibc's `clone`, with the flags of `vfork` and a pidfd.
fn by_clone(cradle: &mut Cradle, stack: &mut [u128]) -> io::Result<Spawned> {
    let mut pidfd: c_int = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: the stack is owned, 16-byte aligned and large enough for `child`, which makes plain
    // system calls only; CLONE_VFORK suspends this thread until `child` has executed or exited, so
    // `cradle`, `stack` and all that they point to outlive its use of them.
    let pid = unsafe {
        let top = stack.as_mut_ptr_range().end.cast::<c_void>();
        libc::clone(child, top, flags, ptr::from_mut(cradle).cast(), &raw mut pidfd)
    };
    spawned(i64::from(pid), pidfd)
}

fn spawned(pid: i64, pidfd: c_int) -> io::Result<Spawned> {
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    let pid = Pid(i32::try_from(pid).map_err(io::Error::other)?);
    // SAFETY: the kernel has just made this descriptor for us, close-on-exec.
    Ok(Spawned { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) }, in_cgroup: false })
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn by_clone3(cgroup: BorrowedFd, cradle: &mut Cradle, stack: &mut [u128]) -> io::Result<Spawned> {
    let mut pidfd: c_int = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD;
    // SAFETY: all-zero is a valid `clone_args`.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = u64::from(flags.cast_unsigned()) | CLONE_INTO_CGROUP;
    args.pidfd = (&raw mut pidfd).addr() as u64;
    args.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
    args.stack = stack.as_mut_ptr().addr() as u64;
    args.stack_size = size_of_val(stack) as u64;
    args.cgroup = u64::from(cgroup.as_raw_fd().cast_unsigned());
    // SAFETY: as for `by_clone`. The child starts with an empty stack of its own and never comes
    // back from `child_and_exit`, so it does not touch this frame.
    let result = unsafe { clone3(&raw const args, ptr::from_mut(cradle).cast()) };
    if result < 0 {
        return Err(io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(libc::EINVAL)));
    }
    spawned(result, pidfd)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use no_clone3 as by_clone3;

fn no_clone3(_: BorrowedFd, _: &mut Cradle, _: &mut [u128]) -> io::Result<Spawned> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

/// The bare system call: glibc has no wrapper, and a child with a new stack cannot return from one.
///
/// # Safety
/// `args` must describe a child that shares memory and has a stack of its own; `cradle` must outlive it.
#[cfg(target_arch = "x86_64")]
unsafe fn clone3(args: *const libc::clone_args, cradle: *mut c_void) -> i64 {
    let result: i64;
    // SAFETY: the parent comes out at label 2 with its registers as they were, but for those named;
    // the child calls `child_and_exit`, which does not return.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 => result,
            in("rdi") args,
            in("rsi") size_of::<libc::clone_args>(),
            in("r12") cradle,
            in("r13") child_and_exit as extern "C" fn(*mut c_void) -> !,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

/// # Safety
/// As for the other architecture.
#[cfg(target_arch = "aarch64")]
unsafe fn clone3(args: *const libc::clone_args, cradle: *mut c_void) -> i64 {
    let result: i64;
    // SAFETY: as for the other architecture.
    unsafe {
        std::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, x20",
            "blr x21",
            "brk 1",
            "2:",
            in("x8") libc::SYS_clone3,
            inlateout("x0") args => result,
            in("x1") size_of::<libc::clone_args>(),
            in("x20") cradle,
            in("x21") child_and_exit as extern "C" fn(*mut c_void) -> !,
        );
    }
    result
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
extern "C" fn child_and_exit(cradle: *mut c_void) -> ! {
    let code = child(cradle);
    // SAFETY: always sound.
    unsafe { libc::_exit(code) }
}

/// Runs in the child, in the parent's memory: plain system calls only, no allocation, no panic.
extern "C" fn child(cradle: *mut c_void) -> c_int {
    // SAFETY: `cradle` is the parent's, valid until `exec` or exit (see `by_clone`). Every pointer
    // in it was made from a live, NUL-terminated value. All calls are async-signal-safe.
    unsafe {
        let cradle = &mut *cradle.cast::<Cradle>();
        if cradle.join >= 0 {
            cradle.joined = libc::write(cradle.join, c"0".as_ptr().cast(), 1) == 1;
        }
        libc::setpgid(0, 0);
        libc::dup2(cradle.input, 0);
        libc::dup2(cradle.output, 1);
        libc::dup2(cradle.errors, 2);
        for at in 0..cradle.passed_count {
            libc::dup2(*cradle.passed.offset(at as isize), 3 + at);
        }
        // The table of descriptors is the child's own: nothing leaks, not even what the hall itself
        // inherited without close-on-exec. Before anything that may take long: a hall that is killed
        // meanwhile must not live on in this child's copies of its lock and its sockets.
        libc::syscall(libc::SYS_close_range, 3 + cradle.passed_count.cast_unsigned(), u32::MAX, 0);
        if cradle.dies_with_parent {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        }
        if !cradle.file_limit.is_null() {
            libc::setrlimit(libc::RLIMIT_NOFILE, cradle.file_limit);
        }
        if libc::chdir(cradle.dir) != 0 {
            cradle.failed = Some((Step::ChangeDirectory, *libc::__errno_location()));
            return 127;
        }
        default_signals();
        libc::execve(cradle.program, cradle.argv, cradle.env);
        cradle.failed = Some((Step::Execute, *libc::__errno_location()));
    }
    127
}

/// Every signal at its default, none blocked: a program must not inherit what the hall ignores.
///
/// # Safety
/// Only in a child that has a signal table of its own.
unsafe fn default_signals() {
    // SAFETY: an all-zero sigaction is SIG_DFL without flags; numbers that may not be set are refused.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        for signal in 1..=64 {
            libc::sigaction(signal, &raw const default, ptr::null_mut());
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
}

pub(super) fn block_all_signals() -> libc::sigset_t {
    // SAFETY: both sets are valid places; all-zero is a valid set.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old);
        old
    }
}

pub(super) fn restore_signals(old: &libc::sigset_t) {
    // SAFETY: `old` is the set that `block_all_signals` returned.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, ptr::from_ref(old), ptr::null_mut()) };
}

pub(super) fn unblock_all_signals() {
    // SAFETY: all-zero is a valid place for a set, which is then made empty.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}
