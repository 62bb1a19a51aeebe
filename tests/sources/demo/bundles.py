"""What every demonstration fleet must satisfy, whatever its story: identities between its tables."""

from datetime import datetime
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.tables.arrow import arrow_schema
from trimtab.tables.schemas import TABLES
from trimtab.units import HR_PER_MO, S_PER_HR

PRICES_USD_HR = {
    "p4d.24xlarge": 21.957642,
    "p3.8xlarge": 12.24,
    "g5.12xlarge": 5.672,
    "g5.xlarge": 1.006,
    "a2-highgpu-1g": 3.673385,
    "a2-highgpu-4g": 14.69354,
    "g2-standard-8": 0.853624,
}


def node_hours(nodes: pa.Table, start: datetime, end: datetime) -> dict[str, float]:
    """Hours that nodes of each type lived in `[start, end)`."""
    hours: dict[str, float] = {}
    for row in nodes.select(["instance_type", "start", "end"]).to_pylist():
        lived = (min(row["end"] or end, end) - max(row["start"], start)).total_seconds() / S_PER_HR
        hours[row["instance_type"]] = hours.get(row["instance_type"], 0.0) + max(lived, 0.0)
    return hours


def bill_usd_mo(nodes: pa.Table, start: datetime, end: datetime) -> float:
    """The bill of a window scaled to 730 hours, worked out by hand from list prices."""
    window_hr = (end - start).total_seconds() / S_PER_HR
    hours = node_hours(nodes, start, end)
    return sum(PRICES_USD_HR[name] * amount for name, amount in hours.items()) * HR_PER_MO / window_hr


def assert_consistent(tables: dict[str, pa.Table], end: datetime) -> None:
    """Check schemas, references, and that what is held, used and counted agrees."""
    for name, table in tables.items():
        assert table.schema.equals(arrow_schema(name)), name
        _assert_in_bounds(name, table)
    _assert_references(tables)
    _assert_holds_do_not_overlap(tables["allocations"], end)
    _assert_usage_matches_allocations(tables, end)
    if "demand" in tables:
        _assert_demand_conserves(tables["demand"])
    if "jobs" in tables:
        _assert_jobs_are_ordered(tables["jobs"])


def _assert_in_bounds(name: str, table: pa.Table) -> None:
    for column in TABLES[name]:
        values = table[column.name]
        assert column.nullable or values.null_count == 0, f"{name}.{column.name}"
        if column.low is not None and values.null_count < len(values):
            low, high = pc.min(values).as_py(), pc.max(values).as_py()
            assert low >= column.low, f"{name}.{column.name}"
            assert column.high is None or high <= column.high, f"{name}.{column.name}"


def _assert_references(tables: dict[str, pa.Table]) -> None:
    nodes, devices = set(tables["nodes"]["node"].to_pylist()), tables["devices"]["device"].to_pylist()
    assert len(set(devices)) == len(devices)
    assert len(nodes) == tables["nodes"].num_rows
    home = dict(zip(devices, tables["devices"]["node"].to_pylist(), strict=True))
    assert set(home.values()) == nodes
    for row in tables["allocations"].to_pylist():
        assert row["node"] in nodes
        assert row["device"] is None or home[row["device"]] == row["node"]
        assert (row["gpus"] == 0.0) == (row["device"] is None)
    held = set(tables["allocations"]["workload"].to_pylist())
    assert set(pc.unique(tables["gpu_usage"]["device"]).to_pylist()) <= set(devices)
    assert set(pc.unique(tables["gpu_usage"]["workload"]).to_pylist()) - {None} <= held
    for name in ("demand", "jobs"):
        if name in tables:
            assert set(pc.unique(tables[name]["workload"]).to_pylist()) <= held
    counts = tables["devices"].group_by("node").aggregate([("device", "count")])
    assert dict(zip(*(column.to_pylist() for column in counts.columns), strict=True)) == dict(
        zip(tables["nodes"]["node"].to_pylist(), tables["nodes"]["gpu_count"].to_pylist(), strict=True)
    )


def _assert_holds_do_not_overlap(allocations: pa.Table, end: datetime) -> None:
    holds = [row for row in allocations.to_pylist() if row["device"] is not None]
    holds.sort(key=lambda row: (row["device"], row["start"]))
    for before, after in pairwise(holds):
        if before["device"] == after["device"]:
            assert (before["end"] or end) <= after["start"], (before, after)


def _assert_usage_matches_allocations(tables: dict[str, pa.Table], end: datetime) -> None:
    """Sampled minutes of each workload are the minutes it held, less the few that sensors lost."""
    usage = tables["gpu_usage"]
    assert pc.all(pc.less_equal(usage["samples"], usage["samples_expected"])).as_py()
    counted = pc.sum(pc.list_flatten(usage["activity_histogram"])).as_py()
    assert counted == pc.sum(usage["samples"]).as_py()
    keys = usage.group_by(["device", "workload", "hour"]).aggregate([("samples", "count")])
    assert keys.num_rows == usage.num_rows
    sampled = dict(zip(*_columns(usage.group_by("workload").aggregate([("samples", "sum")])), strict=True))
    held: dict[str, float] = {}
    for row in tables["allocations"].to_pylist():
        minutes = (min(row["end"] or end, end) - row["start"]).total_seconds() / 60 * row["gpus"]
        held[row["workload"]] = held.get(row["workload"], 0.0) + minutes
    for workload, minutes in held.items():
        if minutes:
            assert 0.97 * minutes <= sampled[workload] <= 1.001 * minutes, workload
    for name in ("gpu_util", "sm_active", "dram_active", "tensor_active"):
        columns = [usage[f"{name}_{suffix}"].to_numpy() for suffix in ("p50", "p95", "max", "mean")]
        known = ~np.isnan(columns[0])
        p50, p95, most, mean = (column[known] for column in columns)
        assert (p50 <= p95 + 1e-9).all()
        assert (p95 <= most + 1e-9).all()
        assert (mean <= most + 1e-4).all()


def _columns(table: pa.Table) -> list[list[object]]:
    return [table["workload"].to_pylist(), table["samples_sum"].to_pylist()]


def _assert_demand_conserves(demand: pa.Table) -> None:
    """What arrived was answered or still waits at the end; every answer is in one latency bucket."""
    counts = demand["latency_count"].combine_chunks()
    per_row = np.add.reduceat(counts.values.to_numpy(), counts.offsets.to_numpy()[:-1])
    np.testing.assert_allclose(per_row, demand["completed"].to_numpy())
    for workload in pc.unique(demand["workload"]).to_pylist():
        rows = demand.filter(pc.equal(demand["workload"], workload))
        arrived, done = np.cumsum(rows["arrivals"].to_numpy()), np.cumsum(rows["completed"].to_numpy())
        assert (done <= arrived).all()
        starts = rows["start"].cast(pa.int64()).to_numpy()
        assert set(np.diff(starts)) == {rows["interval_s"][0].as_py() * 1_000_000}


def _assert_jobs_are_ordered(jobs: pa.Table) -> None:
    for row in jobs.to_pylist():
        assert row["start"] is None or row["start"] >= row["submit"]
        assert row["end"] is None or row["end"] > row["start"]
        assert (row["state"] == "queued") == (row["start"] is None)
