//! A hall of a test's own: its directories, its ports, its members; ended with the test.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

pub const BINARY: &str = env!("CARGO_BIN_EXE_guild-hall");
/// Whatever a test waits for comes long before; a busy machine may take its time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Looks until `look` finds something. The only place in the tests that lets time pass.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "it never came true that {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A directory of members, a run directory and a range of ports that no other test uses.
pub struct House {
    dir: TempDir,
    ports: PortWindow,
}

/// A running hall in a house.
pub struct Hall {
    pub child: Child,
    pub socket: PathBuf,
    log: PathBuf,
}

impl House {
    pub fn new() -> Self {
        Self {
            dir: tempfile::Builder::new().prefix("guild-hall-test-").tempdir().unwrap(),
            ports: PortWindow::take(),
        }
    }

    pub fn members(&self) -> PathBuf {
        self.made("members")
    }

    pub fn run_dir(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    /// Ports of this test: `first..first + PortWindow::SIZE`.
    pub fn first_port(&self) -> u16 {
        self.ports.first
    }

    /// The directory of a member, made if it is not there.
    pub fn member_dir(&self, name: &str) -> PathBuf {
        self.made(&format!("members/{name}"))
    }

    /// Writes the manifest of a member; `mcp` and whatever else is given goes over the defaults.
    pub fn member(&self, name: &str, fields: Value) -> PathBuf {
        let short = name.rsplit('/').next().unwrap();
        let mut manifest = json!({
            "name": short, "displayName": short, "description": "A member of a test", "version": "0.1.0", "transport": "http",
        });
        manifest.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let dir = self.member_dir(name);
        fs::write(dir.join("guild-member.json"), serde_json::to_string_pretty(&manifest).unwrap()).unwrap();
        dir
    }

    /// A member of tests/members/rogue.py with these knobs.
    pub fn rogue(&self, name: &str, knobs: &[&str]) -> PathBuf {
        self.rogue_with(name, knobs, json!({}))
    }

    /// The same with further fields in the manifest.
    pub fn rogue_with(&self, name: &str, knobs: &[&str], fields: Value) -> PathBuf {
        let mut all = fields.as_object().unwrap().clone();
        all.insert("mcp".into(), rogue_mcp(knobs));
        self.member(name, Value::Object(all))
    }

    /// Starts the hall and waits until it answers.
    pub fn start(&self) -> Hall {
        self.start_with(&[])
    }

    pub fn start_with(&self, flags: &[&str]) -> Hall {
        self.start_command(Command::new(BINARY), flags)
    }

    /// The hall as the last part of some other command (`setpriv …`).
    pub fn start_command(&self, command: Command, flags: &[&str]) -> Hall {
        let mut hall = self.spawn(command, flags);
        eventually("the hall answers on its socket", || {
            if let Some(status) = hall.child.try_wait().unwrap() {
                panic!("the hall ended with {status}:\n{}", hall.log());
            }
            // Not merely a connection: a child that a dead hall had not finished starting may hold its socket.
            hall.try_http("GET", "/healthz", "").filter(|(status, _)| *status == 200)
        });
        hall
    }

    /// The same, but nothing is waited for.
    pub fn spawn(&self, mut command: Command, flags: &[&str]) -> Hall {
        let log = self.dir.path().join("hall.log");
        let output = fs::File::options().append(true).create(true).open(&log).unwrap();
        let child = command
            .arg("run")
            .arg("--members")
            .arg(self.members())
            .arg("--run-dir")
            .arg(self.run_dir())
            .args(["--listen", "none", "--ports", &self.ports.range()])
            .args(flags)
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        Hall { child, socket: self.run_dir().join("guild-hall.sock"), log }
    }

    /// Runs a verb of the binary against this house.
    pub fn cli(&self, args: &[&str]) -> Output {
        let mut command = Command::new(BINARY);
        command.args(args).current_dir(self.dir.path()).env_remove("RUST_BACKTRACE").env("NO_COLOR", "1");
        command.env("GUILD_HALL_SOCKET", self.run_dir().join("guild-hall.sock"));
        command.stdin(Stdio::null()).output().unwrap()
    }

    fn made(&self, below: &str) -> PathBuf {
        let path = self.dir.path().join(below);
        fs::create_dir_all(&path).unwrap();
        path
    }
}

/// A manifest of the member inside the binary, which is there in milliseconds.
pub fn example() -> Value {
    json!({"mcp": {"command": "${GUILD_HALL}", "args": ["example-member", "--port", "${PORT}"]}})
}

/// `mcp` of a manifest that runs tests/members/rogue.py with these knobs.
pub fn rogue_mcp(knobs: &[&str]) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/members/rogue.py");
    let mut args = vec!["-S".to_owned(), script.display().to_string(), "--port".into(), "${PORT}".into()];
    args.extend(knobs.iter().map(ToString::to_string));
    json!({"command": python(), "args": args})
}

/// The real interpreter: a version manager's shim costs more than the member itself.
pub fn python() -> &'static str {
    static PYTHON: OnceLock<String> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let asked = Command::new("python3")
            .args(["-c", "import sys; print(sys.executable)"])
            .output()
            .expect("python3 is needed");
        String::from_utf8(asked.stdout).unwrap().trim().to_owned()
    })
}

impl Hall {
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the hall to end.
    pub fn wait(&mut self) -> ExitStatus {
        eventually("the hall ends", || self.child.try_wait().unwrap())
    }

    /// SIGTERM, and it must end as it should.
    pub fn stop(mut self) {
        self.signal(Signal::TERM);
        let status = self.wait();
        assert!(status.success(), "the hall ended with {status}:\n{}", self.log());
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn get(&self, path: &str) -> (u16, Value) {
        self.http("GET", path, "")
    }

    pub fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.http("POST", path, &body.to_string())
    }

    /// One request on a connection of its own; the body as JSON, or as a string where it is none.
    pub fn http(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        self.try_http(method, path, body).unwrap_or_else(|| {
            let hall = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
            panic!("no HTTP answer to {path}:\n{}\nthe hall:\n{hall}", self.log())
        })
    }

    /// The same, of a hall that may be gone before it has answered.
    pub fn try_http(&self, method: &str, path: &str, body: &str) -> Option<(u16, Value)> {
        let mut stream = UnixStream::connect(&self.socket).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: hall\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.into()))))
    }

    /// For a hall in a mount namespace of its own.
    pub fn look_through_its_mounts(&mut self) {
        self.socket = PathBuf::from(format!("/proc/{}/root{}", self.pid(), self.socket.display()));
    }

    /// `None` where the queue of the socket is full and stays so.
    pub fn connect_if_it_can(&self) -> Option<UnixStream> {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let address = SocketAddrUnix::new(&self.socket).unwrap();
        connect(&socket, &address).ok()?;
        Some(socket.into())
    }

    pub fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// The entry of one member, as it is now.
    #[track_caller]
    pub fn entry(&self, name: &str) -> Value {
        let (status, entry) =
            self.get(&format!("/v1/roster/{}", name.replace('/', "%2F").replace('?', "%3F")));
        assert_eq!(status, 200, "{entry}");
        entry
    }

    /// Waits until a member is in this phase, and returns its entry.
    #[track_caller]
    pub fn until(&self, name: &str, phase: &str) -> Value {
        self.until_entry(name, &format!("is {phase}"), |entry| entry["phase"] == phase)
    }

    /// Waits until a member's entry looks as wanted, and returns it.
    #[track_caller]
    pub fn until_entry(&self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            last = self.entry(name);
            if wanted(&last) {
                return last;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("{name} never {what}; it is {last:#}\n{}", self.log());
    }

    /// Calls a tool over the API.
    pub fn call(&self, member: &str, tool: &str, arguments: Value) -> (u16, Value) {
        self.post("/v1/call", &json!({"member": member, "tool": tool, "arguments": arguments}))
    }

    /// Calls a tool that answers with one text.
    #[track_caller]
    pub fn call_text(&self, member: &str, tool: &str, arguments: Value) -> String {
        let (status, answer) = self.call(member, tool, arguments);
        assert_eq!(status, 200, "{answer}");
        answer["result"]["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("no text in {answer}"))
            .to_owned()
    }
}

impl Drop for Hall {
    fn drop(&mut self) {
        for signal in [Signal::TERM, Signal::TERM, Signal::KILL] {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            let _ = kill_process(Pid::from_child(&self.child), signal);
            let end = Instant::now() + Duration::from_secs(10);
            while Instant::now() < end && matches!(self.child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

/// Ports outside the ephemeral range that one test has for itself, across all test processes of
/// this machine: the name of an abstract socket is the lock.
struct PortWindow {
    first: u16,
    _lock: UnixListener,
}

impl PortWindow {
    const SIZE: u16 = 60;
    const FIRST: u16 = 20_000;
    const WINDOWS: u16 = 190;

    fn take() -> Self {
        let start = u16::try_from(std::process::id() % u32::from(Self::WINDOWS)).unwrap();
        eventually("a window of ports is free", || {
            (0..Self::WINDOWS).find_map(|n| {
                let window = (start + n) % Self::WINDOWS;
                let name = SocketAddr::from_abstract_name(format!("guild-hall-test-ports-{window}")).unwrap();
                let lock = UnixListener::bind_addr(&name).ok()?;
                let first = Self::FIRST + window * Self::SIZE;
                // Programs that are none of ours may have ports here.
                let is_free = |port| TcpListener::bind(("0.0.0.0", port)).is_ok();
                (first..first + Self::SIZE).all(is_free).then_some(Self { first, _lock: lock })
            })
        })
    }

    fn range(&self) -> String {
        format!("{}-{}", self.first, self.first + Self::SIZE - 1)
    }
}

/// True while a process with this number runs (a zombie does not).
pub fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}
