"""Run the batch function on a taken batch: pad, call, check, and settle each request, also when the run fails."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence, Set
from contextlib import aclosing, closing
from functools import partial
from time import monotonic
from typing import cast

from trimtab_runtime.batcher.delivery import deliver
from trimtab_runtime.batcher.engine import Engine, inside
from trimtab_runtime.batcher.lanes import Taken
from trimtab_runtime.batcher.recovery import Attempt, Outcome, Recovery, recover
from trimtab_runtime.batcher.request import Request
from trimtab_runtime.batcher.streaming import Parts, Sent
from trimtab_runtime.errors import WorkerLost, WrongResults

logger = logging.getLogger(__name__)

TEXT = (str, bytes, bytearray, memoryview)
"""Types that have a length and are never one result per item."""
NOT_THE_ITEMS = {"CancelledError", "GeneratorExit", "TimeoutError"}
"""What ends a run whatever its items are (the task, its loop, a hung process): halves would fare the same."""
UNORDERED = (Set, Mapping)
"""Types whose elements have no order, or another than the items'."""


def checked(name: str, results: object, items: int) -> Sequence[object]:
    """Return the results as a sequence of one per item, or raise `WrongResults`."""
    if type(results) is list and len(results) == items:
        return results
    if isinstance(results, TEXT + UNORDERED) or not isinstance(results, Iterable):
        raise WrongResults(
            f"{name}: the batch function returned {type(results).__name__} for {items} items; "
            "return a sequence with one result per item, in their order"
        )
    listed = list(results)
    if len(listed) != items:
        raise WrongResults(
            f"{name}: the batch function returned {len(listed)} results for {items} items; "
            "return one result per item, in their order (an exception object fails its item alone)"
        )
    return listed


class Run:
    """One taken batch on its way through the batch function."""

    def __init__(self, engine: Engine, taken: Taken, here: object = None) -> None:
        self.engine = engine
        self.taken = taken
        self.here = here
        self.began_s = 0.0
        self.run_s = 0.0
        self.ended = False
        self.sent = Sent(keep=engine.options.isolate is not False)

    def items(self, requests: Sequence[Request]) -> list[object]:
        """Return the items as the batch function gets them."""
        self.began_s = monotonic()
        pad = self.engine.options.pad
        if pad is None:
            items = [request.item for request in requests]
        else:
            items = [pad(request.item, request.key) for request in requests]
        if missing := self.filled(len(items)) - len(items):
            items += items[-1:] * missing
        return items

    def filled(self, items: int) -> int:
        """Return how many items the batch function gets for so many."""
        return self.engine.options.filled(items, self.taken.lane.cap.limit)

    def _checked(self, requests: Sequence[Request], returned: object) -> Sequence[object]:
        """Return one result for each request; those of copies that filled the batch up are dropped."""
        wanted = len(requests)
        results = checked(self.engine.name, returned, self.filled(wanted))
        return results if len(results) == wanted else results[:wanted]

    def results(self, requests: Sequence[Request], returned: object) -> Sequence[object]:
        """Check what the batch function returned and undo the padding; pass on what it yields, where it streams."""
        if self.engine.streams:
            return self._stream(requests, returned)
        results = self._checked(requests, returned)
        unpad = self.engine.options.unpad
        if unpad is None:
            return results
        return [unpad(result, request.item) for request, result in zip(requests, results, strict=True)]

    def _stream(self, requests: Sequence[Request], returned: object) -> Sequence[object]:
        parts = Parts(requests, self.sent)
        with closing(cast("Generator[object]", returned)) as generator:
            for yielded in generator:
                if not parts.send(self._checked(requests, yielded), self.here):
                    break
        return parts.ends()

    async def stream_async(self, requests: Sequence[Request], returned: AsyncGenerator[object]) -> Sequence[object]:
        """Pass on what an asynchronous generator yields."""
        parts = Parts(requests, self.sent)
        async with aclosing(returned) as generator:
            async for yielded in generator:
                if not parts.send(self._checked(requests, yielded), self.here):
                    break
        return parts.ends()

    def observe(self, requests: Sequence[Request], outcome: Outcome, *, extra: bool) -> None:
        """Let the engine learn from one run."""
        self.run_s = monotonic() - self.began_s
        failed = outcome.error is not None
        self.engine.observe(self.taken.lane, requests, self.run_s, failed=failed, extra=extra)

    def report(self, requests: Sequence[Request], outcome: Outcome) -> None:
        """Tell the user's callback of one run; after the answers, which it must not delay."""
        self.engine.teller.run(self.taken.lane, requests, self.began_s, self.run_s, outcome.error)

    def settle(self, requests: Sequence[Request], outcome: Outcome) -> None:
        """Answer a group: its results, or its error to each."""
        results = outcome.results if outcome.error is None else [outcome.error] * len(requests)
        deliver(requests, results, self.engine.metrics, self.here)

    def succeed(self, outcome: Outcome) -> None:
        """Answer the whole batch, then learn from it: on the callers' loop, while the worker goes on to the next batch."""
        taken = self.taken
        self.run_s = monotonic() - self.began_s
        learn = partial(self.engine.learn, taken, self.run_s, self.engine.end_cycle(taken))
        deliver(taken.batch, outcome.results, self.engine.metrics, self.here, learn)
        self.report(taken.batch, outcome)

    def fail(self, outcome: Outcome) -> None:
        """Count and report a batch that failed as a whole; its cycle ends unlearned."""
        self.observe(self.taken.batch, outcome, extra=False)
        self.report(self.taken.batch, outcome)
        self.engine.end_cycle(self.taken)

    def end(self, error: Exception | None) -> None:
        """Let the engine go on, once; an error that no caller has seen yet, say a hook's, goes to those who wait."""
        if self.ended:
            return
        self.ended = True
        try:
            if error is not None:
                logger.error("%s: a batch could not be settled", self.engine.name, exc_info=error)
                waiting = [request for request in self.taken.batch if not request.reply.done()]
                if waiting:
                    self.settle(waiting, Outcome((), error))
        finally:
            self.engine.finished(self.taken)

    def abandon(self) -> None:
        """Let the engine go on from a batch whose callers are all gone, and with them the loop that ran it."""
        requests = self.taken.batch
        self.engine.metrics.count_answers(requests, monotonic(), abandoned=len(requests), failed=0)
        self.end(None)

    def recovery(self, error: Exception) -> Generator[Sequence[Request], Outcome]:
        """Return the groups to run after the whole batch has failed with `error`."""
        engine = self.engine
        self.sent.error = error

        def settle(requests: Sequence[Request], outcome: Outcome) -> None:
            if outcome.error is not None and len(requests) == 1 < len(self.taken.batch):
                with engine.metrics.lock:
                    engine.metrics.poisoned += 1
            self.settle(requests, outcome)

        def isolates(error: BaseException) -> bool:
            if isinstance(error, WrongResults) or _is_not_the_items(error):
                return False
            return engine.options.isolates(error)

        def on_oom(items: int) -> int:
            engine.out_of_memory(self.taken.lane, self.filled(items))
            return self.taken.lane.cap.limit

        return recover(
            self.taken.batch, error, Recovery(settle, isolates, engine.options.is_oom, on_oom, self.sent.has_ended)
        )


def _is_not_the_items(error: BaseException) -> bool:
    return isinstance(error, WorkerLost) and type(error.__cause__).__name__ in NOT_THE_ITEMS


def attempt(run: Run, requests: Sequence[Request], call: Callable[[list[object]], object]) -> Outcome:
    """Run a group once and return its outcome."""
    results: Sequence[object] = ()
    with Attempt() as tried:
        results = run.results(requests, call(run.items(requests)))
    return Outcome(results, tried.error)


def run_batch(engine: Engine, taken: Taken, call: Callable[[list[object]], object]) -> None:
    """Run a taken batch in this thread and settle all of its requests, whatever fails, also a user's own hook."""
    run = Run(engine, taken)
    here = [engine]
    token = inside.set(here)
    with Attempt() as whole:
        _run_and_settle(run, call)
    here.clear()
    inside.reset(token)
    run.end(whole.error)


def _run_and_settle(run: Run, call: Callable[[list[object]], object]) -> None:
    """Run the whole batch, or its parts where it fails."""
    outcome = attempt(run, run.taken.batch, call)
    if outcome.error is None:
        run.succeed(outcome)
    else:
        run.fail(outcome)
        recover_batch(run, outcome.error, call)


def recover_batch(run: Run, error: Exception, call: Callable[[list[object]], object]) -> None:
    """Run a failed batch again in parts until every request is settled."""
    steps = run.recovery(error)
    group = next(steps, None)
    while group is not None:
        outcome = attempt(run, group, call)
        run.observe(group, outcome, extra=True)
        run.report(group, outcome)
        try:
            group = steps.send(outcome)
        except StopIteration:
            group = None
