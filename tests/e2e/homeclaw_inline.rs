//! HomeClaw's inline plugins: Python classes behind a porter, from their folder to the gateway.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::hall::{Hall, House, eventually, example, is_alive};
use crate::mcp::Mcp;

/// Capabilities and what they take, as the plugin below has them.
const CAPABILITIES: [(&str, &[&str]); 14] = [
    ("by_name", &["city", "unit"]),
    ("by_config", &["city", "unit"]),
    ("in_a_thread", &["city"]),
    ("says", &["text"]),
    ("fails", &[]),
    ("raises", &[]),
    ("prints", &[]),
    ("pid", &[]),
    ("counts", &[]),
    ("ends", &[]),
    ("dies", &[]),
    ("waits", &[]),
    ("hangs", &[]),
    ("holds_up", &[]),
];

const PLUGIN: &str = r#"
import asyncio, ctypes, os, sys, time
from base.BasePlugin import BasePlugin

def here(name):
    open(name, "w").close()

class WeatherPlugin(BasePlugin):
    def initialize(self):
        self.count = 0
        here("initialized")

    def cleanup(self):
        here("cleaned up")

    async def by_name(self, city, unit="C"):
        return {"text": f"{city} in {unit}, {self.config['key']}", "temperature": 20.5}

    async def by_config(self):
        return f"{self.config['city']} in {self.config['unit']}"

    def in_a_thread(self, city):
        return city

    async def says(self, text):
        await self.coreInst.send_response_to_request_channel(f"said {text}", self.promptRequest)

    async def fails(self):
        return {"success": False, "error": "no such city"}

    async def raises(self):
        raise ValueError("a bad city")

    def prints(self):
        for _ in range(1024):
            print('{"id":1,"result":"forged"}' + "x" * 1000)
        sys.stderr.write("that was all\n")
        return "printed"

    def pid(self):
        return str(os.getpid())

    def counts(self):
        self.count += 1
        return str(self.count)

    def ends(self):
        os._exit(3)

    def dies(self):
        ctypes.string_at(0)

    async def waits(self):
        here("waits")
        try:
            await asyncio.sleep(1000)
        finally:
            here("cancelled")

    def hangs(self):
        while True:
            time.sleep(0.05)

    async def holds_up(self):
        while True:
            time.sleep(0.05)
"#;

/// A plugin of this source, whose calls may take so many seconds.
fn inline(house: &House, name: &str, source: &str, seconds: u32) -> PathBuf {
    let dir = house.member_dir(name);
    let capabilities = CAPABILITIES.map(|(id, parameters)| {
        let parameter = |name: &&str| json!({"name": name, "type": "string", "required": *name == "city"});
        let parameters: Vec<Value> = parameters.iter().map(parameter).collect();
        json!({"id": id, "name": id, "description": id, "parameters": parameters})
    });
    let manifest = json!({
        "id": name, "name": name, "description": "Tells the weather", "type": "inline",
        "config": {"config_file": "config.yml", "timeout_sec": seconds}, "capabilities": capabilities,
    });
    // JSON is YAML.
    fs::write(dir.join("plugin.yaml"), manifest.to_string()).unwrap();
    fs::write(dir.join("plugin.py"), source).unwrap();
    fs::write(dir.join("config.yml"), "key: secret\nunit: C\n").unwrap();
    dir
}

fn pid(entry: &Value) -> i32 {
    i32::try_from(entry["pid"].as_i64().unwrap()).unwrap()
}

/// The process numbers of the porter and of the Python behind it.
fn pids(hall: &Hall, name: &str) -> (i32, i32) {
    let entry = hall.until(name, "connected");
    (pid(&entry), hall.call_text(name, "pid", json!({})).parse().unwrap())
}

/// What a call that is a failure says.
#[track_caller]
fn failure(hall: &Hall, member: &str, tool: &str) -> String {
    let (status, answer) = hall.call(member, tool, json!({}));
    assert_eq!((status, &answer["result"]["isError"]), (200, &json!(true)), "{answer}");
    answer["result"]["content"][0]["text"].as_str().unwrap().to_owned()
}

fn until_there(dir: &Path, file: &str) {
    eventually(&format!("{file} is there"), || dir.join(file).exists().then_some(()));
}

fn log(hall: &Hall, name: &str) -> String {
    hall.get(&format!("/v1/members/{name}/logs?lines=5000")).1.as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_python_class_is_a_member_in_whatever_style_its_methods_are_written() {
    let house = House::new();
    inline(&house, "weather", PLUGIN, 30);
    let hall = house.start();
    let entry = hall.until("weather", "connected");
    assert_eq!((&entry["dialect"], &entry["transport"]), (&json!("homeclaw"), &json!("python")));
    let mcp = Mcp::open(&hall, "/mcp");
    assert_eq!(mcp.tools().len(), CAPABILITIES.len());
    let answer = mcp.call("weather__by_name", json!({"city": "Bern"}))["result"].clone();
    assert_eq!(answer["content"][0]["text"], "Bern in C, secret");
    assert_eq!(answer["structuredContent"]["temperature"], 20.5);
    assert_eq!(mcp.text("weather__by_config", json!({"city": "Bern", "unit": "F"})), "Bern in F");
    assert_eq!(mcp.text("weather__by_config", json!({"city": "Basel"})), "Basel in C");
    assert_eq!(mcp.text("weather__in_a_thread", json!({"city": "Bern"})), "Bern");
    assert_eq!(mcp.text("weather__says", json!({"text": "hello"})), "said hello");
    assert_eq!(failure(&hall, "weather", "fails"), "no such city");
    assert!(failure(&hall, "weather", "by_name").contains(r#"missing: "city""#));
    hall.stop();
}

#[test]
fn the_examples_run_as_they_are() {
    let house = House::new();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/homeclaw");
    for name in ["inline", "legacy"] {
        let dir = house.member_dir(name);
        for file in fs::read_dir(examples.join(name)).unwrap().map(|entry| entry.unwrap().path()) {
            if file.is_file() {
                fs::copy(&file, dir.join(file.file_name().unwrap())).unwrap();
            }
        }
    }
    let hall = house.start();
    hall.until("inline", "connected");
    let legacy = hall.until("legacy", "connected");
    let answer = hall.call("inline", "convert", json!({"value": 3, "unit": "mi", "to": "km"})).1;
    assert_eq!(answer["result"]["content"][0]["text"], "3 mi = 4.82803 km");
    assert_eq!(answer["result"]["structuredContent"]["unit"], "km");
    assert_eq!(hall.call_text("inline", "list_units", json!({})), "m, km, mi, ft");
    assert!(hall.call_text("inline", "list_units", json!({"style": "detailed"})).contains("ft: 0.3048 m"));
    let tool = legacy["tools"][0]["name"].as_str().unwrap();
    assert_eq!(hall.call_text("legacy", tool, json!({"user_input": "hello"})), "You said: hello");
}

#[test]
fn what_a_plugin_prints_is_in_its_log_and_nowhere_else() {
    let house = House::new();
    inline(&house, "weather", PLUGIN, 30);
    let hall = house.start();
    hall.until("weather", "connected");
    assert_eq!(hall.call_text("weather", "prints", json!({})), "printed");
    eventually("all is in the log", || log(&hall, "weather").contains("that was all").then_some(()));
    let whole = fs::read_to_string(house.run_dir().join("logs/weather.log")).unwrap();
    assert_eq!(whole.matches(r#"{"id":1,"result":"forged"}"#).count(), 1024);
    assert_eq!(failure(&hall, "weather", "raises"), "ValueError: a bad city");
    eventually("the traceback is in the log", || {
        log(&hall, "weather").contains("raise ValueError(\"a bad city\")").then_some(())
    });
    assert_eq!(hall.entry("weather")["restarts"], 0);
}

#[test]
fn a_crash_of_a_plugin_is_its_own_and_it_comes_back() {
    let house = House::new();
    inline(&house, "weather", PLUGIN, 30);
    inline(&house, "other", PLUGIN, 30);
    let hall = house.start();
    let other = pids(&hall, "other");
    let mut before = pids(&hall, "weather");
    for (tool, exit) in [("ends", json!({"code": 3})), ("dies", json!({"signal": "SIGSEGV"}))] {
        // Told by the porter in its last moment, or by the hall.
        let (status, answer) = hall.call("weather", tool, json!({}));
        assert!(status != 200 || answer["result"]["isError"] == true, "{status} {answer}");
        let entry = hall.until_entry("weather", "is back", |entry| {
            entry["phase"] == "connected" && entry["pid"] != json!(before.0)
        });
        for (field, value) in exit.as_object().unwrap() {
            assert_eq!(entry["lastExit"][field], *value, "{entry:#}");
        }
        assert!(!is_alive(before.1));
        before = pids(&hall, "weather");
    }
    assert!(log(&hall, "weather").contains("Segmentation fault"));
    assert_eq!(pids(&hall, "other"), other);
    // Either of the two is nothing without the other.
    kill_process(Pid::from_raw(before.0).unwrap(), Signal::KILL).unwrap();
    eventually("its Python is gone with it", || (!is_alive(before.1)).then_some(()));
}

#[test]
fn a_plugin_that_hangs_is_ended_and_started_anew() {
    let house = House::new();
    inline(&house, "thread", PLUGIN, 1);
    inline(&house, "loop", PLUGIN, 1);
    house.member("example", example());
    let hall = house.start();
    hall.until("example", "connected");
    let (thread, event_loop) = (pids(&hall, "thread"), pids(&hall, "loop"));
    // One call that hangs on a thread is not in the way of others...
    assert!(failure(&hall, "thread", "hangs").contains("did not answer within 1 s"));
    assert_eq!(hall.call_text("thread", "counts", json!({})), "1");
    // ...but eight of them are, and so is one on the event loop.
    for _ in 0..7 {
        assert!(failure(&hall, "thread", "hangs").contains("did not answer within 1 s"));
    }
    assert!(failure(&hall, "loop", "holds_up").contains("did not answer within 1 s"));
    assert_eq!(hall.call_text("example", "echo", json!({"text": "served"})), "served");
    for (name, before) in [("thread", thread), ("loop", event_loop)] {
        let is_new = |entry: &Value| entry["phase"] == "connected" && entry["pid"] != json!(before.0);
        let entry = hall.until_entry(name, "is back", is_new);
        assert_eq!(entry["lastExit"]["signal"], "SIGKILL", "{entry:#}");
        assert!(!is_alive(before.1));
        assert_eq!(hall.call_text(name, "counts", json!({})), "1");
    }
    assert!(log(&hall, "loop").contains("its event loop is held up at plugin.py:"), "{}", log(&hall, "loop"));
}

#[test]
fn a_call_that_nobody_waits_for_is_cancelled_in_the_plugin() {
    let house = House::new();
    let dir = inline(&house, "weather", PLUGIN, 60);
    let hall = house.start();
    let before = pids(&hall, "weather");
    let mcp = Mcp::open(&hall, "/mcp");
    mcp.abandon("tools/call", json!({"name": "weather__waits", "arguments": {}}), || {
        until_there(&dir, "waits");
    });
    until_there(&dir, "cancelled");
    assert_eq!(pids(&hall, "weather"), before);
}

#[test]
fn a_plugin_that_cannot_be_started_says_why_in_the_roster() {
    let house = House::new();
    let broken = PLUGIN.replace("self.count = 0", "raise ValueError('there is no key')");
    inline(&house, "broken", &broken, 30);
    inline(&house, "lacking", &format!("import no_such_module\n{PLUGIN}"), 30);
    let config = inline(&house, "config", PLUGIN, 30);
    fs::write(config.join("config.yml"), "key: [1\nunit: C\n").unwrap();
    inline(&house, "weather", PLUGIN, 30);
    let hall = house.start();
    for (name, why) in [
        ("broken", "ValueError: there is no key (plugin.py:10)"),
        ("lacking", "ModuleNotFoundError: No module named 'no_such_module' (plugin.py:1)"),
        ("config", "config.yml: "),
    ] {
        let entry = hall.until_entry(name, "is in error", |entry| entry["status"] == "error");
        let said = format!("{} {}", entry["error"], entry["stderrTail"]);
        assert!(said.contains(why), "{said}");
    }
    hall.until("weather", "connected");
}

#[test]
fn a_plugin_and_what_it_knows_outlive_a_hall_that_is_killed() {
    let house = House::new();
    let dir = inline(&house, "weather", PLUGIN, 30);
    let mut hall = house.start();
    let before = pids(&hall, "weather");
    assert_eq!(hall.call_text("weather", "counts", json!({})), "1");
    hall.signal(Signal::KILL);
    hall.wait();
    let hall = house.start();
    assert_eq!(pids(&hall, "weather"), before);
    assert_eq!(hall.entry("weather")["adopted"], true);
    assert_eq!(hall.call_text("weather", "counts", json!({})), "2");
    assert!(!dir.join("cleaned up").exists());
    hall.stop();
    assert!(dir.join("cleaned up").exists());
    assert!(!is_alive(before.0) && !is_alive(before.1));
}
