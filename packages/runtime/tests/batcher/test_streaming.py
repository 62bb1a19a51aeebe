"""Batch functions that yield, and callers that read their own parts."""

import asyncio
import threading

import pytest

from trimtab_runtime import batch
from trimtab_runtime.batcher import DONE
from trimtab_runtime.errors import UsageError, WrongResults


@batch
def count_down(items: list[int]):
    left = list(items)
    while any(number >= 0 for number in left):
        yield [number if number >= 0 else DONE for number in left]
        left = [number - 1 for number in left]


@batch
async def count_down_async(items: list[int]):
    for step in range(max(items) + 2):
        await asyncio.sleep(0)
        yield [number - step if number >= step else DONE for number in items]


async def read(stream):
    return [part async for part in stream]


@pytest.mark.parametrize("model", [count_down, count_down_async])
def test_each_caller_reads_its_own_parts(model):
    async def scenario():
        return await asyncio.gather(*[read(model(number)) for number in (2, 0, 1)])

    assert asyncio.run(scenario()) == [[2, 1, 0], [0], [1, 0]]


@pytest.mark.parametrize("model", [count_down, count_down_async])
def test_threads_read_streams_too(model):
    assert list(model.call(3)) == [3, 2, 1, 0]


def test_parts_arrive_while_the_function_still_runs():
    go = threading.Event()

    @batch
    def model(items: list[int]):
        yield ["first"] * len(items)
        assert go.wait(5)
        yield ["second"] * len(items)

    async def scenario():
        stream = model(1)
        first = await anext(stream)
        go.set()
        return [first, *await read(stream)]

    assert asyncio.run(scenario()) == ["first", "second"]


def test_an_exception_among_the_parts_ends_one_stream():
    @batch
    def model(items: list[int]):
        yield list(items)
        yield [ValueError("bad") if item == 2 else item for item in items]

    async def scenario():
        return await asyncio.gather(*[read(model(item)) for item in (1, 2)], return_exceptions=True)

    one, two = asyncio.run(scenario())

    assert one == [1, 1]
    assert isinstance(two, ValueError)


def test_a_failure_after_the_first_part_ends_the_open_streams_where_a_second_run_is_not_wanted():
    runs = []

    @batch(isolate=False)
    def model(items: list[int]):
        runs.append(items)
        yield [DONE if item == 1 else item for item in items]
        raise OSError("device lost")

    async def scenario():
        return await asyncio.gather(*[read(model(item)) for item in (1, 2)], return_exceptions=True)

    one, two = asyncio.run(scenario())

    assert one == []
    assert isinstance(two, OSError)
    assert runs == [[1, 2]]


def test_a_failure_before_the_first_part_is_isolated_like_any_other():
    @batch
    def model(items: list[int]):
        if 2 in items:
            raise ValueError("poison")
        yield list(items)

    async def scenario():
        return await asyncio.gather(*[read(model(item)) for item in (1, 2, 3)], return_exceptions=True)

    one, two, three = asyncio.run(scenario())

    assert (one, three) == ([1], [3])
    assert isinstance(two, ValueError)


def test_a_wrong_number_of_parts_is_a_clear_error():
    @batch(name="talker")
    def model(items: list[int]):
        yield [1, 2, 3]

    with pytest.raises(WrongResults, match="talker: the batch function returned 3 results for 1 items"):
        list(model.call(1))


@pytest.mark.parametrize("leave", ["aclose", "cancel"])
def test_the_function_is_stopped_once_nobody_reads_on(leave):
    stopped = threading.Event()
    go = threading.Event()

    @batch
    def model(items: list[int]):
        try:
            while True:
                yield list(items)
                go.wait(0.001)
        finally:
            stopped.set()

    async def scenario():
        stream = model(1)
        await anext(stream)
        if leave == "aclose":
            await stream.aclose()
        else:
            task = asyncio.ensure_future(read(stream))
            await asyncio.sleep(0.005)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await stream.aclose()
        await asyncio.to_thread(stopped.wait, 5)

    asyncio.run(scenario())

    assert stopped.is_set()


def test_methods_do_not_stream():
    with pytest.raises(UsageError, match="neither stream"):

        class Service:
            @batch
            def model(self, items: list[int]):
                yield items
