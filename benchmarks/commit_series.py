"""Hourly GPU demand of real clusters, rebuilt from what a folder's jobs/ tables hold, told by their columns.

The windows are those of the referee, where a table reaches into them: Venus in whole months, Philly without the sparse weeks
before 2017-10-08 and without its last week.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.traces import Floats
from trimtab.units import HR_PER_WEEK, S_PER_HR

MIN_JOBS = 5000
JOBS_FROM = datetime(2017, 10, 8, tzinfo=UTC)
FLOW_FROM, FLOW_TO = datetime(2020, 4, 8, tzinfo=UTC), datetime(2020, 9, 23, tzinfo=UTC)
JOB_COLUMNS = {"submit_utc", "duration_s", "num_gpus", "virtual_cluster"}
FLOW_COLUMNS = {"time", "running_gpus"}
INSTANCE_COLUMNS = {"role", "gpu_request", "creation_time", "deletion_time"}
GPU_ROLE = "HN"


def demand_series(traces: Path) -> dict[str, Floats]:
    """Return GPUs in use per hour of each cluster, virtual cluster of at least 5,000 jobs, or fleet in the folder."""
    found: dict[str, Floats] = {}
    for path in sorted((traces / "jobs").glob("*.parquet")):
        columns, name = set(pq.read_schema(path).names), "_".join(path.stem.split("_")[:2])
        if columns >= JOB_COLUMNS:
            found |= _of_jobs(path.stem.split("_")[0], pq.read_table(path, columns=sorted(JOB_COLUMNS)))
        elif columns >= FLOW_COLUMNS and "virtual_cluster" not in columns:
            found[name] = _of_flow(pq.read_table(path, columns=sorted(FLOW_COLUMNS)))
        elif columns >= INSTANCE_COLUMNS:
            found[name] = _of_instances(pq.read_table(path, columns=sorted(INSTANCE_COLUMNS)))
    return found


def hourly_gpus(start_hr: Floats, end_hr: Floats, gpus: Floats, hours: int) -> Floats:
    """Return mean GPUs in use per hour from job intervals; a partial hour counts in part."""
    inside = start_hr < hours
    start, end, count = start_hr[inside], np.minimum(end_hr[inside], hours), gpus[inside]
    edges = np.zeros(hours + 2)
    for moment, sign in ((start, 1.0), (end, -1.0)):
        hour = moment.astype(int)
        part = (hour + 1 - moment) * count * sign
        np.add.at(edges, hour, part)
        np.add.at(edges, hour + 1, count * sign - part)
    return np.asarray(np.cumsum(edges)[:hours], dtype=float)


def _seconds(column: pa.ChunkedArray) -> Floats:
    """Return timestamps as seconds since 1970 (n_rows,)."""
    return np.asarray(column.cast(pa.timestamp("us")).to_numpy().astype("datetime64[us]").astype(np.int64) / 1e6)


def _of_jobs(name: str, table: pa.Table) -> dict[str, Floats]:
    table = table.drop_null()
    table = table.filter(pc.and_(pc.greater(table["duration_s"], 0), pc.greater(table["num_gpus"], 0)))
    cluster = np.array(table["virtual_cluster"].cast("string").to_pylist())
    submit_s = _seconds(table["submit_utc"])
    duration_s, gpus = table["duration_s"].to_numpy().astype(float), table["num_gpus"].to_numpy().astype(float)
    found = {f"{name}_all_virtual_clusters": _job_demand(submit_s, duration_s, gpus)}
    for one in sorted(set(cluster.tolist())):
        own = cluster == one
        if own.sum() > MIN_JOBS:
            found[f"{name}_vc_{one}"] = _job_demand(submit_s[own], duration_s[own], gpus[own])
    return found


def _job_demand(submit_s: Floats, duration_s: Floats, gpus: Floats) -> Floats:
    origin_s = submit_s.min() // S_PER_HR * S_PER_HR
    start_hr = (submit_s - origin_s) / S_PER_HR
    hours = int(start_hr.max() - HR_PER_WEEK)
    demand = hourly_gpus(start_hr, start_hr + duration_s / S_PER_HR, gpus, hours)
    skipped = max(int((JOBS_FROM.timestamp() - origin_s) // S_PER_HR), 0)
    return demand[skipped:] if skipped < hours else demand


def _of_flow(table: pa.Table) -> Floats:
    time_s, running = _seconds(table["time"]), table["running_gpus"].to_numpy().astype(float)
    kept = (time_s >= FLOW_FROM.timestamp()) & (time_s < FLOW_TO.timestamp())
    if kept.any():
        time_s, running = time_s[kept], running[kept]
    hour = ((time_s - time_s.min()) // S_PER_HR).astype(int)
    rows = np.bincount(hour)
    return np.asarray(np.bincount(hour, weights=running)[rows > 0] / rows[rows > 0])


def _of_instances(table: pa.Table) -> Floats:
    table = table.filter(pc.equal(table["role"].cast("string"), GPU_ROLE))
    created_s = table["creation_time"].cast(pa.float64()).to_numpy()
    deleted_s = table["deletion_time"].cast(pa.float64()).to_numpy()
    end_s = float(np.nanmax(np.concatenate([created_s, deleted_s])))
    hours = int(end_s // S_PER_HR)
    created_hr = np.maximum(np.nan_to_num(created_s, nan=0.0), 0) // S_PER_HR
    deleted_hr = np.nan_to_num(deleted_s, nan=end_s) // S_PER_HR
    gpus, change = table["gpu_request"].to_numpy().astype(float), np.zeros(hours + 2)
    np.add.at(change, created_hr.astype(int), gpus)
    np.add.at(change, np.minimum(deleted_hr.astype(int), hours) + 1, -gpus)
    return np.asarray(np.cumsum(change)[:hours], dtype=float)
