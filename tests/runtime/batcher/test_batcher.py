"""What callers of a batched function see."""

import asyncio
import gc
import itertools
import threading
import time
import weakref

import pytest

from trimtab.errors import (
    BatcherClosed,
    DeadlineExceeded,
    ItemTooLarge,
    QueueFull,
    UsageError,
    WorkerLost,
    WrongResults,
)
from trimtab.runtime import batch


class Model:
    """A batch function that notes its batches, and can be held until released."""

    def __init__(self, *, held=False):
        self.batches = []
        self.go = threading.Event()
        self.running = threading.Event()
        if not held:
            self.go.set()

    def __call__(self, items):
        self.batches.append(list(items))
        self.running.set()
        assert self.go.wait(10)
        return [item * 10 if isinstance(item, int) else item for item in items]


def wrapped(model, **options):
    def run(items: list) -> list:
        return model(items)

    return batch(**options)(run)


def final_stats(batcher):
    """Return the counters once all books are closed: answers leave before they are counted."""
    batcher.drain_wait(5)
    return batcher.stats()


async def until(condition, timeout_s=5.0):
    ended = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < ended, "the condition never came true"
        await asyncio.sleep(0.001)


async def held_batcher(model, **options):
    """Return a batcher whose worker is inside the model with one item, so that the rest queues up."""
    batcher = wrapped(model, **options)
    first = asyncio.ensure_future(batcher(0))
    await until(model.running.is_set)
    return batcher, first


def test_callers_share_batches_and_get_their_own_results():
    model = Model()
    batcher = wrapped(model, max_batch=8)

    async def scenario():
        return await batcher.map(range(20))

    assert asyncio.run(scenario()) == [item * 10 for item in range(20)]
    assert model.batches[0] == list(range(8))
    assert list(itertools.chain(*model.batches)) == list(range(20))


def test_a_bare_decorator_batches_with_the_defaults():
    @batch
    def double(items: list[int]) -> list[int]:
        return [2 * item for item in items]

    assert double.call(4) == 8
    assert double.__name__ == "double"


def test_threads_share_batches_too():
    model = Model()
    batcher = wrapped(model)
    answers = {}

    def caller(number):
        answers[number] = batcher.call(number)

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert answers == {number: number * 10 for number in range(16)}
    assert batcher.call_map([1, 2]) == [10, 20]


def test_an_async_function_serves_coroutines_and_threads():
    @batch(max_batch=4)
    async def model(items: list[int]) -> list[int]:
        await asyncio.sleep(0)
        return [item + 1 for item in items]

    async def scenario():
        mine = await model.map(range(10))
        return mine, await asyncio.to_thread(model.call, 41)

    assert asyncio.run(scenario()) == (list(range(1, 11)), 42)


def test_one_batcher_serves_several_event_loops_one_after_another_and_at_once():
    batcher = wrapped(Model())

    async def scenario():
        return await batcher.map(range(5))

    expected = [item * 10 for item in range(5)]
    assert [asyncio.run(scenario()) for _ in range(3)] == [expected] * 3
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(asyncio.run(scenario()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert answers == [expected] * 4


def test_a_method_has_a_batcher_for_each_object_and_does_not_keep_it_alive():
    class Service:
        def __init__(self, factor):
            self.factor = factor

        @batch(max_batch=4)
        def scale(self, items: list[int]) -> list[int]:
            return [self.factor * item for item in items]

    two, three = Service(2), Service(3)
    assert (two.scale.call(5), three.scale.call(5)) == (10, 15)

    gone = weakref.ref(two)
    del two
    gc.collect()
    assert gone() is None


def test_a_cancelled_caller_leaves_the_queue_and_hurts_nobody():
    async def scenario():
        model = Model(held=True)
        batcher, first = await held_batcher(model)
        tasks = [asyncio.ensure_future(batcher(number)) for number in range(1, 6)]
        await asyncio.sleep(0)
        tasks[2].cancel()
        model.go.set()
        results = await asyncio.gather(first, *tasks, return_exceptions=True)
        return model, results

    model, results = asyncio.run(scenario())

    assert model.batches == [[0], [1, 2, 4, 5]]
    assert [r for r in results if not isinstance(r, asyncio.CancelledError)] == [0, 10, 20, 40, 50]


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
    assert sizes[-5:] == [("big", 4)] * 4 + [("small", 16)]
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


def test_a_deadline_that_the_learned_run_time_cannot_meet_is_refused():
    ran = []

    @batch
    def model(items: list[int]) -> list[int]:
        ran.append(items)
        time.sleep(0.02)
        return items

    model.call(1)
    assert asyncio.run(until(lambda: model.stats().running == 0)) is None

    with pytest.raises(DeadlineExceeded):
        model.call(2, within_s=0.005)
    assert ran == [[1]]


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


def test_the_callback_is_told_of_each_run_and_its_failure_does_no_harm():
    reports = []

    def note(report):
        reports.append(report)
        raise ValueError("a broken callback")

    batcher = wrapped(Model(), on_batch=note, name="noted", key=lambda item: "k")

    assert batcher.call(1) == 10
    batcher.drain_wait(5)
    assert (reports[0].name, reports[0].key, reports[0].items, reports[0].error) == ("noted", "k", 1, None)


def test_metrics_are_prometheus_text_with_the_queue_and_the_busy_time():
    batcher = wrapped(Model(), name='quo"ted')
    batcher.call(1)
    batcher.drain_wait(5)

    text = batcher.metrics()

    assert 'trimtab_batcher_waiting{batcher="quo\\"ted"} 0' in text
    assert 'trimtab_batcher_requests_total{batcher="quo\\"ted",outcome="answered"} 1' in text
    assert "trimtab_batcher_busy_seconds_total" in text
    assert 'trimtab_batcher_latency_seconds_bucket{batcher="quo\\"ted",le="+Inf"} 1' in text


@pytest.mark.parametrize(
    "wrong",
    [{"max_batch": 0}, {"window_s": -1}, {"size": len}, {"max_size": 5}, {"worker": "fiber"}, {"min_batch": 99}],
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(UsageError):
        batch(**wrong)


def test_a_function_that_takes_no_list_is_refused():
    with pytest.raises(UsageError, match="must take one list"):
        batch(lambda: [])
