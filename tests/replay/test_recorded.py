"""Recorded series as Prometheus would record them, and the rule built on them."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from trimtab.policies.forecast import (
    ahead,
    forecast_policy,
    learned_margin,
    learning_rate,
    outgrown_frac,
    spread_frac,
    stretch,
    wanted_load,
)
from trimtab.replay import recorded
from trimtab.replay.compare import tune_scaling
from trimtab.replay.recorded import learned, record, rolling_max, rolling_mean, rolling_slope, wanted_loads
from trimtab.replay.services import ServiceHistory, ServiceModel, replay_service

NAN = float("nan")


def wave(steps=6000, seed=0):
    rng = np.random.default_rng(seed)
    return rng.poisson(3000 * (1 + 0.6 * np.sin(np.arange(steps) / 900))).astype(float)


def wanted_for(load):
    policy = forecast_policy(cold_start_s=120)
    return wanted_loads(policy, load, record(load, step_s=15, rules=policy.rules), step_s=15)


def model(**changes):
    facts = {
        "capacity_req_s": 20.0,
        "load_grid": np.array([0.0, 1.0]),
        "ok_frac": np.ones((1, 2)),
        "wait_limit_s": np.array([1.0]),
        "cold_start_s": 120.0,
    }
    return ServiceModel(**{**facts, **changes})


def test_a_mean_leaves_missing_samples_out():
    means = rolling_mean(np.array([1.0, 3.0, NAN, 5.0, NAN, NAN, 7.0]), 2)
    assert means.tolist()[:5] == [1.0, 2.0, 3.0, 5.0, 5.0]
    assert np.isnan(means[5])
    assert means[6] == 7.0


def test_a_mean_does_not_drift():
    values = np.random.default_rng(0).random(10_000) * 1e6
    means = rolling_mean(values, 100)
    assert means[-1] == pytest.approx(values[-100:].mean(), rel=1e-12)


def test_a_maximum_forgets():
    assert rolling_max(np.array([5.0, 1.0, 2.0, NAN, 1.0]), 2).tolist()[:3] == [5.0, 5.0, 2.0]


def test_a_slope_is_that_of_a_line():
    assert rolling_slope(np.array([0.0, 2.0, 4.0, 6.0]), 3).tolist() == pytest.approx([0.0, 2.0, 2.0, 2.0])


def test_a_rising_line_is_read_ahead_and_a_falling_one_is_not():
    assert ahead(10.0, 0.1, 1.0, 60.0, 120.0) == pytest.approx(10 + 0.1 * 150)
    assert ahead(10.0, -0.1, 1.0, 60.0, 120.0) == 10.0


def test_only_what_outgrew_the_forecast_is_an_error():
    assert outgrown_frac(11.0, 10.0, 10.0) == pytest.approx(0.1)
    assert outgrown_frac(9.0, 10.0, 10.0) == 0.0


def test_the_margin_is_in_spreads():
    rules = forecast_policy(cold_start_s=120).rules
    spread = spread_frac(rules, 0.005, 0.0)

    assert spread == pytest.approx(0.1)
    assert wanted_load(rules, 10.0, 0.0, spread, 3.0) == pytest.approx(13.0)
    assert wanted_load(rules, 10.0, 12.0, spread, 3.0) == pytest.approx(12 * 1.18)


def test_rare_requests_get_longer_windows():
    assert stretch(4000, 100.0, 480) == 1.0
    assert stretch(4000, 4.0, 480) == pytest.approx(4000 / (4 * 480))
    assert stretch(4000, 0.001, 480) == 6.0


def test_an_outage_does_not_dismantle_the_service():
    load = np.concatenate([np.full(2000, 20.0), np.full(60, 0.5)])

    wanted = wanted_for(load)

    assert wanted[-1] > 14


def test_shuffling_the_future_does_not_change_the_recorded_past():
    load = wave() / 300
    shuffled = load.copy()
    np.random.default_rng(1).shuffle(shuffled[3000:])

    before = wanted_for(load)[:3000]
    after = wanted_for(shuffled)[:3000]

    assert before.tobytes() == after.tobytes()


def test_the_compiled_rules_give_the_bytes_of_the_interpreted_ones(monkeypatch):
    load = wave(1500) / 300
    compiled = wanted_for(load)

    names = ("rolling_mean", "rolling_max", "rolling_slope", "lines_ahead", "squared_errors", "spreads", "learned")
    for name in names:
        monkeypatch.setattr(recorded, name, getattr(recorded, name).py_func)
    interpreted = wanted_for(load)

    assert compiled.tobytes() == interpreted.tobytes()


def test_a_miss_raises_the_margin_and_its_absence_lowers_it():
    rules = forecast_policy(cold_start_s=120).rules
    late = learned_margin(rules, 3.0, load=12.0, provided=10.0, usual_load=8.0, step_s=15)
    timely = learned_margin(rules, 3.0, load=8.0, provided=10.0, usual_load=8.0, step_s=15)

    rate = 0.6 * 15 / 86_400 / 0.0005
    assert late == pytest.approx(3.0 + rate * 0.9995 * 12 / 8)
    assert timely == pytest.approx(3.0 - rate * 0.0005)
    assert learned_margin(rules, 3.0, NAN, 10.0, 8.0, 15) == 3.0


@given(
    load=arrays(np.float64, st.integers(50, 400), elements=st.floats(0.5, 40.0)),
    required_frac=st.sampled_from([0.9, 0.99, 0.999]),
)
def test_no_more_comes_late_than_the_margin_allows_in_the_long_run(load, required_frac):
    """The bound of adaptive conformal inference, summed over the updates; it holds while the margin is below its most."""
    policy = forecast_policy(cold_start_s=30, required_frac=required_frac)
    policy = policy._replace(rules=policy.rules._replace(most_margin=1e12))
    usual = rolling_mean(load, 5760)

    _, margin = learned(policy, load, usual, record(load, step_s=15, rules=policy.rules), 15.0)

    rose = np.diff(margin, prepend=policy.rules.first_margin)
    rate = learning_rate(policy.rules, 15.0)
    late = (load / usual)[rose > 0].sum()
    allowed = policy.rules.late_frac * (load / usual).sum()
    assert late <= allowed + (margin[-1] - policy.rules.first_margin) / rate + 1e-6


def test_a_regime_that_turns_volatile_is_learned():
    rng = np.random.default_rng(2)
    calm = 20.0 + 0.2 * rng.standard_normal(6000)
    wild = 20.0 * np.exp(0.15 * np.repeat(rng.standard_normal(300), 20))
    load = np.concatenate([calm, wild])
    policy = forecast_policy(cold_start_s=120)

    _, margin = learned(policy, load, rolling_mean(load, 5760), record(load, step_s=15, rules=policy.rules), 15.0)

    assert margin[5999] < policy.rules.first_margin
    assert margin[-1] > policy.rules.first_margin + 1.0


def test_a_tuned_rule_keeps_its_target_on_the_days_that_follow_at_less_than_peak():
    arrivals = wave(12_000)
    fit = ServiceHistory(arrivals=arrivals[:6000], step_s=15)
    tuned = tune_scaling(fit, model(), required_frac=0.999)

    rest = ServiceHistory(arrivals=arrivals[6000:], step_s=15)
    replay = replay_service(rest, model(), tuned.policy, initial_replicas=20)

    assert tuned.feasible
    assert replay.attained_frac[0] >= 0.999
    assert replay.replica_hr < 0.8 * 17 * len(rest.arrivals) * 15 / 3600


def test_a_target_out_of_reach_is_not_feasible():
    fit = ServiceHistory(arrivals=wave(2000), step_s=15)
    hopeless = model(ok_frac=np.full((1, 2), 0.9))

    assert not tune_scaling(fit, hopeless, required_frac=0.999).feasible
