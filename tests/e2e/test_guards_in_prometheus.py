"""What a guard records is what the replay remembers: Prometheus' rule engine, step by step."""

import re
import subprocess

import pytest
import yaml
from tests.emit.cluster_example import example_facts
from tests.emit.example import example_audit

from trimtab.deployment.effects import SetReplicaPolicy
from trimtab.emit.manifests.facts import Autoscaler
from trimtab.emit.manifests.latency_guards import GUARD_TIMES, guard_records
from trimtab.policies.scaling import guard, guard_times

STEP_S = 15
STEPS = 160
LATE = range(40, 80)
READY, LOAD, TOOK_S = 4, 2.0, 4.8
NAME = "prod/chat-api"


def test_a_guard_remembers_in_prometheus_what_it_does_in_the_replay(tmp_path, promtool_bin):
    effect = next(
        change.effect
        for action in example_audit().plan.actions
        for change in action.changes
        if change.subject == NAME and isinstance(change.effect, SetReplicaPolicy)
    )
    records = list(guard_records(effect, example_facts(Autoscaler.KEDA).workload(NAME)))
    # what is late stands for the quantile, which Prometheus knows how to make
    for record in records:
        record["expr"] = re.sub(r"histogram_quantile\(.*\[5m\]\)\)\)", "took_s", " ".join(record["expr"].split()))
    of = '{namespace="prod",workload="chat-api"}'
    took = " ".join(str(TOOK_S if step in LATE else 1.0) for step in range(STEPS))
    inputs = [
        {"series": f"trimtab:replicas_ready{of}", "values": f"{READY}x{STEPS}"},
        {"series": f"trimtab:load_replicas{of}", "values": f"{LOAD}x{STEPS}"},
        {"series": "took_s", "values": took},
    ]
    steps = [39, 40, 60, 79, 80, 100, 140, 159]
    asked = [{"expr": GUARD_TIMES, "eval_time": f"{at * STEP_S}s", "exp_samples": []} for at in steps]
    (tmp_path / "rules.yaml").write_text(
        yaml.safe_dump({"groups": [{"name": "g", "interval": "15s", "rules": records}]})
    )
    case = {"interval": "15s", "input_series": inputs, "promql_expr_test": asked}
    (tmp_path / "t.yaml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "15s", "tests": [case]})
    )
    done = subprocess.run(
        [promtool_bin, "test", "rules", "t.yaml"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )

    found = {}
    for block in re.split(r'(?=expr: ")', done.stdout + done.stderr):
        at = re.search(r"time: (?:(\d+)m)?(?:(\d+)s)?", block)
        value = re.search(r"(?:got: .*|guard_times\{[^}]*)\} ([0-9.eE+-]+)", block)
        if at and value:
            found[(int(at[1] or 0) * 60 + int(at[2] or 0)) // STEP_S] = float(value[1])
    times, expected = 1.0, {}
    for step in range(STEPS):
        asks = guard(TOOK_S / 4.0, READY) if step in LATE else 0.0
        times = guard_times(times, asks, LOAD, effect.hpa.target_frac, STEP_S)
        expected[step] = times
    assert found == pytest.approx({step: expected[step] for step in steps if step >= LATE[0]}, abs=1e-6), (
        done.stdout + done.stderr
    )
