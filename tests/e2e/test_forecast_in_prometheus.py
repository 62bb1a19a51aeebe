"""Our forecasting rule, evaluated by a real Prometheus over a backfilled trace, decides what was replayed."""

import math

import numpy as np
import pytest
from tests.e2e.backfilled import EPOCH_S, STEP_S, ask, prometheus_over

from trimtab.emit.manifests.forecast_rules import LOAD_WANTED, forecast_records
from trimtab.policies.forecast import forecast_policy
from trimtab.replay.recorded import record, wanted_loads
from trimtab.replay.services import ServiceHistory, ServiceModel, replay_service

LABELS = '{workload="chat"}'
DEMAND = "trimtab:demand_replicas"
POLICY = forecast_policy(cold_start_s=120.0)


def as_openmetrics(series):
    """Recorded series as OpenMetrics text; a step's value stands at its end, a missing one is left out."""
    blocks = []
    for name, values in series.items():
        lines = [
            f"{name}{LABELS} {float(value)!r} {EPOCH_S + (step + 1) * STEP_S}"
            for step, value in enumerate(values)
            if not math.isnan(value)
        ]
        blocks.append(f"# TYPE {name} gauge\n" + "\n".join(lines))
    return "\n".join(blocks) + "\n# EOF\n"


def backfilled_in_order(load, folder, prometheus_bin, promtool_bin):
    """Evaluate the group rule by rule, each over what those before it recorded, as a live group does at each step."""
    series = {DEMAND: load}
    records = forecast_records(POLICY.rules, f"{DEMAND}{LABELS}", LABELS)
    rules = {"groups": [{"name": "forecast", "rules": [{"record": n, "expr": e} for n, e in records.items()]}]}
    for stage, (name, expression) in enumerate(records.items()):
        place = folder / str(stage)
        place.mkdir()
        with prometheus_over(as_openmetrics(series), rules, place, prometheus_bin, promtool_bin) as address:
            (values,) = ask(address, expression, len(load)).values()
        series[name] = np.array([values.get(step, math.nan) for step in range(len(load))])
    return series


def a_day_and_more():
    rng = np.random.default_rng(5)
    at = np.arange(int(1.1 * 5760))
    rate = 900 * (1 + 0.5 * np.sin(at / 700)) * np.where((at > 4000) & (at < 4120), 1.6, 1.0)
    rate = np.where((at > 6000) & (at < 6060), 20, rate)
    return rng.poisson(rate).astype(float)


@pytest.mark.prometheus
def test_prometheus_and_the_replay_want_the_same_replicas(tmp_path, prometheus_bin, promtool_bin):
    arrivals = a_day_and_more()
    model = ServiceModel(
        capacity_req_s=3.0,
        load_grid=np.array([0.0, 1.0]),
        ok_frac=np.ones((1, 2)),
        wait_limit_s=np.array([1.0]),
        cold_start_s=120.0,
    )
    history = ServiceHistory(arrivals=arrivals, step_s=STEP_S)
    load = history.load(model)

    series = backfilled_in_order(load, tmp_path, prometheus_bin, promtool_bin)

    replayed = wanted_loads(POLICY.rules, record(load, step_s=STEP_S, rules=POLICY.rules))
    assert series[LOAD_WANTED][60:] == pytest.approx(replayed[60:], rel=1e-6)
    followed = ServiceHistory(arrivals=arrivals, step_s=STEP_S, signal=series[LOAD_WANTED])
    ours = replay_service(history, model, POLICY, initial_replicas=30).replicas.astype(int)
    theirs = replay_service(followed, model, POLICY, initial_replicas=30).replicas.astype(int)
    assert np.mean(np.abs(ours - theirs) <= 1) >= 0.99
