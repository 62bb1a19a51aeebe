"""How many replicas a service should have, by the Kubernetes HPA rule; what every scaling rule sees and remembers.

A rule is a step `(parameters, memory, observation) -> replicas`. Parameters and observations are `NamedTuple`s of scalars; the
memory is one flat row of floats, a list where a clock drives the rule and an array where history does. Nothing else
persists, so the same parameters, memory and observation give the same decision.

The HPA rule is that of Kubernetes 1.34 (kubernetes/kubernetes pkg/controller/podautoscaler: replica_calculator.go and
horizontal.go; kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale): a decision every 15 s, tolerance 0.1,
scale-down to the highest recommendation of the last 300 s, scale-up by at most max(100 %, 4 pods) per 15 s.

Of several metrics the highest recommendation counts, and one that is missing stops no rise (computeReplicasForMetrics): where
some is missing and the others ask for fewer replicas, or where all are missing, nothing changes and nothing is remembered.
KEDA's triggers are metrics of such an autoscaler (external, with average values).
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple, Protocol

ROUNDING = 1e-9
"""Slack under a ceiling, so that 0.7 / 0.7 asks for 1 replica and not 2."""
MISSING = -1
"""The recommendation of a metric that was not measured."""
GUARD_MOST = 2.0
"""A guard asks for at most so many times the ready replicas, however late the answers are.

One on latency also for at most so many times those that the load asks for: replicas that have half the load that they were
planned for and still answer late are not late because of too few replicas.
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
    # on the way up, pods that still start bring the mean down as if idle: what they will take over is not asked for twice
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

    Each is assumed to be late or not by a draw of its own (binomial); that queues make them alike is what the margin is wide
    for.
    """
    deviation = math.sqrt(required_frac * (1.0 - required_frac) / max(requests, 1.0))
    return max(0.0, required_frac - GUARD_CHANCE_SDS * deviation)


def guard_times(before: float, asked: float, load: float, target_frac: float, step_s: int) -> float:
    """Return the factor on the replicas for its load that a guard on latency applies, one step after it was `before`.

    `asked` are the replicas that `guard` asks for, 0 while the limit is kept. `load` is the mean load of the same time: late
    answers while there are fewer replicas than the load needs do not show how many are needed. The factor rises at once and
    decays by halves, so that replicas slower than planned are late for minutes in hours, not in every ten minutes.
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

    A value that is NaN is missing; so are those of ready pods where there are none. Guards on latency, and timetables, ask
    for `guarded_replicas`, 0 if they ask for nothing, and are never missing.
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
    # the metric that is missing might have kept the replicas: others may add to them, but not take away
    if missing and highest < current:
        return MISSING
    return highest


SYNC_S = 15
"""Seconds between two decisions of the HPA controller (--horizontal-pod-autoscaler-sync-period)."""
USUAL_WINDOW_S = 300
"""Over which an HPA looks back before it scales down, unless it says otherwise."""
NO_LIMIT = 1_000_000
"""Stands for "no limit" where a number of replicas is requested."""


class Memory(Protocol):
    """What a rule remembers: a row of floats, changed in place."""

    def __getitem__(self, at: int, /) -> float: ...
    def __setitem__(self, at: int, value: float, /) -> None: ...
    def __len__(self) -> int: ...


class Metric(IntEnum):
    """What the HPA compares with its target."""

    DUTY_CYCLE = 0
    """Busy share of each ready replica (a resource metric); it saturates at 1."""
    DEMAND = 1
    """Work in hand for each ready replica, in replicas: arrivals and queue (a pods metric); it does not saturate."""
    SIGNAL = 2
    """A recorded load to have replicas for, or the demand of now if that is more (an external metric, average value)."""


class Observation(NamedTuple):
    """What a rule sees at the end of a step; load, backlog and signal are in units of what one replica serves."""

    step: int
    """Number of the decision since the start, one every SYNC_S."""
    ready: int
    starting: int
    load: float
    """Replicas that the arrivals of this step would keep busy."""
    duty_cycle_frac: float
    backlog_replica_s: float
    """Replica-seconds of work in the queue."""
    signal: float
    """What the recording rules say: replicas wanted; NaN if the rule has none."""
    guarded_replicas: float = 0.0
    """What triggers ask for that follow no load: on latency beyond its limit, and by the hour; 0 while none does."""


class StaticReplicas(NamedTuple):
    """The same number of replicas all the time."""

    replicas: int


class HpaPolicy(NamedTuple):
    """One HorizontalPodAutoscaler (autoscaling/v2): a first metric, and others beside it.

    `up_*` and `down_*` are its behaviours: at most the larger of a share of the replicas and a number of pods per `period_s`;
    a share of 0 and no pods disables that direction.
    """

    target_frac: float
    min_replicas: int
    max_replicas: int
    metric: Metric = Metric.DEMAND
    tolerance_up_frac: float = 0.1
    tolerance_down_frac: float = 0.1
    up_stabilization_s: int = 0
    down_stabilization_s: int = USUAL_WINDOW_S
    up_frac: float = 1.0
    up_pods: int = 4
    down_frac: float = 1.0
    down_pods: int = 0
    period_s: int = SYNC_S
    others: Others = NO_OTHERS
    window_s: int = SYNC_S
    """Over which a metric averages: of demand what arrives (its queue is that of now), of a duty cycle the busy share."""


def window_steps(window_s: int) -> int:
    """Return how many decisions, the present one included, lie within a window: at least one."""
    return max(1, -(-window_s // SYNC_S))


RING_HEAD = 3
"""Floats before the slots of a ring: its length, the place of the newest slot, and its highest value or its sum."""


def hpa_memory(policy: HpaPolicy) -> list[float]:
    """Return the memory of an HPA that has decided nothing yet.

    Five rings of one slot a decision: recommendations in the down and up windows, replicas added and removed in the periods,
    loads in the window of the metric. The up window keeps negated values, so that both windows ask for their highest.
    """
    memory: list[float] = []
    for window_s, empty in (
        (policy.down_stabilization_s, 0.0),
        (policy.up_stabilization_s, -float(NO_LIMIT)),
        (policy.period_s, 0.0),
        (policy.period_s, 0.0),
        (policy.window_s, math.nan),
    ):
        slots = window_steps(window_s)
        memory += [float(slots), 0.0, empty] + [empty] * slots
    return memory


def ring_end(memory: Memory, ring: int) -> int:
    """Return the place after a ring, where the next one begins."""
    return ring + RING_HEAD + int(memory[ring])


def push(memory: Memory, ring: int, value: float) -> float:
    """Put a value over the oldest one of a ring and return that oldest one."""
    slots = int(memory[ring])
    newest = int(memory[ring + 1]) + 1
    if newest >= slots:
        newest = 0
    memory[ring + 1] = newest
    at = ring + RING_HEAD + newest
    oldest = memory[at]
    memory[at] = value
    return oldest


def push_for_highest(memory: Memory, ring: int, value: float) -> float:
    """Put a value in and return the ring's highest; the ring is searched only when the highest has just left it."""
    oldest = push(memory, ring, value)
    highest = memory[ring + 2]
    if value >= highest:
        highest = value
    elif oldest >= highest:
        # the highest may have left: only then is the whole ring worth a look
        highest = value
        for i in range(ring + RING_HEAD, ring_end(memory, ring)):
            highest = max(highest, memory[i])
    memory[ring + 2] = highest
    return highest


def push_for_sum(memory: Memory, ring: int, value: float) -> float:
    """Put a whole number in and return the ring's sum."""
    oldest = push(memory, ring, value)
    memory[ring + 2] += value - oldest
    return memory[ring + 2]


def push_for_mean(memory: Memory, ring: int, value: float) -> float:
    """Put a value in and return the mean of the known values of the ring; NaN where the new one is unknown."""
    push(memory, ring, value)
    if math.isnan(value):
        return math.nan
    # added up each time: a running sum would never recover from a NaN that was in it
    total, known = 0.0, 0
    for i in range(ring + RING_HEAD, ring_end(memory, ring)):
        if not math.isnan(memory[i]):
            total += memory[i]
            known += 1
    return total / known


def over_window(policy: HpaPolicy, memory: Memory, seen: Observation) -> Observation:
    """Return what is seen with the mean of the metric's window: of the busy share, else of the load.

    A value that is missing now stays missing.
    """
    if policy.window_s <= SYNC_S:
        return seen
    ring = 0
    for _ in range(4):
        ring = ring_end(memory, ring)
    busy = policy.metric == Metric.DUTY_CYCLE
    mean = push_for_mean(memory, ring, seen.duty_cycle_frac if busy else seen.load)
    if math.isnan(mean):
        return seen
    load, duty_cycle_frac = (seen.load, mean) if busy else (mean, seen.duty_cycle_frac)
    return Observation(
        seen.step,
        seen.ready,
        seen.starting,
        load,
        duty_cycle_frac,
        seen.backlog_replica_s,
        seen.signal,
        seen.guarded_replicas,
    )


def first_recommendation(policy: HpaPolicy, seen: Observation, tolerance: Tolerance) -> int:
    """Return the replicas that the first metric asks for; MISSING where it has no value.

    A signal counts as no less than the demand of now: where the load is above all that was forecast, where a queue has grown,
    or where nothing records the signal, this is a plain autoscaler on demand.
    """
    current = seen.ready + seen.starting
    if policy.metric == Metric.SIGNAL:
        # a queue is work that is to be done within a step, beside what arrives
        demand = seen.load + seen.backlog_replica_s / SYNC_S
        wanted = demand if math.isnan(seen.signal) else seen.signal
        if wanted < demand:
            wanted = demand
        if math.isnan(wanted):
            return MISSING
        return average_value(wanted / policy.target_frac, current, tolerance)
    if math.isnan(seen.load) or seen.ready == 0:
        return MISSING
    value = seen.duty_cycle_frac
    if policy.metric == Metric.DEMAND:
        value = (seen.load + seen.backlog_replica_s / SYNC_S) / seen.ready
    return per_ready_pod(value / policy.target_frac, seen.ready, current, tolerance)


def hpa_recommendation(policy: HpaPolicy, seen: Observation) -> int:
    """Return the replicas that all metrics together ask for, before behaviours; MISSING where nothing may be done."""
    tolerance = Tolerance(policy.tolerance_up_frac, policy.tolerance_down_frac)
    first = first_recommendation(policy, seen, tolerance)
    return with_others(
        policy.others,
        first,
        seen.duty_cycle_frac,
        seen.backlog_replica_s,
        seen.guarded_replicas,
        seen.ready,
        seen.ready + seen.starting,
        tolerance,
    )


def stabilized(memory: Memory, wanted: int, current: int) -> int:
    """Move no further than every recommendation in the up window, and the highest in the down window, allow."""
    highest = push_for_highest(memory, 0, float(wanted))
    lowest = -push_for_highest(memory, ring_end(memory, 0), -float(wanted))
    return min(max(current, int(lowest)), int(highest))


def rate_limited(policy: HpaPolicy, memory: Memory, wanted: int, current: int) -> int:
    """Keep a move within what the behaviours allow per period, and remember it."""
    added_ring = ring_end(memory, ring_end(memory, 0))
    removed_ring = ring_end(memory, added_ring)
    added = int(push_for_sum(memory, added_ring, 0.0))
    removed = int(push_for_sum(memory, removed_ring, 0.0))
    # limits go by what there was when the period began, or several moves within it would compound
    start = current - added + removed
    if wanted > current:
        limit = max(start + policy.up_pods, math.ceil(start * (1.0 + policy.up_frac) - ROUNDING))
        decided = max(current, min(wanted, limit))
        amend(memory, added_ring, decided - current)
        return decided
    if wanted < current:
        limit = min(start - policy.down_pods, int(start * (1.0 - policy.down_frac) + ROUNDING))
        decided = min(current, max(wanted, limit))
        amend(memory, removed_ring, current - decided)
        return decided
    return current


def amend(memory: Memory, ring: int, value: float) -> None:
    """Change the newest value of a ring, a zero, into another and keep its sum right."""
    memory[ring + RING_HEAD + int(memory[ring + 1])] = value
    memory[ring + 2] += value


def forget(memory: Memory) -> None:
    """Let a decision's time pass without a recommendation, as a controller does that got no metric."""
    push_for_highest(memory, 0, 0.0)
    ring = ring_end(memory, 0)
    push_for_highest(memory, ring, -float(NO_LIMIT))
    for _ in range(2):
        ring = ring_end(memory, ring)
        push_for_sum(memory, ring, 0.0)


def within_bounds(policy: HpaPolicy, memory: Memory, current: int) -> int:
    """Return the nearest of the bounds: the controller goes there at once, without a metric, a window or a behaviour.

    What it adds or removes counts for the behaviours that follow (kubernetes/kubernetes, pkg/controller/podautoscaler/
    horizontal.go, `reconcileAutoscaler`). What was scaled to none it leaves alone.
    """
    forget(memory)
    decided = min(max(current, policy.min_replicas), policy.max_replicas)
    added_ring = ring_end(memory, ring_end(memory, 0))
    if decided > current:
        amend(memory, added_ring, float(decided - current))
    else:
        amend(memory, ring_end(memory, added_ring), float(current - decided))
    return decided


def hpa_step(policy: HpaPolicy, memory: Memory, seen: Observation) -> int:
    """Return the replicas, ready and starting together, that the HPA wants after this step."""
    current = seen.ready + seen.starting
    if current > 0 and not policy.min_replicas <= current <= policy.max_replicas:
        return within_bounds(policy, memory, current)
    wanted = hpa_recommendation(policy, over_window(policy, memory, seen))
    if wanted == MISSING:
        forget(memory)
        return current
    wanted = stabilized(memory, wanted, current)
    wanted = min(max(wanted, policy.min_replicas), policy.max_replicas)
    return rate_limited(policy, memory, wanted, current)
