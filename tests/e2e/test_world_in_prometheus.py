"""The proving ground's own PromQL, held against Prometheus' rule engine on rules as they are emitted."""

import math
import re
import subprocess

import numpy as np
import pytest
import yaml
from benchmarks.proving.world.rules import EXPORTED, Monitoring, Pod, RecordingRule
from benchmarks.proving.world.samples import Store
from tests.e2e.test_emitted_scaling import emitted_rules
from tests.e2e.test_forecast_in_prometheus import seconds

from trimtab.policies.forecast import forecast_policy
from trimtab.policies.scaling import HpaPolicy

STEP_S = 15
STEPS = 600
EVERY = 7
FORECAST = forecast_policy(cold_start_s=120.0, min_replicas=2, max_replicas=60, target_frac=0.8)
WINDOWED = HpaPolicy(target_frac=0.7, min_replicas=2, max_replicas=40, window_s=300)
OUTAGE = range(400, 408)
"""Steps in which no pod is scraped."""


def pods_that_come_and_go():
    """Yield by step (pods, waiting): a surge, pods that start, drain and go, and minutes in which nothing is scraped."""
    rng = np.random.default_rng(8)
    answered = {}
    for step in range(STEPS):
        count = 4 + 2 * (step % 200 > 120) - (step % 150 > 100)
        first = step // 180
        pods = []
        for number in range(first, first + count):
            answered[number] = answered.get(number, 0.0) + float(rng.poisson(9 * (1 + 0.5 * math.sin(step / 60))))
            starting = number == first + count - 1 and step % 200 in range(121, 130)
            draining = number == first and step % 180 > 176
            pods.append(
                Pod(
                    number=number,
                    serves=not starting,
                    ready=not starting and not draining,
                    answered=answered[number],
                    activity_frac=0.5,
                )
            )
        yield ([] if step in OUTAGE else pods), int(rng.poisson(40)) if step % 300 > 240 else 0


def as_input(store):
    """Return every scraped series as promtool's input: `_` is no sample, `stale` the mark of an end."""
    for name in sorted(EXPORTED):
        for labels, series in store.named(name):
            at_s, values = series.within(-1.0, STEPS * STEP_S)
            known = dict(zip((at_s / STEP_S).round().astype(int).tolist(), values.tolist(), strict=True))
            there, words = False, []
            for step in range(STEPS + 1):
                words.append(repr(known[step]) if step in known else "stale" if there else "_")
                there = step in known
            pairs = ",".join(f'{label}="{value}"' for label, value in labels)
            yield {"series": f"{name}{{{pairs}}}", "values": " ".join(words)}


def recorded_by_prometheus(groups, inputs, names, steps, folder, promtool_bin):
    """Return {(record, labels, step): value}: promtool plays time; it reports a value only where it was not expected."""
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
    asked = [{"expr": name, "eval_time": f"{step * STEP_S}s", "exp_samples": []} for name in names for step in steps]
    case = {"interval": f"{STEP_S}s", "input_series": inputs, "promql_expr_test": asked}
    spec = {"rule_files": ["rules.yaml"], "evaluation_interval": f"{STEP_S}s", "tests": [case]}
    (folder / "tests.yaml").write_text(yaml.safe_dump(spec))
    done = subprocess.run(
        [promtool_bin, "test", "rules", "tests.yaml"], cwd=folder, capture_output=True, text=True, timeout=300
    )
    found = {}
    for block in re.split(r"(?=expr: \")", done.stdout + done.stderr):
        head = re.match(r'expr: "([a-z_:]+)", time: (\w+)', block)
        for labels, value in re.findall(r"\{([^{}]*)\} (\S+?)(?=[,\s]|$)", block):
            pairs = tuple(sorted(re.findall(r'(\w+)="([^"]*)"', labels)))
            pairs = tuple(pair for pair in pairs if pair[0] != "__name__")
            found[head[1], pairs, round(seconds(head[2]) / STEP_S)] = float(value)
    return found


@pytest.mark.prometheus
@pytest.mark.parametrize("policy", [FORECAST, WINDOWED], ids=["forecast", "windowed"])
def test_the_world_records_what_prometheus_records(policy, tmp_path, promtool_bin):
    known, spec = emitted_rules(0.6, policy)
    group = next(group for group in spec["groups"] if group["name"].endswith(".demand"))
    assert group["interval"] == f"{STEP_S}s"
    rules = [RecordingRule(record=r["record"], expression=r["expr"], labels=r["labels"]) for r in group["rules"]]
    monitoring = Monitoring(known.namespace, known.short_name, rules, "vector(0)")

    # the world's store forgets what no rule looks back to, so that what was scraped is kept in a second one
    whole = Monitoring(known.namespace, known.short_name, [], "vector(0)")
    whole.store = Store()
    seen = {}
    names = list(dict.fromkeys(rule.record for rule in rules))
    steps = range(5, STEPS, EVERY)
    for step, (pods, waiting) in enumerate(pods_that_come_and_go(), start=1):
        for server in (monitoring, whole):
            server.told(step * STEP_S, pods, waiting, len(pods))
        if step in steps:
            for name in names:
                for labels, series in monitoring.store.named(name):
                    value = series.last(step * STEP_S, 300.0)
                    if value is not None:
                        seen[name, labels, step] = value

    inputs = list(as_input(whole.store))
    expected = recorded_by_prometheus([group], inputs, names, steps, tmp_path, promtool_bin)

    assert len(expected) > 5 * len(steps)
    assert seen.keys() == expected.keys()
    assert [seen[key] for key in expected] == pytest.approx(list(expected.values()), rel=1e-6, abs=1e-9, nan_ok=True)
