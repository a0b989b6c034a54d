//! The command line of the MCP inspector, which speaks to a server as its users see it.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::stage::{Stage, fixture};

/// Node from npm where the distribution's is too old for the inspector.
fn node() -> String {
    let fixtures = fixture("clients/inspector");
    let node = Path::new(&fixtures).join("../../node/bin/node");
    if node.exists() { node.display().to_string() } else { "node".into() }
}

#[track_caller]
fn inspect(stage: &Stage, args: &[&str]) -> Value {
    let output = Command::new(node())
        .arg(fixture(
            "clients/inspector/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js",
        ))
        .args(["--cli", &stage.url(), "--transport", "http"])
        .args(["--header", &format!("Authorization: Bearer {}", stage.token())])
        .args(args)
        .env("HOME", stage.house.members().parent().unwrap())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{args:?}: {}: {said:?}", output.status);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"))
}

#[test]
fn the_inspector_lists_and_calls_the_tools_of_all_members() {
    let stage = Stage::new();
    let listed = inspect(&stage, &["--method", "tools/list"]);
    let names: Vec<&str> =
        listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    for (tool, arguments, text) in [
        ("plain__echo", &["text=hello"][..], "hello"),
        ("everything__get-sum", &["a=2", "b=40"], "The sum of 2 and 40 is 42."),
        ("asking__count", &["to=3"], "counted to 3"),
    ] {
        assert!(names.contains(&tool), "{tool} is not in {names:?}");
        let mut args = vec!["--method", "tools/call", "--tool-name", tool, "--tool-arg"];
        args.extend(arguments);
        assert_eq!(inspect(&stage, &args)["content"][0]["text"], json!(text));
    }
    let motto = inspect(&stage, &["--method", "resources/read", "--uri", "asking://motto"]);
    assert_eq!(motto["contents"][0]["text"], "ask, and it shall be given");
    let args = ["--method", "prompts/get", "--prompt-name", "asking__greeting", "--prompt-args", "name=Ada"];
    assert_eq!(inspect(&stage, &args)["messages"][0]["content"]["text"], "Say hello to Ada");
}
