"""Demand averaged over a window: what a real Prometheus makes of it is what the replayed autoscaler sees."""

import math

import numpy as np
import pytest
from tests.e2e.backfilled import STEP_S, as_openmetrics, ask, prometheus_over

from trimtab.emit.manifests.demand_rules import CURRENT, DEMAND, LOAD, READY, scaling_demand
from trimtab.emit.manifests.facts import WorkloadFacts
from trimtab.policies.scaling import HpaPolicy, Observation, hpa_memory, over_window

KNOWN = WorkloadFacts(name="prod/chat-api", replicas=4)
LABELS = '{namespace="prod",workload="chat-api"}'
POLICY = HpaPolicy(target_frac=0.7, min_replicas=1, max_replicas=50, window_s=300)
ABOVE_ALL = 1000
"""Replicas there are, so that demand stands below what would hold them and is passed on as it is."""


@pytest.mark.prometheus
def test_the_emitted_window_is_the_replayed_one(tmp_path, prometheus_bin, promtool_bin):
    rng = np.random.default_rng(4)
    load, queue = rng.poisson(3.0, 600) / 2.0, np.maximum(rng.normal(0.0, 1.0, 600), 0.0)
    load[200:205] = math.nan
    held = np.full(600, float(ABOVE_ALL))
    series = {LOAD: load, DEMAND: load + queue, READY: held, CURRENT: held}
    expression = scaling_demand(POLICY, KNOWN)

    rules = {"groups": [{"name": "demand", "rules": [{"record": "trimtab:scaling_demand", "expr": expression}]}]}
    with prometheus_over(as_openmetrics(series, LABELS), rules, tmp_path, prometheus_bin, promtool_bin) as address:
        (said,) = ask(address, expression, len(load)).values()

    memory, seen = hpa_memory(POLICY), []
    for step, (arriving, waiting) in enumerate(zip(load, queue, strict=True)):
        backlog = waiting * STEP_S
        now = over_window(POLICY, memory, Observation(step, ABOVE_ALL, 0, arriving, 0.0, backlog, math.nan))
        seen.append(now.load + now.backlog_replica_s / STEP_S)
    assert [said.get(step, math.nan) for step in range(600)] == pytest.approx(seen, rel=1e-9, nan_ok=True)
    assert np.nanstd(seen) < np.nanstd(load)
