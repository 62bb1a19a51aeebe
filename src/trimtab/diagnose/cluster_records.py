"""What is known of a cluster when one looks for broken and untidy things, and what stretches of GPU time cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from itertools import pairwise

import numpy as np

from trimtab.catalog import InstanceType
from trimtab.fleet.activity import USAGE_COLUMNS, device_hours
from trimtab.fleet.model import Fleet, Window
from trimtab.fleet.occupancy import cut_by_hour
from trimtab.fleet.settings import Settings
from trimtab.ledger import IDLE, Allocation
from trimtab.ledger.arrays import Flags, FloatArray, IntArray, apportion_groups
from trimtab.tables.arrow import RecordedRow
from trimtab.tables.bundle import Bundle
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import S_PER_HR

JOB_COLUMNS = (
    "job", "workload", "submit", "start", "end", "gpus", "state", "node", "queue", "checkpoint_interval_s",
)  # fmt: skip
FAULT_COLUMNS = ("node", "device", "start", "end", "fault", "code", "lost_frac")
POD_COLUMNS = (
    "pod", "namespace", "workload", "owner_kind", "node", "phase", "gpus", "cpu_request", "memory_request_gib",
    "memory_limit_gib", "created", "scheduled", "ready", "ended", "queue", "tolerations", "restarts", "waiting",
    "last_exit", "last_ended", "last_life_s", "unschedulable", "node_selector", "affinity",
)  # fmt: skip
SCALER_COLUMNS = ("kind", "namespace", "name", "target", "min_replicas", "max_replicas", "triggers", "limits")
BUDGET_COLUMNS = ("namespace", "name", "workload", "allowed", "healthy", "expected")
QUEUE_COLUMNS = (
    "kind", "namespace", "name", "parent", "resource", "flavor", "quota_gpus", "limit_gpus", "guaranteed_gpus", "used_gpus",
    "weight", "reclaimable",
)  # fmt: skip
NODE_COLUMNS = ("node", "provider", "instance_type", "gpu", "gpu_count", "start", "end", "labels", "taints")
_ALLOCATION_COLUMNS = ("workload", "owner_kind", "pod", "node", "device", "gpus", "start", "end")


class Call(Enum):
    """Who can end it."""

    OWNER = "workload owner"
    PLATFORM = "platform team"
    PROVIDER = "cloud provider's support"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """What is known of a node: its GPUs and who rents it out."""

    gpu_count: int
    provider: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldGpus:
    """A row of `allocations` that holds GPUs; the end of one that lasts is the history's."""

    workload: str
    pod: str
    node: str
    device: str
    gpus: float
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceRecords:
    """What each GPU did by the hour, worked out for those that are asked about: most never are."""

    rows_of: Mapping[str, slice]
    """Which rows are a device's."""
    hour: IntArray
    """Of each row that was read (n_rows,), since 1970."""
    mean: FloatArray
    """Mean activity, 0..1."""
    worked: Flags
    """Whether the device did anything."""

    def active(self, device: str) -> dict[int, float]:
        """Return the hours in which a device did anything, with its mean activity; none of one that is not known."""
        rows = self.rows_of.get(device, slice(0))
        worked = self.worked[rows]
        return dict(zip(self.hour[rows][worked].tolist(), self.mean[rows][worked].tolist(), strict=True))

    def seen(self, device: str) -> frozenset[int]:
        """Return the hours in which a device was read."""
        return frozenset(self.hour[self.rows_of.get(device, slice(0))].tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRecords:
    """What is known of a history: rows of tables, who held what, and what each GPU did."""

    start_s: float
    end_s: float
    jobs: Sequence[RecordedRow]
    nodes: Sequence[RecordedRow]
    """Those with GPUs."""
    pods: Sequence[RecordedRow]
    faults: Sequence[RecordedRow]
    scalers: Sequence[RecordedRow]
    budgets: Sequence[RecordedRow]
    """Pod disruption budgets."""
    shapes: Mapping[str, NodeShape]
    """By node."""
    held: Sequence[HeldGpus]
    others: Sequence[HeldGpus]
    """Pods without GPUs on GPU nodes, `gpus` 0."""
    owner_kinds: Mapping[str, str]
    notebooks: frozenset[str]
    """Workloads that are notebooks."""
    used_of: Mapping[tuple[str, float], float]
    """(workload, GPUs of a pod) -> the most GPUs that any pod of that size used."""
    gpus: DeviceRecords
    """What each GPU did."""
    partitioned: frozenset[str] = frozenset()
    """Nodes with MIG instances."""
    queues: Sequence[RecordedRow] = ()
    """Those that ration GPUs."""
    machines: Sequence[InstanceType] = ()
    """Machine types, for the CPUs and memory of nodes; those of others count as enough."""


def cluster_records(
    bundle: Bundle,
    fleets: Sequence[Fleet],
    window: Window,
    settings: Settings,
    machines: Sequence[InstanceType] = (),
) -> ClusterRecords:
    """Return the records of a bundle over a window, which the fleets' windows make up; `machines` tell nodes' CPUs."""
    start_s, end_s = window.start.timestamp(), window.end.timestamp()
    rows = [
        row for row in bundle.table("allocations", _ALLOCATION_COLUMNS).to_pylist() if _is_within(row, start_s, end_s)
    ]
    nodes = bundle.table("nodes", NODE_COLUMNS).to_pylist()
    pods = bundle.table("pods", POD_COLUMNS).to_pylist()
    return ClusterRecords(
        start_s=start_s,
        end_s=end_s,
        jobs=[job for job in _jobs(bundle, fleets) if _is_within(job, start_s, end_s)],
        nodes=[row for row in nodes if row["gpu_count"]],
        pods=pods,
        faults=bundle.table("faults", FAULT_COLUMNS).to_pylist(),
        scalers=bundle.table("scalers", SCALER_COLUMNS).to_pylist(),
        budgets=bundle.table("disruption_budgets", BUDGET_COLUMNS).to_pylist(),
        shapes={row["node"]: NodeShape(gpu_count=row["gpu_count"], provider=row["provider"]) for row in nodes},
        held=tuple(_held(row, start_s, end_s) for row in rows if row["gpus"] > 0),
        others=tuple(_held(row, start_s, end_s) for row in rows if row["gpus"] == 0),
        owner_kinds={row["workload"]: row["owner_kind"] or "" for row in rows}
        | {pod["workload"]: pod["owner_kind"] or "" for pod in pods},
        notebooks=frozenset(
            workload.name for fleet in fleets for workload in fleet.workloads if workload.kind is WorkloadKind.NOTEBOOK
        ),
        used_of=_used(fleets),
        gpus=_device_records(bundle, window, settings.bands.active_frac),
        partitioned=frozenset(
            row["node"] for row in bundle.table("devices", ("node", "mig_profile")).to_pylist() if row["mig_profile"]
        ),
        queues=bundle.table("queues", QUEUE_COLUMNS).to_pylist(),
        machines=machines,
    )


def _is_within(row: RecordedRow, start_s: float, end_s: float) -> bool:
    """Return whether a run or a holding was there within a history: clusters keep finished Jobs and pods for long.

    A run that never started is there while it waits.
    """
    return seconds(row["start"], start_s) < end_s and seconds(row["end"], end_s) > start_s


def _held(row: RecordedRow, start_s: float, end_s: float) -> HeldGpus:
    return HeldGpus(
        workload=str(row["workload"]),
        pod=str(row["pod"]),
        node=str(row["node"]),
        device=str(row["device"] or ""),
        gpus=float(str(row["gpus"])),
        start_s=max(start_s, seconds(row["start"], start_s)),
        end_s=min(end_s, seconds(row["end"], end_s)),
    )


def _jobs(bundle: Bundle, fleets: Sequence[Fleet]) -> list[RecordedRow]:
    """Return the runs, those without a checkpoint of their own with what workloads.yaml declares of their workload."""
    declared = {
        workload.name: float(workload.spec.checkpoint.interval_s)
        for fleet in fleets
        for workload in fleet.workloads
        if workload.spec.checkpoint is not None and workload.spec.checkpoint.interval_s is not None
    }
    rows = bundle.table("jobs", JOB_COLUMNS).to_pylist()
    return [
        row | {"checkpoint_interval_s": row["checkpoint_interval_s"] or declared.get(row["workload"])} for row in rows
    ]


def _used(fleets: Sequence[Fleet]) -> dict[tuple[str, float], float]:
    """Return the most GPUs that pods of a size used in any window; sizes that some window does not know are left out."""
    used: dict[tuple[str, float], float] = {}
    unknown = set()
    for fleet in fleets:
        for workload in fleet.workloads:
            for size in workload.pod_sizes:
                key = (workload.name, round(size.gpus, 3))
                if size.used_gpus is None:
                    unknown.add(key)
                else:
                    used[key] = max(used.get(key, 0.0), size.used_gpus)
    return {key: gpus for key, gpus in used.items() if key not in unknown}


def _device_records(bundle: Bundle, window: Window, active_frac: float) -> DeviceRecords:
    rows = device_hours(bundle.pieces("gpu_usage", USAGE_COLUMNS), bundle.table("devices"), {}, window)
    level = np.where(np.isnan(rows.peak), rows.best, rows.peak)
    read = np.flatnonzero(~np.isnan(level))
    read = read[np.argsort(rows.device[read], kind="stable")]
    ends = np.searchsorted(rows.device[read], np.arange(len(rows.names) + 1)).tolist()
    return DeviceRecords(
        rows_of={name: slice(first, end) for name, (first, end) in zip(rows.names, pairwise(ends), strict=True)},
        hour=rows.hour[read] + int(window.start.timestamp()) // S_PER_HR,
        mean=rows.best[read],
        worked=level[read] >= active_frac,
    )


# Cells


def distinct(names: Iterable[str]) -> tuple[str, ...]:
    """Return names without empty ones, each once, in order."""
    return tuple(dict.fromkeys(name for name in names if name))


def pairs(cell: object) -> dict[str, str]:
    """Return a cell of labels, which Arrow gives as pairs."""
    pairs = cell.items() if isinstance(cell, Mapping) else cell if isinstance(cell, list) else ()
    return {str(key): str(value) for key, value in pairs}


def counted(count: int, what: str) -> str:
    """Say so many of something: `1 pod`, `2 pods`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def number(cell: object) -> float:
    """Return a cell as a number; 0 where it is empty."""
    return float(cell) if isinstance(cell, int | float) else 0.0


def seconds(cell: object, absent_s: float) -> float:
    """Return a moment as seconds since 1970, and `absent_s` where the cell is empty."""
    return cell.timestamp() if isinstance(cell, datetime) else absent_s


def gpus_words(gpus: float) -> str:
    """Say so many GPUs: `1 GPU`, `2 GPUs`."""
    return f"{gpus:g} GPU{'' if gpus == 1 else 's'}"


NOBODY = ""
"""The holder of GPU time that no workload held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostSpan:
    """GPUs of one node that one workload held (or NOBODY) from `start_s` to `end_s`, seconds since 1970."""

    finding: int = 0
    """Number of the finding that it belongs to, once findings are numbered."""
    node: str
    holder: str
    gpus: float
    start_s: float
    end_s: float
    lost_frac: float = 1.0
    """Share of the time that was lost."""


def lost_spans(held: Iterable[HeldGpus], start_s: float, end_s: float, lost_frac: float = 1.0) -> list[LostSpan]:
    """Return what holders of GPUs lost of a stretch of time: a span each, as far as they held them in it."""
    return [
        LostSpan(
            node=hold.node,
            holder=hold.workload,
            gpus=hold.gpus,
            start_s=max(start_s, hold.start_s),
            end_s=min(end_s, hold.end_s),
            lost_frac=lost_frac,
        )
        for hold in held
        if hold.start_s < end_s and hold.end_s > start_s
    ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LostTime:
    """Parts of the bill (n_parts,): of which finding, of which cell of the allocation, how many micro-dollars."""

    finding: IntArray
    cell: IntArray
    micro_usd: IntArray

    def by_finding(self, findings: int) -> IntArray:
        """Return what each finding cost (findings,)."""
        summed = np.zeros(findings, dtype=np.int64)
        np.add.at(summed, self.finding, self.micro_usd)
        return summed


def lost_time(fleet: Fleet, allocation: Allocation, spans: Sequence[LostSpan]) -> LostTime:
    """Price spans from the bill of a fleet's window; what lies outside it, or was not billed to that holder, is left out.

    Spans that claim the same GPU time share it, so that the parts of a cell never exceed its cost.
    """
    cells = allocation.holdings
    names = {name: index for index, name in enumerate(dict.fromkeys(node.name for node in fleet.nodes))}
    owners = {workload.name: index for index, workload in enumerate(fleet.workloads)} | {NOBODY: IDLE}
    known = [span for span in spans if span.node in names and span.holder in owners]
    began_s = fleet.window.start.timestamp()
    cut = cut_by_hour(
        np.array([span.start_s - began_s for span in known], dtype=np.float64),
        np.array([span.end_s - began_s for span in known], dtype=np.float64),
        fleet.window,
    )
    slots = len(fleet.workloads) + 1

    def key(name: IntArray, hour: IntArray, owner: IntArray) -> IntArray:
        return np.asarray((name * fleet.window.hours + hour) * slots + owner + 1, dtype=np.int64)

    name_of_node = np.array([names[node.name] for node in fleet.nodes], dtype=np.int64)
    of_cell = key(name_of_node[cells.node], cells.hour, cells.owner)
    order = np.argsort(of_cell, kind="stable")
    asked = key(
        np.array([names[span.node] for span in known], dtype=np.int64)[cut.index],
        cut.hour,
        np.array([owners[span.holder] for span in known], dtype=np.int64)[cut.index],
    )
    at = np.minimum(np.searchsorted(of_cell[order], asked), max(len(order) - 1, 0))
    found = of_cell[order][at] == asked if len(order) else np.zeros(len(asked), dtype=np.bool_)
    cell = order[at[found]] if len(order) else np.zeros(0, dtype=np.int64)
    taken = np.array([span.gpus * span.lost_frac for span in known], dtype=np.float64)[cut.index] * cut.seconds
    finding = np.array([span.finding for span in known], dtype=np.int64)[cut.index]
    return _shared(fleet, allocation, cell, taken[found], finding[found])


def _shared(
    fleet: Fleet, allocation: Allocation, cell: IntArray, gpu_seconds: FloatArray, finding: IntArray
) -> LostTime:
    """Divide what each cell lost among those that claim it (n_claims,)."""
    gpus = np.array([node.gpu_count for node in fleet.nodes], dtype=np.float64)
    cells = allocation.holdings
    held = cells.node_seconds * gpus[cells.node]
    order = np.argsort(cell, kind="stable")
    cell, gpu_seconds, finding = cell[order], gpu_seconds[order], finding[order]
    claimed, group = np.unique(cell, return_inverse=True)
    total = np.bincount(group, weights=gpu_seconds, minlength=len(claimed)).astype(np.float64)
    lost_frac = np.minimum(np.divide(total, held[claimed], out=np.ones_like(total), where=held[claimed] > 0), 1.0)
    micro = np.rint(allocation.cost[claimed] * lost_frac).astype(np.int64)
    return LostTime(finding=finding, cell=cell, micro_usd=apportion_groups(micro, group, gpu_seconds))
