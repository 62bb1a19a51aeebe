"""Pods of two Alibaba traces: whole and shared GPUs (openb, 2023), instances of recommendation services (DLRM, 2025).

Times are seconds from the start of the trace, shifted by their owners. Source: github.com/alibaba/clusterdata,
cluster-trace-gpu-v2023 and cluster-trace-gpu-v2025 (no licence stated: to be tested with, not to be passed on).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa

from trimtab.sources.collected import Collected
from trimtab.sources.recorded.machine import Machine, machine_of
from trimtab.sources.recorded.runs import Run, fleet_of

MACHINE = "aws:p4d.24xlarge"
_MILLI = 1000
_STANDING = frozenset({"LS", "Guaranteed"})
"""Classes of service that stand for ever: latency-sensitive ones. Best-effort and burstable pods are taken as runs."""
_PHASES = {"Succeeded": "completed", "Failed": "failed", "Pending": "queued"}


def build_openb(path: Path, table: pa.Table, machine: Machine | None) -> Collected:
    """Return the fleet of openb: a workload for each class of service, with shares of boards as `gpu_milli` says."""
    rows = table.to_pylist()
    runs = [run for index, row in enumerate(rows) if (run := _openb(index, row)) is not None]
    return fleet_of(
        runs,
        machine or machine_of(MACHINE),
        _last(runs),
        source=f"trace {path.name} ({len(rows)} rows)",
        notes=("assumed: LS and Guaranteed pods are services, BE and Burstable ones are runs, one workload a class",),
        counts={"rows without GPUs or a moment, left out": len(rows) - len(runs)},
    )


def _openb(index: int, row: Mapping[str, object]) -> Run | None:
    created, started, ended = (number(row[name]) for name in ("creation_time", "scheduled_time", "deletion_time"))
    gpus = (number(row["num_gpu"]) or 0.0) * (number(row["gpu_milli"]) or 0.0) / _MILLI
    if gpus <= 0 or created is None or (started is not None and ended is not None and ended < started):
        return None
    qos, phase = str(row["qos"]), str(row.get("pod_phase"))
    return Run(
        name=str(row.get("name") or f"pod-{index}"),
        workload=f"openb/{qos.lower()}",
        team=qos,
        owner_kind="Deployment" if qos in _STANDING else "Job",
        submit_s=created,
        start_s=started,
        end_s=None if started is None else ended,
        gpus=gpus,
        state=_PHASES.get(phase, "completed") if started is not None else "queued",
    )


def build_dlrm(path: Path, table: pa.Table, machine: Machine | None) -> Collected:
    """Return the fleet of the DLRM trace: a service for each app; an instance without a moment was there before or after."""
    rows = table.to_pylist()
    gpu_rows = [row for row in rows if (number(row["gpu_request"]) or 0.0) > 0]
    runs = [_dlrm(index, row) for index, row in enumerate(gpu_rows)]
    kept = [run for run in runs if run.end_s is None or run.end_s > (run.start_s or 0.0)]
    return fleet_of(
        kept,
        machine or machine_of(MACHINE),
        _last(runs),
        source=f"trace {path.name} ({len(rows)} rows)",
        notes=("instances without a moment of creation or deletion were there before or after the window",),
        counts={
            "instances without GPUs, left out": len(rows) - len(gpu_rows),
            "instances that end before they start, left out": len(runs) - len(kept),
        },
    )


def _dlrm(index: int, row: Mapping[str, object]) -> Run:
    created, scheduled = number(row["creation_time"]), number(row.get("scheduled_time"))
    start_s = scheduled if scheduled is not None else created
    return Run(
        name=str(row.get("instance_sn") or f"instance-{index}"),
        workload=f"dlrm/{row['app_name']}",
        team=str(row["app_name"]),
        owner_kind="Deployment",
        submit_s=created or 0.0,
        start_s=start_s or 0.0,
        end_s=number(row["deletion_time"]),
        gpus=number(row["gpu_request"]) or 0.0,
    )


def _last(runs: Iterable[Run]) -> float:
    return max(
        (time for run in runs for time in (run.submit_s, run.start_s, run.end_s) if time is not None), default=0.0
    )


def number(value: object) -> float | None:
    """Return a finite number of at least 0, or None."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None
