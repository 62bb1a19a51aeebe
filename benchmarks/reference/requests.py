"""Replay a service request by request: exact waits in a first-in-first-out queue before slots that come and go.

A replica is a number of slots; a slot serves one request at a time. Every 15 s the scaling rule sees what arrived, how busy the
slots were and how much waits, and decides; new slots serve after the cold start, and slots that go first finish their
request. No event list: the only state is a heap of the moments at which slots become free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.policies.rules import Rule, decide
from trimtab.policies.scaling import SYNC_S, Observation
from trimtab.replay.compiled import CountArray, compiled, inlined
from trimtab.replay.fluid import stop_starting
from trimtab.replay.services import ScalingPolicy, rule_of
from trimtab.units import S_PER_HR


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RequestHistory:
    """Requests in order of arrival: `arrival_s` and `service_s` (time in a slot), each `(n_requests,)`."""

    arrival_s: FloatArray
    service_s: FloatArray

    def __post_init__(self) -> None:
        if len(self.arrival_s) != len(self.service_s):
            raise ValueError("arrival_s and service_s must be equally long")
        if np.any(np.diff(self.arrival_s) < 0):
            raise ValueError("requests must be in order of arrival")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RequestReplay:
    """What each request waited, NaN where it was never served, and the replicas at each decision (every 15 s)."""

    wait_s: FloatArray
    latency_s: FloatArray
    replicas: CountArray
    cold_starts: int

    @property
    def replica_hr(self) -> float:
        """Return replica-hours, starting ones included."""
        return float(self.replicas.sum()) * SYNC_S / S_PER_HR


def replay_requests(
    history: RequestHistory,
    policy: ScalingPolicy,
    *,
    slots_per_replica: int,
    cold_start_s: float,
    initial_replicas: int,
    signal: FloatArray | None = None,
    start_hour: int = 0,
) -> RequestReplay:
    """Replay requests under a scaling policy; `signal` `(n_decisions,)` is what its recording rules ask for."""
    rule, by_hour, memory = rule_of(policy, start_hour=start_hour)
    last_s = float(history.arrival_s[-1]) if len(history.arrival_s) else 0.0
    replicas = np.zeros(math.floor(last_s / SYNC_S) + 1, dtype=np.int32)
    wait_s = np.full(len(history.arrival_s), np.nan)
    cold_starts = serve_requests(
        np.ascontiguousarray(history.arrival_s, dtype=np.float64),
        np.ascontiguousarray(history.service_s, dtype=np.float64),
        slots_per_replica,
        cold_start_s,
        initial_replicas,
        rule,
        by_hour,
        memory,
        np.full(1, np.nan) if signal is None else signal,
        wait_s,
        replicas,
    )
    return RequestReplay(
        wait_s=wait_s, latency_s=wait_s + history.service_s, replicas=replicas, cold_starts=cold_starts
    )


@inlined
def sift_down(heap: FloatArray, size: int, value: float) -> None:
    """Put a value in place of the least one of a heap and restore its order."""
    at = 0
    child = 1
    while child < size:
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= value:
            break
        heap[at] = heap[child]
        at = child
        child = 2 * at + 1
    heap[at] = value


@inlined
def push(heap: FloatArray, size: int, value: float) -> int:
    """Add a value to a heap and return its new size."""
    at = size
    while at > 0 and heap[(at - 1) // 2] > value:
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = value
    return size + 1


@inlined
def pop(heap: FloatArray, size: int) -> int:
    """Remove the least value of a heap and return its new size."""
    last = heap[size - 1]
    if size > 1:
        sift_down(heap, size - 1, last)
    return size - 1


@inlined
def work_in_service_s(heap: FloatArray, size: int, now_s: float) -> float:
    """Return the slot-seconds of work that the slots have begun and not done; slots not ready yet have none."""
    left_s = 0.0
    for i in range(size):
        if heap[i] > now_s:
            left_s += heap[i] - now_s
    return left_s


@compiled
def serve_requests(
    arrival_s: FloatArray,
    service_s: FloatArray,
    slots: int,
    cold_start_s: float,
    initial_replicas: int,
    rule: Rule,
    by_hour: IntArray,
    memory: FloatArray,
    signal: FloatArray,
    wait_s: FloatArray,
    replicas: CountArray,
) -> int:
    """Serve all requests up to the last decision, write waits and replicas, and return the replicas started.

    One function, for speed. Within a step a request begins at the later of its arrival and the first free slot; what would
    begin after the step waits for the next one, when there may be more slots.
    """
    heap = np.zeros(max(64, initial_replicas * slots * 2))
    size = initial_replicas * slots
    due = np.zeros(len(replicas) + math.ceil(cold_start_s / SYNC_S) + 2, dtype=np.int32)
    cold_steps = math.ceil(cold_start_s / SYNC_S)
    ready, starting = initial_replicas, 0
    begun, seen_until = 0, 0
    begun_work_s, waiting_work_s, busy_before_s = 0.0, 0.0, 0.0
    cold_starts = 0
    for step in range(len(replicas)):
        ready += due[step]
        starting -= due[step]
        for _ in range(due[step] * slots):
            if size == len(heap):
                heap = np.concatenate((heap, np.zeros(len(heap))))
            size = push(heap, size, step * SYNC_S * 1.0)
        replicas[step] = ready + starting
        until_s = (step + 1) * SYNC_S * 1.0

        begun_work_s = 0.0
        while begun < len(arrival_s) and size > 0:
            at_s = max(arrival_s[begun], heap[0])
            if at_s >= until_s:
                break
            wait_s[begun] = at_s - arrival_s[begun]
            begun_work_s += service_s[begun]
            sift_down(heap, size, at_s + service_s[begun])
            begun += 1
        arrived_work_s = 0.0
        while seen_until < len(arrival_s) and arrival_s[seen_until] < until_s:
            arrived_work_s += service_s[seen_until]
            seen_until += 1
        waiting_work_s += arrived_work_s - begun_work_s

        busy_after_s = work_in_service_s(heap, size, until_s)
        busy_s = busy_before_s + begun_work_s - busy_after_s
        busy_before_s = busy_after_s
        seen = Observation(
            step,
            ready,
            starting,
            arrived_work_s / (SYNC_S * slots),
            min(1.0, busy_s / (ready * slots * SYNC_S)) if ready > 0 else 1.0,
            waiting_work_s / slots,
            signal[step] if len(signal) > 1 else math.nan,
            0.0,
        )
        change = decide(rule, by_hour, memory, seen) - ready - starting
        if change > 0:
            due[step + 1 + cold_steps] += change
            starting += change
            cold_starts += change
        elif change < 0:
            cancelled = stop_starting(due, step, cold_steps, min(-change, starting))
            starting -= cancelled
            gone = -change - cancelled
            ready -= gone
            for _ in range(gone * slots):
                busy_before_s -= max(0.0, heap[0] - until_s)
                size = pop(heap, size)
    return cold_starts
