"""Requests and rates of them, served by a fleet of fixed size: the fleet that `trimtab audit --demo-trace` makes.

Rates by client are added up by model first. The demand is the trace's; replicas, latencies and use are a model's (see
`sources.demo.trace`), and the bundle says so.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from trimtab.errors import InputError
from trimtab.sources.demo import trace_fleet
from trimtab.sources.prometheus import Collected
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
    if not {"client", "requests_per_s"} <= set(table.column_names):
        return _collected(path, path, table.num_rows)
    with tempfile.TemporaryDirectory() as folder:
        summed = Path(folder) / path.name
        pq.write_table(_by_model(table), summed)
        return _collected(summed, path, table.num_rows)


def _by_model(table: pa.Table) -> pa.Table:
    """Add up the rates of clients by model and moment."""
    keys = [name for name in ("model", "t_s") if name in table.column_names]
    plain = table.select([*keys, "requests_per_s"])
    if "model" in keys:
        plain = plain.set_column(0, "model", plain["model"].cast(pa.string()))
    summed = plain.group_by(keys, use_threads=False).aggregate([("requests_per_s", "sum")])
    return summed.rename_columns([*keys, "requests_per_s"]).sort_by([(key, "ascending") for key in keys])


def _collected(file: Path, path: Path, rows: int) -> Collected:
    tables, _, content = trace_fleet(file)
    meta = BundleMeta.model_validate(content)
    known = meta.model_copy(
        update={
            "sources": (f"trace {path.name} ({rows} rows)",),
            "notes": (ASSUMED, *meta.notes),
            "created_by": "trimtab",
        }
    )
    return Collected(tables=tables, meta=known)
