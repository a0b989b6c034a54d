//! A client in a process of its own, which does what it is told: client.mjs and client.py.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::hall::eventually;
use crate::stage::{beside, fixture};

/// An SDK, and the era of the protocol that it is to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    TypeScript2,
    TypeScript2Stateless,
    TypeScript1,
    TypeScriptOfJune2025,
    Python2,
    Python2Stateless,
    PythonOfJune2025,
}

use Kind::*;

pub const KINDS: [Kind; 7] = [
    TypeScript2,
    TypeScript2Stateless,
    TypeScript1,
    TypeScriptOfJune2025,
    Python2,
    Python2Stateless,
    PythonOfJune2025,
];

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            TypeScript2 => "typescript-2",
            TypeScript2Stateless => "typescript-2-stateless",
            TypeScript1 => "typescript-1",
            TypeScriptOfJune2025 => "typescript-2025-06",
            Python2 => "python-2",
            Python2Stateless => "python-2-stateless",
            PythonOfJune2025 => "python-2025-06",
        }
    }

    /// The revision that it and the gateway settle on.
    pub fn protocol(self) -> &'static str {
        match self {
            TypeScript2Stateless | Python2Stateless => "2026-07-28",
            TypeScript2 | TypeScript1 | Python2 => "2025-11-25",
            TypeScriptOfJune2025 | PythonOfJune2025 => "2025-06-18",
        }
    }

    pub fn has_session(self) -> bool {
        self.protocol() != "2026-07-28"
    }

    fn command(self) -> Command {
        let (program, script, first) = match self {
            TypeScript2 | TypeScript2Stateless => ("node".into(), "client.mjs", ["clients/current", "v2"]),
            TypeScript1 => ("node".into(), "client.mjs", ["clients/current", "v1"]),
            TypeScriptOfJune2025 => ("node".into(), "client.mjs", ["clients/2025-06", "v1"]),
            Python2 | Python2Stateless => (fixture("venv/bin/python"), "client.py", ["", ""]),
            PythonOfJune2025 => (fixture("clients/2025-06/venv/bin/python"), "client.py", ["", ""]),
        };
        let mut command = Command::new(program);
        command.arg(beside(script));
        if script == "client.mjs" {
            command.arg(fixture(first[0])).arg(first[1]);
        }
        command.arg(if self.has_session() { "legacy" } else { self.protocol() });
        command.env("PYTHONWARNINGS", "ignore").env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }
}

/// See the module's page. Ended with the test.
pub struct Client {
    pub kind: Kind,
    /// What came of `connect`.
    pub settled: Value,
    child: Child,
    input: Mutex<ChildStdin>,
    said: Arc<Mutex<Vec<Value>>>,
    told: AtomicU64,
}

/// What a client has been told to do, until it is done.
#[derive(Clone, Copy)]
#[must_use]
pub struct Deed(u64);

impl Client {
    #[track_caller]
    pub fn connect(kind: Kind, url: &str, token: &str, answers: Value) -> Self {
        let mut child = kind.command().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take().unwrap().into();
        let said = Arc::<Mutex<Vec<Value>>>::default();
        let (output, heard) = (BufReader::new(child.stdout.take().unwrap()), said.clone());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let fact = serde_json::from_str(&line).unwrap_or_else(|_| json!({"odd": line}));
                heard.lock().unwrap().push(fact);
            }
            heard.lock().unwrap().push(json!({"over": true}));
        });
        let mut client = Self { kind, settled: Value::Null, child, input, said, told: AtomicU64::new(1) };
        let name = kind.name();
        client.settled = client
            .does(json!({"do": "connect", "url": url, "token": token, "name": name, "answers": answers}));
        client
    }

    /// Tells it to do something.
    pub fn begins(&self, mut deed: Value) -> Deed {
        let n = self.told.fetch_add(1, Ordering::Relaxed);
        deed["n"] = json!(n);
        writeln!(self.input.lock().unwrap(), "{deed}").unwrap();
        Deed(n)
    }

    /// What comes of it in the end.
    #[track_caller]
    pub fn outcome(&self, deed: Deed) -> Result<Value, Value> {
        self.until("answers", |fact| {
            if fact["n"] != deed.0 {
                return None;
            }
            fact.get("ok").cloned().map(Ok).or_else(|| fact.get("failed").cloned().map(Err))
        })
    }

    #[track_caller]
    pub fn does(&self, deed: Value) -> Value {
        let told = deed.to_string();
        let begun = self.begins(deed);
        let outcome = self.outcome(begun);
        outcome.unwrap_or_else(|failed| panic!("{}: {told}: {failed}\n{:#?}", self.kind.name(), self.facts()))
    }

    /// Waits until it has said something that `look` makes something of.
    #[track_caller]
    pub fn until<T>(&self, what: &str, look: impl Fn(&Value) -> Option<T>) -> T {
        eventually(&format!("{} {what}; it said {:#?}", self.kind.name(), Lazily(self)), || {
            self.said.lock().unwrap().iter().find_map(&look)
        })
    }

    /// Waits until it hears this notification, after it has said so many facts.
    #[track_caller]
    pub fn hears(&self, method: &str, after: usize) -> Value {
        eventually(&format!("{} hears {method}", self.kind.name()), || {
            let said = self.said.lock().unwrap();
            said.iter().skip(after).find(|fact| fact["heard"] == method).map(|fact| fact["params"].clone())
        })
    }

    pub fn facts(&self) -> Vec<Value> {
        self.said.lock().unwrap().clone()
    }

    /// What it was told of the progress of a call, in this order.
    pub fn progress(&self, call: Deed) -> Vec<Value> {
        let of_call = |fact: Value| (fact["n"] == call.0).then(|| fact.get("progress").cloned()).flatten();
        self.facts().into_iter().filter_map(of_call).collect()
    }

    /// What it was asked, by method.
    pub fn asked(&self, method: &str) -> Vec<Value> {
        let asked = self.facts().into_iter().filter(|fact| fact["asked"] == method);
        asked.map(|fact| fact["params"].clone()).collect()
    }

    pub fn calling(&self, tool: &str, arguments: Value) -> Deed {
        self.begins(json!({"do": "call", "name": tool, "arguments": arguments}))
    }

    #[track_caller]
    pub fn calls(&self, tool: &str, arguments: Value) -> String {
        text(&self.does(json!({"do": "call", "name": tool, "arguments": arguments})))
    }

    pub fn cancels(&self, call: Deed) {
        self.does(json!({"do": "cancel", "call": call.0}));
    }
}

/// Of a result with one text.
#[track_caller]
pub fn text(result: &Value) -> String {
    let text =
        result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {result}")).to_owned();
    assert_ne!(result["isError"], true, "{text}");
    text
}

/// The facts of a client, written out only when they are shown.
struct Lazily<'a>(&'a Client);

impl std::fmt::Debug for Lazily<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.facts().fmt(f)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
