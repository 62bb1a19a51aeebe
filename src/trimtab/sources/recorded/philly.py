"""Training jobs with submit time, duration, GPUs and virtual cluster, as the Philly trace of 2017 has them.

The file says when a job was submitted and how long it ran, not when it started: it is taken to start at once, so waits are 0.
Source: github.com/msr-fiddle/philly-traces (CC-BY-4.0), as reduced in siasosp23/artifacts.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pyarrow as pa

from trimtab.errors import InputError
from trimtab.sources.collected import Collected
from trimtab.sources.recorded.machine import Machine, machine_of
from trimtab.sources.recorded.runs import Run, fleet_of
from trimtab.units import S_PER_HR, as_utc, floor_hour

MACHINE = "aws:p3.8xlarge"
"""Four V100s a node: the nearest that is still sold."""


def build(path: Path, table: pa.Table, machine: Machine | None) -> Collected:
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
            Run(
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
        machine or machine_of(MACHINE),
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
