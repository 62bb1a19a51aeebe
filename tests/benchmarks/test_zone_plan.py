"""Several zones: one zone is the single-zone game, hindsight is a bound, deadlines hold."""

import numpy as np
import pytest
from benchmarks.reference.deadline_job import hindsight_cost
from benchmarks.reference.zone_job import run_zones, zones_in_hindsight
from benchmarks.reference.zone_plan import SLACKS, learn_zone, market_states, plan_zones, zone_states
from benchmarks.reference.zone_rules import FIRST_ZONE, PAY, WAIT, ZoneMode, ZoneView, kept

PRICE = np.array([0.3, 0.36])


def trace(steps, zones=2, seed=0):
    rng = np.random.default_rng(seed)
    turning = np.array([0.05, 0.15, 0.1])[:zones]
    return np.logical_xor.accumulate(rng.random((steps, zones)) < turning, axis=0)


@pytest.fixture(scope="module")
def plan():
    return plan_zones(trace(2000), price=PRICE, move_cost=0.2, work=60)


def arguments(plan, up, work):
    return up, market_states(up), plan.actions, plan.start, np.array(SLACKS), plan.price, plan.move_cost, work


def run(plan, up, work):
    return run_zones(*arguments(plan, up, work))


def test_chances_of_a_learned_zone_sum_to_one():
    assert learn_zone(trace(500)[:, 0]).sum(axis=1) == pytest.approx(1.0)


def test_a_zone_state_tells_up_from_down_and_young_from_old():
    assert zone_states(np.array([True, True, True, False, True])).tolist() == [2, 2, 3, 0, 2]


def test_one_zone_in_hindsight_is_the_single_zone_game():
    up = trace(80, zones=1, seed=4)
    assert zones_in_hindsight(up, np.array([1 / 3]), 0.0, 30) == pytest.approx(
        hindsight_cost(np.ascontiguousarray(up[:, 0]), 30, 80, 1 / 3)
    )


def test_a_second_zone_never_makes_hindsight_dearer():
    up = trace(80, seed=5)
    both = zones_in_hindsight(up, PRICE, 0.2, 30)
    first = zones_in_hindsight(np.ascontiguousarray(up[:, :1]), PRICE[:1], 0.2, 30)
    assert both <= first + 1e-9


def test_the_safety_net_pays_when_waiting_would_miss_the_deadline():
    assert kept(WAIT, ZoneView(12, 10, ZoneMode.IDLE, 0)) == WAIT
    assert kept(WAIT, ZoneView(11, 10, ZoneMode.IDLE, 0)) == PAY
    assert kept(FIRST_ZONE, ZoneView(11, 10, ZoneMode.SPOT, 0)) == FIRST_ZONE
    assert kept(FIRST_ZONE + 1, ZoneView(11, 10, ZoneMode.SPOT, 0)) == PAY


@pytest.mark.parametrize("slack", [2, 10, 40])
def test_no_deadline_is_missed_and_hindsight_is_a_bound(plan, slack):
    for seed in range(20):
        up = trace(60 + slack, seed=100 + seed)
        cost, met, *_ = run(plan, up, 60)
        assert met
        assert cost >= zones_in_hindsight(up, PRICE, 0.2, 60) - 1e-9


def test_more_time_costs_less_on_average(plan):
    tight, loose = (
        np.mean([run(plan, trace(60 + slack, seed=seed), 60)[0] for seed in range(40)]) for slack in (3, 60)
    )
    assert loose < tight


def test_the_compiled_run_is_the_interpreted_one(plan):
    up = trace(200, seed=7)
    given = arguments(plan, up, 60)
    assert run_zones(*given) == run_zones.py_func(*given)
