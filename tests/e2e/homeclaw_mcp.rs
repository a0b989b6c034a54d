//! HomeClaw plugins that are MCP servers: on pipes, and elsewhere.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::hall::{Hall, House, eventually, is_alive};
use crate::mcp::{At, Mcp};
use crate::real_servers::{fixture, start};

/// A server of tests/fixtures, elsewhere; ended with the test.
struct Elsewhere(Child);

impl Elsewhere {
    /// Waits until it accepts connections on this port.
    fn start(command: &str, args: &[&str], port: u16) -> Self {
        let mut launch = Command::new(command);
        launch.args(args).env("PORT", port.to_string()).stdin(Stdio::null());
        let server = Self(launch.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        eventually("the server listens", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        server
    }

    fn fastmcp(port: u16, wire: &str) -> Self {
        let script = format!("{}/tests/fixtures/fastmcp_server.py", env!("CARGO_MANIFEST_DIR"));
        Self::start(&fixture("venv/bin/python"), &[&script, &port.to_string(), wire], port)
    }

    fn everything(port: u16, wire: &str) -> Self {
        let script = fixture("node_modules/@modelcontextprotocol/server-everything/dist/index.js");
        Self::start("node", &[&script, wire], port)
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A plugin that is an MCP server, with this `config`.
fn plugin(house: &House, name: &str, config: Value) -> PathBuf {
    let manifest =
        json!({"id": name, "name": name, "description": "An MCP server", "type": "mcp", "config": config});
    let dir = house.member_dir(name);
    // JSON is YAML.
    fs::write(dir.join("plugin.yaml"), serde_json::to_string_pretty(&manifest).unwrap()).unwrap();
    dir
}

/// A port that no member gets.
fn spare_port(house: &House) -> u16 {
    house.first_port() + 59
}

fn pid(entry: &Value) -> i32 {
    i32::try_from(entry["pid"].as_i64().unwrap()).unwrap()
}

fn kill(mut hall: Hall) {
    hall.signal(Signal::KILL);
    hall.wait();
}

#[test]
fn the_filesystem_server_is_a_plugin_as_it_comes_from_npm() {
    let house = House::new();
    let dir = house.member_dir("files");
    let allowed = dir.join("allowed");
    fs::create_dir(&allowed).unwrap();
    fs::write(allowed.join("note.txt"), "found it").unwrap();
    let config = json!({"transport": "stdio", "command": "mcp-server-filesystem", "args": [allowed], "timeout_sec": 60});
    plugin(&house, "files", config);
    let hall = start(&house, &[]);
    let entry = hall.until("files", "connected");
    assert_eq!((&entry["dialect"], &entry["transport"]), (&json!("homeclaw"), &json!("stdio")));
    let mcp = Mcp::open(&hall, "/mcp");
    let read = |mcp: &Mcp| mcp.text("files__read_text_file", json!({"path": allowed.join("note.txt")}));
    assert_eq!(read(&mcp), "found it");
    let outside = mcp.call("files__read_text_file", json!({"path": "/etc/passwd"}));
    assert_eq!(outside["result"]["isError"], true, "{outside}");

    // A hall that follows finds it as it was.
    kill(hall);
    let hall = start(&house, &[]);
    let again = hall.until("files", "connected");
    assert_eq!((&again["pid"], &again["adopted"]), (&entry["pid"], &json!(true)));
    assert_eq!(read(&Mcp::open(&hall, "/mcp")), "found it");

    // A crash is a crash.
    kill_process(Pid::from_raw(pid(&again)).unwrap(), Signal::KILL).unwrap();
    hall.until_entry("files", "came back", |entry| entry["phase"] == "connected" && entry["restarts"] == 1);
    assert_eq!(read(&Mcp::open(&hall, "/mcp")), "found it");
    hall.stop();
}

/// A remote server that comes, goes and comes again; the porter in front of it stays.
fn comes_and_goes(
    config: impl Fn(u16) -> Value, serve: impl Fn(u16) -> Elsewhere, call: impl Fn(&Mcp) -> String,
) {
    let house = House::new();
    let port = spare_port(&house);
    plugin(&house, "remote", config(port));
    let hall = start(&house, &[]);
    let away = hall.until("remote", "unwell");
    assert!(
        away["error"].as_str().unwrap().contains(&format!("cannot reach http://127.0.0.1:{port}/")),
        "{away}"
    );
    let server = serve(port);
    let there = hall.until("remote", "connected");
    assert_eq!((&there["pid"], &there["restarts"]), (&away["pid"], &json!(0)));
    let mcp = Mcp::open(&hall, "/mcp");
    let answer = call(&mcp);

    // Without the hall nobody has noticed anything.
    kill(hall);
    let hall = start(&house, &[]);
    let again = hall.until("remote", "connected");
    assert_eq!((&again["pid"], &again["adopted"]), (&away["pid"], &json!(true)));
    assert_eq!(call(&Mcp::open(&hall, "/mcp")), answer);

    drop(server);
    let mcp = Mcp::open(&hall, "/mcp");
    let tool = mcp.tools().pop().unwrap();
    let refused = mcp.call(&tool, json!({}));
    assert!(refused.to_string().contains(&format!("127.0.0.1:{port}")), "{refused}");
    hall.until("remote", "unwell");
    let _server = serve(port);
    let back = hall.until("remote", "connected");
    assert_eq!((&back["pid"], &back["restarts"]), (&away["pid"], &json!(0)));
    assert_eq!(call(&Mcp::open(&hall, "/mcp")), answer);
    hall.stop();
    eventually("the porter is gone", || (!is_alive(pid(&away))).then_some(()));
}

#[test]
fn a_fastmcp_server_in_its_sse_mode_is_a_remote_plugin() {
    comes_and_goes(
        |port| json!({"transport": "sse", "base_url": format!("http://127.0.0.1:{port}/sse")}),
        |port| Elsewhere::fastmcp(port, "sse"),
        |mcp| mcp.text("remote__add", json!({"a": 2, "b": 40})),
    );
}

#[test]
fn a_fastmcp_server_that_speaks_streamable_http_is_a_remote_plugin() {
    comes_and_goes(
        |port| json!({"transport": "http", "base_url": format!("http://127.0.0.1:{port}/mcp")}),
        |port| Elsewhere::fastmcp(port, "http"),
        |mcp| mcp.text("remote__add", json!({"a": 2, "b": 40})),
    );
}

#[test]
fn a_remote_server_tells_progress_and_has_a_tool_that_is_meant() {
    for (wire, mode, path) in [("sse", "sse", "sse"), ("http", "streamableHttp", "mcp")] {
        let house = House::new();
        let port = spare_port(&house);
        let _server = Elsewhere::everything(port, mode);
        let url = format!("http://127.0.0.1:{port}/{path}");
        plugin(
            &house,
            "all",
            json!({"transport": wire, "base_url": url, "tool": "echo", "headers": {"X-Test": "1"}}),
        );
        let hall = start(&house, &[]);
        hall.until("all", "connected");
        let mcp = Mcp::open_with(At::Socket(hall.socket.clone()), "/mcp/all", json!({}));
        let params = json!({"name": "trigger-long-running-operation", "arguments": {"duration": 0.1, "steps": 3},
            "_meta": {"progressToken": "mine"}});
        let answer = mcp
            .try_post(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}))
            .unwrap();
        let told: Vec<&Value> =
            answer.messages.iter().filter(|said| said["method"] == "notifications/progress").collect();
        assert_eq!(told.len(), 3, "{wire}: {}", answer.body);
        assert!(told.iter().all(|told| told["params"]["progressToken"] == "mine"), "{}", answer.body);
        let listed = mcp.ask("tools/list", json!({}));
        let echo =
            listed["result"]["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "echo").unwrap();
        assert_eq!(echo["_meta"]["homeclaw/designated"], true, "{wire}: {echo}");
    }
}
