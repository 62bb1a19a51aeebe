import csv

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.replay.commitments import CommitRule, best_level, cost, held_units

DISCOUNT = 0.4
series = st.lists(st.floats(0, 20), min_size=30, max_size=60).map(np.array)
discounts = st.sampled_from([0.2, 0.3, 0.4, 0.6])


def test_cost_is_what_is_held_and_what_demand_exceeds_it_by():
    spent = cost(np.array([1.0, 3.0, 5.0]), np.array([2.0, 2.0, 4.0]), DISCOUNT)

    assert spent == pytest.approx(0.6 * 8 + 0 + 1 + 1)


def test_hindsight_commits_what_is_used_in_enough_hours():
    demand = np.array([0.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 9.0, 9.0])

    # The second unit is used in 6 of 10 hours, which pays at 40 % off and not at 30 %.
    assert best_level(demand, 0.41) == 2.0
    assert best_level(demand, 0.3) == 1.0


def test_steady_use_costs_at_most_a_few_percent_more_than_hindsight():
    steady = np.full(600, 10.0)

    ours = cost(steady, held_units(CommitRule.LAYERED, steady, steady, DISCOUNT), DISCOUNT)

    # A third is released evenly over the first 180 h, so it comes 90 h late on average, and 12 h more for daily reviews.
    assert ours / (0.6 * 6000) == pytest.approx(1 + 0.4 / 3 * (90 + 12) / 600 / 0.6, abs=0.001)


def test_a_fleet_that_shrinks_at_once_is_not_bought_whole():
    history, test = np.full(600, 10.0), np.full(600, 5.0)

    held = held_units(CommitRule.LAYERED, history, test, DISCOUNT)

    assert held.max() <= 10 * 0.8


def test_growth_is_followed_within_the_term():
    history, test = np.full(600, 5.0), np.full(600, 10.0)

    held = held_units(CommitRule.LAYERED, history, test, DISCOUNT)

    assert held[0] == pytest.approx(10 / 3, abs=0.1)
    assert held[-1] == pytest.approx(10.0, abs=0.1)


def test_break_even_buys_when_renting_has_cost_as_much_as_holding_to_the_end():
    test = np.ones(240)

    held = held_units(CommitRule.BREAK_EVEN, test, test, DISCOUNT)

    # 0.6 x (240 - h) <= h from h = 90 on; the next daily review is at 96.
    assert held[95] == 0.0
    assert held[96] == 1.0


@settings(max_examples=25)
@given(history=series, test=series, discount=discounts)
def test_hindsight_never_costs_more_than_all_on_demand_or_any_other_level(history, test, discount):
    best = cost(test, held_units(CommitRule.HINDSIGHT, history, test, discount), discount)

    for rule in (CommitRule.NOTHING, CommitRule.AVERAGE_65, CommitRule.AVERAGE, CommitRule.MINIMUM):
        assert best <= cost(test, held_units(rule, history, test, discount), discount) + 1e-9


@settings(max_examples=25)
@given(history=series, test=series, discount=discounts, rule=st.sampled_from(CommitRule))
def test_no_rule_ever_gives_a_unit_back(history, test, discount, rule):
    assert (np.diff(held_units(rule, history, test, discount)) >= 0).all()


@settings(max_examples=25)
@given(history=series, test=series, discount=discounts, cut=st.integers(1, 29))
def test_no_rule_but_hindsight_sees_the_future(history, test, discount, cut):
    changed = np.concatenate([test[:cut], test[cut:] + 100.0])

    for rule in CommitRule:
        if rule is not CommitRule.HINDSIGHT:
            before = held_units(rule, history, test, discount)
            after = held_units(rule, history, changed, discount)
            assert before[: cut + 1] == pytest.approx(after[: cut + 1])


@pytest.mark.shared
def test_the_baselines_on_record_are_reproduced_on_real_series(shared_dir):
    from benchmarks.commit_series import demand_series

    traces = shared_dir / "data" / "traces"
    demand = demand_series(traces)["philly2017_vc_6214e9"]
    half = len(demand) // 2
    with (traces / "baseline_commitment.csv").open() as lines:
        recorded = {
            row["policy"]: float(row["cost_vs_on_demand"])
            for row in csv.DictReader(lines)
            if row["series"] == "philly_vc_6214e9" and row["discount"] == "0.4"
        }

    for rule, name in (
        (CommitRule.AVERAGE_65, "65% of trailing average"),
        (CommitRule.NEWSVENDOR, "newsvendor quantile on history"),
        (CommitRule.WEEKLY_TOP_UP, "newsvendor, weekly top-up (28 d window)"),
        (CommitRule.HINDSIGHT, "hindsight optimum (single level)"),
    ):
        held = held_units(rule, demand[:half], demand[half:], 0.4)
        assert cost(demand[half:], held, 0.4) / demand[half:].sum() == pytest.approx(recorded[name], rel=0.001)


@pytest.mark.shared
def test_ours_stays_near_hindsight_where_a_real_fleet_halves(shared_dir):
    from benchmarks.commit_series import demand_series

    demand = demand_series(shared_dir / "data" / "traces")["philly2017_all_virtual_clusters"]
    half = len(demand) // 2
    history, test = demand[:half], demand[half:]

    spent = {rule: cost(test, held_units(rule, history, test, 0.6), 0.6) for rule in CommitRule}

    assert spent[CommitRule.LAYERED] <= 1.15 * spent[CommitRule.HINDSIGHT]
    assert spent[CommitRule.CHOSEN] <= 1.25 * spent[CommitRule.HINDSIGHT]
    assert spent[CommitRule.NEWSVENDOR] > 1.15 * spent[CommitRule.HINDSIGHT]
