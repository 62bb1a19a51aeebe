"""Models and hooks that fail: who is told, and that the next request is served."""

import asyncio

import pytest
from packages.runtime.tests.batcher.callers import Model, final_stats, until, wrapped

from trimtab_runtime import batch
from trimtab_runtime.errors import (
    WorkerLost,
    WrongResults,
)


def test_one_poison_item_fails_alone():
    @batch
    def invert(items: list[float]) -> list[float]:
        return [1 / item for item in items]

    async def scenario():
        return await asyncio.gather(*[invert(item) for item in (1, 2, 0, 4)], return_exceptions=True)

    answers = asyncio.run(scenario())

    assert isinstance(answers.pop(2), ZeroDivisionError)
    assert answers == [1, 0.5, 0.25]
    assert final_stats(invert).poisoned == 1


def test_an_exception_among_the_results_fails_its_item_alone():
    @batch
    def model(items: list[int]) -> list[object]:
        return [ValueError("odd") if item % 2 else item for item in items]

    async def scenario():
        return await asyncio.gather(*[model(item) for item in range(3)], return_exceptions=True)

    zero, one, two = asyncio.run(scenario())

    assert (zero, two) == (0, 2)
    assert isinstance(one, ValueError)
    assert final_stats(model).runs == 1


def test_out_of_memory_halves_the_batch_and_is_remembered_for_its_key_only():
    sizes = []

    @batch(max_batch=16, key=lambda item: item[0])
    def model(items: list[tuple[str, int]]) -> list[int]:
        sizes.append((items[0][0], len(items)))
        if items[0][0] == "big" and len(items) > 4:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return [number for _, number in items]

    async def scenario():
        for key in ("big", "big", "small"):
            answers = await model.map((key, number) for number in range(16))
            assert answers == list(range(16))

    asyncio.run(scenario())

    assert sizes[:3] == [("big", 16), ("big", 8), ("big", 4)]
    # a busy machine may take them in two batches
    assert all(size <= 4 for key, size in sizes[3:] if key == "big")
    small = [size for key, size in sizes if key == "small"]
    assert sum(small) == 16
    assert max(small) > 4
    assert model.stats().caps == {"big": 4}


def test_the_memory_hook_runs_and_its_failure_does_no_harm():
    calls = []

    def hook():
        calls.append(1)
        raise OSError("no device")

    @batch(on_oom=hook)
    def model(items: list[int]) -> list[int]:
        if len(items) > 1:
            raise MemoryError
        return items

    async def scenario():
        return await model.map([1, 2])

    assert asyncio.run(scenario()) == [1, 2]
    assert calls == [1]


@pytest.mark.parametrize("returned", [[1], [1, 2, 3], None, "ab", {1: 2, 3: 4}, 7])
def test_a_wrong_number_of_results_is_a_clear_error_for_each_caller(returned):
    @batch(name="embedder")
    def model(items: list[int]) -> list[int]:
        return returned

    async def scenario():
        return await asyncio.gather(model(1), model(2), return_exceptions=True)

    errors = asyncio.run(scenario())

    assert all(isinstance(error, WrongResults) for error in errors)
    assert "embedder" in str(errors[0])
    assert "2 items" in str(errors[0])
    assert final_stats(model).runs == 1


def test_a_model_that_ends_its_thread_is_an_error_and_the_next_request_is_served():
    @batch
    def model(items: list[str]) -> list[str]:
        if "exit" in items:
            raise SystemExit(1)
        return items

    with pytest.raises(WorkerLost, match="SystemExit"):
        model.call("exit")
    assert model.call("fine") == "fine"


def test_a_hook_that_fails_is_told_to_the_callers_and_the_next_request_is_served(caplog):
    def broken_hook(error):
        raise KeyError("no such error")

    @batch(isolate=broken_hook)
    def model(items: list[int]) -> list[int]:
        return [1 // item for item in items]

    async def scenario():
        return await asyncio.gather(model(0), model(1), return_exceptions=True)

    assert all(isinstance(answer, KeyError) for answer in asyncio.run(scenario()))
    assert model.call(1) == 1
    assert "could not be settled" in caplog.text


def test_a_loop_that_shuts_down_does_not_run_its_model_again():
    runs = []

    @batch
    async def model(items: list[int]) -> list[int]:
        runs.append(items)
        await asyncio.sleep(30)
        return items

    async def leaves():
        waiting = [asyncio.ensure_future(model(number)) for number in range(4)]
        await until(lambda: runs)
        return waiting

    asyncio.run(leaves())

    assert runs == [[0, 1, 2, 3]]
    assert model.stats().running == 0


def test_a_closed_event_loop_loses_its_answers_and_nothing_else():
    model = Model(held=True)
    batcher = wrapped(model)

    async def abandons():
        batcher(1)
        await until(model.running.is_set)

    asyncio.run(abandons())
    model.go.set()

    assert batcher.call(2) == 20
    assert final_stats(batcher).abandoned == 1


def test_a_loop_that_ends_before_its_request_was_looked_at_does_not_block_the_next():
    batcher = wrapped(Model())

    async def leaves_at_once():
        batcher(1)

    async def stays():
        return await batcher(2)

    asyncio.run(leaves_at_once())
    assert asyncio.run(stays()) == 20


def test_the_callback_is_told_of_each_run_and_its_failure_does_no_harm():
    reports = []

    def note(report):
        reports.append(report)
        raise ValueError("a broken callback")

    batcher = wrapped(Model(), on_batch=note, name="noted", key=lambda item: "k")

    assert batcher.call(1) == 10
    batcher.drain_wait(5)
    assert (reports[0].name, reports[0].key, reports[0].items, reports[0].error) == ("noted", "k", 1, None)
