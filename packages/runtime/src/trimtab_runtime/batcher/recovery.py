"""Run a failed batch again in parts: one bad item fails alone, a batch that did not fit runs in halves.

One poison item among `b` costs at most `2 * log2(b)` extra runs: each level runs the left half only, since its outcome tells
where the fault lies; the item itself runs alone, to fail with its own error; all to the right of it runs once more together.
Where that fails too, many items are bad, and halves are run as they come: at most `2 * b` more. The order is kept throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

from trimtab_runtime.batcher.request import Request
from trimtab_runtime.errors import WorkerLost


class Outcome(NamedTuple):
    """What one run of the batch function came to: results or an error."""

    results: Sequence[object]
    error: Exception | None


class Attempt:
    """Hold whatever a user's function raises: the callers get it, the worker lives on.

    An error that is no `Exception` (a worker told to exit, a cancelled task inside the model) and `StopIteration`, which no
    future can carry, become `WorkerLost`.
    """

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __enter__(self) -> Attempt:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if error is None:
            return False
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            self.error = error
        else:
            self.error = WorkerLost(f"the batch function raised {type(error).__name__}: {error}")
            self.error.__cause__ = error
        return True


class Part:
    """Requests still to be settled, in order."""

    __slots__ = ("blame", "known", "requests")

    def __init__(
        self, requests: Sequence[Request], *, known: Exception | None = None, blame: Exception | None = None
    ) -> None:
        self.requests = requests
        self.known = known
        """The error that these requests are known to raise together; None while untried."""
        self.blame = blame
        """The error that the neighbour to the right is known to raise if this part is sound."""


def is_unwanted(request: Request) -> bool:
    """Return whether the caller has stopped waiting for the answer."""
    return request.reply.done()


class Recovery(NamedTuple):
    """How a batcher treats failures."""

    settle: Callable[[Sequence[Request], Outcome], None]
    isolates: Callable[[BaseException], bool]
    is_oom: Callable[[BaseException], bool]
    on_oom: Callable[[int], int]
    """Told the size of each batch that ran out of memory; returns the largest to try next."""
    is_over: Callable[[Request], bool] = is_unwanted
    """Whether nothing is left to be said to a request: it is left out of the runs that follow."""


def recover(requests: Sequence[Request], error: Exception, how: Recovery) -> Generator[Sequence[Request], Outcome]:
    """Yield the groups to run next, be sent each outcome, and settle every request once, in order."""
    parts = [Part(requests, known=error)]
    found = 0
    limit = len(requests)
    while parts:
        part = parts.pop()
        live = [request for request in part.requests if not how.is_over(request)]
        if not live:
            continue
        if len(live) > limit:
            parts += _halves(live, None)
            continue
        failure = part.known
        if failure is None or (len(live) < len(part.requests) and how.isolates(failure)):
            outcome = yield live
            failure = outcome.error
            if failure is None:
                how.settle(live, outcome)
                _blame_next(parts, part.blame)
                continue
        out_of_memory = how.is_oom(failure)
        if out_of_memory:
            limit = max(1, how.on_oom(len(live)))
        if len(live) > 1 and (out_of_memory or how.isolates(failure)):
            parts += _halves(live, None if out_of_memory else failure)
            continue
        how.settle(live, Outcome((), failure))
        found += 1
        if found == 1 and limit == len(requests):
            parts = _joined(parts)


def _halves(requests: Sequence[Request], blame: Exception | None) -> list[Part]:
    middle = len(requests) // 2
    return [Part(requests[middle:]), Part(requests[:middle], blame=blame)]


def _blame_next(parts: list[Part], blame: Exception | None) -> None:
    """Mark the right half as faulty after a sound left one; a single item is run, to fail with its own error."""
    if blame is not None and len(parts[-1].requests) > 1:
        parts[-1].known = blame


def _joined(parts: list[Part]) -> list[Part]:
    """Join everything to the right of the found items into one part."""
    rest = [request for part in reversed(parts) for request in part.requests]
    return [Part(rest)] if rest else []
