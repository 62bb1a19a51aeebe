"""The heart of a batcher: the queue under one lock, the decision when a batch leaves, and what is learned from each.

Callers put requests in from any thread or event loop. A runner (threads, or an event loop for asynchronous batch functions)
asks `next_step` for a batch or a wait, runs it and reports back. Nothing here runs user code but the callbacks of the settings.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future as ThreadFuture
from contextvars import ContextVar
from math import inf
from operator import index
from time import monotonic
from typing import TYPE_CHECKING, cast

from trimtab_runtime.batcher.delivery import refuse
from trimtab_runtime.batcher.lanes import Lane, Lanes, Taken
from trimtab_runtime.batcher.metrics import Metrics, Stats
from trimtab_runtime.batcher.options import Options
from trimtab_runtime.batcher.request import Reply, Request
from trimtab_runtime.batcher.steps import ENDED, State, Step, Waker
from trimtab_runtime.batcher.telling import BatcherCallbacks
from trimtab_runtime.batcher.traffic import Ended, Traffic
from trimtab_runtime.errors import BatcherClosed, DeadlineExceeded, ItemTooLarge, QueueFull, UsageError
from trimtab_runtime.policies.batching import observe_fit, observe_oom, observe_run

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

NEVER = 1 << 60
"""More requests than will ever wait: no arrival wakes anyone."""
SWEEP_SHARE = 4
"""A full queue is swept of cancelled requests once per this share of its size in refusals, so that the cost stays constant."""

inside: ContextVar[list[Engine]] = ContextVar("inside")
"""The engine whose batch function runs in this context; emptied when the run ends, since tasks begun in it may outlive it."""

_new_request = cast("Callable[[type[Request], tuple[object, ...]], Request]", tuple.__new__)
"""Half the time of the constructor, on the one path that every request takes."""


class Engine:
    """The shared state of one batcher."""

    def __init__(self, options: Options, name: str, *, streams: bool = False) -> None:
        self.options = options
        self.name = name
        self.streams = streams
        self.metrics = Metrics()
        self.waker: Waker | None = None
        self.move: Callable[[AbstractEventLoop | None], None] | None = None
        """Where batches run on an event loop: told, under the lock, of a caller that is not on it, before it is queued."""
        self.teller = BatcherCallbacks(name, options)
        self._rule = options.rule()
        self._key = options.key
        self._size = options.size
        self._sized = options.size is not None
        self._within_s = options.within_s
        self.reset()

    def reset(self) -> None:
        """Forget requests, waits and locks: the first state, and that of a forked child, whose parent keeps the requests."""
        options = self.options
        self.lock = threading.Lock()
        self.metrics.lock = threading.Lock()
        self.state = State.OPEN
        self._limit = options.max_queue
        self.lanes = Lanes(
            max_batch=options.max_batch,
            max_size=options.max_size,
            padded=options.padded,
            ordered=options.ordered,
            batch_sizes=options.batch_sizes,
        )
        self.running = 0
        self.in_flight = 0
        self.home: AbstractEventLoop | None = None
        """The event loop on which an asynchronous batch function runs; None in worker threads."""
        self.traffic = Traffic(self._rule)
        self._wake_at = 1
        self._last_loop: AbstractEventLoop | None = None
        self._held: deque[tuple[Request, ThreadFuture[None] | None]] = deque()
        self._admitted: list[ThreadFuture[None]] = []
        self._refused_since_sweep = NEVER
        self._drained: list[ThreadFuture[None]] = []

    # ------------------------------------------------------------ requests come in

    def put(
        self,
        item: object,
        reply: Reply,
        loop: AbstractEventLoop | None,
        priority: int,
        within_s: float | None,
        admitted: ThreadFuture[None] | None = None,
    ) -> bool:
        """Queue one item, or hold it until the queue has room, which ends `admitted`; say whether it is held.

        Raises `QueueFull`, `BatcherClosed`, `ItemTooLarge`, or what the key and size functions raise.
        """
        now_s = monotonic()
        if within_s is None:
            within_s = self._within_s
        if priority.__class__ is not int:
            priority = self._whole(priority)
        key = None if self._key is None else self._key(item)
        size = 1 if self._size is None else self._measure(item)
        deadline_s = inf if within_s is None else now_s + within_s
        request = _new_request(Request, (item, reply, loop, key, priority, size, now_s, deadline_s))
        lanes = self.lanes
        with self.lock:
            if self.move is not None and (loop is None or loop is not self.home):
                self.move(loop)
            if lanes.count >= self._limit and self._not_admitted(request, admitted):
                return True
            lane = lanes.add(request)
            self.traffic.arrivals.append(now_s)
            if lanes.count < self._wake_at and loop is self._last_loop and not (self._sized and self._fills(lane)):
                return False
            complete = 1 < self._wake_at <= lanes.count
            self._last_loop = loop
            self._wake_at = NEVER
        if self.waker is not None:
            self.waker.wake(loop, complete)
        return False

    def _fills(self, lane: Lane) -> bool:
        """Say whether a lane that is being waited for has become full by size."""
        return self._wake_at != NEVER and self.lanes.is_full(lane)

    def _whole(self, priority: object) -> int:
        """Return a priority as an int; anything that cannot be compared with the others would stop the worker."""
        try:
            return index(cast("int", priority))
        except TypeError:
            raise UsageError(f"{self.name}: priority must be a whole number (saw {priority!r})") from None

    def refuse_own_call(self) -> None:
        """Raise `UsageError` inside this engine's own batch function: it would wait for itself."""
        if self in inside.get(()):
            raise UsageError(
                f"{self.name}: called from inside its own batch function, which would wait for itself; "
                "call the function behind it (`.function`) with a list instead"
            )

    def _measure(self, item: object) -> int:
        assert self._size is not None
        size = self._size(item)
        if not _is_amount(size):
            raise UsageError(f"{self.name}: the size function must return an amount of 0 or more (saw {size!r})")
        max_size = self.options.max_size
        if max_size is not None and size > max_size:
            self.metrics.count_refused("too_large")
            raise ItemTooLarge(
                f"{self.name}: an item of size {size} exceeds max_size {max_size}, the largest total of a batch; "
                "split the item or raise max_size"
            )
        return size

    def _not_admitted(self, request: Request, admitted: ThreadFuture[None] | None) -> bool:
        """Hold a request for which there is no room; raise where that is not wanted, unless a sweep makes room."""
        if self.state is not State.OPEN:
            self.metrics.count_refused("closed")
            raise BatcherClosed(f"{self.name}: the batcher is {self.state.value} and takes no more requests")
        if self.options.when_full == "wait":
            self._held.append((request, admitted))
            return True
        self._refused_since_sweep += 1
        if self._refused_since_sweep * SWEEP_SHARE >= self.options.max_queue:
            self._refused_since_sweep = 0
            if self.lanes.sweep():
                return False
        self.metrics.count_refused("full")
        raise QueueFull(
            f"{self.name}: {self.lanes.count} requests wait, the most that max_queue allows; "
            "answer 503, add a replica, or set when_full='wait'"
        )

    def _admit(self) -> bool:
        """Move held requests into the room that has become free; say whether there was any."""
        before = len(self._held)
        while self._held and self.lanes.count < self.options.max_queue:
            request, waiter = self._held.popleft()
            if not request.reply.done():
                self.lanes.add(request)
            if waiter is not None:
                self._admitted.append(waiter)
        return len(self._held) < before

    # ------------------------------------------------------------ batches go out

    def next_step(self, here: AbstractEventLoop | None = None) -> Step:
        """Decide under the lock: a batch to run now, a wait, or the end.

        `here` is the event loop that asks: one that is no longer the home gets nothing, since the callers of others wait
        too.
        """
        late: list[Request] = []
        with self.lock:
            if here is not self.home:
                return Step(None)
            step = self._decide(monotonic(), late)
            if step.taken is not None:
                self.running += 1
                self.in_flight += len(step.taken.batch)
                step.taken.lane.running += 1
            if self._held:
                self._admit()
            admitted, self._admitted = self._admitted, []
        for waiter in admitted:
            _finish(waiter)
        if late:
            refuse(late, self._too_late(), self.metrics, "deadline")
        return step

    def _decide(self, now_s: float, late: list[Request]) -> Step:
        self._wake_at = NEVER
        while True:
            lane = self.lanes.next_lane()
            if lane is None:
                if self._held and self._admit():
                    continue
                return self._idle()
            decision = self.traffic.wait_for(lane, now_s) if self._could_wait(lane) else None
            if decision is not None:
                self._wake_at = decision.wake_at
                return Step(None, decision.wait_s)
            taken = self.lanes.take(lane, now_s)
            late += taken.late
            if taken.batch:
                return Step(taken)

    def _idle(self) -> Step:
        """Nothing waits: sleep until the first arrival, or until as many as are expected to come together."""
        if self.lanes.count == 0 and self.state is not State.OPEN:
            self._end_if_drained()
            return ENDED
        self._wake_at = 1
        return Step(None)

    def _could_wait(self, lane: Lane) -> bool:
        """Return whether waiting is considered at all: others may join, and no other request is delayed by it."""
        if not self.traffic.may_wait:
            return False
        return not self.lanes.is_full(lane) and self.state is State.OPEN and self.lanes.only_one()

    def _too_late(self) -> DeadlineExceeded:
        return DeadlineExceeded(f"{self.name}: the answer would have come after the request's deadline; it was not run")

    # ------------------------------------------------------------ runs come back

    def observe(self, lane: Lane, requests: Sequence[Request], run_s: float, *, failed: bool, extra: bool) -> None:
        """Learn from one run of the batch function and count it."""
        items = len(requests)
        if not failed:
            total = sum([request.size for request in requests]) if self._sized else items
            lane.time = observe_run(lane.time, total, run_s)
            if lane.cap.reduced:
                full = lane.cap.limit if items == self.lanes.limit(lane) else items
                lane.cap = observe_fit(lane.cap, full, self._rule.max_batch)
            self.teller.window(self._rule, lane.time)
        self.metrics.count_run(items, run_s, extra=extra)

    def out_of_memory(self, lane: Lane, items: int) -> None:
        """Remember that a batch of `items` did not fit, and call the user's hook."""
        lane.cap = observe_oom(lane.cap, items)
        lane.cap = lane.cap._replace(limit=self.lanes.limit(lane))
        with self.metrics.lock:
            self.metrics.out_of_memory += 1
        self.teller.out_of_memory(lane, items)

    def finished(self, taken: Taken) -> None:
        """Close the books of a batch whose requests are all settled."""
        with self.lock:
            self.running -= 1
            taken.lane.running -= 1
            taken.lane.ended_s = monotonic()
            self.in_flight -= len(taken.batch)
            self._end_if_drained()

    def end_cycle(self, taken: Taken) -> Ended:
        """Begin a new cycle with the answers about to leave; return the one that ends, to learn from when there is time."""
        now_s = monotonic()
        with self.lock:
            return self.traffic.end_cycle(len(taken.batch), now_s, empty=self.lanes.count == 0)

    def learn(self, taken: Taken, run_s: float, ended: Ended) -> None:
        """Learn from a batch that ran well, and from how arrivals followed the answers before it."""
        self.observe(taken.lane, taken.batch, run_s, failed=False, extra=False)
        self.traffic.learn(taken.lane.time, ended)

    # ------------------------------------------------------------ the end

    def drain(self) -> ThreadFuture[None]:
        """Take no more requests; return a future that ends when all accepted ones are settled."""
        done: ThreadFuture[None] = ThreadFuture()
        with self.lock:
            self._stop_taking()
            self._drained.append(done)
            self._end_if_drained()
        if self.waker is not None:
            self.waker.wake_all()
        return done

    def _stop_taking(self) -> None:
        if self.state is State.OPEN:
            self.state = State.DRAINING
        self._limit = -1

    def _end_if_drained(self) -> None:
        if self.state is State.OPEN or self.lanes.count or self._held or self.running:
            return
        self.state = State.CLOSED
        drained, self._drained = self._drained, []
        for done in drained:
            _finish(done)

    def close(self) -> None:
        """Take no more requests and refuse those that wait; what runs is answered."""
        with self.lock:
            self._stop_taking()
            waiting = self.lanes.clear() + [request for request, _ in self._held]
            admitted = [waiter for _, waiter in self._held if waiter is not None]
            self._held.clear()
            self._end_if_drained()
        refuse(waiting, BatcherClosed(f"{self.name}: closed before the request was run"), self.metrics, "closed")
        for waiter in admitted:
            _finish(waiter)
        self.drain()

    def stats(self) -> Stats:
        """Return a snapshot of counters and gauges."""
        metrics = self.metrics
        with self.lock:
            waiting, held, running = self.lanes.count, len(self._held), self.in_flight
            caps: dict[object, int] = {lane.key: lane.cap.limit for lane in self.lanes.every() if lane.cap.reduced}
        with metrics.lock:
            return Stats(
                waiting, held, running, metrics.answered, metrics.failed, metrics.abandoned, dict(metrics.refused),
                metrics.runs, metrics.extra_runs, metrics.items, metrics.poisoned, metrics.out_of_memory,
                metrics.busy_s, caps,
            )  # fmt: skip


def _finish(waiter: ThreadFuture[None]) -> None:
    """Let a waiting caller go on, unless it gave up."""
    if waiter.set_running_or_notify_cancel():
        waiter.set_result(None)


def _is_amount(size: object) -> bool:
    try:
        return bool(cast("float", size) >= 0)
    except TypeError:
        return False
