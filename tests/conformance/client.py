"""The client that the conformance suite tests: a hall, with the suite's server as its member.

    client.py HALL FIRST LAST URL

The server's URL is reached by relay.py, a member that pipes to it, on a port from FIRST to LAST. Whatever
the server offers is then asked for through the gateway of the HALL, a binary: so all that the server sees of
a client is the hall's. The suite says in the environment which scenario it is.
"""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

# Less than the suite gives a client: it would not end the hall with it.
LONGEST_SECONDS = 110
REVISION = "2025-11-25"
CLIENT = {"name": "conformance-client", "version": "1.0.0"}


class Connection(http.client.HTTPConnection):
    """To the socket of the hall."""

    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Client:
    """A client with a session."""

    def __init__(self, path):
        self.path, self.headers, self.number = path, {}, 0
        self.initialized = self.ask("initialize", {
            "protocolVersion": REVISION, "clientInfo": CLIENT, "capabilities": {"elicitation": {}}})
        self.post({"method": "notifications/initialized"})

    def get(self, path):
        connection = Connection(self.path)
        connection.request("GET", path)
        return json.load(connection.getresponse())

    def post(self, message):
        connection = Connection(self.path)
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        body = json.dumps({"jsonrpc": "2.0", **message})
        connection.request("POST", "/mcp/server", body, {**headers, **self.headers})
        response = connection.getresponse()
        if session := response.headers.get("Mcp-Session-Id"):
            self.headers = {"Mcp-Session-Id": session, "MCP-Protocol-Version": REVISION}
        return response

    def ask(self, method, params):
        """The result; what the server asks meanwhile is answered."""
        self.number += 1
        number = self.number
        response = self.post({"id": number, "method": method, "params": params})
        for message in messages(response):
            if "method" in message and "id" in message:
                self.post({"id": message["id"], "result": self.answer(message)})
            elif message.get("id") == number:
                return said(method, message)
        raise SystemExit(f"{method}: HTTP {response.status} without an answer")

    def answer(self, question):
        # What belongs to one call must not come with another that is made meanwhile.
        for tool in self.list("tools"):
            if tool["name"].endswith("_unrelated"):
                self.call(tool)
        fields = question["params"]["requestedSchema"]["properties"]
        return {"action": "accept", "content": {name: sample(field) for name, field in fields.items()}}

    def list(self, kind):
        return (self.ask(f"{kind}/list", {}) or {}).get(kind, [])

    def call(self, tool, arguments=None):
        if arguments is None:
            schema = tool["inputSchema"]
            needed = schema.get("required", [])
            arguments = {name: sample(schema["properties"][name]) for name in needed}
        self.ask("tools/call", {"name": tool["name"], "arguments": arguments})

    def use(self, context):
        """Asks for everything that there is; `context` may say with which arguments."""
        tools = self.list("tools")
        for tool in tools:
            calls = [call["arguments"] for call in context.get("toolCalls", []) if call["name"] == tool["name"]]
            if tool["name"] == "json_schema_echo":
                calls = [{"schema": other["inputSchema"]} for other in tools if other is not tool]
            for arguments in calls or [None]:
                self.call(tool, arguments)
        for resource in self.list("resources"):
            self.ask("resources/read", {"uri": resource["uri"]})
        for prompt in self.list("prompts"):
            self.ask("prompts/get", {"name": prompt["name"]})


def messages(response):
    """Of a body that is one, or of a stream."""
    if response.headers.get_content_type() != "text/event-stream":
        yield json.load(response)
        return
    for line in response:
        if line.startswith(b"data:") and line[5:].strip():
            yield json.loads(line[5:])


def said(method, message):
    print(f"{method}: {json.dumps(message.get('error') or message['result'])}")
    return message.get("result")


def sample(schema):
    """A value that a schema allows: its default, if it has one."""
    usual = {"string": "text", "integer": 7, "number": 1.5, "boolean": True, "array": [], "object": {}}
    return schema.get("default", usual.get(schema.get("type")))


def write_member(directory, url):
    parts = urlsplit(url)
    relay = str(Path(__file__).with_name("relay.py"))
    manifest = {
        "name": "server", "displayName": "Server", "description": "The suite's", "version": "1.0.0",
        "transport": "http", "path": parts.path or "/", "restart": "never",
        "startTimeoutMs": 60_000,
        "mcp": {"command": sys.executable, "args": ["-S", relay, "${PORT}", parts.netloc]}}
    member = directory / "members/server"
    member.mkdir(parents=True)
    (member / "guild-member.json").write_text(json.dumps(manifest))


def take_port(first, last):
    """One that no other client of this kind uses: the suite starts them all at once, and here they take turns."""
    while True:
        for port in range(first, last + 1):
            lock = socket.socket(socket.AF_UNIX)
            with contextlib.suppress(OSError):
                lock.bind(f"\0guild-hall-conformance-port-{port}")
                return port, lock
        time.sleep(0.05)


@contextlib.contextmanager
def hall(binary, directory, port):
    log = open(directory / "hall.log", "w")
    process = subprocess.Popen(
        [binary, "run", "--members", directory / "members", "--run-dir", directory / "run",
         "--ports", f"{port}-{port}", "--listen", "none"],
        stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield str(directory / "run/guild-hall.sock")
    finally:
        process.terminate()
        process.wait()
        print((directory / "hall.log").read_text())


def until_settled(path):
    """The roster's entry of the member, once it is connected or cannot be."""
    while True:
        with contextlib.suppress(OSError, ValueError):
            connection = Connection(path)
            connection.request("GET", "/v1/roster/server")
            entry = json.load(connection.getresponse())
            if entry.get("status") in ("connected", "error"):
                return entry
        time.sleep(0.01)


def main(binary, first, last, url):
    signal.signal(signal.SIGALRM, lambda *_: sys.exit("out of time"))
    signal.alarm(LONGEST_SECONDS)
    port, _lock = take_port(int(first), int(last))
    with tempfile.TemporaryDirectory(prefix="guild-hall-conformance-") as name:
        directory = Path(name)
        write_member(directory, url)
        with hall(binary, directory, port) as path:
            entry = until_settled(path)
            if entry["status"] != "connected":
                sys.exit(entry["error"])
            Client(path).use(json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}"))


main(*sys.argv[1:])
