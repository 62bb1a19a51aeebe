"""A deadline job on spot: the plan against brute force, the optimum in hindsight, and the past that decides alone."""

import numpy as np
import pytest
from benchmarks.reference.deadline_job import hindsight_cost, replay_deadline_job
from benchmarks.reference.fallback import Rule
from benchmarks.reference.spot_plan import Market, ages, learn_market, plan_job
from hypothesis import given, settings, strategies as st

DEADLINE_RULES = [Rule.GREEDY, Rule.UNIFORM_PROGRESS, Rule.PLAN]


def flags(text):
    return np.array([letter == "#" for letter in text])


def market_trace(steps, seed=0, turning=0.1):
    rng = np.random.default_rng(seed)
    return np.logical_xor.accumulate(rng.random(steps) < turning)


def run(up, rule, *, work, deadline, plan=None, start=0):
    return replay_deadline_job(up, start=start, work=work, deadline=deadline, spot_price=1 / 3, rule=rule, plan=plan)


def test_age_counts_the_steps_since_the_market_turned():
    assert ages(flags("##..#")).tolist() == [1, 2, 1, 2, 1]


def test_a_market_is_counted_by_age():
    market = learn_market(flags("##.##.##.##."), age_edges=(1, 2))

    # up for one step it never turned, up for two steps it always did
    assert market.turning[1, 0] < 0.2
    assert market.turning[1, 1] > 0.7


def test_always_up_costs_the_launch_and_the_work_at_the_spot_price():
    up = flags("#" * 20)
    for rule in (Rule.GREEDY, Rule.UNIFORM_PROGRESS):
        assert run(up, rule, work=9, deadline=20).cost == pytest.approx(10 / 3)
    assert hindsight_cost(up, 9, 20, 1 / 3) == pytest.approx(10 / 3)


def test_a_loss_costs_another_launch():
    result = run(flags("####.####......."), Rule.GREEDY, work=6, deadline=16)

    # launch, 3 steps, loss, launch, 3 steps: 8 paid steps
    assert result.cost == pytest.approx(8 / 3)
    assert (result.launches, result.losses) == (2, 1)


def test_the_plan_expects_what_it_pays_in_its_own_market():
    market = Market(turning=np.array([[0.2], [0.1]]), age_edges=(1,))
    plan = plan_job(market, work=20, deadline=40, spot_price=1 / 3)
    rng = np.random.default_rng(0)

    costs = []
    for _ in range(4000):
        turns = rng.random(40)
        up = [True]
        for chance in turns[1:]:
            up.append(up[-1] ^ (chance < (0.1 if up[-1] else 0.2)))
        costs.append(run(np.array(up), Rule.PLAN, work=20, deadline=40, plan=plan).cost)

    assert np.mean(costs) == pytest.approx(plan.cost_from_up, rel=0.02)


def test_a_plan_refuses_spot_where_it_does_not_pay():
    flicker = Market(turning=np.array([[0.5], [0.9]]), age_edges=(1,))
    plan = plan_job(flicker, work=20, deadline=24, spot_price=0.9)

    result = run(market_trace(24, turning=0.7), Rule.PLAN, work=20, deadline=24, plan=plan)

    assert result.steps_on_spot == 0


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    slack=st.integers(2, 40),
    rule=st.sampled_from([Rule.GREEDY, Rule.UNIFORM_PROGRESS, Rule.PLAN]),
)
def test_no_rule_misses_a_deadline_or_beats_hindsight(seed, slack, rule):
    work, deadline = 40, 40 + slack
    up = market_trace(200 + deadline, seed)
    plan = plan_job(learn_market(up[:200]), work=work, deadline=deadline, spot_price=1 / 3)

    result = run(up, rule, work=work, deadline=deadline, plan=plan, start=200)

    assert result.met
    assert result.cost >= hindsight_cost(up[200:], work, deadline, 1 / 3) - 1e-9


def test_shuffling_the_future_does_not_change_what_was_paid_before():
    up = market_trace(200)
    other = up.copy()
    np.random.default_rng(1).shuffle(other[100:])
    plan = plan_job(learn_market(up[:50]), work=120, deadline=150, spot_price=1 / 3)

    # a job cut off at step 100 has seen the same market in both
    first = run(up[:100], Rule.PLAN, work=120, deadline=150, plan=plan)
    second = run(other[:100], Rule.PLAN, work=120, deadline=150, plan=plan)

    assert first == second


def test_the_compiled_rules_pay_what_the_interpreted_ones_pay(monkeypatch):
    from benchmarks.reference import deadline_job

    up = market_trace(600)
    plan = plan_job(learn_market(up), work=300, deadline=500, spot_price=1 / 3)
    compiled = [run(up, rule, work=300, deadline=500, plan=plan) for rule in Rule]

    monkeypatch.setattr(deadline_job, "run_to_deadline", deadline_job.run_to_deadline.py_func)

    assert [run(up, rule, work=300, deadline=500, plan=plan) for rule in Rule] == compiled


def test_a_plan_for_other_work_is_refused():
    plan = plan_job(learn_market(market_trace(100)), work=20, deadline=40, spot_price=1 / 3)
    with pytest.raises(ValueError, match="same work"):
        run(market_trace(100), Rule.PLAN, work=30, deadline=40, plan=plan)
