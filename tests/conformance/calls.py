"""One request of a client, in either era of the protocol, and what each method answers.

The revisions with an `initialize` handshake and sessions (up to 2025-11-25) are "legacy" here, the stateless
one (2026-07-28) is "modern".
"""

import base64
import hashlib
import hmac
import itertools
import json
import queue
import re
import time
import uuid

from catalogue import PROMPTS, PROMPTS_CHANGED, RESOURCES, TEMPLATE, TOOLS, TOOLS_CHANGED, text_content

MODERN_VERSION = "2026-07-28"
LEGACY_VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
SERVER_INFO = {"name": "conformance-member", "version": "1.0.0"}
CAPABILITIES = {"tools": {"listChanged": True}, "prompts": {"listChanged": True},
                "resources": {"subscribe": True}, "completions": {}, "logging": {}}

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
INTERNAL_ERROR = -32603
TRANSPORT_ERROR, LEGACY_RESOURCE_NOT_FOUND = -32000, -32002
HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION = -32020, -32021, -32022

LOG_LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
CACHEABLE = {"server/discover", "tools/list", "prompts/list", "resources/list",
             "resources/templates/list", "resources/read"}
NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
LIST_FILTERS = {"toolsListChanged": TOOLS_CHANGED, "promptsListChanged": PROMPTS_CHANGED}
CAPABILITY_FOR = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling",
                  "roots/list": "roots"}
ANSWER_HAS = {"elicitation/create": "action", "sampling/createMessage": "content", "roots/list": "roots"}
ANSWER_SECONDS, STATE_SECONDS = 30, 600


class RpcError(Exception):
    """A JSON-RPC error, with the HTTP status and headers that carry it if no stream is open yet."""

    def __init__(self, code, message, data=None, status=200, headers=()):
        super().__init__(message)
        self.error = {"code": code, "message": message}
        if data is not None:
            self.error["data"] = data
        self.status, self.headers = status, headers


class InputRequired(Exception):
    """Carries a result that puts questions to the client instead of completing the request."""


class Call:
    """A request being served. Its two subclasses are the two eras."""

    def __init__(self, server, reply, method, params):
        self.server, self.reply, self.method, self.params = server, reply, method, params
        self.meta = params.get("_meta") or {}

    def serve(self, methods):
        try:
            result = methods[self.method](self)
        except InputRequired as need:
            result = need.args[0]
        if result is not None:
            self.reply.outcome("result", self.complete(result))

    def parameter(self, name, kind=str, default=None):
        value = self.params.get(name, default)
        if not isinstance(value, kind):
            raise RpcError(INVALID_PARAMS, f"{self.method}: '{name}' is missing or of the wrong type")
        return value

    def progress(self, done, total):
        if (token := self.meta.get("progressToken")) is not None:
            params = {"progressToken": token, "progress": done, "total": total}
            self.reply.notify("notifications/progress", params)

    def log(self, level, data):
        if self.log_level in LOG_LEVELS and LOG_LEVELS.index(level) >= LOG_LEVELS.index(self.log_level):
            self.reply.notify("notifications/message", {"level": level, "logger": "tools", "data": data})

    def can_ask(self, request):
        return CAPABILITY_FOR[request["method"]] in self.client_capabilities

    def require(self, requests):
        missing = {CAPABILITY_FOR[request["method"]]: {}
                   for request in requests.values() if not self.can_ask(request)}
        if missing:
            code, status = self.missing_capability
            message = f"The client did not declare a required capability: {', '.join(missing)}"
            raise RpcError(code, message, {"requiredCapabilities": missing}, status)


class LegacyCall(Call):
    """A request within a session."""

    resource_not_found, missing_capability = LEGACY_RESOURCE_NOT_FOUND, (INVALID_REQUEST, 200)

    def __init__(self, server, reply, method, params, session):
        super().__init__(server, reply, method, params)
        self.session = session
        self.client_capabilities, self.log_level = session.capabilities, session.log_level

    def ask(self, requests, stateful=False):
        """Puts requests to the client, and returns its answer to each."""
        self.require(requests)
        numbers = {key: self.session.request(self.reply, request) for key, request in requests.items()}
        return {key: self.session.answer(number) for key, number in numbers.items()}

    def hang_up(self):
        """Ends the stream; the client gets the result when it comes back for it."""
        event_id, mailbox = uuid.uuid4().hex, queue.Queue()
        self.session.mailboxes[event_id] = mailbox
        self.reply.park(event_id, mailbox)

    def complete(self, result):
        return result


class ModernCall(Call):
    """A request that stands for itself; one that needs answers is repeated with them."""

    resource_not_found, missing_capability = INVALID_PARAMS, (MISSING_CAPABILITY, 400)

    def __init__(self, server, reply, method, params):
        super().__init__(server, reply, method, params)
        self.client_capabilities, self.log_level = self.meta[CAPABILITIES_KEY], self.meta.get(LOG_LEVEL_KEY)
        self.answers, self.has_state = {}, False
        if method in NAMED_BY:
            if "requestState" in params:
                self.answers, self.has_state = self._verified(self.parameter("requestState")), True
            self.answers.update(self.parameter("inputResponses", dict, {}))

    def ask(self, requests, stateful=False):
        """The same; `stateful` takes answers only with the state that was given out."""
        self.require(requests)
        answers = self.answers if self.has_state or not stateful else {}
        unanswered = {key: request for key, request in requests.items()
                      if not is_answer(request["method"], answers.get(key))}
        if unanswered:
            state = {"requestState": self._signed(answers)} if stateful else {}
            raise InputRequired({"resultType": "input_required", "inputRequests": unanswered, **state})
        return {key: answers[key] for key in requests}

    def hang_up(self):
        """Streams of this era cannot be resumed, so this one stays."""

    def complete(self, result):
        whole = {"resultType": "complete", "_meta": {SERVER_INFO_KEY: SERVER_INFO}, **result}
        if self.method in CACHEABLE and whole["resultType"] == "complete":
            whole.update(ttlMs=0, cacheScope="private")
        return whole

    def _purpose(self):
        """What a state is bound to: this method with these parameters."""
        said = [self.method, self.params.get(NAMED_BY[self.method]), self.params.get("arguments")]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()

    def _signed(self, answers):
        state = {"for": self._purpose(), "until": time.time() + STATE_SECONDS, "answers": answers}
        payload = base64.urlsafe_b64encode(json.dumps(state).encode()).decode()
        return f"{payload}.{self.server.seal(payload)}"

    def _verified(self, text):
        payload, _, seal = text.partition(".")
        if not hmac.compare_digest(seal.encode(), self.server.seal(payload).encode()):
            raise RpcError(INVALID_PARAMS, "'requestState' was not issued by this server")
        state = json.loads(base64.urlsafe_b64decode(payload))
        if state["for"] != self._purpose() or state["until"] < time.time():
            raise RpcError(INVALID_PARAMS, "'requestState' belongs to another request or is too old")
        return state["answers"]


def is_answer(method, value):
    return isinstance(value, dict) and ANSWER_HAS[method] in value


class Session:
    """What the legacy era keeps between the requests of one client."""

    numbers = itertools.count(1)

    def __init__(self, capabilities):
        self.id, self.capabilities = uuid.uuid4().hex, capabilities
        self.log_level, self.subscribed, self.listener = "info", set(), None
        self.mailboxes, self.pending = {}, {}

    def request(self, reply, request):
        number = next(self.numbers)
        self.pending[number] = queue.Queue()
        reply.event({"jsonrpc": "2.0", "id": number, **request})
        return number

    def answer(self, number):
        try:
            message = self.pending[number].get(timeout=ANSWER_SECONDS)
        except queue.Empty:
            raise RpcError(INTERNAL_ERROR, "the client did not answer in time") from None
        finally:
            del self.pending[number]
        if "result" not in message:
            raise RpcError(INTERNAL_ERROR, f"the client refused: {message.get('error')}")
        return message["result"]

    def deliver(self, response):
        waiting = self.pending.get(response.get("id"))
        if waiting is not None:
            waiting.put(response)


# Methods: functions of a call that return a result.


def listing(key, entries):
    def serve(call):
        if call.params.get("cursor") is not None:
            raise RpcError(INVALID_PARAMS, "unknown cursor: all lists have one page")
        return {key: [entry for entry in entries if entry["name"] not in call.server.hidden]}
    return serve


def chosen(call, registry):
    name = call.parameter("name")
    if name not in registry or name in call.server.hidden:
        raise RpcError(INVALID_PARAMS, f"{call.method}: there is no '{name}'")
    return registry[name]


def require_arguments(arguments, names):
    for name in names:
        if name not in arguments:
            raise RpcError(INVALID_PARAMS, f"the argument '{name}' is missing")
    return arguments


def call_tool(call):
    definition, run = chosen(call, TOOLS)
    required = definition["inputSchema"].get("required", [])
    outcome = run(call, require_arguments(call.parameter("arguments", dict, {}), required))
    return outcome if isinstance(outcome, dict) else {"content": [text_content(outcome or "Done.")]}


def get_prompt(call):
    definition, build = chosen(call, PROMPTS)
    required = [argument["name"] for argument in definition["arguments"]]
    arguments = require_arguments(call.parameter("arguments", dict, {}), required)
    return {"messages": [{"role": "user", "content": content} for content in build(call, arguments)]}


def read_resource(call):
    uri = call.parameter("uri")
    templated = re.fullmatch(r"test://template/([^/]+)/data", uri)
    if templated:
        data = {"id": templated[1], "templateTest": True, "data": f"Data for ID: {templated[1]}"}
        mime_type, content = TEMPLATE["mimeType"], {"text": json.dumps(data)}
    elif uri in RESOURCES:
        mime_type, content = RESOURCES[uri]
    else:
        raise RpcError(call.resource_not_found, "Resource not found", {"uri": uri})
    return {"contents": [{"uri": uri, "mimeType": mime_type, **content}]}


def complete(call):
    prefix = call.parameter("argument", dict).get("value", "")
    values = [value for value in ("paris", "park", "party") if value.startswith(prefix)]
    return {"completion": {"values": values, "total": len(values), "hasMore": False}}


def set_level(call):
    if call.parameter("level") not in LOG_LEVELS:
        raise RpcError(INVALID_PARAMS, f"unknown log level '{call.parameter('level')}'")
    call.session.log_level = call.parameter("level")
    return {}


def subscribe(call):
    call.session.subscribed.add(call.parameter("uri"))
    return {}


def unsubscribe(call):
    call.session.subscribed.discard(call.parameter("uri"))
    return {}


def discover(call):
    return {"supportedVersions": [MODERN_VERSION], "capabilities": CAPABILITIES}


def listen(call):
    """Serves a stream of changes; its result is sent only if the server ends it."""
    asked = call.parameter("notifications", dict)
    wanted = {name: True for name in LIST_FILTERS if asked.get(name) is True}
    if isinstance(asked.get("resourceSubscriptions"), list):
        wanted["resourceSubscriptions"] = asked["resourceSubscriptions"]
    call.server.hold_subscription(call.reply, wanted)


COMMON_METHODS = {
    "tools/list": listing("tools", [definition for definition, _ in TOOLS.values()]),
    "prompts/list": listing("prompts", [definition for definition, _ in PROMPTS.values()]),
    "resources/list": listing("resources", [
        {"uri": uri, "name": uri.removeprefix("test://"), "mimeType": mime_type}
        for uri, (mime_type, _) in RESOURCES.items()]),
    "resources/templates/list": listing("resourceTemplates", [TEMPLATE]),
    "tools/call": call_tool, "prompts/get": get_prompt, "resources/read": read_resource,
    "completion/complete": complete}
LEGACY_METHODS = {**COMMON_METHODS, "ping": lambda call: {}, "logging/setLevel": set_level,
                  "resources/subscribe": subscribe, "resources/unsubscribe": unsubscribe}
MODERN_METHODS = {**COMMON_METHODS, "server/discover": discover, "subscriptions/listen": listen}
