"""Dice as the server of a HomeClaw plugin. Standard library only: python3 server.py [PORT]"""

import json
import random
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit


class Refused(Exception):
    """What was asked for cannot be; in words for the user."""


def roll(notation, times):
    if not 1 <= times <= 10:
        raise Refused(f"cannot roll {times} times: 1 to 10")
    match = re.fullmatch(r"([0-9]{0,3})d([0-9]{1,4})([+-][0-9]{1,4})?", notation, re.IGNORECASE)
    count, sides, modifier = (int(match[1] or 1), int(match[2]), int(match[3] or 0)) if match else (0, 0, 0)
    if not (1 <= count <= 100 and 2 <= sides <= 1000 and abs(modifier) <= 1000):
        raise Refused(f'cannot roll "{notation}": write 2d6+1; 1-100 dice, 2-1000 sides, at most 1000 more or less')
    totals = [sum(random.randint(1, sides) for _ in range(count)) + modifier for _ in range(times)]
    # `text` is for people. Whatever else is in the result is for programs, as structured content.
    return {"text": f"{notation} = {', '.join(map(str, totals))}", "totals": totals}


def flip():
    return {"text": random.choice(("heads", "tails"))}


class Plugin(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept
    disable_nagle_algorithm = True

    def do_GET(self):
        url = urlsplit(self.path)
        if url.path == "/health":  # contract 1: 2xx while the plugin is well
            return self.answer(200, {"ok": True})
        if url.path.startswith("/roll/"):  # contract 2: what a capability's method and path say
            times = int(parse_qs(url.query).get("times", ["1"])[0])
            return self.result(lambda: roll(unquote(url.path.removeprefix("/roll/")), times))
        self.answer(404, {"error": f"there is no {url.path}"})

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/run" and request.get("capability_id") == "flip":  # contract 3: a PluginRequest
            return self.result(flip)
        self.answer(404, {"error": f"there is no {self.path} for {request.get('capability_id')}"})

    def result(self, ask):
        """Contract 4: a PluginResult. A failure has `success: false` and says why in `error`."""
        try:
            self.answer(200, {"success": True, **ask()})
        except Refused as refused:
            self.answer(422, {"success": False, "error": str(refused)})

    def answer(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 3100
    # On 127.0.0.1 alone: whoever can reach it can call it.
    ThreadingHTTPServer(("127.0.0.1", port), Plugin).serve_forever()
