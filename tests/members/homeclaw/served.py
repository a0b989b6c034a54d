"""A server for HomeClaw plugins of type `http`, which says its port in the first line of its stdout.

POST /run does what `user_input` says. /echo answers with what it was asked. /health is well unless there is a file
`ill`. /v1/chat/completions is a language model that shouts, unless there is a file `dumb`. /again/N redirects N times,
/away to the port that its query names. With --tls PEM it speaks TLS.
"""
import json
import os
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

BLOCK = b"x" * 65536


class Served(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    connections = 0

    def setup(self):
        super().setup()
        Served.connections += 1
        self.number = Served.connections

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", kind="application/json", **headers):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body if self.command != "HEAD" else b"")

    def do_GET(self):
        length = int(self.headers.get("content-length") or 0)
        self.body = self.rfile.read(length).decode()
        with open("asked", "a") as asked:
            print(self.command, self.path, file=asked, flush=True)
        url = urlsplit(self.path)
        first = url.path.split("/")[1]
        {
            "run": self.run,
            "echo": self.echo,
            "health": self.health,
            "v1": self.complete,
            "again": self.again,
            "away": self.away,
        }.get(first, lambda: self.answer(404, b"no such place", "text/plain"))()

    do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = do_GET

    def echo(self):
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = {"method": self.command, "path": self.path, "body": self.body, "headers": headers}
        self.answer(200, {"text": json.dumps(asked), "connection": self.number})

    def health(self):
        ill = os.path.exists("ill")
        self.answer(503 if ill else 200, {"error": "out of order"} if ill else {"ok": True})

    def again(self):
        left = int(urlsplit(self.path).path.rsplit("/", 1)[1])
        self.answer(302, location=f"/again/{left - 1}" if left else "/echo/at-last")

    def away(self):
        self.answer(302, location=f"http://127.0.0.1:{urlsplit(self.path).query.split('&')[0]}/echo/away")

    def complete(self):
        asked = json.loads(self.body)
        if os.path.exists("dumb"):
            return self.answer(500, {"error": {"message": "out of memory", "type": "server_error"}})
        if self.headers["authorization"] != "Bearer secret":
            return self.answer(401, {"error": {"message": "Incorrect API key provided"}})
        system, user = asked["messages"]
        assert (system["role"], user["role"], asked["model"]) == ("system", "user", "shouter")
        said = f"{system['content']}: {user['content'].upper()}"
        choices = [{"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}]
        self.answer(200, {"object": "chat.completion", "choices": choices})

    def run(self):
        asked = json.loads(self.body)
        what = asked["user_input"]
        if what == "fine":
            self.answer(200, {"success": True, "text": "fine", "metadata": {"asked": asked}})
        elif what == "refused in words":
            self.answer(200, {"success": False, "error": "no such city"})
        elif what == "500 in words":
            self.answer(500, {"success": False, "error": "the database is down"})
        elif what == "422 of FastAPI":
            self.answer(422, {"detail": [{"loc": ["body", "city"], "msg": "field required"}]})
        elif what == "500":
            self.answer(500, b"<html><h1>Internal Server Error</h1>", "text/html")
        elif what == "503 without a word":
            self.answer(503)
        elif what == "text":
            self.answer(200, b"plain \xe2\x98\x80", "text/plain; charset=utf-8")
        elif what == "bytes":
            self.answer(200, b"\x89PNG\xff\xfe", "image/png")
        elif what == "nothing":
            self.answer(204)
        elif what == "other JSON":
            self.answer(200, {"temperature": 20})
        elif what == "garbage":
            self.wfile.write(b"\x00\xffno HTTP at all\r\n\r\n")
            self.close_connection = True
        elif what == "break off":
            self.send_response(200)
            self.send_header("content-length", "100")
            self.end_headers()
            self.wfile.write(b'{"text": "half')
            self.close_connection = True
        elif what == "slow":
            time.sleep(60)
        elif what == "drip":
            self.send_response(200)
            self.send_header("content-length", "1000000")
            self.end_headers()
            for _ in range(600):
                self.wfile.write(b"x")
                time.sleep(0.1)
        elif what == "100 MB":
            self.send_response(200)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for _ in range(100 * 2**20 // len(BLOCK)):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(BLOCK), BLOCK))
            self.wfile.write(b"0\r\n\r\n")
        elif what == "100 MB announced":
            self.answer(200, b"x" * (100 * 2**20), "text/plain")
        else:
            self.answer(404, {"error": f"nobody has taught it {what!r}"})


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        """Clients hang up."""


server = Server(("127.0.0.1", 0), Served)
if "--tls" in sys.argv:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[sys.argv.index("--tls") + 1])
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
print(server.server_address[1], flush=True)
threading.Timer(900, os._exit, [1]).start()  # no lost server stays
server.serve_forever()
