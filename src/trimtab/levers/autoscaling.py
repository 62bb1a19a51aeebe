"""Scale a service's replicas with its demand: the exact HPA rule at a range of target loads."""

from __future__ import annotations

import numpy as np

from trimtab.fleet.effects import SetReplicaPolicy
from trimtab.fleet.model import ServiceObservation, Workload
from trimtab.fleet.settings import Lever
from trimtab.policies.scaling import HpaPolicy
from trimtab.tables.workloads import WorkloadKind

LEVER = Lever.AUTOSCALING
TARGET_LOADS = tuple(round(0.10 + 0.05 * step, 2) for step in range(15))
"""10 % to 80 % of what a replica can serve."""
_ROOM_TO_GROW = 4
"""A policy may grow to this many times the replicas that history ran, unless workloads.yaml says otherwise."""


def propose(workload: Workload, demand: ServiceObservation) -> tuple[SetReplicaPolicy, ...]:
    """Return one scaling rule per target load; none for what is no service."""
    if workload.kind is not WorkloadKind.SERVING:
        return ()
    most = observed_replicas(demand)
    floor = workload.spec.min_replicas if workload.spec.min_replicas is not None else min(2, most)
    top = workload.spec.max_replicas or most * _ROOM_TO_GROW
    metric = "requests per replica" if workload.service is not None else "GPU activity per replica"
    return tuple(
        SetReplicaPolicy(
            policy=HpaPolicy(target_frac=load, min_replicas=max(floor, 1), max_replicas=max(top, 1)), metric=metric
        )
        for load in TARGET_LOADS
    )


def observed_replicas(demand: ServiceObservation) -> int:
    """Return the most replicas that history ran."""
    seen = demand.replicas[~np.isnan(demand.replicas)]
    return max(1, int(np.ceil(seen.max(initial=1.0) - 1e-6)))
