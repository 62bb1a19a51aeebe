"""Recorded traces as fleets: what public files of jobs, pods and requests hold, and what is assumed to make a fleet of them.

A trace is known by its columns. Each reader says what it takes from the file and what it assumes; nothing that the file does
not hold is judged.

What is repeated is known twice: the proof then confirms the repetition, not the future. It is never done unasked.

Philly (2017): training jobs with submit time, duration, GPUs and virtual cluster. The file does not say when a job started: it
is assumed to start at once, so waits are 0. Source: github.com/msr-fiddle/philly-traces (CC-BY-4.0), as reduced in
siasosp23/artifacts.

Alibaba openb (2023: pods with whole and shared GPUs) and DLRM (2025: instances of recommendation services): times are seconds
from the start of the trace, shifted by their owners. Source: github.com/alibaba/clusterdata, cluster-trace-gpu-v2023 and
cluster-trace-gpu-v2025 (no licence stated: to be tested with, not to be passed on).

Alibaba GenTD26: readings of pods (GPU use in percent, memory in bytes). A pod is assumed to hold one GPU for the whole series;
the trace does not say which, and the assumed one must hold the memory seen. Source: github.com/alibaba/clusterdata,
cluster-trace-v2026-GenAI (no licence stated: to be tested with, not to be passed on).

Requests, and rates of them: the demand is the trace's; replicas, latencies and use are a model's (see `sources.demo.trace`),
and the bundle says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.errors import InputError
from trimtab.inputs.arrow_tables import floats, read_arrow_table
from trimtab.sources.collected import Collected
from trimtab.sources.demo import trace_fleet
from trimtab.sources.traces.runs import (
    MOST_YEARS,
    TraceMachine,
    TraceRun,
    fleet_of,
    machine_of,
    node_name,
    node_row,
    start_of,
)
from trimtab.tables.arrow import Row, table_from_rows
from trimtab.tables.bundle import BundleMeta
from trimtab.tables.schemas import HISTOGRAM_BINS
from trimtab.units import BYTES_PER_GIB, HR_PER_DAY, HR_PER_YEAR, S_PER_HR, as_utc, floor_hour, hours_between

PHILLY_MACHINE = "aws:p3.8xlarge"
"""Four V100s a node: the nearest that is still sold."""


def build_philly(path: Path, table: pa.Table, machine: TraceMachine | None) -> Collected:
    """Return the fleet; rows without a moment, a length or GPUs are counted. Raises InputError."""
    rows = table.select(["submit_utc", "duration_s", "num_gpus", "virtual_cluster"]).to_pylist()
    whole = [row for row in rows if _is_whole(row)]
    if not whole:
        raise InputError(f"{path}: no row has submit_utc, duration_s above 0 and num_gpus above 0")
    first = floor_hour(min(as_utc(row["submit_utc"]) for row in whole))
    runs, last_s = [], 0.0
    for index, row in enumerate(whole):
        submit_s = (as_utc(row["submit_utc"]) - first).total_seconds()
        last_s = max(last_s, submit_s)
        runs.append(
            TraceRun(
                name=f"job-{index:06d}",
                workload=f"{row['virtual_cluster']}/training",
                team=str(row["virtual_cluster"]),
                owner_kind="Job",
                submit_s=submit_s,
                start_s=submit_s,
                end_s=submit_s + row["duration_s"],
                gpus=float(row["num_gpus"]),
            )
        )
    return fleet_of(
        runs,
        machine or machine_of(PHILLY_MACHINE),
        max(last_s, S_PER_HR),
        source=f"trace {path.name} ({len(rows)} rows)",
        notes=(
            "assumed: a job starts when it is submitted (the trace has no start), so waits are 0",
            "prices of those days are not known: audit with --at and a date of today's list, as --at 2026-07-20",
            "the window ends with the last submission; jobs that ran on are cut there",
        ),
        counts={"rows without a moment, a length or GPUs, left out": len(rows) - len(whole)},
        start=first,
    )


def _is_whole(row: dict[str, object]) -> bool:
    seconds, gpus = row["duration_s"], row["num_gpus"]
    numbers = isinstance(seconds, int | float) and isinstance(gpus, int | float) and seconds > 0 and gpus > 0
    return numbers and isinstance(row["submit_utc"], datetime) and bool(row["virtual_cluster"])


ALIBABA_MACHINE = "aws:p4d.24xlarge"
_MILLI = 1000
_STANDING = frozenset({"LS", "Guaranteed"})
"""Classes of service that stand for ever: latency-sensitive ones. Best-effort and burstable pods are taken as runs."""
_PHASES = {"Succeeded": "completed", "Failed": "failed", "Pending": "queued"}


def build_openb(path: Path, table: pa.Table, machine: TraceMachine | None) -> Collected:
    """Return the fleet of openb: a workload for each class of service, with shares of boards as `gpu_milli` says."""
    rows = table.to_pylist()
    runs = [run for index, row in enumerate(rows) if (run := _openb(index, row)) is not None]
    return fleet_of(
        runs,
        machine or machine_of(ALIBABA_MACHINE),
        _last(runs),
        source=f"trace {path.name} ({len(rows)} rows)",
        notes=("assumed: LS and Guaranteed pods are services, BE and Burstable ones are runs, one workload a class",),
        counts={"rows without GPUs or a moment, left out": len(rows) - len(runs)},
    )


def _openb(index: int, row: Mapping[str, object]) -> TraceRun | None:
    created, started, ended = (number(row[name]) for name in ("creation_time", "scheduled_time", "deletion_time"))
    gpus = (number(row["num_gpu"]) or 0.0) * (number(row["gpu_milli"]) or 0.0) / _MILLI
    if gpus <= 0 or created is None or (started is not None and ended is not None and ended < started):
        return None
    qos, phase = str(row["qos"]), str(row.get("pod_phase"))
    return TraceRun(
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


def build_dlrm(path: Path, table: pa.Table, machine: TraceMachine | None) -> Collected:
    """Return the fleet of the DLRM trace: a service for each app; an instance without a moment was there before or after."""
    rows = table.to_pylist()
    gpu_rows = [row for row in rows if (number(row["gpu_request"]) or 0.0) > 0]
    runs = [_dlrm(index, row) for index, row in enumerate(gpu_rows)]
    kept = [run for run in runs if run.end_s is None or run.end_s > (run.start_s or 0.0)]
    return fleet_of(
        kept,
        machine or machine_of(ALIBABA_MACHINE),
        _last(runs),
        source=f"trace {path.name} ({len(rows)} rows)",
        notes=("instances without a moment of creation or deletion were there before or after the window",),
        counts={
            "instances without GPUs, left out": len(rows) - len(gpu_rows),
            "instances that end before they start, left out": len(runs) - len(kept),
        },
    )


def _dlrm(index: int, row: Mapping[str, object]) -> TraceRun:
    created, scheduled = number(row["creation_time"]), number(row.get("scheduled_time"))
    start_s = scheduled if scheduled is not None else created
    return TraceRun(
        name=str(row.get("instance_sn") or f"instance-{index}"),
        workload=f"dlrm/{row['app_name']}",
        team=str(row["app_name"]),
        owner_kind="Deployment",
        submit_s=created or 0.0,
        start_s=start_s or 0.0,
        end_s=number(row["deletion_time"]),
        gpus=number(row["gpu_request"]) or 0.0,
    )


def _last(runs: Iterable[TraceRun]) -> float:
    return max(
        (time for run in runs for time in (run.submit_s, run.start_s, run.end_s) if time is not None), default=0.0
    )


def number(value: object) -> float | None:
    """Return a finite number of at least 0, or None."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


GENTD26_MACHINE = "aws:p4de.24xlarge"
"""Boards of 80 GB: the series shows up to 47.3 GiB in use, more than a board of 48 GB often has."""
WORKLOAD = "gentd26/diffusion"
_PERCENT = 100.0
Floats = npt.NDArray[np.float64]


def build_gentd26(path: Path, table: pa.Table, machine: TraceMachine | None) -> Collected:
    """Return the fleet. Raises InputError if the assumed board has less memory than was seen in use."""
    laid = machine or machine_of(GENTD26_MACHINE)
    t_s, use, memory_gib = _columns(table, path)
    most_gib = float(np.nanmax(memory_gib, initial=0.0))
    if most_gib > laid.memory_gib:
        raise InputError(
            f"{path}: {most_gib:.1f} GiB were in use, and {laid.words} has {laid.memory_gib:.1f} GiB a board; "
            f"name a larger one, as --machine {GENTD26_MACHINE}"
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


ASSUMED = (
    "the demand is the trace's; who served it is assumed: a fixed number of replicas on A100s, sized for the trace's own peak, "
    "with modelled latencies and GPU use"
)


def build_requests(path: Path, table: pa.Table, machine: TraceMachine | None) -> Collected:
    """Return the fleet. Raises InputError if a machine was named (its size follows the trace) or the file is not a trace."""
    if machine is not None:
        raise InputError(f"{path}: --machine is for traces of jobs and pods; a trace of requests is served by A100s")
    return _collected(path, table.num_rows)


def _collected(path: Path, rows: int) -> Collected:
    tables, _, content = trace_fleet(path)
    meta = BundleMeta.model_validate(content)
    known = meta.model_copy(
        update={
            "sources": (f"trace {path.name} ({rows} rows)",),
            "notes": (ASSUMED, *meta.notes),
            "created_by": "trimtab",
        }
    )
    return Collected(tables=tables, meta=known)


Build = Callable[[Path, pa.Table, TraceMachine | None], Collected]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFormat:
    """A kind of trace: the columns that it is known by, what it holds, and what makes a fleet of it."""

    name: str
    columns: frozenset[str]
    what: str
    build: Build


FORMATS = (
    TraceFormat(
        name="philly",
        columns=frozenset({"submit_utc", "duration_s", "num_gpus", "virtual_cluster"}),
        what="training jobs of a cluster (Philly 2017)",
        build=build_philly,
    ),
    TraceFormat(
        name="openb",
        columns=frozenset({"gpu_milli", "num_gpu", "qos", "creation_time", "scheduled_time", "deletion_time"}),
        what="pods with whole and shared GPUs (Alibaba 2023)",
        build=build_openb,
    ),
    TraceFormat(
        name="dlrm",
        columns=frozenset({"app_name", "gpu_request", "creation_time", "deletion_time"}),
        what="instances of inference services (Alibaba 2025)",
        build=build_dlrm,
    ),
    TraceFormat(
        name="gentd26",
        columns=frozenset({"pod", "t_s", "gpu_util_pct", "gpu_mem_used_bytes"}),
        what="GPU use of pods (Alibaba GenTD26)",
        build=build_gentd26,
    ),
    TraceFormat(
        name="requests",
        columns=frozenset({"t_s"}),
        what="requests, or rates of them (Azure, Mooncake, ServeGen, GenTD26 requests)",
        build=build_requests,
    ),
)
"""Every kind of trace, the most particular first."""


def read_trace(path: Path, machine: TraceMachine | None = None) -> Collected:
    """Return the fleet of a trace in Parquet, on a stated machine or the format's own assumption.

    Raises InputError if the file is not a trace that is known, naming the columns of those that are.
    """
    table = read_arrow_table(path)
    kind = next((form for form in FORMATS if form.columns <= set(table.column_names)), None)
    if kind is None:
        known = "\n".join(f"  {form.what}: {', '.join(sorted(form.columns))}" for form in FORMATS)
        raise InputError(
            f"{path}: no trace that is known; its columns are {', '.join(table.column_names)}; known are\n{known}"
        )
    if table.num_rows < 2:
        raise InputError(f"{path}: {table.num_rows} rows are no trace")
    return kind.build(path, table, machine)


_REPEATED = {"gpu_usage": "hour", "demand": "start"}
_NEAR_A_DAY_HR = 20


def repeated(collected: Collected, days: int) -> Collected:
    """Return the fleet with its readings and demand repeated to so many days. Raises InputError if runs come and go.

    A trace of nearly a day (20 h and more) is repeated once a day, so that hours of the day stay what they were.
    """
    length_hr = math.ceil(hours_between(collected.meta.start, collected.meta.end))
    if length_hr >= days * HR_PER_DAY:
        return collected
    if (
        "jobs" in collected.tables
        or collected.tables["allocations"]["end"].null_count < collected.tables["allocations"].num_rows
    ):
        raise InputError("--repeat is for traces of readings and requests; this one has runs that come and go")
    period_hr = (
        math.ceil(length_hr / HR_PER_DAY) * HR_PER_DAY if length_hr % HR_PER_DAY >= _NEAR_A_DAY_HR else length_hr
    )
    times = math.ceil(days * HR_PER_DAY / period_hr)
    end = collected.meta.start + timedelta(hours=days * HR_PER_DAY)
    tables = {
        name: _again(table, _REPEATED[name], period_hr, times, pa.scalar(end, pa.timestamp("us", tz="UTC")))
        if name in _REPEATED
        else table
        for name, table in collected.tables.items()
    }
    note = f"assumed: {length_hr} h of trace repeated to {days} days: the proof shows the repetition, not the future"
    meta = collected.meta.model_copy(update={"end": end, "notes": (note, *collected.meta.notes)})
    return replace(collected, tables=tables, meta=meta)


def _again(table: pa.Table, column: str, period_hr: int, times: int, end: pa.Scalar) -> pa.Table:
    at = table.column_names.index(column)
    shifted = [
        table.set_column(
            at,
            table.schema.field(at),
            pc.add(table[column], pa.scalar(timedelta(seconds=number * period_hr * S_PER_HR), pa.duration("us"))),
        )
        for number in range(times)
    ]
    whole = pa.concat_tables(shifted)
    return whole.filter(pc.less(whole[column], end))
