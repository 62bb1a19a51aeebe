"""An ASGI application around a batcher: JSON in, JSON out, Prometheus metrics, and statuses that tell clients what to do."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Generic, NoReturn, Protocol, TypeVar, cast

from trimtab_runtime.batcher.batcher import Batcher
from trimtab_runtime.errors import BatcherClosed, BatchError, DeadlineExceeded, ItemTooLarge, QueueFull, UsageError
from trimtab_runtime.http.asgi import Headers, Receive, Scope, Send
from trimtab_runtime.units import MS_PER_S

if TYPE_CHECKING:
    from collections.abc import Awaitable

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

TIMEOUT_HEADER = b"x-request-timeout-ms"
EXCHANGE = "trimtab_runtime.exchange"
"""In the scope of our own server: the request's `Exchange`."""
RETRY_AFTER = (b"retry-after", b"1")
STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (QueueFull, 503),
    (BatcherClosed, 503),
    (DeadlineExceeded, 504),
    (ItemTooLarge, 413),
)
"""What a client should do: come back later, give up, send less. What the model raises is left to the server: 500."""
NOT_AN_ITEM = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What reading an item from a stranger's JSON may raise: the request is wrong, not the service."""


def _not_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


DECODER = json.JSONDecoder(parse_constant=_not_json)
ENCODER = json.JSONEncoder(allow_nan=False)
"""Made once: `json.loads` and `json.dumps` make one for each call that has an option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much strangers may take; beyond it they are told to come back (503), to send less (413) or faster (408)."""

    most_body_bytes: int = 16 << 20
    most_requests: int = 2048
    """Requests being read, waiting or running at once."""
    most_pending_bytes: int = 256 << 20
    """Bodies of all these requests together."""
    body_s: float = 30.0
    """Time in which a body must have come."""
    drain_s: float = 30.0
    """Time that all accepted requests have when the service ends; a model that hangs does not keep it alive."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise UsageError(f"http: {name} must be above 0 (saw {getattr(self, name)!r})")


class Exchange(Protocol):
    """A short way past `receive` and `send` for what most requests are: wholly here, and answered well."""

    def take_body(self) -> bytes | None:
        """Return the request's body if all of it has arrived and it was not read yet, else None."""

    def answer(self, headers: Headers, body: bytes) -> bool:
        """Send a whole answer with status 200 in one write; say whether that was possible."""


class Refused(Exception):
    """A request that is answered with a status and a reason."""

    def __init__(self, status: int, reason: str) -> None:
        self.status = status
        super().__init__(reason)


class Gone(Exception):
    """The client left before its request was whole."""


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
        limits: Limits | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self._batcher = batcher
        self._path = path
        self._decode = decode
        self._encode = encode
        self._requests = 0
        self._pending_bytes = 0
        self._end_s = inf

    def begin_drain(self) -> None:
        """Ask clients from now on to close their connections, and give what was accepted `drain_s` to be answered."""
        self._end_s = min(self._end_s, monotonic() + self.limits.drain_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            try:
                await self._serve(scope, receive, send)
            except Gone:
                return

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self._drain()
                await send({"type": "lifespan.shutdown.complete"})
                return
            await send({"type": "lifespan.startup.complete"})

    async def _drain(self) -> None:
        self.begin_drain()
        try:
            await self._batcher.drain(max(0.0, self._end_s - monotonic()))
        except TimeoutError:
            logger.warning(
                "%d requests were not answered within %g s and are given up",
                self._batcher.stats().running,
                self.limits.drain_s,
            )
            self._batcher.close()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/metrics":
            if self._end_s != inf:
                send = closing(send)
            await cast("Awaitable[None]", self._batcher.metrics()(scope, receive, send))
            return
        headers: Headers = [(b"content-type", b"application/json")]
        try:
            status, body = 200, await self._predict(scope, receive)
        except Refused as refused:
            status, body = refused.status, json.dumps({"error": str(refused)}).encode()
        if status == 503:
            headers.append(RETRY_AFTER)
        if status == 405:
            headers.append((b"allow", b"POST"))
        headers.append((b"content-length", b"%d" % len(body)))
        exchange = exchange_of(scope)
        if exchange is not None and status == 200 and self._end_s == inf and exchange.answer(headers, body):
            return
        if self._end_s != inf or status in (408, 413):  # what is left of the body is not read
            send = closing(send)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _predict(self, scope: Scope, receive: Receive) -> bytes:
        if scope["path"] != self._path:
            raise Refused(404, f"POST to {self._path}, or GET /metrics")
        if scope["method"] != "POST":
            raise Refused(405, f"POST to {self._path}")
        timeout_ms = timeout_header(scope)
        if self._requests >= self.limits.most_requests:
            raise Refused(503, f"{self._requests} requests are being served, the most that this service takes at once")
        self._requests += 1
        place = Place()
        try:
            exchange = exchange_of(scope)
            body = exchange.take_body() if exchange is not None else None
            if body is None:
                body = await self._read_in_time(receive, place)
            else:
                self._reserve(place, len(body))
            return await self._answer(body, timeout_ms)
        finally:
            self._requests -= 1
            self._pending_bytes -= place.taken_bytes

    async def _read_in_time(self, receive: Receive, place: Place) -> bytes:
        """Return the whole body; raise `Refused` for one that is too slow."""
        try:
            async with asyncio.timeout(self.limits.body_s):
                return await self._read_pieces(receive, place)
        except TimeoutError:
            raise Refused(408, f"the body did not come within {self.limits.body_s:g} s") from None

    async def _read_pieces(self, receive: Receive, place: Place) -> bytes:
        """Return the whole body; raise `Refused` for one that is too large, `Gone` where the client left."""
        pieces: list[bytes] = []
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Gone
            pieces.append(cast(bytes, message.get("body", b"")))
            self._reserve(place, len(pieces[-1]))
            more = bool(message.get("more_body", False))
        return b"".join(pieces)

    def _reserve(self, place: Place, piece_bytes: int) -> None:
        """Count a piece of a body."""
        limits = self.limits
        place.taken_bytes += piece_bytes
        self._pending_bytes += piece_bytes
        if place.taken_bytes > limits.most_body_bytes:
            raise Refused(413, f"the body exceeds {limits.most_body_bytes} bytes")
        if self._pending_bytes > limits.most_pending_bytes:
            raise Refused(503, f"requests of more than {limits.most_pending_bytes} bytes are being served")

    async def _answer(self, body: bytes, timeout_ms: bytes | None) -> bytes:
        try:
            value: object = DECODER.decode(body.decode())
            item = self._decode(value) if self._decode is not None else cast(T, value)
            within_s = timeout_s(timeout_ms)
        except NOT_AN_ITEM as wrong:
            raise Refused(400, f"{type(wrong).__name__}: {wrong}") from None
        try:
            result = await self._batcher(item, within_s=within_s)
        except BatchError as refused:
            status = next((status for kind, status in STATUSES if isinstance(refused, kind)), 500)
            raise Refused(status, str(refused)) from None
        return self._encoded(result)

    def _encoded(self, result: R) -> bytes:
        value = self._encode(result) if self._encode is not None else result
        try:
            return ENCODER.encode(value).encode()
        except (ValueError, TypeError, RecursionError) as error:
            message = f"the model's result cannot be sent as JSON ({error}); turn it into what can be with `encode`"
            logger.error("%s: %s", self._path, message)
            raise Refused(500, message) from None


class Place:
    """A request being served, and how much of its body is here."""

    __slots__ = ("taken_bytes",)

    def __init__(self) -> None:
        self.taken_bytes = 0


def closing(send: Send) -> Send:
    """Return a `send` that asks the client to close the connection."""

    async def send_closing(message: dict[str, object]) -> None:
        if message["type"] == "http.response.start":
            headers = [*cast("Headers", message["headers"]), (b"connection", b"close")]
            message = {**message, "headers": headers}
        await send(message)

    return cast("Send", send_closing)


def exchange_of(scope: Scope) -> Exchange | None:
    """Return the short way that our own server offers."""
    return cast("Exchange | None", scope.get(EXCHANGE))


def timeout_header(scope: Scope) -> bytes | None:
    """Return the client's time-out as it was sent.

    Raises `Refused` for a head that a gateway and this server could read differently (RFC 9112, 3.2 and 6.1). Servers refuse
    most of these themselves; what remains with uvicorn and httptools is refused here.
    """
    hosts = codings = 0
    timeout_ms = None
    for name, value in cast("Headers", scope["headers"]):
        if name == b"host":
            hosts += 1
        elif name == b"transfer-encoding":
            codings += 1
        elif name == TIMEOUT_HEADER and timeout_ms is None:
            timeout_ms = value
    version = scope.get("http_version", "1.1")
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        raise Refused(400, f"a request needs one Host header (saw {hosts})")
    if codings > 1 or (codings and version == "1.0"):
        raise Refused(400, "Transfer-Encoding must be chunked, on one line, and HTTP/1.1")
    if version == "2.0":  # of a request line; a server that does speak HTTP/2 says "2"
        raise Refused(400, "only HTTP/1.0 and 1.1 are spoken here")
    return timeout_ms


def timeout_s(timeout_ms: bytes | None) -> float | None:
    """Return the client's deadline from now, or None."""
    if timeout_ms is None:
        return None
    within_s = float(timeout_ms) / MS_PER_S
    if not within_s >= 0:
        raise ValueError(f"{TIMEOUT_HEADER.decode()} must not be negative")
    return within_s
