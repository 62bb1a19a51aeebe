"""The types of ASGI 3.0 (asgi.readthedocs.io/en/latest/specs), as far as HTTP and lifespan need them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping

Message = MutableMapping[str, object]
Scope = MutableMapping[str, object]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
