"""piped.py [KNOB…]: an MCP server on pipes, as small as can be. Knobs: `noise` prints before it speaks, `deaf` stays when it is
asked to end, `mute` never answers `initialize`, `exit=N` exits as soon as it is asked to initialize. What it is
notified of stands in `heard` in its cwd, one JSON-RPC method a line, with the request that is cancelled."""
import json
import os
import signal
import subprocess
import sys
import threading
import time

knobs = dict((knob + "=").split("=")[:2] for knob in sys.argv[1:])
lock = threading.Lock()
answers = {}


def say(**message):
    with lock:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def text(said):
    return {"content": [{"type": "text", "text": said}]}


def progress(arguments, meta):
    for done in range(1, arguments["to"] + 1):
        say(method="notifications/progress", params={"progressToken": meta["progressToken"], "progress": done})
    return text("done")


def ask(arguments, _):
    come = threading.Event()
    answers["question"] = come
    say(id="question", method="sampling/createMessage", params={"messages": [], "maxTokens": 1})
    come.wait()
    return text(json.dumps(answers["answer"]))


def leave_behind(*_):
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    return text(str(child.pid))


TOOLS = {
    "echo": lambda arguments, _: text(arguments["text"]),
    "pid": lambda *_: text(str(os.getpid())),
    "env": lambda *_: text(json.dumps(dict(os.environ))),
    "sleep": lambda arguments, _: time.sleep(arguments["ms"] / 1000) or text("slept"),
    "hang": lambda *_: threading.Event().wait(),
    "exit": lambda arguments, _: os._exit(arguments["code"]),
    "die": lambda arguments, _: os.kill(os.getpid(), arguments["signal"]),
    "huge": lambda arguments, _: text("x" * arguments["bytes"]),
    "close": lambda *_: os.close(1),
    "progress": progress,
    "ask": ask,
    "leave_behind": leave_behind,
}
SCHEMA = {"type": "object"}


def result(method, params):
    if method == "initialize":
        if "exit" in knobs:
            os._exit(int(knobs["exit"]))
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "piped", "version": "1"}}
    if method == "tools/list":
        return {"tools": [{"name": name, "inputSchema": SCHEMA} for name in TOOLS]}
    if method == "tools/call":
        return TOOLS[params["name"]](params.get("arguments") or {}, params.get("_meta") or {})
    return {}


def serve(asked):
    said = result(asked["method"], asked.get("params") or {})
    say(id=asked["id"], result=said)


if "deaf" in knobs:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "noise" in knobs:
    print("Hello, I am a server!\n\n{\"half\": ", flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if "method" not in asked:
        answers["answer"] = asked.get("result", asked.get("error"))
        answers["question"].set()
    elif "id" not in asked:
        with open("heard", "a") as heard:
            print(asked["method"], asked.get("params", {}).get("requestId", ""), file=heard)
    elif not ("mute" in knobs and asked["method"] == "initialize"):
        threading.Thread(target=serve, args=(asked,), daemon=True).start()
while "deaf" in knobs:
    time.sleep(1)
