//! What an SDK does not show: how the gateway ends what it has begun.

use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::hall::{Hall, eventually};
use crate::stage::Stage;

/// Sends a request and reads to the end of the answer: its head and its body.
#[track_caller]
fn post(hall: &Hall, session: Option<&str>, message: &Value) -> (String, String) {
    let mut stream = hall.connect();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (body, session) = (message.to_string(), session.map(|id| format!("mcp-session-id: {id}\r\n")));
    let request = format!(
        "POST /mcp HTTP/1.1\r\nhost: hall\r\nconnection: close\r\naccept: application/json, text/event-stream\r\n\
         content-type: application/json\r\n{}content-length: {}\r\n\r\n{body}",
        session.unwrap_or_default(),
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer);
    assert!(read.is_ok(), "the answer to {message} has no end: {read:?}");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[track_caller]
fn initialize(hall: &Hall) -> String {
    let (head, _) = post(
        hall,
        None,
        &json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {"sampling": {}}, "clientInfo": {"name": "raw", "version": "1"},
        }}),
    );
    let id = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
    id.unwrap_or_else(|| panic!("no session in {head}")).to_owned()
}

fn calling(id: u64, tool: &str, arguments: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
        "name": tool, "arguments": arguments, "_meta": {"progressToken": id},
    }})
}

#[test]
fn the_stream_of_a_call_ends_with_its_answer() {
    let stage = Stage::new();
    let session = initialize(&stage.hall);
    let (head, body) = post(&stage.hall, Some(&session), &calling(1, "asking__count", json!({"to": 2})));
    assert!(head.contains("text/event-stream"), "{head}");
    assert!(body.contains("counted to 2"), "{body}");
}

#[test]
fn a_call_that_is_cancelled_before_it_has_said_anything_ends() {
    let stage = Stage::new();
    let session = initialize(&stage.hall);
    let mark = stage.mark("raw");
    std::thread::scope(|scope| {
        let waiting = scope
            .spawn(|| post(&stage.hall, Some(&session), &calling(1, "asking__wait", json!({"mark": mark}))));
        eventually("the member works on it", || Path::new(&format!("{mark}.begun")).exists().then_some(()));
        let cancelled =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
        post(&stage.hall, Some(&session), &cancelled);
        let (_, body) = waiting.join().unwrap();
        assert!(!body.contains("went"), "{body}");
    });
    eventually("the member hears of it", || Path::new(&format!("{mark}.cancelled")).exists().then_some(()));
}
