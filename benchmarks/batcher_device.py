"""A simulated accelerator: 5 ms + 0.1 ms an item, one batch at a time, and the limits that follow from it by arithmetic."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from math import inf

BASE_S = 0.005
PER_ITEM_S = 0.0001
MAX_BATCH = 64


class Device:
    """Sleeps as long as a batch would take, and counts. `blocks` is False for a device that takes no time."""

    def __init__(self, *, blocks: bool = True, base_s: float = BASE_S, per_item_s: float = PER_ITEM_S) -> None:
        self.blocks = blocks
        self.max_batch = MAX_BATCH
        self._base_s = base_s
        self._per_item_s = per_item_s
        self.reset()

    def reset(self) -> None:
        self.batches = 0
        self.items = 0
        self.busy_s = 0.0

    def run(self, items: Sequence[object]) -> list[object]:
        """Run one batch."""
        self.batches += 1
        self.items += len(items)
        if self.blocks:
            began_s = time.perf_counter()
            time.sleep(self._base_s + self._per_item_s * len(items))
            self.busy_s += time.perf_counter() - began_s
        return list(items)


def closed_limit_req_s(clients: int, *, base_s: float = BASE_S, per_item_s: float = PER_ITEM_S) -> float:
    """Return the most requests a second that clients which each wait for their answer can get."""
    batch = min(clients, MAX_BATCH)
    return batch / (base_s + per_item_s * batch)


def capacity_req_s(*, base_s: float = BASE_S, per_item_s: float = PER_ITEM_S) -> float:
    """Return the throughput of full batches back to back."""
    return closed_limit_req_s(MAX_BATCH, base_s=base_s, per_item_s=per_item_s)


def greedy_latencies_s(
    rate_req_s: float, *, base_s: float = BASE_S, horizon_s: float = 120.0, warm_s: float = 0.0, seed: int = 1
) -> list[float]:
    """Simulate greedy batching of Poisson arrivals without any overhead; return the latencies after `warm_s`, sorted.

    The same seed and rate give the same arrivals as the load generator, so that a short measurement can be compared exactly.
    """
    rng = random.Random(seed)
    arrivals: list[float] = []
    now = 0.0
    while now < horizon_s:
        now += rng.expovariate(rate_req_s)
        arrivals.append(now)
    latencies: list[float] = []
    first, free_at = 0, -inf
    while first < len(arrivals):
        start = max(free_at, arrivals[first])
        last = first
        while last < len(arrivals) and arrivals[last] <= start and last - first < MAX_BATCH:
            last += 1
        free_at = start + base_s + PER_ITEM_S * (last - first)
        latencies += [free_at - arrival for arrival in arrivals[first:last] if arrival > warm_s]
        first = last
    return sorted(latencies)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the nearest-rank quantile of sorted values."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
