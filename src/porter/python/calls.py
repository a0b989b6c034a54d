"""Calls of a plugin's methods: in which style, on which thread, side by side or one after the other.
Everything here but `Pool` and `hear` runs on the event loop's thread."""

import asyncio
import collections
import contextvars
import copy
import functools
import inspect
import os
import queue
import sys
import threading
import traceback

from _guild_hall import homeclaw
from _guild_hall.attributes import NONE, PerCall, current
from _guild_hall.core import CoreInterface
from _guild_hall.loading import Refused
from _guild_hall.records import prompt_request

# Methods that are not async run on so many threads at the most; further calls wait for one.
MOST_THREADS = 8
# A call says so much to channels; what is more is in the log only.
MOST_SAID = 1000
# The porter has fewer under way at a time: the others are such as were given up and run on.
MOST_CALLS = 512


class Call:
    def __init__(self, message):
        self.number = message["call"]
        self.capability = message["capability"]
        self.arguments = message["arguments"]
        self.prompt = prompt_request(message["request"])
        # Attributes of the plugin, as this call alone sees them.
        self.own = {}
        self.said = []
        self.media = {}
        self.task = None
        # The number of the thread that runs it, while one does.
        self.thread = None
        # Nobody waits for its answer any more.
        self.given_up = False
        self.ended = False

    def name(self):
        return self.capability or "run"


class Style:
    """How a capability is called."""

    def __init__(self, method, declared, takes, takes_all, is_run):
        self.method = method
        self.declared = declared
        self.takes = takes
        self.takes_all = takes_all
        self.is_run = is_run
        self.in_turn = is_run or not (takes_all or takes.issuperset(declared))


class Desk:
    """Calls that take all their parameters as keywords run side by side. All others find what they are
    asked in attributes of the one plugin, and so take turns."""

    def __init__(self, plugin, about, loop, answer):
        self.plugin = plugin
        self.parameters = {
            capability["id"]: [parameter["name"] for parameter in capability["parameters"]]
            for capability in about["capabilities"]
        }
        self.loop = loop
        self.answer = answer
        self.pool = Pool()
        self.styles = {}
        self.calls = {}
        self.waiting = collections.deque()
        self.turn = None
        # The plugin's configuration, while `turn` sees another.
        self.config = NONE
        self.outside = contextvars.copy_context()
        CoreInterface.hear = staticmethod(self.hear)
        for name in ("promptRequest", "user_input"):
            PerCall.put(self, name)
        PerCall.put(self, "config")

    def begin(self, message):
        call = Call(message)
        try:
            if len(self.calls) >= MOST_CALLS:
                raise Refused(self.hung() or "too many calls are under way")
            style = self.style(call.capability)
        except Refused as refusal:
            return self.answer(call, None, str(refusal))
        self.calls[call.number] = call
        by_name = {
            name: value for name, value in call.arguments.items() if style.takes_all or name in style.takes
        }
        rest = {name: value for name, value in call.arguments.items() if name not in by_name}
        if style.is_run or "user_input" not in style.declared:
            # Of the request, and stands in the plugin under its own name.
            rest.pop("user_input", None)
        if style.in_turn or rest:
            self.waiting.append((call, style.method, by_name, rest))
            self.next()
        else:
            call.own = {"promptRequest": call.prompt, "user_input": call.prompt.text}
            self.start(call, style.method, by_name)

    def style(self, capability):
        if capability not in self.styles:
            self.styles[capability] = self._style(capability)
        return self.styles[capability]

    def _style(self, capability):
        kind = type(self.plugin)
        for name in [capability, (capability or "run").strip().lower().replace(" ", "_").replace("-", "_")]:
            method = getattr(self.plugin, name, None) if name else None
            if callable(method):
                break
        else:
            # A plugin may tell its capabilities apart in run(), by the request's metadata.
            name, method = "run", getattr(self.plugin, "run", None)
        if name == "run" and not has_run(self.plugin):
            wanted = "%s and no run()" % capability if capability else "run()"
            raise Refused("%s has no method %s" % (kind.__name__, wanted))
        try:
            parameters = inspect.signature(method).parameters.values()
        except (TypeError, ValueError):
            parameters = ()
        takes = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
        declared = self.parameters.get(capability, [])
        return Style(method, declared, takes, takes_all, name == "run")

    def next(self):
        while self.turn is None and self.waiting:
            call, method, by_name, rest = self.waiting.popleft()
            self.turn = call
            # Outside of any call, this writes to the plugin itself.
            self.plugin.promptRequest = call.prompt
            self.plugin.user_input = call.prompt.text
            if rest and isinstance(self.plugin.config, (dict, type(None))):
                self.config = self.plugin.config
                merged = copy.copy(self.config) or {}
                merged.update(rest)
                self.plugin.config = merged
            self.start(call, method, by_name)

    def start(self, call, method, arguments):
        try:
            self._start(call, method, arguments)
        except Exception as error:
            # No further thread can be had, for one.
            self.end(call, None, told(error))

    def _start(self, call, method, arguments):
        context = contextvars.copy_context()
        context.run(current.set, call)
        if inspect.iscoroutinefunction(method):
            self.heed(call, context, lambda: method(**arguments))
            return

        def job():
            if call.given_up:
                self.loop.call_soon_threadsafe(self.end, call, None, None)
                return
            call.thread = threading.get_ident()
            try:
                result, error = context.run(method, **arguments), None
            except BaseException as raised:
                result, error = None, told(raised)
            call.thread = None
            self.loop.call_soon_threadsafe(self.returned, call, context, result, error)

        self.pool.submit(job)

    def returned(self, call, context, result, error):
        if error is None and inspect.isawaitable(result) and not call.given_up:
            self.heed(call, context, lambda: result)
        else:
            self.end(call, result, error)

    def heed(self, call, context, awaitable):
        async def heeded():
            result, error = None, None
            try:
                result = await awaitable()
                if inspect.isawaitable(result):
                    result = await result
            except BaseException as raised:
                # SystemExit is the end of the call, not of the process.
                error = told(raised)
            # Not inside of the call.
            self.loop.call_soon(functools.partial(self.end, call, result, error), context=self.outside)

        call.task = context.run(self.loop.create_task, heeded())

    def end(self, call, result, error):
        call.ended = True
        self.calls.pop(call.number, None)
        if self.turn is call:
            self.turn = None
            if self.config is not NONE:
                self.plugin.config, self.config = self.config, NONE
        if not call.given_up:
            self.answer(call, result, error)
        self.next()

    def give_up(self, number):
        call = self.calls.get(number)
        if call is None:
            return
        call.given_up = True
        if call.task is not None:
            call.task.cancel()
        waits = [entry for entry in self.waiting if entry[0] is call]
        if waits:
            self.waiting.remove(waits[0])
            del self.calls[number]

    def give_all_up(self):
        for number in list(self.calls):
            self.give_up(number)

    def hear(self, text, request, media):
        """What the plugin sends to a channel: of the call whose request it names, or that it is in."""
        calls = list(self.calls.values())
        wanted = getattr(request, "request_id", None)
        of_request = [call for call in calls if wanted and call.prompt.request_id == wanted]
        inside = current.get()
        if inside is not None and (inside in of_request or not of_request):
            of_request = [inside]
        found = (of_request or ([self.turn] if self.turn else calls if len(calls) == 1 else [None]))[0]
        if found is None or found.ended or len(found.said) >= MOST_SAID:
            sys.stderr.write("the plugin says, and nobody has asked: %s\n" % text)
            return
        found.said.append(text)
        found.media.update(media)

    def hung(self):
        """Why no further call can be answered, where that is so."""
        turn = self.turn
        if turn is not None and turn.given_up:
            return "a call of %s still runs%s although nobody waits for it, and others have to wait" % (
                turn.name(),
                self.place(turn),
            )
        running = [call for call in list(self.calls.values()) if call.given_up and call.thread is not None]
        if len(running) >= MOST_THREADS:
            return "%d calls still run although nobody waits for them, one of %s%s" % (
                len(running),
                running[0].name(),
                self.place(running[0]),
            )
        return None

    def place(self, call):
        frame = sys._current_frames().get(call.thread) if call.thread is not None else None
        if frame is None and call.task is not None:
            stack = call.task.get_stack()
            frame = stack[-1] if stack else None
        return "" if frame is None else " in " + where(frame)


class Pool:
    """Threads that end with the process, whatever they do."""

    def __init__(self):
        self.jobs = queue.SimpleQueue()
        self.idle = threading.Semaphore(0)
        self.threads = 0

    def submit(self, job):
        self.jobs.put(job)
        if not self.idle.acquire(blocking=False) and self.threads < MOST_THREADS:
            self.threads += 1
            threading.Thread(target=self.work, name="guild-hall-%d" % self.threads, daemon=True).start()

    def work(self):
        while True:
            self.jobs.get()()
            self.idle.release()


def has_run(plugin):
    """Has it a run() of its own? That of HomeClaw's BasePlugin does nothing."""
    run = getattr(plugin, "run", None)
    of = (getattr(run, "__module__", ""), getattr(run, "__qualname__", ""))
    nothing = [(module, "BasePlugin.run") for module in ("base.BasePlugin", homeclaw.__name__)]
    return callable(run) and of not in nothing


def told(error):
    """Type and message; the whole goes to the log."""
    if isinstance(error, asyncio.CancelledError):
        return "the call was cancelled"
    traceback.print_exception(type(error), error, error.__traceback__)
    return "".join(traceback.format_exception_only(type(error), error)).strip()


def where(frame):
    """The innermost place in the plugin's own files."""
    shown = frame
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("plugins."):
            shown = frame
            break
        frame = frame.f_back
    code = shown.f_code
    file = code.co_filename
    inside = homeclaw.told["dir"] + os.sep
    if file.startswith(inside):
        file = file[len(inside) :]
    return "%s:%d, in %s" % (file, shown.f_lineno, code.co_name)
