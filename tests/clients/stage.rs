//! A hall with three members behind one URL: one that asks its client things, on FastMCP; one that is not ours at
//! all, from npm; and the one inside the binary, which keeps nothing for anybody.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::client::{Client, KINDS, Kind};
use crate::hall::{Hall, House, eventually, example};

pub struct Stage {
    pub house: House,
    pub hall: Hall,
    /// Stays the same for all halls of this house.
    address: String,
}

/// A path below the fixtures, which must be there.
#[track_caller]
pub fn fixture(path: &str) -> String {
    let in_target = || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/fixtures");
    let fixtures = std::env::var_os("GUILD_HALL_FIXTURES").map_or_else(in_target, PathBuf::from);
    let found = std::path::absolute(fixtures.join(path)).unwrap();
    assert!(found.exists(), "{} is not there: run ./tests/run, which installs it", found.display());
    found.display().to_string()
}

/// A file beside this one.
pub fn beside(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name).display().to_string()
}

impl Stage {
    pub fn new() -> Self {
        let house = House::new();
        let launched_by = |command: String, args: Value| json!({"mcp": {"command": command, "args": args}, "startTimeoutMs": 60_000});
        let python = fixture("venv/bin/python");
        house.member("asking", launched_by(python, json!([beside("asking.py"), "${PORT}"])));
        let everything = fixture("node_modules/@modelcontextprotocol/server-everything/dist/index.js");
        house.member("everything", launched_by("node".into(), json!([everything, "streamableHttp"])));
        house.member("plain", example());
        // The last of the house's own ports: no member of three comes so far.
        let port = house.first_port() + 59;
        let address = format!("127.0.0.1:{port}");
        let hall = house.start_with(&["--listen", &address]);
        let stage = Self { house, hall, address };
        stage.until_connected();
        stage
    }

    pub fn until_connected(&self) {
        for member in ["asking", "everything", "plain"] {
            self.hall.until(member, "connected");
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub fn token(&self) -> String {
        fs::read_to_string(self.house.run_dir().join("token")).unwrap().trim().to_owned()
    }

    /// One client of each kind, each with answers of its own.
    pub fn clients(&self) -> Vec<Client> {
        std::thread::scope(|scope| {
            let coming: Vec<_> = KINDS.iter().map(|kind| scope.spawn(|| self.client(*kind))).collect();
            coming.into_iter().map(|client| client.join().unwrap()).collect()
        })
    }

    /// The same of those with a session.
    pub fn clients_with_session(&self) -> Vec<Client> {
        std::thread::scope(|scope| {
            let kinds = KINDS.iter().filter(|kind| kind.has_session());
            let coming: Vec<_> = kinds.map(|kind| scope.spawn(|| self.client(*kind))).collect();
            coming.into_iter().map(|client| client.join().unwrap()).collect()
        })
    }

    pub fn client(&self, kind: Kind) -> Client {
        let name = kind.name();
        self.client_with(
            kind,
            json!({
                "sampling": format!("{name} samples"),
                "elicitation": format!("{name} elicits"),
                "roots": [format!("file:///{name}")],
            }),
        )
    }

    /// A client that can be asked what it has answers to.
    pub fn client_with(&self, kind: Kind, answers: Value) -> Client {
        Client::connect(kind, &self.url(), &self.token(), answers)
    }

    /// SIGKILL, and another hall on the same directory and address.
    pub fn kill_and_start_again(&mut self) {
        self.hall.signal(Signal::KILL);
        self.hall.wait();
        self.hall = self.house.start_with(&["--listen", &self.address]);
        self.until_connected();
    }

    /// SIGUSR2, and the next image has taken over.
    pub fn hand_over(&self) {
        let images = || self.hall.log().matches("the hall is up").count();
        let before = images();
        self.hall.signal(Signal::USR2);
        eventually("the next image has taken over", || (images() > before).then_some(()));
    }

    /// Runs a verb, which must succeed.
    #[track_caller]
    pub fn cli(&self, args: &[&str]) {
        let output = self.house.cli(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// A path for a tool that leaves marks.
    pub fn mark(&self, name: &str) -> String {
        self.house.run_dir().join(format!("mark-{name}")).display().to_string()
    }
}

/// Does the same with all clients, each on a thread of its own; a panic names the client.
#[track_caller]
pub fn all_at_once(clients: &[Client], deed: impl Fn(&Client) + Sync) {
    std::thread::scope(|scope| {
        let deeds: Vec<_> = clients
            .iter()
            .map(|client| {
                let deed = &deed;
                let name = client.kind.name();
                std::thread::Builder::new()
                    .name(name.into())
                    .spawn_scoped(scope, move || deed(client))
                    .unwrap()
            })
            .collect();
        let failed = deeds.into_iter().filter_map(|deed| deed.join().err());
        if let Some(panic) = failed.last() {
            std::panic::resume_unwind(panic);
        }
    });
}
