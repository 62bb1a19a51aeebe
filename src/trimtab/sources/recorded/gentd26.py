"""Readings of pods (GPU use in percent, memory in bytes), as the GenTD26 series has them: for diagnosis.

A pod is taken to hold one GPU for the whole series. The trace does not say which GPU: the assumed one must hold the memory
seen.

Source: github.com/alibaba/clusterdata, cluster-trace-v2026-GenAI (no licence stated: to be tested with, not to be passed on).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trimtab.errors import InputError
from trimtab.inputs.arrow_tables import floats
from trimtab.sources.collected import Collected
from trimtab.sources.recorded.machine import Machine, machine_of
from trimtab.sources.recorded.runs import MOST_YEARS, node_name, node_row, start_of
from trimtab.tables.arrow import table_from_rows
from trimtab.tables.bundle import BundleMeta
from trimtab.tables.schemas import HISTOGRAM_BINS
from trimtab.units import BYTES_PER_GIB, HR_PER_YEAR, S_PER_HR

MACHINE = "aws:p4de.24xlarge"
"""Boards of 80 GB: the series shows up to 47.3 GiB in use, more than a board of 48 GB often has."""
WORKLOAD = "gentd26/diffusion"
_PERCENT = 100.0
Floats = npt.NDArray[np.float64]
Row = dict[str, object]


def build(path: Path, table: pa.Table, machine: Machine | None) -> Collected:
    """Return the fleet; raises InputError where the assumed board has less memory than was seen in use."""
    laid = machine or machine_of(MACHINE)
    t_s, use, memory_gib = _columns(table, path)
    most_gib = float(np.nanmax(memory_gib, initial=0.0))
    if most_gib > laid.memory_gib:
        raise InputError(
            f"{path}: {most_gib:.1f} GiB were in use, and {laid.words} has {laid.memory_gib:.1f} GiB a board; "
            f"name a larger one, as --machine {MACHINE}"
        )
    names = np.asarray(table["pod"].to_pylist(), dtype=np.str_)
    pods = sorted(set(names.tolist()))
    place = {pod: (index // laid.gpu_count, f"GPU-trace-{pod}") for index, pod in enumerate(pods)}
    hours = int(np.nanmax(t_s) // S_PER_HR) + 1
    start = start_of(hours * S_PER_HR)
    tables: dict[str, list[Row]] = {
        "devices": [
            {"device": device, "node": node_name(node), "gpu": laid.gpu, "memory_gib": laid.memory_gib}
            for node, device in place.values()
        ],
        "nodes": [node_row(index, laid, start) for index in range(-(-len(pods) // laid.gpu_count))],
        "allocations": [_allocation(pod, *place[pod], start) for pod in pods],
        "gpu_usage": [row for pod in pods for row in _hours(place[pod][1], start, names == pod, t_s, use, memory_gib)],
    }
    meta = BundleMeta(
        start=start,
        end=start + timedelta(hours=hours),
        sources=(f"trace {path.name} ({table.num_rows} rows, {len(pods)} pods)",),
        notes=(
            f"assumed: each pod holds one board of {laid.words}; the trace does not say which GPU it was",
            "activity is the GPU's duty cycle: the share of time that any kernel ran, not how much of the GPU it used",
        ),
        counts=_counts(use, memory_gib),
    )
    return Collected(tables={name: table_from_rows(name, rows) for name, rows in tables.items()}, meta=meta)


def _columns(table: pa.Table, path: Path) -> tuple[Floats, Floats, Floats]:
    t_s, percent, used = (floats(table, name, str(path)) for name in ("t_s", "gpu_util_pct", "gpu_mem_used_bytes"))
    if not np.isfinite(t_s).all() or t_s.min() < 0 or t_s.max() > MOST_YEARS * HR_PER_YEAR * S_PER_HR:
        raise InputError(f"{path}: t_s must be seconds from the trace's start, finite, up to {MOST_YEARS} years")
    with np.errstate(invalid="ignore"):
        use = np.where((percent >= 0) & (percent <= _PERCENT), percent / _PERCENT, np.nan)
        memory = np.where(used >= 0, used / BYTES_PER_GIB, np.nan)
    return t_s, use, memory


def _counts(use: Floats, memory_gib: Floats) -> dict[str, int]:
    found = {
        "readings of use that are absent or beyond 0..100 %": int(np.isnan(use).sum()),
        "readings of memory that are absent": int(np.isnan(memory_gib).sum()),
    }
    return {reason: number for reason, number in found.items() if number}


def _hours(
    device: str, start: datetime, mine: npt.NDArray[np.bool_], t_s: Floats, use: Floats, memory_gib: Floats
) -> list[Row]:
    """Roll up one pod's readings by hour."""
    times, shares, memory = t_s[mine], use[mine], memory_gib[mine]
    step_s = float(np.median(np.diff(np.sort(times)))) if len(times) > 1 else float(S_PER_HR)
    hour = (times // S_PER_HR).astype(np.int64)
    rows: list[Row] = []
    for index in np.unique(hour).tolist():
        inside = hour == index
        seen, held = shares[inside & ~np.isnan(shares)], memory[inside & ~np.isnan(memory)]
        if not len(seen):
            continue
        bins = np.floor(_PERCENT * seen + 0.5).astype(np.int64)
        rows.append(
            {
                "device": device,
                "workload": WORKLOAD,
                "hour": start + timedelta(hours=index),
                "samples": len(seen),
                "samples_expected": max(int(S_PER_HR // max(step_s, 1.0)), 1),
                "gpu_util_mean": float(seen.mean()),
                "gpu_util_p50": float(np.quantile(seen, 0.5)),
                "gpu_util_p95": float(np.quantile(seen, 0.95)),
                "gpu_util_max": float(seen.max()),
                "memory_used_gib_mean": float(held.mean()) if len(held) else None,
                "memory_used_gib_max": float(held.max()) if len(held) else None,
                "activity_histogram": np.bincount(bins, minlength=HISTOGRAM_BINS).tolist(),
                "basis": "raw samples",
            }
        )
    return rows


def _allocation(pod: str, node: int, device: str, start: datetime) -> Row:
    return {
        "workload": WORKLOAD,
        "namespace": "gentd26",
        "owner_kind": "Deployment",
        "team": "gentd26",
        "pod": pod,
        "node": node_name(node),
        "device": device,
        "gpus": 1.0,
        "start": start,
    }
