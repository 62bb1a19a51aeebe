"""The hot loop of a service replay: a fluid queue, replicas that start slowly, and a scaling rule.

The loop is compiled; run through `serve_history.py_func` it gives the same bytes. All of it counts in steps of `SYNC_S`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from trimtab.policies.scaling import SYNC_S, Observation, Rule, decide
from trimtab.replay.compiled import compiled, inlined
from trimtab.replay.series import CountArray, FloatArray, IntArray
from trimtab.units import S_PER_HR

WAIT_MIN_S = 1e-3
"""Shorter waits count as none."""
WAIT_BINS_PER_OCTAVE = 32
WAIT_BINS = 32 * WAIT_BINS_PER_OCTAVE
STEPS_PER_HR = S_PER_HR // SYNC_S


class ServerShape(NamedTuple):
    """What the loop needs of a service model, as scalars."""

    capacity_req_s: float
    cold_steps: int
    replicas_per_node: float
    queue_limit_s: float
    quota_replicas: int


class QueueTotals(NamedTuple):
    """What the loop adds up; every member is an array that it writes.

    `requests` is (arrived, given up); `counts` is (scale-ups, replicas started, replica-seconds beyond the quota, reversals).
    """

    node_seconds: IntArray
    replica_seconds: IntArray
    replicas: CountArray
    ok: FloatArray
    waits: FloatArray
    requests: FloatArray
    counts: IntArray


def empty_totals(*, steps: int, hours: int, targets: int) -> QueueTotals:
    """Return totals of zero for so many steps, hours and targets."""
    return QueueTotals(
        node_seconds=np.zeros(hours, dtype=np.int64),
        replica_seconds=np.zeros(hours, dtype=np.int64),
        replicas=np.zeros(steps, dtype=np.int32),
        ok=np.zeros(targets),
        waits=np.zeros(WAIT_BINS + 1),
        requests=np.zeros(2),
        counts=np.zeros(4, dtype=np.int64),
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
    return 0.0 if at == 0 else float(WAIT_MIN_S * 2 ** ((at - 0.5) / WAIT_BINS_PER_OCTAVE))


@inlined
def count_served_in_time(
    ok: FloatArray,
    load_grid: FloatArray,
    ok_frac: FloatArray,
    wait_limit_s: FloatArray,
    load: float,
    wait_before_s: float,
    wait_after_s: float,
    arrived: float,
) -> None:
    """Add, for each target, the arrivals that wait within its limit and are then served within it at this load."""
    last = len(load_grid) - 1
    at = min(int(np.searchsorted(load_grid, load)), last)
    below = max(at - 1, 0)
    span = load_grid[at] - load_grid[below]
    along = 1.0 if span <= 0 else min(1.0, (load - load_grid[below]) / span)
    for k in range(len(wait_limit_s)):
        served = ok_frac[k, below] + along * (ok_frac[k, at] - ok_frac[k, below])
        ok[k] += arrived * served * share_within(wait_before_s, wait_after_s, wait_limit_s[k])


@inlined
def wait_for_first(due: CountArray, step: int, cold_steps: int) -> float:
    """Return the seconds until any replica is ready where none is; a whole cold start where none is starting."""
    for j in range(step + 1, step + 2 + cold_steps):
        if due[j] > 0:
            return float((j - step) * SYNC_S)
    return float((cold_steps + 1) * SYNC_S)


@inlined
def stop_starting(due: CountArray, step: int, cold_steps: int, surplus: int) -> int:
    """Cancel up to `surplus` starting replicas, the latest first, and return how many were cancelled."""
    left = surplus
    j = step + 1 + cold_steps
    while left > 0 and j > step:
        cancelled = min(left, int(due[j]))
        due[j] -= cancelled
        left -= cancelled
        j -= 1
    return surplus - left


@compiled
def serve_history(
    arrivals: FloatArray,
    signal: FloatArray,
    substeps: int,
    shape: ServerShape,
    load_grid: FloatArray,
    ok_frac: FloatArray,
    wait_limit_s: FloatArray,
    rule: Rule,
    by_hour: IntArray,
    memory: FloatArray,
    initial_replicas: int,
    totals: QueueTotals,
) -> None:
    """Serve every step's arrivals, decide after each, and add up into `totals`."""
    node_seconds, replica_seconds, replicas, ok, waits, requests, counts = totals
    steps = len(arrivals) * substeps
    due = np.zeros(steps + shape.cold_steps + 2, dtype=np.int32)
    ready = initial_replicas
    starting = 0
    queue = 0.0
    direction = 0
    i = -1
    for t in range(len(arrivals)):
        for _ in range(substeps):
            i += 1
            ready += due[i]
            starting -= due[i]
            current = ready + starting
            replicas[t] = current
            replica_seconds[i // STEPS_PER_HR] += current * SYNC_S
            nodes = math.ceil(current / shape.replicas_per_node)
            node_seconds[i // STEPS_PER_HR] += nodes * SYNC_S

            arrived = arrivals[t] / substeps
            known = not math.isnan(arrived)
            rate_req_s = ready * shape.capacity_req_s
            full = rate_req_s * SYNC_S
            work = queue + arrived if known else queue
            served = min(work, full)
            duty_cycle = served / full if ready > 0 else 1.0
            left = work - served
            if known:
                if ready > 0:
                    before_s = queue / rate_req_s
                    after_s = left / rate_req_s
                else:
                    before_s = wait_for_first(due, i, shape.cold_steps)
                    after_s = before_s + left / shape.capacity_req_s
                requests[0] += arrived
                count_wait(waits, 0.75 * before_s + 0.25 * after_s, 0.5 * arrived)
                count_wait(waits, 0.25 * before_s + 0.75 * after_s, 0.5 * arrived)
                count_served_in_time(ok, load_grid, ok_frac, wait_limit_s, duty_cycle, before_s, after_s, arrived)
            room = shape.queue_limit_s * max(ready, 1) * shape.capacity_req_s
            if left > room:
                requests[1] += left - room
                left = room
            queue = left

            seen = Observation(
                i,
                ready,
                starting,
                arrived / (shape.capacity_req_s * SYNC_S),
                duty_cycle,
                queue / shape.capacity_req_s,
                signal[t] if len(signal) > 1 else math.nan,
            )
            wanted = decide(rule, by_hour, memory, seen)
            if wanted > shape.quota_replicas:
                counts[2] += (wanted - shape.quota_replicas) * SYNC_S
                wanted = shape.quota_replicas
            if wanted > current:
                due[i + 1 + shape.cold_steps] += wanted - current
                starting += wanted - current
                counts[0] += 1
                counts[1] += wanted - current
                if direction < 0:
                    counts[3] += 1
                direction = 1
            elif wanted < current:
                cancelled = stop_starting(due, i, shape.cold_steps, min(current - wanted, starting))
                starting -= cancelled
                ready -= current - wanted - cancelled
                if direction > 0:
                    counts[3] += 1
                direction = -1
