"""Results without an order, copied objects, broken streams and hung processes."""

import asyncio
import copy
import gc
import pickle
import threading
import time

import pytest
from packages.runtime.tests.batcher import models
from packages.runtime.tests.batcher.callers import until

from trimtab_runtime import batch
from trimtab_runtime.batcher import DONE
from trimtab_runtime.errors import UsageError, WorkerLost, WrongResults


@pytest.mark.parametrize("unordered", [set, frozenset, lambda items: dict.fromkeys(items).keys(), dict.fromkeys])
def test_results_without_an_order_are_refused(unordered):
    @batch
    def model(items: list[int]) -> object:
        return unordered(items)

    with pytest.raises(WrongResults, match="order"):
        model.call(1, timeout_s=5)


class Scaler:
    def __init__(self, factor):
        self.factor = factor

    @batch
    def scale(self, items: list[int]) -> list[int]:
        return [self.factor * item for item in items]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda scaler: pickle.loads(pickle.dumps(scaler))])
def test_a_copied_object_answers_with_its_own_weights(copied):
    original = Scaler(2)
    assert original.scale.call(1) == 2

    clone = copied(original)
    clone.factor = 3

    assert (clone.scale.call(1), original.scale.call(1)) == (3, 2)
    del original
    gc.collect()
    assert clone.scale.call(2) == 6


class Counter:
    """A generator function that yields numbers until nobody reads, and says so."""

    def __init__(self):
        self.ended = threading.Event()

    def numbers(self, items):
        try:
            for number in range(2_000):
                time.sleep(0.001)
                yield [number] * len(items)
        finally:
            self.ended.set()


def test_breaking_out_of_a_stream_ends_its_generator_and_frees_the_worker():
    counter = Counter()

    @batch
    def numbers(items: list[int]):
        yield from counter.numbers(items)

    for number in numbers.call(1):
        if number == 3:
            break

    assert counter.ended.wait(1)


def test_breaking_out_of_an_async_stream_ends_its_generator():
    counter = Counter()

    @batch
    def numbers(items: list[int]):
        yield from counter.numbers(items)

    async def scenario():
        async for number in numbers(1):
            if number == 3:
                break
        await until(counter.ended.is_set, 1)

    asyncio.run(scenario())


def letters(words):
    """Yield a letter of each word a turn; fail in the third turn where a word is bad."""
    for place in range(6):
        if place == 2 and "badbad" in words:
            raise ValueError("a bad word")
        yield [word[place] if place < len(word) else DONE for word in words]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_stream_that_fails_midway_fails_alone_and_the_others_read_every_part_once(asynchronous):
    if asynchronous:

        @batch
        async def spell(words: list[str]):
            for parts in letters(words):
                yield parts
    else:

        @batch
        def spell(words: list[str]):
            yield from letters(words)

    async def read(word):
        seen = []
        try:
            async for letter in spell(word):
                seen.append(letter)  # noqa: PERF401  # what was read before the error counts
        except ValueError as error:
            seen.append(str(error))
        return "".join(seen)

    async def scenario():
        return await asyncio.gather(*[read(word) for word in ("ab", "abcdef", "badbad", "uvwxyz", "")])

    assert asyncio.run(scenario()) == ["ab", "abcdef", "baa bad word", "uvwxyz", ""]


def test_a_stream_that_a_second_run_would_not_repeat_fails_with_the_error():
    runs = []

    @batch
    def sample(words: list[str]):
        runs.append(words)
        yield [f"{word} of run {len(runs)}" for word in words]
        if "bad" in words:
            raise ValueError("a bad word")

    async def read(word):
        return [part async for part in sample(word)]

    async def scenario():
        return await asyncio.gather(read("good"), read("bad"), return_exceptions=True)

    good, bad = asyncio.run(scenario())

    assert isinstance(bad, ValueError)
    assert isinstance(good, ValueError)


def test_parts_are_not_sent_twice_where_they_are_not_kept():
    @batch(isolate=False)
    def spell(words: list[str]):
        yield [word[0] for word in words]
        if len(words) > 1:
            raise MemoryError("out of memory")
        yield [word[1] for word in words]

    async def read(word, seen):
        seen.extend([letter async for letter in spell(word)])

    async def scenario():
        seen: list[list[str]] = [[], []]
        return await asyncio.gather(read("ab", seen[0]), read("cd", seen[1]), return_exceptions=True)

    assert [type(error) for error in asyncio.run(scenario())] == [MemoryError, MemoryError]


@pytest.mark.timeout(60)
def test_a_hung_worker_process_is_replaced_after_the_limit():
    with pytest.raises(WorkerLost, match="longer than"):
        models.hang_on_seven.call(7, timeout_s=30)

    assert models.hang_on_seven.call(8, timeout_s=30) == 8
    models.hang_on_seven.drain_wait(20)


def test_a_limit_on_runs_is_for_processes():
    with pytest.raises(UsageError, match="process"):
        batch(run_limit_s=1.0)
