"""Serve a batcher with uvicorn (the extra `http`): its HTTP, and around it the limits that a service facing strangers needs.

uvicorn with httptools bounds the bodies it reads ahead and refuses most of what two readers could read differently. It has no
limit on connections, on requests sent ahead of their answers, on the size of a head or on the time that a head takes, and cuts
kept connections without a word when it ends: those are added here, and the time to drain is bounded.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from trimtab_runtime.http.app import EXCHANGE, BatchApp
from trimtab_runtime.http.asgi import Headers

logger = logging.getLogger(__name__)

MOST_HEAD_BYTES = 65_536
HEAD_S = 20.0
"""Time in which the head of a request must have come, from the connection's start or the answer before it."""
LINGER_S = 1.0
"""How long, once told to end, the server still answers on kept connections and asks to close them; then idle ones are cut."""
LINGER_STEP_S = 0.02
LAST_RESORT_S = 5.0
"""How long after the drain the process is ended where the event loop still does not turn."""
MOST_CONNECTIONS = 4096
MOST_PIPELINED = 64
"""Requests that a client may send ahead on one connection. uvicorn reads on after each answer, up to 256 KiB a time, whatever
still waits: 16 MiB of requests whose answers were not read were accepted within a second."""


class WholeExchange:
    """The short way through uvicorn's cycle of request and response; through `send`, head and body are a system call each."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    def take_body(self) -> bytes | None:
        """Return the body where `receive` would return all of it at once."""
        cycle = self._cycle
        if cycle.more_body or cycle.disconnected or cycle.waiting_for_100_continue:
            return None
        body, cycle.body = bytes(cycle.body), bytearray()
        return body

    def answer(self, headers: Headers, body: bytes) -> bool:
        """Do what two calls of `send` would, unless the client reads too slowly."""
        cycle = self._cycle
        if cycle.response_started or cycle.flow.write_paused:
            return False
        if cycle.disconnected:
            return True
        lines = [b"%b: %b\r\n" % header for header in (*cycle.default_headers, *headers)]
        if not cycle.keep_alive:
            lines.append(b"connection: close\r\n")
        cycle.transport.write(b"HTTP/1.1 200 OK\r\n%b\r\n%b" % (b"".join(lines), body))
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()
        return True


class GuardedProtocol(HttpToolsProtocol):  # type: ignore[misc]  # uvicorn is optional: untyped here
    """uvicorn's HTTP/1.1 with limits on connections and on the size and time of a request's head."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._in_head = True
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        if len(self.connections) >= _limit_of(self.config):
            refuse(transport, b"503 Service Unavailable", b"too many connections", b"retry-after: 1\r\n")
            return
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(HEAD_S, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self.transport is not None:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if not self._in_head or not self._head_bytes or self.transport.is_closing():
            return
        if self._head_bytes > MOST_HEAD_BYTES:
            refuse(self.transport, b"431 Request Header Fields Too Large", b"the request's head is too large")
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_S, self._head_is_late)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_bytes = 0
        self._stop_timer()
        if len(self.pipeline) >= MOST_PIPELINED:
            raise ValueError("too many requests sent ahead")  # the parser stops, uvicorn answers 400 and closes
        super().on_headers_complete()
        self.scope[EXCHANGE] = WholeExchange(self.cycle)

    def on_message_complete(self) -> None:
        self._in_head = True
        super().on_message_complete()

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        if self._in_head and not self.transport.is_closing():
            refuse(self.transport, b"408 Request Timeout", b"the request's head did not come in time")


def refuse(transport: asyncio.Transport, status: bytes, reason: bytes, headers: bytes = b"") -> None:
    """Answer a connection that uvicorn does not get to see, and close it."""
    head = b"HTTP/1.1 %b\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n%bconnection: close\r\n\r\n"
    transport.write(head % (status, len(reason), headers) + reason)
    transport.close()


class GuardedConfig(uvicorn.Config):  # type: ignore[misc]  # as above
    """uvicorn's settings, and the most connections."""

    most_connections = MOST_CONNECTIONS


def _limit_of(config: uvicorn.Config) -> int:
    return config.most_connections if isinstance(config, GuardedConfig) else MOST_CONNECTIONS


class DrainingServer(uvicorn.Server):  # type: ignore[misc]  # as above
    """A uvicorn server that tells its clients before it ends."""

    def __init__(self, config: uvicorn.Config, app: BatchApp[Any, Any]) -> None:
        super().__init__(config)
        self._app = app
        self._last_resort: threading.Timer | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end; an `async def` that blocks the event loop cannot keep the process from it."""
        if self._last_resort is None:
            limit_s = LINGER_S + self._app.limits.drain_s + LAST_RESORT_S
            self._last_resort = threading.Timer(limit_s, _give_up, (limit_s,))
            self._last_resort.daemon = True
            self._last_resort.start()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ask clients to close kept connections as they are answered, then close what is idle and drain."""
        try:
            await self._shut_down(sockets)
        finally:
            if self._last_resort is not None:
                self._last_resort.cancel()

    async def _shut_down(self, sockets: list[socket.socket] | None) -> None:
        self._app.begin_drain()
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + LINGER_S
        while self.server_state.connections and loop.time() < ends_s and not self.force_exit:
            await asyncio.sleep(LINGER_STEP_S)
        await super().shutdown(sockets)


def _give_up(limit_s: float) -> None:
    logger.error("the event loop has not turned for %g s since the end was asked for: ending the process", limit_s)
    os._exit(1)


def server(
    app: BatchApp[Any, Any], *, host: str = "127.0.0.1", port: int = 8000, most_connections: int = MOST_CONNECTIONS
) -> DrainingServer:
    """Return the server that `serve` runs, for programs that have a loop of their own: `await server(app).serve()`."""
    config = GuardedConfig(
        app,
        host=host,
        port=port,
        http=GuardedProtocol,
        ws="none",
        access_log=False,
        proxy_headers=False,  # nothing here asks who the client is
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=max(1, int(app.limits.drain_s)),
    )
    config.most_connections = most_connections
    return DrainingServer(config, app)


def serve(
    app: BatchApp[Any, Any], *, host: str = "127.0.0.1", port: int = 8000, most_connections: int = MOST_CONNECTIONS
) -> None:
    """Serve until SIGINT or SIGTERM, then answer what was accepted within the application's `drain_s` and end."""
    server(app, host=host, port=port, most_connections=most_connections).run()
