//! What is found in a members directory, and what is said of what cannot be used.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use serde_json::{Value, json};

use crate::hall::{BINARY, House};

/// A valid member that is never launched successfully, and quickly so.
fn idle() -> Value {
    json!({"restart": "never", "mcp": {"command": "true", "args": []}})
}

fn names(roster: &Value) -> Vec<&str> {
    roster["members"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect()
}

#[test]
fn members_are_found_two_levels_deep_and_no_deeper() {
    let house = House::new();
    for name in ["one", "set/two", "set/three", ".hidden", "node_modules", "set/.git", "set/node_modules"] {
        house.member(name, idle());
    }
    fs::create_dir_all(house.member_dir("one/inner")).unwrap();
    fs::copy(
        house.members().join("one/guild-member.json"),
        house.members().join("one/inner/guild-member.json"),
    )
    .unwrap();
    fs::create_dir_all(house.members().join("set/deep/deeper")).unwrap();
    fs::copy(
        house.members().join("one/guild-member.json"),
        house.members().join("set/deep/deeper/guild-member.json"),
    )
    .unwrap();
    fs::write(house.members().join("a-file"), "").unwrap();
    fs::create_dir(house.members().join("empty")).unwrap();
    let hall = house.start();
    assert_eq!(names(&hall.get("/v1/roster").1), ["one", "set/three", "set/two"]);
}

#[test]
fn links_are_followed_once_and_never_out() {
    let house = House::new();
    house.member("real", idle());
    let outside = house.run_dir().parent().unwrap().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::copy(house.members().join("real/guild-member.json"), outside.join("guild-member.json")).unwrap();
    let members = house.members();
    symlink("real", members.join("alias")).unwrap();
    symlink("..", members.join("loop")).unwrap();
    symlink("self", members.join("self")).unwrap();
    symlink("nowhere", members.join("dangling")).unwrap();
    symlink(&outside, members.join("out")).unwrap();
    fs::create_dir(members.join("set")).unwrap();
    symlink("../real", members.join("set/again")).unwrap();
    symlink("..", members.join("set/up")).unwrap();
    // A directory that stands nowhere else in view may be reached by a link.
    fs::create_dir_all(members.join(".store/kept")).unwrap();
    fs::copy(members.join("real/guild-member.json"), members.join(".store/kept/guild-member.json")).unwrap();
    symlink(".store/kept", members.join("kept")).unwrap();
    let hall = house.start();
    let (_, roster) = hall.get("/v1/roster");
    assert_eq!(names(&roster), ["dangling", "kept", "out", "real", "self"]);
    for (name, why) in
        [("dangling", "leads nowhere"), ("out", "out of the members directory"), ("self", "leads nowhere")]
    {
        let entry = hall.entry(name);
        assert_eq!(entry["phase"], "invalid");
        assert!(entry["error"].as_str().unwrap().contains(why), "{entry}");
    }
}

#[test]
fn what_cannot_be_a_member_is_an_error_entry_and_harms_no_other() {
    let house = House::new();
    house.member(
        "good",
        json!({"mcp": {"command": "${GUILD_HALL}", "args": ["example-member", "--port", "${PORT}"]}}),
    );
    house.member("a/b", idle());
    house.member("a--b", idle());
    house.member("line\nbreak", idle());
    let broken = [
        ("empty", ""),
        ("cut", "{\"name\": \"cut\","),
        ("binary", "\u{0}\u{1}"),
        ("list", "[]"),
        ("deep", &"[".repeat(200_000)),
        ("huge", &format!("\"{}\"", "x".repeat(300_000))),
    ];
    for (name, text) in broken {
        fs::write(house.member_dir(name).join("guild-member.json"), text).unwrap();
    }
    fs::write(house.member_dir("latin").join("guild-member.json"), b"{\"name\": \"caf\xe9\"}").unwrap();
    fs::create_dir(house.member_dir("folder").join("guild-member.json")).unwrap();
    let hall = house.start();
    hall.until("good", "connected");
    for (name, why) in [
        ("empty", "guild-member.json:1:1: the file is empty"),
        ("cut", "guild-member.json:1:1"),
        ("binary", "guild-member.json:1:1"),
        ("list", "it must be an object"),
        ("deep", "guild-member.json:1:65: values are nested deeper than 64"),
        ("huge", "262144"),
        ("latin", "guild-member.json:1:14: is not UTF-8"),
        ("folder", "not a regular file"),
        ("a--b", "a--b"),
        ("line?break", "control character"),
    ] {
        let entry = hall.entry(name);
        assert_eq!(
            (entry["phase"].as_str(), entry["status"].as_str()),
            (Some("invalid"), Some("error")),
            "{entry}"
        );
        assert!(entry["error"].as_str().unwrap().contains(why), "{name}: {}", entry["error"]);
    }
}

#[test]
fn check_prints_what_the_roster_says() {
    let house = House::new();
    house.member("fine", idle());
    fs::write(house.member_dir("bad").join("guild-member.json"), "{\n  \"name\": 3\n}").unwrap();
    let checked = house.cli(&["check", "members"]);
    assert_eq!(checked.status.code(), Some(1));
    let text = String::from_utf8(checked.stdout).unwrap();
    assert!(
        text.contains("members/bad/guild-member.json:2:11: name: is the number 3; it must be a text\n"),
        "{text}"
    );
    assert!(text.contains("1 valid, 1 invalid"), "{text}");
    let hall = house.start();
    let error = hall.entry("bad")["error"].as_str().unwrap().to_owned();
    let first = text.lines().next().unwrap().strip_prefix("error members/").unwrap();
    assert!(error.contains(first), "{error}\n{text}");
    assert_eq!(house.cli(&["check", "members/fine"]).status.code(), Some(0));
    assert_eq!(house.cli(&["check", "members/bad/guild-member.json"]).status.code(), Some(1));
    assert_eq!(house.cli(&["check", "no-such-directory"]).status.code(), Some(1));
    let json: Value = serde_json::from_slice(&house.cli(&["check", "members", "--json"]).stdout).unwrap();
    assert_eq!((json[0]["line"].as_u64(), json[0]["field"].as_str()), (Some(2), Some("name")));
}

#[test]
fn a_directory_that_cannot_be_read_is_an_error_entry() {
    let house = House::new();
    house.member("closed", idle());
    house.member("open", idle());
    fs::set_permissions(house.member_dir("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    // Root may read everything, unless it gives that up.
    let mut command = if rustix::process::getuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args([
            "--bounding-set=-dac_override,-dac_read_search",
            "--inh-caps=-dac_override,-dac_read_search",
            BINARY,
        ]);
        command
    } else {
        Command::new(BINARY)
    };
    let checked = command.args(["check", "--json"]).arg(house.members()).output().unwrap();
    fs::set_permissions(house.member_dir("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    let findings: Value = serde_json::from_slice(&checked.stdout).unwrap_or_else(|_| panic!("{checked:?}"));
    let told = findings.as_array().unwrap().iter().any(|finding| {
        finding["file"].as_str().unwrap().ends_with("/closed")
            && finding["message"].as_str().unwrap().contains("ermission denied")
    });
    assert!(told, "{findings:#}");
}

#[test]
fn five_thousand_directories_are_walked() {
    let house = House::new();
    for n in 0..5_000 {
        fs::create_dir(house.members().join(format!("d{n}"))).unwrap();
    }
    house.member("d77", idle());
    house.member("d4321/inner", idle());
    let hall = house.start();
    assert_eq!(names(&hall.get("/v1/roster").1), ["d4321/inner", "d77"]);
}
