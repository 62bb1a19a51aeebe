"""Draining, closing, and batchers that nobody holds."""

import asyncio
import gc
import threading
import time

import pytest
from packages.runtime.tests.batcher.callers import Model, held_batcher, wrapped

from trimtab_runtime import batch
from trimtab_runtime.errors import (
    BatcherClosed,
)


def test_draining_finishes_what_was_accepted_and_refuses_the_rest():
    async def scenario():
        model = Model(held=True)
        batcher, first = await held_batcher(model, max_batch=2)
        tasks = [asyncio.ensure_future(batcher(item)) for item in range(1, 6)]
        await asyncio.sleep(0)
        draining = asyncio.ensure_future(batcher.drain())
        await asyncio.sleep(0.01)
        with pytest.raises(BatcherClosed, match="draining"):
            batcher(9)
        assert not draining.done()
        model.go.set()
        await asyncio.wait_for(draining, 5)
        return await asyncio.gather(first, *tasks)

    assert asyncio.run(scenario()) == [item * 10 for item in range(6)]


def test_draining_in_time_or_a_timeout():
    async def scenario():
        model = Model(held=True)
        batcher, first = await held_batcher(model)
        with pytest.raises(TimeoutError):
            await batcher.drain(0.01)
        model.go.set()
        await batcher.drain(5)
        return await first

    assert asyncio.run(scenario()) == 0


def test_closing_refuses_what_waits_and_answers_what_runs():
    async def scenario():
        model = Model(held=True)
        batcher, first = await held_batcher(model)
        waiting = asyncio.ensure_future(batcher(1))
        await asyncio.sleep(0)
        batcher.close()
        model.go.set()
        return await asyncio.gather(first, waiting, return_exceptions=True)

    first, waiting = asyncio.run(scenario())

    assert first == 0
    assert isinstance(waiting, BatcherClosed)


def test_an_idle_batcher_drains_at_once_and_ends_its_thread():
    with wrapped(Model(), name="ephemeral") as batcher:
        batcher.call(1)

    ended = time.monotonic() + 5
    while any("ephemeral" in thread.name for thread in threading.enumerate()):
        assert time.monotonic() < ended
        time.sleep(0.001)


def test_a_batcher_that_nobody_holds_ends_its_thread():
    batcher = wrapped(Model(), name="forgotten")
    batcher.call(1)

    del batcher
    gc.collect()

    ended = time.monotonic() + 5
    while any("forgotten" in thread.name for thread in threading.enumerate()):
        assert time.monotonic() < ended
        time.sleep(0.001)


def test_the_loop_that_serves_threads_ends_with_its_batcher():
    @batch(name="background")
    async def model(items: list[int]) -> list[int]:
        return items

    with model:
        assert model.call(1) == 1

    ended = time.monotonic() + 5
    while any("background" in thread.name for thread in threading.enumerate()):
        assert time.monotonic() < ended
        time.sleep(0.001)
