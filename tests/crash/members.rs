//! Members that are there in milliseconds, each with what a scenario needs.

use serde_json::{Value, json};

use crate::hall::{BINARY, House};

/// An honest member.
pub fn plain(house: &House, name: &str) {
    house.member(
        name,
        json!({"mcp": {"command": "${GUILD_HALL}", "args": ["example-member", "--port", "${PORT}"]}}),
    );
}

/// A shell script that becomes an honest member with `exec "$0" example-member --port $PORT`.
pub fn script(house: &House, name: &str, script: &str, fields: &Value) {
    let mut all = json!({"mcp": {"command": "sh", "args": ["-c", script, BINARY]}});
    all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    house.member(name, all);
}

/// With a child in its group, and one in a session of its own.
pub fn family(house: &House, name: &str) {
    let family = "sleep 90 & setsid sleep 91 & exec \"$0\" example-member --port $PORT";
    // Without cgroups the second hears nothing but SIGKILL.
    script(house, name, family, &json!({"stopTimeoutMs": 100}));
}

/// It does not hear SIGTERM.
pub fn deaf(house: &House, name: &str) {
    let deaf = "trap '' TERM; \"$0\" example-member --port $PORT; while :; do sleep 90; done";
    script(house, name, deaf, &json!({"stopTimeoutMs": 50}));
}

/// It crashes at its start while there is a file `crash`, and counts its launches.
pub fn moody(house: &House, name: &str) {
    let moody = "echo $PORT >>launches; [ -e crash ] && exit 3; exec \"$0\" example-member --port $PORT";
    script(house, name, moody, &json!({}));
}

/// It refuses its first two ports.
pub fn picky(house: &House, name: &str) {
    let picky = "echo $PORT >>launches; [ $(wc -l <launches) -le 2 ] && exit 2; exec \"$0\" example-member --port $PORT";
    script(house, name, picky, &json!({}));
}
