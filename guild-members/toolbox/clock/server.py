"""A member that knows the time. Python's standard library alone: copy the directory anywhere."""

import difflib
import errno
import inspect
import json
import signal
import sys
import zoneinfo
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Annotated

# ---- MCP over HTTP: the same lines in every member of this collection, for each is complete alone ----

MANIFEST = json.loads(Path(__file__).with_name("guild-member.json").read_text(encoding="utf-8"))
REVISIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
MAX_BODY = 64 * 1024  # bytes; the longest sensible call is a hundredth of it
JSON_TYPE = {str: "string", float: "number"}
PYTHON_TYPES = {"string": (str,), "number": (int, float)}  # matched exactly: bool is no number here
TOOLS = {}


def tool(function):
    """Offer a function as a tool: its docstring and annotations are what the agent reads.

    It returns (text, structured content), or raises ValueError with what the agent should know.
    """
    parameters = inspect.signature(function).parameters.values()
    properties = {
        p.name: {"type": JSON_TYPE[p.annotation.__origin__], "description": p.annotation.__metadata__[0]}
        | ({} if p.default is p.empty else {"default": p.default})
        for p in parameters
    }
    required = [p.name for p in parameters if p.default is p.empty]
    definition = {
        "name": function.__name__,
        "description": inspect.getdoc(function),
        "inputSchema": {"type": "object", "properties": properties, "required": required},
        "annotations": {"readOnlyHint": True},
    }
    TOOLS[function.__name__] = function, definition
    return function


def call(function, schema, arguments):
    try:
        if not isinstance(arguments, dict):
            raise ValueError("arguments must be an object")
        for name in schema["required"]:
            if name not in arguments:
                raise ValueError(f"{name} is missing: {schema['properties'][name]['description']}")
        for name, value in arguments.items():
            wanted = schema["properties"].get(name)
            if wanted is None:
                raise ValueError(f"unknown argument {name}; known: {', '.join(schema['properties'])}")
            if type(value) not in PYTHON_TYPES[wanted["type"]]:
                raise ValueError(f"{name} must be a {wanted['type']}: {wanted['description']}")
        text, structured = function(**arguments)
    except (ValueError, ArithmeticError) as error:
        # A result, not a protocol error: the agent gets to read it and can mend its call.
        return {"content": [{"type": "text", "text": str(error)}], "isError": True}
    return {"content": [{"type": "text", "text": text}], "structuredContent": structured}


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
    function, definition = TOOLS[name]
    return {"result": call(function, definition["inputSchema"], params.get("arguments") or {})}


class Endpoint(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # header and body are two writes; the second would wait 40 ms
    timeout = 300  # seconds of silence; clients give up an idle connection sooner

    def do_POST(self):
        length = self.headers.get("Content-Length", "")
        if self.path != "/mcp":
            return self.reply(404)
        if "Origin" in self.headers:  # a web page; agents on this machine send none
            return self.reply(403)
        if not length.isdecimal() or int(length) > MAX_BODY:
            return self.reply(413 if length.isdecimal() else 411)
        try:
            message = json.loads(self.rfile.read(int(length)))
            method, params = message["method"], dict(message.get("params") or {})
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return self.reply(400)
        if "id" not in message:
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
    for asked_to_stop in (signal.SIGTERM, signal.SIGINT):
        signal.signal(asked_to_stop, lambda *_: sys.exit(0))
    # Not argparse: it exits with 2 on a wrong argument, and to the hall 2 means that the port is taken.
    port = int(sys.argv[sys.argv.index("--port") + 1])
    try:
        server = Server(("127.0.0.1", port), Endpoint)
    except OSError as error:
        print(f"cannot listen on 127.0.0.1:{port}: {error.strerror}", file=sys.stderr)
        sys.exit(2 if error.errno == errno.EADDRINUSE else 1)
    server.serve_forever()


# ---- The tools -----------------------------------------------------------------------------------

Zone = Annotated[str, "an IANA zone such as Europe/Zurich, or UTC"]
Time = Annotated[str, "2026-03-01T09:30, with an offset (+01:00 or Z) if it has one, or 09:30 for today"]
Moment = Annotated[str, "a date (2026-03-01) or a time (2026-03-01T09:30), with an offset if it has one"]


@tool
def now(zone: Zone = "UTC"):
    """The current date and time in a zone."""
    return described(datetime.now(zone_named(zone)))


@tool
def convert(time: Time, to_zone: Zone, from_zone: Zone = "UTC"):
    """The same moment in another zone. An offset in the time itself counts more than from_zone."""
    source, target = zone_named(from_zone), zone_named(to_zone)
    start = moment(time, source)
    text_before, before = described(start)
    text_after, after = described(start.astimezone(target))
    return f"{text_before} is {text_after}", {"from": before, "to": after}


@tool
def between(start: Moment, end: Moment):
    """How long it is from start to end, and how many weekdays (Monday to Friday) lie in it.

    Weekdays count from the day of start to the day before end. All is negative if end comes first.
    """
    first, last = moment(start), moment(end)
    if (first.tzinfo is None) != (last.tzinfo is None):
        raise ValueError("give both times an offset, or neither: otherwise they cannot be compared")
    seconds = (last - first).total_seconds()
    weekdays = weekdays_before(last) - weekdays_before(first)
    minutes, rest = divmod(round(abs(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "day"), (hours, "hour"), (minutes, "minute"), (rest, "second"))
    span = ", ".join(f"{count} {unit}{'s' * (count != 1)}" for count, unit in parts if count)
    text = f"{'minus ' * (seconds < 0)}{span or 'no time'}; weekdays: {weekdays}"
    return text, {"seconds": seconds, "days": seconds / 86400, "weekdays": weekdays}


def zone_named(name):
    if name.upper() in ("UTC", "Z"):
        return timezone.utc  # also on a machine without zone data
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        known = sorted(zoneinfo.available_timezones())
    if not known:
        raise ValueError(
            f"this machine has no data for zone {name[:60]!r}: install tzdata; UTC works without"
        )
    city = name.replace(" ", "_").lower()
    near = [zone for zone in known if zone.lower().endswith("/" + city)]
    near = near or difflib.get_close_matches(name[:60], known)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise ValueError(f"unknown zone {name[:60]!r}{hint}")


def moment(text, zone=None):
    """The time that a text means; without an offset of its own it is in the zone."""
    if text[2:3] == ":":
        text = f"{datetime.now(zone).date()}T{text}"
    if text[-1:] in ("Z", "z"):
        text = text[:-1] + "+00:00"  # Python before 3.11 knows no Z
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{error}; write a time as 2026-03-01T09:30, a date as 2026-03-01") from None
    if zone is None or time.tzinfo is not None:
        return time
    time = time.replace(tzinfo=zone)
    if time.astimezone(timezone.utc).astimezone(zone) != time:
        raise ValueError(f"{text} does not exist in {zone}: the clocks skip it that day")
    return time


def described(time):
    """A time for people and for programs; of an hour that comes twice, the first is meant."""
    iso, weekday, zone = time.isoformat(timespec="seconds"), time.strftime("%A"), str(time.tzinfo)
    structured = {"time": iso, "weekday": weekday, "zone": zone, "unix": int(time.timestamp())}
    return f"{weekday} {iso} ({zone})", structured


def weekdays_before(time):
    """Weekdays before the day of this time; day 1 of the calendar was a Monday."""
    weeks, days = divmod(time.toordinal() - 1, 7)
    return weeks * 5 + min(days, 5)


if __name__ == "__main__":
    serve()
