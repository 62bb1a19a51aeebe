"""Latency of a replica that serves several requests at once: whole batches that leave together, or requests that come and go.

Requests arrive one by one; `run_s[n]` is how long a batch of `n` takes, or a request among `n` in a continuous batch. The
loops are compiled; run through `.py_func` they give the same bytes.
"""

from __future__ import annotations

import math

import numpy as np

from trimtab.replay.compiled import compiled
from trimtab.replay.series import FloatArray


@compiled
def batch_latencies(
    arrival_s: FloatArray, work: FloatArray, run_s: FloatArray, least: int, window_s: float, latency_s: FloatArray
) -> None:
    """Serve requests in batches of at most `len(run_s) - 1` and write each one's latency.

    A batch leaves when the device is free, and not before it holds `least` requests or its oldest has waited `window_s`.
    `work[k]` multiplies the run time of batch `k`.
    """
    most = len(run_s) - 1
    number = len(arrival_s)
    first = 0
    batch = 0
    free_s = 0.0
    while first < number:
        start_s = max(free_s, arrival_s[first])
        if window_s > 0:
            enough = first + least - 1
            full_s = arrival_s[enough] if enough < number else math.inf
            start_s = max(start_s, min(full_s, arrival_s[first] + window_s))
        last = first + 1
        while last < number and last - first < most and arrival_s[last] <= start_s:
            last += 1
        free_s = start_s + run_s[last - first] * work[batch]
        for one in range(first, last):
            latency_s[one] = free_s - arrival_s[one]
        first = last
        batch += 1


@compiled
def stream_latencies(arrival_s: FloatArray, work: FloatArray, run_s: FloatArray, latency_s: FloatArray) -> None:
    """Serve requests that join and leave a running batch of at most `len(run_s) - 1`, and write each one's latency.

    Among `n`, every request proceeds at `1 / run_s[n]` of its work a second; `work[i]` is that of request `i`, 1 on average.
    """
    most = len(run_s) - 1
    number = len(arrival_s)
    due = np.zeros(most)
    who = np.zeros(most, dtype=np.int64)
    inside = 0
    coming = 0
    done = 0.0
    now_s = 0.0
    while coming < number or inside > 0:
        soonest = 0
        for place in range(1, inside):
            if due[place] < due[soonest]:
                soonest = place
        ends_s = now_s + (due[soonest] - done) * run_s[inside] if inside > 0 else math.inf
        comes_s = max(now_s, arrival_s[coming]) if coming < number and inside < most else math.inf
        until_s = min(ends_s, comes_s)
        if inside > 0:
            done += (until_s - now_s) / run_s[inside]
        now_s = until_s
        if comes_s < ends_s:
            due[inside] = done + work[coming]
            who[inside] = coming
            inside += 1
            coming += 1
        else:
            latency_s[who[soonest]] = now_s - arrival_s[who[soonest]]
            inside -= 1
            due[soonest] = due[inside]
            who[soonest] = who[inside]
