"""Several metrics of one autoscaler: the highest recommendation counts, and a metric that is missing stops no rise.

As Kubernetes has it (1.34, pkg/controller/podautoscaler/horizontal.go, computeReplicasForMetrics): each metric gives a number
of replicas and the largest is taken; where some is missing and the others ask for fewer replicas, or where all are missing,
nothing changes and nothing is remembered. KEDA's triggers are metrics of such an autoscaler (external, with average values).
"""

from __future__ import annotations

import math
from typing import NamedTuple

ROUNDING = 1e-9
"""Slack under a ceiling, so that 0.7 / 0.7 asks for 1 replica and not 2."""
MISSING = -1
"""What a metric recommends that nobody measured."""
GUARD_MOST = 2.0
"""A guard asks for at most so many times the ready replicas, however late the answers are."""
GUARD_LEAST = 1.2
"""And for at least so many: less is within an HPA's usual tolerance of 10 %, and only holds what there is."""
GUARD_WINDOW_S = 300
"""Over which a guard on latency looks back."""


class Others(NamedTuple):
    """Targets of further metrics beside an autoscaler's first; 0 leaves one out.

    Queue is an average value: work that waits per replica. KV cache and wait are guards, as the emitted triggers are: they ask
    for nothing while their limit is kept, and beyond it for ready replicas in proportion.
    """

    duty_cycle_frac: float = 0.0
    """Busy share of each ready replica (a resource metric)."""
    queue_replica_s: float = 0.0
    """Replica-seconds of waiting work for each replica (an external metric)."""
    kv_cache_frac: float = 0.0
    """Share of the KV cache; the replay lets the busy share stand for it."""
    wait_s: float = 0.0
    """Seconds that a request which comes now waits before it is served."""


NO_OTHERS = Others()


class Tolerance(NamedTuple):
    """How far from its target a metric may be before anything moves, as a share, by direction."""

    up_frac: float
    down_frac: float


def per_ready_pod(ratio: float, ready: int, current: int, tolerance: Tolerance) -> int:
    """Apply the ratio rule of a resource or pods metric, averaged over ready pods.

    Pods that are not ready count as idle on the way up, and cancel a move whose direction they reverse.
    """
    if ratio <= 1.0:
        if ratio >= 1.0 - tolerance.down_frac:
            return current
        return math.ceil(ratio * ready - ROUNDING)
    damped = ratio * ready / max(current, 1)
    if damped <= 1.0 + tolerance.up_frac:
        return current
    return max(current, math.ceil(damped * current - ROUNDING))


def average_value(wanted: float, current: int, tolerance: Tolerance) -> int:
    """Apply the rule of an external metric with an average value, given its sum over its target: readiness plays no part."""
    if current > 0:
        ratio = wanted / current
        if 1.0 - tolerance.down_frac <= ratio <= 1.0 + tolerance.up_frac:
            return current
    return math.ceil(wanted - ROUNDING)


def guard(ratio: float, ready: int) -> float:
    """Return the replicas that would bring a value back to its limit in proportion; 0 while it is within."""
    return min(max(ratio, GUARD_LEAST), GUARD_MOST) * ready if ratio > 1.0 else 0.0


def with_others(
    others: Others,
    first: int,
    duty_cycle_frac: float,
    backlog_replica_s: float,
    guarded_replicas: float,
    ready: int,
    current: int,
    tolerance: Tolerance,
) -> int:
    """Return what the first metric's recommendation and those of the others come to; MISSING where nothing may be done.

    A value that is NaN is missing; so are those of ready pods where there are none. Guards on latency ask for
    `guarded_replicas`, 0 while every limit is kept, and are never missing.
    """
    highest, missing = first, first == MISSING
    if others.duty_cycle_frac > 0.0:
        if ready == 0 or math.isnan(duty_cycle_frac):
            missing = True
        else:
            highest = max(highest, per_ready_pod(duty_cycle_frac / others.duty_cycle_frac, ready, current, tolerance))
    if others.queue_replica_s > 0.0:
        if math.isnan(backlog_replica_s):
            missing = True
        else:
            highest = max(highest, average_value(backlog_replica_s / others.queue_replica_s, current, tolerance))
    if others.kv_cache_frac > 0.0:
        if math.isnan(duty_cycle_frac):
            missing = True
        else:
            highest = max(
                highest, average_value(guard(duty_cycle_frac / others.kv_cache_frac, ready), current, tolerance)
            )
    if others.wait_s > 0.0:
        if math.isnan(backlog_replica_s):
            missing = True
        else:
            late = backlog_replica_s / max(ready, 1) / others.wait_s
            highest = max(highest, average_value(guard(late, ready), current, tolerance))
    if guarded_replicas > 0.0:
        highest = max(highest, average_value(guarded_replicas, current, tolerance))
    if missing and highest < current:
        return MISSING
    return highest
