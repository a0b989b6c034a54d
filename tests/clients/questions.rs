//! What members ask reaches the client that made the call, and no other.

use std::fs;

use serde_json::json;

use crate::client::KINDS;
use crate::hall::eventually;
use crate::stage::{Stage, all_at_once};

#[test]
fn each_question_is_answered_by_the_client_that_made_the_call() {
    let stage = Stage::new();
    let clients = stage.clients();
    all_at_once(&clients, |client| {
        let name = client.kind.name();
        for round in 0..3 {
            let prompt = format!("{name} {round}");
            assert_eq!(client.calls("asking__sample", json!({"prompt": prompt})), format!("{name} samples"));
            assert_eq!(client.calls("asking__elicit", json!({"question": name})), format!("{name} elicits"));
            let roots = client.calls("asking__roots", json!({}));
            assert_eq!(roots.trim_end_matches('/'), format!("file:///{name}"));
        }
    });
    for client in &clients {
        let name = client.kind.name();
        let prompts = client.asked("sampling/createMessage");
        let texts: Vec<String> =
            prompts.iter().map(|asked| asked["messages"][0]["content"]["text"].to_string()).collect();
        assert_eq!(texts, (0..3).map(|round| format!("\"{name} {round}\"")).collect::<Vec<_>>());
        let elicited = client.asked("elicitation/create");
        assert!(elicited.len() == 3 && elicited.iter().all(|asked| asked["message"] == name), "{elicited:?}");
    }
}

#[test]
fn two_clients_of_each_kind_with_different_answers_are_not_mixed_up() {
    let stage = Stage::new();
    let ones = stage.clients();
    let others: Vec<_> = KINDS
        .iter()
        .map(|kind| stage.client_with(*kind, json!({"sampling": "the other", "elicitation": "no"})))
        .collect();
    let all: Vec<_> = ones.into_iter().chain(others).collect();
    all_at_once(&all, |client| {
        let is_other = all[KINDS.len()..].iter().any(|other| std::ptr::eq(other, client));
        let mine = if is_other { "the other".into() } else { format!("{} samples", client.kind.name()) };
        let asked = client.calls("asking__sample_often", json!({"prompt": "again", "times": 5}));
        assert_eq!(asked, vec![mine; 5].join(" "));
        assert_eq!(client.asked("sampling/createMessage").len(), 5);
        if is_other {
            // It has no roots, and says so at initialize: the member is told, and not the client.
            let refused = client.begins(json!({"do": "call", "name": "asking__roots", "arguments": {}}));
            let refused = client.outcome(refused);
            assert!(refused.is_err() || refused.is_ok_and(|said| said["isError"] == true));
            assert!(client.asked("roots/list").is_empty());
        }
    });
}

#[test]
fn a_question_that_belongs_to_no_call_reaches_the_client_in_whose_session_it_is_asked() {
    let stage = Stage::new();
    let clients = stage.clients_with_session();
    all_at_once(&clients, |client| {
        let name = client.kind.name();
        let mark = stage.mark(name);
        client.calls("asking__sample_later", json!({"prompt": name, "mark": mark}));
        fs::write(format!("{mark}.go"), "").unwrap();
        let answer = eventually(&format!("{name} is asked later"), || {
            fs::read_to_string(format!("{mark}.answer")).ok()
        });
        assert_eq!(answer, format!("{name} samples"));
    });
    for client in &clients {
        assert_eq!(client.asked("sampling/createMessage").len(), 1, "{}", client.kind.name());
    }
}
