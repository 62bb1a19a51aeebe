"""Recorded series as Prometheus would record them, and the rule built on them."""

import numpy as np
import pytest

from trimtab.policies.forecast import ahead, forecast_policy, outgrown_frac, spread_frac, stretch, wanted_load
from trimtab.replay import recorded
from trimtab.replay.recorded import record, rolling_max, rolling_mean, rolling_slope, wanted_loads
from trimtab.replay.services import ServiceHistory, ServiceModel, replay_service
from trimtab.replay.tuning import tune_scaling

NAN = float("nan")


def wave(steps=6000, seed=0):
    rng = np.random.default_rng(seed)
    return rng.poisson(3000 * (1 + 0.6 * np.sin(np.arange(steps) / 900))).astype(float)


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
    rules = forecast_policy(cold_start_s=120, margin=3.0).rules
    spread = spread_frac(rules, 0.005, 0.0)

    assert spread == pytest.approx(0.1)
    assert wanted_load(rules, 10.0, 0.0, spread) == pytest.approx(13.0)
    assert wanted_load(rules, 10.0, 12.0, spread) == pytest.approx(12 * 1.18)


def test_rare_requests_get_longer_windows():
    assert stretch(4000, 100.0, 480) == 1.0
    assert stretch(4000, 4.0, 480) == pytest.approx(4000 / (4 * 480))
    assert stretch(4000, 0.001, 480) == 6.0


def test_an_outage_does_not_dismantle_the_service():
    load = np.concatenate([np.full(2000, 20.0), np.full(60, 0.5)])
    rules = forecast_policy(cold_start_s=120).rules

    wanted = wanted_loads(rules, record(load, step_s=15, rules=rules))

    assert wanted[-1] > 14


def test_shuffling_the_future_does_not_change_the_recorded_past():
    load = wave() / 300
    shuffled = load.copy()
    np.random.default_rng(1).shuffle(shuffled[3000:])
    rules = forecast_policy(cold_start_s=120).rules

    before = wanted_loads(rules, record(load, step_s=15, rules=rules))[:3000]
    after = wanted_loads(rules, record(shuffled, step_s=15, rules=rules))[:3000]

    assert before.tobytes() == after.tobytes()


def test_the_compiled_rules_give_the_bytes_of_the_interpreted_ones(monkeypatch):
    load = wave(1500) / 300
    rules = forecast_policy(cold_start_s=120).rules
    compiled = wanted_loads(rules, record(load, step_s=15, rules=rules))

    for name in ("rolling_mean", "rolling_max", "rolling_slope", "lines_ahead", "squared_errors", "spreads"):
        monkeypatch.setattr(recorded, name, getattr(recorded, name).py_func)
    interpreted = wanted_loads.py_func(rules, record(load, step_s=15, rules=rules))

    assert compiled.tobytes() == interpreted.tobytes()


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
