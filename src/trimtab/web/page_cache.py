"""Pages as they were sent last: an audit does not change, so that a page of it is made and packed once."""

from __future__ import annotations

import gzip
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from trimtab.web.library import AuditEntry

MOST_BYTES = 32_000_000
"""Of all packed pages together; those that nobody asked for longest go first."""
_LEVEL = 5
Key = tuple[AuditEntry, str]


@dataclass(slots=True, eq=False)
class PageCache:
    """Packed pages by audit and address."""

    _packed: OrderedDict[Key, bytes] = field(default_factory=OrderedDict)
    _size: int = 0
    _access: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: Request, entry: AuditEntry, make: Callable[[], str]) -> Response:
        """Return the page of an address, made where it is not kept; packed where the reader takes that."""
        packed = self._found((entry, f"{request.url.path}?{request.url.query}"), make)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return HTMLResponse(packed, headers={"Content-Encoding": "gzip", "Vary": "Accept-Encoding"})
        return HTMLResponse(gzip.decompress(packed), headers={"Vary": "Accept-Encoding"})

    def _found(self, key: Key, make: Callable[[], str]) -> bytes:
        with self._access:
            if (packed := self._packed.get(key)) is not None:
                self._packed.move_to_end(key)
                return packed
        packed = gzip.compress(make().encode(), _LEVEL, mtime=0)
        with self._access:
            self._size += len(packed) - len(self._packed.pop(key, b""))
            self._packed[key] = packed
            while self._size > MOST_BYTES:
                self._size -= len(self._packed.popitem(last=False)[1])
        return packed
