"""Run asynchronous batch functions on the event loop of their callers; thread callers share a loop of their own."""

from __future__ import annotations

import asyncio
import threading
from asyncio import AbstractEventLoop
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress

from trimtab_runtime.batcher.engine import Engine
from trimtab_runtime.batcher.lanes import Taken
from trimtab_runtime.batcher.recovery import Attempt, Outcome
from trimtab_runtime.batcher.request import Request
from trimtab_runtime.batcher.running import Run
from trimtab_runtime.batcher.steps import FOREVER_S, Waker

AsyncCall = Callable[[list[object]], Awaitable[object] | AsyncIterator[object]]


class LoopRunner:
    """Batches as tasks of an event loop, at most `workers` at a time."""

    def __init__(self, engine: Engine, call: AsyncCall) -> None:
        self._engine = engine
        self._call = call
        self.reset()
        engine.waker = Waker(self.wake, self.wake_all)

    def reset(self) -> None:
        """Forget loops and tasks, as a forked child must."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._own_loop: AbstractEventLoop | None = None
        self._last_loop: AbstractEventLoop | None = None
        self._lock = threading.Lock()

    def wake(self, loop: AbstractEventLoop | None, complete: bool) -> None:
        """Look at the queue in the next turn of the caller's loop, so that others of this turn can join."""
        if loop is None:
            self._background().call_soon_threadsafe(self._pump)
        else:
            self._last_loop = loop
            loop.call_soon(self._pump)

    def wake_all(self) -> None:
        """Look at the queue once more, to see that the batcher is closing."""
        for loop in (self._last_loop, self._own_loop):
            if loop is not None:
                with suppress(RuntimeError):  # closed: it has nothing left to look for
                    loop.call_soon_threadsafe(self._pump)

    def _background(self) -> AbstractEventLoop:
        with self._lock:
            if self._own_loop is None:
                self._own_loop = asyncio.new_event_loop()
                name = f"batcher {self._engine.name}"
                threading.Thread(target=_run, args=(self._own_loop,), name=name, daemon=True).start()
            return self._own_loop

    def _pump(self) -> None:
        """Start batches until none is due or as many run as may."""
        loop = asyncio.get_running_loop()
        self._forget_dead_loops()
        while len(self._tasks) < self._engine.options.workers:
            step = self._engine.next_step()
            if step.taken is None:
                if step.ended and loop is self._own_loop and not self._tasks:
                    loop.stop()
                elif not step.ended and step.wait_s != FOREVER_S:
                    loop.call_later(step.wait_s, self._pump)
                return
            task = loop.create_task(self._run(step.taken, loop))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        task.get_loop().call_soon(self._pump)  # behind the callers just answered, so that they can join

    def _forget_dead_loops(self) -> None:
        """Free the places of tasks whose loop was closed under them."""
        self._tasks = {task for task in self._tasks if not task.get_loop().is_closed()}

    async def _run(self, taken: Taken, loop: AbstractEventLoop) -> None:
        run = Run(self._engine, taken, loop)
        with Attempt() as whole:
            await self._run_and_settle(run)
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
            if isinstance(returned, AsyncIterator):
                results = await run.stream_async(requests, returned)
            else:
                results = run.results(requests, await returned)
        return Outcome(results, tried.error)


def _run(loop: AbstractEventLoop) -> None:
    """Run the loop that thread callers share until the batcher ends."""
    loop.run_forever()
    loop.close()
