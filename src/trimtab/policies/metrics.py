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
"""A guard asks for at most so many times the ready replicas, however late the answers are.

One on latency also for at most so many times those that the load asks for: replicas that have half the load that they were
planned for and still answer late are not late for want of replicas.
"""
GUARD_LEAST = 1.15
"""And for at least so many: less is within an HPA's usual tolerance of 10 %, and only holds what there is."""
GUARD_WINDOW_S = 300
"""Over which a guard on latency looks back."""
GUARD_CHANCE_SDS = 3.0
"""Standard deviations of chance that a guard leaves to the share that came late: of a few hundred requests many more than the
twentieth that p95 allows may be late although nothing is wrong, and a guard that asks for replicas then pays for nothing."""
GUARD_HALF_LIFE_S = 900
"""In which half of what a guard on latency asks for beyond the load's replicas is let go, once answers are in time."""
GUARD_OFF = 1.1
"""Up to so many times the load's replicas a guard on latency asks for nothing: an HPA's usual tolerance."""
GUARD_LEAST_LOAD = 1e-3
"""The least mean load, in replicas, that what guards ask for is compared with."""


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


def beyond_chance(required_frac: float, requests: float) -> float:
    """Return the share that must be in time of so many requests, lest more were late than chance explains.

    Each is taken to be late or not by a draw of its own (binomial); that queues make them alike is what the margin is wide for.
    """
    deviation = math.sqrt(required_frac * (1.0 - required_frac) / max(requests, 1.0))
    return max(0.0, required_frac - GUARD_CHANCE_SDS * deviation)


def guard_times(before: float, asked: float, load: float, target_frac: float, step_s: int) -> float:
    """Return how many times the replicas for its load a guard on latency holds for right, a step after it was `before`.

    `asked` are the replicas that `guard` asks for, 0 while the limit is kept, and `load` is the mean one of the same time:
    answers that were late while replicas were fewer than the load asks for say nothing of how many it takes. It is raised at
    once and let go of by halves, so that replicas slower than planned are late for minutes in hours, not in every ten minutes.
    """
    held = 1.0 + (before - 1.0) * math.pow(0.5, step_s / GUARD_HALF_LIFE_S)
    return min(max(held, asked * target_frac / max(load, GUARD_LEAST_LOAD)), GUARD_MOST)


def guarded_replicas(times: float, load: float, target_frac: float) -> float:
    """Return the replicas that a guard on latency asks for; 0 while what it remembers is too little to matter."""
    return times * load / target_frac if times > GUARD_OFF else 0.0


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
    `guarded_replicas`, 0 where they ask for nothing, and are never missing.
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
