//! The worker with the real interpreter: what a plugin may be, how it is called, and what becomes of it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::*;
use crate::model::porter::{Capability, Kind, Parameter, Plugin};

/// Whatever a test waits for comes long before.
const PATIENCE: Duration = Duration::from_secs(60);

struct Folder {
    dir: TempDir,
    capabilities: Vec<Capability>,
}

impl Folder {
    fn new(source: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("plugin-").tempdir().unwrap();
        let folder = Self { dir, capabilities: Vec::new() };
        folder.write("plugin.py", source);
        folder
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn with(mut self, id: &str, parameters: &[&str]) -> Self {
        let parameters = parameters.iter().map(|name| Parameter {
            name: (*name).into(),
            kind: Kind::String,
            required: false,
            default: None,
            description: None,
            rest: Map::new(),
        });
        self.capabilities.push(Capability {
            id: id.into(),
            parameters: parameters.collect(),
            ..Capability::default()
        });
        self
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    async fn open(&self, class: Option<&str>) -> Result<Python, String> {
        let plugin = Plugin {
            id: "weather".into(),
            name: "Weather".into(),
            description: "Tells the weather".into(),
            capabilities: self.capabilities.clone(),
            ..Plugin::default()
        };
        let behind =
            Behind::Python { file: "plugin.py".into(), class: class.map(Into::into), config_file: None };
        let porter = Porter { plugin, behind, timeout: PATIENCE };
        Python::start(&porter, self.path()).await
    }

    async fn start(&self) -> Python {
        self.open(None).await.unwrap()
    }

    async fn refused(&self) -> String {
        self.open(None).await.expect_err("it does not start")
    }
}

fn asked(capability: Option<&str>, arguments: Value) -> Asked {
    let capability = capability.map(|id| Arc::new(Capability { id: id.into(), ..Capability::default() }));
    Asked::new("weather", capability, arguments.as_object().unwrap().clone())
}

impl Python {
    async fn reply(&self, capability: &str, arguments: Value) -> Reply {
        self.call(&asked(Some(capability), arguments), PATIENCE).await
    }

    async fn text(&self, capability: &str, arguments: Value) -> String {
        let reply = self.reply(capability, arguments).await;
        assert!(reply.success, "{reply:?}");
        reply.text
    }

    async fn error(&self, capability: &str) -> String {
        self.reply(capability, json!({})).await.error.unwrap()
    }
}

#[tokio::test]
async fn a_method_is_called_in_the_style_that_it_is_written_in() {
    let folder = Folder::new(
        r#"
from base.BasePlugin import BasePlugin
from core.coreInterface import CoreInterface

class Weather(BasePlugin):
    def __init__(self, coreInst: CoreInterface):
        super().__init__(coreInst=coreInst)

    async def by_name(self, city, unit="C"):
        return f"{city} {unit} {self.config['key']} {self.promptRequest.request_metadata}"

    def by_name_in_a_thread(self, city, **others):
        return f"{city} {others}"

    async def by_config(self):
        return f"{self.config.get('city')} {self.config.get('unit')} {self.config['key']}"

    def by_both(self, city):
        return f"{city} {self.config.get('unit')}"

    async def with_its_own_argument(self, params=None):
        return f"{params} {self.promptRequest.request_metadata['capability_parameters']}"
"#,
    )
    .with("by_name", &["city", "unit"])
    .with("by_name_in_a_thread", &["city"])
    .with("by_config", &["city", "unit"])
    .with("by_both", &["city", "unit"])
    .with("with_its_own_argument", &["city"])
    .with("By-Config", &["city"]);
    folder.write("config.yml", "key: secret\ncity: Nowhere\n");
    let python = folder.start().await;
    let given = json!({"city": "Bern"});
    let metadata = "{'capability_id': 'by_name', 'capability_parameters': {'city': 'Bern'}}";
    assert_eq!(python.text("by_name", given.clone()).await, format!("Bern C secret {metadata}"));
    assert_eq!(python.text("by_name_in_a_thread", json!({"city": "Bern", "x": 1})).await, "Bern {'x': 1}");
    assert_eq!(python.text("by_config", json!({"city": "Bern", "unit": "F"})).await, "Bern F secret");
    assert_eq!(
        python.text("by_config", json!({})).await,
        "Nowhere None secret",
        "one call's are not the next's"
    );
    assert_eq!(python.text("by_both", json!({"city": "Bern", "unit": "F"})).await, "Bern F");
    assert_eq!(python.text("with_its_own_argument", given.clone()).await, "None {'city': 'Bern'}");
    assert_eq!(python.text("By-Config", given).await, "Bern None secret");
    assert_eq!(python.error("no_such").await, "Weather has no method no_such and no run()");
    python.close().await;
    assert_eq!(python.ended().await, Some(Exit::CLEAN));
}

#[tokio::test]
async fn run_finds_what_it_is_asked_in_the_plugin() {
    let folder = Folder::new(
        r#"
from base.base import PluginResult, PromptRequest
from base.BasePlugin import BasePlugin

class Weather(BasePlugin):
    async def run(self):
        request = self.promptRequest
        assert isinstance(request, PromptRequest) and request.text == self.user_input
        whose = f"{request.user_id} {request.channelType} {request.request_metadata}"
        return PluginResult(text=f"{self.user_input}: {whose}", metadata={"n": 1})
"#,
    );
    let python = folder.start().await;
    let given = json!({"user_input": "hello", "user_id": "u", "channel_type": "EMAIL", "metadata": {"a": 1}});
    let reply = python.call(&asked(None, given), PATIENCE).await;
    assert_eq!(reply.text, "hello: u ChannelType.Email {'a': 1}");
    assert_eq!(Value::from(reply.metadata.unwrap()), json!({"n": 1}));
    // Its capabilities may be told apart in run().
    assert!(python.text("fetch", json!({})).await.contains("'capability_id': 'fetch'"));
}

#[tokio::test]
async fn whatever_is_returned_becomes_an_answer() {
    let folder = Folder::new(
        r#"
import dataclasses, datetime, enum, pathlib
from base.BasePlugin import BasePlugin

class Odd:
    def __repr__(self):
        return "<odd>"

class Colour(enum.Enum):
    RED = "red"

@dataclasses.dataclass
class Point:
    x: int
    tags: set

circle = {}
circle["self"] = circle
deep = []
for _ in range(3000):
    deep = [deep]
VALUES = {
    "text": "sunny", "nothing": None, "number": 4.5, "list": [1, (2, 3)], "plain": {"a": {"b": 1}},
    "failure": {"success": False, "error": "no such city"}, "point": Point(1, {"a"}),
    "things": {"c": Colour.RED, "p": pathlib.Path("/x"), "d": datetime.date(2026, 1, 2), "b": b"ab"},
    "odd": {"o": Odd()}, "nan": {"n": float("nan")}, "keys": {(1, 2): 3}, "circle": circle, "deep": {"d": deep},
    "surrogate": "a\ud800b", "large": {"n": 10 ** 400}, "too_long": "x" * (17 << 20), "long": "x" * (8 << 20),
}

class Weather(BasePlugin):
    def get(self, name):
        return VALUES[name]
"#,
    )
    .with("get", &["name"]);
    let python = folder.start().await;
    let get = async |name: &str| python.reply("get", json!({"name": name})).await;
    let structured = async |name: &str| Value::from(get(name).await.structured.unwrap());
    assert_eq!(get("text").await, Reply::of_text("sunny".into()));
    assert_eq!(get("nothing").await.text, "(no output)");
    assert_eq!(get("number").await.text, "4.5");
    assert_eq!(get("list").await.text, "[1,[2,3]]");
    assert_eq!(structured("plain").await, json!({"a": {"b": 1}}));
    assert_eq!(get("failure").await, Reply::failed("no such city".into()));
    assert_eq!(structured("point").await, json!({"x": 1, "tags": ["a"]}));
    assert_eq!(structured("things").await, json!({"c": "red", "p": "/x", "d": "2026-01-02", "b": "YWI="}));
    let odd = get("odd").await;
    assert_eq!(Value::from(odd.structured.unwrap()), json!({"o": "<odd>"}));
    assert_eq!(odd.metadata.unwrap()["notes"], json!(["Odd is no JSON: it is written as Python shows it"]));
    assert_eq!(structured("nan").await, json!({"n": "nan"}));
    assert_eq!(structured("keys").await, json!({"(1, 2)": 3}));
    assert_eq!(structured("circle").await, json!({"self": "{'self': {...}}"}));
    assert!(get("deep").await.success);
    assert_eq!(get("surrogate").await.text, "a?b");
    assert!(get("large").await.text.contains("00000"));
    assert_eq!(get("long").await.text.len(), 8 << 20);
    assert!(get("too_long").await.error.unwrap().contains("it may have 16777216"));
    assert_eq!(get("text").await.text, "sunny");
}

#[tokio::test]
async fn what_is_sent_to_a_channel_is_the_answer() {
    let folder = Folder::new(
        r#"
import asyncio, threading
from base.BasePlugin import BasePlugin

class Weather(BasePlugin):
    async def run(self):
        await self.coreInst.send_response_to_latest_channel(response="one")
        # Not awaited, as it happens in plugins.
        self.coreInst.send_response_to_request_channel("two", self.promptRequest)

    async def same(self):
        await self.coreInst.send_response_to_latest_channel("quote")
        return "quote"

    def other(self):
        asyncio.run(self.coreInst.send_response_for_plugin("first", self.promptRequest))
        thread = threading.Thread(target=lambda: self.coreInst.send_response_to_latest_channel("from a thread"))
        thread.start()
        thread.join()
        self.coreInst.send_response_to_request_channel("a picture", self.promptRequest, image_path="/x.png")
        return {"text": "last", "success": True}

    async def fails(self):
        await self.coreInst.send_response_to_latest_channel("half of it")
        raise ValueError("the other half")

    async def asks(self):
        return await self.coreInst.openai_chat_completion(messages=[])
"#,
    )
    .with("same", &[])
    .with("other", &[])
    .with("fails", &[])
    .with("asks", &[]);
    let python = folder.start().await;
    let said = python.call(&asked(None, json!({"user_input": "x"})), PATIENCE).await;
    assert_eq!(said.text, "one\ntwo");
    assert_eq!(python.text("same", json!({})).await, "quote");
    let other = python.reply("other", json!({})).await;
    assert_eq!(other.text, "first\nfrom a thread\na picture\nlast");
    assert_eq!(Value::from(other.metadata.unwrap()), json!({"image_path": "/x.png"}));
    let failed = python.reply("fails", json!({})).await;
    assert_eq!((failed.error.as_deref(), &*failed.text), (Some("ValueError: the other half"), "half of it"));
    assert!(python.error("asks").await.contains("no language model"));
}

/// What a plugin needs to tell the test where it is: it makes a file, and waits for one.
const RENDEZVOUS: &str = r#"
import asyncio, os, signal, sys, time
from base.BasePlugin import BasePlugin

def here(name):
    open(name, "w").close()

def until(name):
    while not os.path.exists(name):
        time.sleep(0.005)

async def comes(name):
    while not os.path.exists(name):
        await asyncio.sleep(0.005)
"#;

async fn eventually(what: &str, mut look: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !look().await {
        assert!(Instant::now() < end, "it never came true that {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn calls_by_keyword_run_side_by_side_and_others_take_turns() {
    let source = RENDEZVOUS.to_owned()
        + r#"
class Weather(BasePlugin):
    inside = 0

    def in_thread(self, name, other):
        here(name)
        until(other)
        return f"{name} {self.user_input}"

    async def in_loop(self, name, other):
        here(name)
        await comes(other)
        return f"{name} {self.config['city']}"

    async def by_config(self):
        type(self).inside += 1
        city = self.config["city"]
        await asyncio.sleep(0.01)
        seen = (type(self).inside, city == self.config["city"], await asyncio.get_running_loop().run_in_executor(None, lambda: self.config["city"] == city))
        type(self).inside -= 1
        return str(seen)

    async def held(self):
        here("held")
        await comes("release")
        return self.config["city"]

    async def beside(self, other="x"):
        return self.config["city"]
"#;
    let folder = Folder::new(&source)
        .with("in_thread", &["name", "other"])
        .with("in_loop", &["name", "other"])
        .with("by_config", &["city"])
        .with("held", &["city"])
        .with("beside", &["other"]);
    folder.write("config.yml", "city: Nowhere\n");
    let python = folder.start().await;
    let both = async |capability: &str| {
        tokio::join!(
            python.text(capability, json!({"name": "a", "other": "b", "user_input": "A"})),
            python.text(capability, json!({"name": "b", "other": "a", "user_input": "B"})),
        )
    };
    assert_eq!(both("in_thread").await, ("a A".into(), "b B".into()));
    assert_eq!(both("in_loop").await, ("a Nowhere".into(), "b Nowhere".into()));
    let many = (0..20).map(|n| python.text("by_config", json!({"city": n.to_string()})));
    for seen in futures_util::future::join_all(many).await {
        assert_eq!(seen, "(1, True, True)");
    }
    let held = python.text("held", json!({"city": "Bern"}));
    let beside = async {
        eventually("it is held", async || folder.path().join("held").exists()).await;
        let city = python.text("beside", json!({"other": "y"})).await;
        folder.write("release", "");
        city
    };
    assert_eq!(tokio::join!(held, beside), ("Bern".into(), "Nowhere".into()));
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_is_cancelled() {
    let source = RENDEZVOUS.to_owned()
        + r#"
class Weather(BasePlugin):
    async def waits(self, forever):
        here("waits")
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            here("cancelled")
            raise

    async def run(self):
        await asyncio.sleep(1000 if self.user_input else 0)
        return "done"

    async def hello(self, name):
        return name
"#;
    let folder = Folder::new(&source).with("waits", &["forever"]).with("hello", &["name"]);
    let python = folder.start().await;
    {
        let waits = asked(Some("waits"), json!({"forever": "x"}));
        let call = python.call(&waits, PATIENCE);
        let begun = eventually("it has begun", async || folder.path().join("waits").exists());
        tokio::select! { _ = call => panic!("it ended"), () = begun => {} }
    }
    eventually("it is cancelled", async || folder.path().join("cancelled").exists()).await;
    // One that is given up makes place for the next.
    let late = python.call(&asked(None, json!({"user_input": "x"})), Duration::from_millis(50)).await;
    assert!(late.error.unwrap().contains("did not answer within 0.05 s"));
    assert_eq!(python.call(&asked(None, json!({"user_input": ""})), PATIENCE).await.text, "done");
    assert_eq!(python.text("hello", json!({"name": "x"})).await, "x");
    assert_eq!(python.health().await, Ok(()));
}

#[tokio::test]
async fn a_hang_is_told_with_its_place_and_does_not_hold_up_the_others() {
    let source = RENDEZVOUS.to_owned()
        + r#"
class Weather(BasePlugin):
    def hangs(self):
        until("release")
        return "late"

    def hangs_by_name(self, x):
        until("never")

    async def holds_up(self, x):
        until("released too")

    def hello(self, name):
        return name
"#;
    let folder = Folder::new(&source)
        .with("hangs", &["city"])
        .with("hangs_by_name", &["x"])
        .with("holds_up", &["x"])
        .with("hello", &["name"]);
    let python = folder.start().await;
    let brief = Duration::from_millis(50);
    let given_up = async |capability, arguments| {
        let reply = python.call(&asked(Some(capability), arguments), brief).await;
        assert!(reply.error.as_deref().unwrap().contains("did not answer"), "{reply:?}");
    };
    given_up("hangs_by_name", json!({"x": "1"})).await;
    given_up("hangs", json!({"city": "Bern"})).await;
    assert_eq!(python.text("hello", json!({"name": "x"})).await, "x");
    let hung = python.health().await.unwrap_err();
    assert!(hung.contains("a call of hangs still runs in plugin.py:") && hung.contains("in until"), "{hung}");
    folder.write("release", "");
    eventually("it is well again", async || python.health().await.is_ok()).await;
    given_up("holds_up", json!({"x": "1"})).await;
    let hung = python.health().await.unwrap_err();
    assert!(hung.contains("its event loop is held up at plugin.py:"), "{hung}");
    folder.write("released too", "");
    eventually("it is well again", async || python.health().await.is_ok()).await;
    for _ in 0..7 {
        given_up("hangs_by_name", json!({"x": "1"})).await;
    }
    let hung = python.health().await.unwrap_err();
    assert!(hung.contains("8 calls still run"), "{hung}");
    // As good as dead.
    assert_eq!(timeout(PATIENCE, python.ended()).await, Ok(Some(Exit::Signal(libc::SIGKILL))));
}

#[tokio::test]
async fn an_exit_of_a_method_is_the_calls_and_a_crash_is_the_processs() {
    let source = RENDEZVOUS.to_owned()
        + r#"
class Weather(BasePlugin):
    async def raises(self):
        raise KeyError("city")

    def exits(self):
        sys.exit(4)

    async def exits_in_the_loop(self):
        sys.exit(5)

    async def leaves_one_that_exits(self):
        async def later():
            raise SystemExit(6)
        asyncio.ensure_future(later())
        await asyncio.sleep(0)
        return "left"

    def closes(self):
        os.closerange(3, 50)

    def ends(self):
        os._exit(3)

    def dies(self):
        os.kill(os.getpid(), signal.SIGSEGV)
"#;
    let names = ["raises", "exits", "exits_in_the_loop", "leaves_one_that_exits", "closes", "ends", "dies"];
    let folder = names.iter().fold(Folder::new(&source), |folder, name| folder.with(name, &[]));
    let python = folder.start().await;
    assert_eq!(python.error("raises").await, "KeyError: 'city'");
    assert_eq!(python.error("exits").await, "SystemExit: 4");
    assert_eq!(python.error("exits_in_the_loop").await, "SystemExit: 5");
    assert_eq!(python.text("leaves_one_that_exits", json!({})).await, "left");
    assert_eq!(python.error("exits").await, "SystemExit: 4");
    assert_eq!(python.error("ends").await, "the plugin's process exited with code 3 during the call");
    assert_eq!(python.ended().await, Some(Exit::Code(3)));
    assert!(python.health().await.unwrap_err().contains("exited with code 3"));
    assert!(python.error("raises").await.contains("exited with code 3"));
    let python = folder.start().await;
    assert_eq!(python.error("dies").await, "the plugin's process was killed by SIGSEGV during the call");
    assert_eq!(python.ended().await, Some(Exit::Signal(libc::SIGSEGV)));
    let python = folder.start().await;
    let closed = python.error("closes").await;
    assert!(closed.ends_with("during the call"), "{closed}");
    assert!(python.ended().await.is_some_and(|exit| exit != Exit::CLEAN));
}

#[tokio::test]
async fn a_plugin_that_cannot_be_started_says_why_and_where() {
    let base = "from base.BasePlugin import BasePlugin\n";
    let with_base = |rest: &str| Folder::new(&format!("{base}{rest}"));
    assert_eq!(
        Folder::new("import no_such_module\n").refused().await,
        "ModuleNotFoundError: No module named 'no_such_module' (plugin.py:1); install it into an environment of the plugin's own: python3 -m venv .venv"
    );
    let syntax = with_base("class Weather(BasePlugin)\n    pass\n").refused().await;
    assert!(syntax.starts_with("SyntaxError: ") && syntax.contains("plugin.py:2"), "{syntax}");
    let made = with_base("class Weather(BasePlugin):\n    def __init__(self, coreInst):\n        1 / 0\n");
    assert_eq!(made.refused().await, "ZeroDivisionError: division by zero (plugin.py:4)");
    let begun = with_base(
        "class Weather(BasePlugin):\n    async def initialize(self):\n        raise ValueError('no key')\n",
    );
    assert_eq!(begun.refused().await, "ValueError: no key (plugin.py:4)");
    let exits = with_base("import sys\nsys.exit(7)\n");
    assert_eq!(exits.refused().await, "it calls sys.exit(7) (plugin.py:3)");
    let ends = with_base("import os\nos._exit(9)\n");
    assert_eq!(ends.refused().await, "Python exited with code 9 before the plugin was ready");
    let several = with_base("class A(BasePlugin): pass\nclass B(BasePlugin): pass\nclass C(A): pass\n");
    assert_eq!(several.refused().await, "plugin.py has several plugin classes, and one is needed: B, C");
    assert!(several.open(Some("A")).await.is_ok());
    assert_eq!(several.open(Some("D")).await.err().unwrap(), "plugin.py has no class D");
    assert!(
        Folder::new("class A: pass\n").refused().await.starts_with("plugin.py has no class that is derived")
    );
    let none = Folder::new("");
    fs::remove_file(none.path().join("plugin.py")).unwrap();
    assert!(none.refused().await.starts_with("there is no plugin.py in "));
    none.write(".venv/pyvenv.cfg", "");
    assert!(none.refused().await.contains("has no interpreter any more"));
}

#[tokio::test]
async fn a_plugin_finds_its_neighbours_and_its_own_environment() {
    let folder = Folder::new(
        r#"
import sys
from . import near
from .inner.deep import DEEP
import helper
from base.base import PluginResult
from base.util import Util
from base.workspace import get_workspace_dir
from base.SchedulerPlugin import SchedulerPlugin
from loguru import logger
import os, smtplib, email.message

class Base(SchedulerPlugin):
    pass

class Weather(Base):
    def __init__(self, coreInst):
        super().__init__(coreInst)
        logger.bind(a=1).debug("starts with {}", len(self.config))
        self.config = Util().load_yml_config(os.path.join(os.path.dirname(__file__), "config.yml"))

    def initialize(self):
        if self.initialized:
            return
        super().initialize()
        self.initialized = True

    def look(self):
        plugins = __name__.split(".")[0]
        return f"{near.NEAR} {DEEP} {helper.HELPER} {self.config} {self.initialized} {plugins} {sys.argv} {self.plugin_id} {self.registration['type']} {sys.prefix}"
"#,
    )
    .with("look", &[]);
    for (name, text) in [
        ("near.py", "NEAR = 1"),
        ("inner/deep.py", "DEEP = 2"),
        ("helper.py", "HELPER = 3"),
        // Not the standard library's.
        ("email.py", "raise ImportError('shadowed')"),
        ("json.py", "raise ImportError('shadowed')"),
        ("base.py", "raise ImportError('shadowed')"),
        ("config.yml", "city: Bern\ntasks: {look: {type: fixed}}\n"),
    ] {
        folder.write(name, text);
    }
    let made = std::process::Command::new("python3")
        .args(["-m", "venv", "--without-pip"])
        .arg(folder.path().join(".venv"))
        .status();
    assert!(made.unwrap().success());
    let python = folder.start().await;
    let seen = python.text("look", json!({})).await;
    let expected = format!(
        "1 2 3 {{'city': 'Bern', 'tasks': {{'look': {{'type': 'fixed'}}}}, 'id': 'weather', 'name': 'Weather', 'description': 'Tells the weather'}} True plugins ['plugin.py'] weather inline {}/.venv",
        folder.path().display()
    );
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_plugin_cleans_up_and_is_not_waited_for_for_ever() {
    let source = RENDEZVOUS.to_owned()
        + r#"
class Weather(BasePlugin):
    async def waits(self, x):
        here("waits")
        try:
            await asyncio.sleep(1000)
        finally:
            here("ended")

    async def cleanup(self):
        until("ended")
        here("clean")
        if os.path.exists("deaf"):
            time.sleep(1000)
"#;
    let folder = Folder::new(&source).with("waits", &["x"]);
    for exit in [Exit::CLEAN, Exit::Signal(libc::SIGKILL)] {
        let python = folder.start().await;
        let waits = asked(Some("waits"), json!({"x": "1"}));
        let closing = async {
            eventually("it waits", async || folder.path().join("waits").exists()).await;
            python.close().await;
        };
        let (reply, ()) = tokio::join!(python.call(&waits, PATIENCE), closing);
        assert!(reply.error.is_some());
        assert_eq!(python.ended().await, Some(exit));
        assert!(folder.path().join("clean").exists());
        for name in ["waits", "clean", "ended"] {
            fs::remove_file(folder.path().join(name)).unwrap();
        }
        folder.write("deaf", "");
    }
}

#[tokio::test]
async fn nothing_that_a_plugin_starts_has_its_descriptors() {
    let folder = Folder::new(
        r#"
import multiprocessing, os, subprocess, sys
from base.BasePlugin import BasePlugin

LOOK = "import os; print(sorted(name for name in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + name)))"

def look(queue):
    queue.put([os.path.exists(f"/proc/self/fd/{number}") and "pipe" in os.readlink(f"/proc/self/fd/{number}") for number in (3, 4)])

class Weather(BasePlugin):
    def by_exec(self):
        return subprocess.run([sys.executable, "-c", LOOK], stdout=subprocess.PIPE, close_fds=False, check=True).stdout.decode()

    def by_fork(self):
        pid = os.fork()
        if pid == 0:
            os._exit(sum(os.path.exists(f"/proc/self/fd/{number}") for number in (3, 4)))
        return str(os.waitpid(pid, 0)[1])

    def prints(self):
        for number in (1, 2):
            os.write(number, b'{"id":1,"result":"forged"}\n')
        os.write(4, b'no JSON\n{"id":77,"result":"forged"}\n')
        return "said"
"#,
    )
    .with("by_exec", &[])
    .with("by_fork", &[])
    .with("prints", &[]);
    let python = folder.start().await;
    assert_eq!(python.text("by_exec", json!({})).await.trim(), "['0', '1', '2']");
    assert_eq!(python.text("by_fork", json!({})).await, "0");
    assert_eq!(python.text("prints", json!({})).await, "said");
}
