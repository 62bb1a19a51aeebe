"""What a batcher counts, and its Prometheus text: queue, batches, latencies and busy time for autoscaling triggers."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from trimtab_runtime.batcher.request import Request

LATENCY_EDGES_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the latency buckets: Prometheus' defaults, with 1 and 2.5 ms below and 30 and 60 s above."""
SIZE_EDGES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
PREFIX = "trimtab_batcher"
REFUSALS = ("deadline", "full", "closed", "too_large")


class Histogram:
    """Counts by bucket, their sum and number."""

    __slots__ = ("counts", "edges", "total")

    def __init__(self, edges: Sequence[float]) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Add one value."""
        self.counts[bisect_left(self.edges, value)] += 1
        self.total += value

    def add_all(self, values: Sequence[float]) -> None:
        """Add many values at once; a batch's mostly share a bucket."""
        counts, edges = self.counts, self.edges
        lowest = bisect_left(edges, min(values))
        if lowest == bisect_left(edges, max(values)):
            counts[lowest] += len(values)
        else:
            for value in values:
                counts[bisect_left(edges, value)] += 1
        self.total += sum(values)

    def lines(self, name: str, label: str) -> Iterable[str]:
        """Yield the bucket, sum and count samples."""
        seen = 0
        for edge, count in zip((*self.edges, "+Inf"), self.counts, strict=True):
            seen += count
            yield f'{name}_bucket{{{label},le="{edge}"}} {seen}'
        yield f"{name}_sum{{{label}}} {self.total:.9g}"
        yield f"{name}_count{{{label}}} {seen}"


class Stats(NamedTuple):
    """A snapshot of a batcher's counters and gauges."""

    waiting: int
    held: int
    """Requests that wait for room in the queue."""
    running: int
    answered: int
    failed: int
    abandoned: int
    """Requests whose caller was gone when the answer came: cancelled while running, or the event loop closed."""
    refused: dict[str, int]
    runs: int
    extra_runs: int
    items: int
    poisoned: int
    out_of_memory: int
    busy_s: float
    caps: dict[object, int]
    """Largest batch by key, where memory has reduced it."""


class Metrics:
    """Counters of one batcher; adding takes a lock of its own, once a batch."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.answered = 0
        self.failed = 0
        self.abandoned = 0
        self.refused = dict.fromkeys(REFUSALS, 0)
        self.runs = 0
        self.extra_runs = 0
        self.items = 0
        self.poisoned = 0
        self.out_of_memory = 0
        self.busy_s = 0.0
        self.latency = Histogram(LATENCY_EDGES_S)
        self.sizes = Histogram(SIZE_EDGES)

    def count_answers(self, requests: Sequence[Request], now_s: float, *, abandoned: int, failed: int) -> None:
        """Add the answers of one batch and their latencies."""
        latencies_s = [now_s - request.arrived_s for request in requests]
        with self.lock:
            self.latency.add_all(latencies_s)
            self.answered += len(requests) - abandoned - failed
            self.abandoned += abandoned
            self.failed += failed

    def count_run(self, items: int, run_s: float, *, extra: bool) -> None:
        """Add one run of the batch function."""
        with self.lock:
            self.runs += 1
            self.extra_runs += extra
            self.items += items
            self.busy_s += run_s
            self.sizes.add(items)

    def count_refused(self, reason: str, number: int = 1) -> None:
        """Add requests refused without being run."""
        with self.lock:
            self.refused[reason] += number


def render(name: str, metrics: Metrics, stats: Stats) -> str:
    """Return the Prometheus text of one batcher (exposition format 0.0.4)."""
    label = f'batcher="{_escape(name)}"'
    lines: list[str] = []
    gauges = {"waiting": stats.waiting, "held": stats.held, "running": stats.running}
    for gauge, value in gauges.items():
        lines += [f"# TYPE {PREFIX}_{gauge} gauge", f"{PREFIX}_{gauge}{{{label}}} {value}"]
    lines.append(f"# TYPE {PREFIX}_requests_total counter")
    outcomes = {"answered": stats.answered, "failed": stats.failed, "abandoned": stats.abandoned}
    outcomes |= {f"refused_{reason}": count for reason, count in stats.refused.items()}
    lines += [f'{PREFIX}_requests_total{{{label},outcome="{outcome}"}} {n}' for outcome, n in outcomes.items()]
    counters: dict[str, float] = {
        "runs_total": stats.runs,
        "extra_runs_total": stats.extra_runs,
        "items_total": stats.items,
        "poisoned_total": stats.poisoned,
        "out_of_memory_total": stats.out_of_memory,
        "busy_seconds_total": stats.busy_s,
    }
    for counter, amount in counters.items():
        lines += [f"# TYPE {PREFIX}_{counter} counter", f"{PREFIX}_{counter}{{{label}}} {amount:.9g}"]
    with metrics.lock:
        for histogram, title in ((metrics.latency, "latency_seconds"), (metrics.sizes, "batch_size")):
            lines.append(f"# TYPE {PREFIX}_{title} histogram")
            lines += histogram.lines(f"{PREFIX}_{title}", label)
    return "\n".join(lines) + "\n"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
