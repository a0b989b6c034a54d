#!/usr/bin/env python3
"""What a porter costs: per call, in memory, and until it listens.

    benches/porter.py [--calls 3000] [--rounds 7] [--porters 20] [--binary target/release/guild-hall]

Prints one JSON line. Per call: one stdio MCP server (this script) is called over its own pipes (direct), through socat, which
puts the pipes on a TCP port and knows nothing of messages (the floor of any such hop), and through a porter; one call after
the other, the three in turn; medians of the rounds' p50, in microseconds. Memory: PSS of each of so many porters beside each
other, and of one alone. Listening: from the launch until the port accepts a connection, median, in milliseconds; beside it
the same for a bare exec of the binary (`--version`).
"""
import argparse, json, os, socket, statistics, subprocess, sys, tempfile, time


def serve():
    """The smallest MCP server on pipes."""
    for line in sys.stdin:
        asked = json.loads(line)
        if asked.get("method") == "initialize":
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
        elif asked.get("method") == "tools/call":
            result = {"content": [{"type": "text", "text": asked["params"]["arguments"]["text"]}]}
        else:
            result = {}
        if "id" in asked:
            print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)


COMMAND = [sys.executable, "-S", os.path.abspath(__file__), "--serve"]
INITIALIZE = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
    "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "0"}}}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "x" * 32}}}


class Lines:
    """Messages as lines, on pipes or a socket."""

    def __init__(self, write, read):
        self.write, self.read = write, read
        self.ask(INITIALIZE)

    def ask(self, message):
        self.write((json.dumps(message) + "\n").encode())
        answer = b""
        while not answer.endswith(b"\n"):
            answer += self.read(65536)
        return answer


class Http:
    """Messages as POSTs over one kept connection."""

    def __init__(self, port):
        self.stream = connect(port)
        self.ask(INITIALIZE)

    def ask(self, message):
        body = json.dumps(message).encode()
        self.stream.sendall(b"POST /mcp HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\naccept: application/json, "
                            b"text/event-stream\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self.stream.recv(65536)
        head, _, body = answer.partition(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        while len(body) < length:
            body += self.stream.recv(65536)
        return body


def connect(port):
    end = time.monotonic() + 10
    while True:
        try:
            stream = socket.create_connection(("127.0.0.1", port))
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return stream
        except ConnectionRefusedError:
            assert time.monotonic() < end, f"nobody listens on port {port}"
            time.sleep(0.0002)


def free_ports(count):
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def porter(binary, port, command):
    document = {"plugin": {"id": "bench", "name": "bench", "description": "bench", "keywords": [], "capabilities": []},
                "behind": {"Stdio": {"program": {"command": command[0], "args": command[1:], "env": []}}},
                "timeout": {"secs": 30, "nanos": 0}}
    with tempfile.TemporaryFile() as stdin:
        stdin.write(json.dumps(document).encode())
        stdin.seek(0)
        return subprocess.Popen([binary, "porter", "--port", str(port)], stdin=stdin, stdout=subprocess.DEVNULL)


def p50(ask, calls):
    times = []
    for _ in range(calls):
        begun = time.perf_counter()
        answer = ask(CALL)
        times.append(time.perf_counter() - begun)
    assert b"xxx" in answer, answer
    return statistics.median(times) * 1e6


def pss(pid):
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:")) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--porters", type=int, default=20)
    parser.add_argument("--binary", default="target/release/guild-hall")
    args = parser.parse_args()
    binary = os.path.abspath(args.binary)
    found, running = {}, []
    try:
        socat_port, port = free_ports(2)
        direct = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        socat = subprocess.Popen(["socat", f"TCP-LISTEN:{socat_port},bind=127.0.0.1,nodelay", "EXEC:" + " ".join(COMMAND)])
        running += [direct, socat, porter(binary, port, COMMAND)]
        through = connect(socat_port)
        ways = {"direct": Lines(lambda text: os.write(direct.stdin.fileno(), text), lambda most: os.read(direct.stdout.fileno(), most)),
                "socat": Lines(through.sendall, through.recv), "porter": Http(port)}
        rounds = {way: [] for way in ways}
        for _ in range(args.rounds):
            for way, wire in ways.items():
                rounds[way].append(p50(wire.ask, args.calls))
        for way, times in rounds.items():
            found[f"{way}_us"] = round(statistics.median(times))
        found["added_us"] = found["porter_us"] - found["direct_us"]
        found["alone_pss_mb"] = round(pss(running[2].pid), 2)
        ports = free_ports(args.porters)
        listening, bare = [], []
        for port in ports:
            begun = time.monotonic()
            subprocess.run([binary, "--version"], stdout=subprocess.DEVNULL, check=True)
            bare.append(time.monotonic() - begun)
            begun = time.monotonic()
            running.append(porter(binary, port, ["cat"]))
            connect(port).close()
            listening.append(time.monotonic() - begun)
        found["listening_ms"] = round(statistics.median(listening) * 1000, 1)
        found["bare_exec_ms"] = round(statistics.median(bare) * 1000, 1)
        porters = running[-args.porters:]
        found["porters"] = args.porters
        found["pss_mb_each"] = round(statistics.median(pss(one.pid) for one in porters), 2)
    finally:
        for one in running:
            one.kill()
            one.wait()
    print(json.dumps(found))


if __name__ == "__main__":
    serve() if "--serve" in sys.argv else main()
