"""Triggers on latency beside demand: they add replicas where answers are late for five minutes, and else change nothing.

They remember how many more it took, let go of it by halves, and never ask for more than twice what the load asks for.
"""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.policies.keda import KedaPolicy
from trimtab.policies.scaling import HpaPolicy, beyond_chance
from trimtab.replay import fluid
from trimtab.replay.fluid import GUARD_TIMES, GuardCurves
from trimtab.replay.services import NO_GUARDS, ServiceHistory, ServiceModel, replay_service

GRID = np.array([0.0, 0.79, 0.8, 1.0])
"""Loads: all answers are quick up to 0.79, and as late as the share says from 0.8 on."""
IN_TIME = (0.5, 0.7, 0.9, 1.0, 1.0, 1.0)
"""The share of a busy replica's answers within each of GUARD_TIMES the limit: the 95th of 100 takes 1.5 times the limit."""


def guarding(shares=IN_TIME, required=0.95, limit_s=30.0):
    return GuardCurves(
        within_frac=np.array([[[1.0, 1.0, share, share] for share in shares]]),
        wait_limit_s=np.array([[limit_s * times for times in GUARD_TIMES]]),
        required_frac=np.array([required]),
    )


def model(guards=NO_GUARDS, **changes):
    facts = {
        "capacity_req_s": 1.0,
        "load_grid": GRID,
        "ok_frac": np.array([[1.0, 1.0, IN_TIME[0], IN_TIME[0]]]),
        "wait_limit_s": np.array([30.0]),
        "cold_start_s": 0.0,
        "guards": guards,
    }
    return ServiceModel(**{**facts, **changes})


def history(arrivals):
    return ServiceHistory(arrivals=np.asarray(arrivals, dtype=float), step_s=15.0)


def test_the_ratio_of_the_quantile_to_its_limit_times_the_replicas_that_served_is_asked_for_and_let_go_by_halves():
    """3.4 replicas' worth for four that a rule at 90 % would keep: 0.85 busy, so that half of the answers are late."""
    policy = HpaPolicy(0.9, 1, 50)

    plain, guarded = (
        replay_service(history([51.0] * 2_000), model(guards), policy, initial_replicas=4).held
        for guards in (NO_GUARDS, guarding())
    )

    assert set(plain) == {4}
    # 1.5 x 4 less what chance explains, and no more while the replicas that came are not those that served all five minutes
    assert guarded[0] == 4
    assert set(guarded[1:20]) == {6}
    # 6 of 3.78 that the load asks for are 1.55 times, of which 1.28 are left a quarter of an hour later: five
    assert set(guarded[20:45]) == {6}
    assert set(guarded[45:145]) == {5}
    # in the end demand alone speaks, four are late, and the guard asks for more again: a minute in half an hour
    assert set(guarded[145:]) == {4, 5}
    assert (guarded[145:] == 4).mean() < 0.03


@pytest.mark.parametrize(("shares", "replicas"), [((0.85, 0.96, 1, 1, 1, 1), 5), ((0.0,) * 6, 8)])
def test_a_guard_asks_for_a_seventh_more_at_least_and_for_twice_as_many_at_most(shares, replicas):
    found = replay_service(history([51.0] * 4), model(guarding(shares)), HpaPolicy(0.9, 1, 50), initial_replicas=4)

    assert found.held[1] == replicas


@pytest.mark.parametrize(("scale", "replicas"), [(1, {4}), (20, {4, 5})])
def test_more_of_few_requests_may_be_late_by_chance_than_of_many(scale, replicas):
    """6 % are late where 5 % may be: of a thousand in five minutes chance explains it, of twenty thousand it does not."""
    shares = (0.94, 0.96, 1, 1, 1, 1)

    found = replay_service(
        history([51.0 * scale] * 200),
        model(guarding(shares), capacity_req_s=1.0 * scale),
        HpaPolicy(0.9, 1, 50),
        initial_replicas=4,
    )

    assert set(found.held) == replicas


@given(st.floats(0.5, 0.999), st.floats(0, 1e7))
def test_what_must_be_in_time_grows_with_the_requests_up_to_what_the_target_says(required, requests):
    allowed = beyond_chance(required, requests)

    assert 0.0 <= allowed <= beyond_chance(required, 2 * requests) <= required


def test_what_is_late_now_and_then_within_five_minutes_is_within_a_limit_that_allows_it():
    """One step in twenty is half late: 2.5 %, where 5 % may be."""
    arrivals = np.where(np.arange(400) % 20 == 10, 54.0, 42.0)

    plain, guarded = (
        replay_service(history(arrivals), model(guards), HpaPolicy(0.9, 4, 4), initial_replicas=4).held
        for guards in (NO_GUARDS, guarding())
    )

    assert plain.tobytes() == guarded.tobytes()


def test_guards_hear_as_late_as_the_rest_of_the_metrics():
    """Two minutes are eight decisions; demand alone would keep the four replicas all the time."""
    arrivals = [42.0] * 40 + [51.0] * 60

    prompt, late = (
        int(np.argmax(replay_service(history(arrivals), told, HpaPolicy(0.9, 4, 50), initial_replicas=4).held > 4))
        for told in (model(guarding()), model(guarding(), metrics_late_s=120.0))
    )

    assert prompt > 40
    assert late == prompt + 8


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    mean=st.floats(20, 400),
    slow=st.floats(0.65, 1.0),
    target=st.sampled_from([0.6, 0.7, 0.8, 0.9]),
    shares=st.lists(st.floats(0, 1), min_size=6, max_size=6).map(sorted),
    required=st.sampled_from([0.9, 0.95, 0.99]),
    to_none=st.booleans(),
)
def test_with_guards_a_slow_law_is_kept_more_and_never_less_and_never_for_less(
    seed, mean, slow, target, shares, required, to_none
):
    """Replicas are slower than the rule takes them to be, but in time with half of the load that they were planned for.

    Half a point in time, and two percent of the replicas, are what one replica sooner or later comes to.
    """
    rng = np.random.default_rng(seed)
    demand = history(rng.poisson(mean * (1 + 0.8 * np.sin(np.arange(2_000) / 200))))
    policy = HpaPolicy(target / slow, 0 if to_none else 1, 100)
    rule = KedaPolicy(policy) if to_none else policy
    law = {"ok_frac": np.array([[1.0, 1.0, shares[0], shares[0]]]), "capacity_req_s": slow, "cold_start_s": 60.0}

    plain = replay_service(demand, model(**law), rule, initial_replicas=5)
    guarded = replay_service(demand, model(guarding(shares, required), **law), rule, initial_replicas=5)

    assert guarded.attained_frac[0] >= plain.attained_frac[0] - 0.005
    assert guarded.gpu_seconds.sum() >= plain.gpu_seconds.sum() * 0.98
    if plain.attained_frac[0] < required - 0.05:
        assert guarded.attained_frac[0] > plain.attained_frac[0]
        assert guarded.gpu_seconds.sum() > plain.gpu_seconds.sum()


def test_limits_that_are_kept_change_not_a_byte():
    rng = np.random.default_rng(3)
    demand = history(rng.poisson(60 * (1 + 0.5 * np.sin(np.arange(5_000) / 300))))
    lax = guarding(shares=[1.0] * len(GUARD_TIMES), limit_s=1e9)

    plain, guarded = (
        replay_service(demand, model(guards, cold_start_s=120.0), HpaPolicy(0.7, 1, 50), initial_replicas=5)
        for guards in (NO_GUARDS, lax)
    )

    assert plain.held.tobytes() == guarded.held.tobytes()
    assert plain.ok.tobytes() == guarded.ok.tobytes()


def test_the_compiled_loop_with_guards_gives_the_bytes_of_the_interpreted_one(monkeypatch):
    rng = np.random.default_rng(4)
    demand = history(np.where(np.arange(2_000) % 331 == 0, np.nan, rng.poisson(60, 2_000)))
    slow, policy = model(guarding(), cold_start_s=60.0, metrics_late_s=30.0), HpaPolicy(0.9, 1, 50)
    compiled = replay_service(demand, slow, policy, initial_replicas=3)

    monkeypatch.setattr("trimtab.replay.services.serve_history", fluid.serve_history.py_func)
    interpreted = replay_service(demand, slow, policy, initial_replicas=3)

    assert compiled.held.tobytes() == interpreted.held.tobytes()
    assert compiled.ok.tobytes() == interpreted.ok.tobytes()
