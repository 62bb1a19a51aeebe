"""A service replayed: the referee's game, gaps, nodes, the future unseen, compiled and interpreted alike."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.policies.forecast import forecast_policy
from trimtab.policies.keda import CronPolicy, KedaPolicy
from trimtab.policies.scaling import HpaPolicy, Metric, Others, StaticReplicas
from trimtab.policies.serving_stacks import (
    KnativePolicy,
    OutstandingPolicy,
    PlannerPolicy,
    SaturationPolicy,
    token_saturation,
)
from trimtab.replay import fluid
from trimtab.replay.services import ServiceHistory, ServiceModel, replay_service

POLICIES = [
    StaticReplicas(3),
    HpaPolicy(0.7, 1, 50),
    HpaPolicy(0.6, 1, 50, metric=Metric.DUTY_CYCLE, up_pods=1, up_frac=0.0, period_s=60),
    CronPolicy(tuple([2] * 8 + [5] * 12 + [2] * 4), lead_s=120),
    KedaPolicy(HpaPolicy(0.7, 0, 50)),
    HpaPolicy(0.8, 1, 50, others=Others(duty_cycle_frac=0.7, queue_replica_s=5.0)),
    KedaPolicy(HpaPolicy(0.9, 0, 50, others=Others(queue_replica_s=2.0, kv_cache_frac=0.95, wait_s=0.5))),
    KnativePolicy(0.7, 1, 50),
    SaturationPolicy(1, 50),
    token_saturation(1, 50),
    PlannerPolicy(1, 50),
    PlannerPolicy(1, 50, scales_by_load=True),
    OutstandingPolicy(HpaPolicy(0.6, 1, 50)),
    forecast_policy(cold_start_s=120.0, max_replicas=50),
]


def model(**changes):
    facts = {
        "capacity_req_s": 2.0,
        "load_grid": np.array([0.0, 0.5, 1.0]),
        "ok_frac": np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.9]]),
        "wait_limit_s": np.array([1.0, 0.5]),
        "cold_start_s": 120.0,
    }
    return ServiceModel(**{**facts, **changes})


def history(arrivals, step_s=15):
    return ServiceHistory(arrivals=np.asarray(arrivals, dtype=float), step_s=step_s)


def noisy(steps, seed=0, mean=60.0):
    rng = np.random.default_rng(seed)
    shape = 1 + 0.8 * np.sin(np.arange(steps) / 300)
    return rng.poisson(mean * shape).astype(float)


def test_enough_static_replicas_meet_every_target_and_bill_every_second():
    result = replay_service(history([30.0] * 480), model(), StaticReplicas(2), initial_replicas=2)

    assert result.attained_frac.tolist() == [1.0, 1.0]
    assert result.node_seconds.tolist() == [7200, 7200]
    assert result.wait_p99_s == 0


def test_a_replica_at_full_load_meets_a_target_as_often_as_its_curve_says():
    result = replay_service(history([30.0] * 10), model(), StaticReplicas(1), initial_replicas=1)

    assert result.attained_frac == pytest.approx([1.0, 0.9])


def test_a_starting_replica_is_billed_and_serves_nothing():
    flat = history([60.0] * 20)

    result = replay_service(flat, model(), StaticReplicas(2), initial_replicas=1)

    assert result.replicas.tolist() == [1] + [2] * 19
    # the first step's queue grows to 15 s of waiting, so 1/15 of its 60 requests wait at most 1 s, and none after it
    assert result.attained_frac[0] == pytest.approx(4 / 1200)
    assert result.cold_starts == 1


def test_a_gap_is_no_demand_and_no_lull():
    known = noisy(2000)
    holed = known.copy()
    holed[800:1000] = np.nan

    result = replay_service(history(holed), model(), HpaPolicy(0.7, 1, 50), initial_replicas=5)

    assert result.gap_steps == 200
    assert result.requests == pytest.approx(np.nansum(holed))
    assert len(set(result.replicas[801:1000].tolist())) == 1


def test_nodes_are_whole():
    flat = history([15.0] * 240)
    three_of_eight = model(gpus_per_replica=3, gpus_per_node=8)

    result = replay_service(flat, three_of_eight, StaticReplicas(3), initial_replicas=3)

    assert result.node_seconds.tolist() == [2 * 3600]
    assert result.gpu_seconds.tolist() == [9 * 3600]


def test_a_replica_may_span_nodes():
    result = replay_service(
        history([15.0] * 240), model(gpus_per_replica=16, gpus_per_node=8), StaticReplicas(2), initial_replicas=2
    )
    assert result.node_seconds.tolist() == [4 * 3600]


@given(replicas=st.integers(1, 200), nodes_each=st.integers(1, 64))
def test_replicas_that_span_nodes_bill_exactly_their_nodes(replicas, nodes_each):
    wide = model(gpus_per_replica=8 * nodes_each, gpus_per_node=8)

    result = replay_service(history([1.0] * 4), wide, StaticReplicas(replicas), initial_replicas=replicas)

    assert result.node_seconds.tolist() == [60 * replicas * nodes_each]


def test_a_second_replica_on_a_node_that_is_up_loads_its_model_only():
    """Twice what one replica serves: the queue grows until the second is there, at step 13 (180 s) or 33 (480 s)."""
    surge = history([30.0 * 2] * 60)

    def longest_s(**changes):
        one = model(gpus_per_node=2, cold_start_s=480.0, queue_limit_s=1e4, **changes)
        run = replay_service(surge, one, StaticReplicas(2), initial_replicas=1, by_step=True)
        return run.queued_s[-1]

    assert longest_s(warm_start_s=180.0) == pytest.approx(13 * 15 / 2)
    assert longest_s() == pytest.approx(33 * 15 / 2)


def test_room_beside_others_can_be_left_out():
    surge = history([30.0 * 2] * 60)
    wide = model(gpus_per_node=2, cold_start_s=480.0, warm_start_s=180.0, queue_limit_s=1e4)

    runs = [
        replay_service(surge, one, StaticReplicas(2), initial_replicas=1)
        for one in (replace(wide, beside=False), replace(wide, gpus_per_node=1), wide)
    ]

    assert runs[0].held.tolist() == runs[1].held.tolist()
    assert runs[0].wait_p99_s == runs[1].wait_p99_s > runs[2].wait_p99_s
    assert runs[0].node_seconds.tolist() == runs[2].node_seconds.tolist()


def test_a_node_holds_no_more_than_fits():
    """One of two GPUs is free: the second replica starts warm, the third and fourth wait for a node."""
    surge = history([1.0] * 60)
    one = model(gpus_per_node=2, cold_start_s=480.0, warm_start_s=180.0)

    run = replay_service(surge, one, StaticReplicas(4), initial_replicas=1)

    assert run.cold_starts == 3
    assert run.node_seconds.sum() == (1 + 59 * 2) * 15


@pytest.mark.parametrize(("kept_s", "starts_s"), [(3600.0, 180), (3585.0, 480)])
def test_a_replica_starts_sooner_on_a_node_that_is_empty_but_not_given_back_yet(kept_s, starts_s):
    """The second of two replicas stops for an hour, and starts again on its old node (180 s) or on a new one (480 s)."""
    by_hour = (2, 1, 2, *[2] * 21)
    busy = history([30.0 * 2] * 240 * 3)
    one = model(cold_start_s=480.0, warm_start_s=180.0, empty_node_kept_s=kept_s, queue_limit_s=1e4)

    run = replay_service(busy, one, CronPolicy(by_hour, lead_s=0), initial_replicas=2, by_step=True)

    queued_s = run.queued_s[240 * 2 :]
    assert 15 * (np.argmax(queued_s) + 1) == starts_s


@given(st.integers(1, 6), st.integers(1, 8), st.floats(0, 480), st.floats(0, 1200))
def test_a_warm_start_never_waits_longer_than_a_cold_one(replicas, gpus_per_node, warm_start_s, kept_s):
    surge = history([10.0] * 10 + [replicas * 28.0] * 70)
    cold = model(cold_start_s=480.0, gpus_per_node=gpus_per_node, empty_node_kept_s=kept_s)
    warm = replace(cold, warm_start_s=warm_start_s)

    late, soon = (replay_service(surge, one, StaticReplicas(replicas), initial_replicas=1) for one in (cold, warm))

    assert soon.attained_frac[0] >= late.attained_frac[0] - 1e-12


def test_demand_beyond_the_quota_is_reported():
    result = replay_service(history([300.0] * 240), model(quota_replicas=4), HpaPolicy(0.7, 1, 50), initial_replicas=4)

    assert result.replicas.max() == 4
    assert result.quota_short_replica_s > 0
    assert result.unmet > 0


def test_a_timetable_switches_ahead_of_the_hour():
    by_hour = tuple([1] * 6 + [4] * 12 + [1] * 6)

    result = replay_service(
        history([15.0] * 24 * 60, step_s=60), model(), CronPolicy(by_hour, lead_s=180), initial_replicas=1
    )

    assert result.replicas[6 * 60 - 5] == 1
    assert result.replicas[6 * 60 - 1] == 4


def test_minute_steps_and_quarter_minutes_agree_on_steady_demand():
    coarse = replay_service(history([240.0] * 60, step_s=60), model(), HpaPolicy(0.7, 1, 50), initial_replicas=1)
    fine = replay_service(history([60.0] * 240), model(), HpaPolicy(0.7, 1, 50), initial_replicas=1)

    assert coarse.node_seconds.tolist() == fine.node_seconds.tolist()
    assert coarse.attained_frac == pytest.approx(fine.attained_frac)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_shuffling_the_future_does_not_change_past_decisions(policy):
    arrivals = noisy(3000)
    shuffled = arrivals.copy()
    np.random.default_rng(1).shuffle(shuffled[1500:])

    first = replay_service(history(arrivals), model(), policy, initial_replicas=3)
    second = replay_service(history(shuffled), model(), policy, initial_replicas=3)

    assert first.replicas[:1501].tolist() == second.replicas[:1501].tolist()


@settings(max_examples=30)
@given(seed=st.integers(0, 1000), replicas=st.integers(1, 8), mean=st.floats(5, 200))
def test_more_capacity_never_serves_fewer_in_time(seed, replicas, mean):
    demand = history(noisy(400, seed, mean))

    few = replay_service(demand, model(), StaticReplicas(replicas), initial_replicas=replicas)
    more = replay_service(demand, model(), StaticReplicas(replicas + 1), initial_replicas=replicas + 1)

    assert np.all(more.ok >= few.ok - 1e-9 * few.requests)


def test_the_compiled_loop_gives_the_bytes_of_the_interpreted_one(monkeypatch):
    demand = history(noisy(100_000))
    policy = HpaPolicy(0.7, 1, 50, up_pods=2, up_frac=0.5, period_s=30)
    compiled = replay_service(demand, model(), policy, initial_replicas=3)

    monkeypatch.setattr("trimtab.replay.services.serve_history", fluid.serve_history.py_func)
    interpreted = replay_service(demand, model(), policy, initial_replicas=3)

    assert compiled.replicas.tobytes() == interpreted.replicas.tobytes()
    assert compiled.ok.tobytes() == interpreted.ok.tobytes()
    assert compiled.node_seconds.tobytes() == interpreted.node_seconds.tobytes()
    assert (compiled.wait_p99_s, compiled.unmet) == (interpreted.wait_p99_s, interpreted.unmet)


@settings(max_examples=30)
@given(seed=st.integers(0, 1000), replicas=st.integers(1, 80), mean=st.floats(5, 200), required=st.floats(0.5, 1.0))
def test_a_replay_stops_only_where_a_target_is_out_of_reach(seed, replicas, mean, required):
    demand, required_frac = history(noisy(400, seed, mean)), np.array([required, required])

    whole = replay_service(demand, model(), StaticReplicas(replicas), initial_replicas=replicas)
    judged = replay_service(
        demand, model(), StaticReplicas(replicas), initial_replicas=replicas, required_frac=required_frac
    )

    assert np.all(judged.attained_frac >= whole.attained_frac - 1e-9)
    if judged.stopped:
        assert np.any(judged.attained_frac < required_frac)
    else:
        assert judged.ok.tobytes() == whole.ok.tobytes()
        assert judged.node_seconds.tobytes() == whole.node_seconds.tobytes()


@given(
    arrivals=st.lists(st.sampled_from([0.0, 0.0, 0.0, 1.0, 7.0, math.nan]), min_size=4, max_size=400),
    cold_start_s=st.sampled_from([0.0, 60.0, 480.0]),
    cooldown_s=st.sampled_from([300, 540, 1620]),
)
@settings(max_examples=60, deadline=None)
def test_a_replica_that_may_go_costs_no_more_than_one_that_stays_and_no_request_is_lost(
    arrivals, cold_start_s, cooldown_s
):
    history = ServiceHistory(arrivals=np.array(arrivals), step_s=60)
    shape = ServiceModel(
        capacity_req_s=0.5,
        load_grid=np.array([0.0, 1.0]),
        ok_frac=np.ones((2, 2)),
        wait_limit_s=np.array([0.0, 1e6]),
        cold_start_s=cold_start_s,
        queue_limit_s=3600.0,
    )
    asleep, awake = (
        replay_service(
            history,
            shape,
            KedaPolicy(HpaPolicy(0.7, least, 1), polling_s=15, cooldown_s=cooldown_s),
            initial_replicas=1,
        )
        for least in (0, 1)
    )

    assert np.all(asleep.held <= awake.held)
    assert np.all(asleep.node_seconds <= awake.node_seconds)
    assert asleep.requests == awake.requests == np.nansum(arrivals)
    assert asleep.unmet == 0
    at_once, ever = asleep.ok
    assert at_once <= awake.ok[0] + 1e-9  # who waits for a start is late
    assert ever == pytest.approx(asleep.requests)  # and is answered


def test_while_no_node_can_be_had_who_wakes_a_service_waits_until_that_is_over():
    arrivals = np.zeros(240)
    arrivals[70] = 1.0
    history = ServiceHistory(arrivals=arrivals, step_s=60)

    def in_time(limit_s):
        shape = ServiceModel(
            capacity_req_s=1.0, load_grid=np.array([0.0, 1.0]), ok_frac=np.ones((1, 2)), wait_limit_s=np.array([limit_s]),
            cold_start_s=300.0, queue_limit_s=7200.0, closed_hours=(1, 3),
        )  # fmt: skip
        policy = KedaPolicy(HpaPolicy(0.7, 0, 1), polling_s=15, cooldown_s=300)
        return replay_service(history, shape, policy, initial_replicas=1).attained_frac[0]

    # asked 70 min into the history, from whose second to third hour nothing starts: 110 min, then a start
    assert in_time(110 * 60.0) == 0
    assert in_time(110 * 60.0 + 300.0 + 30.0) == 1


def test_a_timetable_holds_replicas_beside_the_load_and_lets_go_as_the_load_does():
    # nothing arrives; ten replicas are asked for in the second of three hours
    asked = np.repeat([0.0, 10.0, 0.0], 240)
    timed = replace(history([0.0] * 720), asked=asked)

    result = replay_service(timed, model(), HpaPolicy(0.7, 2, 50), initial_replicas=2)

    held = result.held.reshape(3, 240)
    # up by 4 in each decision, and by twice as many from 8 on; down after the highest of five minutes
    assert (held[0].max(), held[1, 5:].min(), held[1].max(), held[2, 25:].max()) == (2, 10, 10, 2)


def test_a_timetable_asks_for_no_more_than_the_load_does_where_that_is_more():
    busy = history([300.0] * 480)

    alone, timed = (
        replay_service(each, model(), HpaPolicy(0.7, 2, 50), initial_replicas=2)
        for each in (busy, replace(busy, asked=np.full(480, 3.0)))
    )

    assert np.array_equal(alone.held, timed.held)


def test_a_timetable_wakes_a_service_that_has_gone_to_none():
    asked = np.repeat([0.0, 1.0], 240)
    policy = KedaPolicy(hpa=HpaPolicy(0.7, 0, 50))

    result = replay_service(replace(history([0.0] * 480), asked=asked), model(), policy, initial_replicas=1)

    assert (result.held[200], result.held[244], result.held[-1]) == (0, 1, 1)


@given(
    st.lists(st.sampled_from([0.0, 30.0, 700.0, 1500.0, 4000.0, float("nan")]), min_size=1, max_size=12),
    st.integers(1, 4),
    st.integers(1, 5),
    st.booleans(),
)
def test_a_fixed_number_of_replicas_serves_as_an_autoscaler_that_may_not_move(levels, replicas, quota, may_stop):
    shape, asked = model(quota_replicas=quota), history(np.repeat(levels, 3), step_s=900)
    start, required = min(replicas, quota), np.array([0.9, 0.6]) if may_stop else None
    policies = StaticReplicas(replicas), HpaPolicy(0.7, replicas, replicas)

    fixed, still = (
        replay_service(asked, shape, policy, initial_replicas=start, by_step=True, required_frac=required)
        for policy in policies
    )

    for field in fields(fixed):
        if field.name != "runs":
            np.testing.assert_array_equal(getattr(fixed, field.name), getattr(still, field.name), err_msg=field.name)
    assert fixed.held.tolist() == still.held.tolist()
