"""Reads CSV and Parquet files written by others as Arrow tables. Any damage is reported as one InputError."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from trimtab.errors import InputError
from trimtab.inputs.files import MOST_HEAD_BYTES, check_columns, open_packed

ARROW_ERRORS = (pa.ArrowException, OSError, ValueError, OverflowError)
"""What Arrow says of damaged files: some of its errors are its own, some Python's."""


def read_arrow_table(path: Path) -> pa.Table:
    """Return the table of a `.csv`, `.csv.gz` or Parquet file. Raises InputError."""
    try:
        if path.name.lower().endswith((".csv", ".csv.gz")):
            column_names(path)
            with open_packed(path) as stream:
                return whole(pa_csv.read_csv(stream))
        with open_parquet_file(path) as file:
            return _with_moments_of_the_calendar(whole(file.read()))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except ARROW_ERRORS as error:
        raise InputError(
            f"{path}: not a readable Parquet or CSV file ({_first_line(error)}); write it again"
        ) from error


@contextmanager
def open_parquet_file(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file whose columns are named once. Raises InputError, or one of `ARROW_ERRORS`."""
    with parquet_file(path) as file:
        check_columns(list(file.schema_arrow.names), str(path))
        yield file


def parquet_file(path: Path) -> pq.ParquetFile:
    """Open a Parquet file whose time zones have names; raises one of `ARROW_ERRORS`."""
    file = pq.ParquetFile(path)
    for field in file.schema_arrow:
        # Arrow decodes the name of a zone where somebody first asks for it
        _ = field.type.tz if pa.types.is_timestamp(field.type) else None
    return file


def whole(table: pa.Table) -> pa.Table:
    """Return the table once its offsets and texts are known to be sound. Raises ArrowInvalid.

    A damaged file may decode into texts that are no UTF-8, or lists beyond their end: those fail far from here otherwise.
    """
    table.validate(full=True)
    return table


_FIRST_S, _END_S = -62_135_510_400, 253_402_214_400
"""Python's calendar, years 1 to 9999, in seconds from 1970, less a day at either end for zones."""
_UNITS_PER_S = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def _with_moments_of_the_calendar(table: pa.Table) -> pa.Table:
    """Return the table with null for moments that no calendar has, so that they are counted with the missing ones."""
    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            units_per_s, column = _UNITS_PER_S[field.type.unit], table[place]
            since_1970 = pc.divide(column.cast(pa.int64()), units_per_s)
            there = pc.and_(pc.greater_equal(since_1970, _FIRST_S), pc.less(since_1970, _END_S))
            table = table.set_column(place, field, pc.if_else(there, column, pa.scalar(None, field.type)))
    return table


def column_names(path: Path) -> list[str]:
    """Return the names in the head of a CSV file, packed or not. Raises InputError if it is too wide or no text."""
    try:
        with open_packed(path) as stream:
            start = stream.read(MOST_HEAD_BYTES)
        if len(start) == MOST_HEAD_BYTES and b"\n" not in start and b"\r" not in start:
            raise InputError(
                f"{path}: its first line is longer than {MOST_HEAD_BYTES:,} bytes; is it a CSV with a head?"
            )
        # a line break within a quoted name is read as part of it; what follows the head does not matter here
        head = next(csv.reader(io.StringIO(start.decode("utf-8-sig", errors="replace"), newline="")), [])
    except (OSError, csv.Error) as error:
        raise InputError(f"{path}: not readable as CSV: {error}") from error
    check_columns(head, str(path))
    return head


def floats(table: pa.Table, name: str, where: str) -> npt.NDArray[np.float64]:
    """Return a column as numbers (n_rows,), NaN if one is missing. Raises InputError naming the first that is none."""
    column = table[name]
    try:
        return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
    except ARROW_ERRORS as error:
        row, seen = _first_no_number(column)
        place = f"{where} row {row + 2}" if row is not None else where
        raise InputError(
            f"{place}: {name} is not a number (saw {seen!r}); write a plain number such as 12.5"
        ) from error


def _first_no_number(column: pa.ChunkedArray) -> tuple[int | None, str]:
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return None, str(column.type)
    for row, text in enumerate(column.to_pylist()):
        try:
            float(text or 0)
        except ValueError:
            return row, str(text)[:40]
    return None, str(column.type)


def distinct_texts(column: pa.ChunkedArray, where: str) -> list[str]:
    """Return a column's distinct values as texts, sorted. Raises InputError if its values are none."""
    try:
        return sorted(str(name) for name in pc.unique(column.cast(pa.string())).to_pylist())
    except ARROW_ERRORS as error:
        raise InputError(f"{where}: {_first_line(error)}; give a column of texts") from error


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
