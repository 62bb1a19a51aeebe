"""Run batches in worker threads, which start with the first request and wait to the microsecond between batches."""

from __future__ import annotations

import _thread
import logging
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from time import monotonic, sleep, thread_time
from typing import TYPE_CHECKING

from trimtab_runtime.batcher.engine import Engine
from trimtab_runtime.batcher.running import run_batch
from trimtab_runtime.batcher.steps import FOREVER_S, Waker
from trimtab_runtime.units import NS_PER_S

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

logger = logging.getLogger(__name__)

Call = Callable[[list[object]], object]

LONG_RUN_S = 0.002
"""A run that keeps the interpreter's lock makes others wait up to 5 ms (`sys.getswitchinterval`); shorter ones hurt little."""
KEPT_FRAC = 0.7
"""A run that was on the processor, or waited for one, for this share of its time kept the lock for most of it."""
GIVEN_FRAC = 0.25
"""The most of a run's time that is given to other threads after it."""
TURN_S = 100e-6
_ACCOUNT = "/proc/thread-self/schedstat"
"""Nanoseconds on a processor and waiting for one, and how often it got one (Linux, Documentation/scheduler/sched-stats.rst)."""
_HAS_LOCK = getattr(sys, "_is_gil_enabled", lambda: True)()
"""False in a free-threaded Python, where no run keeps anyone waiting."""


class Worker:
    """One thread's gate: a lock held while it sleeps, released to wake it."""

    __slots__ = ("gate", "signalled")

    def __init__(self) -> None:
        self.gate = _thread.allocate_lock()
        self.gate.acquire()
        self.signalled = False


class ThreadRunner:
    """Worker threads over one engine."""

    def __init__(self, engine: Engine, make_call: Callable[[], AbstractContextManager[Call]]) -> None:
        self._engine = engine
        self._make_call = make_call
        self._workers = engine.options.workers
        self.reset()
        engine.waker = Waker(self.wake, self.wake_all)

    def reset(self) -> None:
        """Forget all threads, as a forked child must: they run in the parent only."""
        self._idle: list[Worker] = []
        self._started = 0
        self._lock = threading.Lock()

    def wake(self, loop: AbstractEventLoop | None, complete: bool) -> None:
        """Let a worker look at the queue, one turn of the caller's loop later so that others of this turn can join."""
        if loop is None or complete:
            self.wake_one()
        else:
            loop.call_soon(self.wake_one)

    def wake_one(self) -> None:
        """Wake an idle worker, or start one while fewer run than are allowed."""
        with self._lock:
            if self._idle:
                worker = self._idle.pop()
                worker.signalled = True
                worker.gate.release()
                return
            if self._started >= self._workers:
                return
            self._started += 1
            worker = Worker()
        threading.Thread(target=self._serve, args=(worker,), name=f"batcher {self._engine.name}", daemon=True).start()

    def wake_all(self) -> None:
        """Wake every idle worker, to see that the batcher is closing."""
        with self._lock:
            for worker in self._idle:
                worker.signalled = True
                worker.gate.release()
            self._idle.clear()

    def _serve(self, worker: Worker) -> None:
        """Work until the batcher ends; whatever ends the thread, another may take its place."""
        try:
            self._work(worker)
        finally:
            with self._lock:
                self._started -= 1

    def _work(self, worker: Worker) -> None:
        """Ask for a step and do it."""
        with self._make_call() as call:
            self._steps(worker, call)

    def _steps(self, worker: Worker, call: Call) -> None:
        engine = self._engine
        was_long = False
        while True:
            with self._lock:
                self._idle.append(worker)
            step = engine.next_step()
            if step.taken is None and not step.ended:
                self._sleep(worker, step.wait_s)
                continue
            self._leave_idle(worker)
            if step.taken is None:
                return
            if self._idle or self._started < self._workers:
                self.wake_one()
            # reading the scheduler's account takes 10 us: too long for each of many short runs
            began_s, ready_s = monotonic(), _ready_s() if was_long else 0.0
            run_batch(engine, step.taken, call)
            run_s = monotonic() - began_s
            is_long = _HAS_LOCK and run_s > LONG_RUN_S
            if is_long and was_long and _ready_s() - ready_s > KEPT_FRAC * run_s:
                self._let_others_run(run_s)
            was_long = is_long

    def _let_others_run(self, run_s: float) -> None:
        """Give the interpreter's lock to the callers that wait for it, before the next run takes it.

        A batch function that launches kernels from Python holds that lock nearly all the time. Each caller that wakes with its
        answer, or comes with a request, then waits for a forced switch, 5 ms, and one after another: of 64 callers in threads
        the last would come after 0.3 s. While this thread sleeps, they pass one another the lock at once. Where a whole batch
        waits already, no time is given: a function may work in native code without the lock, and must not be slowed down.
        """
        lanes, until_s, seen = self._engine.lanes, monotonic() + GIVEN_FRAC * run_s, -1
        full = self._engine.options.max_batch
        while seen != lanes.count < full and monotonic() < until_s:
            seen = lanes.count
            sleep(TURN_S)

    def _sleep(self, worker: Worker, wait_s: float) -> None:
        """Sleep until woken or the wait is over. The worker was put among the idle before it looked, so no wake is lost."""
        if worker.gate.acquire(True, -1 if wait_s == FOREVER_S else wait_s):
            worker.signalled = False
        else:
            self._leave_idle(worker)

    def _leave_idle(self, worker: Worker) -> None:
        """Take the worker off the idle list, or eat the wake that has just taken it off."""
        with self._lock:
            if not worker.signalled:
                self._idle.remove(worker)
                return
        worker.gate.acquire()
        worker.signalled = False


def _ready_s() -> float:
    """Return how long this thread has been on a processor or, where Linux tells, has waited for one.

    A thread that a busy machine or the limit of a pod takes off its processor keeps the interpreter's lock while it waits.
    """
    try:
        with open(_ACCOUNT, "rb", buffering=0) as account:
            on_ns, waited_ns, _ = map(int, account.read(64).split())
    except (OSError, ValueError):  # another system
        return thread_time()
    # a kernel that keeps no account has zeros (fs/proc/base.c, proc_pid_schedstat)
    return (on_ns + waited_ns) / NS_PER_S if on_ns else thread_time()
