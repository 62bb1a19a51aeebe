"""Start times in a fleet's own history: until a pod got a new node, and from its node to ready.

All is read off the pods that a cluster knew when it was read, which are those that ran then or had ended shortly before. The
wait for a node lasts from a pod's creation to its place on a node that began in between, so that the time in which no node
could be had is in it; pods of a queue (Kueue, Volcano) are left out, since their time in the queue is not known. Runs of
`jobs` do not tell the start of their node from their time in a queue. From its node to ready a pod pulls its images, starts its
containers (volumes, init containers) and loads: the parts are told where moments and events tell them.

A service none of whose starts was told is known by its images: their size, at the speed of pulls that were told in the same
cluster, and the loads of others. That only ever lengthens what is assumed of it: whose load it has is not known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
import pyarrow as pa

from trimtab.fleet.model import Fleet, Workload
from trimtab.fleet.settings import Assumptions
from trimtab.tables.bundle import Bundle
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import S_PER_HR

POD_COLUMNS = (
    "workload", "node", "gpus", "created", "scheduled", "started", "ready", "pull_s", "pulled_gib", "queue", "images",
)  # fmt: skip
NODE_COLUMNS = ("node", "start")
IMAGE_COLUMNS = ("image", "size_gib")
SLOW_FRAC = 0.9
"""Starts beyond this quantile are the slowest tenth."""
PLANNED_FRAC = 0.75
"""Plans take a start to last as long as three of four that were measured: waits add up over a day, and one late start of four
costs what the headroom is for. Proofs also test plans with the slowest tenth."""
FEWEST = 3
"""Number of measured starts from which plans use the measurement instead of the assumption."""
SHORT_LOAD_FRAC = 0.5
"""Loads scatter: one that is no shorter than this, of what plans take, does not say that anything was there before."""
_LONGEST_S = float(S_PER_HR)
"""A pod that is ready later than this after it got its node was ready before, and then not: readiness tells its last change
alone. A Deployment gives up after ten minutes by default (`progressDeadlineSeconds`)."""
_NAMED = 3
"""Workloads that a sentence names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnStart:
    """A pod's start on its node, in seconds: all of it, and the parts that were told."""

    all_s: float
    setup_s: float | None = None
    """From its node to its last container's start."""
    pull_s: float | None = None
    """Of that, the pulls of its images."""
    pulled_gib: float | None = None

    @property
    def load_s(self) -> float | None:
        """Return the time from the containers' start to ready: weights, compilation, warm-up."""
        return None if self.setup_s is None else self.all_s - self.setup_s


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowStarts:
    """How long starts take where all are as slow as the slowest tenth measured; what was not measured is not there."""

    node_s: float | None = None
    own_s: Mapping[str, float] = field(default_factory=dict, hash=False)
    """From its node to ready, by workload: the image, and the load of a model."""

    def run_start_s(self, workload: str, planned_s: float) -> float:
        """Return how long a run takes from asking for a node to its work; never less than planned."""
        return max(planned_s, (self.node_s or 0.0) + self.own_s.get(workload, 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStarts:
    """Every start that was measured, in seconds."""

    node_s: tuple[float, ...] = ()
    own: Mapping[str, tuple[OwnStart, ...]] = field(default_factory=dict)
    """By workload, the shortest first."""
    pulls_gib_s: tuple[float, ...] = ()
    """How fast pulls were whose size was told, waits for other pulls included."""
    image_gib: Mapping[str, float] = field(default_factory=dict)
    """Size of all images of a pod, by workload, where nodes tell all of them."""
    odd: int = 0
    """Starts left out: moments that clocks tell in the wrong order, or a readiness that is too late to be the first."""

    @property
    def own_s(self) -> dict[str, tuple[float, ...]]:
        """Return how long whole starts on a node took, by workload."""
        return {name: tuple(start.all_s for start in starts) for name, starts in self.own.items()}

    @property
    def slow(self) -> SlowStarts:
        """Return the least of the slowest tenth of each; of fewer than ten, the slowest."""
        return SlowStarts(
            node_s=_slow(self.node_s) if self.node_s else None,
            own_s={name: _slow(starts) for name, starts in self.own_s.items()},
        )

    @property
    def planned_node_s(self) -> float | None:
        """Return how long plans take the wait for a node to be; None if too few were measured."""
        return planned(self.node_s)

    def planned_s(self, workload: str) -> float | None:
        """Return how long plans take a workload's start on a node to be; None if too few were measured."""
        return planned(self.own_s.get(workload, ()))

    def estimated_s(self, workload: str) -> float | None:
        """Return how long a workload's start on a new node takes by the size of its images; None if too little is known.

        The pull at a speed that three of four measured ones reached, and then what the loads of all workloads took.
        """
        gib = self.image_gib.get(workload)
        if gib is None or len(self.pulls_gib_s) < FEWEST:
            return None
        gib_s = float(np.quantile(self.pulls_gib_s, 1.0 - PLANNED_FRAC, method="lower"))
        return gib / gib_s + (planned([load_s for name in self.own for load_s in self.loads_s(name)]) or 0.0)

    def pulls_s(self, workload: str) -> tuple[float, ...]:
        """Return the pulls of a workload's images that were reported."""
        return tuple(start.pull_s for start in self.own.get(workload, ()) if start.pull_s is not None)

    def loads_s(self, workload: str) -> tuple[float, ...]:
        """Return the loads of a workload, from its containers' start to ready, that were told."""
        return tuple(start.load_s for start in self.own.get(workload, ()) if start.load_s is not None)

    def short_loads_s(self, workload: str) -> tuple[float, ...]:
        """Return the loads of a workload that took less than half of what plans take.

        Its weights or what it compiles were there before: on the node's disk, in its memory, in a cache that was kept.
        """
        loads = self.loads_s(workload)
        usual_s = planned(loads)
        return tuple(load_s for load_s in loads if usual_s is not None and load_s <= SHORT_LOAD_FRAC * usual_s)


def planned(starts_s: Sequence[float]) -> float | None:
    """Return the start time that plans use, from measured seconds; None if there are too few."""
    if len(starts_s) < FEWEST:
        return None
    return float(np.quantile(starts_s, PLANNED_FRAC, method="higher"))


def _slow(starts: Sequence[float]) -> float:
    return float(np.quantile(starts, SLOW_FRAC, method="higher"))


def measured_starts(pods: pa.Table, nodes: pa.Table, images: pa.Table) -> MeasuredStarts:
    """Return the starts that a history tells; `pods` has POD_COLUMNS, `nodes` NODE_COLUMNS, `images` IMAGE_COLUMNS."""
    begun = defaultdict(list)
    for row in nodes.to_pylist():
        begun[row["node"]].append(row["start"])
    node_s: list[float] = []
    own: dict[str, list[OwnStart]] = defaultdict(list)
    odd = 0
    for row in pods.to_pylist():
        created, scheduled, ready = row["created"], row["scheduled"], row["ready"]
        if scheduled is None or not row["gpus"]:
            continue
        if not row["queue"] and any(created < start <= scheduled for start in begun[row["node"]]):
            node_s.append((scheduled - created).total_seconds())
        if ready is None:
            continue
        start = _own_start(row)
        if start is None:
            odd += 1
        else:
            own[row["workload"]].append(start)
    return MeasuredStarts(
        node_s=tuple(sorted(node_s)),
        own={name: tuple(sorted(own[name], key=lambda start: start.all_s)) for name in sorted(own)},
        pulls_gib_s=tuple(
            sorted(
                start.pulled_gib / start.pull_s
                for starts in own.values()
                for start in starts
                if start.pulled_gib and start.pull_s
            )
        ),
        image_gib=_image_gib(pods, images),
        odd=odd,
    )


def starts_of(bundle: Bundle) -> MeasuredStarts:
    """Return the starts that a bundle tells."""
    return measured_starts(
        bundle.table("pods", POD_COLUMNS), bundle.table("nodes", NODE_COLUMNS), bundle.table("images", IMAGE_COLUMNS)
    )


def _image_gib(pods: pa.Table, images: pa.Table) -> dict[str, float]:
    """Return what all images of a workload's pods come to, of the largest of its pods; none where a size is not known."""
    sizes: dict[str, float] = {}
    for row in images.to_pylist():
        if row["size_gib"]:
            name = _full_name(row["image"])
            sizes[name] = max(sizes.get(name, 0.0), row["size_gib"])
    found: dict[str, float] = {}
    for row in pods.to_pylist():
        named = [sizes.get(_full_name(name)) for name in str(row["images"] or "").split(",") if name]
        known = [size for size in named if size is not None]
        if row["gpus"] and known and len(known) == len(named):
            found[row["workload"]] = max(found.get(row["workload"], 0.0), sum(known))
    return found


def _full_name(image: str) -> str:
    """Return an image's name as nodes tell it: with its registry and tag, which a pod may leave out.

    Source: distribution/reference, normalize.go: docker.io where no registry is named, `library/` before a name alone.

    >>> _full_name("vllm/vllm-openai:v0.10"), _full_name("python"), _full_name("ghcr.io/a/b@sha256:12")
    ('docker.io/vllm/vllm-openai:v0.10', 'docker.io/library/python:latest', 'ghcr.io/a/b@sha256:12')
    """
    first, slash, _ = image.partition("/")
    if not slash or not ("." in first or ":" in first or first == "localhost"):
        image = f"docker.io/{image}" if slash else f"docker.io/library/{image}"
    return image if "@" in image or ":" in image.rpartition("/")[2] else f"{image}:latest"


def _own_start(row: Mapping[str, object]) -> OwnStart | None:
    """Return a pod's start on its node; None if its moments cannot be those of one."""
    all_s, setup_s = _seconds(row, "scheduled", "ready"), _seconds(row, "scheduled", "started")
    pull_s, pulled_gib = row["pull_s"], row["pulled_gib"]
    assert all_s is not None
    if not 0 <= all_s <= _LONGEST_S:
        return None
    if setup_s is not None and not 0 <= setup_s <= all_s:
        return None
    return OwnStart(
        all_s=all_s,
        setup_s=setup_s,
        # kubelets pull while others wait: what is told never exceeds the time that there was, but for rounding to seconds
        pull_s=min(pull_s, all_s if setup_s is None else setup_s) if isinstance(pull_s, float) else None,
        pulled_gib=pulled_gib if isinstance(pulled_gib, float) else None,
    )


def _seconds(row: Mapping[str, object], first: str, last: str) -> float | None:
    begin, end = row[first], row[last]
    if not isinstance(begin, datetime) or not isinstance(end, datetime):
        return None
    return (end - begin).total_seconds()


def with_measured(assumptions: Assumptions, starts: MeasuredStarts) -> Assumptions:
    """Return assumptions that take the wait for a node as it was measured; what somebody stated stays."""
    node_s = starts.planned_node_s
    if node_s is None or assumptions.node_startup_s != Assumptions().node_startup_s:
        return assumptions
    return replace(assumptions, node_startup_s=node_s)


def with_starts(fleet: Fleet, starts: MeasuredStarts) -> Fleet:
    """Return a fleet whose workloads know how long their own starts were measured to take."""
    return replace(fleet, workloads=tuple(_with_starts(workload, starts) for workload in fleet.workloads))


def _with_starts(workload: Workload, starts: MeasuredStarts) -> Workload:
    measured_s = starts.planned_s(workload.name)
    return replace(
        workload,
        start_s=measured_s if measured_s is not None else _estimated_s(workload, starts),
        pull_s=planned(starts.pulls_s(workload.name)),
        load_s=planned(starts.loads_s(workload.name)),
        short_loads_s=starts.short_loads_s(workload.name),
    )


def _estimated_s(workload: Workload, starts: MeasuredStarts) -> float | None:
    """Return a service's start by its images where none was measured and it takes longer than is assumed; else None."""
    told_s = starts.estimated_s(workload.name) if workload.kind is WorkloadKind.SERVING else None
    return told_s if told_s is not None and told_s > Assumptions().service_cold_start_s else None


def run_startup_s(workload: Workload, assumptions: Assumptions) -> float:
    """Return how long a run on a node of its own takes from asking for it to its work."""
    return assumptions.node_startup_s + (workload.start_s or 0.0)


def said_of_starts(starts: MeasuredStarts, fleet: Fleet, stated: Assumptions) -> Iterator[str]:
    """Describe the start times that plans assume and why; `stated` are the assumptions before any measurement."""
    node_s, usual = starts.planned_node_s, Assumptions()
    if stated.node_startup_s != usual.node_startup_s and node_s is not None:
        yield f"cold start: a node {stated.node_startup_s:.0f} s, as stated"
    elif node_s is not None:
        yield f"cold start measured on {len(starts.node_s)} starts: a node {node_s:.0f} s (three of four were no slower)"
    elif starts.node_s or starts.own:
        # where no pod was read at all, the proof says that no start was measured
        seen = f"{len(starts.node_s)} start(s) seen, {FEWEST} are the least"
        yield f"cold start assumed: a node {stated.node_startup_s:.0f} s; {seen}"
    known = [workload for workload in fleet.workloads if starts.planned_s(workload.name) is not None]
    for workload in sorted(known, key=lambda workload: -workload.gpu_hours)[:_NAMED]:
        yield _said_of(workload, starts.own[workload.name])
    if len(known) > _NAMED:
        yield f"own starts of {len(known) - _NAMED} more workloads were measured"
    guessed = [workload for workload in fleet.workloads if workload.start_s is not None and workload not in known]
    for workload in sorted(guessed, key=lambda workload: -workload.gpu_hours)[:_NAMED]:
        yield (
            f"start of {workload.name} on a new node estimated, since none was measured: {workload.start_s:.0f} s, for images "
            f"of {starts.image_gib[workload.name]:.3g} GiB at the speed of {len(starts.pulls_gib_s)} pulls of others"
        )
    if starts.odd:
        yield f"{starts.odd} start(s) left out: clocks apart, or readiness that changed later"


def _said_of(workload: Workload, own: Sequence[OwnStart]) -> str:
    parts = []
    pulls = [start for start in own if start.pull_s is not None]
    if workload.pull_s is not None:
        gib = max((start.pulled_gib for start in pulls if start.pulled_gib is not None), default=None)
        size = f" ({gib:.3g} GiB)" if gib is not None else ""
        parts.append(f"pulls of images {workload.pull_s:.0f} s{size}, of {len(pulls)}")
    if workload.load_s is not None:
        loads = sum(start.load_s is not None for start in own)
        parts.append(f"from its containers' start to ready {workload.load_s:.0f} s, of {loads}")
    told = f": {'; '.join(parts)}" if parts else ""
    return f"start of {workload.name} on a node measured on {len(own)} starts: {workload.start_s:.0f} s{told}"
