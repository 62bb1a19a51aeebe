"""Scale a service's replicas with its demand: the exact HPA rule and our forecasting rule, at a range of target loads."""

from __future__ import annotations

import numpy as np

from trimtab.fleet.effects import SetReplicaPolicy
from trimtab.fleet.model import ServiceObservation, Workload
from trimtab.fleet.settings import Lever
from trimtab.policies.forecast import ForecastPolicy, forecast_policy
from trimtab.policies.scaling import HpaPolicy
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import S_PER_MIN

LEVER = Lever.AUTOSCALING
TARGET_LOADS = tuple(round(0.10 + 0.05 * step, 2) for step in range(15))
"""10 % to 80 % of what a replica can serve."""
ROOM_TO_GROW = 4
"""A policy may grow to this many times the replicas that history ran, unless workloads.yaml says otherwise."""


FORECAST_LOADS = tuple(round(0.30 + 0.10 * step, 2) for step in range(6))
FORECAST_MARGINS = (2.4, 3.6, 5.4)
"""Spreads of headroom over the forecast, from the range in which the rule was studied (`replay.tuning.MARGINS`)."""
_FORECAST_TOLERANCE_FRAC = 0.05


def propose(workload: Workload, demand: ServiceObservation, cold_start_s: float) -> tuple[SetReplicaPolicy, ...]:
    """Return one HPA rule per target load, and forecasting rules per load and margin; none for what is no service.

    A forecast needs requests by the minute: hourly activity is too coarse for it.
    """
    if workload.kind is not WorkloadKind.SERVING:
        return ()
    most = observed_replicas(demand)
    floor = workload.spec.min_replicas if workload.spec.min_replicas is not None else min(2, most)
    top = workload.spec.max_replicas or most * ROOM_TO_GROW
    metric = "requests per replica" if workload.service is not None else "GPU activity per replica"
    policies: list[HpaPolicy | ForecastPolicy] = [
        HpaPolicy(target_frac=load, min_replicas=max(floor, 1), max_replicas=max(top, 1)) for load in TARGET_LOADS
    ]
    if workload.service is not None and demand.step_s <= S_PER_MIN:
        rate = np.nanmean(demand.arrivals) / demand.step_s if np.any(~np.isnan(demand.arrivals)) else 0.0
        policies += [
            forecast_policy(
                cold_start_s=cold_start_s,
                mean_req_s=float(rate),
                min_replicas=max(floor, 1),
                max_replicas=max(top, 1),
                target_frac=load,
                margin=margin,
                tolerance_frac=_FORECAST_TOLERANCE_FRAC,
            )
            for load in FORECAST_LOADS
            for margin in FORECAST_MARGINS
        ]
    return tuple(SetReplicaPolicy(policy=policy, metric=metric) for policy in policies)


def observed_replicas(demand: ServiceObservation) -> int:
    """Return the most replicas that history ran."""
    seen = demand.replicas[~np.isnan(demand.replicas)]
    return max(1, int(np.ceil(seen.max(initial=1.0) - 1e-6)))
