"""Dice as an MCP server on pipes, with nothing to install: a message a line in, a message a line out. Any MCP server that speaks
stdio will do in its place; most stand on an SDK."""

import json
import random
import re
import sys


def roll(notation):
    match = re.fullmatch(r"(\d*)d(\d+)([+-]\d+)?", notation.strip(), re.IGNORECASE)
    count, sides, more = (int(match[1] or 1), int(match[2]), int(match[3] or 0)) if match else (0, 0, 0)
    if not (1 <= count <= 100 and 2 <= sides <= 1000 and abs(more) <= 1000):
        raise ValueError(f"cannot roll {notation!r}: write 2d6+1; 1-100 dice, 2-1000 sides, at most 1000 more or less")
    return sum(random.randint(1, sides) for _ in range(count)) + more


def handle_request(user_input):
    """What HomeClaw asks: the words of the user."""
    found = re.search(r"\d*d\d+([+-]\d+)?", user_input, re.IGNORECASE)
    notation = found[0] if found else "d6"
    return f"{notation} = {roll(notation)}"


def takes(**fields):
    properties = {name: {"type": "string", "description": about} for name, about in fields.items()}
    return {"type": "object", "properties": properties, "required": list(fields)}


TOOLS = {
    "handle_request": (handle_request, "Roll the dice that the user asks for", takes(user_input="such as: please roll 2d6+1")),
    "roll": (lambda notation: f"{notation} = {roll(notation)}", "Roll dice", takes(notation="such as d20, 2d6+1 or 4d8-2")),
}


def result_of(method, params):
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "dice", "version": "0.1.0"}}
    if method == "tools/list":
        return {"tools": [{"name": name, "description": about, "inputSchema": schema}
                          for name, (_, about, schema) in TOOLS.items()]}
    if method == "tools/call":
        try:
            text, failed = TOOLS[params["name"]][0](**params.get("arguments", {})), False
        except (KeyError, TypeError, ValueError) as error:
            text, failed = str(error), True
        return {"content": [{"type": "text", "text": text}], "isError": failed}
    if method == "ping":
        return {}
    return None


# stdout is the protocol: whatever else there is to say goes to stderr, which is the member's log.
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue  # a notification has no answer
    result = result_of(asked["method"], asked.get("params", {}))
    outcome = {"error": {"code": -32601, "message": f"no method {asked['method']}"}} if result is None else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **outcome}), flush=True)
