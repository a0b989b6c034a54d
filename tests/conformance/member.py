#!/usr/bin/env -S python3 -S
"""An MCP server with every tool, prompt and resource that the MCP conformance suite asks for.

It serves streamable HTTP on http://127.0.0.1:PORT/mcp, in one era of the protocol, and knows nothing of
the other: so a gateway in front of it has to bridge them. What it offers stands in catalogue.py, how a
request is served in calls.py; this file is the process and the wire.
"""

import argparse
import base64
import binascii
import contextlib
import hashlib
import hmac
import json
import re
import secrets
import select
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from calls import (
    ANSWER_SECONDS, CAPABILITIES, CAPABILITIES_KEY, HEADER_MISMATCH, INTERNAL_ERROR, INVALID_PARAMS,
    INVALID_REQUEST, LEGACY_METHODS, LEGACY_VERSIONS, LIST_FILTERS, METHOD_NOT_FOUND, MODERN_METHODS,
    MODERN_VERSION, NAMED_BY, PARSE_ERROR, SERVER_INFO, TRANSPORT_ERROR, UNSUPPORTED_VERSION, VERSION_KEY,
    LegacyCall, ModernCall, RpcError, Session)
from catalogue import RESOURCE_UPDATED, TOOLS

SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"
LOCAL_ADDRESS = re.compile(r"(https?://)?(localhost|127\.0\.0\.1|\[::1\])(:\d+)?", re.IGNORECASE)
ENCODED_HEADER = re.compile(r"=\?base64\?(.*)\?=")
KEEP_ALIVE_SECONDS = 15


class Reply:
    """Answers one HTTP request: with JSON, or with a stream if an event is sent before the result."""

    def __init__(self, handler):
        self.handler = handler
        self.request_id = self.mailbox = None
        self.streaming = self.finished = False
        self.lock = threading.RLock()

    def plain(self, status, body=b"", headers=()):
        self.finished = True
        self._head(status, [("Content-Length", str(len(body))), *headers])
        self.handler.wfile.write(body)

    def outcome(self, key, value, status=200, headers=()):
        """Sends the result or the error that ends the request."""
        message = {"jsonrpc": "2.0", key: value}
        if self.request_id is not None:
            message["id"] = self.request_id
        if self.mailbox is not None:
            self.mailbox.put(message)
        elif self.streaming:
            self.event(message)
            self.end_stream()
        elif not self.finished:
            self.plain(status, json.dumps(message).encode(), [("Content-Type", "application/json"), *headers])

    def event(self, message):
        self._chunk(f"event: message\ndata: {json.dumps(message)}\n\n")

    def notify(self, method, params):
        self.event({"jsonrpc": "2.0", "method": method, "params": params})

    def open_stream(self):
        with self.lock:
            if not self.streaming:
                self.streaming = True
                self._head(200, [("Content-Type", "text/event-stream"), ("Cache-Control", "no-cache"),
                                 ("X-Accel-Buffering", "no"), ("Transfer-Encoding", "chunked")])

    def end_stream(self):
        with self.lock:
            if not self.finished:
                self.finished = True
                self.handler.wfile.write(b"0\r\n\r\n")

    def park(self, event_id, mailbox):
        """Ends the stream before the result, which goes to the mailbox instead."""
        self._chunk(f"id: {event_id}\nretry: 200\ndata: \n\n")
        self.end_stream()
        self.mailbox = mailbox

    def hold(self):
        """Keeps the stream open until one of the two sides ends it."""
        connection = self.handler.connection
        while not self.finished and not select.select([connection], [], [], KEEP_ALIVE_SECONDS)[0]:
            self._chunk(":\n\n")
        self.handler.close_connection = not self.finished

    def _head(self, status, headers):
        self.handler.send_response(status)
        for name, value in headers:
            self.handler.send_header(name, value)
        self.handler.end_headers()

    def _chunk(self, text):
        data = text.encode()
        with self.lock:
            self.open_stream()
            if self.finished:
                raise ConnectionError("the stream is closed")
            self.handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))


def answering(serve):
    """Wraps a method of the handler, so that what it raises becomes the answer."""
    def handle(self):
        reply = Reply(self)
        try:
            body = self.read_body()
            self.check_address()
            serve(self, reply, body)
        except RpcError as error:
            reply.outcome("error", error.error, error.status, error.headers)
        except ConnectionError:
            self.close_connection = True
        except Exception as error:
            reply.outcome("error", {"code": INTERNAL_ERROR, "message": repr(error)}, 500)
    return handle


class Handler(BaseHTTPRequestHandler):
    """Reads HTTP requests, and checks what both eras ask for. Its two subclasses are the eras."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @answering
    def do_POST(self, reply, body):
        accepted = self.header("Accept") or "*/*"
        if "*/*" not in accepted and not ("application/json" in accepted and "text/event-stream" in accepted):
            raise RpcError(TRANSPORT_ERROR, "accept application/json and text/event-stream", status=406)
        try:
            message = json.loads(body)
        except ValueError:
            raise RpcError(PARSE_ERROR, "the body is not JSON", status=400) from None
        is_message = isinstance(message, dict) and message.get("jsonrpc") == "2.0"
        if not is_message or not isinstance(message.get("id", 0), (str, int)):
            raise RpcError(INVALID_REQUEST, "the body is not a JSON-RPC message", status=400)
        reply.request_id = message.get("id")
        params = message.get("params", {})
        if not isinstance(params, dict):
            raise RpcError(INVALID_PARAMS, "'params' must be an object", status=400)
        self.post(reply, message, params)

    def check_address(self):
        """Keeps web pages out that reach this server by a name of their own (DNS rebinding)."""
        if self.path.split("?")[0] != "/mcp":
            raise RpcError(TRANSPORT_ERROR, "the only path is /mcp", status=404)
        for name in ("Host", "Origin"):
            if not LOCAL_ADDRESS.fullmatch(self.header(name) or "localhost"):
                raise RpcError(TRANSPORT_ERROR, f"{name} is not local", status=403)

    def read_body(self):
        if self.header("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.header("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def header(self, name):
        value = self.headers.get(name)
        return None if value is None else value.strip()

    def log_message(self, *args):
        """Says nothing: the log is for faults."""


class LegacyHandler(Handler):
    """Sessions, each with a stream of its own."""

    @answering
    def do_GET(self, reply, body):
        session = self.session()
        mailbox = session.mailboxes.pop(self.header("Last-Event-ID"), None)
        reply.open_stream()
        if mailbox is None:
            session.listener = reply
            reply.hold()
        else:
            reply.event(mailbox.get(timeout=ANSWER_SECONDS))
            reply.end_stream()

    @answering
    def do_DELETE(self, reply, body):
        session = self.session()
        self.server.sessions.pop(session.id, None)
        reply.plain(200)
        if session.listener is not None:
            session.listener.end_stream()

    def post(self, reply, message, params):
        method = message.get("method")
        if method == "initialize":
            return self.initialize(reply, params)
        is_request = method is not None and "id" in message
        if is_request and method not in LEGACY_METHODS:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method}")
        session = self.session()
        if is_request:
            return LegacyCall(self.server, reply, method, params, session).serve(LEGACY_METHODS)
        if method is None:
            session.deliver(message)
        return reply.plain(202)

    def initialize(self, reply, params):
        asked = params.get("protocolVersion")
        session = Session(params.get("capabilities") or {})
        self.server.sessions[session.id] = session
        result = {"protocolVersion": asked if asked in LEGACY_VERSIONS else LEGACY_VERSIONS[-1],
                  "capabilities": CAPABILITIES, "serverInfo": SERVER_INFO}
        reply.outcome("result", result, headers=[("Mcp-Session-Id", session.id)])

    def session(self):
        version, name = self.header("MCP-Protocol-Version"), self.header("Mcp-Session-Id")
        if version is not None and version not in LEGACY_VERSIONS:
            raise RpcError(TRANSPORT_ERROR, f"Bad Request: unsupported version {version}", status=400)
        if name is None:
            raise RpcError(TRANSPORT_ERROR, "Bad Request: Mcp-Session-Id is missing", status=400)
        if name not in self.server.sessions:
            raise RpcError(TRANSPORT_ERROR, "Session not found", status=404)
        return self.server.sessions[name]


class ModernHandler(Handler):
    """Requests that stand for themselves, and headers that say what the body says."""

    @answering
    def do_GET(self, reply, body):
        raise RpcError(TRANSPORT_ERROR, "Method Not Allowed", None, 405, [("Allow", "POST")])

    do_DELETE = do_GET

    def post(self, reply, message, params):
        method = message.get("method")
        if method is None:
            raise RpcError(INVALID_REQUEST, "responses are not accepted", status=400)
        if "id" not in message:
            return reply.plain(202)
        meta = params.get("_meta") if isinstance(params.get("_meta"), dict) else {}
        if method == "initialize" and VERSION_KEY not in meta:
            raise unsupported_version(params.get("protocolVersion"))
        self.check_version(meta)
        self.check_header("Mcp-Method", method)
        if method in NAMED_BY:
            self.check_header("Mcp-Name", params.get(NAMED_BY[method]), decoded)
        if method not in MODERN_METHODS:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method}", status=404)
        if method == "tools/call":
            self.check_parameter_headers(params)
        return ModernCall(self.server, reply, method, params).serve(MODERN_METHODS)

    def check_version(self, meta):
        version = self.header("MCP-Protocol-Version")
        if version is None:
            raise header_mismatch("MCP-Protocol-Version is missing")
        for key, kind in ((VERSION_KEY, str), (CAPABILITIES_KEY, dict)):
            if not isinstance(meta.get(key), kind):
                raise RpcError(INVALID_PARAMS, f"_meta: '{key}' is missing or of the wrong type", status=400)
        self.check_header("MCP-Protocol-Version", meta[VERSION_KEY])
        if version != MODERN_VERSION:
            raise unsupported_version(version)

    def check_header(self, name, expected, decode=str):
        value = self.header(name)
        if expected is not None and (value is None or decode(value) != expected):
            raise header_mismatch(f"{name} is {value!r}, the body says {expected!r}")

    def check_parameter_headers(self, params):
        if params.get("name") not in TOOLS or not isinstance(params.get("arguments"), dict):
            return
        for name, schema in TOOLS[params["name"]][0]["inputSchema"]["properties"].items():
            value = params["arguments"].get(name)
            if "x-mcp-header" in schema and value is not None:
                text = self.header("Mcp-Param-" + schema["x-mcp-header"])
                if text is None or not mirrors(decoded(text), value):
                    raise header_mismatch(f"Mcp-Param-{schema['x-mcp-header']} is {text!r}, not {value!r}")


def header_mismatch(message):
    return RpcError(HEADER_MISMATCH, f"Header mismatch: {message}", status=400)


def unsupported_version(requested):
    return RpcError(UNSUPPORTED_VERSION, f"Unsupported protocol version (supported: {MODERN_VERSION})",
                    {"supported": [MODERN_VERSION], "requested": str(requested or "")}, 400)


def decoded(value):
    """The value of a header that may be wrapped as =?base64?...?=."""
    wrapped = ENCODED_HEADER.fullmatch(value)
    try:
        return base64.b64decode(wrapped[1], validate=True).decode() if wrapped else value
    except (binascii.Error, UnicodeDecodeError):
        raise header_mismatch(f"{value!r} is not valid Base64 of UTF-8") from None


def mirrors(text, value):
    """Whether the text of a header stands for the value of an argument; numbers match as numbers."""
    try:
        return text == value if isinstance(value, str) else json.loads(text) == value
    except ValueError:
        return False


class Member(ThreadingHTTPServer):
    """The server, with what all of its clients share."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port, handler):
        self.key, self.lock = secrets.token_bytes(32), threading.Lock()
        self.sessions, self.subscriptions = {}, {}
        self.hidden = {"test_dynamic_tool", "test_dynamic_prompt"}
        super().__init__(("127.0.0.1", port), handler)

    def seal(self, payload):
        return hmac.new(self.key, payload.encode(), hashlib.sha256).hexdigest()

    def toggle(self, name, notification):
        with self.lock:
            self.hidden ^= {name}
        self.publish(notification, {})

    def publish(self, method, params):
        """Tells a change to every client that listens for it."""
        with self.lock:
            for reply, wanted in self.subscriptions.items():
                if is_wanted(wanted, method, params):
                    self.send(reply, method, {**params, "_meta": {SUBSCRIPTION_KEY: reply.request_id}})
            for session in list(self.sessions.values()):
                if session.listener and (method != RESOURCE_UPDATED or params["uri"] in session.subscribed):
                    self.send(session.listener, method, params)

    def send(self, reply, method, params):
        with contextlib.suppress(ConnectionError):
            reply.notify(method, params)

    def hold_subscription(self, reply, wanted):
        tag = {SUBSCRIPTION_KEY: reply.request_id}
        with self.lock:
            reply.notify("notifications/subscriptions/acknowledged", {"_meta": tag, "notifications": wanted})
            self.subscriptions[reply] = wanted
        try:
            reply.hold()
        finally:
            with self.lock:
                del self.subscriptions[reply]

    def end_subscriptions(self):
        for reply in list(self.subscriptions):
            with contextlib.suppress(ConnectionError):
                tag = {SUBSCRIPTION_KEY: reply.request_id}
                reply.outcome("result", {"resultType": "complete", "_meta": tag})

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def is_wanted(wanted, method, params):
    if method == RESOURCE_UPDATED:
        return params["uri"] in wanted.get("resourceSubscriptions", [])
    return any(LIST_FILTERS.get(name) == method for name in wanted)


def main():
    eras = {"legacy": LegacyHandler, "modern": ModernHandler}
    parser = argparse.ArgumentParser(description="An MCP server for the conformance suite.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--era", choices=eras, required=True)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        member = Member(options.port, eras[options.era])
    except OSError as error:
        print(f"cannot listen on port {options.port}: {error}", file=sys.stderr)
        sys.exit(2)
    try:
        member.serve_forever()
    finally:
        member.end_subscriptions()


if __name__ == "__main__":
    main()
