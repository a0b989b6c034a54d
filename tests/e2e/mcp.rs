//! The smallest client of the gateway: one connection a request, over the socket or TCP.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::hall::{BINARY, Hall};

/// Where the gateway is reached.
#[derive(Clone)]
pub enum At {
    Socket(PathBuf),
    Tcp(String),
}

/// A client with a session.
#[derive(Clone)]
pub struct Mcp {
    pub at: At,
    pub path: String,
    pub session: String,
}

/// What an HTTP request was answered.
pub struct Answer {
    pub status: u16,
    pub head: String,
    /// Each message, of a body or of a stream.
    pub messages: Vec<Value>,
    pub body: String,
}

pub trait ReadWrite: Read + Write + Send {}
impl<T: Read + Write + Send> ReadWrite for T {}

impl At {
    fn open(&self) -> Option<Box<dyn ReadWrite>> {
        match self {
            Self::Socket(path) => {
                let stream = UnixStream::connect(path).ok()?;
                stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                Some(Box::new(stream))
            }
            Self::Tcp(address) => {
                let stream = TcpStream::connect(address).ok()?;
                stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                Some(Box::new(stream))
            }
        }
    }

    /// `None` if the hall is not there or hangs up.
    pub fn http(&self, verb: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Option<Answer> {
        let mut stream = self.send(verb, path, headers, body)?;
        let mut whole = Vec::new();
        stream.read_to_end(&mut whole).ok()?;
        Answer::read(&String::from_utf8(whole).unwrap())
    }

    /// The request is out; what is answered can be read.
    pub fn send(
        &self, verb: &str, path: &str, headers: &[(&str, &str)], body: &str,
    ) -> Option<Box<dyn ReadWrite>> {
        let mut stream = self.open()?;
        let mut head =
            format!("{verb} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
        if !headers.iter().any(|(name, _)| *name == "host") {
            head += "host: localhost\r\n";
        }
        head += "content-type: application/json\r\naccept: application/json, text/event-stream\r\n";
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).ok()?;
        Some(stream)
    }
}

impl Answer {
    pub fn read(text: &str) -> Option<Self> {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let body = if head.to_lowercase().contains("transfer-encoding: chunked") {
            dechunked(body)
        } else {
            body.into()
        };
        let messages = if head.contains("text/event-stream") {
            body.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect()
        } else {
            serde_json::from_str(&body).into_iter().collect()
        };
        Some(Self { status, head: head.into(), messages, body })
    }

    /// The answer to the request.
    pub fn last(&self) -> &Value {
        self.messages.last().unwrap_or(&Value::Null)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

fn dechunked(body: &str) -> String {
    let (mut whole, mut rest) = (String::new(), body);
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        let Some(piece) = after.get(..size).filter(|piece| !piece.is_empty()) else { break };
        whole += piece;
        rest = after.get(size + 2..).unwrap_or("");
    }
    whole
}

impl Mcp {
    pub fn open(hall: &Hall, path: &str) -> Self {
        Self::open_with(At::Socket(hall.socket.clone()), path, json!({}))
    }

    pub fn open_with(at: At, path: &str, capabilities: Value) -> Self {
        let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": capabilities,
            "clientInfo": {"name": "test", "version": "1"}}});
        let answer = at.http("POST", path, &[], &body.to_string()).expect("the hall answers");
        assert_eq!(answer.status, 200, "{}", answer.body);
        let session = answer.header("mcp-session-id").expect("a session").to_owned();
        Self { at, path: path.into(), session }
    }

    pub fn try_post(&self, body: &Value) -> Option<Answer> {
        let headers = [("mcp-session-id", &*self.session), ("mcp-protocol-version", "2025-11-25")];
        self.at.http("POST", &self.path, &headers, &body.to_string())
    }

    /// The whole answer to a request.
    pub fn ask(&self, method: &str, params: Value) -> Value {
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        let answer = self.try_post(&body).expect("the hall answers");
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.last().clone()
    }

    pub fn call(&self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    pub fn text(&self, tool: &str, arguments: Value) -> String {
        let answer = self.call(tool, arguments);
        answer["result"]["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("no text in {answer}"))
            .to_owned()
    }

    pub fn tools(&self) -> Vec<String> {
        let answer = self.ask("tools/list", json!({}));
        let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("no list in {answer}"));
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// The stream of the session: reads one message after the other.
    pub fn stream(&self) -> impl FnMut() -> Option<Value> + use<> {
        let headers = [("mcp-session-id", &*self.session)];
        let stream = self.at.send("GET", &self.path, &headers, "").unwrap();
        let mut lines = BufReader::new(stream);
        move || {
            let mut line = String::new();
            loop {
                line.clear();
                if lines.read_line(&mut line).ok()? == 0 {
                    return None;
                }
                if let Some(data) = line.trim_end().strip_prefix("data: ") {
                    return serde_json::from_str(data).ok();
                }
            }
        }
    }

    /// Calls a tool; the answer can be read as it comes.
    pub fn begin(&self, tool: &str) -> Box<dyn ReadWrite> {
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": tool, "arguments": {}}});
        let headers = [("mcp-session-id", &*self.session), ("mcp-protocol-version", "2025-11-25")];
        self.at.send("POST", &self.path, &headers, &body.to_string()).unwrap()
    }

    /// Sends a request and hangs up without waiting for the answer.
    pub fn abandon(&self, method: &str, params: Value, until: impl FnOnce()) {
        let body = json!({"jsonrpc": "2.0", "id": 9, "method": method, "params": params}).to_string();
        let headers = [("mcp-session-id", &*self.session)];
        let stream = self.at.send("POST", &self.path, &headers, &body).unwrap();
        until();
        drop(stream);
    }
}

/// A client over stdio: `guild-hall mcp`.
pub struct Pipe {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    number: u64,
}

impl Pipe {
    /// Has a session.
    pub fn open(hall: &Hall) -> Self {
        let mut command = Command::new(BINARY);
        command.args(["mcp", "--socket"]).arg(&hall.socket).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut pipe = Self { child, input, lines, number: 0 };
        let opened = pipe.ask(
            "initialize",
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "pipe", "version": "1"}}),
        );
        assert_eq!(opened["result"]["protocolVersion"], "2025-06-18", "{opened}");
        writeln!(pipe.input, "{}", json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).unwrap();
        pipe
    }

    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let asked = json!({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params});
        writeln!(self.input, "{asked}").unwrap();
        loop {
            let said: Value = serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap();
            if said["id"] == self.number {
                return said;
            }
        }
    }

    pub fn close(mut self) {
        drop(self.input);
        assert!(self.child.wait().unwrap().success());
    }
}

/// A request of the revision without sessions.
pub fn stateless(at: &At, path: &str, method: &str, params: Value) -> Answer {
    let mut params = params;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"}});
    let name =
        params.get("name").or(params.get("uri")).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut headers = vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
    if !name.is_empty() {
        headers.push(("mcp-name", &name));
    }
    let body = json!({"jsonrpc": "2.0", "id": 5, "method": method, "params": params});
    at.http("POST", path, &headers, &body.to_string()).expect("the hall answers")
}
