"""A member of a Guild Hall on Python's standard library alone: an MCP server over HTTP."""

import errno
import inspect
import json
import signal
import sys
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer

TOOLS = {}


def tool(properties, required=()):
    """Offer a function as a tool. An agent reads its docstring and the JSON Schema of its arguments."""

    def offer(function):
        schema = {"type": "object", "properties": properties, "required": list(required)}
        description = inspect.getdoc(function)
        definition = {"name": function.__name__, "description": description, "inputSchema": schema}
        TOOLS[function.__name__] = function, definition
        return function

    return offer


# ---- The tools. What one returns is the agent's answer; a ValueError tells it what to do otherwise. ----


@tool({"name": {"type": "string", "description": "Who is to be greeted"}}, required=["name"])
def greet(name):
    """Greet somebody by name."""
    if not name.strip():
        raise ValueError("name is empty: say who is to be greeted")
    return f"Hello, {name}!"


# ---- MCP over HTTP, for any tools ----

MANIFEST = json.loads(Path(__file__).with_name("guild-member.json").read_text(encoding="utf-8"))
REVISIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
MAX_BODY = 4 * 1024 * 1024  # bytes
TYPES = {"string": str, "boolean": bool, "integer": int, "number": (int, float), "array": list, "object": dict}


def answer(method, params):
    if method == "initialize":
        asked = params.get("protocolVersion")
        result = {
            "protocolVersion": asked if asked in REVISIONS else REVISIONS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": MANIFEST["name"], "version": MANIFEST["version"]},
        }
        return {"result": result}
    if method == "ping":
        return {"result": {}}
    if method == "tools/list":
        return {"result": {"tools": [definition for _, definition in TOOLS.values()]}}
    if method != "tools/call":
        return {"error": {"code": -32601, "message": f"unknown method {method}"}}
    name = str(params.get("name"))
    if name not in TOOLS:
        return {"error": {"code": -32602, "message": f"unknown tool {name}; known: {', '.join(TOOLS)}"}}
    return {"result": call(*TOOLS[name], params.get("arguments") or {})}


def call(function, definition, arguments):
    try:
        check(arguments, definition["inputSchema"])
        text, is_error = str(function(**arguments)), False
    except ValueError as error:
        text, is_error = str(error), True
    except Exception as error:  # a fault of the tool: the log has it whole, and the server lives on
        traceback.print_exc()
        text, is_error = f"{definition['name']} failed: {error!r}", True
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def check(arguments, schema):
    if not isinstance(arguments, dict):
        raise ValueError("arguments must be an object")
    for name in schema["required"]:
        if name not in arguments:
            raise ValueError(f"{name} is missing: {schema['properties'][name].get('description', '')}")
    for name, value in arguments.items():
        if name not in schema["properties"]:
            raise ValueError(f"unknown argument {name}; known: {', '.join(schema['properties'])}")
        wanted = schema["properties"][name].get("type")
        is_number = wanted in ("integer", "number")  # to Python, True is a number too
        if wanted in TYPES and (not isinstance(value, TYPES[wanted]) or is_number and isinstance(value, bool)):
            raise ValueError(f"{name} must be of type {wanted}")


class Endpoint(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes; the second would wait 40 ms
    timeout = 300  # seconds of silence; clients give up an idle connection sooner

    def do_POST(self):
        length = self.headers.get("Content-Length", "")
        if self.path != "/mcp":
            return self.reply(404)
        if "Origin" in self.headers:  # a web page, which has no business here
            return self.reply(403)
        if not length.isdecimal() or int(length) > MAX_BODY:
            return self.reply(413 if length.isdecimal() else 411)
        try:
            message = json.loads(self.rfile.read(int(length)))
            method, params = message["method"], dict(message.get("params") or {})
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return self.reply(400)
        if "id" not in message:  # a notification
            return self.reply(202)
        self.reply(200, {"jsonrpc": "2.0", "id": message["id"], **answer(method, params)})

    def do_GET(self):
        self.reply(405)

    do_DELETE = do_GET

    def reply(self, status, message=None):
        body = json.dumps(message).encode() if message else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if message:
            self.send_header("Content-Type", "application/json")
        if status == 405:
            self.send_header("Allow", "POST")
        if status >= 400:  # the request's body may be unread: nothing can follow it
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128

    def server_bind(self):
        TCPServer.server_bind(self)  # HTTPServer's looks a host name up, which can take seconds


def serve():
    # What is printed is in `guild-hall logs` at once, not when some kilobytes have come together.
    sys.stdout.reconfigure(line_buffering=True)
    # Contract 1: the port comes in the arguments, where the hall put it in place of ${PORT}.
    # Not argparse: it exits with 2 on a wrong argument, and to the hall 2 means that the port is taken.
    port = int(sys.argv[sys.argv.index("--port") + 1])
    # Contract 2: on 127.0.0.1 alone; 2 if the port is taken, so that the hall tries another.
    try:
        server = Server(("127.0.0.1", port), Endpoint)
    except OSError as error:
        print(f"cannot listen on 127.0.0.1:{port}: {error.strerror}", file=sys.stderr)
        sys.exit(2 if error.errno == errno.EADDRINUSE else 1)
    # Contract 3: 0 when asked to stop.
    for asked_to_stop in (signal.SIGTERM, signal.SIGINT):
        signal.signal(asked_to_stop, lambda *_: sys.exit(0))
    server.serve_forever()


if __name__ == "__main__":
    serve()
