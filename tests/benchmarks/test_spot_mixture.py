"""Several learned markets: one alone is the plan of that market, weights follow what is seen, deadlines hold."""

import numpy as np
import pytest
from benchmarks.reference.deadline_job import replay_deadline_job
from benchmarks.reference.fallback import Rule
from benchmarks.reference.kept_mixture import keep_mixture, open_mixture
from benchmarks.reference.spot_mixture import (
    IDLE,
    ON_DEMAND,
    ON_DEMAND_PENDING,
    SPOT,
    SPOT_PENDING,
    after_step,
    can_finish,
    plan_mixture,
    replay_mixture,
    weigh,
)
from benchmarks.reference.spot_plan import learn_market, plan_job

WORK, PRICE = 24, 1 / 3


def trace(steps, seed, turning):
    rng = np.random.default_rng(seed)
    return np.logical_xor.accumulate(rng.random(steps) < turning)


MARKETS = [learn_market(trace(2000, seed, turning)) for seed, turning in ((1, 0.05), (2, 0.3))]


def test_one_market_with_launches_of_a_step_costs_what_the_plan_of_that_market_does():
    up = trace(4000, 3, 0.1)
    alone = plan_mixture(MARKETS[:1], work=WORK, deadline=32, spot_price=PRICE)
    plan = plan_job(MARKETS[0], work=WORK, deadline=32, spot_price=PRICE)

    starts = range(10, 3900, 20)
    jobs = [
        replay_deadline_job(up, start=start, work=WORK, deadline=32, spot_price=PRICE, rule=Rule.PLAN, plan=plan)
        for start in starts
    ]
    found = [replay_mixture(up, alone, start=start, seen_from=start) for start in starts]

    # equal in expectation; ties fall otherwise, since one keeps its values in single precision
    assert np.mean([cost for cost, _ in found]) == pytest.approx(np.mean([job.cost for job in jobs]), rel=0.01)


@pytest.mark.parametrize("launch_steps", [0.3, 1.0, 1.2])
@pytest.mark.parametrize("deadline", [26, 30, 48])
def test_no_deadline_is_missed_whatever_a_launch_takes(launch_steps, deadline):
    plan = plan_mixture(MARKETS, work=WORK, deadline=deadline, spot_price=PRICE, launch_steps=launch_steps)
    up = trace(600, 5, 0.2)

    assert all(replay_mixture(up, plan, start=start, seen_from=0)[1] for start in range(5, 500, 15))


def test_a_launch_longer_than_a_step_is_pending_for_the_rest():
    assert after_step(IDLE, SPOT, 1.2) == (SPOT_PENDING, 0.0)
    assert after_step(SPOT_PENDING, SPOT, 1.2) == (SPOT, pytest.approx(0.8))
    assert after_step(SPOT, ON_DEMAND, 1.2) == (ON_DEMAND_PENDING, 0.0)
    assert after_step(IDLE, ON_DEMAND, 0.3) == (ON_DEMAND, pytest.approx(0.7))


def test_on_demand_finishes_if_the_launch_and_the_work_fit():
    assert can_finish(SPOT, 9.7, 10, 0.3)
    assert not can_finish(SPOT, 9.8, 10, 0.3)
    assert can_finish(ON_DEMAND, 10.0, 10, 0.3)


def test_weight_goes_to_the_market_that_foretold_what_was_seen():
    turning = np.array([[[0.1], [0.1]], [[0.4], [0.4]]])
    weight = np.array([0.5, 0.5])

    weigh(weight, turning, 1, 0, True, 0.0)

    assert weight == pytest.approx([0.2, 0.8])


def test_a_kept_mixture_is_the_same_when_it_is_opened(tmp_path):
    plan = plan_mixture(MARKETS, work=WORK, deadline=30, spot_price=PRICE, launch_steps=0.3)
    keep_mixture(plan, tmp_path)

    opened = open_mixture(tmp_path, work=WORK, deadline=30, spot_price=PRICE, launch_steps=0.3)

    up = trace(200, 7, 0.2)
    assert replay_mixture(up, opened, start=20, seen_from=0) == replay_mixture(up, plan, start=20, seen_from=0)
