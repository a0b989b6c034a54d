//! The papers of HomeClaw plugins, as `check` and the roster tell of them. No plugin is run.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::hall::{House, eventually, example};

const CLASS: &str = "class Weather(BasePlugin):\n    pass\n";
const YAML: &str = "id: weather\nname: Weather\ndescription: Tells it\n";

/// A house with these files below its members directory.
fn house(files: &[(&str, &str)]) -> House {
    let house = House::new();
    for (file, text) in files {
        let path = house.members().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    house
}

/// What `check` prints, and whether it finds all well.
fn check(house: &House, path: &str) -> (String, bool) {
    let checked = house.cli(&["check", path]);
    assert!(checked.stderr.is_empty(), "{}", String::from_utf8_lossy(&checked.stderr));
    (String::from_utf8(checked.stdout).unwrap(), checked.status.success())
}

#[test]
fn every_form_of_a_manifest_is_found() {
    let subprocess = format!("{YAML}type: subprocess\nconfig: {{command: node, args: [plugin.js]}}\n");
    let json = r#"{"id": "a", "name": "A", "description": "x", "type": "http", "config": {"base_url": "http://127.0.0.1:3100"}}"#;
    let house = house(&[
        ("Weather/plugin.yaml", YAML),
        ("Weather/plugin.py", CLASS),
        ("set/weather/plugin.yml", &subprocess),
        ("a/plugin.json", json),
        ("mail/config.yml", "id: mail\ndescription: Sends it\nsmtp_port: 465\n"),
        ("mail/mailer.py", "from base.BasePlugin import BasePlugin\n\nclass Mailer(BasePlugin):\n    pass\n"),
        ("no-plugin/config.yml", "id: no\ndescription: It has no class\n"),
        ("no-plugin/tool.py", "print(1)\n"),
        ("vendor/deep/er/tool/plugin.yaml", &subprocess),
        (
            "registry.yaml",
            "plugins:\n  - vendor/deep/er/tool\n  - Weather\n  - http://127.0.0.1:3100/sse\n  - {url: 'http://127.0.0.1:3101', id: far, name: Far, description: x, type: http}\n",
        ),
    ]);
    let (said, well) = check(&house, "members");
    assert!(well, "{said}");
    // Its directory is called otherwise.
    assert!(
        said.starts_with("warning members/vendor/deep/er/tool/plugin.yaml:1:5: id: is \"weather\""),
        "{said}"
    );
    assert!(said.ends_with("\n7 valid, 0 invalid\n"), "{said}");
    assert_eq!(check(&house, "members/Weather").0, "1 valid, 0 invalid\n");
    assert_eq!(check(&house, "members/mail/config.yml").0, "1 valid, 0 invalid\n");
    assert!(check(&house, "members/registry.yaml").0.ends_with("4 valid, 0 invalid\n"));
}

#[test]
fn each_fault_has_its_file_line_column_and_field() {
    let cases = [
        ("plugin.yaml", "id: weather\nname: W\n", "1:1: description: is missing"),
        (
            "plugin.yaml",
            "id: weather\nname: W\ndescription: Use it: now\n",
            "3:20: mapping values are not allowed",
        ),
        ("plugin.yaml", "id: weather\nid: w\n", "2:1: id: stands here a second time"),
        (
            "plugin.yaml",
            "id: w\nname: W\ndescription: x\ntype: http\nconfig:\n  base_url: here\n",
            "6:13: config.base_url: is the text \"here\"; it must be a URL",
        ),
        (
            "plugin.yaml",
            "id: w\nname: W\ndescription: x\n",
            "the plugin is of type \"inline\", and no Python file here has a class",
        ),
        (
            "plugin.yml",
            "id: w\nname: W\ndescription: x\ntype: subprocess\nconfig:\n  command: a\n  timeout_sec: soon\n",
            "7:16: config.timeout_sec: is the text \"soon\"",
        ),
        ("plugin.json", "{\"id\": \"w\",\n \"apps\": []}", "1:1: is the manifest of a ChatOS plugin"),
        ("plugin.json", "{\"id\": \"w\"}", "1:1: is neither a HomeClaw plugin"),
        (
            "plugin.json",
            "{\"type\": \"http\",\n \"manifestVersion\": 1}",
            "1:1: has \"manifestVersion\", which makes it a ChatOS plugin, and \"type\"",
        ),
        ("plugin.json", "{\"type\": \"http\",\n \"id\": 3}", "2:8: id: is the number 3"),
    ];
    let house = House::new();
    for (n, (file, text, _)) in cases.iter().enumerate() {
        fs::write(house.member_dir(&format!("m{n}")).join(file), text).unwrap();
    }
    let (said, well) = check(&house, "members");
    assert!(!well && said.ends_with(&format!("0 valid, {} invalid\n", cases.len())), "{said}");
    for (n, (file, _, fault)) in cases.iter().enumerate() {
        let line = format!("error members/m{n}/{file}:");
        let lines: Vec<&str> = said.lines().filter_map(|said| said.strip_prefix(&line)).collect();
        assert!(lines.iter().any(|said| said.trim_start().starts_with(fault)), "{fault}\n{said}");
    }
    let json: Value = serde_json::from_slice(&house.cli(&["check", "members/m3", "--json"]).stdout).unwrap();
    assert_eq!((&json[0]["line"], &json[0]["column"]), (&6.into(), &13.into()));
    assert_eq!(json[0]["field"], "config.base_url");
}

#[test]
fn of_several_manifests_in_a_directory_the_first_that_can_be_read_counts() {
    let broken = "id: weather\ndescription: Use it: now\n";
    let guild = r#"{"name": "both", "displayName": "B", "description": "x", "version": "1.0.0", "transport": "http", "mcp": {"command": "true", "args": []}}"#;
    let json =
        r#"{"id": "w", "name": "W", "description": "x", "type": "http", "config": {"base_url": "http://h"}}"#;
    let house = house(&[
        ("both/guild-member.json", guild),
        ("both/plugin.yaml", broken),
        ("w/plugin.yaml", broken),
        ("w/plugin.json", json),
        ("old/plugin.yaml", broken),
        ("old/plugin.json", r#"{"apps": []}"#),
        ("old/config.yml", "id: old\ndescription: x\n"),
        ("old/plugin.py", CLASS),
        ("alone/plugin.yaml", broken),
        ("alone/config.yml", "id: alone\ndescription: It has no class\n"),
        ("lacking/plugin.yaml", "id: lacking\n"),
        ("lacking/plugin.json", json),
        ("guild/guild-member.json", "{"),
        ("guild/plugin.json", json),
    ]);
    let (said, _) = check(&house, "members");
    assert!(said.ends_with("\n3 valid, 3 invalid\n"), "{said}");
    for (file, instead) in [("w/plugin.yaml", "plugin.json"), ("old/plugin.yaml", "config.yml")] {
        let line = format!("warning members/{file}:2:20: mapping values");
        let found = said.lines().find(|said| said.starts_with(&line)).unwrap_or_else(|| panic!("{said}"));
        assert!(found.ends_with(&format!("; {instead}, which stands beside it, is read instead")), "{found}");
    }
    for file in ["alone/plugin.yaml:2:20", "lacking/plugin.yaml:1:1", "guild/guild-member.json:1:1"] {
        assert!(said.contains(&format!("error members/{file}: ")), "{said}");
    }
    assert!(!said.contains("members/both"), "{said}");
}

#[test]
fn a_registry_leads_nowhere_that_links_may_not_lead() {
    let plugin = format!("{YAML}type: http\nconfig: {{base_url: 'http://h'}}\n");
    let house = house(&[
        ("here/plugin.yaml", &plugin),
        (".store/kept/plugin.yaml", &plugin.replace("weather", "kept")),
        ("a/b/c/here/plugin.yaml", &plugin),
        (".store/empty/readme", ""),
        (
            "registry.yaml",
            "- here\n- .store/kept/plugin.yaml\n- ../outside\n- /etc\n- .\n- gone\n- .store/empty\n- a/b/c/here\n- .store/out\n- {url: 'http://h', id: here, name: n, description: d, type: mcp}\n- {url: 'http://h', id: far, name: n, description: d}\n",
        ),
    ]);
    let outside = house.run_dir().parent().unwrap().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("plugin.yaml"), &plugin).unwrap();
    symlink(&outside, house.members().join(".store/out")).unwrap();
    let (said, _) = check(&house, "members");
    let errors: Vec<&str> =
        said.lines().filter_map(|line| line.strip_prefix("error members/registry.yaml:")).collect();
    for (n, why) in [
        ("3:3: [2]: is \"../outside\", which leads out of the members directory", ""),
        ("4:3: [3]: is \"/etc\", which leads out of the members directory", ""),
        ("5:3: [4]: is \".\", which leads out of the members directory", ""),
        ("6:3: [5]: is \"gone\": No such file", ""),
        ("7:3: [6]: is \".store/empty\", and there is no manifest in it", ""),
        ("8:3: [7]: is \"a/b/c/here\", and there is another member called \"here\"", ""),
        ("9:3: [8]: is \".store/out\", which leads out of the members directory", ""),
        ("10:3: [9]: \"here\" is the name of a member that stands here itself", ""),
        ("11:3: [10].type: is missing", ""),
    ] {
        assert!(errors.iter().any(|line| line.starts_with(n)), "{n}{why}\n{said}");
    }
    // `here` and `kept`; the registry itself and `far`.
    assert!(said.ends_with("\n2 valid, 2 invalid\n"), "{said}");
}

#[test]
fn a_registry_that_cannot_be_read_is_an_error_entry_and_harms_no_other() {
    let house = house(&[("registry.yaml", "plugins: [\n")]);
    house.member("good", example());
    house.member(".store/kept", example());
    let hall = house.start_with(&["--watch"]);
    hall.until("good", "connected");
    let entry = hall.entry("registry.yaml");
    assert_eq!((&entry["phase"], &entry["status"]), (&"invalid".into(), &"error".into()));
    let error = entry["error"].as_str().unwrap();
    assert!(error.contains("members/registry.yaml:1:10: unclosed bracket"), "{error}");
    let registry = house.members().join("registry.yaml");
    let is_known = |name: &str| hall.get(&format!("/v1/roster/{name}")).0 == 200;
    fs::write(&registry, "- .store/kept\n").unwrap();
    eventually("it is taken up", || (is_known("kept") && !is_known("registry.yaml")).then_some(()));
    let before = hall.until("kept", "connected");
    fs::write(&registry, "- .store/kept\n- [\n").unwrap();
    eventually("the fault is told", || is_known("registry.yaml").then_some(()));
    assert_eq!(hall.entry("kept")["pid"], before["pid"], "what it listed runs on");
    fs::write(house.member_dir(".store/kept").join("guild-member.json"), "{").unwrap();
    fs::write(&registry, "- .store/kept\n").unwrap();
    hall.until_entry("kept", "is told to have a fault", |entry| {
        entry["error"].as_str().is_some_and(|error| error.contains(".store/kept/guild-member.json:1:1"))
    });
    fs::remove_file(&registry).unwrap();
    eventually("it is gone", || (!is_known("kept")).then_some(()));
    assert_eq!(hall.entry("good")["restarts"], 0);
}

#[test]
fn a_faulty_plugin_is_an_error_entry_until_it_is_mended() {
    let house = house(&[("weather/plugin.yaml", "id: weather\ndescription: Use it: now\n")]);
    house.member("good", example());
    let hall = house.start_with(&["--watch"]);
    hall.until("good", "connected");
    let says = |what: &str| {
        hall.until_entry("weather", what, |entry| {
            entry["phase"] == "invalid" && entry["error"].as_str().is_some_and(|error| error.contains(what))
        })
    };
    says("members/weather/plugin.yaml:2:20: mapping values are not allowed");
    let dir = house.member_dir("weather");
    fs::write(dir.join("plugin.yaml"), YAML).unwrap();
    says("no Python file here has a class");
    fs::write(dir.join("plugin.py"), CLASS).unwrap();
    hall.until_entry("weather", "is no longer invalid", |entry| {
        entry["phase"] != "invalid" && entry["dialect"] == "homeclaw" && entry["displayName"] == "Weather"
    });
}

#[test]
fn what_is_built_to_cost_is_refused_at_once() {
    use std::fmt::Write as _;
    let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
    for n in 1..20 {
        let _ = writeln!(bomb, "a{n}: &a{n} [{}]", vec![format!("*a{}", n - 1); 9].join(","));
    }
    let text = "x".repeat(200_000);
    let cases = [
        ("bomb", bomb, "more than 10000 values, with those that its aliases stand for"),
        (
            "copies",
            format!("a: &a \"{text}\\n\"\nb: [{}]", "*a,".repeat(15_000)),
            "aliases (`*name`) multiply",
        ),
        ("flow", "[".repeat(200_000), "1:65: values are nested deeper than 64"),
        ("block", "- ".repeat(100_000), "values are nested deeper than 64"),
        ("twice", "id: a\n".repeat(40_000), "2:1: id: stands here a second time"),
        ("many", "- a\n".repeat(60_000), "more than 10000 values"),
        ("huge", "a: b\n".repeat(10_000_000), "is 262145 bytes long: a manifest may have 262144"),
        ("tags", "!x ".repeat(80_000), "the tag !x has no meaning here"),
    ];
    let house = House::new();
    for (name, text, _) in &cases {
        fs::write(house.member_dir(name).join("plugin.yaml"), text).unwrap();
    }
    fs::write(house.members().join("registry.yaml"), "[".repeat(200_000)).unwrap();
    for (name, _, why) in &cases {
        let start = Instant::now();
        let (said, well) = check(&house, &format!("members/{name}"));
        let took = start.elapsed();
        assert!(!well && said.contains(why), "{name}: {said}");
        // The start of the process and a busy machine included: it is milliseconds.
        assert!(took < Duration::from_secs(1), "{name} took {took:?}");
    }
    let (said, _) = check(&house, "members/registry.yaml");
    assert!(said.contains("registry.yaml:1:65: values are nested deeper than 64"), "{said}");
}
