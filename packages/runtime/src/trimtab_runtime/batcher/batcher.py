"""A batch function as its callers see it, from coroutines and from threads."""

from __future__ import annotations

import _thread
import functools
import inspect
import os
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Future as ThreadFuture
from contextlib import nullcontext, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar, cast

from trimtab_runtime.batcher.engine import Engine, inside
from trimtab_runtime.batcher.exposition import MetricsText, metrics_response
from trimtab_runtime.batcher.metrics import Stats, render
from trimtab_runtime.batcher.options import Options
from trimtab_runtime.batcher.streaming import AsyncChannel, AsyncStream, ThreadChannel, ThreadStream
from trimtab_runtime.batcher.threads import Call, ThreadRunner
from trimtab_runtime.errors import UsageError

if TYPE_CHECKING:
    import asyncio

    from trimtab_runtime.batcher.loops import AsyncCall, LoopRunner

T = TypeVar("T")
R = TypeVar("R")

_batchers: weakref.WeakSet[Batcher[object, object]] = weakref.WeakSet()


class Batcher(Generic[T, R]):
    """A batch function as its callers see it: one item in, one result out."""

    def __init__(self, function: Callable[[list[T]], object], options: Options) -> None:
        self.function = function
        self.options = options
        name = str(options.name or getattr(function, "__qualname__", type(function).__name__))
        streams = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
        self._engine = Engine(options, name, streams=streams)
        self._runner = _runner(self._engine, cast("Call", function), options)
        functools.update_wrapper(self, function, updated=())
        weakref.finalize(self, _close_elsewhere, self._engine).atexit = False
        _batchers.add(cast("Batcher[object, object]", self))

    def __call__(self, item: T, /, *, priority: int = 0, within_s: float | None = None) -> Awaitable[R]:
        """Queue an item from a coroutine and return an awaitable of its result, which also waits for room in a full queue.

        A higher priority goes first. `within_s` is the time allowed from now: a request that cannot be answered in time fails
        with `DeadlineExceeded` and is not run. Cancelling the awaitable takes the item off the queue.
        """
        loop = _running_loop()
        reply = _new_future(loop=loop)
        engine = self._engine
        if inside.get(None):
            engine.refuse_own_call()
        engine.put(item, reply, loop, priority, within_s)
        return reply  # type: ignore[return-value]  # the engine answers with what the function returns, an R

    def submit(self, item: T, /, *, priority: int = 0, within_s: float | None = None) -> ThreadFuture[R]:
        """Queue an item from a thread and return a concurrent future of its result.

        Where the queue is full this waits for room, or raises `QueueFull`, as the settings say.
        """
        reply: ThreadFuture[object] = ThreadFuture()
        admitted: ThreadFuture[None] = ThreadFuture()
        if self._engine.put(item, reply, None, priority, within_s, admitted):
            admitted.result()
        return reply  # type: ignore[return-value]  # as above

    def call(
        self, item: T, /, *, priority: int = 0, within_s: float | None = None, timeout_s: float | None = None
    ) -> R:
        """Queue an item from a thread and wait for its result, at most `timeout_s`."""
        self._engine.refuse_own_call()
        reply = self.submit(item, priority=priority, within_s=within_s)
        try:
            return reply.result(timeout_s)
        finally:
            reply.cancel()

    async def map(self, items: Iterable[T], *, priority: int = 0, within_s: float | None = None) -> list[R]:
        """Queue many items from a coroutine and return their results in order."""
        import asyncio

        return await asyncio.gather(*[self(item, priority=priority, within_s=within_s) for item in items])

    def call_map(self, items: Iterable[T], *, priority: int = 0, within_s: float | None = None) -> list[R]:
        """Queue many items from a thread and return their results in order."""
        self._engine.refuse_own_call()
        replies = [self.submit(item, priority=priority, within_s=within_s) for item in items]
        return [reply.result() for reply in replies]

    async def drain(self, timeout_s: float | None = None) -> None:
        """Refuse new requests, finish those accepted, and return; raise TimeoutError if that takes longer."""
        import asyncio

        await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(self._engine.drain())), timeout_s)

    def drain_wait(self, timeout_s: float | None = None) -> None:
        """The same from a thread."""
        self._engine.drain().result(timeout_s)

    def close(self) -> None:
        """Refuse new requests and those that wait; what runs is still answered."""
        self._engine.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.drain()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drain_wait()

    def stats(self) -> Stats:
        """Return a snapshot of counters and gauges."""
        return self._engine.stats()

    def metrics(self) -> MetricsText:
        """Return the Prometheus text of this batcher, which an endpoint can return as its response."""
        return metrics_response(self._text())

    def _text(self) -> str:
        return render(self._engine.name, self._engine.metrics, self._engine.stats())

    def reset_after_fork(self) -> None:
        """Start afresh in a forked child: the parent keeps the requests, and its threads are not here."""
        self._engine.reset()
        self._runner.reset()


def _first_running_loop() -> asyncio.AbstractEventLoop:
    """Return the running loop, and import what the next ones are found by: callers in threads need no asyncio."""
    global _running_loop, _new_future
    from asyncio import Future, get_running_loop

    _running_loop, _new_future = get_running_loop, Future
    return get_running_loop()


_running_loop: Callable[[], asyncio.AbstractEventLoop] = _first_running_loop
_new_future: type[asyncio.Future[object]]
"""Set with the first running loop; not needed before."""


def _close_elsewhere(engine: Engine) -> None:
    """Close an engine in a thread of its own: the collector may run in one that holds the engine's locks."""
    with suppress(RuntimeError):  # the interpreter ends, and with it what would be closed
        _thread.start_new_thread(engine.close, ())


def _runner(engine: Engine, function: Call, options: Options) -> ThreadRunner | LoopRunner:
    """Return what runs a batch function: its callers' event loop, processes, or threads."""
    on_loop = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    if options.worker == "process":
        if on_loop or engine.streams:
            raise UsageError(f"batch: {engine.name} cannot run in a process worker: it is asynchronous or a generator")
        from trimtab_runtime.batcher.processes import ProcessCall, importable  # multiprocessing takes long to import

        module, name = importable(function)
        return ThreadRunner(engine, lambda: ProcessCall(module, name, options.run_limit_s))
    if on_loop:
        from trimtab_runtime.batcher.loops import LoopRunner  # asyncio takes long to import

        return LoopRunner(engine, cast("AsyncCall", function))
    return ThreadRunner(engine, lambda: nullcontext(function))


class StreamBatcher(Generic[T, R]):
    """A batch function that yields, as its callers see it: one item in, a stream of parts out."""

    def __init__(self, function: Callable[[list[T]], object], options: Options) -> None:
        self.function = function
        self.batcher: Batcher[T, None] = Batcher(function, options)
        """The queue behind it: `drain`, `close`, `stats`, `metrics`."""
        functools.update_wrapper(self, function, updated=())

    def __call__(self, item: T, /, *, priority: int = 0, within_s: float | None = None) -> AsyncIterator[R]:
        """Queue an item from a coroutine and return its parts as they come; closing the iterator gives the rest up."""
        loop = _running_loop()
        channel = AsyncChannel(loop)
        self.batcher._engine.refuse_own_call()
        self.batcher._engine.put(item, channel, loop, priority, within_s)
        return cast("AsyncIterator[R]", AsyncStream(channel))

    def call(self, item: T, /, *, priority: int = 0, within_s: float | None = None) -> Iterator[R]:
        """Queue an item from a thread and return its parts as they come."""
        channel = ThreadChannel()
        self.batcher._engine.refuse_own_call()
        self.batcher._engine.put(item, channel, None, priority, within_s)
        return cast("Iterator[R]", ThreadStream(channel))


def _reset_all() -> None:
    for batcher in list(_batchers):
        batcher.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)


def metrics_text() -> MetricsText:
    """Return the Prometheus text of every batcher of this process, which an endpoint can return as its response."""
    batchers = sorted(_batchers, key=lambda batcher: batcher._engine.name)
    return metrics_response("".join(batcher._text() for batcher in batchers))
