"""The lies of rogue.py. A lie takes the honest answer and its number N, and bends the answer."""
import json
import os
import time
from itertools import count

from honest import BLOCK, FAR_AWAY, TOOLS, Closed, plain, text_result, tool

sessions, forgotten, cut_off = set(), [], []


class Crash(Exception):
    """The process is to crash instead of answering."""


# --- ways to send an answer: (connection, answer, N)


def chunk(conn, data):
    conn.sendall(b"%x\r\n%b\r\n" % (len(data), data))


def chunked(conn, answer, _):
    conn.sendall(answer.head(Transfer_Encoding="chunked"))
    for piece in answer.pieces():
        chunk(conn, piece)
    chunk(conn, b"")


def chunked_garbage(conn, answer, _):
    conn.sendall(answer.head(Transfer_Encoding="chunked") + b"five\r\nhello\r\n-1\r\n")
    raise Closed


def bad_length(conn, answer, n):
    plain(conn, answer, too_long=n)
    raise Closed


def close_after_header(conn, answer, _):
    conn.sendall(answer.head(Content_Length=sum(map(len, answer.pieces()))))
    raise Closed


def slow_drip(conn, answer, ms):
    data = b"".join(answer.pieces())
    conn.sendall(answer.head(Content_Length=len(data)))
    for at in range(len(data)):
        time.sleep(ms / 1000)
        conn.sendall(data[at:at + 1])


def redirect(conn, answer, port):
    answer.be("302 Found", "elsewhere")
    answer.headers["Location"] = f"http://127.0.0.1:{port or conn.getsockname()[1] + 1}/mcp"
    plain(conn, answer)


def hang(conn, _answer, _):
    while conn.recv(BLOCK):
        pass
    raise Closed


def close(_conn, _answer, _):
    raise Closed


def crash(_conn, _answer, _):
    raise Crash


def notification(text):
    return {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": text}}


def start_stream(conn, answer):
    answer.headers["Content-Type"] = "text/event-stream"
    conn.sendall(answer.head(Transfer_Encoding="chunked"))


def sse(conn, answer, ms):
    if answer.message is None:
        return plain(conn, answer)
    start_stream(conn, answer)
    chunk(conn, f": hello\n\ndata: {json.dumps(notification('soon'))}\n\nevent: message\nid: 1\ndata: ".encode())
    for piece in answer.pieces():
        chunk(conn, piece)
    chunk(conn, b"\n\n")
    time.sleep(ms / 1000)
    chunk(conn, b"")


def sse_crlf_split(conn, answer, size):
    if answer.message is None:
        return plain(conn, answer)
    start_stream(conn, answer)
    lines = [": hello", "retry: 1000", ""]
    for message in notification("größer als ein Stück – 大きい"), answer.message:
        data = json.dumps(message, indent=1, ensure_ascii=False).split("\n")
        lines += ["event: message", *(f"data: {line}" for line in data), ""]
    data = "".join(f"{line}\r\n" for line in lines).encode(errors="replace")
    for at in range(0, len(data), size):
        chunk(conn, data[at:at + size])
        time.sleep(0.0005)
    chunk(conn, b"")


def sse_endless(conn, answer, _):
    start_stream(conn, answer)
    for at in count(1):
        chunk(conn, f"data: {json.dumps(notification(f'still at it, {at}'))}\n\n".encode())
        time.sleep(0.01)


def halves(conn, answer, then_hang_up):
    """The second half comes when the file `go` is there, or never."""
    conn.sendall(answer.head(Transfer_Encoding="chunked"))
    send_halves(conn, b"", b"".join(answer.pieces()), b"", then_hang_up)


def sse_halves(conn, answer, then_hang_up):
    start_stream(conn, answer)
    send_halves(conn, b"data: ", b"".join(answer.pieces()), b"\n\n", then_hang_up)


def send_halves(conn, head, data, tail, then_hang_up):
    chunk(conn, head + data[:len(data) // 2])
    while not os.path.exists("go"):
        if then_hang_up:
            raise Closed
        time.sleep(0.005)
    chunk(conn, data[len(data) // 2:] + tail)
    chunk(conn, b"")


def mixed_up(conn, answer, _):
    """The stream of a call is cut off; taken up again, it tells of another call as well."""
    if answer.method == "tools/call":
        cut_off.append((answer.params["_meta"]["progressToken"], answer.message))
        start_stream(conn, answer)
        chunk(conn, b"id: 1\nretry: 10\ndata:\n\n")
        return chunk(conn, b"")
    if "last-event-id" not in answer.asked:
        return plain(conn, answer)
    token, message = cut_off.pop()
    answer.be("200 OK", "-")
    start_stream(conn, answer)
    stranger = {"jsonrpc": "2.0", "id": 98765, "result": text_result("for somebody else")}
    for said in progress("of somebody else", 7), stranger, progress(token, 1), message:
        chunk(conn, f"data: {json.dumps(said)}\n\n".encode())
    chunk(conn, b"")


def progress(token, done):
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": done}}


# --- what is said: (answer, N)


def fails(answer, _):
    if answer.message:
        answer.rpc(answer.message["id"], error={"code": -32000, "message": "the rogue does not feel like it"})


def wrong_id(answer, _):
    if answer.message:
        answer.message["id"] = f"not {answer.message['id']}"


def huge(answer, n):
    answer.far_away = n
    answer.result["instructions"] = FAR_AWAY


def huge_call(answer, n):
    answer.far_away = n
    answer.result.update(text_result(FAR_AWAY))


def paged(answer, n):
    """The cursor is the number of the page."""
    page, tools = answer.params.get("cursor", "0"), TOOLS[:3]
    if not page.isdigit() or int(page) >= n:
        return answer.rpc(answer.message["id"], error={"code": -32602, "message": f"no page {page}"})
    answer.result["tools"] = [one for at, one in enumerate(tools) if at * n // len(tools) == int(page)]
    if int(page) + 1 < n:
        answer.result["nextCursor"] = str(int(page) + 1)


def endless_pages(answer, _):
    page = int(answer.params.get("cursor", "0"))
    answer.result.update(tools=[tool(f"page-{page}", "One of many")], nextCursor=str(page + 1))


def many_tools(answer, n):
    answer.result["tools"] = [tool(f"tool-{at:05}", "One of many", text="string") for at in range(1, n + 1)]


def session(answer, forgets):
    given = answer.asked.get("mcp-session-id")
    if answer.method == "initialize":
        answer.headers["Mcp-Session-Id"] = f"session-{os.getpid()}-{time.monotonic_ns()}"
        sessions.add(answer.headers["Mcp-Session-Id"])
    elif given is None:
        answer.be("400 Bad Request", "Mcp-Session-Id is missing")
    elif given not in sessions:
        answer.be("404 Not Found", "no such session")
    elif answer.method == "DELETE":
        sessions.discard(given)
        answer.be("200 OK", "bye")
    elif forgets and answer.method == "tools/list" and "nextCursor" not in answer.result and not forgotten:
        forgotten.append(given)
        sessions.clear()


def strict_three(answer, _):
    if answer.method not in ("initialize", "tools/list", "tools/call"):
        sends(close)(answer, None)


def sends(way):
    return lambda answer, n: setattr(answer, "send", lambda conn, answer: way(conn, answer, n))


def says(status, text, kind="text/plain"):
    return lambda answer, n: answer.be(status, text, kind)


def drops(key):
    return lambda answer, n: answer.result.pop(key, None)


def sets(**fields):
    return lambda answer, n: answer.result.update(fields)


def adds(*tools):
    return lambda answer, n: answer.result.update(tools=[*answer.result.get("tools", []), *tools])


STRANGE_TOOLS = [
    tool("red\x1b[31m", "Rings\x07 and clears \x1b[2J\x1b[H"),
    tool("two\nlines", "One\r\nTwo\0Three"),
    tool("txt\u202egpj.exe", "Reads \u2066backwards\u202e"),
]

LIES = {  # kind: (METHOD, N, the lie, what it does); a METHOD is a prefix, "" is everything; N None: it takes none
    "not-json": ("", None, says("200 OK", "<!doctype html><p>It works!</p>", "text/html"), "200 with HTML"),
    "json-no-rpc": ("", None, says("200 OK", "{}", "application/json"), "200 with `{}`"),
    "http-500": ("", None, says("500 Internal Server Error", "oops"), "a plain 500"),
    "http-404-forever": ("", None, says("404 Not Found", "not here"), "a plain 404"),
    "redirect": ("", 0, sends(redirect), "302 to port N; 0: to the next port"),
    "wrong-id": ("", None, wrong_id, "the answer carries another id"),
    "error": ("initialize", None, fails, "a JSON-RPC error"),
    "no-server-info": ("initialize", None, drops("serverInfo"), "no serverInfo"),
    "no-capabilities": ("initialize", None, drops("capabilities"), "no capabilities"),
    "huge": ("initialize", 1 << 26, huge, "valid, with N bytes of instructions"),
    "huge-call": ("tools/call", 1 << 26, huge_call, "valid, with N bytes of text"),
    "bad-tools": ("tools/list", None, sets(tools="echo, pid"), "`tools` is a string"),
    "tool-without-name": ("tools/list", None, adds({"inputSchema": {"type": "object"}}), "one more tool, without a name"),
    "name-clash": ("tools/list", None, adds(tool("echo", "Another echo")), "one more tool named `echo`"),
    "control-chars": ("tools/list", None, adds(*STRANGE_TOOLS), "3 more tools: ANSI escapes, newlines, bidi overrides"),
    "many-tools": ("tools/list", 20000, many_tools, "N tools, tool-00001 …"),
    "paged": ("tools/list", 3, paged, "echo, pid and env over N pages; some are empty when N > 3"),
    "endless-pages": ("tools/list", None, endless_pages, "one tool a page, and always a next page"),
    "same-cursor": ("tools/list", None, sets(nextCursor="same"), "always the same page and cursor"),
    "rpc-error-call": ("tools/call", None, fails, "a JSON-RPC error"),
    "is-error": ("tools/call", None, sets(**text_result("the rogue refuses", True)), "a result with isError"),
    "notify-404": ("notifications/", None, says("404 Not Found", "not found"), "a plain 404"),
    "notify-405": ("notifications/", None, says("405 Method Not Allowed", "not allowed"), "a plain 405"),
    "notify-500": ("notifications/", None, says("500 Internal Server Error", "oops"), "a plain 500"),
    "notify-200-text": ("notifications/", None, says("200 OK", "thanks"), "200 with text"),
    "strict-three": ("", None, strict_three, "closes unanswered on all but initialize, tools/list and tools/call"),
    "session": ("", None, session, "after initialize 400 without Mcp-Session-Id, 404 to an unknown one"),
    "chunked": ("", None, sends(chunked), "honest, in chunks without a Content-Length"),
    "chunked-garbage": ("", None, sends(chunked_garbage), "a chunked body that is none, then close"),
    "bad-length": ("", 100, sends(bad_length), "Content-Length is N too long, then close"),
    "close-after-header": ("", None, sends(close_after_header), "close after the header"),
    "slow-drip": ("initialize", 100, sends(slow_drip), "the body comes one byte every N ms"),
    "sse": ("", 200, sends(sse), "honest, as SSE: comment, notification, answer, then open for N ms"),
    "sse-crlf-split": ("", 7, sends(sse_crlf_split), "honest, as SSE: CRLF, multi-line data, writes of N bytes"),
    "sse-endless": ("", None, sends(sse_endless), "SSE with a notification every 10 ms, never the answer"),
    "halves": ("tools/call", 0, sends(halves), "the second half comes when the file `go` is there; N: never, and it hangs up"),
    "sse-halves": ("tools/call", 0, sends(sse_halves), "the same as SSE"),
    "mixed-up": ("", None, sends(mixed_up), "calls as SSE that has to be taken up again, and then tells of others, too"),
    "hang": ("tools/call", None, sends(hang), "never answered, the connection stays open"),
    "close": ("tools/call", None, sends(close), "the connection is closed unanswered"),
    "crash": ("tools/call", None, sends(crash), "the process crashes instead of answering"),
}


def parse(word):
    """`KIND[=N][@METHOD]` as (METHOD, N, the lie); KeyError or ValueError when it is none."""
    word, at, method = word.partition("@")
    kind, _, n = word.partition("=")
    on, usual, act, _ = LIES[kind]
    return method if at else on, int(n) if n else usual, act
