"""A `gpu_usage` table written a span at a time: complete or not there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trimtab.tables.arrow import arrow_schema


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
