#!/usr/bin/env python3
"""How soon N members are connected again after the hall was killed, and after it was handed over.

    benches/recovery.py [--members 800] [--runs 5] [--ports 20000-20999] [--binary target/release/guild-hall] [--member "COMMAND --port ${PORT}"]

Prints one JSON line: the cold start, the re-attachment after SIGKILL (from the start of the new process until the
roster has every member connected) and the handover (from SIGUSR2 until the first answer of the next image that has
every member connected), in milliseconds, median of the runs; and that every PID was kept. The floor is the same number of
bare `initialize` requests to the same members, one connection each, from as many threads as there are cores.
"""
import argparse, concurrent.futures, json, os, shlex, signal, socket, statistics, subprocess, tempfile, time

INITIALIZE = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
    "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "0"}}}).encode()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--members", type=int, default=800)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--ports", default="20000-20999")
    parser.add_argument("--binary", default="target/release/guild-hall")
    parser.add_argument("--member", default="${GUILD_HALL} example-member --port ${PORT}")
    args = parser.parse_args()
    binary = os.path.abspath(args.binary)
    with tempfile.TemporaryDirectory(prefix="guild-hall-bench-", dir=os.environ.get("BENCH_TMP")) as work:
        for n in range(args.members):
            write_member(work, f"m{n}", shlex.split(args.member))
        path, log = f"{work}/run/guild-hall.sock", f"{work}/log"

        def start():
            begun = time.monotonic()
            with open(log, "a") as output:
                hall = subprocess.Popen(
                    [binary, "run", "--members", f"{work}/members", "--run-dir", f"{work}/run", "--listen", "none",
                     "--ports", args.ports], cwd=work, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            return hall, begun

        hall, begun = start()
        pids = connected(path, args.members)
        cold = time.monotonic() - begun
        kept, killed, handed, floors = True, [], [], []
        try:
            for _ in range(args.runs):
                time.sleep(1)
                floors.append(floor([entry["port"] for entry in roster(path)["members"]]))
                hall.kill()
                hall.wait()
                hall, begun = start()
                kept &= connected(path, args.members) == pids
                killed.append(time.monotonic() - begun)
            for _ in range(args.runs):
                time.sleep(1)
                before, begun = images(log), time.monotonic()
                hall.send_signal(signal.SIGUSR2)
                while images(log) == before:
                    assert time.monotonic() - begun < 30, "it was not handed over"
                    time.sleep(0.001)
                kept &= connected(path, args.members) == pids
                handed.append(time.monotonic() - begun)
        finally:
            hall.send_signal(signal.SIGTERM)
            hall.wait(60)
        millis = lambda values: round(statistics.median(values) * 1000, 1)
        print(json.dumps({"members": args.members, "runs": args.runs, "cold_start_ms": round(cold * 1000, 1),
                          "floor_ms": millis(floors), "after_sigkill_ms": millis(killed), "worst_after_sigkill_ms": round(max(killed) * 1000, 1),
                          "handover_ms": millis(handed), "pids_kept": kept}))


def write_member(work, name, command):
    os.makedirs(f"{work}/members/{name}")
    manifest = {"name": name, "displayName": name, "description": name, "version": "0.1.0", "transport": "http",
                "mcp": {"command": command[0], "args": command[1:]}}
    with open(f"{work}/members/{name}/guild-member.json", "w") as file:
        json.dump(manifest, file)


def connected(path, members):
    """Waits until all are, and returns their PIDs."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            entries = roster(path)["members"]
            if len(entries) == members and all(entry["status"] == "connected" for entry in entries):
                return {entry["name"]: entry["pid"] for entry in entries}
        except (OSError, ValueError):
            pass
        time.sleep(0.005)
    raise SystemExit("the members are not connected after two minutes")


def roster(path):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(b"GET /v1/roster HTTP/1.1\r\nHost: hall\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(1 << 20), b""))
    return json.loads(answer.split(b"\r\n\r\n", 1)[1])


def floor(ports):
    begun = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(initialize, ports))
    return time.monotonic() - begun


def initialize(port):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nAccept: application/json, text/event-stream\r\n"
                           b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(INITIALIZE) + INITIALIZE)
        while connection.recv(65536):
            pass


def images(log):
    """How often a hall has come up or gone on in this log."""
    with open(log) as file:
        return file.read().count("the hall is up")


if __name__ == "__main__":
    main()
