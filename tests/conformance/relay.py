"""A member that is a pipe to a server which runs already: `python3 -S relay.py PORT HOST:PORT`."""

import socket
import sys
import threading


def pipe(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        # One of the two has hung up: so does the other.
        for end in (source, sink):
            end.close()


def join(client, host, port):
    try:
        server = socket.create_connection((host, int(port)))
    except OSError:
        client.close()
        return
    for end in (client, server):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=pipe, args=(server, client), daemon=True).start()
    pipe(client, server)


def main(port, address):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", int(port)))
    except OSError as error:
        print(f"cannot listen on port {port}: {error}", file=sys.stderr)
        sys.exit(2)
    listener.listen(64)
    while True:
        client, _ = listener.accept()
        threading.Thread(target=join, args=(client, *address.rsplit(":", 1)), daemon=True).start()


main(*sys.argv[1:])
