"""Gathered periods keep the mean, and peaks stand alone where a quota binds."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.plan_fleets import generated

from trimtab.plan.problem import KEEP
from trimtab.plan.program.master import gather
from trimtab.plan.program.table import OptionTable


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
