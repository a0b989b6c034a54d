"""curt.py now|later: an MCP server that answers one request on each connection and then hangs up, without
announcing it: at once, or (as at the end of an idle timeout) when the next request comes. What it has
answered stands in `answered` in its cwd, one JSON-RPC method a line."""
import _thread
import json
import os
import socket
import sys

RESULT = {"protocolVersion": "2025-06-18", "tools": [{"name": "hello"}], "content": [{"type": "text", "text": "hello"}]}


def serve(conn):
    data = b""
    while b"\r\n\r\n" not in data:
        data += conn.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    while len(body) < length:
        body += conn.recv(65536)
    call = json.loads(body)
    with open("answered", "a") as file:
        file.write(call["method"] + "\n")
    status, answer = "202 Accepted", ""
    if "id" in call:
        status, answer = "200 OK", json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": RESULT})
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(answer)}\r\n\r\n"
    conn.sendall((head + answer).encode())
    if sys.argv[1] == "later":
        conn.recv(1)
    conn.close()


listener = socket.create_server(("127.0.0.1", int(os.environ["PORT"])))
while True:
    _thread.start_new_thread(serve, (listener.accept()[0],))
