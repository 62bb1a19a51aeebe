"""Streams: a batch function that yields parts, and callers that read theirs as they come.

The batch function is a generator: each yield is a list with one part per item, in their order, `DONE` for an item that has
ended. An exception among the parts ends that item's stream with it.
"""

from __future__ import annotations

import queue
from asyncio import AbstractEventLoop, CancelledError, Future, InvalidStateError
from collections import deque
from collections.abc import Sequence
from enum import Enum

from trimtab_runtime.batcher.request import Request


class Done(Enum):
    """The type of `DONE`."""

    DONE = "done"


DONE = Done.DONE
"""Yielded in an item's place once its stream has ended."""


class AsyncStream:
    """The parts of one item, for a coroutine; iterate it once. Closing it takes the item off the queue."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._parts: deque[object] = deque()
        self._ended = False
        self._left = False
        self._error: BaseException | None = None
        self._reader: Future[None] | None = None

    def done(self) -> bool:
        """Say whether the stream has ended, or nobody reads it any more."""
        return self._ended or self._left

    def feed(self, part: object) -> None:
        """Hand on one part."""
        self._parts.append(part)
        self._wake()

    def set_result(self, result: object, /) -> None:
        """End the stream; the result is in its parts."""
        self._end(None)

    def set_exception(self, exception: BaseException, /) -> None:
        """End the stream with an error, after the parts that came before it."""
        self._end(exception)

    def _end(self, error: BaseException | None) -> None:
        if self._left:
            raise InvalidStateError("nobody reads the stream any more")
        if not self._ended:
            self._ended, self._error = True, error
            self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> object:
        while not self._parts:
            if self._error is not None:
                raise self._error
            if self.done():
                raise StopAsyncIteration
            self._reader = self._loop.create_future()
            try:
                await self._reader
            except CancelledError:
                self._left = True
                raise
        return self._parts.popleft()

    async def aclose(self) -> None:
        """Read no more; what is still queued is not run."""
        self._left = True
        self._parts.clear()


class ThreadStream:
    """The parts of one item, for a thread; iterate it once."""

    def __init__(self) -> None:
        self._parts: queue.SimpleQueue[tuple[object, BaseException | None]] = queue.SimpleQueue()
        self._ended = False
        self._left = False

    def done(self) -> bool:
        """Say whether the stream has ended, or nobody reads it any more."""
        return self._ended or self._left

    def feed(self, part: object) -> None:
        """Hand on one part."""
        self._parts.put((part, None))

    def set_result(self, result: object, /) -> None:
        """End the stream; the result is in its parts."""
        self._end(None)

    def set_exception(self, exception: BaseException, /) -> None:
        """End the stream with an error, after the parts that came before it."""
        self._end(exception)

    def _end(self, error: BaseException | None) -> None:
        if self._left:
            raise InvalidStateError("nobody reads the stream any more")
        if not self._ended:
            self._ended = True
            self._parts.put((DONE, error))

    def close(self) -> None:
        """Read no more; what is still queued is not run."""
        self._left = True
        self._parts.put((DONE, None))

    def __iter__(self) -> ThreadStream:
        return self

    def __next__(self) -> object:
        part, error = self._parts.get()
        if part is not DONE:
            return part
        self._parts.put((DONE, None))
        if error is not None:
            raise error
        raise StopIteration


Stream = AsyncStream | ThreadStream


class Parts:
    """The streams of one batch, as its generator yields."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._requests = requests
        self._open = [True] * len(requests)
        self.begun = False

    def send(self, parts: Sequence[object], here: object = None) -> bool:
        """Pass one yield on; say whether anybody still reads."""
        self.begun = True
        by_loop: dict[AbstractEventLoop | None, list[tuple[Stream, object]]] = {}
        for place, (request, part) in enumerate(zip(self._requests, parts, strict=True)):
            if self._open[place]:
                self._open[place] = part is not DONE and not isinstance(part, Exception) and not request.reply.done()
                by_loop.setdefault(request.loop, []).append((_stream(request), part))
        for loop, mine in by_loop.items():
            if loop is None or loop is here:
                _pass_on(mine)
            elif not _try_call(loop, mine):
                self._open = [
                    is_open and request.loop is not loop
                    for is_open, request in zip(self._open, self._requests, strict=True)
                ]
        return any(self._open)

    def ends(self, error: Exception | None) -> list[object]:
        """Return what ends each stream: the error, for those that had not ended before it."""
        return [error if is_open else None for is_open in self._open]


def _stream(request: Request) -> Stream:
    reply = request.reply
    assert isinstance(reply, AsyncStream | ThreadStream)
    return reply


def _try_call(loop: AbstractEventLoop, mine: list[tuple[Stream, object]]) -> bool:
    try:
        loop.call_soon_threadsafe(_pass_on, mine)
    except RuntimeError:  # the loop was closed with the readers on it
        return False
    return True


def _pass_on(parts: Sequence[tuple[Stream, object]]) -> None:
    for stream, part in parts:
        if stream.done():
            continue
        if part is DONE:
            stream.set_result(None)
        elif isinstance(part, Exception):
            stream.set_exception(part)
        else:
            stream.feed(part)
