"""Guards as they are emitted, in the proof under stress: where a service has none its row is the one without."""

import json
import re

import numpy as np
import pytest
import yaml
from tests.fleets import FleetRows, at

from trimtab.emit.from_audit.proof import robustness_part
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.fleet.settings import Settings
from trimtab.pipeline import audit, kept_plan
from trimtab.plan.proof.robustness import DEPARTURES, WITH_GUARDS

DAYS = 14
LE_S = (0.5, 1.0, 2.0, 4.0, float("inf"))
REPLICAS = 4
PER_REPLICA = 10.0
"""Requests/s that fill a replica."""


def busy_frac(hour):
    """How busy four replicas are: with two thirds of what they serve from 9 to 18 h, else with a twelfth of it."""
    return 0.66 if 9 <= hour % 24 < 18 else 0.08


def add_service(rows, name, gpus=8, limit_s=2.0):
    """Add replicas of a node each, whose requests take the longer the busier they are."""
    for replica in range(REPLICAS):
        node = f"{name.replace('/', '-')}-{replica}"
        rows.node(node, "p4d.24xlarge").hold(name, node, range(gpus), owner_kind="Deployment", pod=f"{name}-{replica}")
        for gpu in range(gpus):
            rows.use(name, node, gpu, range(DAYS * 24), sm=lambda hour: busy_frac(hour), dram=0.2)
    rng = np.random.default_rng(1)
    for step in range(DAYS * 24 * 4):
        load = busy_frac(step // 4)
        came = float(rng.poisson(load * PER_REPLICA * REPLICAS * 900))
        late = 0.01 + 0.05 * load**2
        rows.rows["demand"].append(
            {
                "workload": name, "start": at(step / 4), "interval_s": 900.0, "arrivals": came,
                "replicas_ready": float(REPLICAS), "running_mean": load * REPLICAS, "latency_le_s": list(LE_S),
                "latency_count": [round(came * part) for part in (0.6, 0.4 - late, late * 0.6, late * 0.4, 0.0)],
                "ttft_le_s": None, "ttft_count": None,
            }
        )  # fmt: skip
    declared = {"kind": "serving", "targets": [{"metric": "latency", "quantile": 0.95, "limit_s": limit_s}]}
    rows.workloads = {**rows.workloads, name: declared}


def bundle_of(*names):
    rows = FleetRows(DAYS)
    rows.workloads = {}
    for name in names:
        add_service(rows, name)
    return rows.bundle()


@pytest.fixture(scope="module")
def found():
    return audit(bundle_of("prod/chat"), Settings())


def test_show(found):
    for action in found.plan.actions:
        print(action.lever, [c.effect for c in action.changes])
    for row in found.robustness.stressed:
        print(row.departure.name, row.bill_usd_mo, row.targets_kept, row.targets, [(r.target.describe(), r.attained_frac) for r in row.results])
    print(found.robustness.notes)
    print([(r.target.describe(), r.attained_frac) for r in found.proof.targets])
