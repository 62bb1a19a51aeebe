"""An ASGI application around a batcher: JSON in, JSON out, Prometheus metrics, and statuses that tell clients what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from trimtab_runtime.batcher.batcher import Batcher
from trimtab_runtime.errors import BatcherClosed, BatchError, DeadlineExceeded, ItemTooLarge, QueueFull
from trimtab_runtime.http.asgi import Receive, Scope, Send
from trimtab_runtime.units import MS_PER_S

T = TypeVar("T")
R = TypeVar("R")

TIMEOUT_HEADER = b"x-request-timeout-ms"
JSON = b"application/json"
TEXT = b"text/plain; version=0.0.4; charset=utf-8"
STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (QueueFull, 503),
    (BatcherClosed, 503),
    (DeadlineExceeded, 504),
    (ItemTooLarge, 413),
)
"""What a client should do: come back later, give up, send less. What the model raises is left to the server: 500."""


class BatchApp(Generic[T, R]):
    """POST an item as JSON to `path`, get its result as JSON; GET /metrics; the batcher drains when the server ends.

    `decode` and `encode` turn JSON values into items and results into JSON values. A client's `x-request-timeout-ms` header
    becomes the request's deadline.
    """

    def __init__(
        self,
        batcher: Batcher[T, R],
        *,
        path: str = "/predict",
        decode: Callable[[object], T] | None = None,
        encode: Callable[[R], object] | None = None,
    ) -> None:
        self._batcher = batcher
        self._path = path
        self._decode = decode
        self._encode = encode

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            status, kind, body = await self._answer(scope, receive)
            headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
            if status == 503:
                headers.append((b"retry-after", b"1"))
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self._batcher.drain()
                await send({"type": "lifespan.shutdown.complete"})
                return
            await send({"type": "lifespan.startup.complete"})

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[int, bytes, bytes]:
        if scope["path"] == self._path:
            if scope["method"] != "POST":
                return error(405, f"POST to {self._path}")
            return await self._predict(scope, receive)
        if scope["path"] == "/metrics":
            return 200, TEXT, self._batcher.metrics().encode()
        return error(404, f"POST to {self._path}, or GET /metrics")

    async def _predict(self, scope: Scope, receive: Receive) -> tuple[int, bytes, bytes]:
        body = await read_body(receive)
        try:
            value: object = json.loads(body)
            item = self._decode(value) if self._decode is not None else cast(T, value)
            within_s = timeout_s(scope)
        except (ValueError, TypeError, KeyError) as wrong:
            return error(400, f"{type(wrong).__name__}: {wrong}")
        try:
            result = await self._batcher(item, within_s=within_s)
        except BatchError as refused:
            status = next((status for kind, status in STATUSES if isinstance(refused, kind)), 500)
            return error(status, str(refused))
        return 200, JSON, json.dumps(self._encode(result) if self._encode is not None else result).encode()


async def read_body(receive: Receive) -> bytes:
    """Return the whole body of a request."""
    message = await receive()
    body = cast(bytes, message.get("body", b""))
    while message.get("more_body", False):
        message = await receive()
        body += cast(bytes, message.get("body", b""))
    return body


def timeout_s(scope: Scope) -> float | None:
    """Return the client's deadline from now, or None."""
    for name, value in cast("list[tuple[bytes, bytes]]", scope["headers"]):
        if name == TIMEOUT_HEADER:
            within_s = float(value) / MS_PER_S
            if not within_s >= 0:
                raise ValueError(f"{TIMEOUT_HEADER.decode()} must not be negative")
            return within_s
    return None


def error(status: int, message: str) -> tuple[int, bytes, bytes]:
    """Return a status with its message as JSON."""
    return status, JSON, json.dumps({"error": message}).encode()
