"""The hot loop of a service replay: a fluid queue, replicas that start slowly, and a scaling rule.

Replicas are in lanes: lane 0 is on demand, each further lane is a zone of spot, whose replicas go all at once when the zone
goes. A service without spot has lane 0 alone. The loop is compiled; run through `serve_history.py_func` it gives the same
bytes. All of it counts in steps of `SYNC_S`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from trimtab.ledger.arrays import Flags, FloatArray, IntArray
from trimtab.policies import hedge
from trimtab.policies.hedge import HedgePolicy, split
from trimtab.policies.rules import Rule, RuleKind, decide, target_frac
from trimtab.policies.scaling import (
    GUARD_LEAST,
    GUARD_MOST,
    GUARD_WINDOW_S,
    ROUNDING,
    SYNC_S,
    Observation,
    beyond_chance,
    guard,
    guard_times,
    guarded_replicas,
)
from trimtab.replay.compiled import CountArray, admit, compiled, inlined
from trimtab.replay.nodes import most_of_late, nodes_for

admit(hedge)

WAIT_MIN_S = 1e-3
"""Shorter waits count as none."""
WAIT_BINS_PER_OCTAVE = 32
WAIT_BINS = 32 * WAIT_BINS_PER_OCTAVE


class ServerShape(NamedTuple):
    """What the loop needs of a service model, as scalars."""

    capacity_req_s: float
    cold_steps: int
    warm_steps: int
    """How long a replica starts that lands on a node which is up."""
    kept_steps: int
    """How long an empty node stays up."""
    room_per_node: float
    """How many replicas a node is assumed to hold where one looks for room to start in."""
    queue_limit_s: float
    quota_replicas: int
    closed_from: int
    """The first step in which no node can be had, so that nothing starts; none where `closed_to` is no later."""
    closed_to: int
    full_req_s: float
    """What a replica serves before the rule sees a queue: more than the capacity where that is a careful one."""
    late_steps: int
    """How old what the rule sees of load and queue is, on top of what its windows take."""


class QueueTotals(NamedTuple):
    """What the loop adds up; every member is an array that it writes.

    `held` `(n_lanes, n_decisions)` are the replicas, ready and starting, at each decision. `requests` is (arrived, given up);
    the places of `counts` are named below. `queued_s` takes the longest wait of each step's requests, where it has places.
    """

    held: CountArray
    ok: FloatArray
    waits: FloatArray
    requests: FloatArray
    counts: IntArray
    queued_s: FloatArray


class LoopDemand(NamedTuple):
    """What is asked of a service, and what its rule sees of it.

    `arrivals` are by step of the history, of `substeps` decisions each. `within`, `signal` and `asked` are by decision:
    arrivals as the rule sees them, its own signal, and the replicas that a timetable asks for; of the last two a single place
    stands for none.
    """

    arrivals: FloatArray
    within: FloatArray
    signal: FloatArray
    asked: FloatArray
    substeps: int


class LoopRule(NamedTuple):
    """A scaling policy in the shape that the loop takes: rule, timetable, and the memory that the loop writes."""

    rule: Rule
    by_hour: IntArray
    memory: FloatArray


class LoopSpot(NamedTuple):
    """How replicas are split over spot, and which zone gives nodes when: `up` `(n_zones, n_steps)`; without zones none is."""

    hedge_policy: HedgePolicy
    up: Flags


SCALE_UPS, COLD_STARTS, QUOTA_SHORT_S, REVERSALS, STOPPED, LOST = 0, 1, 2, 3, 4, 5


class Curves(NamedTuple):
    """How a replica serves: loads `(n_loads,)`, share in time `(n_targets, n_loads)`, longest waits `(n_targets,)`."""

    load_grid: FloatArray
    ok_frac: FloatArray
    wait_limit_s: FloatArray


GUARD_TIMES = (1.0, GUARD_LEAST, 1.4, 1.6, 1.8, GUARD_MOST)
"""Multiples of its limit by which a guard tells how late the answers are: one that asks for most need not tell more."""


class GuardCurves(NamedTuple):
    """What the guards of an autoscaler read of the times that requests take.

    `within_frac` `(n_guards, n_times, n_loads)` is the share that a replica serves, at a load, within each of GUARD_TIMES the
    limit, `wait_limit_s` `(n_guards, n_times)` the longest wait that leaves; `required_frac` `(n_guards,)` is the quantile that
    is held to the limit.
    """

    within_frac: FloatArray
    wait_limit_s: FloatArray
    required_frac: FloatArray


class SerialRequests(NamedTuple):
    """Requests that replicas answer one at a time; every member but `takes_s` is an array that the loop writes.

    `takes_s` `(n_draws,)` says how long requests take, one after the other and from the front again: none where requests are
    a fluid. `ends_s` `(2 n_at_most,)` says when those in work end, the soonest first, from a place on that moves through it;
    `counts` that place, and how many are in work, wait, and have begun; `part` `(1,)` what came that is no whole request yet.
    """

    takes_s: FloatArray
    ends_s: FloatArray
    counts: IntArray
    part: FloatArray


AT_WORK, IN_LINE, BEGUN, SOONEST = 0, 1, 2, 3


class GuardWindow(NamedTuple):
    """The last GUARD_WINDOW_S, decision by decision: requests, those within each multiple of each limit, ready replicas."""

    came: FloatArray
    within: FloatArray
    ready: IntArray


class Lanes(NamedTuple):
    """The replicas of each lane; every member is an array that the loop writes.

    `ready` and `starting` `(n_lanes,)` say what stands now, `due` `(n_lanes, n_steps and more)` how many get ready at a step,
    `ready_at` `(n_lanes, n_steps)` how many were ready then on nodes that did not go since, which tells the nodes still up.
    """

    ready: IntArray
    starting: IntArray
    due: CountArray
    ready_at: CountArray


ON_DEMAND = 0
"""The lane that never goes; zone z of spot is lane z + 1."""


def empty_totals(*, lanes: int, decisions: int, targets: int, queued_steps: int = 0) -> QueueTotals:
    """Return totals of zero for so many lanes, decisions and targets; the longest wait is kept of so many steps."""
    return QueueTotals(
        held=np.zeros((lanes, decisions), dtype=np.int32),
        ok=np.zeros(targets),
        waits=np.zeros(WAIT_BINS + 1),
        requests=np.zeros(2),
        counts=np.zeros(6, dtype=np.int64),
        queued_s=np.zeros(queued_steps),
    )


@inlined
def share_within(wait_before_s: float, wait_after_s: float, limit_s: float) -> float:
    """Return the share of a step's arrivals that wait at most the limit, linear between the two waits."""
    low = min(wait_before_s, wait_after_s)
    high = max(wait_before_s, wait_after_s)
    if high <= limit_s:
        return 1.0
    if low > limit_s:
        return 0.0
    return (limit_s - low) / (high - low)


@inlined
def count_wait(waits: FloatArray, wait_s: float, requests: float) -> None:
    """Add requests to the bin of their wait: bin 0 for none, then so many per octave."""
    bin_at = 0
    if wait_s > WAIT_MIN_S:
        bin_at = min(WAIT_BINS, 1 + int(math.log2(wait_s / WAIT_MIN_S) * WAIT_BINS_PER_OCTAVE))
    waits[bin_at] += requests


def wait_quantile(waits: FloatArray, share: float) -> float:
    """Return a quantile of the waits, in seconds, to within a bin (2 %); 0 where none were counted."""
    total = float(waits.sum())
    if total <= 0:
        return 0.0
    at = int(np.searchsorted(np.cumsum(waits), share * total, side="left"))
    # the middle of the bin, as its edges are in equal ratios
    return 0.0 if at == 0 else float(WAIT_MIN_S * 2 ** ((at - 0.5) / WAIT_BINS_PER_OCTAVE))


@inlined
def count_waits(waits: FloatArray, before_s: float, after_s: float, arrived: float) -> None:
    """Add a step's arrivals, whose waits run from one value to the other: half of them a quarter along, half three quarters."""
    if before_s <= WAIT_MIN_S and after_s <= WAIT_MIN_S:
        waits[0] += arrived
    else:
        count_wait(waits, 0.75 * before_s + 0.25 * after_s, 0.5 * arrived)
        count_wait(waits, 0.25 * before_s + 0.75 * after_s, 0.5 * arrived)


@inlined
def bracket(grid: FloatArray, value: float, near: int) -> int:
    """Return the first place, from 1, whose grid value is at least `value`, or the last; looked for from `near` on."""
    at = near
    # loads change little from step to step: walking from the last place beats a search
    while at > 1 and grid[at - 1] >= value:
        at -= 1
    while at < len(grid) - 1 and grid[at] < value:
        at += 1
    return at


@inlined
def judge_in_time(
    in_time: FloatArray,
    served_ok: FloatArray,
    wait_limit_s: FloatArray,
    before_s: float,
    after_s: float,
    arrived: float,
) -> None:
    """Write, for each target, how many arrivals wait within its limit and are then served within it."""
    for k in range(len(wait_limit_s)):
        in_time[k] = arrived * served_ok[k] * share_within(before_s, after_s, wait_limit_s[k])


@inlined
def interpolate_ok(served_ok: FloatArray, load_grid: FloatArray, ok_frac: FloatArray, load: float, near: int) -> int:
    """Write, for each target, the share that a replica serves within it at this load; return the place in the grid."""
    at = bracket(load_grid, load, near)
    low, high = load_grid[at - 1], load_grid[at]
    # beyond the grid the last value stands
    along = min(1.0, (load - low) / (high - low))
    for k in range(len(served_ok)):
        served_ok[k] = ok_frac[k, at - 1] + along * (ok_frac[k, at] - ok_frac[k, at - 1])
    return at


@inlined
def wait_for_first(lanes: Lanes, step: int, cold_steps: int) -> float:
    """Return the seconds until any replica is ready where none is; a whole cold start where none is starting."""
    # nothing is due later than a cold start that begins at the end of this step
    for j in range(step + 1, step + 2 + cold_steps):
        for lane in range(len(lanes.ready)):
            if lanes.due[lane, j] > 0:
                return float((j - step) * SYNC_S)
    # what is asked for at the end of this step is ready so much later
    return float((cold_steps + 1) * SYNC_S)


@inlined
def stop_starting(due: CountArray, step: int, cold_steps: int, surplus: int) -> int:
    """Cancel up to `surplus` starting replicas, the latest first, and return how many were cancelled."""
    left = surplus
    # from the latest due backwards: those are farthest from serving
    j = step + 1 + cold_steps
    while left > 0 and j > step:
        cancelled = min(left, int(due[j]))
        due[j] -= cancelled
        left -= cancelled
        j -= 1
    return surplus - left


@inlined
def room_on_warm_nodes(shape: ServerShape, lanes: Lanes, lane: int, step: int) -> int:
    """Return how many replicas fit beside the ready ones on nodes that are up; starting ones are taken to fill that room first.

    Up are the nodes that ready replicas are on, or left no longer ago than an empty node is kept.
    """
    # where no start is sooner there is nothing to look for
    if shape.warm_steps >= shape.cold_steps:
        return 0
    nodes = nodes_for(most_of_late(lanes.ready_at[lane], step, shape.kept_steps), shape.room_per_node)
    return max(0, int(nodes * shape.room_per_node + ROUNDING) - int(lanes.ready[lane] + lanes.starting[lane]))


@inlined
def resize_lane(lanes: Lanes, lane: int, counts: IntArray, step: int, shape: ServerShape, change: int) -> None:
    """Start or stop replicas of a lane: new ones are ready after the cold start, or sooner where a node that is up has room.

    Starting ones are the first to go, those that are ready last before the others.
    """
    if change > 0:
        warm = min(change, room_on_warm_nodes(shape, lanes, lane, step))
        # decided at the end of a step, so a start counts from the next one
        lanes.due[lane, step + 1 + shape.warm_steps] += warm
        lanes.due[lane, step + 1 + shape.cold_steps] += change - warm
        lanes.starting[lane] += change
        counts[COLD_STARTS] += change
    elif change < 0:
        surplus = min(-change, lanes.starting[lane])
        cancelled = stop_starting(lanes.due[lane], step, shape.cold_steps, surplus)
        lanes.starting[lane] -= cancelled
        # `change` is negative: what could not be cancelled among the starting ones is taken from the ready
        lanes.ready[lane] += change + cancelled


@inlined
def lose_lane(lanes: Lanes, lane: int, step: int, shape: ServerShape) -> int:
    """Take away all replicas of a zone that went; return how many there were."""
    lost = lanes.ready[lane] + lanes.starting[lane]
    lanes.due[lane, step : step + 2 + shape.cold_steps] = 0
    # its nodes went too: what was ready on them tells no longer of a node that is up
    lanes.ready_at[lane, max(0, step - shape.kept_steps) : step] = 0
    lanes.ready[lane] = 0
    lanes.starting[lane] = 0
    return int(lost)


@inlined
def resize_spot(
    lanes: Lanes, counts: IntArray, up: Flags, step: int, shape: ServerShape, held: int, wanted: int
) -> None:
    """Bring spot to a number: start where fewest are among zones that are up, stop where most are."""
    for _ in range(held, wanted):
        # lane 0 stands for no zone found
        best = ON_DEMAND
        for lane in range(1, len(lanes.ready)):
            count = lanes.ready[lane] + lanes.starting[lane]
            if up[lane - 1, step] and (best == ON_DEMAND or count < lanes.ready[best] + lanes.starting[best]):
                best = lane
        # no zone gives spot now: the rest is for on demand to fill
        if best == ON_DEMAND:
            return
        resize_lane(lanes, best, counts, step, shape, 1)
    for _ in range(wanted, held):
        most = 1
        for lane in range(2, len(lanes.ready)):
            if lanes.ready[lane] + lanes.starting[lane] > lanes.ready[most] + lanes.starting[most]:
                most = lane
        resize_lane(lanes, most, counts, step, shape, -1)


@inlined
def out_of_reach(requests: FloatArray, ok: FloatArray, allowed_misses: FloatArray) -> bool:
    """Return whether more requests than allowed came too late for some target already."""
    late = False
    for k in range(len(ok)):
        # what missed so far; no later request can make it good
        late = late or requests[0] - ok[k] > allowed_misses[k]
    return late


@inlined
def lanes_at_start(lane_count: int, steps: int, shape: ServerShape, initial_replicas: int) -> Lanes:
    """Return lanes in which so many replicas are ready, all of them on demand."""
    lanes = Lanes(
        ready=np.zeros(lane_count, dtype=np.int64),
        starting=np.zeros(lane_count, dtype=np.int64),
        due=np.zeros((lane_count, steps + shape.cold_steps + 2), dtype=np.int32),
        ready_at=np.zeros((lane_count, steps), dtype=np.int32),
    )
    lanes.ready[ON_DEMAND] = initial_replicas
    return lanes


@inlined
def waits_without_replicas(lanes: Lanes, step: int, shape: ServerShape, left: float) -> tuple[float, float, float]:
    """Return the waits before and after a step in which nothing serves, and a duty cycle of 1: what there is, is taken up.

    Where no node can be had, a start waits for that to end.
    """
    before_s = wait_for_first(lanes, step, shape.cold_steps)
    if shape.closed_from <= step < shape.closed_to and before_s > shape.cold_steps * SYNC_S:
        # those that are starting have their nodes already: only a start yet to come waits for the end
        before_s += (shape.closed_to - step) * SYNC_S
    # then a single replica works off the queue
    return before_s, before_s + left / shape.capacity_req_s, 1.0


@inlined
def count_change(counts: IntArray, change: int, direction: int) -> int:
    """Count that the rule asks for more or fewer replicas, and turns round where it last did the reverse; return which way."""
    if change > 0:
        counts[SCALE_UPS] += 1
    # opposite signs: the rule turned round
    if change * direction < 0:
        counts[REVERSALS] += 1
    return 1 if change > 0 else -1


@inlined
def empty_window(guards: GuardCurves, replicas: int) -> GuardWindow:
    """Return what guards see that have looked for no time yet, with so many replicas ready."""
    slots = GUARD_WINDOW_S // SYNC_S
    return GuardWindow(
        came=np.zeros(slots),
        within=np.zeros((guards.wait_limit_s.shape[0], guards.wait_limit_s.shape[1], slots)),
        ready=np.full(slots, replicas, dtype=np.int64),
    )


@inlined
def watch(
    guards: GuardCurves,
    window: GuardWindow,
    slot: int,
    load_grid: FloatArray,
    load: float,
    waits_s: tuple[float, float],
    arrived: float,
    ready: int,
) -> None:
    """Put what came in a decision into its slot, counted as `judge_in_time` does, for every multiple of every limit."""
    at = bracket(load_grid, load, 1)
    along = min(1.0, (load - load_grid[at - 1]) / (load_grid[at] - load_grid[at - 1]))
    window.came[slot], window.ready[slot] = arrived, ready
    for g in range(len(guards.required_frac)):
        for k in range(len(GUARD_TIMES)):
            below, above = guards.within_frac[g, k, at - 1], guards.within_frac[g, k, at]
            in_time = share_within(waits_s[0], waits_s[1], guards.wait_limit_s[g, k])
            window.within[g, k, slot] = arrived * (below + along * (above - below)) * in_time


@inlined
def asked_by_guards(guards: GuardCurves, window: GuardWindow) -> float:
    """Return the replicas that guards ask for: those ready all through the window, times how far a quantile is over its limit.

    0 where no more are late than chance explains, or nothing came. Between two multiples the quantile is taken to lie in
    proportion, as `histogram_quantile` has it.
    """
    came, most = window.came.sum(), 0.0
    for g in range(len(guards.required_frac)):
        required = beyond_chance(guards.required_frac[g], came) * came
        below = window.within[g, 0].sum()
        # sums are rounded: a shortfall within the rounding error does not mean that a request is late
        if below >= required - ROUNDING * came:
            continue
        over = GUARD_MOST
        for k in range(1, len(GUARD_TIMES)):
            above = window.within[g, k].sum()
            if above >= required:
                along = (required - below) / (above - below)
                over = GUARD_TIMES[k - 1] + along * (GUARD_TIMES[k] - GUARD_TIMES[k - 1])
                break
            below = above
        most = max(most, guard(over, window.ready.min()))
    return most


@inlined
def waiting_in_turn(turn: SerialRequests, step: int, arrived: float, ready: int) -> int:
    """Let a step's requests come, evenly, and be taken up by the first replica that is free; return how many wait at its end.

    A fluid has no queue while less comes than replicas serve, and one as soon as more comes, though each request of it may have
    found a replica that was idle. How many wait by chance is what an autoscaler on the queue acts on.
    """
    now_s, end_s = float(step * SYNC_S), float((step + 1) * SYNC_S)
    ends_s, takes_s = turn.ends_s, turn.takes_s
    begin_s, coming, places = now_s, 0, min(ready, len(ends_s) // 2)
    # where it is not known what came, nothing joins the line, as nothing joins a fluid's queue
    turn.part[0] += 0.0 if math.isnan(arrived) else arrived
    came = int(turn.part[0] + ROUNDING)
    turn.part[0] -= came
    at_work, in_line, begun = turn.counts[AT_WORK], turn.counts[IN_LINE], turn.counts[BEGUN]
    soonest = turn.counts[SOONEST]
    while True:
        while in_line > 0 and at_work < places:
            if soonest + at_work == len(ends_s):
                # no room behind the last one: all move to the front
                for place in range(at_work):
                    ends_s[place] = ends_s[soonest + place]
                soonest = 0
            # in order, from the last one on: few requests end before one that began earlier
            own_end_s, place = now_s + takes_s[begun % len(takes_s)], soonest + at_work
            while place > soonest and ends_s[place - 1] > own_end_s:
                ends_s[place] = ends_s[place - 1]
                place -= 1
            ends_s[place] = own_end_s
            at_work, in_line, begun = at_work + 1, in_line - 1, begun + 1
        next_end_s = ends_s[soonest] if at_work > 0 else math.inf
        comes_s = begin_s + (coming + 0.5) * SYNC_S / came if coming < came else math.inf
        if min(next_end_s, comes_s) >= end_s:
            break
        now_s = min(next_end_s, comes_s)
        if next_end_s <= comes_s:
            at_work, soonest = at_work - 1, soonest + 1
        else:
            coming, in_line = coming + 1, in_line + 1
    turn.counts[AT_WORK], turn.counts[IN_LINE], turn.counts[BEGUN] = at_work, in_line, begun
    turn.counts[SOONEST] = soonest
    return int(in_line)


@compiled
def serve_history(
    demand: LoopDemand,
    shape: ServerShape,
    curves: Curves,
    guards: GuardCurves,
    turn: SerialRequests,
    scaling: LoopRule,
    spot: LoopSpot,
    initial_replicas: int,
    allowed_misses: FloatArray,
    totals: QueueTotals,
) -> None:
    """Serve every step's arrivals, decide after each, and add up into `totals`; stop where a target is out of reach.

    Requests are counted as if they came evenly within a step: shares in time were measured over whole steps, in which they
    came as they do. The rule sees each decision's own. All replicas are on demand at first. One function, for speed: arrays
    that cross a call are counted, which costs more than the arithmetic between, so that a step calls what takes arrays only
    where something changes.
    """
    arrivals, within, signal, asked, substeps = demand
    rule, by_hour, memory = scaling
    hedge_policy, up = spot
    held, ok, waits, requests, counts, queued_s = totals
    load_grid, ok_frac, wait_limit_s = curves
    lane_count, steps = held.shape
    served_ok, in_time = np.zeros(len(wait_limit_s)), np.zeros(len(wait_limit_s))
    lanes = lanes_at_start(lane_count, steps, shape, initial_replicas)
    ready, starting, due, ready_at = lanes
    desired = initial_replicas
    direction = 0  # whether the rule last asked for more (1) or for fewer (-1)
    queue, queue_seen, step = 0.0, 0.0, -1
    left, before_s, after_s, served_frac = 0.0, 0.0, 0.0, 0.0
    judged_queue, judged_arrived, judged_ready = -1.0, 0.0, 0
    is_fixed = rule.kind == RuleKind.STATIC and lane_count == 1 and len(guards.required_frac) == 0
    load, duty_cycle_frac, waiting = 0.0, 0.0, 0.0
    told = np.zeros((shape.late_steps + 1, 5))
    near, tabulated_frac = 1, -1.0
    window, times, guarded = empty_window(guards, initial_replicas), 1.0, 0.0
    for t in range(len(arrivals)):
        # once per step of the history is early enough, and cheaper than at every decision
        if out_of_reach(requests, ok, allowed_misses):
            counts[STOPPED] = 1
            break
        arrived = arrivals[t] / substeps
        known = not math.isnan(arrived)
        part = 0
        while part < substeps:
            part += 1
            step += 1
            arrived_seen = within[step]
            wanted_signal = signal[step] if len(signal) > 1 else math.nan
            all_ready, all_held, spot_up = 0, 0, False
            for lane in range(lane_count):
                # what is due gets ready as the step begins
                if lane == ON_DEMAND or up[lane - 1, step]:
                    spot_up = spot_up or lane != ON_DEMAND
                    ready[lane] += due[lane, step]
                    starting[lane] -= due[lane, step]
                # the step in which the zone goes, and not those in which it is gone
                elif step > 0 and up[lane - 1, step - 1]:
                    counts[LOST] += lose_lane(lanes, lane, step, shape)
                held[lane, step] = ready[lane] + starting[lane]
                ready_at[lane, step] = ready[lane]
                all_ready += ready[lane]
                all_held += ready[lane] + starting[lane]

            rate_req_s = all_ready * shape.capacity_req_s
            # how a step's requests fare depends on these alone: it is worked out again only where one of them has changed
            if queue != judged_queue or arrived != judged_arrived or all_ready != judged_ready or all_ready == 0:
                judged_queue, judged_arrived, judged_ready = queue, arrived, all_ready
                # in a gap nothing comes that counts, and what is queued is served on
                work = queue + arrived if known else queue
                served = min(work, rate_req_s * SYNC_S)
                left = work - served
                # the first and the last request of the step wait for what stands before them
                if all_ready > 0:
                    before_s = queue / rate_req_s
                    after_s = left / rate_req_s
                    served_frac = served / (rate_req_s * SYNC_S)
                else:
                    before_s, after_s, served_frac = waits_without_replicas(lanes, step, shape, left)
                if known:
                    # the table is read again only where the load has changed
                    if served_frac != tabulated_frac:
                        near = interpolate_ok(served_ok, load_grid, ok_frac, served_frac, near)
                        tabulated_frac = served_frac
                    judge_in_time(in_time, served_ok, wait_limit_s, before_s, after_s, arrived)
            if known:
                requests[0] += arrived
                if len(queued_s) > 0:
                    queued_s[t] = max(queued_s[t], before_s, after_s)
                count_waits(waits, before_s, after_s, arrived)
                for k in range(len(ok)):
                    ok[k] += in_time[k]

            if len(guards.required_frac) > 0:
                slot, came = step % len(window.came), arrived if known else 0.0
                watch(guards, window, slot, load_grid, served_frac, (before_s, after_s), came, all_ready)
                # over what has been seen so far
                seen_s = min(step + 1, len(window.came)) * SYNC_S
                mean_load = window.came.sum() / (shape.capacity_req_s * seen_s)
                times = guard_times(times, asked_by_guards(guards, window), mean_load, target_frac(rule), SYNC_S)
                guarded = guarded_replicas(times, mean_load, target_frac(rule))

            # what would wait longer than anybody does gives up
            # (where nothing is ready: longer than a single replica would take)
            room = shape.queue_limit_s * max(all_ready, 1) * shape.capacity_req_s
            given_up = max(0.0, left - room)
            requests[1] += given_up
            queue = min(left, room)

            # what the rule sees: the same, by the arrivals of this decision (a fixed number of replicas asks for none of it)
            if rule.kind != RuleKind.STATIC:
                work_seen = queue_seen if math.isnan(arrived_seen) else queue_seen + arrived_seen
                duty_cycle_frac = served_frac
                if all_ready > 0:
                    # busy with what the rule has seen arrive, and not with the step's even share
                    full_frac = shape.full_req_s / shape.capacity_req_s
                    duty_cycle_frac = min(work_seen / (rate_req_s * SYNC_S), full_frac)
                if len(turn.takes_s) > 0:
                    # who gives up leaves the line
                    turn.counts[IN_LINE] = min(waiting_in_turn(turn, step, arrived_seen, all_ready), int(room))
                    queue_seen = float(turn.counts[IN_LINE])
                else:
                    queue_seen = min(max(0.0, work_seen - all_ready * shape.full_req_s * SYNC_S), room)
                load, waiting = arrived_seen / (shape.capacity_req_s * SYNC_S), queue_seen / shape.capacity_req_s
                # a ring of the last observations: the rule hears what was so `late_steps` ago
                if shape.late_steps > 0:
                    latest, oldest = step % len(told), max(0, step - shape.late_steps) % len(told)
                    told[latest, 0], told[latest, 1] = load, duty_cycle_frac
                    told[latest, 2], told[latest, 3], told[latest, 4] = waiting, wanted_signal, guarded
                    load, duty_cycle_frac = told[oldest, 0], told[oldest, 1]
                    waiting, wanted_signal, guarded = told[oldest, 2], told[oldest, 3], told[oldest, 4]
            # replicas that were lost stay wanted: the rule sees them as not ready, and does not take the loss for its own doing
            missing = max(0, desired - all_ready)
            # a timetable is no metric: what it asks for is never late
            besides = max(guarded, asked[step]) if len(asked) > 1 else guarded
            seen = Observation(step, all_ready, missing, load, duty_cycle_frac, waiting, wanted_signal, besides)
            wanted = decide(rule, by_hour, memory, seen)
            # counted before the cut, as what the policy would have needed
            counts[QUOTA_SHORT_S] += max(0, wanted - shape.quota_replicas) * SYNC_S
            wanted = min(wanted, shape.quota_replicas)
            # no node can be had: what is given back now is not had again
            if shape.closed_from <= step < shape.closed_to:
                wanted = min(wanted, all_held)
            if wanted != desired:
                direction = count_change(counts, wanted - desired, direction)
                desired = wanted

            on_demand = wanted
            on_demand_held = ready[ON_DEMAND] + starting[ON_DEMAND]
            if lane_count > 1:
                spot_held = all_held - on_demand_held
                parts = split(hedge_policy, wanted, all_ready - ready[ON_DEMAND], spot_held, on_demand_held, spot_up)
                if parts.spot != spot_held:
                    resize_spot(lanes, counts, up, step, shape, spot_held, parts.spot)
                on_demand = parts.on_demand
            # without spot this is all that is wanted, beside it what `split` leaves to on demand
            if on_demand != on_demand_held:
                resize_lane(lanes, ON_DEMAND, counts, step, shape, on_demand - on_demand_held)
            # the rest of the step is the same again where replicas are a fixed number and the queue neither grows nor shrinks
            elif is_fixed and known and all_ready == desired and queue == judged_queue:
                rest = substeps - part
                held[ON_DEMAND, step + 1 : step + 1 + rest] = all_ready
                ready_at[ON_DEMAND, step + 1 : step + 1 + rest] = all_ready
                counts[QUOTA_SHORT_S] += rest * max(0, rule.replicas - shape.quota_replicas) * SYNC_S
                # sums are added up one by one, so that they round as they do otherwise
                for _ in range(rest):
                    requests[0] += arrived
                    requests[1] += given_up
                    count_waits(waits, before_s, after_s, arrived)
                    for k in range(len(ok)):
                        ok[k] += in_time[k]
                part, step = substeps, step + rest
