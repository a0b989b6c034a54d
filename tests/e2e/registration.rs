//! Plugins that register themselves: what is answered, what is kept, what takes them away and what does not.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::hall::{BINARY, Hall, House, eventually, example};
use crate::mcp::At;
use crate::plugins::descriptor;
use crate::traces::{connected, done, printed};

fn paper(house: &House) -> PathBuf {
    house.run_dir().join("registered.json")
}

fn names(hall: &Hall) -> Vec<String> {
    let (_, roster) = hall.get("/v1/roster");
    roster["members"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["name"].as_str().unwrap().to_owned())
        .collect()
}

/// A descriptor with this in place of what stands there; `null` takes it out.
fn with(field: &str, value: &Value) -> Value {
    let mut descriptor = descriptor("slack-bot");
    let fields = descriptor.as_object_mut().unwrap();
    match value {
        Value::Null => drop(fields.remove(field)),
        value => drop(fields.insert(field.into(), value.clone())),
    }
    descriptor
}

#[test]
fn a_registered_plugin_is_a_member_and_shows_all_that_it_says_but_its_secrets() {
    let house = House::new();
    house.members();
    let hall = house.start();
    let (status, answer) = hall.post("/api/plugins/register", &descriptor("slack-bot"));
    let expected = json!({"plugin_id": "slack-bot", "registered": true, "member": "registered/slack-bot"});
    assert_eq!((status, answer), (200, expected));
    let entry = hall.entry("registered/slack-bot");
    assert_eq!((&entry["dialect"], &entry["displayName"]), (&json!("homeclaw"), &json!("Slack Plugin")));

    let mut shown = hall.plugin("slack-bot").unwrap();
    for passing in ["status", "phase", "error"] {
        assert!(shown.as_object_mut().unwrap().remove(passing).is_some(), "{passing}");
    }
    let sent = descriptor("slack-bot");
    let mut capabilities = sent["capabilities"].clone();
    for parameter in capabilities[0]["parameters"].as_array_mut().unwrap() {
        parameter["required"] = json!(true);
    }
    let expected = json!({
        "id": "slack-bot", "name": sent["name"], "description": sent["description"],
        "description_long": sent["description_long"], "version": null, "keywords": [], "type": "http",
        "source": "external", "capabilities": capabilities, "health_check_url": sent["health_check_url"],
        "member": "registered/slack-bot",
    });
    assert_eq!(shown, expected);

    for (path, text) in ["/api/plugins", "/v1/roster", "/api/roster", "/metrics", "/v1/tools"]
        .map(|path| (path, hall.get(path).1.to_string()))
    {
        assert!(!text.contains("sesame"), "{path} tells a secret: {text}");
    }
    assert!(!hall.log().contains("sesame"), "{}", hall.log());
    assert_eq!(fs::metadata(paper(&house)).unwrap().permissions().mode() & 0o777, 0o600);
    hall.unregister("slack-bot");
    eventually("it has left the roster", || names(&hall).is_empty().then_some(()));
    assert_eq!(hall.plugin("slack-bot"), None);
    hall.stop();
}

#[test]
fn what_is_missing_or_mistyped_is_422_with_its_place() {
    let house = House::new();
    house.members();
    let hall = house.start();
    let capability = |field: &str, value: Value| {
        let mut capability = descriptor("x")["capabilities"][0].clone();
        capability[field] = value;
        json!([capability])
    };
    for (field, value, location) in [
        ("plugin_id", json!(null), json!(["body", "plugin_id"])),
        ("plugin_id", json!(7), json!(["body", "plugin_id"])),
        ("name", json!(null), json!(["body", "name"])),
        ("description", json!([]), json!(["body", "description"])),
        ("health_check_url", json!(null), json!(["body", "health_check_url"])),
        ("type", json!(null), json!(["body", "type"])),
        ("type", json!(1), json!(["body", "type"])),
        ("config", json!(null), json!(["body", "config"])),
        ("config", json!("x"), json!(["body", "config"])),
        ("capabilities", capability("id", json!(1)), json!(["body", "capabilities", 0, "id"])),
        (
            "capabilities",
            capability("parameters", json!([{"name": "a", "type": "string"}, {"name": 2, "type": "string"}])),
            json!(["body", "capabilities", 0, "parameters", 1, "name"]),
        ),
    ] {
        let (status, answer) = hall.post("/api/plugins/register", &with(field, &value));
        assert_eq!(status, 422, "{field} {value}: {answer}");
        let first = &answer["detail"][0];
        assert_eq!(first["loc"], location, "{field} {value}: {answer}");
        assert!(first["msg"].is_string() && first["type"].is_string(), "{answer}");
        if value.is_null() {
            assert_eq!(first["type"], "missing");
        }
    }
    let several = json!({"plugin_id": "x", "type": "http", "config": {}});
    let (status, answer) = hall.post("/api/plugins/register", &several);
    assert_eq!(status, 422);
    assert!(answer["detail"].as_array().unwrap().len() >= 3, "all of them are told: {answer}");
    for body in ["", "{", "[]", "null", "\"x\"", "\u{feff}", &"[".repeat(10_000)] {
        let (status, answer) = hall.http("POST", "/api/plugins/register", body);
        assert_eq!(status, 422, "{body:.20}: {answer}");
        assert_eq!(answer["detail"][0]["loc"][0], "body", "{answer}");
    }
    for (body, status) in
        [("{}", 422), ("{\"plugin_id\": 1}", 422), ("x", 422), ("{\"plugin_id\": \"nobody\"}", 404)]
    {
        assert_eq!(hall.http("POST", "/api/plugins/unregister", body).0, status, "{body}");
    }
    assert_eq!(hall.get("/api/plugins/health/nobody").0, 404);
    assert!(!paper(&house).exists(), "nothing was registered");
    assert_eq!(hall.get("/api/plugins").1, json!([]));
}

#[test]
fn what_makes_no_sense_or_is_too_much_is_refused_and_changes_nothing() {
    let house = House::new();
    house.members();
    let hall = house.start();
    let large = with("description_long", &json!("x".repeat(256 * 1024)));
    for (descriptor, status, words) in [
        (with("plugin_id", &json!("")), 400, "plugin_id"),
        (with("plugin_id", &json!(" \t")), 400, "plugin_id"),
        (with("type", &json!("inline")), 400, "inline"),
        (with("type", &json!("")), 400, "type"),
        (large, 413, "262144"),
    ] {
        let (found, answer) = hall.post("/api/plugins/register", &descriptor);
        assert_eq!((found, &answer["registered"]), (status, &json!(false)), "{answer}");
        assert_eq!(answer["status"], status);
        assert!(answer["detail"].as_str().unwrap().contains(words), "{answer}");
    }
    // A disk that does not take it: of a full one, the crash tests know.
    fs::create_dir(house.run_dir().join("registered.json.new")).unwrap();
    let (status, answer) = hall.post("/api/plugins/register", &descriptor("slack-bot"));
    assert_eq!((status, &answer["registered"]), (500, &json!(false)), "{answer}");
    assert!(answer["detail"].as_str().unwrap().contains("registered.json"), "{answer}");
    assert!(names(&hall).is_empty() && !paper(&house).exists());
    fs::remove_dir(house.run_dir().join("registered.json.new")).unwrap();
    hall.register(&descriptor("slack-bot"));
    hall.stop();
}

#[test]
fn an_id_means_the_same_plugin_whatever_its_case_and_separators() {
    let house = House::new();
    house.members();
    let hall = house.start();
    let first = hall.register(&descriptor("Slack Bot"));
    let mut again = descriptor("slack_bot");
    again["name"] = json!("Another");
    assert_eq!(hall.register(&again), first);
    assert_eq!(names(&hall), std::slice::from_ref(&first));
    assert_eq!(hall.plugin("slack_bot").unwrap()["name"], "Another", "the id is as it was last written");
    assert!(!hall.is_well("SLACK%20BOT"), "nobody listens there");
    for odd in ["a/b", "a:b", "../../etc", ".", "…", &"x".repeat(1000)] {
        hall.register(&descriptor(odd));
    }
    assert_eq!(names(&hall).len(), 7, "{:?}", names(&hall));
    assert!(names(&hall).iter().all(|name| name.starts_with("registered/")), "{:?}", names(&hall));
    hall.unregister("SLACK-bot");
    eventually("it has left the roster", || (!names(&hall).contains(&first)).then_some(()));
    let (status, answer) = hall.post("/api/plugins/unregister", &json!({"plugin_id": "slack_bot"}));
    assert_eq!((status, &answer["unregistered"]), (404, &json!(false)), "{answer}");
}

#[test]
fn registering_again_changes_the_member_and_with_the_same_nothing() {
    let house = House::new();
    house.members();
    let hall = house.start();
    let member = hall.register(&descriptor("slack-bot"));
    let written = fs::metadata(paper(&house)).unwrap().modified().unwrap();
    hall.register(&descriptor("slack-bot"));
    assert_eq!(
        fs::metadata(paper(&house)).unwrap().modified().unwrap(),
        written,
        "there is nothing to write"
    );
    let mut changed = descriptor("slack-bot");
    changed["description"] = json!("Does something else");
    hall.register(&changed);
    assert_eq!(hall.entry(&member)["description"], "Does something else");
    assert_eq!(hall.plugin("slack-bot").unwrap()["description"], "Does something else");
    // Who unregisters and registers at once gets the member back.
    hall.unregister("slack-bot");
    hall.register(&changed);
    assert_eq!(names(&hall), [member]);
    hall.stop();
}

#[test]
fn registrations_outlive_rescans_stops_handovers_and_a_killed_hall() {
    let house = House::new();
    house.member("example", example());
    let mut hall = house.start_with(&["--watch"]);
    connected(&hall, "example");
    hall.register(&descriptor("slack-bot"));
    hall.register(&descriptor("mail"));
    hall.unregister("mail");
    eventually("it has left the roster", || (names(&hall).len() == 2).then_some(()));
    let all = ["example", "registered/slack-bot"];
    let (_, changes) = hall.post("/v1/reload", &json!({}));
    assert_eq!(changes, json!({"added": [], "changed": [], "removed": [], "unchanged": 2}));
    hall.signal(Signal::HUP);
    eventually("it has rescanned", || hall.log().contains("rescanned").then_some(()));
    assert_eq!(names(&hall), all);
    // The watcher rescans by itself.
    house.member("other", example());
    eventually("it is seen", || names(&hall).contains(&"other".into()).then_some(()));
    fs::remove_dir_all(house.member_dir("other")).unwrap();
    eventually("it follows the directory", || (names(&hall) == all).then_some(()));

    let images = |hall: &Hall| hall.log().matches("the hall is up").count();
    let before = images(&hall);
    hall.signal(Signal::USR2);
    eventually("the next image has taken over", || (images(&hall) > before).then_some(()));
    assert_eq!(names(&hall), all);
    assert_eq!(hall.post("/v1/reload", &json!({})).1["unchanged"], 2);
    hall.register(&descriptor("calendar"));
    hall.unregister("calendar");

    hall.signal(Signal::KILL);
    hall.child.wait().unwrap();
    let hall = house.start();
    eventually("they are there", || (names(&hall) == all).then_some(()));
    hall.stop();
    let hall = house.start();
    assert_eq!(names(&hall), all);
    assert_eq!(hall.plugin("slack-bot").unwrap()["capabilities"][0]["rate_limit"]["per_minute"], 20);
    hall.stop();
}

#[test]
fn whoever_hangs_up_before_the_answer_is_registered_whole_or_not_at_all() {
    let house = House::new();
    house.members();
    let hall = house.start();
    for n in 0..20 {
        let body = descriptor(&format!("p{n}")).to_string();
        let mut stream = hall.connect();
        let head = format!(
            "POST /api/plugins/register HTTP/1.1\r\nhost: h\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    }
    hall.register(&descriptor("last"));
    eventually("the roster is what is on paper", || {
        let written: Value = serde_json::from_slice(&fs::read(paper(&house)).unwrap()).unwrap();
        let mut written: Vec<String> = written["plugins"]
            .as_array()
            .unwrap()
            .iter()
            .map(|plugin| format!("registered/{}", plugin["plugin_id"].as_str().unwrap()))
            .collect();
        written.sort();
        let mut shown = names(&hall);
        shown.sort();
        (written == shown).then_some(())
    });
}

#[test]
fn many_that_register_at_once_while_the_directory_is_read_again_are_all_there() {
    let house = House::new();
    house.member("example", example());
    let hall = house.start();
    std::thread::scope(|scope| {
        for n in 0..8 {
            let hall = &hall;
            scope.spawn(move || {
                for round in 0..5 {
                    let mut descriptor = descriptor(&format!("p{n}"));
                    descriptor["version"] = json!(format!("{round}"));
                    hall.register(&descriptor);
                    if n == 0 {
                        assert_eq!(hall.post("/v1/reload", &json!({})).0, 200);
                    }
                }
            });
        }
    });
    assert_eq!(names(&hall).len(), 9, "{:?}", names(&hall));
    for n in 0..8 {
        assert_eq!(hall.plugin(&format!("p{n}")).unwrap()["version"], "4");
    }
    assert_eq!(hall.post("/v1/reload", &json!({})).1["unchanged"], 9);
}

#[test]
fn a_torn_or_hostile_file_is_named_and_set_aside() {
    let one = descriptor("slack-bot").to_string();
    let many = format!("{{\"plugins\": [{}]}}", vec![one.as_str(); 1001].join(","));
    let numbers = format!("{{\"plugins\": [{}1]}}", "1,".repeat(2_000_000));
    let deep = format!("{{\"plugins\": [{}1{}]}}", "[".repeat(100_000), "]".repeat(100_000));
    let texts = [
        ("torn", format!("{{\"plugins\": [{}", &one[..40])),
        ("empty", String::new()),
        ("of another shape", "[]".into()),
        ("without an id", "{\"plugins\": [{\"name\": \"x\"}]}".into()),
        ("twice the same", format!("{{\"plugins\": [{one}, {one}]}}")),
        ("too many", many),
        ("a long list of numbers", numbers),
        ("deep", deep),
        ("not even text", "\0\0\0".into()),
    ];
    let house = House::new();
    house.member("example", example());
    fs::create_dir(house.run_dir()).unwrap();
    let aside = house.run_dir().join("registered.json.aside");
    let check = |what: &str| {
        let hall = house.start();
        assert_eq!(names(&hall), ["example"], "{what}");
        let log = hall.log();
        assert!(log.contains("registered.json.aside") && log.contains("WARN"), "{what}: {log}");
        assert!(!paper(&house).exists() && fs::symlink_metadata(&aside).is_ok(), "{what}");
        hall.stop();
        fs::write(house.run_dir().with_file_name("hall.log"), "").unwrap();
        let _ = fs::remove_dir(&aside).or_else(|_| fs::remove_file(&aside));
    };
    for (what, text) in texts {
        fs::write(paper(&house), text).unwrap();
        check(what);
    }
    fs::create_dir(paper(&house)).unwrap();
    check("a directory");
    symlink("/dev/zero", paper(&house)).unwrap();
    check("a link");
    assert!(Command::new("mkfifo").arg(paper(&house)).status().unwrap().success());
    check("a pipe");
    fs::File::create(paper(&house)).unwrap().set_len(1 << 30).unwrap();
    check("huge");

    let hall = house.start();
    hall.register(&descriptor("slack-bot"));
    assert_eq!(names(&hall), ["example", "registered/slack-bot"]);
    hall.stop();
}

#[test]
fn a_descriptor_on_paper_that_this_hall_refuses_is_an_invalid_member_and_no_other_is_the_worse_for_it() {
    let house = House::new();
    house.members();
    fs::create_dir(house.run_dir()).unwrap();
    let written = json!({"plugins": [descriptor("good"), {"plugin_id": "bad", "name": 7}]});
    fs::write(paper(&house), written.to_string()).unwrap();
    let hall = house.start();
    assert_eq!(names(&hall), ["registered/bad", "registered/good"]);
    let bad = hall.entry("registered/bad");
    assert_eq!(bad["phase"], "invalid");
    let error = bad["error"].as_str().unwrap();
    assert!(error.contains("registered.json") && error.contains("plugins[1].name"), "{error}");
    assert!(!hall.is_well("bad"));
    // What is written anew keeps it; the one who mends it registers it again.
    hall.register(&descriptor("third"));
    hall.stop();
    let hall = house.start();
    assert_eq!(hall.entry("registered/bad")["phase"], "invalid");
    hall.register(&descriptor("bad"));
    assert_ne!(hall.entry("registered/bad")["phase"], "invalid");
    hall.stop();
}

#[test]
fn a_place_that_a_directory_has_is_not_given_away_and_one_that_comes_later_waits() {
    let house = House::new();
    house.member("registered/taken", example());
    house.member("registered--stem", example());
    let hall = house.start();
    for id in ["taken", "Stem"] {
        let (status, answer) = hall.post("/api/plugins/register", &descriptor(id));
        assert_eq!((status, &answer["registered"]), (400, &json!(false)), "{answer}");
        assert!(answer["detail"].as_str().unwrap().contains("rename that directory"), "{answer}");
    }
    let (status, answer) = hall.post("/api/plugins/unregister", &json!({"plugin_id": "taken"}));
    assert_eq!((status, &answer["unregistered"]), (400, &json!(false)), "{answer}");
    hall.register(&descriptor("weather"));
    hall.register(&descriptor("mail"));
    let dir = house.member("registered/weather", example());
    house.member("registered--mail", example());
    hall.post("/v1/reload", &json!({}));
    let entry = hall.entry("registered/weather");
    assert_eq!(entry["dialect"], "homeclaw", "the one that was there first keeps its name: {entry}");
    assert!(hall.log().contains("a plugin is registered as registered/weather"), "{}", hall.log());
    let other = hall.entry("registered--mail");
    assert_eq!(other["phase"], "invalid");
    assert!(other["error"].as_str().unwrap().contains("registered/mail"), "{other}");
    hall.unregister("weather");
    hall.post("/v1/reload", &json!({}));
    let entry = connected(&hall, "registered/weather");
    assert_eq!(
        (&entry["dialect"], entry["dir"].as_str()),
        (&json!("guild"), dir.canonicalize().unwrap().to_str())
    );
    hall.stop();
}

#[test]
fn an_id_that_a_plugin_of_the_members_directory_has_is_not_given_away() {
    let house = House::new();
    let manifest =
        "id: Weather_Now\nname: Weather\ndescription: Tells it\ntype: subprocess\nconfig:\n  command: cat\n";
    fs::write(house.member_dir("sky").join("plugin.yaml"), manifest).unwrap();
    let hall = house.start();
    assert_eq!(hall.entry("sky")["dialect"], "homeclaw");
    for path in ["register", "unregister"] {
        let (status, answer) = hall.post(&format!("/api/plugins/{path}"), &descriptor("weather-now"));
        assert_eq!((status, &answer[format!("{path}ed")]), (400, &json!(false)), "{answer}");
        assert!(answer["detail"].as_str().unwrap().contains("sky"), "{answer}");
    }
    let shown = hall.plugin("Weather_Now").unwrap();
    assert_eq!(
        (&shown["type"], &shown["source"], &shown["member"]),
        (&json!("subprocess"), &json!("external"), &json!("sky"))
    );
}

#[test]
fn over_tcp_the_registration_api_is_for_who_has_the_token() {
    let house = House::new();
    house.members();
    let hall = house.start_with(&["--listen", "127.0.0.1:0"]);
    let at = At::Tcp(hall.get("/v1/roster").1["hall"]["gateway"].as_str().unwrap().to_owned());
    let token = fs::read_to_string(house.run_dir().join("token")).unwrap();
    let bearer = format!("Bearer {}", token.trim());
    let body = descriptor("slack-bot").to_string();
    let paths = [
        ("POST", "/api/plugins/register", &*body),
        ("GET", "/api/plugins", ""),
        ("GET", "/api/plugins/health/slack-bot", ""),
        ("POST", "/api/plugins/unregister", &body),
    ];
    for (verb, path, body) in paths {
        assert_eq!(at.http(verb, path, &[], body).unwrap().status, 401, "{path}");
    }
    assert!(names(&hall).is_empty());
    for (verb, path, body) in paths {
        let answer = at.http(verb, path, &[("authorization", &bearer)], body).unwrap();
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    }
}

#[test]
fn the_verbs_register_and_unregister_and_say_what_is_wrong_with_which_field() {
    let house = House::new();
    house.members();
    let file = house.run_dir().with_file_name("slack.json");
    fs::write(&file, descriptor("Slack Bot").to_string()).unwrap();
    let no_hall = house.cli(&["register", "slack.json"]);
    assert_eq!(no_hall.status.code(), Some(3), "{}", printed(&no_hall));

    let hall = house.start();
    let said = done(&house, &["register", "slack.json"]);
    assert!(said.starts_with("registered Slack Bot as registered/slack-bot: "), "{said}");
    let answer: Value =
        serde_json::from_str(&done(&house, &["register", "slack.json", "--json", "--no-wait"])).unwrap();
    assert_eq!(
        answer,
        json!({"plugin_id": "Slack Bot", "registered": true, "member": "registered/slack-bot"})
    );
    let answer: Value = serde_json::from_str(&done(&house, &["register", "slack.json", "--json"])).unwrap();
    assert!(answer["status"].is_string() && answer["phase"].is_string(), "{answer}");

    let mut piped = Command::new(BINARY);
    piped.args(["register", "-", "--no-wait"]).env("GUILD_HALL_SOCKET", &hall.socket).stdin(Stdio::piped());
    let mut piped = piped.stdout(Stdio::piped()).spawn().unwrap();
    piped.stdin.take().unwrap().write_all(descriptor("mail").to_string().as_bytes()).unwrap();
    let output = piped.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "registered mail as registered/mail\n");

    let mut wrong = descriptor("x");
    wrong["capabilities"][0]["id"] = json!(7);
    wrong.as_object_mut().unwrap().remove("name");
    fs::write(&file, wrong.to_string()).unwrap();
    let refused = house.cli(&["register", "slack.json"]);
    assert_eq!(refused.status.code(), Some(1));
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(
        error.contains("slack.json: name: ") && error.contains("slack.json: capabilities[0].id: "),
        "{error}"
    );
    fs::write(&file, "{ no json").unwrap();
    for (args, code, word) in [
        (&["register", "slack.json"][..], 1, "slack.json: "),
        (&["register", "nowhere.json"], 1, "nowhere.json"),
        (&["register"], 2, "FILE"),
        (&["unregister", "nobody"], 4, "nobody"),
        (&["unregister"], 2, "ID"),
    ] {
        let output = house.cli(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", printed(&output));
        assert!(printed(&output).contains(word), "{args:?}: {}", printed(&output));
    }
    assert_eq!(
        done(&house, &["unregister", "slack_bot"]),
        "unregistered Slack Bot, which was registered/slack-bot\n"
    );
    let answer: Value = serde_json::from_str(&done(&house, &["unregister", "mail", "--json"])).unwrap();
    assert_eq!(answer, json!({"plugin_id": "mail", "unregistered": true, "member": "registered/mail"}));
    eventually("both have left the roster", || names(&hall).is_empty().then_some(()));
}
