//! The suite as clients of either era, in front of members of either era.

use serde_json::{Value, json};

use crate::hall::{House, python};
use crate::suite::{conforms, directory};

/// The member of this directory, which speaks one era and has never heard of the other.
fn member(era: &str) -> Value {
    let script = directory().join("member.py").display().to_string();
    json!({"mcp": {"command": python(), "args": ["-S", "-B", script, "--port", "${PORT}", "--era", era]}})
}

/// A hall with a member of each era serves clients of a revision that use one of them.
#[track_caller]
fn serves(name: &str, revision: &str, exceptions: &str) {
    let house = House::new();
    for era in ["legacy", "modern"] {
        house.member(era, member(era));
    }
    // The suite has no token to show.
    let hall = house.start_with(&["--listen", "127.0.0.1:0", "--no-auth"]);
    hall.until("legacy", "connected");
    hall.until("modern", "connected");
    let (_, roster) = hall.get("/v1/roster");
    let gateway = roster["hall"]["gateway"].as_str().unwrap();
    conforms("server", revision, exceptions, &["--url", &format!("http://{gateway}/mcp/{name}")]);
    hall.stop();
}

#[test]
fn a_client_with_sessions_is_served_by_a_member_with_sessions() {
    serves("legacy", "2025-11-25", "sessions");
}

#[test]
fn a_stateless_client_is_served_by_a_stateless_member() {
    serves("modern", "2026-07-28", "stateless");
}

#[test]
fn a_client_with_sessions_is_served_by_a_stateless_member() {
    serves("modern", "2025-11-25", "sessions-to-stateless");
}

#[test]
fn a_stateless_client_is_served_by_a_member_with_sessions() {
    serves("legacy", "2026-07-28", "stateless-to-sessions");
}
