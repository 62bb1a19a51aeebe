"""Which requests share a batch, in which order batches leave, and what is refused for being late or large."""

import asyncio
import threading
import time

import pytest
from packages.runtime.tests.batcher.callers import Model, held_batcher, wrapped

from trimtab_runtime import batch
from trimtab_runtime.errors import (
    DeadlineExceeded,
    ItemTooLarge,
)


def test_late_work_is_refused_before_it_runs():
    async def scenario():
        model = Model(held=True)
        batcher, first = await held_batcher(model)
        late = asyncio.ensure_future(batcher(1, within_s=0.001))
        good = asyncio.ensure_future(batcher(2, within_s=60))
        await asyncio.sleep(0.01)
        model.go.set()
        return model, await asyncio.gather(first, late, good, return_exceptions=True), batcher.stats()

    model, (_, late, good), stats = asyncio.run(scenario())

    assert isinstance(late, DeadlineExceeded)
    assert isinstance(late, TimeoutError)
    assert good == 20
    assert model.batches == [[0], [2]]
    assert stats.refused["deadline"] == 1


def test_higher_priorities_go_first_and_equals_stay_in_order():
    async def scenario():
        model = Model(held=True)
        batcher, first = await held_batcher(model, max_batch=2)
        wanted = [(1, 0), (2, 5), (3, 0), (4, 5), (5, -1)]
        tasks = [asyncio.ensure_future(batcher(item, priority=priority)) for item, priority in wanted]
        await asyncio.sleep(0)
        model.go.set()
        await asyncio.gather(first, *tasks)
        return model.batches

    assert asyncio.run(scenario()) == [[0], [2, 4], [1, 3], [5]]


def test_keys_never_share_a_batch_and_take_turns():
    async def scenario():
        model = Model(held=True)
        batcher, first = await held_batcher(model, max_batch=2, key=lambda item: item % 2)
        tasks = [asyncio.ensure_future(batcher(item)) for item in (1, 3, 5, 7, 2, 4)]
        await asyncio.sleep(0)
        model.go.set()
        await asyncio.gather(first, *tasks)
        return model.batches

    assert asyncio.run(scenario()) == [[0], [1, 3], [2, 4], [5, 7]]


def test_a_batch_holds_no_more_than_the_largest_total_size():
    async def scenario(padded):
        model = Model(held=True)
        batcher, first = await held_batcher(model, size=lambda item: item, max_size=10, padded=padded)
        tasks = [asyncio.ensure_future(batcher(item)) for item in (2, 3, 4, 9, 1)]
        await asyncio.sleep(0)
        model.go.set()
        await asyncio.gather(first, *tasks)
        return model.batches[1:]

    assert asyncio.run(scenario(padded=False)) == [[2, 3, 4], [9, 1]]
    assert asyncio.run(scenario(padded=True)) == [[2, 3], [4], [9], [1]]


def test_an_item_above_the_largest_total_size_is_refused_and_never_starves():
    batcher = wrapped(Model(), size=lambda item: item, max_size=10)

    with pytest.raises(ItemTooLarge, match="11 exceeds max_size 10"):
        batcher.call(11)


def test_padding_hooks_run_around_the_function():
    seen = []

    def to_bucket(word):
        return 4 if len(word) <= 4 else 8

    @batch(key=to_bucket, pad=str.ljust, unpad=lambda result, word: result[: len(word)])
    def model(words: list[str]) -> list[str]:
        seen.append(words)
        return [word.upper() for word in words]

    async def scenario():
        return await model.map(["ab", "abcdef", "abcd"])

    assert asyncio.run(scenario()) == ["AB", "ABCDEF", "ABCD"]
    assert sorted(seen) == [["ab  ", "abcd"], ["abcdef  "]]


def test_two_workers_run_two_batches_at_once():
    barrier = threading.Barrier(2)

    @batch(max_batch=1, workers=2)
    def model(items: list[int]) -> list[int]:
        barrier.wait(5)
        return items

    assert model.call_map([1, 2, 3, 4]) == [1, 2, 3, 4]


def test_ordered_keys_run_one_batch_at_a_time():
    running, overlaps = set(), []

    @batch(max_batch=1, workers=4, ordered=True, key=lambda item: item % 2)
    def model(items: list[int]) -> list[int]:
        key = items[0] % 2
        overlaps.append(key in running)
        running.add(key)
        time.sleep(0.001)
        running.discard(key)
        return items

    assert model.call_map(range(40)) == list(range(40))
    assert not any(overlaps)
