//! Registered plugins that fall ill and get well again: an error that is waited for, out of routing, and no
//! reason to start anything anew.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::hall::{Hall, House, eventually, is_alive, python};
use crate::mcp::Mcp;
use crate::plugins::{Service, at};
use crate::traces::{assert_says, connected, pid};

const TOOL: &str = "registered-chat__post_message";

/// Registers the plugin `chat` of this service, and waits until it is connected.
fn chat(hall: &Hall, service: &Service) -> Value {
    let member = hall.register(&at("chat", service.port));
    connected(hall, &member)
}

/// Has the plugin fall ill, and the hall see it.
fn fall_ill(hall: &Hall, service: &Service) -> Value {
    service.set_health(500);
    assert!(!hall.is_well("chat"));
    let entry = hall.entry("registered/chat");
    assert_eq!((&entry["phase"], &entry["status"]), (&json!("unwell"), &json!("error")), "{entry}");
    entry
}

#[test]
fn a_plugin_that_falls_ill_is_an_error_and_not_offered_and_comes_back_by_itself() {
    let house = House::new();
    house.members();
    let (hall, service) = (house.start(), Service::start());
    let before = chat(&hall, &service);
    assert!(hall.is_well("CHAT"));
    let mcp = Mcp::open(&hall, "/mcp");
    assert_eq!(mcp.tools(), [TOOL]);
    let arguments = json!({"channel": "c", "text": "hello"});
    assert!(mcp.text(TOOL, arguments.clone()).contains("hello"));

    let ill = fall_ill(&hall, &service);
    assert_says(&ill, &["500"]);
    assert_eq!((pid(&ill), &ill["port"]), (pid(&before), &before["port"]));
    assert!(mcp.tools().is_empty(), "nobody is offered it");
    assert_eq!(hall.get("/v1/tools").1, json!([]));
    let asked = service.asked.lock().unwrap().len();
    let called = mcp.ask("tools/call", json!({"name": TOOL, "arguments": arguments}));
    assert_eq!(called["result"]["isError"], true, "{called}");
    assert!(called["result"]["content"][0]["text"].as_str().unwrap().contains("500"), "{called}");
    let (status, problem) = hall.call("registered/chat", "post_message", arguments.clone());
    assert_eq!(status, 409, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("500"), "{problem}");
    let posts = |asked: &[(String, Value)]| asked.iter().filter(|(path, _)| path == "/post").count();
    assert_eq!(posts(&service.asked.lock().unwrap()[asked..]), 0, "it was not asked");

    service.set_health(204);
    let well = hall.until("registered/chat", "connected");
    assert_eq!((pid(&well), &well["restarts"], &well["error"]), (pid(&before), &json!(0), &Value::Null));
    eventually("it is offered again", || (mcp.tools() == [TOOL]).then_some(()));
    assert!(mcp.text(TOOL, arguments).contains("hello"));
    hall.stop();
}

#[test]
fn a_plugin_that_is_ill_when_it_is_registered_is_never_shown_connected_and_comes_back_by_itself() {
    let house = House::new();
    house.members();
    let (hall, service) = (house.start(), Service::start());
    service.set_health(503);
    let (status, answer) = hall.post("/api/plugins/register?wait=true", &at("chat", service.port));
    assert_eq!(
        (status, &answer["status"], &answer["phase"]),
        (200, &json!("error"), &json!("unwell")),
        "{answer}"
    );
    assert!(answer["error"].as_str().unwrap().contains("503"), "{answer}");
    let log = hall.log();
    assert!(!log.contains("to=\"connected\"") && !log.contains("to=connected"), "{log}");
    assert_eq!(hall.plugin("chat").unwrap()["capabilities"][0]["id"], "post_message");
    let before = hall.entry("registered/chat");
    service.set_health(200);
    // It registers itself once more as it comes up: then nobody waits for the next probe.
    hall.register(&at("chat", service.port));
    let well = hall.until("registered/chat", "connected");
    assert_eq!((pid(&well), &well["restarts"]), (pid(&before), &json!(0)));
}

#[test]
fn a_health_check_that_is_refused_or_never_answered_is_an_illness_too() {
    let house = House::new();
    house.members();
    let (hall, service) = (house.start(), Service::start());
    let before = chat(&hall, &service);
    service.set_health(0);
    assert!(!hall.is_well("chat"));
    let mute = hall.until("registered/chat", "unwell");
    assert_eq!((pid(&mute), &mute["restarts"]), (pid(&before), &json!(0)));
    service.set_health(200);
    assert_eq!(pid(&hall.until("registered/chat", "connected")), pid(&before));
    let port = service.port;
    drop(service);
    eventually("nobody listens any more", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_err().then_some(())
    });
    assert!(!hall.is_well("chat"));
    let refused = hall.until("registered/chat", "unwell");
    assert_eq!((pid(&refused), &refused["restarts"]), (pid(&before), &json!(0)));
}

#[test]
fn an_illness_outlives_a_handover_and_a_killed_hall_with_the_same_process() {
    let house = House::new();
    house.members();
    let (mut hall, service) = (house.start(), Service::start());
    let before = chat(&hall, &service);
    let ill = fall_ill(&hall, &service);
    let images = |hall: &Hall| hall.log().matches("the hall is up").count();
    let seen = images(&hall);
    hall.signal(Signal::USR2);
    eventually("the next image has taken over", || (images(&hall) > seen).then_some(()));
    let after = hall.entry("registered/chat");
    assert_eq!((&after["phase"], &after["error"], pid(&after)), (&ill["phase"], &ill["error"], pid(&before)));

    hall.signal(Signal::KILL);
    hall.child.wait().unwrap();
    let hall = house.start();
    let adopted = hall.until("registered/chat", "unwell");
    assert_eq!((pid(&adopted), &adopted["adopted"]), (pid(&before), &json!(true)));
    service.set_health(200);
    assert!(hall.is_well("chat"));
    let well = hall.until("registered/chat", "connected");
    assert_eq!((pid(&well), &well["restarts"]), (pid(&before), &json!(0)));
    hall.stop();
}

#[test]
fn a_porter_that_dies_while_its_plugin_is_ill_is_restarted() {
    let house = House::new();
    house.members();
    let (hall, service) = (house.start(), Service::start());
    let before = chat(&hall, &service);
    fall_ill(&hall, &service);
    kill_process(Pid::from_raw(pid(&before)).unwrap(), Signal::KILL).unwrap();
    let again = hall.until_entry("registered/chat", "is ill again", |entry| {
        entry["phase"] == "unwell" && entry["pid"] != before["pid"]
    });
    assert_eq!(again["restarts"], 1);
    assert_eq!(hall.post("/v1/members/registered%2Fchat/stop", &json!({})).1["phase"], "stopped");
    assert!(!hall.is_well("chat"), "what does not run is not well");
}

#[test]
fn a_plugin_on_pipes_that_hangs_is_well_again_when_it_goes_on_and_else_started_anew() {
    let house = House::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/members/piped.py");
    let mcp = json!({"command": python(), "args": ["-S", script]});
    let fields = json!({"transport": "stdio", "mcp": mcp, "healthIntervalMs": 100, "startTimeoutMs": 8_000});
    house.member("p", fields);
    let hall = house.start();
    let before = connected(&hall, "p");
    let plugin = hall.call_text("p", "pid", json!({})).parse().unwrap();
    let signal = |signal| kill_process(Pid::from_raw(plugin).unwrap(), signal).unwrap();
    signal(Signal::STOP);
    assert_says(&hall.until("p", "unwell"), &["does not answer a ping"]);
    signal(Signal::CONT);
    let after = hall.until("p", "connected");
    assert_eq!((pid(&after), &after["restarts"]), (pid(&before), &json!(0)));
    signal(Signal::STOP);
    let again = hall.until_entry("p", "is started anew", |entry| {
        entry["phase"] == "connected" && entry["pid"] != before["pid"]
    });
    assert_eq!(again["restarts"], 1, "its process is the porter's own: a new start mends it");
    assert!(!is_alive(plugin));
}
