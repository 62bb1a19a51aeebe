"""A failed batch, run again in parts."""

import math
from concurrent.futures import Future

from hypothesis import given, strategies as st

from trimtab_runtime.batcher.recovery import Attempt, Outcome, Recovery, recover
from trimtab_runtime.batcher.request import Request


def request(item) -> Request:
    return Request(item, Future(), None, None, 0, 1, 0.0, math.inf)


def run_to_the_end(items, bad, *, fits=10**9, isolates=lambda error: True):
    """Return the extra runs, and the settled items in order with their errors."""
    requests = [request(item) for item in items]
    settled, ooms = [], []
    runs = 0

    def call(group):
        if len(group) > fits:
            return Outcome((), MemoryError())
        found = [r.item for r in group if r.item in bad]
        return Outcome((), ValueError(found)) if found else Outcome([r.item for r in group], None)

    def settle(group, outcome):
        settled.extend((r.item, outcome.error) for r in group)

    how = Recovery(
        settle, isolates, lambda error: isinstance(error, MemoryError), lambda items: ooms.append(items) or items // 2
    )
    first = call(requests)
    steps = recover(requests, first.error, how)
    group = next(steps, None)
    while group is not None:
        runs += 1
        try:
            group = steps.send(call(group))
        except StopIteration:
            group = None
    return runs, settled, ooms


def test_one_poison_item_costs_at_most_twice_the_logarithm_wherever_it_is():
    for size in (*range(2, 40), 63, 64, 65, 100, 128):
        for bad in range(size):
            runs, settled, _ = run_to_the_end(range(size), {bad})

            assert runs <= 2 * math.log2(size), (size, bad)
            assert [item for item, _ in settled] == list(range(size))
            assert [item for item, error in settled if error] == [bad]


def test_a_poison_item_fails_with_the_error_of_its_own_run():
    _, settled, _ = run_to_the_end(range(8), {3, 4})

    assert {item: error.args for item, error in settled if error} == {3: ([3],), 4: ([4],)}


@given(st.integers(1, 70), st.data())
def test_every_item_is_settled_once_in_order_and_only_the_bad_ones_fail(size, data):
    bad = data.draw(st.sets(st.integers(0, size - 1), min_size=1))
    fits = data.draw(st.integers(1, 80))

    runs, settled, _ = run_to_the_end(range(size), bad, fits=fits)

    assert [item for item, _ in settled] == list(range(size))
    assert {item for item, error in settled if error} == bad
    assert runs <= 2 * math.log2(size + 1) + 4 * size


def test_a_batch_that_does_not_fit_runs_in_halves():
    runs, settled, ooms = run_to_the_end(range(64), set(), fits=16)

    assert ooms == [64, 32]
    assert runs == 5
    assert not [error for _, error in settled if error]


def test_one_item_that_does_not_fit_fails_with_the_memory_error():
    _, settled, _ = run_to_the_end([1], set(), fits=0)

    assert isinstance(settled[0][1], MemoryError)


def test_an_error_that_is_not_isolated_fails_the_whole_batch_without_a_run():
    runs, settled, _ = run_to_the_end(range(8), {1}, isolates=lambda error: False)

    assert runs == 0
    assert all(error for _, error in settled)


def test_cancelled_requests_are_not_run_again():
    requests = [request(item) for item in range(4)]
    for each in requests[:3]:
        each.reply.cancel()
    how = Recovery(lambda group, outcome: None, lambda error: True, lambda error: False, lambda items: 1)

    group = next(recover(requests, ValueError(), how))

    assert [each.item for each in group] == [3]


def test_what_no_future_can_carry_becomes_a_lost_worker():
    with Attempt() as attempt:
        raise SystemExit(3)

    assert "SystemExit" in str(attempt.error)
    assert isinstance(attempt.error.__cause__, SystemExit)
