"""What a rule holds at least is known before a replay: no replay ever holds fewer replicas, at any decision."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.policies.forecast import forecast_policy
from trimtab.policies.keda import KedaPolicy
from trimtab.policies.scaling import HpaPolicy, Metric, Others
from trimtab.replay.outcomes import least_held as bounds
from trimtab.replay.outcomes.least_held import AskedDemand, EvenSplit, is_bounded, least_held, mean_demand
from trimtab.replay.outcomes.service_replays import ServiceReplays
from trimtab.replay.recorded import record
from trimtab.replay.services import ServiceHistory, ServiceModel, arrivals_by_decision, replay_service

STEPS = 240


def model(capacity_req_s, cold_start_s):
    return ServiceModel(
        capacity_req_s=capacity_req_s,
        load_grid=np.array([0.0, 1.0]),
        ok_frac=np.ones((1, 2)),
        wait_limit_s=np.array([30.0]),
        cold_start_s=cold_start_s,
    )


@st.composite
def histories(draw):
    """Requests by the minute: calm, bursts and outages, with counts that nobody took."""
    levels = draw(st.lists(st.sampled_from([0.0, 2.0, 30.0, 200.0, 4000.0]), min_size=2, max_size=8))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    arrivals = rng.poisson(np.resize(np.repeat(levels, STEPS // len(levels) + 1), STEPS)).astype(float)
    within = arrivals_by_decision(arrivals, step_s=60.0, seed=(1,)) if draw(st.booleans()) else None
    if draw(st.booleans()):
        arrivals[rng.integers(0, STEPS, 9)] = np.nan
    return ServiceHistory(arrivals=arrivals, step_s=60.0, within=within)


LOADS = st.sampled_from([0.1, 0.35, 0.5, 0.8])
FLOORS = st.integers(1, 3)


@settings(deadline=None)
@given(
    histories(), LOADS, FLOORS, st.integers(3, 400), st.sampled_from([15, 300]), st.integers(1, 6), st.integers(0, 600)
)
def test_no_autoscaler_holds_fewer_than_its_bound(history, load, floor, top, window_s, initial, cold_start_s):
    policy = HpaPolicy(target_frac=load, min_replicas=floor, max_replicas=top, window_s=window_s)
    service = model(0.7, float(cold_start_s))

    least = least_held(history, service, policy, None, initial_replicas=initial).counts()

    assert np.all(least <= replay_service(history, service, policy, initial_replicas=initial).held)


@settings(deadline=None)
@given(histories(), LOADS, FLOORS, st.integers(3, 400), st.sampled_from([0.0, 0.05]), st.integers(1, 6))
def test_no_forecast_holds_fewer_than_its_bound(history, load, floor, top, tolerance_frac, initial):
    policy = forecast_policy(
        cold_start_s=120.0, target_frac=load, min_replicas=floor, max_replicas=top, tolerance_frac=tolerance_frac
    )
    service = model(0.7, 120.0)
    rate, step_s = history.rate_seen()
    recorded = record(rate, step_s=step_s, rules=policy.rules)

    asked = AskedDemand.of(history, policy, recorded)
    least = least_held(history, service, policy, asked, initial_replicas=initial).counts()

    assert np.all(least <= replay_service(history, service, policy, initial_replicas=initial).held)


@settings(deadline=None)
@given(
    histories(),
    LOADS,
    st.sampled_from([15, 30, 60]),
    st.sampled_from([60, 300, 900]),
    st.integers(1, 6),
    st.integers(0, 600),
)
def test_no_rule_that_gives_up_its_last_replica_holds_fewer_than_its_bound(
    history, load, polling_s, cooldown_s, initial, cold_start_s
):
    hpa = HpaPolicy(target_frac=load, min_replicas=0, max_replicas=100)
    policy = KedaPolicy(hpa, polling_s=polling_s, cooldown_s=cooldown_s)
    service = model(0.7, float(cold_start_s))

    least = least_held(history, service, policy, None, initial_replicas=initial).counts()

    assert np.all(least <= replay_service(history, service, policy, initial_replicas=initial).held)


def test_who_asks_now_and_then_keeps_a_replica_up_for_a_cooldown():
    asked = np.zeros(STEPS)
    asked[STEPS // 2] = 60.0
    history = ServiceHistory(arrivals=asked, step_s=60.0)
    policy = KedaPolicy(HpaPolicy(target_frac=0.5, min_replicas=0, max_replicas=10), polling_s=15, cooldown_s=300)

    least = least_held(history, model(1.0, 60.0), policy, None, initial_replicas=1).counts()

    # a cooldown at the start, then from the decision after the first request until a cooldown after the last, four a minute
    assert least.sum() == 20 + 3 + 20


def test_the_bound_is_near_where_demand_is_calm():
    history = ServiceHistory(arrivals=np.full(STEPS, 600.0), step_s=60.0)
    policy = HpaPolicy(target_frac=0.5, min_replicas=1, max_replicas=100)
    service = model(1.0, 60.0)

    held = replay_service(history, service, policy, initial_replicas=20).held
    least = least_held(history, service, policy, None, initial_replicas=20).counts()

    # 10 replicas' worth at half load are 20; the tolerance of 10 % lets 19 stay
    assert held[-1] == 20
    assert least[-1] == 19


def test_an_autoscaler_that_may_hold_none_or_rises_late_has_no_bound():
    plain = HpaPolicy(target_frac=0.5, min_replicas=1, max_replicas=100)

    assert is_bounded(plain)
    assert is_bounded(forecast_policy(cold_start_s=60.0))
    assert is_bounded(KedaPolicy(plain._replace(min_replicas=0)))
    assert not is_bounded(plain._replace(min_replicas=0))
    assert not is_bounded(plain._replace(up_stabilization_s=60))
    assert not is_bounded(plain._replace(period_s=60))
    assert not is_bounded(plain._replace(metric=Metric.DUTY_CYCLE))
    assert not is_bounded(plain._replace(others=Others(wait_s=1.0)))


@given(
    arrivals=st.lists(st.floats(0.0, 5000.0), min_size=1, max_size=60).filter(any),
    full=st.floats(1.0, 2000.0),
    count=st.integers(1, 50),
    points=st.lists(st.integers(1, 140), min_size=1, max_size=8, unique=True),
    drops=st.lists(st.floats(0.0, 1.0), min_size=9, max_size=9),
)
def test_an_even_split_has_the_mean_over_all_requests_of_what_their_load_gives(arrivals, full, count, points, drops):
    grid = np.array([0, *sorted(points)]) / 100
    curve = np.sort(np.array(drops[: len(grid)]))[::-1]
    asked = np.array(arrivals)

    mean = EvenSplit.of(asked, full).means(grid, curve)(count)

    each = np.interp(np.minimum(asked / (full * count), 1.0), grid, curve)
    assert mean == pytest.approx(float(asked @ each) / asked.sum(), abs=1e-7)


def test_demand_is_averaged_once_for_all_target_loads(monkeypatch):
    averaged = []

    def counted(history, window):
        averaged.append(window)
        return mean_demand(history, window)

    monkeypatch.setattr(bounds, "mean_demand", counted)
    history = ServiceHistory(arrivals=np.resize([600.0, np.nan, 90.0, 2400.0], STEPS), step_s=60.0)
    replays = ServiceReplays()
    for load in (0.2, 0.4, 0.6, 0.8):
        policy = HpaPolicy(target_frac=load, min_replicas=1, max_replicas=100, window_s=300)
        replays.least_held(load, history, model(1.0, 60.0), policy, 2)

    assert averaged == [20]


def test_unknown_demand_takes_no_part_in_the_mean():
    history = ServiceHistory(arrivals=np.array([15.0, np.nan, 45.0, 30.0]), step_s=15.0)

    np.testing.assert_array_equal(mean_demand(history, 3), [1.0, np.nan, 2.0, 2.5])


def test_least_replicas_are_followed_once_for_all_nodes_until_histories_are_forgotten():
    history = ServiceHistory(arrivals=np.full(STEPS, 600.0), step_s=60.0)
    policy = HpaPolicy(target_frac=0.5, min_replicas=1, max_replicas=100)
    replays = ServiceReplays()

    def found():
        return replays.least_held("a rule at a speed", history, model(1.0, 60.0), policy, 2)

    first = found()

    assert found() is first
    replays.forget_histories()
    assert found() is not first


def step_by_step(asked, policy, served_req_s, initial):
    """Return the least replicas as the rule says, decision by decision."""
    hold, floor, top = policy.down_stabilization_s // 15, policy.min_replicas, policy.max_replicas
    held, recommended, now = [], [], initial
    for demand in asked:
        held.append(now)
        if not floor <= now <= top:
            now = min(max(now, floor), top)
            recommended.append(floor)
            continue
        wanted = 0 if np.isinf(demand) else math.ceil(demand / served_req_s * (1 - 1e-6) - 1e-6)
        recommended.append(max(floor, min(top, wanted)))
        if recommended[-1] > now:
            now = min(recommended[-1], max(now + policy.up_pods, math.ceil(now * (1 + policy.up_frac) - 1e-9)))
        else:
            now = min(now, max(recommended[-hold:]))
    return held


@settings(deadline=None)
@given(
    histories(),
    st.floats(0.05, 1.0),
    FLOORS,
    st.integers(3, 400),
    st.sampled_from([15, 60, 300, 900]),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.integers(1, 500),
)
def test_a_rule_followed_by_blocks_holds_what_it_holds_decision_by_decision(
    history, load, floor, top, hold_s, up_frac, initial
):
    policy = HpaPolicy(
        target_frac=load, min_replicas=floor, max_replicas=top, down_stabilization_s=hold_s, up_frac=up_frac, up_pods=1
    )
    served_req_s = 0.7 * load * (1 + policy.tolerance_up_frac)

    found = least_held(history, model(0.7, 60.0), policy, None, initial_replicas=initial).counts()

    assert found.tolist() == step_by_step(AskedDemand.of(history, policy, None).now, policy, served_req_s, initial)
