"""The rollup of a long history, a bounded span of hours at a time: what a span yields fits memory, whatever the window.

The `gpu_usage` table is written span by span: complete, or not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trimtab.errors import BundleError, Fault, InputError
from trimtab.tables.arrow import arrow_schema
from trimtab.tables.rollup import SAMPLE_SCHEMA, rollup
from trimtab.units import HR_PER_DAY

if TYPE_CHECKING:
    import ibis.expr.types as ir

Execute = Callable[["ir.Table"], pa.Table]

_REQUIRED = ("device", "time")
_ROWS_PER_SPAN = 100_000
"""Rows of `gpu_usage` that a span may have: about 80 MB of histograms."""


def complete_samples(samples: ir.Table) -> ir.Table:
    """Return samples with every column of `SAMPLE_SCHEMA`, those that are missing null, in its types.

    Raises BundleError where the device or the time is missing, or no reading is there.
    """
    import ibis

    wanted = ibis.Schema.from_pyarrow(SAMPLE_SCHEMA)
    missing = [name for name in _REQUIRED if name not in samples.columns]
    readings = [name for name in wanted if name in samples.columns and name not in (*_REQUIRED, "workload")]
    if missing or not readings:
        what = f"column {missing[0]} is missing" if missing else "no column is a reading"
        cure = f"name the columns {', '.join(wanted)}"
        raise BundleError([Fault(what=what, where="samples", value=", ".join(samples.columns), cure=cure)])
    columns = {
        name: (samples[name] if name in samples.columns else ibis.null()).cast(dtype) for name, dtype in wanted.items()
    }
    return samples.select(**columns)


def rollup_spans(samples: ir.Table, execute: Execute, *, step_s: float) -> Iterator[pa.Table]:
    """Yield the `gpu_usage` rows of successive spans of whole hours, made where the samples live.

    The span is chosen so that it has at most about 100,000 rows. Raises InputError where there are no samples.
    """
    whole = execute(
        samples.aggregate(first=samples["time"].min(), last=samples["time"].max(), devices=samples["device"].nunique())
    ).to_pylist()[0]
    if whole["first"] is None:
        raise InputError("there are no samples to roll up; is the place right, and the window?")
    span = timedelta(hours=max(1, min(_ROWS_PER_SPAN // max(1, whole["devices"]), HR_PER_DAY)))
    start = _naive(whole["first"]).replace(minute=0, second=0, microsecond=0)
    while start <= _naive(whole["last"]):
        time = samples["time"]
        yield rollup(samples.filter(time >= start, time < start + span), execute, step_s=step_s)
        start += span


def _naive(moment: datetime) -> datetime:
    return moment.replace(tzinfo=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a table holds."""

    rows: int
    hours: int


def write_usage(path: Path, pieces: Iterable[pa.Table]) -> Written:
    """Write pieces of `gpu_usage` to one Parquet file, which takes its name when it is whole."""
    rows = hours = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.partial")
    try:
        with pq.ParquetWriter(fresh, arrow_schema("gpu_usage")) as writer:
            for piece in pieces:
                writer.write_table(piece)
                rows += piece.num_rows
                hours += pc.count_distinct(piece.column("hour")).as_py()
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    return Written(rows=rows, hours=hours)
