//! What clients do all day: list, call, read, watch, complete, listen to logs, change their minds.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::client::text;
use crate::hall::eventually;
use crate::stage::{Stage, all_at_once};

const SUM: &str = "The sum of 2 and 40 is 42.";

#[test]
fn tools_of_all_members_are_listed_and_called_through_one_url() {
    let stage = Stage::new();
    all_at_once(&stage.clients(), |client| {
        assert_eq!(client.settled["protocol"], client.kind.protocol(), "{}", client.settled);
        assert_eq!(client.settled["session"].is_string(), client.kind.has_session());
        let tools = client.does(json!({"do": "tools"}));
        for tool in ["asking__count", "everything__get-sum", "plain__echo"] {
            assert!(tools.as_array().unwrap().contains(&json!(tool)), "{tool} is not in {tools}");
        }
        assert_eq!(client.calls("plain__echo", json!({"text": "hello"})), "hello");
        assert_eq!(client.calls("everything__get-sum", json!({"a": 2, "b": 40})), SUM);
        assert_eq!(client.calls("asking__count", json!({"to": 0})), "counted to 0");
        if client.kind.has_session() {
            client.does(json!({"do": "ping"}));
        }
        client.does(json!({"do": "close"}));
    });
}

#[test]
fn progress_comes_in_order_and_before_the_result() {
    let stage = Stage::new();
    all_at_once(&stage.clients(), |client| {
        let counting = client.calling("asking__count", json!({"to": 20}));
        let running = client
            .calling("everything__trigger-long-running-operation", json!({"duration": 0.1, "steps": 5}));
        for (call, steps) in [(counting, 20), (running, 5)] {
            client.outcome(call).unwrap();
            // Facts are said in order: what is not there by now came after the result.
            let told: Vec<f64> =
                client.progress(call).iter().map(|told| told["progress"].as_f64().unwrap()).collect();
            assert_eq!(told, (1..=steps).map(f64::from).collect::<Vec<_>>(), "{}", client.kind.name());
        }
    });
}

#[test]
fn resources_are_listed_read_and_watched() {
    let stage = Stage::new();
    let watched = "demo://resource/dynamic/text/1";
    all_at_once(&stage.clients(), |client| {
        let resources = client.does(json!({"do": "resources"}));
        for uri in ["asking://motto", "demo://resource/static/document/features.md"] {
            assert!(resources.as_array().unwrap().contains(&json!(uri)), "{uri} is not in {resources}");
        }
        let templates = client.does(json!({"do": "templates"}));
        assert!(
            templates.as_array().unwrap().contains(&json!("demo://resource/dynamic/text/{resourceId}")),
            "{templates}"
        );
        let motto = client.does(json!({"do": "read", "uri": "asking://motto"}));
        assert_eq!(motto["contents"][0]["text"], "ask, and it shall be given");
        let made = client.does(json!({"do": "read", "uri": watched}));
        assert!(made["contents"][0]["text"].as_str().unwrap().contains("Resource 1"), "{made}");
        client.does(json!({"do": "subscribe", "uri": watched}));
        if client.kind.has_session() {
            // It tells the session in which it was asked to.
            client.calls("everything__toggle-subscriber-updates", json!({}));
            assert_eq!(client.hears("resources/updated", 0)["uri"], watched);
        }
        client.does(json!({"do": "unsubscribe", "uri": watched}));
    });
}

#[test]
fn a_change_is_told_to_those_who_watch() {
    let stage = Stage::new();
    let clients = stage.clients();
    let (watching, other) = clients.split_at(clients.len() - 1);
    all_at_once(watching, |client| drop(client.does(json!({"do": "subscribe", "uri": "asking://motto"}))));
    other[0].calls("asking__change", json!({}));
    all_at_once(watching, |client| {
        assert_eq!(client.hears("resources/updated", 0)["uri"], "asking://motto");
        client.does(json!({"do": "unsubscribe", "uri": "asking://motto"}));
    });
    // Without a session of the client's own, the subscription ends with the session that was opened for it,
    // and this member does not look whether those that it tells are still there.
    let stateless = watching.iter().filter(|client| !client.kind.has_session()).count();
    assert_eq!(other[0].calls("asking__change", json!({})), stateless.to_string());
    assert!(other[0].facts().iter().all(|fact| fact["heard"] != "resources/updated"));
}

#[test]
fn prompts_are_fetched_and_arguments_completed() {
    let stage = Stage::new();
    all_at_once(&stage.clients(), |client| {
        let prompts = client.does(json!({"do": "prompts"}));
        for name in ["asking__greeting", "everything__args-prompt"] {
            assert!(prompts.as_array().unwrap().contains(&json!(name)), "{name} is not in {prompts}");
        }
        let greeting =
            client.does(json!({"do": "prompt", "name": "asking__greeting", "arguments": {"name": "Ada"}}));
        assert_eq!(greeting["messages"][0]["content"]["text"], "Say hello to Ada");
        let completed = client.does(json!({
            "do": "complete",
            "ref": {"type": "ref/prompt", "name": "everything__completable-prompt"},
            "argument": {"name": "department", "value": "E"},
        }));
        assert_eq!(completed["completion"]["values"], json!(["Engineering"]));
    });
}

#[test]
fn log_messages_of_the_wanted_level_reach_the_client_that_made_the_call() {
    let stage = Stage::new();
    let clients = stage.clients();
    all_at_once(&clients, |client| {
        let name = client.kind.name();
        client.does(json!({"do": "level", "level": "warning"}));
        client.calls("asking__log", json!({"level": "info", "text": format!("{name} is not told")}));
        client.calls("asking__log", json!({"level": "error", "text": name}));
        client.until("hears its log message", |fact| (fact["params"]["data"]["msg"] == name).then_some(()));
    });
    for client in &clients {
        let messages = client.facts().into_iter().filter(|fact| fact["heard"] == "message");
        let texts: Vec<Value> = messages.map(|fact| fact["params"]["data"]["msg"].clone()).collect();
        let mine: Vec<&Value> = texts.iter().filter(|text| text.is_string()).collect();
        assert_eq!(mine, [client.kind.name()], "{}", client.kind.name());
    }
}

#[test]
fn a_call_that_its_client_cancels_is_cancelled_at_the_member() {
    let stage = Stage::new();
    all_at_once(&stage.clients(), |client| {
        let mark = stage.mark(client.kind.name());
        let is_there = |what: &str| Path::new(&format!("{mark}.{what}")).exists().then_some(());
        let waiting = client.calling("asking__wait", json!({"mark": mark}));
        eventually("the member works on it", || is_there("begun"));
        client.cancels(waiting);
        client.outcome(waiting).unwrap_err();
        eventually(&format!("the member hears that {} does not want it", client.kind.name()), || {
            is_there("cancelled")
        });
        // And nothing else of this client has suffered.
        let other = client.calling("asking__wait", json!({"mark": format!("{mark}-other")}));
        fs::write(format!("{mark}-other.go"), "").unwrap();
        assert_eq!(text(&client.outcome(other).unwrap()), "went");
    });
}

#[test]
fn what_comes_and_goes_is_announced() {
    let stage = Stage::new();
    let clients = stage.clients();
    let listed = |member: &str| {
        all_at_once(&clients, |client| {
            eventually(&format!("{} sees what {member} has", client.kind.name()), || {
                let tools = client.does(json!({"do": "tools"}));
                let has = |member: &str| {
                    tools.as_array().unwrap().iter().any(|tool| tool.as_str().unwrap().starts_with(member))
                };
                has(member).then_some(())
            });
        });
    };
    listed("asking__");
    let before: Vec<usize> = clients.iter().map(|client| client.facts().len()).collect();
    stage.cli(&["stop", "asking"]);
    for (client, before) in clients.iter().zip(before) {
        for kind in ["tools", "prompts", "resources"] {
            client.hears(&format!("{kind}/list_changed"), before);
        }
        let tools = client.does(json!({"do": "tools"}));
        assert!(!tools.to_string().contains("asking__"), "{tools}");
        assert!(!client.does(json!({"do": "prompts"})).to_string().contains("asking__"));
    }
    let before: Vec<usize> = clients.iter().map(|client| client.facts().len()).collect();
    stage.cli(&["start", "asking"]);
    for (client, before) in clients.iter().zip(before) {
        client.hears("tools/list_changed", before);
    }
    listed("asking__");
}
