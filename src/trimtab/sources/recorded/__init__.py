"""Recorded traces as fleets: public files of jobs, pods and requests, laid on machines that are an assumption and said so.

A trace is known by its columns. Each reader says what it takes from the file and what it assumes; nothing that the file does
not hold is judged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from trimtab.errors import InputError
from trimtab.inputs.arrow_tables import read_arrow_table
from trimtab.sources.collected import Collected
from trimtab.sources.recorded import alibaba, gentd26, philly, requests
from trimtab.sources.recorded.machine import Machine

Build = Callable[[Path, pa.Table, Machine | None], Collected]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A kind of trace: the columns that it is known by, what it holds, and what makes a fleet of it."""

    name: str
    columns: frozenset[str]
    what: str
    build: Build


FORMATS = (
    Format(
        name="philly",
        columns=frozenset({"submit_utc", "duration_s", "num_gpus", "virtual_cluster"}),
        what="training jobs of a cluster (Philly 2017)",
        build=philly.build,
    ),
    Format(
        name="openb",
        columns=frozenset({"gpu_milli", "num_gpu", "qos", "creation_time", "scheduled_time", "deletion_time"}),
        what="pods with whole and shared GPUs (Alibaba 2023)",
        build=alibaba.build_openb,
    ),
    Format(
        name="dlrm",
        columns=frozenset({"app_name", "gpu_request", "creation_time", "deletion_time"}),
        what="instances of inference services (Alibaba 2025)",
        build=alibaba.build_dlrm,
    ),
    Format(
        name="gentd26",
        columns=frozenset({"pod", "t_s", "gpu_util_pct", "gpu_mem_used_bytes"}),
        what="GPU use of pods (Alibaba GenTD26)",
        build=gentd26.build,
    ),
    Format(
        name="requests",
        columns=frozenset({"t_s"}),
        what="requests, or rates of them (Azure, Mooncake, ServeGen, GenTD26 requests)",
        build=requests.build,
    ),
)
"""Every kind of trace, the most particular first."""


def read_trace(path: Path, machine: Machine | None = None) -> Collected:
    """Return the fleet of a trace in Parquet, on a stated machine or the format's own assumption.

    Raises InputError where the file is no trace that is known, naming the columns of those that are.
    """
    table = read_arrow_table(path)
    kind = next((one for one in FORMATS if one.columns <= set(table.column_names)), None)
    if kind is None:
        known = "\n".join(f"  {one.what}: {', '.join(sorted(one.columns))}" for one in FORMATS)
        raise InputError(
            f"{path}: no trace that is known; its columns are {', '.join(table.column_names)}; known are\n{known}"
        )
    if table.num_rows < 2:
        raise InputError(f"{path}: {table.num_rows} rows are no trace")
    return kind.build(path, table, machine)
