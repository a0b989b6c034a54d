"""The honest half of rogue.py: one HTTP request read, one MCP answer made, and the plain way to send it."""
import json
import os
import time

BLOCK = 65536
FAR_AWAY = "@many x@"  # stands in a message for `Answer.far_away` bytes, which are never in memory at once


class Closed(Exception):
    """The connection is over."""


def tool(name, about, **parameters):
    schema = {"type": "object", "properties": {key: {"type": kind} for key, kind in parameters.items()}}
    return {"name": name, "description": about, "inputSchema": {**schema, "required": list(parameters)}}


TOOLS = [
    tool("echo", "Returns the text", text="string"),
    tool("pid", "Returns the process id"),
    tool("env", "Returns the whole environment as a JSON object"),
    tool("sleep", "Answers after some milliseconds", ms="number"),
]
CALLS = {
    "echo": lambda arguments: arguments["text"],
    "pid": lambda _: str(os.getpid()),
    "env": lambda _: json.dumps(dict(os.environ)),
    "sleep": lambda arguments: time.sleep(arguments["ms"] / 1000) or f"slept {arguments['ms']} ms",
}
listed = set()  # names of tools that a lie has listed: a call of one is answered


def text_result(text, is_error=False):
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def result_of(method, params):
    """What a correct server returns; raises what `Answer` turns into JSON-RPC errors."""
    if method == "initialize":
        return {"protocolVersion": params.get("protocolVersion", "2025-06-18"), "capabilities": {"tools": {}},
                "serverInfo": {"name": "rogue", "version": "1.0.0"}}
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": list(TOOLS)}
    if method == "tools/call":
        name = params["name"]
        if name not in CALLS and name in listed:
            return text_result(f"called {name}")
        return text_result(CALLS[name](params.get("arguments") or {}))
    raise NotImplementedError(method)


class Answer:
    """The answer to one HTTP request: made honestly, then bent by lies, then sent by `send`.

    `method` is the JSON-RPC method, or the HTTP verb when it was no POST. `message` is the JSON-RPC
    message to send; without one, `text` is the body.
    """

    def __init__(self, verb, path, asked, body):
        self.asked, self.send, self.method, self.params, self.far_away = asked, plain, verb, {}, 0
        self.be("202 Accepted", "")
        if path.partition("?")[0] != "/mcp":
            self.be("404 Not Found", "only /mcp is here")
        elif verb != "POST":
            self.be("405 Method Not Allowed", "POST only")
        else:
            self.take(body)

    def take(self, body):
        try:
            call = json.loads(body)
            self.method, self.params = call.get("method", "answer"), call.get("params") or {}
        except (ValueError, AttributeError):
            return self.rpc(None, "400 Bad Request", error={"code": -32700, "message": "not one JSON-RPC message"})
        if "id" not in call or "method" not in call:
            return None
        try:
            self.rpc(call["id"], result=result_of(self.method, self.params))
        except NotImplementedError:
            self.rpc(call["id"], error={"code": -32601, "message": f"no method {self.method}"})
        except (LookupError, TypeError, ValueError, AttributeError) as fault:
            self.rpc(call["id"], error={"code": -32602, "message": f"bad params: {fault!r}"})

    def be(self, status, text, kind="text/plain"):
        self.status, self.text, self.message = status, text, None
        self.headers = {"Content-Type": kind} if text else {}

    def rpc(self, to, status="200 OK", **outcome):
        self.status, self.headers = status, {"Content-Type": "application/json"}
        self.message = {"jsonrpc": "2.0", "id": to, **outcome}

    @property
    def result(self):
        return (self.message or {}).get("result", {})

    def pieces(self):
        text = self.text if self.message is None else json.dumps(self.message)
        head, mark, tail = text.encode().partition(FAR_AWAY.encode())
        filling = [b"x" * BLOCK] * (self.far_away // BLOCK) + [b"x" * (self.far_away % BLOCK)]
        return [piece for piece in ([head, *filling, tail] if mark else [head]) if piece]

    def head(self, **headers):
        lines = {**self.headers, **{key.replace("_", "-"): value for key, value in headers.items()}}
        return "".join([f"HTTP/1.1 {self.status}\r\n", *(f"{k}: {v}\r\n" for k, v in lines.items()), "\r\n"]).encode()


def plain(conn, answer, too_long=0):
    pieces = answer.pieces()
    head = answer.head(Content_Length=sum(map(len, pieces)) + too_long)
    if len(pieces) == 1:
        conn.sendall(head + pieces[0])  # one segment
    else:
        for piece in [head, *pieces]:
            conn.sendall(piece)


def read_request(conn, data):
    """One request from `data` and the wire: verb, path, headers, body, and what follows."""
    def more():
        got = conn.recv(BLOCK)
        if not got:
            raise Closed
        return got
    while b"\r\n\r\n" not in data:
        data += more()
    head, _, data = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {key.lower(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    if "transfer-encoding" in headers:  # like many a small server
        conn.sendall(b"HTTP/1.1 411 Length Required\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        raise Closed
    length = int(headers.get("content-length", 0))
    while len(data) < length:
        data += more()
    verb, path = first.split(" ")[:2]
    return verb, path, headers, data[:length], data[length:]
