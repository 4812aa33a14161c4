"""A WebSocket server that echoes, and clients of it, for tests. First argument: the folder of the package `websockets`.

serve PORT                  echoes text and bytes; the server says who it is in a field of its handshake
talk ADDRESS URL [CA]       text, bytes, a message in fragments, one of 4 MiB, ping, the close handshake; prints `ok`
hold ADDRESS URL            echoes a line again and again and prints how often, until the connection ends; prints how
"""

import socket
import ssl
import sys
import time

sys.path.insert(0, sys.argv[1])

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.sync.server import serve

# Far beyond what any of it takes.
PATIENCE = 60

# Several times what any buffer on the way holds.
LARGE = 4 * 1024 * 1024


def echo(connection):
    if connection.request.path.endswith("/closes"):
        connection.close(4001, "enough")
        return
    for message in connection:
        connection.send(message)


def run_server(port):
    name = lambda connection, request, response: response.headers.update({"X-Server": "echo"})
    listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    with serve(echo, sock=listener, max_size=2 * LARGE, process_response=name) as server:
        server.serve_forever()


def open_connection(address, url, authorities=None):
    context = ssl.create_default_context(cafile=authorities) if authorities else None
    stream = socket.create_connection((address, 443 if authorities else 80), timeout=PATIENCE)
    stream.settimeout(None)
    return connect(url, sock=stream, ssl=context, max_size=2 * LARGE, open_timeout=PATIENCE)


def talk(address, url, authorities=None):
    with open_connection(address, url, authorities) as connection:
        assert connection.response.status_code == 101
        assert connection.response.headers["X-Server"] == "echo"
        for message in ["text", "", "\u00fc" * 1000, b"bytes", b"", bytes(range(256)) * (LARGE // 256)]:
            connection.send(message)
            assert connection.recv(timeout=PATIENCE) == message, message[:10]
        connection.send(["a ", "message ", "in fragments"])
        assert connection.recv(timeout=PATIENCE) == "a message in fragments"
        assert connection.ping().wait(PATIENCE)
        # Several at once, before anything is read.
        for number in range(100):
            connection.send(str(number))
        assert [connection.recv(timeout=PATIENCE) for _ in range(100)] == [str(number) for number in range(100)]
        connection.close(1000, "bye")
        assert (connection.close_code, connection.close_reason) == (1000, "bye")
    with open_connection(address, url + "/closes", authorities) as connection:
        try:
            connection.recv(timeout=PATIENCE)
            raise AssertionError("the server has not closed")
        except ConnectionClosed as closed:
            assert (closed.rcvd.code, closed.rcvd.reason) == (4001, "enough"), closed
    print("ok")


def hold(address, url):
    number = 0
    with open_connection(address, url) as connection:
        try:
            while True:
                connection.send("still there")
                assert connection.recv(timeout=PATIENCE) == "still there"
                number += 1
                print("echo", number, flush=True)
                time.sleep(0.02)
        except ConnectionClosed as closed:
            print("closed", "by the server" if closed.rcvd else "without a word", flush=True)


if __name__ == "__main__":
    command, *arguments = sys.argv[2:]
    {"serve": lambda port: run_server(int(port)), "talk": talk, "hold": hold}[command](*arguments)
