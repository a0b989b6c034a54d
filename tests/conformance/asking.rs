//! The suite's servers as members: what they hear of a client is the hall's.

use crate::hall::{BINARY, House, python};
use crate::suite::{conforms, directory};

#[track_caller]
fn asks(revision: &str, exceptions: &str) {
    let house = House::new();
    let client = directory().join("client.py").display().to_string();
    let (first, last) = (house.first_port(), house.first_port() + 3);
    // The suite hands it to a shell, and plays all its servers at the same time.
    let command = format!("'{}' -S -B '{client}' '{BINARY}' {first} {last}", python());
    conforms("client", revision, exceptions, &["--command", &command, "--timeout", "120000"]);
}

#[test]
fn a_member_with_sessions_is_asked() {
    asks("2025-11-25", "client-with-sessions");
}

#[test]
fn a_stateless_member_is_asked() {
    asks("2026-07-28", "stateless-client");
}
