"""A member that calculates. Python's standard library alone: copy the directory anywhere."""

import ast
import difflib
import errno
import inspect
import json
import math
import operator
import signal
import sys
from fractions import Fraction
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


# ---- Arithmetic ----------------------------------------------------------------------------------

MAX_EXPRESSION = 500  # characters; so it nests no deeper than Python's stack allows
MAX_BITS = 4096  # of a whole number, also in between: any one operation on such numbers is quick
EXACT = 2**53  # beyond it a reader of JSON may lose digits


def power(base, exponent):
    whole = isinstance(base, int) and isinstance(exponent, int)
    if whole and (base.bit_length() - 1) * exponent > MAX_BITS:  # before it is computed, not after
        raise ValueError(f"a power may have {MAX_BITS} bits")
    if base < 0 and not float(exponent).is_integer():
        raise ValueError(f"a negative number has no real power of {exponent}")
    return base**exponent


def up_to(limit, function):
    """A function whose cost grows with its arguments, kept to small ones."""

    def bounded(*arguments):
        if any(abs(argument) > limit for argument in arguments):
            raise ValueError(f"arguments must lie between -{limit} and {limit}")
        return function(*arguments)

    return bounded


CONSTANTS = {"pi": math.pi, "e": math.e, "tau": math.tau}
OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: power,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
HARMLESS = "floor ceil sqrt exp log log2 log10 sin cos tan asin acos atan atan2 degrees radians hypot gcd"
FUNCTIONS = {name: getattr(math, name) for name in HARMLESS.split()}
FUNCTIONS |= {
    "abs": abs,
    "max": lambda *numbers: max(numbers),
    "min": lambda *numbers: min(numbers),
    "round": lambda number, digits=0: round(number, up_to(300, int)(digits) or None),
    "factorial": up_to(500, math.factorial),
    "comb": up_to(4000, math.comb),
}


def value_of(node):
    """Walk the syntax tree. Only what is named here exists; nothing is ever passed to eval."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        value = node.value
    elif isinstance(node, ast.Name) and node.id in CONSTANTS:
        value = CONSTANTS[node.id]
    elif isinstance(node, ast.UnaryOp) and type(node.op) in OPERATORS:
        value = OPERATORS[type(node.op)](value_of(node.operand))
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        value = OPERATORS[type(node.op)](value_of(node.left), value_of(node.right))
    elif isinstance(node, ast.Call) and not node.keywords and ast.unparse(node.func) in FUNCTIONS:
        name, arguments = ast.unparse(node.func), [value_of(argument) for argument in node.args]
        try:
            value = FUNCTIONS[name](*arguments)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise ValueError(f"{name}: {error}") from None
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitXor):
        raise ValueError("a power is written **, not ^")
    else:
        raise ValueError(f"cannot calculate with {ast.unparse(node)}")
    if value.bit_length() > MAX_BITS if isinstance(value, int) else not math.isfinite(value):
        raise ValueError(f"the result of {ast.unparse(node)} is too large")
    return value


@tool
def evaluate(expression: Annotated[str, "such as 2 * (3 + 4) ** 2 or round(sqrt(2), 3)"]):
    """Evaluate arithmetic; whole numbers are exact, to some 1200 digits.

    Operators: + - * / // % **. Constants: pi, e, tau. Functions: abs, round, floor, ceil, min, max,
    sqrt, exp, log (natural, or with a base), log2, log10, sin, cos, tan, asin, acos, atan, atan2,
    degrees, radians, hypot, factorial, comb, gcd. Angles are in radians.
    """
    if len(expression) > MAX_EXPRESSION:
        raise ValueError(f"an expression may have {MAX_EXPRESSION} characters, not {len(expression)}")
    try:
        value = value_of(ast.parse(expression.strip(), mode="eval").body)
    except SyntaxError as error:
        raise ValueError(f"cannot read the expression: {error.msg}") from None
    except (RecursionError, MemoryError):
        raise ValueError("the expression nests too deeply; calculate it in parts") from None
    text = str(value) if isinstance(value, int) else f"{value:.15g}"
    return text, {"value": text if isinstance(value, int) and abs(value) > EXACT else value}


# ---- Units ---------------------------------------------------------------------------------------

# Of each kind the units, each with its size in the first one.
KINDS = {
    "length": "m 1 km 1000 cm 0.01 mm 0.001 um 1e-6 nm 1e-9 in 0.0254 ft 0.3048 yd 0.9144 mi 1609.344 nmi 1852",
    "mass": "kg 1 g 0.001 mg 1e-6 t 1000 oz 0.028349523125 lb 0.45359237 st 6.35029318",
    "temperature": "K 1 C 1 F 5/9",
    "duration": "s 1 ms 0.001 min 60 h 3600 d 86400 wk 604800",
    "data": "B 1 kB 1e3 MB 1e6 GB 1e9 TB 1e12 PB 1e15 KiB 1024 MiB 1048576 GiB 1073741824 "
    "TiB 1099511627776 PiB 1125899906842624 bit 1/8 kbit 125 Mbit 125e3 Gbit 125e6",
    "area": "m2 1 km2 1e6 cm2 1e-4 ha 1e4 ft2 0.09290304 acre 4046.8564224",
    "volume": "l 1 ml 0.001 m3 1000 tsp 0.00492892159375 cup 0.2365882365 pt 0.473176473 gal 3.785411784",
    "speed": "m/s 1 km/h 5/18 mph 0.44704 kn 463/900",
    "energy": "J 1 kJ 1e3 MJ 1e6 Wh 3600 kWh 3.6e6 cal 4.184 kcal 4184",
}
BELOW_ZERO = {"C": Fraction("273.15"), "F": Fraction("459.67")}  # how far down absolute zero lies
UNITS = {
    symbol: (kind, Fraction(size), BELOW_ZERO.get(symbol, 0))
    for kind, units in KINDS.items()
    for symbol, size in zip(units.split()[::2], units.split()[1::2])
}
SYMBOLS = "; ".join(f"{kind}: {' '.join(units.split()[::2])}" for kind, units in KINDS.items())


def unit(symbol):
    if symbol in UNITS:
        return UNITS[symbol]
    near = [known for known in UNITS if known.lower() == symbol.lower()]
    near = near or difflib.get_close_matches(symbol, UNITS)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {' '.join(UNITS)}"
    raise ValueError(f"unknown unit {symbol}; {hint}")


@tool
def convert(
    value: Annotated[float, "how many of from_unit"],
    from_unit: Annotated[str, f"a symbol from one of these kinds. {SYMBOLS}"],
    to_unit: Annotated[str, "a symbol of the same kind"],
):
    """Convert between units."""
    if not abs(value) < 1e280:
        raise ValueError("value is too large to convert")
    kind, size, below = unit(from_unit)
    target_kind, target_size, target_below = unit(to_unit)
    if kind != target_kind:
        raise ValueError(f"cannot convert {from_unit} ({kind}) to {to_unit} ({target_kind})")
    # Fractions, because in floats 100 C would be 211.99999999999994 F.
    result = float((Fraction(str(value)) + below) * size / target_size - target_below)
    return f"{value:.12g} {from_unit} = {result:.12g} {to_unit}", {"value": result, "unit": to_unit}


if __name__ == "__main__":
    serve()
