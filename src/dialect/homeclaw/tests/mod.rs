//! Manifests of HomeClaw plugins, good and bad.

mod faults;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::dialect::{self, Beside, Paper};
use crate::model::porter::{Behind, Kind, Porter, RemoteWire};
use crate::model::{Dialect, Manifest, Rejection, RestartPolicy, Transport};

const CLASS: &str = "class Weather(BasePlugin):\n    pass\n";

/// Reads `name` in a directory `weather` that holds these files.
fn read(name: &str, files: &[(&str, &str)]) -> Result<Manifest, Rejection> {
    let files: BTreeMap<&str, &str> = files.iter().copied().collect();
    let python = || {
        let is_module = |file: &&&str| Path::new(file).extension().is_some_and(|extension| extension == "py");
        files.keys().filter(is_module).map(ToString::to_string).collect()
    };
    dialect::read(&Paper {
        shown: &Path::new("m").join(name),
        dir: Path::new("/x/weather"),
        dir_name: "weather",
        bytes: files[name].as_bytes(),
        beside: Beside {
            python: &python,
            read: &|file| files.get(file).map(|text| text.as_bytes().to_vec()),
        },
    })
}

fn yaml(text: &str) -> Result<Manifest, Rejection> {
    read("plugin.yaml", &[("plugin.yaml", text), ("plugin.py", CLASS)])
}

fn faults(read: Result<Manifest, Rejection>) -> Vec<String> {
    read.expect_err("it must be refused").all().map(ToString::to_string).collect()
}

fn warnings(read: Result<Manifest, Rejection>) -> Vec<String> {
    read.unwrap_or_else(|rejection| panic!("{rejection}")).warnings.iter().map(ToString::to_string).collect()
}

fn porter(manifest: &Manifest) -> &Porter {
    manifest.porter.as_ref().unwrap()
}

const BASE: &str = "id: weather\nname: Weather\ndescription: Tells it\n";

fn behind(rest: &str) -> Behind {
    let manifest = yaml(&format!("{BASE}{rest}")).unwrap_or_else(|rejection| panic!("{rejection}"));
    porter(&manifest).behind.clone()
}

#[test]
fn every_documented_field_is_taken() {
    let text = r#"
id: weather
name: Weather Plugin
description: Current weather and forecast for a location.
description_long: "Humidity, conditions, wind."
version: 1.10
keywords: [rain, 42]
type: inline
health_check_url: http://127.0.0.1:3100/health
config:
  config_file: settings.yml
  timeout_sec: 2.5
capabilities:
  - id: fetch_weather
    name: Get current weather
    description: Returns current weather for a city.
    parameters:
      - {name: City, type: string, required: true, description: "City name", config_key: city}
      - {name: days, type: integer, default: 3}
      - {name: zip, type: string, default: 8001}
      - {name: exact, type: boolean, required: false}
    output_description: '{"text": "string"}'
    post_process: true
    post_process_prompt: "Tell it nicely"
    method: post
    path: weather
    cost: {unit: cent, is: [1, 2.5, null]}
"#;
    let files = [("plugin.yaml", text), ("plugin.py", CLASS), ("settings.yml", "")];
    let manifest = read("plugin.yaml", &files).unwrap();
    assert_eq!(manifest.warnings, []);
    assert_eq!(manifest.dialect, Dialect::HomeClaw);
    assert_eq!((manifest.name.as_str(), manifest.display_name.as_str()), ("weather", "Weather Plugin"));
    assert_eq!((manifest.version.as_str(), manifest.transport), ("1.10", Transport::Python));
    assert_eq!(manifest.command, Manifest::PORTER_COMMAND);
    assert_eq!(manifest.start_timeout, Duration::from_secs(30));
    assert_eq!(manifest.health_interval, Some(Duration::from_secs(10)));
    let Porter { plugin, behind, timeout } = porter(&manifest);
    assert_eq!(*timeout, Duration::from_millis(2_500));
    assert!(manifest.call_timeout > *timeout + Duration::from_secs(10), "a language model takes its time");
    assert_eq!(plugin.description_long.as_deref(), Some("Humidity, conditions, wind."));
    assert_eq!(plugin.keywords, ["rain", "42"]);
    assert_eq!(plugin.health_check_url.as_deref(), Some("http://127.0.0.1:3100/health"));
    let wanted =
        Behind::Python { file: "plugin.py".into(), class: None, config_file: Some("settings.yml".into()) };
    assert_eq!(*behind, wanted);
    let capability = &plugin.capabilities[0];
    assert_eq!((capability.id.as_str(), capability.name.as_str()), ("fetch_weather", "Get current weather"));
    assert_eq!(capability.output_description.as_deref(), Some(r#"{"text": "string"}"#));
    assert!(capability.post_process);
    assert_eq!(capability.post_process_prompt.as_deref(), Some("Tell it nicely"));
    assert_eq!((capability.method.as_deref(), capability.path.as_deref()), (Some("POST"), Some("/weather")));
    assert_eq!(json!(capability.rest), json!({"cost": {"unit": "cent", "is": [1, 2.5, null]}}));
    let [city, days, zip, exact] = capability.parameters.as_slice() else { panic!("{capability:?}") };
    assert_eq!((city.name.as_str(), city.kind, city.required), ("City", Kind::String, true));
    assert_eq!(json!(city.rest), json!({"config_key": "city"}));
    assert_eq!((days.kind, days.required, days.default.clone()), (Kind::Integer, false, Some(json!(3))));
    assert_eq!(zip.default, Some(json!("8001")), "a text needs no quotes");
    assert_eq!((exact.kind, exact.required, exact.default.clone()), (Kind::Boolean, false, None));
}

#[test]
fn the_same_is_read_from_json() {
    let text = r#"{"id": "weather", "name": "Weather", "description": "Tells it", "type": "subprocess",
        "config": {"command": "node", "args": ["plugin.js", 3], "env": {"DEBUG": true}, "timeout_sec": 15}}"#;
    let manifest = read("plugin.json", &[("plugin.json", text)]).unwrap();
    let program = manifest.program().unwrap();
    assert_eq!((program.command.as_str(), program.args.join(" ")), ("node", "plugin.js 3".into()));
    assert_eq!(program.env, [("DEBUG".into(), "true".into())]);
    assert_eq!((manifest.transport, manifest.version.as_str()), (Transport::Subprocess, "0.0.0"));
    assert_eq!(manifest.call_timeout, Duration::from_secs(17));
    let twice = text.replace("\"id\": \"weather\",", "\"id\": \"weather\", \"id\": \"w\",");
    assert_eq!(
        faults(read("plugin.json", &[("plugin.json", &twice)])),
        ["m/plugin.json:1:19: id: stands here a second time; remove one of the two"]
    );
}

#[test]
fn each_type_stands_behind_its_own_porter() {
    let rest = Behind::Rest {
        base_url: "http://127.0.0.1:3100".into(),
        path: "/run".into(),
        headers: vec![("X-Key".into(), "1".into())],
    };
    assert_eq!(
        behind("type: http\nconfig: {base_url: 'http://127.0.0.1:3100/', path: run, headers: {X-Key: 1}}"),
        rest
    );
    let url = "base_url: 'http://127.0.0.1:3100/sse'";
    let remote = |url: &str, wire| Behind::Remote { url: url.into(), headers: vec![], wire, tool: None };
    let at_sse = "http://127.0.0.1:3100/sse";
    for (config, wanted) in [
        (format!("transport: sse, {url}"), remote(at_sse, RemoteWire::Sse)),
        (format!("transport: http, {url}"), remote(at_sse, RemoteWire::Http)),
        (
            format!("transport: Streamable-HTTP, {url}, path: mcp"),
            remote("http://127.0.0.1:3100/sse/mcp", RemoteWire::Http),
        ),
        (url.into(), remote(at_sse, RemoteWire::Sse)),
        ("base_url: 'https://example.org/mcp/'".into(), remote("https://example.org/mcp/", RemoteWire::Http)),
    ] {
        assert_eq!(behind(&format!("type: MCP\nconfig: {{{config}}}")), wanted, "{config}");
    }
    for config in ["transport: stdio, ", ""] {
        let found = behind(&format!("type: mcp\nconfig: {{{config}command: npx, args: [-y, x], tool: ask}}"));
        let Behind::Stdio { program, tool } = found else { panic!("{found:?}") };
        assert_eq!((program.command.as_str(), tool.as_deref()), ("npx", Some("ask")));
        assert_eq!(program.args, ["-y", "x"]);
    }
}

#[test]
fn a_class_is_found_by_name_by_convention_or_because_there_is_but_one() {
    let found = |rest: &str, files: &[(&str, &str)]| {
        let text = format!("{BASE}{rest}");
        let files: Vec<(&str, &str)> =
            [("plugin.yaml", text.as_str())].into_iter().chain(files.iter().copied()).collect();
        read("plugin.yaml", &files).map(|manifest| match &porter(&manifest).behind {
            Behind::Python { file, class, config_file } => {
                format!(
                    "{file} {} {}",
                    class.as_deref().unwrap_or("-"),
                    config_file.as_deref().unwrap_or("-")
                )
            }
            other => panic!("{other:?}"),
        })
    };
    let two = [("plugin.py", CLASS), ("other.py", CLASS)];
    assert_eq!(found("", &two).unwrap(), "plugin.py - -");
    assert_eq!(found("plugin_module: other", &two).unwrap(), "other.py - -");
    assert_eq!(found("plugin_module: plugins.weather.other", &two).unwrap(), "other.py - -");
    assert_eq!(found("config: {plugin_module: 'other.py:Weather'}", &two).unwrap(), "other.py Weather -");
    assert_eq!(
        found("", &[("a.py", "x = 1"), ("b.py", CLASS), ("config.yml", "")]).unwrap(),
        "b.py - config.yml"
    );
    assert_eq!(found("", &[("plugin.py", "from x import *")]).unwrap(), "plugin.py - -");
    let refused = |rest: &str, files: &[(&str, &str)]| found(rest, files).unwrap_err().to_string();
    assert!(refused("", &[]).contains("add plugin.py"));
    assert!(refused("", &[("a.py", CLASS), ("b.py", CLASS)]).contains("a.py, b.py each have a class"));
    assert!(
        refused("plugin_module: third", &two)
            .starts_with("m/plugin.yaml:4:16: plugin_module: is \"third\", and there is no third.py")
    );
    for outside in ["../x", "/etc/x.py", "a b/../../c.py", "'x:'", "x:1-2", "''"] {
        let said = refused(&format!("plugin_module: {outside}"), &two);
        assert!(
            said.contains("it must be a Python module in the plugin's directory")
                || said.contains("there is no"),
            "{said}"
        );
    }
    assert!(
        refused("config: {config_file: ../secret.yml}", &two)
            .contains("it must be a file in the plugin's directory")
    );
}

#[test]
fn what_is_odd_but_works_is_a_warning() {
    for (text, warning) in [
        (
            "id: weather\ndescription: x",
            "m/plugin.yaml:1:1: name: is missing in the object that begins here; the id is shown instead",
        ),
        (
            "id: climate\nname: W\ndescription: x",
            "m/plugin.yaml:1:5: id: is \"climate\", but the directory is called \"weather\", and that is the member's name",
        ),
        (
            "id: weather\nname: W\ndescription: x\nauthor: me",
            "m/plugin.yaml:4:1: author: is not a field of this standard and is ignored",
        ),
        (
            "id: weather\nname: W\ndescription: x\ntype: http\nconfig: {base_url: 'http://x', pth: /a}",
            "m/plugin.yaml:5:32: config.pth: is not a field of this standard and is ignored; did you mean \"path\"?",
        ),
        (
            "id: weather\nname: W\ndescription: x\nconfig: {config_file: no.yml}",
            "m/plugin.yaml:4:23: config.config_file: is \"no.yml\", and there is no such file",
        ),
        (
            "id: weather\nname: W\ndescription: x\ncapabilities: [{id: a, description: b, name: c, post_process: yes}]",
            "m/plugin.yaml:4:63: capabilities[0].post_process: is the text \"yes\"; taken for true: write true",
        ),
        (
            "id: weather\nname: W\ndescription: x\ncapabilities: [{id: a, name: c}]",
            "m/plugin.yaml:4:16: capabilities[0].description: is missing in the object that begins here; nobody is told when to choose it",
        ),
        (
            "id: weather\nname: W\ndescription: x\ncapabilities: [{id: a, name: c, description: d, parameters: [{name: b}]}]",
            "m/plugin.yaml:4:62: capabilities[0].parameters[0].type: is missing in the object that begins here; it is taken for a \"string\"",
        ),
    ] {
        assert_eq!(warnings(yaml(text)), [warning], "{text}");
    }
    let text = BASE.replace("weather\n", "'WEATHER '\n");
    assert!(warnings(yaml(&text)).is_empty(), "case, \"-\", \"_\" and space make no difference");
}

#[test]
fn a_plugin_json_is_of_the_standard_that_its_fields_are_of() {
    let said = |text: &str| {
        let found = faults(read("plugin.json", &[("plugin.json", text)]));
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].clone()
    };
    assert!(
        said(r#"{"id": "a", "apps": []}"#)
            .contains("1:1: is the manifest of a ChatOS plugin (it has \"apps\")")
    );
    assert!(said(r#"{"manifestVersion": 1}"#).contains("is the manifest of a ChatOS plugin"));
    assert!(said(r#"{"manifestVersion": 1, "type": "http"}"#).contains("remove one of the two"));
    assert!(said(r#"{"id": "a", "name": "b", "description": "c"}"#).contains("is neither a HomeClaw plugin"));
    assert!(said("[]").contains("it must be an object"));
    assert!(said("{").starts_with("m/plugin.json:1:1: EOF"));
}

#[test]
fn a_config_yml_beside_a_class_is_a_manifest_of_the_older_kind() {
    let config =
        "city: Bern\ndescription: Tells it\napi_key: 3\nkeywords: rain\ntasks: {a: {time: \"08:00\"}}\n";
    let files = |config: &'static str| [("config.yml", config), ("w.py", CLASS)];
    let manifest = read("config.yml", &files(config)).unwrap();
    assert_eq!((manifest.name.as_str(), manifest.display_name.as_str()), ("weather", "weather"));
    assert_eq!(manifest.warnings.len(), 1, "it has no id: {:?}", manifest.warnings);
    let wanted = Behind::Python { file: "w.py".into(), class: None, config_file: Some("config.yml".into()) };
    assert_eq!(porter(&manifest).behind, wanted);
    assert!(porter(&manifest).plugin.capabilities.is_empty());
    let config = "id: weather\ndescription: x\nparameters:\n  - {name: city, type: string, required: true}\n";
    let manifest = read("config.yml", &files(config)).unwrap();
    assert_eq!(manifest.warnings, []);
    let [run] = porter(&manifest).plugin.capabilities.as_slice() else { panic!("{manifest:?}") };
    let names: Vec<(&str, bool)> = run.parameters.iter().map(|p| (p.name.as_str(), p.required)).collect();
    assert_eq!((run.id.as_str(), names), ("run", vec![("user_input", false), ("city", false)]));
    assert_eq!(
        faults(read("config.yml", &files("id: weather\n"))),
        [
            "m/config.yml:1:1: description: is missing in the object that begins here; add description: \"What it does, and when to choose it\""
        ]
    );
}

#[test]
fn the_digest_is_that_of_the_manifest_and_the_configuration() {
    let digest = |text: &str, config: &str| {
        read("plugin.yaml", &[("plugin.yaml", text), ("plugin.py", CLASS), ("config.yml", config)])
            .unwrap()
            .digest
    };
    let first = digest(BASE, "city: Bern");
    assert_eq!(first, digest(BASE, "city: Bern"));
    assert_ne!(first, digest(BASE, "city: Basel"));
    assert_ne!(first, digest(&format!("{BASE}\n"), "city: Bern"));
    assert_ne!(first, yaml(BASE).unwrap().digest);
}

#[test]
fn the_halls_own_fields_for_restarts_hold() {
    let manifest = yaml(&format!("{BASE}restart: always\nwatch: ['*.py']\n")).unwrap();
    assert_eq!(manifest.restart, RestartPolicy::Always);
    assert_eq!(manifest.watch, Some(vec!["*.py".into()]));
}
