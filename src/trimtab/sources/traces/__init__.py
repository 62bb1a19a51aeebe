"""Recorded traces as fleets: public files of jobs, pods and requests, laid on machines that are an assumption and said so.

A trace is known by its columns. Each reader says what it takes from the file and what it assumes; nothing that the file does
not hold is judged.

What is repeated is known twice: the proof then confirms the repetition, not the future. It is never done unasked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.errors import InputError
from trimtab.inputs.arrow_tables import read_arrow_table
from trimtab.sources.collected import Collected
from trimtab.sources.traces.formats import build_dlrm, build_gentd26, build_openb, build_philly, build_requests
from trimtab.sources.traces.runs import TraceMachine
from trimtab.units import HR_PER_DAY, S_PER_HR, hours_between

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

    Raises InputError where the file is no trace that is known, naming the columns of those that are.
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
    """Return the fleet with its readings and demand repeated to so many days; raises InputError where runs come and go.

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
