"""What one caller does wrong, or what goes away with it, must not reach the others."""

import asyncio
import contextlib
import threading
import time

import pytest
from packages.runtime.tests.batcher.callers import Model, final_stats, until, wrapped

from trimtab_runtime import batch
from trimtab_runtime.errors import BatchError, UsageError


def test_a_thread_that_gives_up_while_its_batch_runs_does_not_fail_its_neighbours():
    model = Model(held=True)
    batcher = wrapped(model, max_batch=3, window_s=10)
    quitter = threading.Thread(target=_give_up, args=(batcher,))
    quitter.start()
    neighbours = [batcher.submit(item) for item in (2, 3)]
    assert model.running.wait(5)
    quitter.join(5)
    model.go.set()

    assert [reply.result(5) for reply in neighbours] == [20, 30]
    batcher.drain_wait(5)


def _give_up(batcher):
    with contextlib.suppress(TimeoutError):
        batcher.call(1, timeout_s=0.2)


def test_replies_cancelled_by_threads_while_their_batch_runs_are_counted_and_harm_nobody():
    model = Model(held=True)
    batcher = wrapped(model, max_batch=4, window_s=10)
    replies = [batcher.submit(item) for item in range(4)]
    assert model.running.wait(5)
    for reply in replies[::2]:
        reply.cancel()
    model.go.set()

    assert [reply.result(5) for reply in replies[1::2]] == [10, 30]
    stats = final_stats(batcher)
    assert (stats.answered, stats.abandoned, stats.running) == (2, 2, 0)


@pytest.mark.timeout(60)
def test_an_async_function_shared_by_short_lived_loops_and_threads_loses_nothing():
    @batch(max_batch=16)
    async def model(items: list[int]) -> list[int]:
        await asyncio.sleep(0.0005)
        return [2 * item for item in items]

    wrong: list[object] = []

    def loops():
        for item in range(60):
            try:
                if asyncio.run(_ask(model, item)) != 2 * item:
                    wrong.append(item)
            except BatchError as error:
                wrong.append(error)

    def threads():
        wrong.extend(item for item in range(200) if model.call(item, timeout_s=20) != 2 * item)

    workers = [threading.Thread(target=work, daemon=True) for work in (loops,) * 4 + (threads,) * 2]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(40)

    assert not any(worker.is_alive() for worker in workers)
    assert not wrong
    model.drain_wait(5)


async def _ask(model, item):
    return await model(item)


def test_one_loop_after_another_each_runs_its_own_batches():
    homes = []

    @batch
    async def model(items: list[int]) -> list[int]:
        homes.append(asyncio.get_running_loop())
        return items

    async def scenario():
        assert await model(1) == 1
        return asyncio.get_running_loop()

    assert [asyncio.run(scenario()) for _ in range(3)] == homes
    model.drain_wait(5)


def test_a_loop_that_is_closed_under_its_batch_does_not_hold_up_the_drain():
    started = []

    @batch
    async def model(items: list[int]) -> list[int]:
        started.append(items)
        await asyncio.sleep(60)
        return items

    loop = asyncio.new_event_loop()
    reply = loop.run_until_complete(_begin(model, started))
    loop.close()

    model.drain_wait(5)
    assert not reply.done()


async def _begin(model, started):
    reply = model(1)
    await until(lambda: started)
    return reply


@pytest.mark.parametrize("priority", ["high", 1.5, None, float("nan")])
def test_a_priority_that_is_no_whole_number_is_refused_to_its_caller_alone(priority):
    batcher = wrapped(Model())

    with pytest.raises(UsageError, match="priority"):
        batcher.call(1, priority=priority, timeout_s=5)
    assert batcher.call(2, priority=1, timeout_s=5) == 20


@pytest.mark.parametrize("size", [-1, float("nan"), "3"])
def test_a_size_that_is_no_amount_is_refused_to_its_caller_alone(size):
    batcher = wrapped(Model(), size=lambda item: size if item == 1 else 1, max_size=10)

    with pytest.raises(UsageError, match="size"):
        batcher.call(1, timeout_s=5)
    assert batcher.call(2, timeout_s=5) == 20


def test_a_function_that_calls_its_own_batcher_is_told_so():
    @batch
    def model(items: list[int]) -> list[int]:
        return [model.call(item - 1, timeout_s=2) if item else 0 for item in items]

    with pytest.raises(UsageError, match="its own batch function"):
        model.call(1, timeout_s=5)
    assert model.call(0, timeout_s=5) == 0


def test_an_async_function_that_awaits_its_own_batcher_is_told_so():
    @batch
    async def model(items: list[int]) -> list[int]:
        return await asyncio.gather(*[_below(model, item) for item in items])

    async def scenario():
        with pytest.raises(UsageError, match="its own batch function"):
            await asyncio.wait_for(model(1), 5)
        return await asyncio.wait_for(model(0), 5)

    assert asyncio.run(scenario()) == 0


async def _below(model, item):
    return await model(item - 1) if item else 0


def test_thousands_of_keys_that_wait_cost_no_more_each_than_few():
    def per_put_s(keys):
        model = Model(held=True)
        batcher = wrapped(model, key=lambda item: item, max_queue=keys + 1)
        batcher.submit(-1)
        assert model.running.wait(5)
        began = time.process_time()
        for item in range(keys):
            batcher.submit(item)
        spent_s = time.process_time() - began
        batcher.close()
        model.go.set()
        return spent_s / keys

    few_s = min(per_put_s(4_000) for _ in range(2))

    # looking through all keys at each took 130 times as long
    assert per_put_s(20_000) < 25 * few_s


@pytest.mark.timeout(60)
def test_a_batcher_collected_in_the_middle_of_a_lock_does_not_deadlock():
    def forgotten():
        batcher = wrapped(Model())
        batcher.call(1)
        return batcher._engine, batcher

    engine, batcher = forgotten()
    with engine.lock:  # as when the collector runs while the worker holds it
        del batcher

    ended = time.monotonic() + 5
    while engine.state.value != "closed":
        assert time.monotonic() < ended
        time.sleep(0.001)
