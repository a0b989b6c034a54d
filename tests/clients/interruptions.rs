//! Halls and members that are restarted under their clients: the clients go on as if nothing had been.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::client::{Client, Kind, text};
use crate::hall::eventually;
use crate::stage::{Stage, all_at_once};

/// Everything still works, in the same session.
#[track_caller]
fn goes_on(client: &Client) {
    let name = client.kind.name();
    assert_eq!(client.does(json!({"do": "identity"})), client.settled["session"]);
    assert_eq!(client.calls("plain__echo", json!({"text": name})), name);
    assert_eq!(client.calls("asking__sample", json!({"prompt": "again"})), format!("{name} samples"));
    assert_eq!(client.calls("asking__elicit", json!({"question": "again"})), format!("{name} elicits"));
    let tools = client.does(json!({"do": "tools"}));
    assert!(tools.as_array().unwrap().contains(&json!("everything__get-sum")), "{tools}");
    assert_eq!(client.does(json!({"do": "identity"})), client.settled["session"]);
}

#[test]
fn sessions_survive_a_hall_that_is_killed() {
    let mut stage = Stage::new();
    let clients = stage.clients();
    all_at_once(&clients, goes_on);
    for _ in 0..2 {
        stage.kill_and_start_again();
        all_at_once(&clients, goes_on);
    }
}

#[test]
fn sessions_survive_a_handover_and_a_call_in_flight_finishes() {
    let stage = Stage::new();
    let clients = stage.clients();
    all_at_once(&clients, goes_on);
    let waiting: Vec<_> = clients
        .iter()
        .map(|client| {
            let mark = stage.mark(client.kind.name());
            let call = client.calling("asking__wait", json!({"mark": mark}));
            eventually("the member works on it", || {
                Path::new(&format!("{mark}.begun")).exists().then_some(())
            });
            (client, mark, call)
        })
        .collect();
    let hall = stage.hall.entry("plain");
    std::thread::scope(|scope| {
        let next = scope.spawn(|| stage.hand_over());
        for (_, mark, _) in &waiting {
            fs::write(format!("{mark}.go"), "").unwrap();
        }
        for (client, _, call) in &waiting {
            let outcome = client.outcome(*call);
            let said = outcome.unwrap_or_else(|failed| panic!("{}: {failed}", client.kind.name()));
            assert_eq!(text(&said), "went", "{}", client.kind.name());
        }
        next.join().unwrap();
    });
    assert_eq!(stage.hall.entry("plain")["pid"], hall["pid"]);
    all_at_once(&clients, goes_on);
}

#[test]
fn a_member_that_is_restarted_is_there_again_for_the_same_clients() {
    let stage = Stage::new();
    let clients = stage.clients();
    all_at_once(&clients, goes_on);
    stage.cli(&["restart", "asking"]);
    all_at_once(&clients, goes_on);
}

/// Watches the motto and hears of its changes; what it has heard so far does not count.
#[track_caller]
fn hears_of_changes(clients: &[Client]) {
    all_at_once(clients, |client| {
        let before = client.facts().len();
        eventually(&format!("{} hears of a change", client.kind.name()), || {
            client.calls("asking__change", json!({}));
            client.facts().iter().skip(before).any(|fact| fact["heard"] == "resources/updated").then_some(())
        });
    });
}

#[test]
fn what_a_client_watches_it_watches_also_when_the_member_was_restarted() {
    let stage = Stage::new();
    let clients = stage.clients_with_session();
    all_at_once(&clients, |client| drop(client.does(json!({"do": "subscribe", "uri": "asking://motto"}))));
    hears_of_changes(&clients);
    stage.cli(&["restart", "asking"]);
    hears_of_changes(&clients);
}

/// Those that listen again when a hall has ended their stream: in mid-2025 the Python SDK did not.
fn that_listen_again(stage: &Stage) -> Vec<Client> {
    let mut clients = stage.clients_with_session();
    clients.retain(|client| client.kind != Kind::PythonOfJune2025);
    clients
}

#[test]
fn what_a_client_watches_it_watches_also_after_a_handover() {
    let stage = Stage::new();
    let clients = that_listen_again(&stage);
    all_at_once(&clients, |client| drop(client.does(json!({"do": "subscribe", "uri": "asking://motto"}))));
    hears_of_changes(&clients);
    for _ in 0..2 {
        stage.hand_over();
        hears_of_changes(&clients);
    }
}

#[test]
fn the_log_level_outlives_a_handover_and_a_restart_of_the_member() {
    let stage = Stage::new();
    let clients = stage.clients_with_session();
    let only_errors = |round: &str| {
        all_at_once(&clients, |client| {
            let (fine, bad) = (format!("fine {round}"), format!("bad {round}"));
            client.calls("asking__log", json!({"level": "info", "text": fine}));
            client.calls("asking__log", json!({"level": "error", "text": bad}));
            let says = |fact: &Value, text: &str| fact["params"]["data"]["msg"] == text;
            client.until("hears of what is bad", |fact| says(fact, &bad).then_some(()));
            assert!(!client.facts().iter().any(|fact| says(fact, &fine)), "{}", client.kind.name());
        });
    };
    all_at_once(&clients, |client| drop(client.does(json!({"do": "level", "level": "warning"}))));
    only_errors("at first");
    stage.hand_over();
    only_errors("after a handover");
    stage.cli(&["restart", "asking"]);
    only_errors("after a restart");
}

#[test]
fn changes_are_announced_also_after_a_handover() {
    let stage = Stage::new();
    let mut clients = that_listen_again(&stage);
    // This one listens again only where a stream broke off after an event with an id.
    clients.retain(|client| client.kind != Kind::TypeScriptOfJune2025);
    stage.hand_over();
    let before: Vec<usize> = clients.iter().map(|client| client.facts().len()).collect();
    // Most of them do not listen again yet.
    stage.cli(&["stop", "plain"]);
    for (client, before) in clients.iter().zip(before) {
        client.hears("tools/list_changed", before);
        let tools = client.does(json!({"do": "tools"}));
        assert!(!tools.to_string().contains("plain__"), "{tools}");
    }
}
