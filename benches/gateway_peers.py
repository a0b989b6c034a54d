#!/usr/bin/env python3
"""Other gateways, for benches/gateway.py to measure beside Guild Hall.

    python3 benches/gateway_peers.py DIRECTORY                installs them there: npm (Node 20 or later) and pip
    python3 benches/gateway.py --peers DIRECTORY              starts them in front of the same member

Each has one server to pass calls on to, and its usual settings. `relay` is no gateway but the floor: a program that
copies bytes from one socket to another.
"""
import contextlib
import json
import os
import pathlib
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

PROXY = """
import sys
from fastmcp.server import create_proxy
url, port = sys.argv[1:]
create_proxy(url).run(transport="http", host="127.0.0.1", port=int(port), show_banner=False, log_level="ERROR")
"""
VERSIONS = {"npm": ["mcp-hub@4.2.1"], "fastmcp": "fastmcp==4.1.2", "contextforge": "mcp-contextforge-gateway==1.0.7.post20260921"}


def install(to):
    to.mkdir(parents=True, exist_ok=True)
    subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", to, *VERSIONS["npm"]], check=True)
    for name in ("fastmcp", "contextforge"):
        subprocess.run([sys.executable, "-m", "venv", to / name], check=True)
        subprocess.run([to / name / "bin/pip", "install", "--quiet", VERSIONS[name]], check=True)


@contextlib.contextmanager
def running(where, member, work):
    """The peers in front of a member's URL: NAME -> (URL, tool, headers); a URL of `sse:` means HTTP+SSE."""
    host = member.split("/")[2]
    targets, processes = {}, []

    def start(name, args, **more):
        log = open(work / f"{name}.log", "w")
        processes.append(subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=work, **more))

    try:
        port = free_port()
        start("relay", ["socat", f"TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr,nodelay,backlog=128",
                        f"TCP:{host},nodelay"])
        until_it_listens(port)
        targets["relay"] = (f"http://127.0.0.1:{port}/mcp", "echo", {})
        if (where / "node_modules/mcp-hub").exists():
            port = free_port()
            (work / "hub.json").write_text(json.dumps({"mcpServers": {"a": {"url": member}}}))
            start("mcp-hub", [where / "node_modules/.bin/mcp-hub", "--port", str(port), "--config", work / "hub.json"])
            until_it_listens(port)
            targets["mcp-hub"] = (f"sse:http://127.0.0.1:{port}/mcp", "a__echo", {})
        if (where / "fastmcp").exists():
            port = free_port()
            (work / "proxy.py").write_text(PROXY)
            start("fastmcp", [where / "fastmcp/bin/python", work / "proxy.py", member, str(port)])
            until_it_listens(port)
            targets["fastmcp"] = (f"http://127.0.0.1:{port}/mcp", "echo", {})
        if (where / "contextforge").exists():
            port = free_port()
            password = secrets.token_urlsafe(24)
            settings = {
                "DATABASE_URL": f"sqlite:///{work}/contextforge.db", "LOG_LEVEL": "ERROR",
                "JWT_SECRET_KEY": secrets.token_urlsafe(32), "AUTH_ENCRYPTION_SECRET": secrets.token_urlsafe(32),
                "PLATFORM_ADMIN_PASSWORD": password, "BASIC_AUTH_PASSWORD": secrets.token_urlsafe(24),
                "PASSWORD_CHANGE_ENFORCEMENT_ENABLED": "false", "ADMIN_REQUIRE_PASSWORD_CHANGE_ON_BOOTSTRAP": "false",
                "SSRF_ALLOW_LOCALHOST": "true", "RATE_LIMITING_ENABLED": "false", "MCPGATEWAY_UI_ENABLED": "false"}
            start("contextforge", [where / "contextforge/bin/mcpgateway", "--host", "127.0.0.1", "--port", str(port)],
                  env={**os.environ, **settings})
            until_it_listens(port)
            base = f"http://127.0.0.1:{port}"
            login = {"email": "admin@example.com", "password": password}
            auth = {"authorization": "Bearer " + post(f"{base}/auth/login", login, {})["access_token"]}
            post(f"{base}/gateways", {"name": "a", "url": member, "transport": "STREAMABLEHTTP", "visibility": "public"}, auth)
            targets["contextforge"] = (f"{base}/mcp/", "a-echo", auth)
        yield targets
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until_it_listens(port, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise SystemExit(f"nobody listens on port {port} after {seconds} s")


def post(url, body, headers):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    install(pathlib.Path(sys.argv[1]).absolute())
