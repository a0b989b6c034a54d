//! What becomes of what a plugin says.

use super::*;

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
