"""A request on its way through the batcher, and what answers it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:  # asyncio takes long to import, and callers in threads need none
    from asyncio import AbstractEventLoop


class Reply(Protocol):
    """Where an answer goes: an asyncio future, a concurrent future or a stream."""

    def done(self) -> bool:
        """Return whether the answer is no longer wanted."""

    def set_result(self, result: object, /) -> None: ...
    def set_exception(self, exception: BaseException, /) -> None: ...


class Request(NamedTuple):
    """One item, the caller that waits for it, and its options."""

    item: object
    reply: Reply
    loop: AbstractEventLoop | None
    """The event loop that owns the reply; None for a caller in a thread."""
    key: Hashable
    priority: int
    size: int
    arrived_s: float
    deadline_s: float
    """On the monotonic clock; infinite if there is none."""
