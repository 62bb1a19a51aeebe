"""Batches that run at a few sizes only, filled up with copies of their last item."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings, strategies as st

from trimtab_runtime import batch
from trimtab_runtime.errors import UsageError


@settings(max_examples=30)
@given(st.sets(st.integers(1, 24), min_size=1, max_size=5), st.integers(1, 60))
def test_the_function_sees_these_sizes_alone_and_each_item_gets_its_own_answer(sizes, requests):
    seen = []

    @batch(batch_sizes=tuple(sorted(sizes)), max_batch=max(sizes))
    async def model(items: list[int]) -> list[int]:
        seen.append(len(items))
        return [-item for item in items]

    async def scenario():
        return await asyncio.gather(*map(model, range(requests)))

    assert asyncio.run(scenario()) == [-item for item in range(requests)]
    assert set(seen) <= sizes


def test_a_streams_copies_are_read_by_nobody():
    @batch(batch_sizes=(4,), max_batch=4)
    def model(items: list[int]):
        assert len(items) == 4
        yield [item * 10 for item in items]
        yield [item * 100 for item in items]

    assert list(model.call(3)) == [30, 300]


def test_items_are_padded_before_the_batch_is_filled():
    @batch(batch_sizes=(2,), max_batch=2, key=lambda item: 3, pad=lambda item, width: item.ljust(width))
    def model(items: list[str]) -> list[str]:
        assert items == ["a  ", "a  "]
        return [item.upper() for item in items]

    assert model.call("a", timeout_s=5) == "A  "


def test_a_poison_item_is_found_among_batches_that_are_filled():
    sizes = set()

    @batch(batch_sizes=(1, 4, 8), max_batch=8)
    def model(items: list[int]) -> list[int]:
        sizes.add(len(items))
        if 5 in items:
            raise ValueError("five")
        return items

    def ask(item):
        try:
            return model.call(item, timeout_s=5)
        except ValueError:
            return "failed"

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))

    assert answers == [0, 1, 2, 3, 4, "failed", 6, 7]
    assert sizes <= {1, 4, 8}


def test_memory_that_runs_out_leaves_the_largest_size_that_fits_and_is_tried_again_later():
    room, seen = [12], []

    @batch(batch_sizes=(2, 10, 50), max_batch=50)
    def model(items: list[int]) -> list[int]:
        seen.append(len(items))
        if len(items) > room[0]:
            raise MemoryError
        return items

    assert model.call_map(range(40)) == list(range(40))
    assert set(seen) <= {2, 10, 50}
    assert 50 in seen
    room[0], seen[:] = 1000, []
    for _ in range(100):
        model.call_map(range(50))
    assert 50 in seen


@pytest.mark.parametrize(
    ("given_settings", "cure"),
    [
        ({"batch_sizes": (4, 2), "max_batch": 4}, "must rise"),
        ({"batch_sizes": (0, 2), "max_batch": 2}, "must rise"),
        ({"batch_sizes": (1, 8)}, "give max_batch=8"),
        ({"batch_sizes": (1, 8), "max_batch": 8, "size": len, "max_size": 10}, "one of the two"),
    ],
)
def test_sizes_that_cannot_be_are_refused_with_a_cure(given_settings, cure):
    with pytest.raises(UsageError, match=cure):

        @batch(**given_settings)
        def model(items: list[int]) -> list[int]:
            return items
