"""What `broken` and `hygiene` look at, from the tables of a bundle and the fleets of its windows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trimtab.catalog import InstanceType
from trimtab.diagnose.broken import FAULT_COLUMNS, JOB_COLUMNS, BrokenRecords, HeldGpus, NodeShape, Row
from trimtab.diagnose.offences import BUDGET_COLUMNS, NODE_COLUMNS, POD_COLUMNS, SCALER_COLUMNS, HygieneRecords
from trimtab.fleet.activity import USAGE_COLUMNS, device_hours
from trimtab.fleet.model import Fleet, Window
from trimtab.fleet.settings import Settings
from trimtab.tables.bundle import Bundle
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import S_PER_HR

_ALLOCATION_COLUMNS = ("workload", "owner_kind", "pod", "node", "device", "gpus", "start", "end")


def cluster_records(
    bundle: Bundle,
    fleets: Sequence[Fleet],
    window: Window,
    settings: Settings,
    machines: Sequence[InstanceType] = (),
) -> tuple[BrokenRecords, HygieneRecords]:
    """Return the records of a bundle over a window, which the fleets' windows make up; `machines` tell nodes' CPUs."""
    start_s, end_s = window.start.timestamp(), window.end.timestamp()
    rows = bundle.table("allocations", _ALLOCATION_COLUMNS).to_pylist()
    held = tuple(_held(row, start_s, end_s) for row in rows if row["gpus"] > 0)
    others = tuple(_held(row, start_s, end_s) for row in rows if row["gpus"] == 0)
    nodes = bundle.table("nodes", NODE_COLUMNS).to_pylist()
    pods = bundle.table("pods", POD_COLUMNS).to_pylist()
    active, seen = _hours_of_devices(bundle, window, settings.bands.active_frac)
    broken = BrokenRecords(
        end_s=end_s,
        jobs=_jobs(bundle, fleets),
        pods=pods,
        faults=bundle.table("faults", FAULT_COLUMNS).to_pylist(),
        held=held,
        nodes={row["node"]: NodeShape(gpu_count=row["gpu_count"], provider=row["provider"]) for row in nodes},
        active_hours=active,
    )
    hygiene = HygieneRecords(
        start_s=start_s,
        end_s=end_s,
        nodes=[row for row in nodes if row["gpu_count"]],
        pods=pods,
        scalers=bundle.table("scalers", SCALER_COLUMNS).to_pylist(),
        budgets=bundle.table("disruption_budgets", BUDGET_COLUMNS).to_pylist(),
        others=others,
        held=held,
        owner_kinds={row["workload"]: row["owner_kind"] or "" for row in rows}
        | {pod["workload"]: pod["owner_kind"] or "" for pod in pods},
        notebooks=frozenset(
            workload.name for fleet in fleets for workload in fleet.workloads if workload.kind is WorkloadKind.NOTEBOOK
        ),
        used_of=_used(fleets),
        active_hours=active,
        seen_hours=seen,
        partitioned=frozenset(
            row["node"] for row in bundle.table("devices", ("node", "mig_profile")).to_pylist() if row["mig_profile"]
        ),
        machines=machines,
    )
    return broken, hygiene


def _held(row: Row, start_s: float, end_s: float) -> HeldGpus:
    start, end = row["start"], row["end"]
    return HeldGpus(
        workload=str(row["workload"]),
        pod=str(row["pod"]),
        node=str(row["node"]),
        device=str(row["device"] or ""),
        gpus=float(str(row["gpus"])),
        start_s=max(start_s, _moment(start, start_s)),
        end_s=min(end_s, _moment(end, end_s)),
    )


def _moment(cell: object, absent_s: float) -> float:
    stamp = getattr(cell, "timestamp", None)
    return absent_s if stamp is None else float(stamp())


def _jobs(bundle: Bundle, fleets: Sequence[Fleet]) -> list[Row]:
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


def _hours_of_devices(
    bundle: Bundle, window: Window, active_frac: float
) -> tuple[dict[str, dict[int, float]], dict[str, frozenset[int]]]:
    """Return, by device, its mean activity in the hours since 1970 in which it did anything, and the hours it was read in."""
    rows = device_hours(bundle.table("gpu_usage", USAGE_COLUMNS), bundle.table("devices"), {}, window)
    level = np.where(np.isnan(rows.peak), rows.best, rows.peak)
    hour = rows.hour + int(window.start.timestamp()) // S_PER_HR
    order = np.argsort(rows.device, kind="stable")
    bounds = np.searchsorted(rows.device[order], np.arange(len(rows.names) + 1))
    active: dict[str, dict[int, float]] = {}
    seen: dict[str, frozenset[int]] = {}
    for index, name in enumerate(rows.names):
        mine = order[bounds[index] : bounds[index + 1]]
        read = mine[~np.isnan(level[mine])]
        worked = read[level[read] >= active_frac]
        seen[name] = frozenset(hour[read].tolist())
        active[name] = dict(zip(hour[worked].tolist(), rows.best[worked].tolist(), strict=True))
    return active, seen
