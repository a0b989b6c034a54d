//! `connect`: what it prints can be pasted, and what it cannot say it says.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::hall::{BINARY, House, example};
use crate::traces::{done, printed};

const CLIENTS: [&str; 6] = ["claude-code", "claude-desktop", "cursor", "vscode", "codex", "goose"];

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The one server in a configuration, by its name there.
#[track_caller]
fn server(configuration: &Value) -> (&str, &Value) {
    let servers = configuration.as_object().unwrap().values().next().unwrap().as_object().unwrap();
    assert_eq!(servers.len(), 1, "{configuration}");
    let (name, entry) = servers.iter().next().unwrap();
    (name, entry)
}

/// The command line in a server's entry.
fn command_line(entry: &Value) -> Vec<&str> {
    let command = entry.get("command").or(entry.get("cmd")).unwrap();
    [command]
        .into_iter()
        .chain(entry["args"].as_array().unwrap())
        .map(|word| word.as_str().unwrap())
        .collect()
}

#[track_caller]
fn fails(output: &Output, code: i32, words: &[&str]) {
    let said = printed(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(output.stdout.is_empty(), "nothing to paste: {said}");
    for word in words {
        assert!(said.contains(word), "it should say {word:?}: {said}");
    }
}

/// The URL and the headers in a server's entry.
fn address(entry: &Value) -> (&str, Vec<(&str, &str)>) {
    let url = entry.get("url").or(entry.get("uri")).unwrap().as_str().unwrap();
    let headers = entry.get("headers").or(entry.get("http_headers")).and_then(Value::as_object);
    let headers = headers.into_iter().flatten().map(|(name, value)| (name.as_str(), value.as_str().unwrap()));
    (url, headers.collect())
}

/// Asks for the tools as a client would that has nothing but this; the status, and the names of the tools.
fn tools_at(url: &str, headers: &[(&str, &str)]) -> (u16, Vec<String>) {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}).to_string();
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = format!(
        "POST /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\naccept: application/json, text/event-stream\r\n\
         content-type: application/json\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: tools/list\r\n\
         content-length: {}\r\n{headers}\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(host).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let message = answer.find("{\"").map(|at| &answer[at..]).unwrap_or_default();
    let message: Value = serde_json::Deserializer::from_str(message).into_iter().next().unwrap().unwrap();
    let tools = message["result"]["tools"].as_array().cloned().unwrap_or_default();
    (status, tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect())
}

const OVER_HTTP: [&str; 5] = ["claude-code", "cursor", "vscode", "codex", "goose"];
const ANY_PORT: [&str; 2] = ["--listen", "127.0.0.1:0"];

#[test]
fn what_a_client_is_given_leads_to_the_tools() {
    let house = House::new();
    house.member("box/my-member", example());
    let hall = house.start_with(&ANY_PORT);
    hall.until("box/my-member", "connected");
    for client in OVER_HTTP {
        let configuration = parsed(&done(&house, &["connect", client, "--json"]));
        let (name, entry) = server(&configuration);
        assert_eq!(name, "guild-hall");
        let (url, headers) = address(entry);
        let (status, tools) = tools_at(url, &headers);
        assert_eq!((status, tools.len()), (200, 2), "{client}: {tools:?}");
        assert!(tools.iter().all(|tool| tool.contains("__")), "{client}: {tools:?}");
        assert_eq!(tools_at(url, &[]).0, 401, "{client}");

        let one =
            parsed(&done(&house, &["connect", client, "--http", "--json", "--member", "box/my-member"]));
        let (url, headers) = address(server(&one).1);
        assert!(url.ends_with("/mcp/box%2Fmy-member"), "{url}");
        let (status, mut tools) = tools_at(url, &headers);
        tools.sort();
        assert_eq!((status, tools), (200, vec!["add".to_owned(), "echo".to_owned()]), "{client}");
    }
    let printed = house.cli(&["connect", "claude-code"]);
    let token = std::fs::read_to_string(house.run_dir().join("token")).unwrap();
    let ends = format!("/mcp --header 'Authorization: Bearer {}'\n", token.trim());
    let command = String::from_utf8_lossy(&printed.stdout);
    assert!(command.starts_with("claude mcp add ") && command.ends_with(&ends), "{command}");
    let said = String::from_utf8_lossy(&printed.stderr);
    assert!(said.contains("secret") && !said.contains(token.trim()), "{said}");
    hall.stop();
}

#[test]
fn a_client_that_cannot_send_a_token_is_given_a_command() {
    let house = House::new();
    let hall = house.start_with(&ANY_PORT);
    for args in [&["connect", "claude-desktop"][..], &["connect", "cursor", "--stdio"]] {
        let output = house.cli(args);
        assert!(output.status.success(), "{}", printed(&output));
        let configuration = parsed(&String::from_utf8_lossy(&output.stdout));
        assert_eq!(command_line(server(&configuration).1)[1], "mcp");
        assert!(!printed(&output).contains("secret") && !printed(&output).contains("Bearer"));
    }
    hall.stop();
}

#[test]
fn a_hall_that_asks_for_no_token_gives_none() {
    let house = House::new();
    house.member("example", example());
    let hall = house.start_with(&[&ANY_PORT[..], &["--no-auth"]].concat());
    hall.until("example", "connected");
    let output = house.cli(&["connect", "vscode"]);
    assert!(output.status.success(), "{}", printed(&output));
    let configuration = parsed(&String::from_utf8_lossy(&output.stdout));
    let (url, headers) = address(server(&configuration).1);
    assert_eq!(headers, []);
    assert_eq!(tools_at(url, &[]).1.len(), 2);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--no-auth"), "{}", printed(&output));
    hall.stop();
}

#[test]
fn every_client_can_start_the_gateway_over_stdio() {
    let house = House::new();
    house.member("box/my member", example());
    let hall = house.start();
    let socket = house.run_dir().join("guild-hall.sock").display().to_string();
    for client in CLIENTS {
        let configuration = parsed(&done(&house, &["connect", client, "--stdio", "--json"]));
        let (name, entry) = server(&configuration);
        assert_eq!(name, "guild-hall");
        assert_eq!(command_line(entry), [BINARY, "mcp", "--socket", &socket], "{client}");

        let one = ["connect", client, "--stdio", "--json", "--member", "box/my member"];
        let configuration = parsed(&done(&house, &one));
        let (name, entry) = server(&configuration);
        assert_eq!(name, "box-my-member");
        let wanted = [BINARY, "mcp", "--socket", &socket, "--member", "box/my member"];
        assert_eq!(command_line(entry), wanted, "{client}");
    }
    hall.stop();
}

#[test]
fn what_is_printed_for_people_is_the_clients_own_format_and_nothing_else() {
    let house = House::new();
    let _hall = house.start();
    let socket = house.run_dir().join("guild-hall.sock").display().to_string();
    for client in ["claude-desktop", "cursor", "vscode"] {
        let plain = done(&house, &["connect", client, "--stdio"]);
        assert_eq!(plain, done(&house, &["connect", client, "--stdio", "--json"]));
    }
    let command = done(&house, &["connect", "claude-code", "--stdio"]);
    let wanted = format!(
        "claude mcp add --scope user --transport stdio guild-hall -- {BINARY} mcp --socket {socket}\n"
    );
    assert_eq!(command, wanted);
    let toml = done(&house, &["connect", "codex", "--stdio"]);
    let wanted = format!(
        "[mcp_servers.guild-hall]\ncommand = \"{BINARY}\"\nargs = [\"mcp\", \"--socket\", \"{socket}\"]\n"
    );
    assert_eq!(toml, wanted);
    let yaml = done(&house, &["connect", "goose", "--stdio"]);
    for line in ["extensions:", "  guild-hall:", "    type: \"stdio\"", &format!("    cmd: \"{BINARY}\"")] {
        assert!(yaml.lines().any(|printed| printed == line), "{line:?} is not in {yaml}");
    }
    let output = house.cli(&["connect", "cursor", "--stdio"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("~/.cursor/mcp.json"), "{}", printed(&output));
}

#[test]
fn a_hall_that_listens_on_its_socket_alone_offers_that() {
    let house = House::new();
    let _hall = house.start();
    let output = house.cli(&["connect", "cursor"]);
    assert!(output.status.success(), "{}", printed(&output));
    let configuration = parsed(&String::from_utf8_lossy(&output.stdout));
    assert_eq!(server(&configuration).1["type"], "stdio");
    assert!(String::from_utf8_lossy(&output.stderr).contains("socket alone"), "{}", printed(&output));
    fails(&house.cli(&["connect", "cursor", "--http"]), 1, &["--listen", "--http"]);
}

#[test]
fn a_relative_socket_is_told_in_full() {
    let house = House::new();
    let _hall = house.start();
    let output = house.cli(&["connect", "cursor", "--json", "--socket", "run/guild-hall.sock"]);
    assert!(output.status.success(), "{}", printed(&output));
    let configuration = parsed(&String::from_utf8_lossy(&output.stdout));
    let socket = command_line(server(&configuration).1)[3];
    assert!(Path::new(socket).is_absolute() && Path::new(socket).exists(), "{socket}");
}

#[test]
fn without_a_client_all_are_listed_and_no_hall_is_needed() {
    let house = House::new();
    let table = done(&house, &["connect"]);
    let listed = parsed(&done(&house, &["connect", "--json"]));
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.iter().map(|client| client["client"].as_str().unwrap()).collect::<Vec<_>>(), CLIENTS);
    for client in listed {
        let (word, file) = (client["client"].as_str().unwrap(), client["file"].as_str().unwrap());
        assert!(table.lines().any(|line| line.starts_with(word) && line.contains(file)), "{word}: {table}");
    }
    assert_eq!(listed[3]["projectFile"], json!(".vscode/mcp.json"));
}

#[test]
fn what_cannot_be_connected_is_said_with_the_next_step() {
    let house = House::new();
    fails(&house.cli(&["connect", "cursor"]), 3, &["no hall is running", "guild-hall run"]);
    fails(&house.cli(&["connect", "curser"]), 2, &["curser", "similar value exists: 'cursor'"]);
    fails(&house.cli(&["connect", "claude-desktop", "--http"]), 2, &["Claude Desktop", "leave --http out"]);
    fails(&house.cli(&["connect", "cursor", "--http", "--stdio"]), 2, &["--http", "--stdio"]);
    let _hall = house.start();
    fails(&house.cli(&["connect", "cursor", "--member", "nobody"]), 4, &["nobody"]);
}
