"""A fleet under construction: rows are added node by node and pod by pod, jobs queue for a pool, and tables come out."""

from __future__ import annotations

import heapq
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trimtab.sources.demo.demand import (
    LATENCY_LE_S,
    MIN_PER_DAY,
    MIN_PER_HR,
    Floats,
    ServedMinutes,
    Span,
    growth,
    weekend,
)
from trimtab.sources.demo.machines import Machine
from trimtab.sources.demo.usage import UsageBlock, UsageRows, hourly
from trimtab.tables.arrow import Row, arrow_type, conform, table_from_rows
from trimtab.tables.schemas import HISTOGRAM_BINS, Dtype
from trimtab.units import S_PER_HR, S_PER_MIN


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTimes:
    """How a run saves its state."""

    interval_s: float
    save_s: float
    restore_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClass:
    """Experiments of one team: how many, how long, when they are submitted, and what they really use."""

    workload: str
    team: str
    jobs_per_weekday: float
    weekend_frac: float
    office_hours_utc: tuple[int, int]
    office_share: float
    median_hr: float
    sigma: float
    failed_frac: float
    gpus_requested: int
    gpus_used: int
    sm_frac: tuple[float, float]
    memory_gib: tuple[float, float]
    steps_per_s: float
    checkpoints: CheckpointTimes | None
    tensor_of_sm: float = 0.25
    dram_of_sm: float = 0.65
    tokens_per_s: float | None = None
    queue: str | None = None
    """LocalQueue of its namespace in which its jobs wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """One run: seconds from the start of the window; `start_s`/`end_s` are None where that lies beyond its end."""

    name: str
    job_class: JobClass
    submit_s: int
    start_s: int | None
    end_s: int | None
    duration_s: int
    failed: bool
    node: int | None
    sm_frac: float
    memory_gib: float


@dataclass(frozen=True, slots=True)
class _Submission:
    submit_s: int
    job_class: JobClass
    duration_s: int
    failed: bool


def submissions_per_min(job_class: JobClass, span: Span, growth_frac: float) -> Floats:
    """Return the expected submissions of each minute: most in office hours, few at night, fewer on weekends."""
    minute = np.arange(span.minutes)
    hour = (minute % MIN_PER_DAY) * S_PER_MIN // S_PER_HR
    first, last = job_class.office_hours_utc
    office = (hour >= first) & (hour < last)
    share = np.where(office, job_class.office_share / office[:MIN_PER_DAY].sum(), 0.0)
    share += np.where(office, 0.0, (1 - job_class.office_share) / (~office[:MIN_PER_DAY]).sum())
    day = np.where(weekend(span), job_class.weekend_frac, 1.0) * job_class.jobs_per_weekday
    return np.asarray(share * day * growth(growth_frac, span))


def queue(
    classes: tuple[JobClass, ...], n_nodes: int, span: Span, growth_frac: float, rng: np.random.Generator
) -> list[JobRun]:
    """Draw the submissions of all classes and run them first come, first served, one job a node."""
    end_s = span.minutes * S_PER_MIN
    free = [(0, node) for node in range(n_nodes)]
    runs = []
    for index, job in enumerate(_submissions(classes, span, growth_frac, rng)):
        ready_s, node = heapq.heappop(free)
        start_s = max(ready_s, job.submit_s)
        heapq.heappush(free, (start_s + job.duration_s, node))
        started, ended = start_s < end_s, start_s + job.duration_s <= end_s
        runs.append(
            JobRun(
                name=f"{job.job_class.workload.split('/')[1]}-{index:04d}",
                job_class=job.job_class,
                submit_s=job.submit_s,
                start_s=start_s if started else None,
                end_s=start_s + job.duration_s if ended else None,
                duration_s=job.duration_s,
                failed=job.failed,
                node=node if started else None,
                sm_frac=float(rng.uniform(*job.job_class.sm_frac)),
                memory_gib=float(rng.uniform(*job.job_class.memory_gib)),
            )
        )
    return runs


def _submissions(
    classes: tuple[JobClass, ...], span: Span, growth_frac: float, rng: np.random.Generator
) -> list[_Submission]:
    """Draw every job that is submitted in the span, in order of submission."""
    drawn = []
    for job_class in classes:
        counts = rng.poisson(submissions_per_min(job_class, span, growth_frac))
        minutes = np.repeat(np.arange(span.minutes), counts)
        submit_s = minutes * S_PER_MIN + rng.integers(S_PER_MIN, size=len(minutes))
        hours = rng.lognormal(np.log(job_class.median_hr), job_class.sigma, len(minutes))
        failed = rng.random(len(minutes)) < job_class.failed_frac
        hours = np.where(failed, hours * rng.uniform(0.02, 0.5, len(minutes)), hours)
        durations = np.maximum(hours * S_PER_HR, 2 * S_PER_MIN).astype(np.int64)
        drawn += [
            _Submission(int(s), job_class, int(d), bool(f)) for s, d, f in zip(submit_s, durations, failed, strict=True)
        ]
    return sorted(drawn, key=lambda job: (job.submit_s, job.job_class.workload))


_NAMESPACE = uuid.UUID("6f0d9a52-3c5e-5d0b-9a53-7d0c0e6f4b11")


_DRAFTED = ("devices", "nodes", "allocations", "jobs", "queues")


class FleetDraft:
    """Collects the rows of one fleet. Nodes and pods are named from the fleet's name, so that a seed gives the same names."""

    def __init__(self, name: str, span: Span, seed: int) -> None:
        self.name = name
        self.span = span
        self.seed = seed
        self._rows: dict[str, list[Row]] = {table: [] for table in _DRAFTED}
        self._usage: list[pa.Table] = []
        self._demand: list[pa.Table] = []

    def stream(self, key: str) -> np.random.Generator:
        """Return the random stream of one part of the fleet, so that a change in one part leaves the others as they are."""
        return np.random.default_rng([self.seed, crc32(f"{self.name}/{key}".encode())])

    def node(
        self,
        machine: Machine,
        pool: str,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        taints: dict[str, str] | None = None,
    ) -> tuple[str, tuple[str, ...]]:
        """Rent a node and return its name and its devices."""
        serial = len(self._rows["nodes"])
        node = f"{pool}-{self._hex(f'node-{serial}')[:8]}"
        zone = machine.zones[serial % len(machine.zones)]
        devices = tuple(f"GPU-{uuid.uuid5(_NAMESPACE, f'{self.name}/{node}/{i}')}" for i in range(machine.gpu_count))
        self._rows["nodes"].append(
            {
                "node": node,
                "provider": machine.provider,
                "instance_type": machine.instance_type,
                "region": machine.region,
                "zone": zone,
                "capacity_type": "on-demand",
                "start": start or self.span.start,
                "end": end,
                "gpu": machine.gpu,
                "gpu_count": machine.gpu_count,
                "labels": _labels(machine, pool, zone),
                "taints": taints or {},
            }
        )
        self._rows["devices"] += [
            {"device": device, "node": node, "gpu": machine.gpu, "memory_gib": machine.memory_gib} for device in devices
        ]
        return node, devices

    def pod(
        self,
        workload: str,
        team: str,
        owner_kind: str,
        node: str,
        devices: Sequence[str],
        *,
        start: datetime,
        end: datetime | None = None,
        name: str | None = None,
    ) -> str:
        """Let a pod hold devices of a node (none: a pod without a GPU) and return the pod's name."""
        namespace, owner = workload.split("/")
        serial = len(self._rows["allocations"])
        pod = name or f"{owner}-{self._hex(f'pod-{serial}')[:5]}"
        common: Row = {
            "workload": workload,
            "namespace": namespace,
            "owner_kind": owner_kind,
            "team": team,
            "pod": pod,
            "node": node,
            "start": start,
            "end": end,
        }
        held: list[Row] = [{**common, "device": device, "gpus": 1.0} for device in devices]
        self._rows["allocations"] += held or [{**common, "device": None, "gpus": 0.0}]
        return pod

    def usage(self, block: UsageBlock) -> None:
        """Roll up a block of readings."""
        self._usage.append(_usage_table(hourly(block, self.stream(f"samples/{block.devices[0]}"))))

    def demand(
        self,
        workload: str,
        served: ServedMinutes,
        *,
        first_minute: int = 0,
        interval_s: int = S_PER_MIN,
        present: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """Add a service's intervals, the first of which starts at `first_minute`; those not `present` were never recorded."""
        n_rows = len(served.rho)
        starts = self.span.at(first_minute * S_PER_MIN)
        columns: dict[str, pa.Array] = {
            "workload": pa.array([workload] * n_rows),
            "start": _times(starts, np.arange(n_rows) * interval_s),
            "interval_s": pa.array(np.full(n_rows, float(interval_s))),
            **{name: pa.array(values, from_pandas=True) for name, values in served.columns.items()},
            "latency_le_s": _lists(np.tile(LATENCY_LE_S, (n_rows, 1))),
            "latency_count": _lists(served.latency_count),
        }
        if served.ttft_count is not None:
            columns["ttft_le_s"] = columns["latency_le_s"]
            columns["ttft_count"] = _lists(served.ttft_count)
        table = conform("demand", pa.table(columns))
        self._demand.append(table if present is None else table.filter(pa.array(present)))

    def run(self, run: JobRun, node: str | None) -> None:
        """Add a run to the `jobs` table; progress counts the time it did not spend saving."""
        saves, tokens_s = run.job_class.checkpoints, run.job_class.tokens_per_s
        end_s = run.end_s if run.end_s is not None else self.span.minutes * S_PER_MIN
        active_s = 0 if run.start_s is None else end_s - run.start_s
        if saves is not None:
            active_s -= int(active_s // saves.interval_s * saves.save_s)
        self._rows["jobs"].append(
            {
                "job": run.name,
                "workload": run.job_class.workload,
                "submit": self.span.at(run.submit_s),
                "start": None if run.start_s is None else self.span.at(run.start_s),
                "end": None if run.end_s is None else self.span.at(run.end_s),
                "gpus": float(run.job_class.gpus_requested),
                "state": _state(run),
                "node": node,
                "queue": run.job_class.queue,
                "steps_done": float(int(active_s * run.job_class.steps_per_s)),
                "tokens_done": None if tokens_s is None else float(int(active_s * tokens_s)),
                "checkpoint_interval_s": None if saves is None else saves.interval_s,
                "checkpoint_save_s": None if saves is None else saves.save_s,
                "checkpoint_restore_s": None if saves is None else saves.restore_s,
            }
        )

    def standing_queue(self, row: Row) -> None:
        """Add a row of the `queues` table unchanged."""
        self._rows["queues"].append(row)

    def job(self, row: Row) -> None:
        """Add a row of the `jobs` table unchanged."""
        self._rows["jobs"].append(row)

    def tables(self) -> dict[str, pa.Table]:
        """Return the tables in the column order and types of the bundle's schemas."""
        tables = {name: table_from_rows(name, rows) for name, rows in self._rows.items()}
        tables["gpu_usage"] = pa.concat_tables(self._usage)
        if self._demand:
            tables["demand"] = pa.concat_tables(self._demand)
        return {name: table for name, table in tables.items() if table.num_rows or name not in ("jobs", "queues")}

    def _hex(self, key: str) -> str:
        return uuid.uuid5(_NAMESPACE, f"{self.name}/{key}").hex


def _labels(machine: Machine, pool: str, zone: str) -> dict[str, str]:
    labels = {
        "node-pool": pool,
        "node.kubernetes.io/instance-type": machine.instance_type,
        "nvidia.com/gpu.count": str(machine.gpu_count),
        "nvidia.com/gpu.product": machine.gpu_product,
        "topology.kubernetes.io/region": machine.region,
        "topology.kubernetes.io/zone": zone,
    }
    own = {"cloud.google.com/gke-nodepool": pool} if machine.provider == "gcp" else {}
    return labels | (own or {"karpenter.sh/capacity-type": "on-demand"})


def _state(run: JobRun) -> str:
    if run.start_s is None:
        return "queued"
    if run.end_s is None:
        return "running"
    return "failed" if run.failed else "completed"


def _times(start: datetime, offset_s: npt.NDArray[np.int64]) -> pa.Array:
    first = np.datetime64(start.replace(tzinfo=None), "us")
    return pa.array(first + offset_s.astype("timedelta64[s]")).cast(arrow_type(Dtype.TIME))


def _lists(rows: npt.NDArray[np.generic]) -> pa.Array:
    offsets = np.arange(0, rows.size + 1, rows.shape[1], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(rows.ravel()))


def _usage_table(rows: UsageRows) -> pa.Table:
    n_rows = len(rows.device)
    columns = {
        "device": pa.array(rows.device),
        "workload": pa.array(rows.workload, type=pa.string()),
        "hour": _times(rows.start, rows.hour_s),
        "samples_expected": pa.array(np.full(n_rows, MIN_PER_HR)),
        "activity_histogram": _lists(rows.histogram.reshape(n_rows, HISTOGRAM_BINS)),
        "basis": pa.array(["raw samples"] * n_rows),
        **{name: pa.array(values, from_pandas=True) for name, values in rows.columns.items()},
    }
    return conform("gpu_usage", pa.table(columns))


def meta(name: str, span: Span) -> dict[str, object]:
    """Return the content of a generated fleet's bundle.yaml."""
    proof_days = (span.end - span.proof) // timedelta(days=1)
    note = f"the last {proof_days} days differ from the rest: the plan is proved on them"
    return {
        "start": span.start,
        "end": span.end,
        "created_by": "trimtab demo",
        "sources": (f"demo fleet {name}, generated",),
        "notes": (note,) if proof_days else (),
    }
