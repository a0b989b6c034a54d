#!/usr/bin/env python3
"""What the gateway costs: `tools/call` through it beside the same call to the member itself, in turns.

    cargo build --release
    python3 benches/gateway.py [--clients 1,16,64] [--calls 4000] [--rounds 5]
    python3 benches/gateway.py --peers DIRECTORY     with other gateways in the same run: gateway_peers.py installs them
    python3 benches/gateway.py --soak 1000000        memory over so many calls and thrice 10,000 abandoned sessions

The member is the one in the binary, or any MCP server with a tool `echo` that takes `text` (--member "PROGRAM --port {port}").
One JSON line a result: medians over the rounds, and the throughput and added time beside the direct call of the same round.
The client is Python: its own cost is in every number.
"""
import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request

from gateway_peers import running

# One measurement takes no longer, however few calls that are; seconds.
LONGEST = 5
HERE = pathlib.Path(__file__).resolve().parent.parent


class Client:
    """One connection with a session of its own."""

    def __init__(self, target):
        self.url, self.tool, self.headers = target
        self.parts = urllib.parse.urlparse(self.url)
        self.session, self.number = None, 0

    async def open(self):
        self.reader, self.writer = await asyncio.open_connection(self.parts.hostname, self.parts.port, limit=1 << 20)
        self.writer.get_extra_info("socket").setsockopt(6, 1, 1)
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        head, _ = await self.ask("initialize", hello)
        self.session = head.get("mcp-session-id")
        await self.ask("notifications/initialized", {}, answered=False)
        return self

    async def ask(self, method, params, answered=True):
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        if answered:
            self.number += 1
            message["id"] = self.number
        body = json.dumps(message).encode()
        lines = [f"POST {self.parts.path} HTTP/1.1", f"host: {self.parts.netloc}", "content-type: application/json",
                 "accept: application/json, text/event-stream", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        if self.session:
            lines += [f"mcp-session-id: {self.session}", "mcp-protocol-version: 2025-06-18"]
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        text = b""
        if "content-length" in fields:
            text = await self.reader.readexactly(int(fields["content-length"]))
        elif fields.get("transfer-encoding") == "chunked":
            while size := int(await self.reader.readline(), 16):
                text += (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readline()
        if int(head.split()[1]) >= 300:
            raise RuntimeError(f"{head.split()[1]}: {text[:200]}")
        if "event-stream" in fields.get("content-type", ""):
            text = [line[5:] for line in text.split(b"\n") if line.startswith(b"data:")][-1]
        return {**fields, "mcp-session-id": header(head, "mcp-session-id")}, json.loads(text) if text.strip() else None

    async def call(self):
        _, answer = await self.ask("tools/call", {"name": self.tool, "arguments": {"text": "x" * 32}})
        assert "result" in answer and not answer["result"].get("isError"), answer


class SseClient(Client):
    """The same by HTTP+SSE, the transport of 2024-11-05: answers come by a stream of their own."""

    async def open(self):
        self.url = self.url.removeprefix("sse:")
        self.parts = urllib.parse.urlparse(self.url)
        self.events, self.stream = await asyncio.open_connection(self.parts.hostname, self.parts.port, limit=1 << 20)
        self.stream.write(f"GET {self.parts.path} HTTP/1.1\r\nhost: {self.parts.netloc}\r\naccept: text/event-stream\r\n\r\n".encode())
        self.awaited = {}
        self.endpoint = asyncio.get_running_loop().create_future()
        self.listening = asyncio.create_task(self.listen())
        self.parts = self.parts._replace(path=await self.endpoint)
        self.reader, self.writer = await asyncio.open_connection(self.parts.hostname, self.parts.port)
        self.writer.get_extra_info("socket").setsockopt(6, 1, 1)
        hello = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        await self.ask("initialize", hello)
        await self.ask("notifications/initialized", {}, answered=False)
        return self

    async def listen(self):
        while line := await self.events.readline():
            data = line.removeprefix(b"data:").strip()
            if not line.startswith(b"data:"):
                continue
            if not self.endpoint.done():
                self.endpoint.set_result(data.decode())
                continue
            message = json.loads(data)
            if waiting := self.awaited.pop(message.get("id"), None):
                waiting.set_result(message)

    async def ask(self, method, params, answered=True):
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        if answered:
            self.number += 1
            message["id"] = self.number
            self.awaited[self.number] = asyncio.get_running_loop().create_future()
        answer = self.awaited.get(self.number)
        body = json.dumps(message).encode()
        self.writer.write(f"POST {self.parts.path} HTTP/1.1\r\nhost: {self.parts.netloc}\r\ncontent-type: application/json\r\n"
                          f"content-length: {len(body)}\r\n\r\n".encode() + body)
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        if "content-length: " in head:
            await self.reader.readexactly(int(head.split("content-length: ")[1].split("\r")[0]))
        elif "chunked" in head:
            await self.reader.readuntil(b"0\r\n\r\n")
        return {}, await answer if answered else None


def header(head, name):
    found = [line.split(": ", 1)[1] for line in head.split("\r\n") if line.lower().startswith(name + ":")]
    return found[0] if found else None


async def measure(target, clients, calls):
    kind = SseClient if target[0].startswith("sse:") else Client
    clients = [await kind(target).open() for _ in range(clients)]
    times = []

    async def work(client):
        for _ in range(calls // len(clients)):
            called = time.perf_counter()
            if called > began + LONGEST:
                return
            await client.call()
            times.append(time.perf_counter() - called)

    await asyncio.gather(*(client.call() for client in clients))
    began = time.perf_counter()
    await asyncio.gather(*map(work, clients))
    took = time.perf_counter() - began
    for client in clients:
        client.writer.close()
    times.sort()
    return times[len(times) // 2] * 1e6, times[int(len(times) * 0.99)] * 1e6, len(times) / took


def compare(targets, clients, calls, rounds):
    for count in clients:
        found = {name: [] for name in targets}
        for _ in range(rounds):
            for name, target in targets.items():
                try:
                    found.get(name, []).append(asyncio.run(measure(target, count, calls)))
                except (OSError, EOFError, RuntimeError, AssertionError) as failure:
                    print(json.dumps({"target": name, "clients": count, "failed": repr(failure)[:200]}), flush=True)
                    found.pop(name, None)
        direct = found["direct"]
        for name, rounds_of in found.items():
            middle = lambda values: statistics.median(values)
            print(json.dumps({
                "target": name, "clients": count,
                "p50_us": round(middle(r[0] for r in rounds_of)), "p99_us": round(middle(r[1] for r in rounds_of)),
                "calls_per_s": round(middle(r[2] for r in rounds_of)),
                "added_p50_us": round(middle(r[0] - d[0] for r, d in zip(rounds_of, direct))),
                "p50_by_direct": round(middle(r[0] / d[0] for r, d in zip(rounds_of, direct)), 2),
                "throughput_by_direct": round(middle(r[2] / d[2] for r, d in zip(rounds_of, direct)), 2),
            }), flush=True)


def resident(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])


async def soak(target, pid, calls):
    clients = [await Client(target).open() for _ in range(16)]
    done = 0

    async def work(client, count):
        for _ in range(count):
            await client.call()

    await asyncio.gather(*(work(client, 1000) for client in clients))
    print(json.dumps({"calls": 16000, "rss_kb": resident(pid)}), flush=True)
    while done < calls:
        await asyncio.gather(*(work(client, calls // 160) for client in clients))
        done += calls // 160 * 16
        print(json.dumps({"calls": done, "rss_kb": resident(pid)}), flush=True)
    for rounds in range(1, 4):
        for _ in range(10_000):
            abandoned = await Client(target).open()
            await abandoned.call()
            abandoned.writer.close()
        await asyncio.sleep(35)
        print(json.dumps({"abandoned_sessions": rounds * 10_000, "rss_kb": resident(pid)}), flush=True)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--binary", default=str(HERE / "target/release/guild-hall"))
    options.add_argument("--member", help="the command line of a member, with {port}")
    options.add_argument("--clients", default="1,16,64")
    options.add_argument("--calls", type=int, default=4000)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--peers", type=pathlib.Path, help="where gateway_peers.py has installed others")
    options.add_argument("--soak", type=int)
    options = options.parse_args()
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        command, *args = shlex.split(options.member or "${GUILD_HALL} example-member --port {port}")
        for name in "abc":
            (work / "members" / name).mkdir(parents=True)
            manifest = {"name": name, "displayName": name, "description": name, "version": "1.0.0", "transport": "http",
                        "mcp": {"command": command, "args": [arg.replace("{port}", "${PORT}") for arg in args]}}
            (work / "members" / name / "guild-member.json").write_text(json.dumps(manifest))
        with open(work / "log", "w") as log:
            hall = subprocess.Popen([options.binary, "run", "--members", work / "members", "--run-dir", work / "run",
                                     "--listen", "127.0.0.1:0"], stdout=log, stderr=log)
        try:
            entries = until_connected(options.binary, work)
            token = (work / "run/token").read_text().strip()
            address = entries["hall"]["gateway"]
            auth = {"authorization": f"Bearer {token}"}
            targets = {
                "direct": (f"http://127.0.0.1:{entries['members'][0]['port']}/mcp", "echo", {}),
                "gateway": (f"http://{address}/mcp", "a__echo", auth),
                "gateway, one member": (f"http://{address}/mcp/a", "echo", auth),
            }
            if options.soak:
                asyncio.run(soak(targets["gateway"], hall.pid, options.soak))
                return
            with contextlib.ExitStack() as stack:
                if options.peers:
                    others = running(options.peers.absolute(), targets["direct"][0], work)
                    targets.update(stack.enter_context(others))
                compare(targets, [int(count) for count in options.clients.split(",")], options.calls, options.rounds)
        finally:
            hall.terminate()
            hall.wait()


def until_connected(binary, work):
    end = time.monotonic() + 20
    while time.monotonic() < end:
        asked = subprocess.run([binary, "roster", "--json", "--run-dir", work / "run"], capture_output=True)
        if asked.returncode == 0:
            roster = json.loads(asked.stdout)
            if roster["members"] and all(entry["status"] == "connected" for entry in roster["members"]):
                return roster
        time.sleep(0.05)
    raise SystemExit(f"the members are not connected: {(work / 'log').read_text()}")


if __name__ == "__main__":
    main()
