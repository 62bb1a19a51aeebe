"""Requests and rates of them, served by a fleet of fixed size: the fleet that `trimtab audit --demo-trace` makes.

The demand is the trace's; replicas, latencies and use are a model's (see
`sources.demo.trace`), and the bundle says so.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from trimtab.errors import InputError
from trimtab.sources.collected import Collected
from trimtab.sources.demo import trace_fleet
from trimtab.sources.recorded.machine import Machine
from trimtab.tables.bundle import BundleMeta

ASSUMED = (
    "the demand is the trace's; who served it is assumed: a fixed number of replicas on A100s, sized for the trace's own peak, "
    "with modelled latencies and GPU use"
)


def build(path: Path, table: pa.Table, machine: Machine | None) -> Collected:
    """Return the fleet; raises InputError where a machine was named (its size follows the trace) or the file is no trace."""
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
