"""Read a measured batch-time curve and a trace of arrivals from CSV or Parquet files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median

from trimtab.errors import InputError
from trimtab.inputs.arrow_tables import read_arrow_table
from trimtab.inputs.files import read_csv_rows
from trimtab.physics.colocation import BatchCurve
from trimtab.units import MS_PER_S, as_utc

SIZE_COLUMNS = ("batch", "batch_size", "size")
SECOND_COLUMNS = ("seconds", "run_s", "time_s", "ms", "run_ms", "time_ms")
ARRIVAL_COLUMNS = ("t_s", "arrival_s", "timestamp", "time")
_LARGEST_BATCH = 1_000_000
_KNOWN = frozenset({*SIZE_COLUMNS, *SECOND_COLUMNS, *ARRIVAL_COLUMNS})


def read_curve(path: Path) -> BatchCurve:
    """Read (batch, seconds) rows; several measurements of one size become their median. A `_ms` column is milliseconds."""
    columns = _columns(path)
    name = _which(path, columns, SIZE_COLUMNS)
    sizes = [_size(path, row, value) for row, value in enumerate(_numbers(path, columns, name), 2)]
    name = _which(path, columns, SECOND_COLUMNS)
    scale = MS_PER_S if name.endswith("ms") else 1
    by_size: dict[int, list[float]] = {}
    for size, time in zip(sizes, _numbers(path, columns, name), strict=True):
        by_size.setdefault(size, []).append(time / scale)
    ordered = sorted(by_size)
    try:
        return BatchCurve(sizes=tuple(ordered), seconds=tuple(median(by_size[size]) for size in ordered))
    except ValueError as error:
        raise InputError(f"{path}: no curve of batch times: {error}; measure each size again") from error


def _size(path: Path, row: int, value: float) -> int:
    if not (1 <= value <= _LARGEST_BATCH and value.is_integer()):
        raise InputError(f"{path} row {row}: a batch of {value:g}; write a whole number from 1 to {_LARGEST_BATCH:,}")
    return int(value)


def read_arrivals(path: Path) -> list[float]:
    """Read arrival times, in seconds or as ISO times, UTC where they name no zone; return them sorted, from the first."""
    columns = _columns(path)
    times = sorted(_numbers(path, columns, _which(path, columns, ARRIVAL_COLUMNS)))
    if not times:
        raise InputError(f"{path}: no arrivals")
    return [time - times[0] for time in times]


def _columns(path: Path) -> dict[str, Sequence[object]]:
    if path.suffix == ".parquet":
        table = read_arrow_table(path)
        return {name: table[name].to_pylist() for name in table.column_names if name in _KNOWN}
    rows = read_csv_rows(path)
    return {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}


def _which(path: Path, columns: Iterable[str], wanted: Sequence[str]) -> str:
    found = [name for name in wanted if name in columns]
    if not found:
        raise InputError(f"{path}: needs a column {' or '.join(wanted)} (saw {', '.join(columns) or 'none'})")
    return found[0]


def _numbers(path: Path, columns: dict[str, Sequence[object]], name: str) -> list[float]:
    numbers = []
    faults = []
    for row, value in enumerate(columns[name], 2):
        number = _number(value)
        if math.isfinite(number):
            numbers.append(number)
        else:
            faults.append(f"row {row}: {value!r}")
    if faults:
        more = f" and {len(faults) - 5} more" if len(faults) > 5 else ""
        raise InputError(f"{path}: column {name} is not a number or time in {'; '.join(faults[:5])}{more}")
    return numbers


def _number(value: object) -> float:
    """Return a number of seconds, or NaN."""
    if isinstance(value, datetime):
        return as_utc(value).timestamp()
    try:
        return float(str(value))
    except ValueError:
        pass
    try:
        return as_utc(datetime.fromisoformat(str(value))).timestamp()
    except ValueError:
        return math.nan
