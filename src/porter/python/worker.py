"""The process of one plugin: requests come as lines of JSON on descriptor 3, answers go on 4. What the
plugin prints goes to the log and cannot be taken for either."""

import asyncio
import faulthandler
import inspect
import json
import os
import sys
import threading
import traceback

from _guild_hall import calls, loading, results

# An answer may be this long; bytes.
LARGEST = 16 * 1024 * 1024
# A start that takes longer tells in the log where it is; seconds.
SLOW_START = 20
# The event loop has so long to show that it is not held up; seconds.
PATIENCE = 1.0


def main(requests, start):
    # A crash tells where it was; and so does a start that hangs.
    faulthandler.enable()
    faulthandler.dump_traceback_later(SLOW_START)
    os.register_at_fork(after_in_child=hang_up)
    sys.argv = [start["file"]]
    worker = Worker(start["dir"])
    try:
        plugin = worker.open(start)
    except BaseException as error:
        if not isinstance(error, loading.Refused):
            traceback.print_exception(type(error), error, error.__traceback__)
        worker.send('{"failed":%s}' % json.dumps(loading.cause(error, start["dir"])))
        # Threads that the plugin may have started do not hold up the end.
        os._exit(1)
    faulthandler.cancel_dump_traceback_later()
    worker.send('{"ready":true}')
    worker.serve(requests)
    worker.close(plugin)
    return 0


class Worker:
    def __init__(self, directory):
        self.directory = directory
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.writing = threading.Lock()
        self.desk = None
        self.closing = False

    def open(self, start):
        plugin = loading.load(start)
        initialize = getattr(plugin, "initialize", None)
        if callable(initialize):
            self.complete(initialize())
        self.desk = calls.Desk(plugin, start["plugin"], self.loop, self.answer)
        for capability in [item["id"] for item in start["plugin"]["capabilities"]] or [None]:
            try:
                self.desk.style(capability)
            except loading.Refused as refusal:
                sys.stderr.write("%s\n" % refusal)
        return plugin

    def complete(self, result):
        """What a method returned that may be async."""
        asyncio.set_event_loop(self.loop)
        if inspect.isawaitable(result):

            async def heeded():
                return await result

            self.loop.run_until_complete(heeded())

    def serve(self, requests):
        threading.Thread(target=self.listen, args=(requests,), name="guild-hall", daemon=True).start()
        while not self.closing:
            try:
                self.loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                # Of a task that the plugin has left running; its end is not the plugin's.
                traceback.print_exc()

    def listen(self, requests):
        for line in requests:
            message = json.loads(line)
            if "call" in message:
                self.loop.call_soon_threadsafe(self.desk.begin, message)
            elif "cancel" in message:
                self.loop.call_soon_threadsafe(self.desk.give_up, message["cancel"])
            elif "ping" in message:
                self.send('{"id":%d,"health":%s}' % (message["ping"], json.dumps(self.fault())))
            else:
                break
        # It is to end, or nobody is there any more who could ask.
        self.loop.call_soon_threadsafe(self.leave)

    def fault(self):
        """What keeps the plugin from answering; None if nothing does."""
        alive = threading.Event()
        self.loop.call_soon_threadsafe(alive.set)
        if alive.wait(PATIENCE):
            return self.desk.hung()
        frame = sys._current_frames().get(threading.main_thread().ident)
        return "its event loop is held up" + ("" if frame is None else " at " + calls.where(frame))

    def answer(self, call, result, error):
        """Of what the plugin has returned, or of what went wrong."""
        if error is not None:
            body = '"error":%s' % json.dumps(error)
        else:
            try:
                text, notes = results.encode(result)
            except Exception as fault:
                text, notes = "null", ["the result cannot be written as JSON: %s" % fault]
            body = '"result":%s,"notes":%s' % (text, json.dumps(notes))
        said = json.dumps([call.said, call.media], ensure_ascii=False, default=str)
        line = _line('{"id":%d,%s,"said":%s}' % (call.number, body, said))
        if len(line) > LARGEST:
            problem = "the answer is %d bytes long; it may have %d" % (len(line), LARGEST)
            line = _line('{"id":%d,"error":"%s"}' % (call.number, problem))
        self.write(line)

    def send(self, text):
        self.write(_line(text))

    def write(self, line):
        rest = memoryview(line)
        with self.writing:
            while rest:
                rest = rest[os.write(4, rest) :]

    def leave(self):
        self.closing = True
        self.desk.give_all_up()
        # What was given up gets a turn of the loop to end in.
        self.loop.call_soon(self.loop.stop)

    def close(self, plugin):
        """Whoever asked for it ends the process if it takes too long."""
        cleanup = getattr(plugin, "cleanup", None)
        try:
            if callable(cleanup):
                self.complete(cleanup())
        except BaseException:
            traceback.print_exc()


def _line(text):
    return text.encode("utf-8", "replace") + b"\n"


def hang_up():
    """In a process that the plugin has forked."""
    for number in (3, 4):
        try:
            os.close(number)
        except OSError:
            pass
