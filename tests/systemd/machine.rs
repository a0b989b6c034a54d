//! A small machine that systemd has booted (boot.sh), with the hall installed in it as docs/systemd.md says.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Whatever a test waits for comes long before; a busy machine may take its time.
const PATIENCE: Duration = Duration::from_secs(60);
const PROJECT: &str = env!("CARGO_MANIFEST_DIR");
/// What boot.sh exits with where no systemd can be booted.
const CANNOT: i32 = 77;
/// The interpreter that the unit's user can reach, whatever the search path of the tests says.
const PYTHON: &str = "/usr/bin/python3";

/// Ended with the test, and all that runs in it.
pub struct Machine {
    /// Ends when its stdin is closed.
    boot: Child,
    /// PID 1 in there, as numbered out here.
    init: String,
    _tree: TempDir,
}

/// What is copied over the file system of the small machine.
pub struct Tree(PathBuf);

impl Machine {
    /// Boots with the files that `prepare` writes. `None`, and a line on stderr, where no systemd can be booted.
    pub fn boot(prepare: impl FnOnce(&Tree)) -> Option<Self> {
        if !Path::new(PYTHON).exists() {
            return left_out(&format!("there is no {PYTHON}"));
        }
        let dir = tempfile::Builder::new().prefix("tree-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let tree = Tree(dir.path().into());
        tree.install();
        prepare(&tree);
        let mut boot = Command::new(Path::new(PROJECT).join("tests/systemd/boot.sh"))
            .arg(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut init = String::new();
        BufReader::new(boot.stdout.take().unwrap()).read_line(&mut init).unwrap();
        let init = init.trim().to_owned();
        if init.is_empty() {
            let code = boot.wait().unwrap().code();
            let mut why = String::new();
            boot.stderr.take().unwrap().read_to_string(&mut why).unwrap();
            assert_eq!(code, Some(CANNOT), "boot.sh failed: {why}");
            return left_out(why.lines().last().unwrap_or_default());
        }
        let machine = Self { boot, init, _tree: dir };
        machine.eventually("systemd is up", || {
            let state = machine.command(&["systemctl", "is-active", "small.target"]).output().unwrap();
            (state.stdout == b"active\n").then_some(())
        });
        machine.run(&["systemd-sysusers"]);
        Some(machine)
    }

    /// The same, with the hall started.
    pub fn with_hall(prepare: impl FnOnce(&Tree)) -> Option<Self> {
        let machine = Self::boot(prepare)?;
        machine.run(&["systemctl", "start", "guild-hall"]);
        Some(machine)
    }

    /// A command in there, as root.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init, "--all", "--root", "--wd", "--", "env", "-i"]);
        command.args([
            "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "SYSTEMD_PAGER=cat",
            "NO_COLOR=1",
        ]);
        command.args(["GUILD_HALL_RUN_DIR=/run/guild-hall"]).args(args).stdin(Stdio::null());
        command
    }

    /// Runs a command that must succeed, and returns what it printed.
    #[track_caller]
    pub fn run(&self, args: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.command(args).output().unwrap();
        let printed = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(status.success(), "{args:?}: {status}\n{}\n{}", printed.concat(), self.journal());
        let [stdout, _] = printed;
        stdout.trim_end().to_owned()
    }

    /// A property of the hall's unit.
    #[track_caller]
    pub fn show(&self, property: &str) -> String {
        self.run(&["systemctl", "show", "--value", "--property", property, "guild-hall"])
    }

    pub fn journal(&self) -> String {
        let output =
            self.command(&["journalctl", "--no-pager", "--output=short-monotonic"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub fn hall_pid(&self) -> String {
        self.show("MainPID")
    }

    /// Signals the hall alone.
    pub fn signal(&self, signal: &str) {
        self.run(&["systemctl", "kill", "--kill-whom=main", "--signal", signal, "guild-hall"]);
    }

    /// Waits until a member is connected, and returns its process.
    #[track_caller]
    pub fn connected(&self, name: &str) -> String {
        self.eventually(&format!("{name} is connected"), || {
            let printed = self.command(&["guild-hall", "roster", name, "--json"]).output().unwrap().stdout;
            let entry: Value = serde_json::from_slice(&printed).ok()?;
            (entry["phase"] == "connected").then(|| entry["pid"].to_string())
        })
    }

    /// A file of a process in there: `/proc/PID/WHAT`, its NULs as newlines.
    pub fn proc(&self, pid: &str, what: &str) -> Option<String> {
        let bytes = fs::read(self.path(&format!("/proc/{pid}/{what}"))).ok()?;
        Some(String::from_utf8_lossy(&bytes).replace('\0', "\n"))
    }

    /// A path in there, as seen from out here.
    pub fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.init))
    }

    pub fn is_alive(&self, pid: &str) -> bool {
        self.proc(pid, "stat").is_some_and(|stat| !stat.rsplit(')').next().unwrap().starts_with(" Z"))
    }

    /// The command line of everything that runs as the hall's user.
    pub fn processes(&self) -> Vec<String> {
        let users = fs::read_to_string(self.path("/etc/passwd")).unwrap();
        let user =
            users.lines().find_map(|line| line.strip_prefix("guild-hall:x:")?.split(':').next()).unwrap();
        let user: u32 = user.parse().unwrap();
        let entries = fs::read_dir(self.path("/proc")).unwrap().flatten();
        let of_user = entries.filter(|entry| entry.metadata().is_ok_and(|about| about.uid() == user));
        let pids = of_user.map(|entry| entry.file_name().into_string().unwrap());
        let alive = pids.filter(|pid| self.is_alive(pid));
        alive
            .filter_map(|pid| Some(format!("{pid} {}", self.proc(&pid, "cmdline")?.replace('\n', " "))))
            .collect()
    }

    /// Nothing runs in the unit's cgroup, nor anywhere else as its user.
    #[track_caller]
    pub fn assert_nothing_is_left(&self) {
        let mut left = self.processes();
        left.extend(pids_below(&self.path("/sys/fs/cgroup/system.slice/guild-hall.service")));
        assert!(left.is_empty(), "left behind: {left:#?}\n{}", self.journal());
    }

    #[track_caller]
    pub fn eventually<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(Instant::now() < end, "it never came true that {what}\n{}", self.journal());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.boot.stdin.take());
        let _ = self.boot.wait();
    }
}

impl Tree {
    /// The steps of docs/systemd.md, and what the members of the tests run on.
    fn install(&self) {
        let project = Path::new(PROJECT);
        self.link("usr/local/bin/guild-hall", Path::new(env!("CARGO_BIN_EXE_guild-hall")));
        for unit in ["guild-hall.service", "guild-hall.socket"] {
            self.link(&format!("etc/systemd/system/{unit}"), &project.join("systemd").join(unit));
        }
        for (to, from) in [
            ("etc/systemd/user/guild-hall.service", "systemd/user/guild-hall.service"),
            ("etc/sysusers.d/guild-hall.conf", "systemd/guild-hall.sysusers.conf"),
            ("etc/sysctl.d/90-guild-hall-ports.conf", "systemd/90-guild-hall-ports.conf"),
            ("opt/members/member.mjs", "tests/systemd/member.mjs"),
            ("opt/members/rogue.py", "tests/members/rogue.py"),
            ("opt/members/honest.py", "tests/members/honest.py"),
            ("opt/members/lies.py", "tests/members/lies.py"),
        ] {
            self.link(to, &project.join(from));
        }
    }

    /// boot.sh copies what links point to.
    fn link(&self, to: &str, from: &Path) {
        let to = self.made(to);
        symlink(from, to).unwrap();
    }

    pub fn write(&self, path: &str, text: &str) {
        fs::write(self.made(path), text).unwrap();
    }

    /// Settings that go over those of the hall's unit.
    pub fn drop_in(&self, service: &str) {
        self.write("etc/systemd/system/guild-hall.service.d/test.conf", &format!("[Service]\n{service}\n"));
    }

    pub fn member(&self, name: &str, command: &[&str], fields: Value) {
        self.member_in("var/lib/guild-hall/guild-members", name, command, fields);
    }

    pub fn member_in(&self, members: &str, name: &str, command: &[&str], fields: Value) {
        let (program, args) = command.split_first().unwrap();
        let mut manifest = json!({
            "name": name, "displayName": name, "description": "A member of a test", "version": "0.1.0",
            "transport": "http", "mcp": {"command": program, "args": args},
        });
        manifest.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self.write(&format!("{members}/{name}/guild-member.json"), &manifest.to_string());
    }

    /// A member of tests/members/rogue.py with these knobs.
    pub fn rogue(&self, name: &str, knobs: &[&str], fields: Value) {
        let command = [PYTHON, "-S", "/opt/members/rogue.py", "--port", "${PORT}"];
        self.member(name, &[&command[..], knobs].concat(), fields);
    }

    fn made(&self, path: &str) -> PathBuf {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }
}

fn pids_below(group: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(group) else { return Vec::new() };
    let mut pids: Vec<String> =
        fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default().lines().map(Into::into).collect();
    for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
        pids.extend(pids_below(&entry.path()));
    }
    pids
}

/// Past the capturing of output: whoever runs the tests must see it.
pub fn left_out<T>(why: &str) -> Option<T> {
    let test = std::thread::current();
    let _ = writeln!(std::io::stderr(), "left out: {}: {why}", test.name().unwrap_or("a test of systemd"));
    None
}
