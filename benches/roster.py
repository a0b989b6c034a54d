#!/usr/bin/env python3
"""Latency of GET /v1/roster over the socket with N members, and what 10,000 requests leave behind.

    benches/roster.py [--members 200] [--requests 10000] [--binary target/release/guild-hall]

Prints one JSON line: p50, p99 and max in milliseconds, the size of the answer in bytes, and the growth of
memory (KiB) and descriptors of the hall. The floor beside it is the same request for /healthz.
"""
import argparse, json, os, re, signal, socket, subprocess, tempfile, time


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--members", type=int, default=200)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--binary", default="target/release/guild-hall")
    args = parser.parse_args()
    binary = os.path.abspath(args.binary)
    with tempfile.TemporaryDirectory(prefix="guild-hall-bench-") as work:
        for n in range(args.members):
            write_member(work, f"m{n}")
        hall = subprocess.Popen(
            [binary, "run", "--members", f"{work}/members", "--run-dir", f"{work}/run", "--listen", "none"],
            cwd=work, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            path = f"{work}/run/guild-hall.sock"
            wait_until_connected(path, args.members)
            run(path, "/v1/roster", 500)
            before = footprint(hall.pid)
            floor = run(path, "/healthz", args.requests)
            times = run(path, "/v1/roster", args.requests)
            after = footprint(hall.pid)
            print(json.dumps({
                "members": args.members, "requests": args.requests, "bytes": len(get(path, "/v1/roster")),
                **{f"roster_{name}": value for name, value in summary(times).items()},
                **{f"floor_{name}": value for name, value in summary(floor).items()},
                "grown_kib": after[0] - before[0], "grown_descriptors": after[1] - before[1],
            }))
        finally:
            hall.send_signal(signal.SIGTERM)
            hall.wait(30)


def write_member(work, name):
    os.makedirs(f"{work}/members/{name}")
    manifest = {"name": name, "displayName": name, "description": name, "version": "0.1.0", "transport": "http",
                "mcp": {"command": "${GUILD_HALL}", "args": ["example-member", "--port", "${PORT}"]}}
    with open(f"{work}/members/{name}/guild-member.json", "w") as file:
        json.dump(manifest, file)


def wait_until_connected(path, members):
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            roster = json.loads(get(path, "/v1/roster"))["members"]
            if sum(entry["status"] == "connected" for entry in roster) == members:
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise SystemExit("the members did not all come up")


def get(path, url):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(f"GET {url} HTTP/1.1\r\nhost: hall\r\nconnection: close\r\n\r\n".encode())
        pieces = []
        while piece := connection.recv(1 << 20):
            pieces.append(piece)
    return b"".join(pieces).split(b"\r\n\r\n", 1)[1]


def run(path, url, times):
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        get(path, url)
        taken.append((time.perf_counter() - begun) * 1e3)
    return sorted(taken)


def summary(times):
    return {"p50_ms": round(times[len(times) // 2], 3), "p99_ms": round(times[len(times) * 99 // 100], 3),
            "max_ms": round(times[-1], 3)}


def footprint(pid):
    rollup = open(f"/proc/{pid}/smaps_rollup").read()
    return int(re.search(r"^Pss:\s+(\d+)", rollup, re.M)[1]), len(os.listdir(f"/proc/{pid}/fd"))


if __name__ == "__main__":
    main()
