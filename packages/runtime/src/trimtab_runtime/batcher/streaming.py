"""Streams: a batch function that yields parts, and callers that read theirs as they come.

The batch function is a generator: each yield is a list with one part per item, in their order, `DONE` for an item that has
ended. An exception among the parts ends that item's stream with it. What the caller holds is a reader; the request holds the
channel behind it, so that a garbage-collected reader is noticed.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING

from trimtab_runtime.batcher.recovery import Attempt
from trimtab_runtime.batcher.request import Request

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future


class Done(Enum):
    """The type of `DONE`."""

    DONE = "done"


DONE = Done.DONE
"""Yielded in an item's place once its stream has ended."""


class AsyncChannel:
    """The parts of one item on their way to a coroutine; all but `done` belongs to its event loop."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.loop = loop
        self.parts: deque[object] = deque()
        self.ended = False
        self.left = False
        self.error: BaseException | None = None
        self.reader: Future[None] | None = None

    def done(self) -> bool:
        """Return whether the stream has no reader left."""
        return self.left

    def feed(self, part: object) -> None:
        """Hand on one part."""
        if not self.ended:
            self.parts.append(part)
            self._wake()

    def set_result(self, result: object, /) -> None:
        """End the stream; the result is in its parts."""
        self._end(None)

    def set_exception(self, exception: BaseException, /) -> None:
        """End the stream with an error, after the parts that came before it."""
        self._end(exception)

    def _end(self, error: BaseException | None) -> None:
        if not self.ended:
            self.ended, self.error = True, error
            self._wake()

    def _wake(self) -> None:
        if self.reader is not None and not self.reader.done():
            self.reader.set_result(None)


class AsyncStream:
    """The parts of one item, for a coroutine; iterate it once. Closing or dropping it gives the rest up."""

    def __init__(self, channel: AsyncChannel) -> None:
        self._channel = channel

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> object:
        channel = self._channel
        while not channel.parts:
            if channel.error is not None:
                raise channel.error
            if channel.ended or channel.left:
                raise StopAsyncIteration
            channel.reader = channel.loop.create_future()
            woken = False
            try:
                await channel.reader
                woken = True
            finally:
                channel.left = not woken  # cancelled: nothing reads on
        return channel.parts.popleft()

    async def aclose(self) -> None:
        """Read no more; what is still queued is not run."""
        self._channel.left = True
        self._channel.parts.clear()

    def __del__(self) -> None:
        self._channel.left = True


class ThreadChannel:
    """The parts of one item on their way to a thread."""

    def __init__(self) -> None:
        self.parts: queue.SimpleQueue[tuple[object, BaseException | None]] = queue.SimpleQueue()
        self.ended = False
        self.left = False

    def done(self) -> bool:
        """Return whether the stream has no reader left."""
        return self.left

    def feed(self, part: object) -> None:
        """Hand on one part."""
        if not self.ended:
            self.parts.put((part, None))

    def set_result(self, result: object, /) -> None:
        """End the stream; the result is in its parts."""
        self._end(None)

    def set_exception(self, exception: BaseException, /) -> None:
        """End the stream with an error, after the parts that came before it."""
        self._end(exception)

    def _end(self, error: BaseException | None) -> None:
        if not self.ended:
            self.ended = True
            self.parts.put((DONE, error))


class ThreadStream:
    """The parts of one item, for a thread; iterate it once. Closing or dropping it gives the rest up."""

    def __init__(self, channel: ThreadChannel) -> None:
        self._channel = channel

    def close(self) -> None:
        """Read no more; what is still queued is not run."""
        self._channel.left = True
        self._channel.parts.put((DONE, None))

    def __del__(self) -> None:
        self._channel.left = True

    def __iter__(self) -> ThreadStream:
        return self

    def __next__(self) -> object:
        parts = self._channel.parts
        part, error = parts.get()
        if part is not DONE:
            return part
        parts.put((DONE, None))
        if error is not None:
            raise error
        raise StopIteration


Channel = AsyncChannel | ThreadChannel


class Sent:
    """What the streams of one batch have been given, so that a second run can take up where the first one failed.

    After an error in mid-stream the batch is run again without the item at fault. A part that was sent is not sent again;
    where the new run yields another part in its place (sampling without a seed), that stream ends with the error.
    """

    def __init__(self, *, keep: bool) -> None:
        self._keep = keep
        self.error: Exception | None = None
        """What made the parts be yielded a second time."""
        self._parts: dict[int, list[object]] = {}
        self._ended: set[int] = set()

    def has_ended(self, request: Request) -> bool:
        """Return whether a request's stream is over or has no reader left."""
        return id(request) in self._ended or request.reply.done()

    def end(self, request: Request) -> None:
        """Note the end of a stream."""
        self._ended.add(id(request))
        self._parts.pop(id(request), None)

    def news(self, request: Request, place: int, part: object) -> object:
        """Return what to send for the part at `place` of a run: the part, `REPEATED` for nothing, or an error."""
        before = self._parts.setdefault(id(request), [])
        if place == len(before):
            before.append(part if self._keep else FORGOTTEN)
            return part
        with Attempt() as compared:
            if _is_same(before[place], part):
                return REPEATED
        return compared.error or self.error


class Repeated(Enum):
    """The type of `REPEATED`."""

    REPEATED = "repeated"


REPEATED = Repeated.REPEATED
"""A part that the caller has already."""
FORGOTTEN = object()
"""Stands for a part that was sent and not kept: none that comes in its place is known to be the same."""


def _is_same(before: object, part: object) -> bool:
    return before is part or bool(before == part)


class Parts:
    """The streams of one run of a batch, or of a part of it, as its generator yields."""

    def __init__(self, requests: Sequence[Request], sent: Sent) -> None:
        self._requests = requests
        self._sent = sent
        self._place = 0

    def send(self, parts: Sequence[object], here: object = None) -> bool:
        """Pass one yield on; say whether anybody still reads."""
        by_loop: dict[AbstractEventLoop | None, list[tuple[Channel, object]]] = {}
        for request, part in zip(self._requests, parts, strict=True):
            if self._sent.has_ended(request):
                continue
            last = part is DONE or isinstance(part, Exception)
            news = part if last else self._sent.news(request, self._place, part)
            if last or isinstance(news, Exception):
                self._sent.end(request)
            if news is not REPEATED:
                by_loop.setdefault(request.loop, []).append((_channel(request), news))
        self._place += 1
        for loop, mine in by_loop.items():
            if loop is None or loop is here:
                _pass_on(mine)
            elif not _try_call(loop, mine):
                self._forget(loop)
        return not all(map(self._sent.has_ended, self._requests))

    def _forget(self, loop: AbstractEventLoop) -> None:
        """End the streams whose readers went with their loop."""
        for request in self._requests:
            if request.loop is loop:
                self._sent.end(request)

    def ends(self) -> list[object]:
        """Return what ends each stream after the last yield: nothing, the parts have said it all."""
        for request in self._requests:
            self._sent.end(request)
        return [None] * len(self._requests)


def _channel(request: Request) -> Channel:
    reply = request.reply
    assert isinstance(reply, AsyncChannel | ThreadChannel)
    return reply


def _try_call(loop: AbstractEventLoop, mine: list[tuple[Channel, object]]) -> bool:
    try:
        loop.call_soon_threadsafe(_pass_on, mine)
    except RuntimeError:  # the loop was closed with the readers on it
        return False
    return True


def _pass_on(parts: Sequence[tuple[Channel, object]]) -> None:
    for channel, part in parts:
        if part is DONE:
            channel.set_result(None)
        elif isinstance(part, Exception):
            channel.set_exception(part)
        else:
            channel.feed(part)
