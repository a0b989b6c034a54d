#!/usr/bin/env -S python3 -S
"""A small, correct MCP server over HTTP whose faults are knobs; `--help` prints them all.

The end-to-end tests run it as a member: cwd is the member's directory, where it keeps `launches`
(one port a line, one line a launch) and `descendants` (one pid a line). This file is the process and
its faults; honest.py the server; lies.py what it does on the wire instead.
"""
# The C halves of socket, signal and threading: with the Python halves, and with the other two files
# before the port is bound, it would take twice as long until the port answers.
import errno
import os
import sys
import time
from itertools import count

import _signal as signal
import _socket as socket
import _thread as thread

KNOBS = {  # name: (type, default, argument, what it does); bool takes no argument, list may be repeated
    "port": (int, 0, "P", "serve on 127.0.0.1:P, always needed; taken: a stderr line and exit 2"),
    "life": (int, 900, "S", "die of SIGALRM after S seconds, 900 if not said, so that no lost rogue stays; 0: never"),
    "record": (str, "", "PATH", "append each request to PATH as a JSON line: verb, path, headers, body"),
    "start-delay": (int, 0, "MS", "wait before binding the port"),
    "bind-then-404": (int, 0, "MS", "answer a plain 404 to everything until MS after binding"),
    "bind-then-503": (int, 0, "MS", "answer a plain 503 to everything until MS after binding"),
    "reset-first": (int, 0, "N", "reset the first N connections (RST)"),
    "mute": (bool, False, "", "accept connections, never answer"),
    "mute-after": (int, -1, "N", "answer N HTTP requests (notifications count), then never again"),
    "mute-file": (str, "", "PATH", "hold every request while PATH exists, answer as soon as it is gone"),
    "exit-code": (int, 1, "N", "the exit code of a crash, 1 if not said"),
    "die-by-signal": (int, 0, "N", "a crash is death by signal N; without a knob that says when: at start"),
    "crash-at-start": (bool, False, "", "write `crash line 1 of 30` … to stderr, then crash"),
    "crash-after": (int, -1, "MS", "crash MS after the launch"),
    "exit-2": (int, 0, "N", "exit 2 on the first N launches in this directory; negative: on all"),
    "slow-exit-2": (int, -1, "MS", "never bind, exit 2 after MS"),
    "flood": (str, "", "stdout or stderr", "write 64 KiB blocks there for ever, but pause while the "
            "file takes more than 256 MiB of the disk; a closed pipe: exit 141"),
    "flood-lines": (int, 0, "N", "write `flood line 1` … to stderr before binding, then be quiet"),
    "long-line": (int, 0, "BYTES", "write one stderr line of BYTES `x`, without a newline, before binding"),
    "garbage-stderr": (bool, False, "", "write invalid UTF-8, ANSI escapes and NULs to stderr before binding"),
    "fork": (int, 0, "N", "leave N sleeping children in the own process group"),
    "setsid-fork": (bool, False, "", "leave an orphan in a session of its own, deaf to SIGTERM"),
    "setsid-clean-env": (bool, False, "", "the same, with an empty environment"),
    "deaf": (bool, False, "", "ignore SIGTERM"),
    "term-delay": (int, 0, "MS", "go on serving for MS after SIGTERM, then exit"),
    "exit-code-on-term": (int, 0, "N", "the exit code after SIGTERM, 0 if not said"),
    "thief": (str, "", "LO-HI", "bind and hold, besides its own, every free port from LO to HI"),
    "forget-session": (bool, False, "", "`--lie session` that forgets its sessions once, after the first tools/list"),
    "lie": (list, [], "KIND[=N][@METHOD]", "bend the answer, see below; may be repeated, in order. METHOD is a prefix "
            "of the JSON-RPC method (or of the HTTP verb, when not POST) that is answered so; empty: everything"),
}
FULL = 256 << 20  # a flood pauses while the file it goes to takes more of the disk than this
answers = count()


def write(fd, data):
    try:
        while data:
            data = data[os.write(fd, data):]
    except BrokenPipeError:  # Python ignores SIGPIPE; most programs die of it
        os._exit(128 + signal.SIGPIPE)


def leave(code, why):
    write(2, f"rogue: {why}\n".encode())
    os._exit(code)


def append(path, line):
    with open(path, "ab", buffering=0) as file:
        file.write(f"{line}\n".encode())


def later(ms, act):
    thread.start_new_thread(lambda: (time.sleep(ms / 1000), act()), ())


def crash():
    if K.die_by_signal:
        os.kill(os.getpid(), K.die_by_signal)
        time.sleep(1)
    os._exit(K.exit_code)


# --- before the port is bound


def set_signals():
    """SIGTERM and SIGINT go to a thread that waits for them. A handler would not do: when the signal
    comes just before the main thread blocks in accept, Python runs it only after the next connection."""
    signal.alarm(K.life)
    if K.die_by_signal:
        import resource
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if K.die_by_signal not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(K.die_by_signal, signal.SIG_DFL)
    if K.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ends = {signal.SIGINT, signal.SIGTERM} - {K.die_by_signal} - ({signal.SIGTERM} if K.deaf else set())
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    thread.start_new_thread(end_on, (ends,))


def end_on(signals):
    signal.sigwait(signals)
    time.sleep(K.term_delay / 1000)
    os._exit(K.exit_code_on_term)


def leave_behind(detached, env):
    """A process that sleeps. Returns once it is all that it will be: the pipe closes at its exec."""
    until, held = os.pipe()
    child = os.fork()
    if child == 0:
        if detached:
            if os.fork():
                os._exit(0)
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        append("descendants", os.getpid())
        os.execvpe("sleep", ["sleep", str(K.life or 86400)], env)
    os.close(held)
    os.read(until, 1)
    os.close(until)
    if detached:
        os.waitpid(child, 0)


def make_noise():
    if K.garbage_stderr:
        write(2, b"\xff\xfe\xc3\x28 broken\n\x1b[31mred\x1b[2J\x1b]0;title\x07\n\0\0nul\0\n\xe2\x80\xaebidi\r\n")
    if K.long_line:
        write(2, b"x" * K.long_line)
    if K.flood_lines:
        write(2, b"".join(b"flood line %d\n" % at for at in range(1, K.flood_lines + 1)))
    if K.flood:
        fd, block = ("stdout", "stderr").index(K.flood) + 1, (b"flood " * 10 + b"end\n") * 1024
        thread.start_new_thread(flood, (fd, block))


def flood(fd, block):
    while True:
        write(fd, block)
        while os.fstat(fd).st_blocks * 512 > FULL:  # unchecked, it writes 1 GB a second
            time.sleep(0.01)


def launch():
    append("launches", K.port)
    with open("launches", "rb") as file:
        number = file.read().count(b"\n")
    for _ in range(K.fork):
        leave_behind(False, os.environ)
    if K.setsid_fork:
        leave_behind(True, os.environ)
    if K.setsid_clean_env:
        leave_behind(True, {})
    set_signals()  # after the forks: descendants start with signals as usual
    make_noise()
    if K.crash_after >= 0:
        later(K.crash_after, crash)
    if K.crash_at_start:
        write(2, b"".join(b"crash line %d of 30\n" % at for at in range(1, 31)))
    said_when = K.crash_after >= 0 or any(lie.startswith("crash") for lie in K.lie)
    if K.crash_at_start or (K.die_by_signal and not said_when):
        crash()
    if K.exit_2 < 0 or number <= K.exit_2:
        leave(2, f"launch {number}: port {K.port} is taken, or so it says")
    if K.slow_exit_2 >= 0:
        time.sleep(K.slow_exit_2 / 1000)
        leave(2, f"port {K.port} is taken, or so it says")
    time.sleep(K.start_delay / 1000)


def bind(port):
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    return listener


def steal(low, high):
    import resource
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for port in range(low, high + 1):
        try:
            yield bind(port)
        except OSError:
            pass


# --- once it is bound


def respond(conn, request):
    if K.record:
        verb, path, headers, body = request
        request_read = {"verb": verb, "path": path, "headers": headers, "body": body.decode(errors="replace")}
        append(K.record, json.dumps(request_read))
    if K.mute or 0 <= K.mute_after <= next(answers):
        lies.hang(conn, None, 0)
    while K.mute_file and os.path.exists(K.mute_file):
        time.sleep(0.005)
    answer = honest.Answer(*request)
    for ms, status in (K.bind_then_404, "404 Not Found"), (K.bind_then_503, "503 Service Unavailable"):
        if time.monotonic() < bound_at + ms / 1000:
            answer.be(status, "not yet")
            return honest.plain(conn, answer)
    for method, n, lie in told:
        if answer.method.startswith(method):
            lie(answer, n)
    tools = answer.result.get("tools")
    honest.listed.update(one.get("name") for one in (tools if isinstance(tools, list) else []))
    answer.send(conn, answer)


def serve(conn):
    data = b""
    try:
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            *request, data = honest.read_request(conn, data)
            respond(conn, request)
            if request[2].get("connection", "").lower() == "close":
                break
    except (honest.Closed, OSError):
        pass
    except lies.Crash:
        crash()
    finally:
        conn.close()


def main():
    global honest, json, lies, bound_at, told
    launch()
    try:
        listener = bind(K.port)
    except OSError as fault:
        leave(2 if fault.errno == errno.EADDRINUSE else 1, f"cannot bind 127.0.0.1:{K.port}: {fault}")
    bound_at = time.monotonic()
    import json
    import honest
    import lies
    try:
        words = [word for word in K.lie if word != "session"] + ["session=1"] if K.forget_session else K.lie
        told = [lies.parse(word) for word in words]
    except (KeyError, ValueError) as fault:
        leave(64, f"no lie {fault}")
    loot = [*steal(*map(int, K.thief.split("-")))] if K.thief else []
    for number in count(1):
        conn = socket.socket(fileno=listener._accept()[0])
        if number <= K.reset_first:
            conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, (1).to_bytes(4, sys.byteorder) + bytes(4))
            conn.close()
        else:
            thread.start_new_thread(serve, (conn,))


# --- the command line


def usage():
    import lies
    rows = [(f"--{name} {argument}".strip(), about) for name, (_, _, argument, about) in KNOBS.items()]
    for kind, (method, n, _, about) in lies.LIES.items():
        rows.append((f"--lie {kind}{'' if n is None else f'[={n}]'}", f"{method or 'everything'}: {about}"))
    return "\n".join(["| knob | what it does |", "|---|---|", *(f"| `{knob}` | {about} |" for knob, about in rows)])


def parse(words):
    knobs, words = {name: default for name, (_, default, *_) in KNOBS.items()}, iter(words)
    for word in words:
        name = word[2:]
        if word[:2] != "--" or name not in KNOBS:
            leave(64, f"no knob {word}, see --help")
        kind = KNOBS[name][0]
        value = True if kind is bool else next(words, "")
        try:
            knobs[name] = [*knobs[name], value] if kind is list else kind(value)
        except ValueError:
            leave(64, f"{word} {value}: not a number")
    if not knobs["port"]:
        leave(64, "--port is missing, see --help")
    return type("Knobs", (), {name.replace("-", "_"): value for name, value in knobs.items()})


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # also under python3 -I
    if "--help" in sys.argv:
        write(1, f"{usage()}\n".encode())
        sys.exit()
    K = parse(sys.argv[1:])
    main()
