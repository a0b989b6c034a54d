//! HomeClaw plugins of the types `subprocess` and `http`: what they are offered as, and all that can go wrong with
//! them, told to who has called.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::hall::{BINARY, Hall, House, eventually, python};
use crate::mcp::Mcp;
use crate::traces::{descendants, error, lines, pid, printed, until_dead};

fn fixture(name: &str) -> String {
    format!("{}/tests/members/homeclaw/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Writes the manifest of a plugin; the fields go over the defaults.
fn plugin(house: &House, name: &str, fields: Value) -> PathBuf {
    let mut manifest =
        json!({"id": name, "name": "A plugin", "description": "A plugin of a test", "version": "1.0.0"});
    manifest.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let dir = house.member_dir(name);
    fs::write(dir.join("plugin.json"), manifest.to_string()).unwrap();
    dir
}

fn capability(id: &str, fields: Value) -> Value {
    let mut capability = json!({"id": id, "name": id, "description": format!("Does {id}"), "parameters": []});
    capability.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    capability
}

/// A plugin of tests/members/homeclaw/once.py that can be asked for these capabilities.
fn once(house: &House, name: &str, capabilities: &[&str]) -> PathBuf {
    let capabilities: Vec<Value> = capabilities.iter().map(|id| capability(id, json!({}))).collect();
    let config = json!({"command": python(), "args": ["-S", fixture("once.py")], "timeout_sec": 60, "env": {"OF_THE": "plugin"}});
    plugin(house, name, json!({"type": "subprocess", "config": config, "capabilities": capabilities}))
}

/// The same, which has to answer within a second.
fn hasty(house: &House, name: &str, capabilities: &[&str]) -> PathBuf {
    let dir = once(house, name, capabilities);
    let text = fs::read_to_string(dir.join("plugin.json")).unwrap();
    fs::write(dir.join("plugin.json"), text.replace("\"timeout_sec\":60", "\"timeout_sec\":1")).unwrap();
    dir
}

/// tests/members/homeclaw/served.py, which runs in the directory of the plugin that it serves.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(house: &House, name: &str, flags: &[&str]) -> Self {
        let mut command = Command::new(python());
        command.arg("-S").arg(fixture("served.py")).args(flags).current_dir(house.member_dir(name));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, port: line.trim().parse().expect("it says its port") }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A plugin of type `http` at this URL.
fn served(house: &House, name: &str, url: &str, fields: Value) -> PathBuf {
    let mut all = json!({"type": "http", "config": {"base_url": url, "timeout_sec": 30}});
    all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    plugin(house, name, all)
}

/// The result of a tool.
#[track_caller]
fn called(hall: &Hall, name: &str, tool: &str, arguments: Value) -> Value {
    let (status, answer) = hall.call(name, tool, arguments);
    assert_eq!(status, 200, "{answer}");
    answer["result"].clone()
}

/// The text of a result that is an error, and says all of this.
#[track_caller]
fn assert_fails(result: &Value, words: &[&str]) {
    assert_eq!(result["isError"], true, "{result}");
    let text = result["content"][0]["text"].as_str().unwrap();
    for word in words {
        assert!(text.contains(word), "it should say {word:?}: {text}");
    }
}

#[track_caller]
fn assert_answers(result: &Value, text: &str) {
    assert_eq!((&result["content"][0]["text"], &result["isError"]), (&json!(text), &Value::Null), "{result}");
}

/// The text of a result, which is JSON.
#[track_caller]
fn parsed(result: &Value) -> Value {
    let text = result["content"][0]["text"].as_str().unwrap();
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {result}"))
}

/// A port that nobody listens on.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn capabilities_are_tools_with_all_that_is_known_of_them() {
    let house = House::new();
    let dir = house.member_dir("weather");
    let manifest = format!(
        "id: weather
name: Weather Plugin
description: Current weather
description_long: Weather in many words
keywords: [sun, rain]
type: subprocess
config: {{command: {}, args: [-S, {}]}}
capabilities:
  - id: echo
    name: Get current weather
    description: Returns current weather for a city.
    parameters:
      - {{name: City, type: string, required: true, description: City name}}
      - {{name: days, type: integer, required: false, default: 3}}
      - {{name: detailed, type: boolean, required: false}}
    output_description: '{{\"text\": \"string\", \"type\": \"object\"}}'
    icon: sun.png
",
        python(),
        fixture("once.py")
    );
    fs::write(dir.join("plugin.yaml"), manifest).unwrap();
    let hall = house.start();
    let entry = hall.until("weather", "connected");
    assert_eq!(
        (&entry["dialect"], &entry["transport"], &entry["displayName"]),
        (&json!("homeclaw"), &json!("subprocess"), &json!("Weather Plugin"))
    );
    let mcp = Mcp::open(&hall, "/mcp/weather");
    let tool = mcp.ask("tools/list", json!({}))["result"]["tools"][0].clone();
    assert_eq!(
        (&tool["name"], &tool["title"], &tool["outputSchema"]),
        (&json!("echo"), &json!("Get current weather"), &Value::Null)
    );
    let description =
        "Returns current weather for a city.\n\nReturns: {\"text\": \"string\", \"type\": \"object\"}";
    assert_eq!(tool["description"], description);
    assert_eq!(
        tool["inputSchema"],
        json!({
            "type": "object",
            "properties": {
                "City": {"type": "string", "description": "City name"},
                "days": {"type": "integer", "default": 3},
                "detailed": {"type": "boolean"},
            },
            "required": ["City"],
        })
    );
    let meta = &tool["_meta"];
    assert_eq!(
        (&meta["homeclaw/icon"], &meta["homeclaw/keywords"], &meta["homeclaw/description_long"]),
        (&json!("sun.png"), &json!(["sun", "rain"]), &json!("Weather in many words"))
    );
    let mut asked = parsed(&mcp.call("echo", json!({"City": "Bern", "more": [1]}))["result"]);
    assert_eq!(asked["request_id"].take().as_str().map(str::len), Some(32));
    let expected = json!({
        "request_id": null, "plugin_id": "weather", "user_input": "", "user_id": "", "user_name": "", "channel_name": "",
        "channel_type": "", "app_id": "", "chat_context": "", "metadata": {}, "capability_id": "echo",
        "capability_parameters": {"City": "Bern", "days": 3, "more": [1]},
    });
    assert_eq!(asked, expected);
}

#[test]
fn a_plugin_without_capabilities_is_one_tool_that_takes_a_request() {
    let house = House::new();
    once(&house, "echo", &[]);
    let hall = house.start();
    hall.until("echo", "connected");
    let mcp = Mcp::open(&hall, "/mcp");
    assert_eq!(mcp.tools(), ["echo__echo"]);
    let given = json!({"user_input": "hello", "user_id": "u1", "channel_name": "c", "metadata": {"a": 1}});
    let asked = parsed(&mcp.call("echo__echo", given)["result"]);
    let told =
        ["plugin_id", "user_input", "user_id", "user_name", "channel_name"].map(|field| asked[field].clone());
    assert_eq!(told, ["echo", "hello", "u1", "", "c"]);
    assert_eq!((&asked["metadata"], &asked["capability_id"]), (&json!({"a": 1}), &Value::Null));
    assert_fails(&called(&hall, "echo", "echo", json!({})), &["missing: \"user_input\""]);
}

#[test]
fn faults_in_arguments_are_all_told_before_the_plugin_is_called() {
    let house = House::new();
    let parameters = json!([
        {"name": "city", "type": "string"},
        {"name": "unit", "type": "string", "required": true},
        {"name": "days", "type": "integer", "required": false},
        {"name": "tags", "type": "array", "required": false},
    ]);
    let config = json!({"command": python(), "args": ["-S", fixture("once.py")]});
    let capabilities = [capability("echo", json!({"parameters": parameters}))];
    let fields = json!({"type": "subprocess", "config": config, "capabilities": capabilities});
    let dir = plugin(&house, "strict", fields);
    let hall = house.start();
    hall.until("strict", "connected");
    let refused = called(&hall, "strict", "echo", json!({"days": "3", "tags": {"a": 1}}));
    assert_fails(&refused, &["echo was not called", "missing: \"city\"", "\"unit\""]);
    assert_fails(
        &refused,
        &["\"days\" must be an integer, and is the string \"3\"", "\"tags\" must be an array"],
    );
    let fraction = called(&hall, "strict", "echo", json!({"city": "", "unit": "", "days": 1.5}));
    assert_fails(&fraction, &["\"days\" must be an integer, and is the number 1.5"]);
    assert_eq!(lines(&dir.join("launches")).len(), 0);
    let nobody = Mcp::open(&hall, "/mcp/strict").call("nobody", json!({}));
    assert_eq!(nobody["error"]["code"], -32602, "{nobody}");
    let fine = called(&hall, "strict", "echo", json!({"city": "a", "unit": "b", "days": 2, "tags": []}));
    assert_eq!(parsed(&fine)["capability_parameters"]["days"], 2);
    assert_eq!(lines(&dir.join("launches")).len(), 1);
}

#[test]
fn whatever_a_process_does_is_told_to_who_has_called() {
    let house = House::new();
    let all = ["fail", "fail_in_words", "crash", "flood", "garbage", "chatty", "silent", "rich", "refuse"];
    once(&house, "once", &all);
    let hall = house.start();
    let before = hall.until("once", "connected");
    let call = |tool| called(&hall, "once", tool, json!({}));
    assert_fails(&call("fail"), &["exited with code 3", "once.py", "line 2 of a traceback"]);
    assert_fails(&call("fail_in_words"), &["no such city", "exited with code 1"]);
    assert_fails(&call("crash"), &["was killed by SIGSEGV"]);
    assert_fails(&call("flood"), &["wrote more than 16 MiB to stdout, and was killed"]);
    let refused = call("refuse");
    assert_fails(&refused, &[]);
    assert_eq!(refused["content"], json!([{"type": "text", "text": "I will not"}]));
    assert_answers(&call("garbage"), "<html>\u{fffd}\u{1b}[31m no JSON at all");
    assert_answers(&call("silent"), "");
    let chatty = call("chatty");
    assert_answers(&chatty, "the answer");
    assert_eq!(
        chatty["structuredContent"],
        json!({"text": "the answer", "metadata": {"took": 1}, "rank": 2})
    );
    let rich = call("rich");
    assert_answers(&rich, "sunny");
    assert_eq!(
        rich["structuredContent"],
        json!({"text": "sunny", "temperature": 20, "metadata": {"source": "sky"}})
    );
    let after = hall.entry("once");
    assert_eq!(
        (pid(&after), &after["restarts"]),
        (pid(&before), &json!(0)),
        "none of it is the member's fault"
    );
    let (_, log) = hall.get("/v1/members/once/logs");
    let log = log.as_str().unwrap();
    assert!(log.contains("line 1\n") && log.contains("loading the model"), "{log}");
}

#[test]
fn what_a_process_leaves_behind_is_ended_and_not_waited_for() {
    let house = House::new();
    let fork = hasty(&house, "fork", &["fork"]);
    let daemon = hasty(&house, "daemon", &["daemon"]);
    let hang = hasty(&house, "hang", &["hang"]);
    let hall = house.start();
    for name in ["fork", "daemon", "hang"] {
        hall.until(name, "connected");
    }
    // They hold the pipe that the answer came by.
    for (name, dir) in [("fork", &fork), ("daemon", &daemon)] {
        assert_answers(&called(&hall, name, name, json!({})), "I go");
        until_dead("those left behind", &descendants(dir));
    }
    let hung = called(&hall, "hang", "hang", json!({}));
    assert_fails(&hung, &["did not end within 1s, and was killed", "I hang"]);
    assert_eq!(descendants(&hang).len(), 2);
    until_dead("the hung and its child", &descendants(&hang));
}

#[test]
fn a_process_that_nobody_waits_for_any_more_is_ended() {
    let house = House::new();
    let dir = once(&house, "hang", &["hang"]);
    let hall = house.start();
    hall.until("hang", "connected");
    let two = || (descendants(&dir).len() == 2).then_some(());
    Mcp::open(&hall, "/mcp").abandon("tools/call", json!({"name": "hang__hang", "arguments": {}}), || {
        eventually("it hangs", two);
    });
    until_dead("the abandoned and its child", &descendants(&dir));
}

#[test]
fn a_stop_ends_what_is_under_way() {
    let house = House::new();
    let dir = once(&house, "hang", &["hang"]);
    let hall = house.start();
    hall.until("hang", "connected");
    std::thread::scope(|scope| {
        let _call = scope.spawn(|| hall.call("hang", "hang", json!({})));
        eventually("it hangs", || (descendants(&dir).len() == 2).then_some(()));
        assert_eq!(hall.post("/v1/members/hang/stop", &json!({})).0, 200);
        until_dead("the hung and its child", &descendants(&dir));
    });
    hall.stop();
}

#[test]
fn sixteen_processes_run_at_a_time_and_others_wait() {
    let house = House::new();
    once(&house, "count", &["count"]);
    let hall = house.start();
    hall.until("count", "connected");
    let most = std::thread::scope(|scope| {
        let call = || parsed(&called(&hall, "count", "count", json!({}))).as_u64().unwrap();
        let calls: Vec<_> = (0..40).map(|_| scope.spawn(call)).collect();
        calls.into_iter().map(|call| call.join().unwrap()).max().unwrap()
    });
    assert!((2..=16).contains(&most), "{most}");
}

#[test]
fn a_process_has_its_directory_its_variables_and_none_of_the_halls_secrets() {
    let house = House::new();
    let dir = once(&house, "once", &["environment", "place"]);
    let hall = house.start();
    let instance = hall.until("once", "connected")["instance"].clone();
    let place = called(&hall, "once", "place", json!({}));
    assert_answers(&place, dir.canonicalize().unwrap().to_str().unwrap());
    let environment = parsed(&called(&hall, "once", "environment", json!({})));
    assert_eq!((&environment["OF_THE"], &environment["GUILD_HALL_INSTANCE"]), (&json!("plugin"), &instance));
    assert_eq!((&environment["PORT"], &environment["GUILD_HALL_LLM"]), (&Value::Null, &Value::Null));
}

#[test]
fn a_command_that_is_not_there_is_named_with_where_it_was_looked_for() {
    let house = House::new();
    let missing = |command| json!({"type": "subprocess", "config": {"command": command}});
    plugin(&house, "path", missing("no-such-command"));
    plugin(&house, "file", missing("./plugin.sh"));
    let hall = house.start();
    let told = |name: &str| {
        let entry = hall.until_entry(name, "is at rest", |entry| {
            matches!(entry["phase"].as_str(), Some("connected" | "failed" | "backoff"))
        });
        if entry["phase"] != "connected" {
            return error(&entry).to_owned();
        }
        let result = called(&hall, name, name, json!({"user_input": ""}));
        assert_fails(&result, &[]);
        result["content"][0]["text"].as_str().unwrap().to_owned()
    };
    let path = told("path");
    assert!(path.contains("cannot find the command \"no-such-command\"; looked in PATH: /"), "{path}");
    let file = told("file");
    assert!(file.contains("there is no") && file.contains("/members/file/./plugin.sh"), "{file}");
}

#[test]
fn whatever_a_server_does_is_told_to_who_has_called() {
    let house = House::new();
    let server = Server::start(&house, "fine", &[]);
    served(&house, "fine", &server.url(), json!({}));
    let nowhere = format!("http://127.0.0.1:{}", free_port());
    served(&house, "refused", &nowhere, json!({}));
    served(&house, "slow", &server.url(), json!({"config": {"base_url": server.url(), "timeout_sec": 1}}));
    let hall = house.start();
    let before = ["fine", "refused", "slow"].map(|name| hall.until(name, "connected"));
    let call = |what: &str| called(&hall, "fine", "fine", json!({"user_input": what}));
    let run = format!("{}/run", server.url());

    let fine = call("fine");
    assert_answers(&fine, "fine");
    let asked = &fine["structuredContent"]["metadata"]["asked"];
    assert_eq!((&asked["plugin_id"], &asked["chat_context"]), (&json!("fine"), &json!("")));
    assert_answers(&call("text"), "plain \u{2600}");
    assert_answers(&call("nothing"), "");
    assert_eq!(call("other JSON")["structuredContent"], json!({"temperature": 20}));

    let refused = call("refused in words");
    assert_fails(&refused, &[]);
    assert_eq!(refused["content"][0]["text"], "no such city");
    assert_fails(&call("500 in words"), &["the database is down", "500 Internal Server Error"]);
    assert_fails(&call("422 of FastAPI"), &["field required", "422"]);
    assert_fails(&call("500"), &[&run, "answered 500", "<h1>Internal Server Error</h1>"]);
    assert_fails(&call("503 without a word"), &[&run, "answered 503 Service Unavailable"]);
    assert_fails(&call("bytes"), &[&run, "6 bytes that are no text (image/png)"]);
    assert_fails(&call("garbage"), &[&run, "broke off"]);
    assert_fails(&call("break off"), &[&run, "broke off"]);
    assert_fails(&call("100 MB"), &[&run, "more than 16 MiB"]);
    assert_fails(&call("100 MB announced"), &[&run, "more than 16 MiB"]);
    let nobody = called(&hall, "refused", "refused", json!({"user_input": ""}));
    assert_fails(&nobody, &[&nowhere, "Connection refused", "Does the plugin's own server run?"]);
    for what in ["slow", "drip"] {
        let late = called(&hall, "slow", "slow", json!({"user_input": what}));
        assert_fails(&late, &[&run, "did not answer within 1s"]);
    }
    assert_answers(&call("fine"), "fine");
    for before in before {
        let after = hall.entry(before["name"].as_str().unwrap());
        assert_eq!(
            (pid(&after), &after["phase"], &after["restarts"]),
            (pid(&before), &json!("connected"), &json!(0))
        );
    }
}

#[test]
fn a_capability_is_asked_for_by_its_method_and_path() {
    let house = House::new();
    let server = Server::start(&house, "rest", &[]);
    let other = Server::start(&house, "other", &[]);
    let away = format!("/away?{}", other.port);
    let text = |name: &str| json!({"name": name, "type": "string", "required": false});
    let parameters =
        json!([text("q"), {"name": "n", "type": "integer", "required": false, "default": 7}, text("id")]);
    let asking = |id: &str, method: &str, path: &str| {
        capability(id, json!({"method": method, "path": path, "parameters": parameters}))
    };
    let config = json!({"base_url": server.url(), "headers": {"X-Key": "secret"}});
    let capabilities = json!([
        asking("get", "GET", "/echo/get"),
        asking("post", "POST", "/echo/post"),
        asking("item", "DELETE", "/echo/{id}/item"),
        asking("again", "GET", "/again/3"),
        asking("round", "GET", "/again/100"),
        asking("away", "GET", &away),
        asking("elsewhere", "PUT", &format!("{}/echo/elsewhere", other.url())),
    ]);
    served(&house, "rest", &server.url(), json!({"config": config, "capabilities": capabilities}));
    let hall = house.start();
    hall.until("rest", "connected");
    let call = |tool: &str, arguments: Value| called(&hall, "rest", tool, arguments);
    let asked = |tool: &str, arguments: Value| parsed(&call(tool, arguments));

    let get = asked("get", json!({"q": "a b&c=ü", "more": [1, "x"]}));
    let expected = "/echo/get?more=1&more=x&n=7&q=a%20b%26c%3D%C3%BC";
    assert_eq!((&get["method"], &get["path"], &get["body"]), (&json!("GET"), &json!(expected), &json!("")));
    assert_eq!((&get["headers"]["x-key"], &get["headers"]["content-type"]), (&json!("secret"), &Value::Null));
    let post = asked("post", json!({"q": "x"}));
    assert_eq!((&post["path"], &post["body"]), (&json!("/echo/post"), &json!(r#"{"n":7,"q":"x"}"#)));
    assert_eq!(post["headers"]["content-type"], "application/json");
    let item = asked("item", json!({"id": "a/../b"}));
    assert_eq!((&item["method"], &item["path"]), (&json!("DELETE"), &json!("/echo/a%2F..%2Fb/item?n=7")));
    assert_fails(&call("item", json!({})), &["\"id\", which was not given"]);
    assert_fails(&call("item", json!({"id": ".."})), &["cannot stand in"]);
    assert_eq!(asked("elsewhere", json!({}))["path"], "/echo/elsewhere");

    assert_eq!(asked("again", json!({}))["path"], "/echo/at-last");
    assert_fails(&call("round", json!({})), &["redirects more than 5 times"]);
    let away = asked("away", json!({}));
    assert_eq!((&away["path"], &away["headers"]["x-key"]), (&json!("/echo/away"), &Value::Null));

    let connection = |tool| call(tool, json!({}))["structuredContent"]["connection"].clone();
    assert_eq!(connection("get"), connection("post"), "connections are kept");
}

#[test]
fn an_unhealthy_server_is_an_error_in_the_roster_and_comes_back_by_itself() {
    let house = House::new();
    let server = Server::start(&house, "moody", &[]);
    let health = format!("{}/health", server.url());
    let dir = served(&house, "moody", &server.url(), json!({"health_check_url": health}));
    let hall = house.start();
    let before = hall.until("moody", "connected");
    fs::write(dir.join("ill"), "").unwrap();
    assert!(!hall.is_well("moody"));
    let ill = hall.until_entry("moody", "is an error", |entry| entry["status"] == "error");
    assert!(error(&ill).contains("out of order") && error(&ill).contains(&health), "{ill:#}");
    assert_eq!(hall.call("moody", "moody", json!({"user_input": "fine"})).0, 409, "it is not called");
    fs::remove_file(dir.join("ill")).unwrap();
    let well = hall.until("moody", "connected");
    assert_eq!((pid(&well), &well["restarts"], &well["error"]), (pid(&before), &json!(0), &Value::Null));
    assert_answers(&called(&hall, "moody", "moody", json!({"user_input": "fine"})), "fine");
    drop(server);
    // Nobody asks: it is looked after anyway.
    let gone = hall.until_entry("moody", "is an error", |entry| entry["status"] == "error");
    assert!(error(&gone).contains("cannot be reached"), "{gone:#}");
    assert_eq!((pid(&gone), &gone["restarts"]), (pid(&before), &json!(0)));
}

#[test]
fn porters_of_both_types_outlive_the_hall() {
    let house = House::new();
    let server = Server::start(&house, "served", &[]);
    served(&house, "served", &server.url(), json!({}));
    once(&house, "once", &["rich"]);
    let mut hall = house.start();
    let before = ["served", "once"].map(|name| pid(&hall.until(name, "connected")));
    hall.signal(Signal::KILL);
    hall.wait();
    let hall = house.start();
    assert_eq!(["served", "once"].map(|name| pid(&hall.until(name, "connected"))), before);
    assert_answers(&called(&hall, "served", "served", json!({"user_input": "fine"})), "fine");
    assert_answers(&called(&hall, "once", "rich", json!({})), "sunny");
}

/// The examples as they are shipped, and their server on a port of this test.
#[test]
fn the_examples_work() {
    let house = House::new();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/homeclaw");
    let copy = |example: &str, file: &str| {
        let text = fs::read_to_string(examples.join(example).join(file)).unwrap();
        fs::write(house.member_dir(&format!("homeclaw/{example}")).join(file), text).unwrap();
    };
    copy("subprocess", "plugin.yaml");
    copy("subprocess", "plugin.js");
    let port = free_port();
    let text = fs::read_to_string(examples.join("http/plugin.yaml")).unwrap();
    let text = text.replace("127.0.0.1:3100", &format!("127.0.0.1:{port}"));
    fs::write(house.member_dir("homeclaw/http").join("plugin.yaml"), text).unwrap();
    let checked = house.cli(&["check", house.members().to_str().unwrap()]);
    let printed = printed(&checked);
    assert!(checked.status.success() && !printed.contains("warning"), "{printed}");

    let hall = house.start();
    hall.until("homeclaw/subprocess", "connected");
    let early = hall.until_entry("homeclaw/http", "waits for its server", |entry| entry["status"] == "error");
    let mut command = Command::new(python());
    command.arg(examples.join("http/server.py")).arg(port.to_string());
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let _server = Server { child, port };
    assert_eq!(pid(&hall.until("homeclaw/http", "connected")), pid(&early));
    for name in ["homeclaw/subprocess", "homeclaw/http"] {
        let rolled = called(&hall, name, "roll", json!({"notation": "2d6+1", "times": 3}));
        assert_eq!(rolled["structuredContent"]["totals"].as_array().map(Vec::len), Some(3), "{rolled}");
        let once = called(&hall, name, "roll", json!({"notation": "d20"}));
        assert_eq!(once["structuredContent"]["totals"].as_array().map(Vec::len), Some(1), "{once}");
        let side = called(&hall, name, "flip", json!({}));
        assert!(side["content"][0]["text"] == "heads" || side["content"][0]["text"] == "tails", "{side}");
        assert_fails(&called(&hall, name, "roll", json!({"notation": "x"})), &["cannot roll \"x\""]);
        assert_fails(&called(&hall, name, "roll", json!({"times": "3"})), &["\"notation\"", "\"times\""]);
    }
}

#[test]
fn proxies_of_the_environment_are_not_asked_for_this_machine() {
    let house = House::new();
    let server = Server::start(&house, "near", &[]);
    served(&house, "near", &server.url(), json!({}));
    served(&house, "far", "http://plugin.invalid:8080", json!({}));
    let proxy = Server::start(&house, "proxy", &[]);
    let mut command = Command::new(BINARY);
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"] {
        command.env(name, proxy.url());
    }
    command.env_remove("no_proxy").env_remove("NO_PROXY");
    let hall = house.start_command(command, &[]);
    hall.until("near", "connected");
    hall.until("far", "connected");
    assert_answers(&called(&hall, "near", "near", json!({"user_input": "fine"})), "fine");
    assert_eq!(lines(&house.member_dir("proxy").join("asked")).len(), 0);
    called(&hall, "far", "far", json!({"user_input": ""}));
    assert_eq!(lines(&house.member_dir("proxy").join("asked")), ["POST http://plugin.invalid:8080/run"]);
}

#[test]
fn a_server_with_tls_is_who_it_says() {
    let house = House::new();
    let pem = fixture("tls/server.pem");
    let server = Server::start(&house, "tls", &["--tls", &pem]);
    let url = format!("https://localhost:{}", server.port);
    served(&house, "tls", &url, json!({}));
    let other = format!("https://127.0.0.1:{}", server.port);
    served(&house, "other", &other, json!({}));
    let mut command = Command::new(BINARY);
    command.env("SSL_CERT_FILE", fixture("tls/ca.pem"));
    let hall = house.start_command(command, &[]);
    hall.until("tls", "connected");
    hall.until("other", "connected");
    for _ in 0..2 {
        assert_answers(&called(&hall, "tls", "tls", json!({"user_input": "fine"})), "fine");
    }
    let refused = called(&hall, "other", "other", json!({"user_input": "fine"}));
    assert_fails(&refused, &[&other, "cannot be reached", "certificate"]);
    hall.stop();
    let hall = house.start();
    hall.until("tls", "connected");
    let refused = called(&hall, "tls", "tls", json!({"user_input": "fine"}));
    assert_fails(&refused, &[&url, "cannot be reached", "certificate"]);
}

#[test]
fn a_result_goes_through_the_language_model_if_there_is_one() {
    let house = House::new();
    let model = Server::start(&house, "model", &[]);
    let config = json!({"command": python(), "args": ["-S", fixture("once.py")]});
    let processed = json!({"post_process": true, "post_process_prompt": "Shout"});
    let capabilities = [
        capability("rich", processed.clone()),
        capability("refuse", processed),
        capability("chatty", json!({})),
    ];
    plugin(&house, "once", json!({"type": "subprocess", "config": config, "capabilities": capabilities}));
    let call = |hall: &Hall, tool: &str| called(hall, "once", tool, json!({}));
    let not_processed = |result: &Value, why: &str| {
        assert_answers(result, "sunny");
        let mark = result["_meta"]["homeclaw/post_process"].as_str().unwrap();
        assert!(mark.starts_with("not processed: ") && mark.contains(why), "{mark}");
    };

    let hall = house.start();
    hall.until("once", "connected");
    not_processed(&call(&hall, "rich"), "no language model is configured");
    hall.stop();

    let file = house.run_dir().with_file_name("guild-hall.yaml");
    let llm =
        format!("llm:\n  base_url: {}/v1\n  model: shouter\n  api_key_env: KEY_OF_THE_MODEL\n", model.url());
    fs::write(&file, llm).unwrap();
    let mut command = Command::new(BINARY);
    command.env("KEY_OF_THE_MODEL", "secret");
    let hall = house.start_command(command, &[]);
    hall.until("once", "connected");
    let rich = call(&hall, "rich");
    assert_answers(&rich, "Shout: SUNNY");
    assert_eq!(rich["_meta"]["homeclaw/post_process"], "processed");
    assert_eq!(rich["_meta"]["homeclaw/original_text"], "sunny");
    assert_eq!(
        rich["structuredContent"],
        json!({"text": "Shout: SUNNY", "temperature": 20, "metadata": {"source": "sky"}})
    );
    assert_answers(&call(&hall, "chatty"), "the answer");
    assert_fails(&call(&hall, "refuse"), &["I will not"]);
    let asked = |dir: &Path| lines(&dir.join("asked"));
    assert_eq!(asked(&house.member_dir("model")), ["POST /v1/chat/completions"]);

    fs::write(house.member_dir("model").join("dumb"), "").unwrap();
    not_processed(&call(&hall, "rich"), "out of memory");
    let (_, log) = hall.get("/v1/members/once/logs");
    assert!(log.as_str().unwrap().contains("the result of rich is not processed"), "{log}");
    drop(model);
    not_processed(&call(&hall, "rich"), "cannot be reached");
}
