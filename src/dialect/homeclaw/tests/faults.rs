//! What is refused, and what is said of it.

use super::{BASE, faults, yaml};

#[test]
fn a_fault_names_place_field_what_stands_there_and_what_would_be_right() {
    let cases = [
        (
            "name: Weather\ndescription: x",
            "m/plugin.yaml:1:1: id: is missing in the object that begins here; add id: \"weather\"",
        ),
        (
            "plugin_ID: a\nname: W\ndescription: x",
            "m/plugin.yaml:1:1: id: is missing in the object that begins here; add id: \"weather\"",
        ),
        (
            "id: weather\nname: W",
            "m/plugin.yaml:1:1: description: is missing in the object that begins here; add description: \"What it does, and when to choose it\"",
        ),
        ("id: 3\nname: W\ndescription: x", "m/plugin.yaml:1:5: id: is the number 3; it must be a text"),
        (
            "id: ' '\nname: W\ndescription: x",
            "m/plugin.yaml:1:5: id: is empty; it must say something, as in \"weather\"",
        ),
        ("id: weather\nid: w", "m/plugin.yaml:2:1: id: stands here a second time; remove one of the two"),
        ("- id: weather", "m/plugin.yaml:1:1: is a list of 1; it must be an object"),
        (
            "id: weather\nname: W\ndescription: Use it: now",
            "m/plugin.yaml:3:20: mapping values are not allowed in this context (a text with \": \" in it stands in quotes, and the keys of one object begin in the same column)",
        ),
    ];
    for (text, fault) in cases {
        assert_eq!(faults(yaml(text)), [fault], "{text}");
    }
}

#[test]
fn a_fault_of_what_a_plugin_stands_behind_names_its_field() {
    let cases = [
        (
            "type: rpc",
            ":4:7: type: is the text \"rpc\"; it must be \"inline\" or \"subprocess\" or \"http\" or \"mcp\"",
        ),
        (
            "type: http",
            ":1:1: config: is missing in the object that begins here; add config: {\"base_url\": \"http://127.0.0.1:3100\"}",
        ),
        (
            "type: http\nconfig: {}",
            ":5:9: config.base_url: is missing in the object that begins here; add base_url: \"http://127.0.0.1:3100\"",
        ),
        (
            "type: http\nconfig: {base_url: '127.0.0.1:3100'}",
            ":5:20: config.base_url: is the text \"127.0.0.1:3100\"; it must be a URL, as in \"http://127.0.0.1:3100\": it begins with \"http://\" or \"https://\"",
        ),
        (
            "type: http\nconfig: {base_url: 'http://x', headers: {'a b': 1}}",
            ":5:42: config.headers.\"a b\": \"a b\" cannot be the name of a header",
        ),
        ("type: subprocess\nconfig: [a]", ":5:9: config: is a list of 1; it must be an object"),
        (
            "type: subprocess\nconfig:\n  comand: node",
            ":6:3: config.command: is missing in the object that begins here; add command: \"node\" (did you mean it by \"comand\"?)",
        ),
        (
            "type: subprocess\nconfig: {command: a, args: b}",
            ":5:28: config.args: is the text \"b\"; it must be a list of texts",
        ),
        (
            "type: subprocess\nconfig: {command: a, env: {A: [1]}}",
            ":5:31: config.env.A: is a list of 1; it must be a text",
        ),
        (
            "type: subprocess\nconfig: {command: a, timeout_sec: 0}",
            ":5:35: config.timeout_sec: is the number 0; it must be a number of seconds, more than 0 and at most 3600",
        ),
        (
            "type: mcp\nconfig: {transport: ws}",
            ":5:21: config.transport: is the text \"ws\"; it must be \"stdio\" or \"sse\" or \"http\" or \"streamable-http\" or \"streamable_http\"",
        ),
        (
            "type: mcp\nconfig: {transport: sse}",
            ":5:9: config.base_url: is missing in the object that begins here; add base_url: \"http://127.0.0.1:3100\"",
        ),
    ];
    refused_with(&cases);
}

#[test]
fn a_fault_of_what_a_plugin_can_do_names_its_field() {
    let cases = [
        (
            "health_check_url: /health",
            ":4:19: health_check_url: is the text \"/health\"; it must be a URL, as in \"http://127.0.0.1:3100\": it begins with \"http://\" or \"https://\"",
        ),
        ("capabilities: {id: a}", ":4:15: capabilities: is an object; it must be a list"),
        (
            "capabilities:\n  - name: a\n    description: b",
            ":5:5: capabilities[0].id: is missing in the object that begins here; add id: \"fetch_weather\"",
        ),
        (
            "capabilities:\n  - {id: a, name: a, description: b}\n  - {id: a, name: a, description: b}",
            ":6:5: capabilities[1]: \"a\" is already the name of another one in this list",
        ),
        (
            "capabilities:\n  - {id: a, name: a, description: b, method: FETCH}",
            ":5:46: capabilities[0].method: is the text \"FETCH\"; it must be one of GET, POST, PUT, PATCH, DELETE, HEAD",
        ),
        (
            "capabilities:\n  - {id: a, name: a, description: b, parameters: [{name: c, type: text}]}",
            ":5:67: capabilities[0].parameters[0].type: is the text \"text\"; it must be \"string\" or \"number\" or \"integer\" or \"boolean\" or \"object\" or \"array\"",
        ),
        (
            "capabilities:\n  - {id: a, name: a, description: b, parameters: [{name: c, type: integer, default: x}]}",
            ":5:85: capabilities[0].parameters[0].default: is the text \"x\"; it must be of the parameter's type, \"integer\"",
        ),
        (
            "capabilities:\n  - {id: a, name: a, description: b, parameters: [{type: string}]}",
            ":5:51: capabilities[0].parameters[0].name: is missing in the object that begins here; add name: \"city\"",
        ),
        (
            "restart: often",
            ":4:10: restart: is the text \"often\"; it must be \"on-failure\" or \"always\" or \"never\"",
        ),
    ];
    refused_with(&cases);
}

/// Each rest of a manifest has this one fault.
fn refused_with(cases: &[(&str, &str)]) {
    for (rest, fault) in cases {
        let found = faults(yaml(&format!("{BASE}{rest}")));
        assert_eq!(found, [format!("m/plugin.yaml{fault}")], "{rest}");
    }
}

#[test]
fn all_faults_of_a_document_are_told_at_once() {
    let found =
        faults(yaml("id: 1\ntype: http\nconfig: {base_url: x, timeout_sec: a}\ncapabilities: [1, {}]"));
    assert_eq!(found.len(), 6, "{found:#?}");
}
