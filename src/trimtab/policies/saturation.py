"""Scaling by saturation, as the Workload Variant Autoscaler of llm-d does it: one replica at a time.

From llm-d/llm-d-workload-variant-autoscaler (saturation analyser) and arXiv 2603.09730: a replica is saturated at 80 % of
its KV cache or 5 waiting requests; one is added when the spare KV share of the others averages under 10 % or their spare
queue under 3, one is removed when those that remain would still have that much to spare; nothing happens while a replica
starts. Load stands in for the KV share, and any waiting at all for a queue without room.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from trimtab.policies.scaling import SYNC_S, Observation


class SaturationPolicy(NamedTuple):
    """Limits of a replica's load, and how often to decide."""

    min_replicas: int
    max_replicas: int
    saturated_load: float = 0.8
    least_spare_load: float = 0.1
    interval_s: int = 60


def saturation_step(policy: SaturationPolicy, seen: Observation) -> int:
    """Return one replica more, one less, or what there is."""
    current = seen.ready + seen.starting
    if math.isnan(seen.load) or (seen.step * SYNC_S) % policy.interval_s >= SYNC_S or seen.starting > 0:
        return current
    most_load = policy.saturated_load - policy.least_spare_load
    wanted = current
    if seen.duty_cycle_frac > most_load or seen.backlog_replica_s > 0.0:
        wanted = current + 1
    elif current > 1 and seen.duty_cycle_frac * seen.ready < most_load * (seen.ready - 1):
        wanted = current - 1
    return min(max(wanted, policy.min_replicas), policy.max_replicas)
