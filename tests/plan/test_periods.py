"""Gathered periods keep the mean, and peaks stand alone where a quota binds."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.plan_fleets import generated
from hypothesis import given, strategies as st

from trimtab.plan.problem import KEEP
from trimtab.plan.program import master
from trimtab.plan.program.couplings.parts import TrackedPool
from trimtab.plan.program.master import equal_columns, gather
from trimtab.plan.program.table import OptionTable

COLUMNS = st.lists(st.tuples(*[st.integers(0, 2) for _ in range(3)]), min_size=1, max_size=20)


@given(COLUMNS, st.integers(1, 20), st.booleans())
def test_equal_columns_are_those_that_sorting_finds(columns, most, sums_are_equal):
    numbers = np.array(columns).T
    different, place = np.unique(numbers, axis=1, return_inverse=True)

    with pytest.MonkeyPatch.context() as patch:
        if sums_are_equal:
            patch.setattr(master, "_weights", lambda count: np.zeros(count, dtype=np.int64))
        found = equal_columns(numbers, most)

    expected = place.reshape(-1).tolist() if different.shape[1] <= most else None
    assert (found if found is None else found.tolist()) == expected


@pytest.mark.parametrize("most", [1, 7, 24, 1000])
def test_gathering_keeps_node_hours_and_hours(most):
    table = OptionTable(generated(5, 4, hours=100))

    gathered = gather(table, table.use_of([KEEP] * 5), most)

    for tracked, one in zip(table.tracked, gathered, strict=True):
        assert len(one.weight_hr) == min(most, 100)
        assert one.weight_hr.sum() == 100
        assert np.allclose(one.nodes @ one.weight_hr, tracked.node_hours())


def test_the_highest_hours_of_a_pool_with_a_quota_stand_alone():
    problem = generated(5, 4, hours=100)
    table = OptionTable(replace(problem, quotas=dict.fromkeys(problem.node_offers, 10)))

    gathered = gather(table, table.use_of([0] * 5), 10)

    assert all((one.weight_hr == 1).sum() >= 5 for one in gathered)


def test_no_more_periods_are_made_than_memory_allows(monkeypatch):
    monkeypatch.setattr("trimtab.plan.program.master.MAX_NUMBERS", 500)
    table = OptionTable(generated(5, 4, hours=100))
    rows = sum(len(tracked.rows) for tracked in table.tracked)

    gathered = gather(table, table.use_of([KEEP] * 5), 100)

    assert {len(one.weight_hr) for one in gathered} == {500 // rows}


def test_means_of_many_options_take_little_more_memory_than_they_are():
    pool, hours = next(iter(generated(1, 1, hours=100).rates_micro_usd_hr)), 100
    use, order = np.full(hours, 3600), np.arange(hours)
    tracked = TrackedPool(pool=pool, rows=np.arange(40_000), seconds=(use,) * 40_000)

    tracemalloc.start()
    means = tracked.means(order, order, np.ones(hours))
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert (means == 1.0).all()
    assert most_bytes < 1.5 * means.nbytes
