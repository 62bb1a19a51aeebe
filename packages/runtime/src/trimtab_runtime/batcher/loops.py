"""Run asynchronous batch functions on an event loop: their callers' while that is one and the same, else one of their own.

A batch must not end with the loop of a caller that has no part in it. So it runs on a caller's loop only while all callers are
there. From the first caller in a thread, or on another loop while the first is open, batches run on a loop of the batcher's
own, in a thread of its own, for good. Loops that follow one another, as `asyncio.run` makes them, each run their own batches.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import AbstractEventLoop
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress

from trimtab_runtime.batcher.engine import Engine, inside
from trimtab_runtime.batcher.recovery import Attempt, Outcome
from trimtab_runtime.batcher.request import Request
from trimtab_runtime.batcher.running import Run
from trimtab_runtime.batcher.steps import FOREVER_S, Waker

AsyncCall = Callable[[list[object]], Awaitable[object] | AsyncGenerator[object]]


class LoopRunner:
    """Batches as tasks of an event loop, at most `workers` at a time."""

    def __init__(self, engine: Engine, call: AsyncCall) -> None:
        self._engine = engine
        self._call = call
        self.reset()
        engine.waker = Waker(self.wake, self.wake_all)
        engine.move = self.move

    def reset(self) -> None:
        """Forget loops and tasks, as a forked child must."""
        self._runs: dict[asyncio.Task[None], Run] = {}
        self._own_loop: AbstractEventLoop | None = None
        self._lock = threading.Lock()

    # ------------------------------------------------------------ where batches run

    def move(self, loop: AbstractEventLoop | None) -> None:
        """Choose the loop on which batches run from now on; called under the engine's lock."""
        home = self._engine.home
        if home is not None and home is self._own_loop:
            return
        if loop is None or (home is not None and not home.is_closed()):
            self._engine.home = self._begin_own_loop()
        else:
            self._engine.home = loop

    def _begin_own_loop(self) -> AbstractEventLoop:
        loop = self._own_loop = asyncio.new_event_loop()
        name = f"batcher {self._engine.name}"
        threading.Thread(target=_run, args=(loop,), name=name, daemon=True).start()
        return loop

    def wake(self, loop: AbstractEventLoop | None, complete: bool) -> None:
        """Look at the queue in the next turn of the caller's loop, so that others of this turn can join."""
        if loop is None:
            self._pump_at_home()
        else:
            loop.call_soon(self._pump if loop is self._engine.home else self._pump_at_home)

    def wake_all(self) -> None:
        """Look at the queue once more, to see that the batcher is closing, wherever its loop has gone."""
        self._end_runs_of_closed_loops()
        engine = self._engine
        with engine.lock:
            if engine.home is not None and engine.home.is_closed() and engine.lanes.count:
                engine.home = self._begin_own_loop()
        self._pump_at_home()

    def _pump_at_home(self) -> None:
        home = self._engine.home
        if home is None:
            return
        with suppress(RuntimeError):  # closed: what waits is its own callers', who have gone with it
            home.call_soon_threadsafe(self._pump)

    # ------------------------------------------------------------ batches

    def _pump(self) -> None:
        """Start batches until none is due or as many run as may."""
        loop = asyncio.get_running_loop()
        self._end_runs_of_closed_loops()
        while self._has_room():
            step = self._engine.next_step(loop)
            if step.taken is None:
                if self._engine.home is not loop:
                    self._pump_at_home()
                elif step.ended and loop is self._own_loop and not self._runs:
                    loop.stop()
                elif not step.ended and step.wait_s != FOREVER_S:
                    loop.call_later(step.wait_s, self._pump)
                return
            run = Run(self._engine, step.taken, loop)
            task = loop.create_task(self._run(run))
            with self._lock:
                self._runs[task] = run
            task.add_done_callback(self._ended)

    def _has_room(self) -> bool:
        """Say whether another batch may start. A loop that stands still does not keep others from running."""
        with self._lock:
            return sum(task.get_loop().is_running() for task in self._runs) < self._engine.options.workers

    def _ended(self, task: asyncio.Task[None]) -> None:
        with self._lock:
            self._runs.pop(task, None)
        home = self._engine.home
        if home is task.get_loop():
            home.call_soon(self._pump)  # behind the callers just answered, so that they can join
        else:
            self._pump_at_home()

    def _end_runs_of_closed_loops(self) -> None:
        """Drop batches whose event loop was closed: there is no caller left to answer."""
        with self._lock:
            closed = [task for task in self._runs if task.get_loop().is_closed()]
            runs = [self._runs.pop(task) for task in closed]
        for run in runs:
            run.abandon()

    async def _run(self, run: Run) -> None:
        here = [self._engine]
        inside.set(here)
        with Attempt() as whole:
            await self._run_and_settle(run)
        here.clear()
        run.end(whole.error)

    async def _run_and_settle(self, run: Run) -> None:
        outcome = await self._attempt(run, run.taken.batch)
        if outcome.error is None:
            run.succeed(outcome)
        else:
            run.fail(outcome)
            await self._recover(run, outcome.error)

    async def _recover(self, run: Run, error: Exception) -> None:
        steps = run.recovery(error)
        group = next(steps, None)
        while group is not None:
            outcome = await self._attempt(run, group)
            run.observe(group, outcome, extra=True)
            run.report(group, outcome)
            try:
                group = steps.send(outcome)
            except StopIteration:
                group = None

    async def _attempt(self, run: Run, requests: Sequence[Request]) -> Outcome:
        results: Sequence[object] = ()
        with Attempt() as tried:
            returned = self._call(run.items(requests))
            if isinstance(returned, AsyncGenerator):
                results = await run.stream_async(requests, returned)
            else:
                results = run.results(requests, await returned)
        return Outcome(results, tried.error)


def _run(loop: AbstractEventLoop) -> None:
    """Run the batcher's own loop until the batcher ends."""
    loop.run_forever()
    loop.close()
