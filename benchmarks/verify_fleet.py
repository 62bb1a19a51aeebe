"""A fleet that is changed between two spans, and what each change truly saved: a generator that knows nothing of trimtab.

Four kinds of workloads run over a first span the former way. Over a second span demand has grown or shrunk, each by its own
factor (a mix shift), one workload is new and one is gone, and some changes are made, one of them by half. The truth is
the former way of running played on the second span's demand, less what was used, in node-hours by type and capacity: whoever
knows prices can turn it into money.

The former way: a service on a fixed number of nodes gets more when its peak would pass 80 % of their capacity; one that was
scaled already is scaled by the same rule; other workloads keep their nodes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import ceil, pi, sin
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

START = datetime(2026, 9, 7, tzinfo=UTC)
DAYS = 14
HOURS = DAYS * 24
SMALL, LARGE, BATCH = "g5.xlarge", "g5.12xlarge", "p3.8xlarge"
GPUS = {SMALL: ("A10G", 1, 22.5), LARGE: ("A10G", 4, 22.5), BATCH: ("V100-SXM2-16GB", 4, 16.0)}
REPLICA_REQ_HR = 1000.0
"""Requests that keep one small node wholly busy for an hour."""
FORMER_PEAK_FRAC, SCALED_FRAC = 0.8, 0.7

NodeHours = Counter[tuple[str, str]]
"""Node-hours a mean hour by instance type and capacity type."""


@dataclass
class Truth:
    """One change: what it was to save on the first span's demand, and what it saved on the second's; node-hours an hour."""

    kind: str
    subjects: list[str]
    predicted: NodeHours = field(default_factory=Counter)
    saved: NodeHours = field(default_factory=Counter)
    half: bool = False


@dataclass
class Planted:
    """The two spans on disk, and the truth."""

    first: Path
    second: Path
    truths: list[Truth]


class _Rows:
    """The rows of one bundle; hours count from the bundle's start."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.nodes: list[dict[str, object]] = []
        self.devices: dict[str, dict[str, object]] = {}
        self.allocations: list[dict[str, object]] = []
        self.usage: list[dict[str, object]] = []
        self.demand: list[dict[str, object]] = []

    def at(self, hour: int) -> datetime:
        return START + timedelta(hours=self.offset + hour)

    def node(self, name: str, kind: str, start: int = 0, end: int = HOURS, capacity: str = "on-demand") -> None:
        gpu, count, memory_gib = GPUS[kind]
        self.nodes.append({"node": name, "provider": "aws", "instance_type": kind, "region": "us-east-1",
                           "capacity_type": capacity, "start": self.at(start), "end": self.at(end),
                           "gpu": gpu, "gpu_count": count})  # fmt: skip
        for at in range(count):
            device = f"{name}/{at}"
            self.devices[device] = {"device": device, "node": name, "gpu": gpu, "memory_gib": memory_gib}

    def hold(self, workload: str, node: str, gpus: int, levels: list[float], start: int = 0) -> None:
        """Let a workload hold a node's first GPUs, busy by `levels` from `start` on."""
        for at in range(gpus):
            self.allocations.append({"workload": workload, "namespace": workload.split("/")[0],
                                     "owner_kind": "Deployment", "pod": f"{workload}-{node}", "node": node,
                                     "device": f"{node}/{at}", "gpus": 1.0, "start": self.at(start),
                                     "end": self.at(start + len(levels))})  # fmt: skip
            for place, level in enumerate(levels):
                self.usage.append({"device": f"{node}/{at}", "workload": workload, "hour": self.at(start + place),
                                   "samples": 240, "samples_expected": 240, "sm_active_mean": level,
                                   "sm_active_max": level, "memory_used_gib_max": 4.0,
                                   "basis": "raw samples"})  # fmt: skip

    def requests(self, workload: str, arrivals: list[float], replicas: list[int]) -> None:
        for hour, (count, ready) in enumerate(zip(arrivals, replicas, strict=True)):
            self.demand.append({"workload": workload, "start": self.at(hour), "interval_s": 3600.0, "arrivals": count,
                                "replicas_ready": float(ready)})  # fmt: skip

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True)
        tables = {"nodes": self.nodes, "devices": list(self.devices.values()), "allocations": self.allocations,
                  "gpu_usage": self.usage, "demand": self.demand}  # fmt: skip
        for name, rows in tables.items():
            pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")
        span = f"start: {self.at(0).isoformat()}\nend: {self.at(HOURS).isoformat()}\n"
        (folder / "bundle.yaml").write_text(f"version: 1\n{span}created_by: generator\nsources:\n- generated\n")
        (folder / "workloads.yaml").write_text("version: 1\nworkloads: {}\n")
        return folder


def plant(seed: int, folder: Path) -> Planted:
    """Write both spans of a fleet into a folder and return the truth; one change, by turns, is made by half."""
    rng = Random(seed)
    first, second = _Rows(0), _Rows(HOURS)
    changes = (_scaled_service, _moved_services, _spare_nodes, _spot_training)
    truths = [change(rng, first, second, place == seed % len(changes)) for place, change in enumerate(changes)]
    _elastic_service(rng, first, second)
    _left_alone(rng, first, second)
    for rows, name in ((first, "old/gone"), (second, "new/come")):
        rows.node(name.replace("/", "-"), SMALL)
        rows.hold(name, name.replace("/", "-"), 1, [rng.uniform(0.2, 0.5)] * HOURS)
    return Planted(first=first.write(folder / "first"), second=second.write(folder / "second"), truths=truths)


def _arrivals(rng: Random, peak: float) -> list[float]:
    """Return requests by hour: a day's wave, quieter weekends, some noise."""
    night, weekend = rng.uniform(0.1, 0.4), rng.uniform(0.5, 1.0)
    values: list[float] = []
    for hour in range(HOURS):
        wave = night + (1 - night) * max(0.0, sin(pi * ((hour % 24) - 6) / 16))
        quiet = weekend if hour // 24 % 7 >= 5 else 1.0
        values.append(round(peak * wave * quiet * rng.uniform(0.97, 1.0)))
    return values


def _replicas(arrivals: list[float]) -> list[int]:
    return [max(1, ceil(count / REPLICA_REQ_HR / SCALED_FRAC)) for count in arrivals]


def _serve(rows: _Rows, workload: str, arrivals: list[float], replicas: list[int]) -> None:
    """Run a service with so many small nodes each hour; a node lives while it is needed."""
    rows.requests(workload, arrivals, replicas)
    for number in range(max(replicas)):
        start = None
        for hour in range(HOURS + 1):
            needed = hour < HOURS and replicas[hour] > number
            if needed and start is None:
                start = hour
            if not needed and start is not None:
                name = f"{workload.replace('/', '-')}-{number}-{start}"
                rows.node(name, SMALL, start, hour)
                levels = [min(1.0, arrivals[at] / REPLICA_REQ_HR / replicas[at]) for at in range(start, hour)]
                rows.hold(workload, name, 1, levels, start)
                start = None


def _scaled_service(rng: Random, first: _Rows, second: _Rows, half: bool) -> Truth:
    """Scale a service that held a fixed number; by half: the scaler is off in the second half of the days."""
    nodes = rng.randint(4, 9)
    before = _arrivals(rng, nodes * REPLICA_REQ_HR * rng.uniform(0.35, 0.75))
    growth = rng.uniform(0.8, 1.6)
    after = [count * growth for count in before]
    former = max(nodes, ceil(max(after) / REPLICA_REQ_HR / FORMER_PEAK_FRAC))
    scaled = _replicas(after)
    used = [count if not half or hour < HOURS // 2 else former for hour, count in enumerate(scaled)]
    _serve(first, "chat/api", before, [nodes] * HOURS)
    _serve(second, "chat/api", after, used)
    key = (SMALL, "on-demand")
    return Truth(
        kind="autoscaling",
        subjects=["chat/api"],
        predicted=Counter({key: nodes - sum(_replicas(before)) / HOURS}),
        saved=Counter({key: former - sum(used) / HOURS}),
        half=half,
    )


def _moved_services(rng: Random, first: _Rows, second: _Rows, half: bool) -> Truth:
    """Move services of one GPU from large nodes to small ones; by half: half of them stay."""
    names = [f"web/s{number}" for number in range(rng.choice([2, 4]))]
    left = set(names[: len(names) // 2]) if half else set()
    for name in names:
        level, growth, node = rng.uniform(0.1, 0.4), rng.uniform(0.8, 1.6), name.replace("/", "-")
        first.node(node, LARGE)
        first.hold(name, node, 1, [level] * HOURS)
        moved = f"{node}-moved" if name not in left else node
        second.node(moved, SMALL if name not in left else LARGE)
        second.hold(name, moved, 1, [level * growth] * HOURS)
    made = len(names) - len(left)
    return Truth(
        kind="right-size",
        subjects=names,
        predicted=Counter({(LARGE, "on-demand"): len(names), (SMALL, "on-demand"): -len(names)}),
        saved=Counter({(LARGE, "on-demand"): made, (SMALL, "on-demand"): -made}),
        half=half,
    )


def _spare_nodes(rng: Random, first: _Rows, second: _Rows, half: bool) -> Truth:
    """Give back nodes that no workload holds; by half: half of them stay."""
    names = [f"spare-{number}" for number in range(rng.choice([2, 4]))]
    left = names[: len(names) // 2] if half else []
    for name in names:
        first.node(name, SMALL)
    for name in left:
        second.node(name, SMALL)
    key = (SMALL, "on-demand")
    saved = Counter({key: float(len(names) - len(left))})
    return Truth(kind="release", subjects=names, predicted=Counter({key: float(len(names))}), saved=saved, half=half)


def _spot_training(rng: Random, first: _Rows, second: _Rows, half: bool) -> Truth:
    """Move training to spot; by half: half of its nodes stay on demand."""
    count = rng.choice([2, 4])
    level = rng.uniform(0.6, 0.95)
    on_spot = count // 2 if half else count
    for number in range(count):
        capacity = "spot" if number < on_spot else "on-demand"
        for rows, bought in ((first, "on-demand"), (second, capacity)):
            rows.node(f"train-{number}", BATCH, capacity=bought)
            rows.hold("train/run", f"train-{number}", 4, [level] * HOURS)
    return Truth(
        kind="spot",
        subjects=["train/run"],
        predicted=Counter({(BATCH, "on-demand"): count, (BATCH, "spot"): -count}),
        saved=Counter({(BATCH, "on-demand"): on_spot, (BATCH, "spot"): -on_spot}),
        half=half,
    )


def _elastic_service(rng: Random, first: _Rows, second: _Rows) -> None:
    """Run a service that was scaled all along: its demand moves against the others', and nothing is done to it."""
    before = _arrivals(rng, REPLICA_REQ_HR * rng.uniform(4, 8))
    after = [count * rng.uniform(0.55, 0.6) for count in before]
    _serve(first, "search/api", before, _replicas(before))
    _serve(second, "search/api", after, _replicas(after))


def _left_alone(rng: Random, first: _Rows, second: _Rows) -> None:
    """Run training that no change touches: most of a fleet's bill."""
    for number in range(rng.randint(4, 10)):
        level = rng.uniform(0.5, 0.9)
        for rows in (first, second):
            rows.node(f"steady-{number}", BATCH)
            rows.hold("train/steady", f"steady-{number}", 4, [level] * HOURS)
