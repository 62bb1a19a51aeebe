"""A batcher behind the real server on loopback, and clients that speak to it in raw bytes."""

import asyncio
import contextlib
import socket
import threading
import time

from trimtab_runtime import batch, http


def fresh(**options):
    @batch(**options)
    def model(items: list) -> list:
        return items

    return model


@contextlib.contextmanager
def served(app, **options):
    """Serve in a thread; give the server, ask it to end and wait until it has."""
    serving = http.server(app, port=0, **options)
    thread = threading.Thread(target=lambda: asyncio.run(serving.serve()), daemon=True)
    thread.start()
    ended = time.monotonic() + 10
    while not serving.started:
        assert time.monotonic() < ended
        time.sleep(0.01)
    try:
        yield serving
    finally:
        serving.should_exit = True
        thread.join(20)
    assert not thread.is_alive()


def connect(serving):
    return socket.create_connection(serving.servers[0].sockets[0].getsockname(), timeout=10)


def post(body, *headers, path="/predict", method="POST", host="x"):
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def answer(connection):
    """Read one answer; return its status, its headers and its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65_536)
        if not piece:
            raise ConnectionError(f"closed after {data!r}")
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += connection.recv(65_536)
    return int(first.split()[1]), headers, body


def asked(app, request, **options):
    """Send one request to a server of its own; return status, headers and body."""
    with served(app, **options) as serving, connect(serving) as connection:
        connection.sendall(request)
        return answer(connection)
