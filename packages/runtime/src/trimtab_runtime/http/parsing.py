"""Read HTTP/1.1 requests from bytes as they come (RFC 9112), strictly enough that no two readers can disagree on their ends."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from trimtab_runtime.http.asgi import Headers

MOST_HEAD_BYTES = 65_536
TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")
DIGITS = re.compile(rb"[0-9]{1,15}\Z")
HEX = re.compile(rb"[0-9A-Fa-f]{1,12}\Z")
CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class Refused(Exception):
    """A request that is not answered by the application but by a status."""

    def __init__(self, status: int, reason: str) -> None:
        self.status = status
        super().__init__(reason)


class Head(NamedTuple):
    """A request without its body, and how long that is (-1: chunked)."""

    method: str
    path: str
    raw_path: bytes
    query: bytes
    headers: Headers
    length: int
    keep_alive: bool
    expects: bool


class Request(NamedTuple):
    """A whole request."""

    head: Head
    body: bytes


def read_head(data: bytes) -> Head:
    """Parse the request line and headers, without the empty line that ends them."""
    lines = data.split(b"\r\n")
    parts = lines[0].split(b" ")
    if len(parts) != 3 or not TOKEN.match(parts[0]) or not parts[1] or CONTROL.search(parts[1]):
        raise Refused(400, "malformed request line")
    if parts[2] not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise Refused(505, "only HTTP/1.0 and 1.1 are spoken here")
    headers: Headers = []
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if not colon or not TOKEN.match(name) or CONTROL.search(value):
            raise Refused(400, "malformed header")
        headers.append((name.lower(), value.strip(b" \t")))
    fields = dict(headers)
    connection = fields.get(b"connection", b"").lower()
    keep_alive = b"close" not in connection if parts[2] == b"HTTP/1.1" else b"keep-alive" in connection
    expects = fields.get(b"expect", b"").lower() == b"100-continue"
    raw_path, _, query = parts[1].partition(b"?")
    path = unquote_to_bytes(raw_path).decode("utf-8", "replace")
    return Head(parts[0].decode(), path, raw_path, query, headers, _length(headers, fields), keep_alive, expects)


def _length(headers: Headers, fields: dict[bytes, bytes]) -> int:
    """Return the body's length. Two lengths, or a length beside chunks, are how requests are smuggled: refused."""
    lengths = {value for name, value in headers if name == b"content-length"}
    coding = fields.get(b"transfer-encoding")
    if coding is not None:
        if lengths or coding.lower() != b"chunked":
            raise Refused(400, "transfer-encoding must be chunked, and alone")
        return -1
    if not lengths:
        return 0
    (length, *more) = lengths
    if more or not DIGITS.match(length):
        raise Refused(400, "content-length must be one number")
    return int(length)


class Reader:
    """Bytes in, whole requests out."""

    def __init__(self, most_body_bytes: int) -> None:
        self._most_body_bytes = most_body_bytes
        self._data = b""
        self._head: Head | None = None
        self._last: tuple[bytes, Head] | None = None
        self._told = False

    def feed(self, data: bytes) -> None:
        """Add bytes from the connection."""
        self._data = self._data + data if self._data else data

    def wants_continue(self) -> bool:
        """Say, once a request, whether the client waits for leave to send its body."""
        if self._head is None or self._told or not self._head.expects:
            return False
        self._told = True
        return True

    def next_request(self) -> Request | None:
        """Return the next whole request, or None while bytes are missing; raise `Refused` where there can be none."""
        head = self._head
        if head is None:
            end = self._data.find(b"\r\n\r\n")
            if end > MOST_HEAD_BYTES or (end < 0 and len(self._data) > MOST_HEAD_BYTES):
                raise Refused(431, "the request's head is too large")
            if end < 0:
                return None
            head = self._head = self._parsed(self._data[:end])
            self._data = self._data[end + 4 :]
            self._told = False
        body = self._chunked() if head.length < 0 else self._counted(head.length)
        if body is None:
            return None
        self._head = None
        return Request(head, body)

    def _parsed(self, data: bytes) -> Head:
        """Return the parsed head; on a kept connection the same bytes come again and again, and are parsed once."""
        if self._last is None or self._last[0] != data:
            self._last = (data, read_head(data))
        return self._last[1]

    def _counted(self, length: int) -> bytes | None:
        if length > self._most_body_bytes:
            raise Refused(413, f"the body exceeds {self._most_body_bytes} bytes")
        if len(self._data) < length:
            return None
        body, self._data = self._data[:length], self._data[length:]
        return body

    def _chunked(self) -> bytes | None:
        """Return the joined chunks once the last one is here; until then the bytes are kept as they came."""
        body = b""
        at = 0
        while True:
            line_end = self._data.find(b"\r\n", at)
            if line_end < 0:
                return None
            size_text = self._data[at:line_end].partition(b";")[0].strip(b" \t")
            if not HEX.match(size_text):
                raise Refused(400, "malformed chunk")
            size = int(size_text, 16)
            at = line_end + 2
            if size == 0:
                break
            if len(body) + size > self._most_body_bytes:
                raise Refused(413, f"the body exceeds {self._most_body_bytes} bytes")
            if len(self._data) < at + size + 2:
                return None
            if self._data[at + size : at + size + 2] != b"\r\n":
                raise Refused(400, "malformed chunk")
            body += self._data[at : at + size]
            at += size + 2
        end = self._data.find(b"\r\n", at)
        if end < 0:
            return None
        if end != at:
            raise Refused(400, "trailers are not taken")
        self._data = self._data[end + 2 :]
        return body
