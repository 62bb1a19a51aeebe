"""One service, event by event: a first-in-first-out queue, replicas that work on several requests at once, pods on nodes.

Each replica has `slots` places. All requests in work on it progress alike: n at once go at `speed / (1 + crowding (n - 1))`, so
that `crowding` 0 is a server with independent workers and a little of it is continuous batching; beyond a `knee` they share
what there is, at `speed knee / n`. A request leaves when its work
is done: nothing is averaged over a step.

Pods and nodes as documented: a ReplicaSet gives back pods that are not ready first, then those that share their node with most
siblings, then the youngest (kubernetes.io/docs/concepts/workloads/controllers/replicaset/#scaling-down); a node that stayed
empty for `consolidateAfter` goes (karpenter.sh/docs/concepts/disruption); a new pod takes the fullest node with room, else a
new node, which boots first (`Nodes.spreads`: the emptiest node with room, as kube-scheduler does by default); with
`WhenEmptyOrUnderutilized` a node whose pods fit elsewhere is drained: it is tainted, so that no new pod takes it, and goes with
its last pod, without a further `consolidateAfter` (kubernetes-sigs/karpenter v1.9.1, pkg/controllers/disruption/queue.go).

KEDA between none and one as documented (keda.sh/docs/latest/concepts/scaling-deployments, reference/scaledobject-spec): at a
poll that finds a trigger above its activation value it starts one pod; when none was for `cooldownPeriod`, the last goes. From
one on the HPA decides. Requests wait before the pods while there is none: a trigger there counts their arrivals, and the
latencies that the server exports begin when it gets them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from benchmarks.proving.world.clock import MINUTE_S, TICK_S
from benchmarks.proving.world.hpa import desired_replicas, limited, stabilized
from benchmarks.proving.world.rules import ACTIVITY, ANSWERED, ASK, BORN, STATE, Asked, Monitoring

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
BOUNDS_S = np.array(
    [0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, np.inf]
)
"""Upper bounds of the latency buckets that a server exports: vLLM's own (`vllm:e2e_request_latency_seconds`)."""
NO_QUOTA = 10**6
_MOST = 768
_FAR = 1e300
_GUARD_TICKS = 20
"""The guards look at five minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """How a replica works: its places, how they hinder one another, and its SM activity when every place is taken."""

    slots: int
    crowding: float = 0.0
    sm_full_frac: float = 0.95
    knee: float = inf
    """The most work done in a second, in seconds of a request alone, however many are at work: cores, a lock, full batches."""

    def rate(self, n: int) -> float:
        """Return the work done in a second with n requests at once, in seconds of a request alone."""
        return n / max(1 + self.crowding * (n - 1), n / self.knee) if n else 0.0

    def capacity_req_s(self, work_s: float) -> float:
        """Return the requests a second that a full replica answers, each `work_s` long when alone."""
        return self.rate(self.slots) / work_s


class Guard(NamedTuple):
    """Ask for so many times the mean load's replicas as it took, when last it was late, to bring a quantile to its limit.

    While the quantile of five minutes' latency is above its limit, that is the fewest replicas that were ready within those
    minutes, times the quantile over the limit, between `least` and `most`, over the replicas for the mean load of the same
    minutes; `times_most` at most. At each decision `kept_frac` of what is beyond once is left. Up to `off` times nothing
    is asked for.
    """

    quantile: float
    limit_s: float
    least: float = 1.0
    most: float = 2.0
    times_target_frac: float = 1.0
    load_least: float = 1e-3
    kept_frac: float = 0.0
    times_most: float = 2.0
    off: float = 1.0
    chance: float = 0.0
    """Taken from the quantile, over the square root of the requests of these minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """An autoscaler: what it follows, its target, limits and behaviours. Rates as in the manifest (percent and pods)."""

    minimum: int
    maximum: int
    target_frac: float
    capacity_req_s: float = 1.0
    """What the recording rule divides by."""
    follows: int = 0
    """0: answers, growth of the queue and the queue; 1: each replica's GPU activity of five minutes; 2: what `monitoring` says.

    3: arrivals and queue, as the referee has it: 0 before the first value is there, where the others keep the replicas.
    """
    monitoring: Monitoring | None = None
    """What scrapes the pods and evaluates recording rules before each decision; where it says nothing, replicas stay."""
    mean_ticks: int = 1
    """How many of the last values of answers and growth the rule takes the mean of; the queue itself counts as it is."""
    tolerance_up_frac: float = 0.1
    tolerance_down_frac: float = 0.1
    up_window_s: int = 0
    down_window_s: int = 300
    up_percent: float = 100.0
    up_pods: int = 4
    down_percent: float = 100.0
    down_pods: int = 0
    period_s: int = 15
    guards: Sequence[Guard] = ()
    cooldown_s: float = 300.0
    """With a minimum of 0: how long nothing must be active before the last replica goes."""
    polling_s: float = 30.0
    wake_window_s: float = 0.0
    """Over which what stands before the replicas counts arrivals; 0: nothing wakes them."""
    timed: Sequence[tuple[float, float, int]] = ()
    """From when until when a trigger by the hour asks for so many replicas (keda.sh/docs/latest/scalers/cron)."""
    lag_ticks: int = 1
    """Scrape, rule and poll: how old a value is when it decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Nodes under a service's replicas."""

    replicas_per_node: int = 1
    boot_s: float = 300.0
    load_s: float = 120.0
    """From a node that is up to a ready pod: image and weights."""
    empty_kept_s: float = 600.0
    consolidates: bool = False
    spreads: bool = False
    """A new pod takes the emptiest node with room (kube-scheduler, NodeResourcesFit, LeastAllocated), not the fullest."""
    quota: int = NO_QUOTA
    refusals: Sequence[tuple[float, float]] = ()
    """Times in which no new node is to be had."""
    speed: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Played:
    """What happened. Times in seconds from the start."""

    latency_s: Floats
    """By request (n,): inf where it gave up, NaN where it was still there at the end."""
    nodes: Floats
    """(n_nodes, 2): start and end of each node's life; those there at the start have start 0."""
    activity: Floats
    """SM activity by replica and minute (n_replicas, n_minutes), of the initial replicas."""
    minutes: Floats
    """(n_minutes, 4): running seconds, waiting seconds, ready replica seconds, gave up."""
    replicas: Ints
    """Replicas wanted, by decision (n_ticks,)."""


class _Out(NamedTuple):
    latency: Floats
    node_start: Floats
    node_end: Floats
    n_nodes: int
    activity: Floats
    minutes: Floats
    replicas: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What is up at the start: the node of each replica, and the speed of each node."""

    node_of: Sequence[int]
    speeds: Sequence[float] = field(default=())

    @staticmethod
    def packed(replicas: int, per_node: int, speed: float = 1.0) -> Start:
        """Return replicas on as few nodes as hold them."""
        nodes = -(-replicas // per_node)
        return Start(node_of=[at // per_node for at in range(replicas)], speeds=[speed] * nodes)


def play(
    arrival_s: Floats,
    work_s: Floats,
    *,
    server: Server,
    nodes: Nodes,
    start: Start,
    horizon_s: float,
    scaling: Scaling | None = None,
    gives_up_s: float = 300.0,
) -> Played:
    """Play a service; without `scaling` its replicas stay as they are."""
    rule = scaling or Scaling(minimum=len(start.node_of), maximum=len(start.node_of), target_frac=1.0)
    numbers = np.array(
        [
            scaling is not None,
            rule.minimum,
            rule.maximum,
            rule.target_frac,
            rule.capacity_req_s,
            rule.follows,
            rule.tolerance_up_frac,
            -(-rule.up_window_s // TICK_S),
            -(-rule.down_window_s // TICK_S),
            rule.up_percent,
            rule.up_pods,
            rule.down_percent,
            rule.down_pods,
            max(1, rule.period_s // TICK_S),
            rule.lag_ticks,
            rule.tolerance_down_frac,
            rule.mean_ticks,
            scaling is not None and rule.minimum == 0,
            rule.cooldown_s,
            max(1, round(rule.polling_s / TICK_S)),
            rule.wake_window_s,
        ],
        dtype=np.float64,
    )
    places = np.array(
        [
            nodes.replicas_per_node,
            nodes.boot_s,
            nodes.load_s,
            nodes.empty_kept_s,
            nodes.consolidates,
            nodes.quota,
            nodes.speed,
            nodes.spreads,
        ],
        dtype=np.float64,
    )
    asked = Asked(rule.monitoring, _MOST)
    out = _play(
        np.ascontiguousarray(arrival_s),
        np.ascontiguousarray(work_s),
        server.slots,
        server.crowding,
        server.knee,
        server.sm_full_frac,
        np.array(start.node_of, dtype=np.int64),
        np.array(start.speeds, dtype=np.float64),
        numbers,
        np.array(rule.guards, dtype=np.float64).reshape(-1, len(Guard._fields)),
        np.array(rule.timed, dtype=np.float64).reshape(-1, 3),
        asked.pods,
        asked.shown,
        ASK(asked.told),
        places,
        np.array(nodes.refusals, dtype=np.float64).reshape(-1, 2),
        float(horizon_s),
        gives_up_s,
        BOUNDS_S,
    )
    if asked.error is not None:
        raise asked.error
    return Played(
        latency_s=out.latency,
        nodes=np.stack([out.node_start[: out.n_nodes], out.node_end[: out.n_nodes]], axis=1),
        activity=out.activity,
        minutes=out.minutes,
        replicas=out.replicas,
    )


@njit(cache=True)
def _quantile(counts: Floats, bounds: Floats, quantile: float) -> float:
    """As Prometheus' histogram_quantile: linear in its bucket, the largest finite bound beyond."""
    total = counts.sum()
    if total <= 0:
        return 0.0
    wanted, below = quantile * total, 0.0
    for at in range(len(counts)):
        if below + counts[at] >= wanted and counts[at] > 0:
            if at == len(counts) - 1:
                return float(bounds[at - 1])
            low = 0.0 if at == 0 else bounds[at - 1]
            return float(low + (bounds[at] - low) * (wanted - below) / counts[at])
        below += counts[at]
    return float(bounds[len(bounds) - 2])


@njit(cache=True)
def _play(  # type: ignore[no-untyped-def]  # compiled: types come from the arguments; see `play`
    arrival_s, work_s, slots, crowding, knee, sm_full, node_of, speeds, rule, guards, timed, pods, shown, ask, places, refusals,
    horizon_s, gives_up_s, bounds,
):  # fmt: skip
    scales, least, most, target, capacity = rule[0] > 0, int(rule[1]), int(rule[2]), rule[3], rule[4]
    follows, tolerance, up_steps, down_steps = int(rule[5]), rule[6], int(rule[7]), int(rule[8])
    up_percent, up_pods, down_percent, down_pods = rule[9], int(rule[10]), rule[11], int(rule[12])
    period_steps, lag, tolerance_down, mean_ticks = int(rule[13]), int(rule[14]), rule[15], int(rule[16])
    to_none, cooldown, poll_ticks, wake_window = rule[17] > 0, rule[18], int(rule[19]), rule[20]
    per_node, boot, load, kept = int(places[0]), places[1], places[2], places[3]
    consolidates, quota, speed_new, spreads = places[4] > 0, int(places[5]), places[6], places[7] > 0
    n, n0 = len(arrival_s), len(node_of)
    n_minutes, n_ticks = int(horizon_s // MINUTE_S), int(horizon_s // TICK_S)

    # pods: 0 none, 1 starting, 2 ready, 3 draining
    state = np.zeros(_MOST, np.int64)
    ready_at = np.full(_MOST, _FAR)
    node = np.full(_MOST, -1, np.int64)
    born = np.zeros(_MOST)
    speed = np.ones(_MOST)
    running = np.zeros(_MOST, np.int64)
    clock = np.zeros(_MOST)  # work done by each request that was there all along
    seen = np.zeros(_MOST)  # when `clock` was last brought up to date
    done_at = np.full(_MOST, _FAR)  # when the next request of this pod is finished
    place_end = np.full((_MOST, slots), _FAR)  # value of `clock` at which the request in a place is finished
    place_request = np.full((_MOST, slots), -1, np.int64)
    sm_tick = np.zeros(_MOST)
    answered = np.zeros(_MOST)
    load_ring = np.zeros(mean_ticks)

    # nodes, each for one life
    node_start = np.zeros(200_000)
    node_end = np.full(200_000, _FAR)
    node_pods = np.zeros(200_000, np.int64)
    node_empty = np.full(200_000, _FAR)
    node_change = np.zeros(200_000)
    node_speed = np.ones(200_000)
    node_leaves = np.zeros(200_000, np.bool_)
    # the nodes that are up, by place; a new node takes the first free place, and the first of equal nodes is preferred
    up_nodes = np.full(_MOST, -1, np.int64)
    n_up, n_nodes = 0, 0
    for at in range(len(speeds)):
        node_speed[at] = speeds[at]
        node_start[at] = -1e9  # long up
        up_nodes[n_up] = at
        n_up, n_nodes = n_up + 1, n_nodes + 1
    for r in range(n0):
        state[r], node[r], speed[r], born[r] = 2, node_of[r], speeds[node_of[r]], -1e9
        node_pods[node_of[r]] += 1
    high = n0  # pods in use are below this place

    latency = np.full(n, np.nan)
    activity = np.zeros((n0, n_minutes))
    minutes = np.zeros((n_minutes, 4))
    wanted_trace = np.zeros(n_ticks, np.int64)
    recent = np.full(512, np.nan)
    recent[-1] = n0
    changes = np.zeros(512)
    values = np.zeros(16)
    ring = np.zeros((_GUARD_TICKS, len(bounds)))
    sm_rings = np.full((_GUARD_TICKS, _MOST), np.nan)
    ready_ring = np.full(_GUARD_TICKS, n0)
    came_ring = np.zeros(_GUARD_TICKS)
    times = np.ones(len(guards))
    full_rate = slots / _slowness(slots, crowding, knee)
    head, tail, completed_tick, waiting_before, tail_before = 0, 0, 0, 0, 0
    t, tick = 0.0, 0
    last_queue, waited = 0.0, 0.0
    goal = n0  # replicas that the ReplicaSet is asked for
    last_came = np.full(lag + 1, -_FAR)  # the last arrival, as it is known now and was before
    last_active, woken_at = 0.0, -_FAR

    while tick < n_ticks:
        next_t = (tick + 1) * float(TICK_S)
        what, who = 0, -1
        if tail < n and arrival_s[tail] < next_t:
            next_t, what = arrival_s[tail], 1
        for r in range(high):
            if running[r] > 0 and done_at[r] < next_t:
                next_t, what, who = done_at[r], 2, r
            elif state[r] == 1 and ready_at[r] <= next_t:  # ready at a decision is ready for it
                next_t, what, who = max(ready_at[r], t), 3, r
        t = max(next_t, t)
        waited += (t - last_queue) * (tail - head)
        last_queue = t

        touched = -1
        if what == 1:
            tail += 1
        elif what == 3:
            if to_none and not np.any(state[:high] == 2):
                woken_at = t
            state[who] = 2
            seen[who] = t
            answered[who] = 0.0
        elif what == 2:
            rate = speed[who] / _slowness(running[who], crowding, knee)
            sm_tick[who] += (
                (t - seen[who]) * sm_full * (running[who] / _slowness(running[who], crowding, knee)) / full_rate
            )
            minutes[min(n_minutes - 1, int(seen[who] // MINUTE_S)), 0] += (t - seen[who]) * running[who]
            clock[who] += (t - seen[who]) * rate
            seen[who] = t
            first = 0
            for k in range(slots):
                if place_end[who, k] < place_end[who, first]:
                    first = k
            request = place_request[who, first]
            latency[request] = t - arrival_s[request]
            exported = t - max(arrival_s[request], woken_at)
            for b in range(len(bounds)):
                if exported <= bounds[b]:
                    ring[tick % _GUARD_TICKS, b] += 1
                    break
            place_end[who, first] = _FAR
            running[who] -= 1
            completed_tick += 1
            answered[who] += 1
            touched = who
            if state[who] == 3 and running[who] == 0:
                state[who] = 0
                node_pods[node[who]] -= 1
                node_change[node[who]] = t
        if touched >= 0:
            done_at[touched] = _next_done(
                running[touched], place_end[touched], clock[touched], speed[touched], crowding, knee, t
            )

        # the queue's head goes to the ready pod with the fewest requests that has a place
        while head < tail:
            best, fewest = -1, slots
            for r in range(high):
                if state[r] == 2 and running[r] < fewest:
                    best, fewest = r, running[r]
                    if fewest == 0:
                        break
            if best < 0:
                break
            if running[best] > 0:
                share = 1 / _slowness(running[best], crowding, knee)
                sm_tick[best] += (t - seen[best]) * sm_full * running[best] * share / full_rate
                minutes[min(n_minutes - 1, int(seen[best] // MINUTE_S)), 0] += (t - seen[best]) * running[best]
                clock[best] += (t - seen[best]) * speed[best] * share
            seen[best] = t
            for k in range(slots):
                if place_end[best, k] == _FAR:
                    place_end[best, k] = clock[best] + work_s[head]
                    place_request[best, k] = head
                    break
            running[best] += 1
            head += 1
            done_at[best] = _next_done(running[best], place_end[best], clock[best], speed[best], crowding, knee, t)

        if what != 0:
            continue
        # a control tick: bring all accounts up to date first
        minute = min(n_minutes - 1, int((t - 1e-6) // MINUTE_S))
        ready, starting = 0, 0
        for r in range(high):
            if running[r] > 0:
                share = 1 / _slowness(running[r], crowding, knee)
                sm_tick[r] += (t - seen[r]) * sm_full * running[r] * share / full_rate
                minutes[minute, 0] += (t - seen[r]) * running[r]
                clock[r] += (t - seen[r]) * speed[r] * share
            seen[r] = t
            if r < n0 and state[r] > 0:
                activity[r, minute] += sm_tick[r] / MINUTE_S
            pods[ACTIVITY, r] = sm_tick[r] / TICK_S
            sm_tick[r] = 0.0
            if state[r] == 2:
                ready += 1
                minutes[minute, 2] += TICK_S
            elif state[r] == 1:
                starting += 1
        minutes[minute, 1] += waited
        waited = 0.0
        while head < tail and t - arrival_s[head] > gives_up_s:
            latency[head] = np.inf
            minutes[minute, 3] += 1
            head += 1

        current = ready + starting
        if scales:
            waiting = tail - head
            for at in range(lag, 0, -1):
                values[at] = values[at - 1]
            ready_ring[tick % _GUARD_TICKS] = ready
            came = completed_tick + waiting - waiting_before
            came_ring[tick % _GUARD_TICKS] = max(came / TICK_S / capacity, 0.0)
            if follows == 0:
                load_ring[tick % mean_ticks] = max(came / TICK_S / capacity, 0.0)
                value = max((came + waiting) / TICK_S / capacity, 0.0)
                value += load_ring.sum() / min(tick + 1, mean_ticks) - load_ring[tick % mean_ticks]
            elif follows == 3:
                value = (tail - tail_before + waiting) / TICK_S / capacity
            elif follows == 1:
                value = 0.0
                for r in range(high):
                    # a GPU is exported under its pod from the start of its container: while weights load it shows nothing
                    there = state[r] == 2 or (state[r] == 1 and t > ready_at[r] - load)
                    sm_rings[tick % _GUARD_TICKS, r] = pods[ACTIVITY, r] if there else np.nan
                    if state[r] == 2:
                        value += _own_mean(sm_rings[:, r], tick, t - born[r])
            else:
                for r in range(high):
                    pods[STATE, r], pods[BORN, r], pods[ANSWERED, r] = float(state[r]), born[r], answered[r]
                shown[0], shown[1], shown[2] = high, waiting, current
                value = ask(t)
            if to_none and ready == 0:
                value = 0.0  # no pod is there to export anything
            values[0] = value if np.isnan(value) else max(value, 0.0)
            waiting_before, tail_before = waiting, tail
            value = values[lag] if tick >= lag or follows == 3 else target * current
            if np.isnan(value):
                value = target * current  # a metric that cannot be read moves nothing
            enough = target * (1 - tolerance_down) * ready <= value <= target * current
            if follows != 2 and enough:
                value = target * current  # as the emitted rule says: ready replicas with enough to do are kept
            asked = desired_replicas(current, value, target, tolerance, tolerance_down)
            mean_load = came_ring.sum() / min(tick + 1, _GUARD_TICKS)
            for g in range(len(guards)):
                times[g] = _guard_times(times[g], guards[g], ring.sum(axis=0), bounds, ready_ring.min(), mean_load)
                if times[g] > guards[g, 8]:
                    more = times[g] * mean_load
                    asked = max(asked, desired_replicas(current, more, target, tolerance, tolerance_down))
            for h in range(len(timed)):
                if timed[h, 0] <= t < timed[h, 1]:
                    asked = max(asked, desired_replicas(current, timed[h, 2], 1.0, tolerance, tolerance_down))
            # the HPA clips to its bounds first, then stabilizes, then limits the pace
            asked = min(max(asked, 1 if to_none else least), most)
            steady = stabilized(recent, tick, up_steps, down_steps, asked, current)
            if steady > current:
                steady = limited(changes, tick, period_steps, current, steady, up_percent, up_pods, True)
            elif steady < current:
                steady = limited(changes, tick, period_steps, current, steady, down_percent, down_pods, False)
            goal = min(max(steady, 1 if to_none else least), most)
            if to_none:
                for at in range(lag, 0, -1):
                    last_came[at] = last_came[at - 1]
                last_came[0] = arrival_s[tail - 1] if tail > 0 else -_FAR
                active = last_came[lag] > t - lag * TICK_S - wake_window or (ready > 0 and value > 0)
                if active:
                    last_active = t
                polled = tick % poll_ticks == 0
                if current == 0:
                    goal = 1 if active and polled else 0
                elif polled and t - last_active >= cooldown:
                    goal = 0
            changes[tick % len(changes)] = goal - current
        ring[(tick + 1) % _GUARD_TICKS, :] = 0.0
        completed_tick = 0

        while current > goal:
            victim = -1
            for r in range(high):
                if (state[r] == 1 or state[r] == 2) and (
                    victim < 0 or _goes_before(state, node_pods, node, born, r, victim)
                ):
                    victim = r
            node_change[node[victim]] = t
            if running[victim] == 0:
                state[victim] = 0
                node_pods[node[victim]] -= 1
            else:
                state[victim] = 3
            current -= 1
        while current < goal:
            at = _room(node_pods, node_leaves, up_nodes, per_node, spreads)
            if at < 0:
                refused = n_up >= quota
                for f in range(len(refusals)):
                    refused = refused or refusals[f, 0] <= t < refusals[f, 1]
                if refused or n_up >= _MOST - 1:
                    break  # the pod stays pending; it is tried again at the next tick
                at = n_nodes
                node_start[at], node_speed[at] = t, speed_new
                free = 0
                while up_nodes[free] >= 0:
                    free += 1
                up_nodes[free] = at
                n_up, n_nodes = n_up + 1, n_nodes + 1
            high = _start_pod(state, ready_at, node, born, speed, high, at, t, boot, load, node_start, node_speed)
            node_pods[at] += 1
            node_change[at] = t
            current += 1

        if consolidates:
            at = _drainable(node_pods, node_leaves, node_change, up_nodes, per_node, t, kept)
            if at >= 0:
                node_leaves[at] = True
                for r in range(high):
                    if node[r] == at and (state[r] == 1 or state[r] == 2):
                        to = _room(node_pods, node_leaves, up_nodes, per_node, spreads)
                        if to < 0:
                            break
                        high = _start_pod(
                            state, ready_at, node, born, speed, high, to, t, boot, load, node_start, node_speed
                        )
                        node_pods[to] += 1
                        node_change[to] = t
                        if running[r] == 0:
                            state[r] = 0
                            node_pods[at] -= 1
                        else:
                            state[r] = 3
        if scales or consolidates:
            for at in range(_MOST):
                one = up_nodes[at]
                if one < 0:
                    continue
                if node_pods[one] > 0:
                    node_empty[one] = _FAR
                elif node_empty[one] == _FAR:
                    node_empty[one] = t
                if t - node_empty[one] >= (0.0 if node_leaves[one] else kept):
                    node_end[one] = t
                    n_up -= 1
                    up_nodes[at] = -1
        while high > n0 and state[high - 1] == 0:
            high -= 1
        wanted_trace[tick] = goal
        tick += 1

    for at in range(n_nodes):
        node_start[at] = max(node_start[at], 0.0)
        node_end[at] = min(node_end[at], horizon_s)
    return _Out(latency, node_start, node_end, n_nodes, activity, minutes, wanted_trace)


@njit(cache=True)
def _guard_times(before, guard, counts, bounds, served, load):  # type: ignore[no-untyped-def]  # compiled
    """Return how many times the load's replicas a guard holds for right; numbers in the order of `Guard`."""
    share = max(0.0, guard[0] - guard[9] / np.sqrt(max(counts.sum(), 1.0)))
    held, over = 1.0 + guard[6] * (before - 1.0), _quantile(counts, bounds, share) / guard[1]
    if over > 1:
        replicas = served * min(max(over, guard[2]), guard[3])
        held = max(held, replicas * guard[4] / max(load, guard[5]))
    return min(held, guard[7])


@njit(cache=True)
def _slowness(n, crowding, knee):  # type: ignore[no-untyped-def]  # compiled
    """Return how many times as long a request takes with n at work as alone."""
    return max(1 + crowding * (n - 1), n / knee)


@njit(cache=True)
def _goes_before(state, node_pods, node, born, r, other):  # type: ignore[no-untyped-def]  # compiled
    """Tell whether a ReplicaSet gives back a pod before another: not ready first, then most siblings, then the youngest."""
    if state[r] != state[other]:
        return state[r] == 1
    if node_pods[node[r]] != node_pods[node[other]]:
        return node_pods[node[r]] > node_pods[node[other]]
    return born[r] > born[other]


@njit(cache=True)
def _own_mean(ring: Floats, tick: int, age_s: float) -> float:
    """Return the mean of a pod's samples in a window, as `avg_over_time` has it: of its own life alone."""
    total, known = 0.0, 0
    for back in range(min(len(ring), int(age_s // TICK_S))):
        sample = ring[(tick - back) % len(ring)]
        if not np.isnan(sample):
            total, known = total + sample, known + 1
    return total / known if known else 0.0


@njit(cache=True)
def _next_done(running, place_end, clock, speed, crowding, knee, t):  # type: ignore[no-untyped-def]  # compiled
    if running == 0:
        return _FAR
    rate = speed / _slowness(running, crowding, knee)
    return t + max(place_end.min() - clock, 0.0) / rate


@njit(cache=True)
def _room(node_pods, node_leaves, up_nodes, per_node, spreads):  # type: ignore[no-untyped-def]  # compiled
    """Return the fullest node that is up and has room, or the emptiest where the scheduler `spreads`; -1 where none has."""
    best, most = -1, -per_node - 1
    for one in up_nodes:
        if one >= 0 and not node_leaves[one] and node_pods[one] < per_node:
            preference = -node_pods[one] if spreads else node_pods[one]
            if preference > most:
                best, most = one, preference
    return best


@njit(cache=True)
def _drainable(node_pods, node_leaves, node_change, up_nodes, per_node, t, kept):  # type: ignore[no-untyped-def]  # compiled
    """Return the emptiest node that nothing changed on for a while and whose pods fit on the others; -1 where none is."""
    best, fewest, room = -1, per_node + 1, 0
    for one in up_nodes:
        if one >= 0 and node_pods[one] > 0 and not node_leaves[one]:
            room += per_node - node_pods[one]
            if t - node_change[one] >= kept and node_pods[one] < fewest:
                best, fewest = one, node_pods[one]
    if best < 0 or room - (per_node - node_pods[best]) < node_pods[best]:
        return -1
    return best


@njit(cache=True)
def _start_pod(state, ready_at, node, born, speed, high, at, t, boot, load, node_start, node_speed):  # type: ignore[no-untyped-def]  # compiled
    """Start a pod on a node: it is ready once the node has booted and the pod has loaded. Return the new `high`."""
    r = 0
    while state[r] != 0:
        r += 1
    state[r], node[r], born[r], speed[r] = 1, at, t, node_speed[at]
    ready_at[r] = max(t, node_start[at] + boot) + load
    return max(high, r + 1)
