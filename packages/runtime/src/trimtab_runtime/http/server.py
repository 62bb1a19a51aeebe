"""Serve an ASGI application over HTTP/1.1: one process, keep-alive, streamed answers, and an end that drains.

Meant for a batcher behind a gateway or in a pod; it terminates no TLS and speaks neither WebSocket nor HTTP/2.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Iterable
from http import HTTPStatus
from types import TracebackType
from typing import Self, cast

from trimtab_runtime.batcher.recovery import Attempt
from trimtab_runtime.http.asgi import Application, Headers, Message, Scope
from trimtab_runtime.http.parsing import Head, Reader, Refused, Request

logger = logging.getLogger(__name__)

MOST_BODY_BYTES = 16 << 20
IDLE_S = 75.0
"""A connection without a request for this long is closed."""
DRAIN_S = 30.0
STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}  # fmt: skip


class Server:
    """A listening server, as an asynchronous context manager; `port` is the one it got."""

    def __init__(
        self, app: Application, *, host: str = "127.0.0.1", port: int = 0, most_body_bytes: int = MOST_BODY_BYTES
    ) -> None:
        self.app = app
        self.host = host
        self.port = port
        self.most_body_bytes = most_body_bytes
        self.ending = False
        self.connections: set[Connection] = set()
        self._lifespan = Lifespan(app)

    async def __aenter__(self) -> Self:
        await self._lifespan.startup()
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: Connection(self), self.host, self.port, backlog=2048)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take no more connections, answer what has been asked, then let the application end."""
        self.ending = True
        self._listener.close()
        for connection in list(self.connections):
            connection.close_if_idle()
        tasks = [connection.task for connection in self.connections if connection.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=DRAIN_S)
        for connection in list(self.connections):
            connection.end()
        await self._lifespan.shutdown()


class Lifespan:
    """The application's own start and end, where it has them."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        self._answers: asyncio.Queue[Message] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def startup(self) -> None:
        """Tell the application to start; one that knows no lifespan is left alone."""
        self._task = asyncio.create_task(self._run())
        answer = await self._ask("lifespan.startup")
        if answer.get("type") == "lifespan.startup.failed":
            raise RuntimeError(f"the application failed to start: {answer.get('message', '')}")

    async def shutdown(self) -> None:
        """Tell the application to end, and wait until it has."""
        if self._task is not None and not self._task.done():
            await self._ask("lifespan.shutdown")
            await self._task

    async def _ask(self, what: str) -> Message:
        self._inbox.put_nowait({"type": what})
        return await self._answers.get()

    async def _run(self) -> None:
        scope: Scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}}
        with Attempt() as attempt:
            await self._app(scope, self._inbox.get, self._answers.put)
        if attempt.error is not None:
            logger.debug("the application has no lifespan: %r", attempt.error)
        self._answers.put_nowait({"type": "lifespan.unsupported"})


class Connection(asyncio.Protocol):
    """One client: requests are answered one after another."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._reader = Reader(server.most_body_bytes)
        self._loop = asyncio.get_running_loop()
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._closing = False
        self._exchange: Exchange | None = None
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._server.connections.add(self)
        self._client = transport.get_extra_info("peername")
        self._here = transport.get_extra_info("sockname")
        self._last_s = self._loop.time()
        self._idle = self._loop.call_later(IDLE_S, self._check_idle)

    def connection_lost(self, error: Exception | None) -> None:
        self._server.connections.discard(self)
        self._idle.cancel()
        self._closing = True
        self._can_write.set()
        if self._exchange is not None:
            self._exchange.end()
        if self.task is not None:
            self.task.cancel()

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        if self.task is None:
            self._next()

    def _next(self) -> None:
        """Begin the next request if it is here in full."""
        try:
            request = self._reader.next_request()
        except Refused as refused:
            self._refuse(refused.status, str(refused))
            return
        if request is not None:
            self._exchange = Exchange(self, request)
            self.task = self._loop.create_task(self._exchange.run(self._server.app, self._scope(request.head)))
        elif self._reader.wants_continue():
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _scope(self, head: Head) -> Scope:
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": head.method,
            "scheme": "http",
            "path": head.path,
            "raw_path": head.raw_path,
            "query_string": head.query,
            "root_path": "",
            "headers": list(head.headers),
            "client": self._client,
            "server": self._here,
        }

    def answered(self, keep_alive: bool) -> None:
        """Go on to the next request, or end the connection."""
        self.task = None
        self._last_s = self._loop.time()
        if self._closing:
            return
        if keep_alive and not self._server.ending:
            self._next()
        else:
            self._transport.close()

    def write(self, data: bytes) -> None:
        """Send bytes unless the client has gone."""
        if not self._closing:
            self._transport.write(data)

    async def flush(self) -> None:
        """Wait until the client has taken enough of what was sent."""
        await self._can_write.wait()

    def is_closing(self) -> bool:
        return self._closing

    def _refuse(self, status: int, reason: str) -> None:
        body = reason.encode()
        self.write(head_bytes(status, [(b"content-type", b"text/plain")], len(body), keep_alive=False) + body)
        self._transport.close()

    def _check_idle(self) -> None:
        left_s = self._last_s + IDLE_S - self._loop.time()
        if self.task is None and left_s <= 0:
            self._transport.close()
        else:
            self._idle = self._loop.call_later(max(left_s, 1.0), self._check_idle)

    def close_if_idle(self) -> None:
        if self.task is None:
            self._transport.close()

    def end(self) -> None:
        """Close the connection, unanswered if need be: the time to drain is over."""
        if self.task is not None:
            self._transport.abort()
        else:
            self._transport.close()


class Exchange:
    """One request and its answer, as the application sees them."""

    def __init__(self, connection: Connection, request: Request) -> None:
        self._connection = connection
        self._request = request
        self._asked = False
        self._status = 0
        self._headers: Headers = []
        self._begun = False
        self._chunked = False
        self._ended = False
        self._over: asyncio.Event | None = None

    def end(self) -> None:
        """Let the application know that nothing more can be sent or received."""
        self._ended = True
        if self._over is not None:
            self._over.set()

    async def run(self, app: Application, scope: Scope) -> None:
        """Let the application answer; where it fails before it began, answer 500."""
        with Attempt() as attempt:
            await app(scope, self.receive, self.send)
        if attempt.error is not None and not self._connection.is_closing():
            logger.error("%s %s failed", scope["method"], scope["path"], exc_info=attempt.error)
        if not self._begun:
            body = b"Internal Server Error"
            self._connection.write(
                head_bytes(500, [(b"content-type", b"text/plain")], len(body), keep_alive=False) + body
            )
        self._connection.answered(self._ended and self._request.head.keep_alive)

    async def receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self._request.body, "more_body": False}
        if not self._ended:
            self._over = asyncio.Event()
            await self._over.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = cast(int, message["status"])
            self._headers = [
                (name, value) for name, value in cast("Iterable[tuple[bytes, bytes]]", message.get("headers", ()))
            ]
            return
        body = cast(bytes, message.get("body", b""))
        more = bool(message.get("more_body", False))
        self._connection.write(self._framed(body, more))
        if more:
            await self._connection.flush()
        else:
            self.end()

    def _framed(self, body: bytes, more: bool) -> bytes:
        """Return a piece of the body as it goes over the wire, behind the head if it is the first."""
        bodiless = self._request.head.method == "HEAD" or self._status in (204, 304)
        if not self._begun:
            counted = any(name.lower() == b"content-length" for name, _ in self._headers)
            self._chunked = more and not counted and not bodiless
            length = None if counted or more or (bodiless and not body) else len(body)
            head = head_bytes(
                self._status, self._headers, length, keep_alive=self._request.head.keep_alive, chunked=self._chunked
            )
            self._begun = True
        else:
            head = b""
        if bodiless:
            return head
        if not self._chunked:
            return head + body
        piece = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        return head + piece + (b"" if more else b"0\r\n\r\n")


def head_bytes(status: int, headers: Headers, length: int | None, *, keep_alive: bool, chunked: bool = False) -> bytes:
    """Return the status line and headers; `length` is written where the application has not.

    Raises ValueError for a header that holds a line break: it would let a value become headers of its own.
    """
    lines = b"".join([b"%b: %b\r\n" % (name, value) for name, value in headers])
    if lines.count(b"\n") != len(headers) or lines.count(b"\r") != len(headers):
        raise ValueError("a response header holds a line break")
    parts = [STATUS_LINES.get(status) or f"HTTP/1.1 {status} \r\n".encode(), lines]
    if length is not None:
        parts.append(b"content-length: %d\r\n" % length)
    if chunked:
        parts.append(b"transfer-encoding: chunked\r\n")
    if not keep_alive:
        parts.append(b"connection: close\r\n")
    parts.append(b"\r\n")
    return b"".join(parts)


def serve(app: Application, *, host: str = "127.0.0.1", port: int = 8000) -> None:
    """Serve until SIGINT or SIGTERM, then answer what has been asked and return."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        async with Server(app, host=host, port=port) as server:
            logger.info("serving on http://%s:%d", host, server.port)
            await stop.wait()

    asyncio.run(run())
