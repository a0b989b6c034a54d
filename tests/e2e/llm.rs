//! The language model that plugins may have: named by flag, environment or file, told to porters and to nobody
//! else.

use std::fs;
use std::process::Command;

use guild_hall::model::porter::Llm;
use serde_json::{Value, json};

use crate::hall::{BINARY, Hall, House, python};
use crate::plugins::{Service, at};
use crate::traces::{connected, pid, printed};

const FILE: &str = "llm:\n  base_url: http://127.0.0.1:1/v1\n  model: small\n  api_key_env: THE_KEY\n";

fn with_key() -> Command {
    let mut command = Command::new(BINARY);
    command.env("THE_KEY", "sesame");
    command
}

#[test]
fn the_key_reaches_no_member_and_shows_nowhere() {
    let house = House::new();
    house.rogue("plain", &[]);
    house.rogue_with("asking", &[], json!({"inheritEnv": ["THE_KEY", "GUILD_HALL_LLM"]}));
    fs::write(house.run_dir().with_file_name("guild-hall.yaml"), FILE).unwrap();
    for flags in [&[][..], &["--clean-env"]] {
        let hall = house.start_command(with_key(), flags);
        for name in ["plain", "asking"] {
            connected(&hall, name);
            let env = hall.call_text(name, "env", json!({}));
            assert!(!env.contains("sesame") && !env.contains("GUILD_HALL_LLM"), "{env}");
        }
        for path in ["/v1/roster", "/metrics", "/api/plugins"] {
            assert!(!hall.get(path).1.to_string().contains("sesame"));
        }
        assert!(!hall.log().contains("sesame"), "{}", hall.log());
        assert!(!hall.log().contains("THE_KEY"), "there is nothing to warn of: {}", hall.log());
        hall.stop();
    }
}

#[test]
fn a_key_that_is_not_there_is_named_in_a_warning() {
    let house = House::new();
    house.members();
    fs::write(house.run_dir().with_file_name("guild-hall.yaml"), FILE).unwrap();
    for key in [None, Some("")] {
        let mut command = Command::new(BINARY);
        command.env_remove("THE_KEY");
        command.envs(key.map(|key| ("THE_KEY", key)));
        let hall = house.start_command(command, &[]);
        assert!(hall.log().contains("WARN") && hall.log().contains("THE_KEY"), "{}", hall.log());
        hall.stop();
    }
}

#[test]
fn what_is_wrong_with_it_is_wrong_usage() {
    let house = House::new();
    house.members();
    let file = house.run_dir().with_file_name("guild-hall.yaml");
    for (text, words) in [
        ("llm:\n  base_url: http://h/v1\n", &["--llm-model"][..]),
        ("llm:\n  model: m\n", &["--llm-base-url"]),
        ("llm:\n  api_key_env: K\n", &["--llm-base-url"]),
        ("llm:\n  base_url: h/v1\n  model: m\n", &["h/v1", "http://"]),
        ("llm:\n  base_ur: h\n  model: m\n", &["guild-hall.yaml", "llm-base-ur", "llm-base-url"]),
        ("llm: gpt\n", &["guild-hall.yaml", "llm"]),
        ("ports: {a: 1}\n", &["guild-hall.yaml", "ports"]),
    ] {
        fs::write(&file, text).unwrap();
        let output = house.cli(&["run", "--listen", "none"]);
        assert_eq!(output.status.code(), Some(2), "{text}: {}", printed(&output));
        for word in words {
            assert!(printed(&output).contains(word), "{text}: {}", printed(&output));
        }
    }
}

/// A member on pipes, behind a porter.
fn piped(house: &House) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/members/piped.py");
    house.member("p", json!({"transport": "stdio", "mcp": {"command": python(), "args": ["-S", script]}}));
}

/// What the porter of a member is told.
fn told(hall: &Hall, member: &str) -> Option<Llm> {
    let porter = pid(&connected(hall, member));
    let environment = fs::read(format!("/proc/{porter}/environ")).unwrap();
    let environment = String::from_utf8(environment).unwrap();
    let told = environment.split('\0').find_map(|variable| variable.strip_prefix("GUILD_HALL_LLM="));
    let told = told.map(|text| serde_json::from_str(text).unwrap());
    assert_eq!(told.is_none(), environment.contains("THE_KEY="), "the key is the hall's once it is named");
    told
}

#[test]
fn porters_are_told_of_it_by_file_environment_or_flag_in_that_order_and_their_plugins_are_not() {
    let house = House::new();
    piped(&house);
    let by = |command: Command, flags: &[&str]| {
        let hall = house.start_command(command, flags);
        let told = told(&hall, "p");
        let env: Value = serde_json::from_str(&hall.call_text("p", "env", json!({}))).unwrap();
        assert_eq!(env.get("GUILD_HALL_LLM"), None);
        hall.stop();
        told
    };
    let llm = |base_url: &str, model: &str| {
        let (base_url, model) = (base_url.into(), model.into());
        Some(Llm { base_url, model, api_key: Some("sesame".into()) })
    };
    assert_eq!(by(with_key(), &[]), None);
    fs::write(house.run_dir().with_file_name("guild-hall.yaml"), FILE).unwrap();
    let of_file = llm("http://127.0.0.1:1/v1", "small");
    assert_eq!(by(with_key(), &[]), of_file);
    assert_eq!(by(with_key(), &["--clean-env"]), of_file);
    let from_env = || {
        let mut command = with_key();
        command.env("GUILD_HALL_LLM_MODEL", "middle");
        command
    };
    assert_eq!(by(from_env(), &[]), llm("http://127.0.0.1:1/v1", "middle"));
    let flags = ["--llm-model", "large", "--llm-base-url=https://h/v1"];
    assert_eq!(by(from_env(), &flags), llm("https://h/v1", "large"));
}

#[test]
fn porters_of_registered_plugins_are_told_of_it_too() {
    let house = House::new();
    house.members();
    fs::write(house.run_dir().with_file_name("guild-hall.yaml"), FILE).unwrap();
    let (hall, service) = (house.start_command(with_key(), &[]), Service::start());
    let member = hall.register(&at("chat", service.port));
    assert_eq!(told(&hall, &member).unwrap().model, "small");
}
