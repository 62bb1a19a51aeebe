"""A queue that is full: refusals, and callers that wait for room."""

import asyncio
import itertools
import threading

import pytest
from packages.runtime.tests.batcher.callers import Model, held_batcher, wrapped

from trimtab_runtime.errors import (
    QueueFull,
)


def test_a_full_queue_refuses_when_told_to():
    async def scenario():
        model = Model(held=True)
        batcher, first = await held_batcher(model, max_queue=2, when_full="refuse")
        tasks = [asyncio.ensure_future(batcher(item)) for item in (1, 2)]
        with pytest.raises(QueueFull, match="2 requests wait"):
            batcher(3)
        model.go.set()
        await asyncio.gather(first, *tasks)
        return batcher.stats().refused["full"]

    assert asyncio.run(scenario()) == 1


def test_a_full_queue_makes_callers_wait_in_order():
    async def scenario():
        model = Model(held=True)
        batcher, first = await held_batcher(model, max_queue=2, max_batch=2)
        tasks = [asyncio.ensure_future(batcher(item)) for item in range(1, 9)]
        await asyncio.sleep(0.01)
        waiting = batcher.stats().waiting
        model.go.set()
        await asyncio.gather(first, *tasks)
        return waiting, model.batches

    waiting, batches = asyncio.run(scenario())

    assert waiting == 2
    assert list(itertools.chain(*batches)) == list(range(9))


def test_cancelled_requests_make_room_in_a_full_queue():
    async def scenario():
        model = Model(held=True)
        batcher, first = await held_batcher(model, max_queue=2, when_full="refuse")
        gone = [asyncio.ensure_future(batcher(item)) for item in (1, 2)]
        for each in gone:
            each.cancel()
        await asyncio.sleep(0)
        last = batcher(3)
        model.go.set()
        return await first, await last

    assert asyncio.run(scenario()) == (0, 30)


@pytest.mark.parametrize("drained", [False, True])
def test_held_requests_are_run_when_all_that_kept_them_out_was_cancelled(drained):
    async def scenario():
        model = Model(held=True)
        batcher, first = await held_batcher(model, max_queue=2)
        gone = [asyncio.ensure_future(batcher(item)) for item in (1, 2)]
        held = [asyncio.ensure_future(batcher(item)) for item in (3, 4, 5)]
        for each in (*gone, held[1]):
            each.cancel()
        await asyncio.sleep(0)
        draining = [asyncio.ensure_future(batcher.drain())] if drained else []
        model.go.set()
        return await asyncio.wait_for(asyncio.gather(first, held[0], held[2], *draining), 5)

    assert asyncio.run(scenario())[:3] == [0, 30, 50]


def test_a_thread_waits_for_room_too():
    model = Model(held=True)
    batcher = wrapped(model, max_queue=1, max_batch=1)
    first = batcher.submit(0)
    assert model.running.wait(5)
    second = batcher.submit(1)
    thirds = []
    thread = threading.Thread(target=lambda: thirds.append(batcher.call(2)))
    thread.start()
    thread.join(0.05)
    assert not thirds

    model.go.set()
    thread.join(5)

    assert (first.result(5), second.result(5), thirds) == (0, 10, [20])
