"""Our forecasting rule, evaluated by a real Prometheus over a backfilled trace and by its rule engine step by step."""

import math
import re
import subprocess

import numpy as np
import pytest
import yaml
from tests.e2e.backfilled import STEP_S, as_openmetrics, ask, prometheus_over

from trimtab.emit.manifests.forecast_rules import (
    FAST,
    LOAD_WANTED,
    MARGIN,
    SLOW,
    SPREAD,
    forecast_records,
)
from trimtab.policies.forecast import forecast_policy
from trimtab.replay.recorded import learned, record, rolling_mean, wanted_loads

LABELS = '{workload="chat"}'
LOAD = "trimtab:load_replicas"
POLICY = forecast_policy(cold_start_s=120.0, min_replicas=2, max_replicas=60, target_frac=0.8)
FIRST, EVERY = 60, 5
"""The steps whose records are compared: by then the windows of the lines are full."""
RECORDS = forecast_records(POLICY, f"{LOAD}{LABELS}", f"{LOAD}{LABELS}", LABELS)


def backfilled_in_order(load, folder, prometheus_bin, promtool_bin):
    """Evaluate the rules up to the spread one by one, each over what those before it recorded, as a live group does."""
    series = {LOAD: load}
    records = dict(list(RECORDS.items())[: list(RECORDS).index(SPREAD) + 1])
    rules = {"groups": [{"name": "forecast", "rules": [{"record": n, "expr": e} for n, e in records.items()]}]}
    for stage, (name, expression) in enumerate(records.items()):
        place = folder / str(stage)
        place.mkdir()
        with prometheus_over(as_openmetrics(series, LABELS), rules, place, prometheus_bin, promtool_bin) as address:
            (values,) = ask(address, expression, len(load)).values()
        series[name] = np.array([values.get(step, math.nan) for step in range(len(load))])
    return series


def evaluated(load, folder, promtool_bin, names, steps):
    """What a live group records, {name: {step: value}}: promtool plays time and evaluates all rules at each step in turn.

    It reports a value only where it differs from the one expected, so that nothing is expected.
    """
    rules = [{"record": name, "expr": expression} for name, expression in RECORDS.items()]
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "forecast", "rules": rules}]}))
    # the value of a step stands at its end; `_` is no sample
    samples = " ".join("_" if math.isnan(value) else repr(float(value)) for value in load)
    case = {
        "interval": f"{STEP_S}s",
        "input_series": [{"series": f"{LOAD}{LABELS}", "values": samples}],
        "promql_expr_test": [
            {"expr": f"{name}{LABELS}", "eval_time": f"{step * STEP_S}s", "exp_samples": []}
            for name in names
            for step in steps
        ],
    }
    spec = {"rule_files": ["rules.yaml"], "evaluation_interval": f"{STEP_S}s", "tests": [case]}
    (folder / "tests.yaml").write_text(yaml.safe_dump(spec))
    done = subprocess.run(
        [promtool_bin, "test", "rules", "tests.yaml"], cwd=folder, capture_output=True, text=True, timeout=120
    )
    said = re.findall(r'expr: "([a-z_:]+)\{.*", time: (\w+),\s+exp: nil\s+got: \{.*\} (\S+)', done.stdout + done.stderr)
    found = {name: {} for name in names}
    for name, at, value in said:
        found[name][round(seconds(at) / STEP_S)] = float(value)
    return found


def seconds(duration):
    """Seconds of a Prometheus duration such as 1d2h3m15s."""
    scale = {"d": 86400, "h": 3600, "m": 60, "s": 1}
    return sum(int(number) * scale[unit] for number, unit in re.findall(r"(\d+)([dhms])", duration))


def a_day_and_more():
    rng = np.random.default_rng(5)
    at = np.arange(int(1.1 * 5760))
    rate = 300 * (1 + 0.5 * np.sin(at / 700)) * np.where((at > 4000) & (at < 4120), 1.6, 1.0)
    rate = np.where((at > 6000) & (at < 6060), 7, rate)
    return rng.poisson(rate) / 15.0


def five_hours_with_surges():
    """Surges that come unforeseen, an outage upstream with its return, and minutes without samples."""
    rng = np.random.default_rng(6)
    at = np.arange(1200)
    rate = 300 * (1 + 0.3 * np.sin(at / 300)) * np.where(at % 400 > 360, 1.7, 1.0)
    rate = np.where((at > 900) & (at < 940), 7, rate)
    load = rng.poisson(rate) / 15.0
    load[500:508] = math.nan
    return load


@pytest.mark.prometheus
def test_prometheus_forecasts_what_the_replay_forecasts(tmp_path, prometheus_bin, promtool_bin):
    load = a_day_and_more()

    series = backfilled_in_order(load, tmp_path, prometheus_bin, promtool_bin)

    told = record(load, step_s=STEP_S, rules=POLICY.rules)
    assert series[SLOW][FIRST:] == pytest.approx(told.slow[FIRST:], rel=1e-6)
    assert series[FAST][FIRST:] == pytest.approx(told.fast[FIRST:], rel=1e-6)
    assert series[SPREAD][FIRST:] == pytest.approx(told.spread[FIRST:], rel=1e-6)


@pytest.mark.prometheus
def test_prometheus_learns_the_margins_that_the_replay_learns(tmp_path, prometheus_bin, promtool_bin):
    load = five_hours_with_surges()
    told = record(load, step_s=STEP_S, rules=POLICY.rules)
    wanted = wanted_loads(POLICY, load, told, step_s=STEP_S)
    _, margin = learned(POLICY, load, rolling_mean(load, 5760), told, float(STEP_S))
    steps = range(FIRST, len(load), EVERY)

    seen = evaluated(load, tmp_path, promtool_bin, (LOAD_WANTED, MARGIN), steps)

    assert np.ptp(margin[FIRST:]) > 1
    assert [seen[MARGIN][step] for step in steps] == pytest.approx(margin[steps], rel=1e-6)
    assert [seen[LOAD_WANTED][step] for step in steps] == pytest.approx(wanted[steps], rel=1e-6)
