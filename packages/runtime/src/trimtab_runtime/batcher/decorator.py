"""`@batch`: turn a function of a list into a function of one item that many callers share."""

from __future__ import annotations

import inspect
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Generic, Protocol, TypeVar, cast, overload

from trimtab_runtime.batcher.batcher import Batcher, StreamBatcher
from trimtab_runtime.batcher.options import BatchReport, Options, WhenFull, Workers, is_out_of_memory
from trimtab_runtime.batcher.streaming import Done
from trimtab_runtime.errors import BatcherClosed, UsageError

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")


class Decorator(Protocol):
    """What `batch(...)` returns: it takes a function of a list, or a method of a list."""

    @overload
    def __call__(self, function: Callable[[list[T]], Iterator[Sequence[R | Done]]], /) -> StreamBatcher[T, R]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], AsyncIterator[Sequence[R | Done]]], /) -> StreamBatcher[T, R]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], Awaitable[Sequence[R]]], /) -> Batcher[T, R]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], Sequence[R]], /) -> Batcher[T, R]: ...
    @overload
    def __call__(self, function: Callable[[S, list[T]], Awaitable[Sequence[R]]], /) -> BatchMethod[S, T, R]: ...
    @overload
    def __call__(self, function: Callable[[S, list[T]], Sequence[R]], /) -> BatchMethod[S, T, R]: ...


class Owned:
    """The batcher of one object's method, and whose it is. A copy of the object gets an empty one: its batcher is its own."""

    def __init__(self, owner: object = None, batcher: Batcher[object, object] | None = None) -> None:
        self._owner = None if owner is None else weakref.ref(owner)
        self.batcher = batcher

    def of(self, owner: object) -> bool:
        """Say whether this belongs to `owner`, and not to what it was copied from."""
        return self._owner is not None and self._owner() is owner

    def __reduce__(self) -> tuple[type[Owned], tuple[()]]:
        return Owned, ()


_making = threading.Lock()


class BatchMethod(Generic[S, T, R]):
    """A batched method: each object has a batcher of its own, made when the method is first requested."""

    def __init__(self, function: Callable[[S, list[T]], object], options: Options) -> None:
        self.function = function
        self.options = options
        self._name = f"_batcher_{getattr(function, '__name__', 'method')}"

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_batcher_{name}"

    @overload
    def __get__(self, instance: None, owner: type) -> BatchMethod[S, T, R]: ...
    @overload
    def __get__(self, instance: S, owner: type) -> Batcher[T, R]: ...
    def __get__(self, instance: S | None, owner: type) -> BatchMethod[S, T, R] | Batcher[T, R]:
        if instance is None:
            return self
        try:
            attributes = vars(instance)
        except TypeError:
            raise UsageError(f"batch: {owner.__name__} needs a __dict__ to hold the batcher of {self._name}") from None
        owned: Owned | None = attributes.get(self._name)
        if owned is None or not owned.of(instance):
            owned = self._make(instance, attributes)
        return cast("Batcher[T, R]", owned.batcher)

    def _make(self, instance: S, attributes: dict[str, object]) -> Owned:
        """Give an object its batcher, unless another thread has just done so."""
        with _making:
            owned = attributes.get(self._name)
            if not isinstance(owned, Owned) or not owned.of(instance):
                batcher: Batcher[T, R] = Batcher(bound(self.function, instance), self.options)
                owned = attributes[self._name] = Owned(instance, cast("Batcher[object, object]", batcher))
        return owned


def bound(function: Callable[[S, list[T]], object], instance: S) -> Callable[[list[T]], object]:
    """Bind a method to its object without keeping the object alive: the batcher's thread must not."""
    reference = weakref.ref(instance)
    name = getattr(function, "__qualname__", "method")

    def owner() -> S:
        found = reference()
        if found is None:
            raise BatcherClosed(f"{name}: the object whose method this is has gone")
        return found

    if inspect.iscoroutinefunction(function):

        async def call_async(items: list[T]) -> object:
            return await function(owner(), items)

        call_async.__qualname__ = name
        return call_async

    def call(items: list[T]) -> object:
        return function(owner(), items)

    call.__qualname__ = name
    return call


def is_method(function: Callable[..., object]) -> bool:
    """Say whether a function takes an object before its list of items."""
    needed = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        and parameter.default is parameter.empty
    ]
    if len(needed) not in (1, 2):
        raise UsageError(f"batch: {function!r} must take one list of items (after self, for a method)")
    return len(needed) == 2


@overload
def batch(function: Callable[[list[T]], Iterator[Sequence[R | Done]]], /) -> StreamBatcher[T, R]: ...
@overload
def batch(function: Callable[[list[T]], AsyncIterator[Sequence[R | Done]]], /) -> StreamBatcher[T, R]: ...
@overload
def batch(function: Callable[[list[T]], Awaitable[Sequence[R]]], /) -> Batcher[T, R]: ...
@overload
def batch(function: Callable[[list[T]], Sequence[R]], /) -> Batcher[T, R]: ...
@overload
def batch(function: Callable[[S, list[T]], Awaitable[Sequence[R]]], /) -> BatchMethod[S, T, R]: ...
@overload
def batch(function: Callable[[S, list[T]], Sequence[R]], /) -> BatchMethod[S, T, R]: ...
@overload
def batch(
    *,
    max_batch: int = 64,
    min_batch: int = 1,
    window_s: float = 0.0,
    target_s: float = inf,
    learn: bool = True,
    key: Callable[..., Hashable] | None = None,
    pad: Callable[..., object] | None = None,
    unpad: Callable[..., object] | None = None,
    size: Callable[..., int] | None = None,
    max_size: int | None = None,
    padded: bool = False,
    batch_sizes: tuple[int, ...] = (),
    max_queue: int = 10_000,
    when_full: WhenFull = "wait",
    within_s: float | None = None,
    isolate: bool | Callable[[BaseException], bool] = True,
    is_oom: Callable[[BaseException], bool] = is_out_of_memory,
    on_oom: Callable[[], object] | None = None,
    worker: Workers = "thread",
    run_limit_s: float | None = None,
    workers: int = 1,
    ordered: bool = False,
    on_batch: Callable[[BatchReport], object] | None = None,
    name: str | None = None,
) -> Decorator: ...
def batch(function: Callable[..., object] | None = None, /, **settings: object) -> object:
    """Batch the calls of a function or method that takes a list of items and returns one result per item.

    A plain function runs in worker threads, an `async def` on its callers' event loop. A generator streams: each yield holds
    one part per item, `DONE` for an item that has ended. Without settings a batch leaves as soon
    as a worker is idle, and waits only for clients that have been seen to come back together.

    max_batch, min_batch, window_s: the largest batch; with a window, how few may leave before it is over.
    target_s: latency target of a request: no wait is begun that would break it. learn=False: never wait but by the window.
    key: items of different keys never share a batch (shape buckets: see `buckets`). pad(item, key) and unpad(result, item)
    run around the function, in the worker.
    size, max_size: a size per item (tokens) and the largest total of a batch; padded=True counts largest * number.
    batch_sizes: the function runs at these sizes only, as compiled models want: a smaller batch is filled up with copies
    of its last item, whose results are dropped. max_batch is the largest of them.
    max_queue, when_full: how many may wait; beyond it callers "wait" for room or are "refuse"d with `QueueFull`.
    within_s: default deadline of a request: late work is refused before it runs.
    isolate: whether, or for which errors, a failed batch is split to find the items at fault.
    is_oom, on_oom: what counts as out of memory, and what to call then (`torch.cuda.empty_cache`).
    run_limit_s: a worker process that takes longer over a batch is killed and replaced; 600 s by default.
    worker, workers: "thread" or "process", and how many; ordered=True runs the batches of a key one after another.
    on_batch: called with a `BatchReport` after each run. name: label in metrics and messages.
    """
    if function is not None:
        return _decorate(function, Options())
    options = replace(Options(), **settings)  # type: ignore[arg-type]  # the overload has typed each setting
    return lambda decorated: _decorate(decorated, options)


def _decorate(function: Callable[..., object], options: Options) -> object:
    streams = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    if is_method(function):
        if streams or options.worker == "process":
            raise UsageError(f"batch: {function!r} is a method, and methods neither stream nor run in process workers")
        return BatchMethod(function, options)
    return StreamBatcher(function, options) if streams else Batcher(function, options)
