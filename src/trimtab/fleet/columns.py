"""Arrow columns as numpy arrays, with missing values kept missing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.fleet.model import Window
from trimtab.ledger.arrays import FloatArray, IntArray

_US_PER_S = 1_000_000


def seconds_from(column: pa.ChunkedArray, window: Window, *, absent: float = np.nan) -> FloatArray:
    """Return timestamps as seconds from the window's start (n,); a null becomes `absent`."""
    micros = pc.cast(pc.cast(column, pa.timestamp("us", tz="UTC")), pa.int64())
    start_us = int(window.start.timestamp()) * _US_PER_S
    filled = np.asarray(pc.fill_null(micros, start_us).to_numpy(zero_copy_only=False), dtype=np.int64)
    seconds = (filled - start_us) / _US_PER_S
    return np.where(np.asarray(pc.is_null(column).to_numpy(zero_copy_only=False)), absent, seconds)


def numbers(column: pa.ChunkedArray) -> FloatArray:
    """Return a numeric column as floats (n,); a null becomes NaN."""
    return np.asarray(pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)


def text(column: pa.ChunkedArray) -> list[str]:
    """Return a string column as a list; a null becomes the empty string."""
    return ["" if value is None else value for value in column.to_pylist()]


def coded(column: pa.ChunkedArray) -> tuple[IntArray, list[str]]:
    """Return a string column as the place of each value (n,) among the distinct ones, and these; a null is the empty string."""
    encoded = pc.fill_null(column, "").combine_chunks().dictionary_encode()
    return np.asarray(encoded.indices, dtype=np.int64), encoded.dictionary.to_pylist()


def last_rows(pieces: Iterable[pa.Table]) -> dict[str, int]:
    """Return which row of a table that comes in pieces is the last of each workload."""
    found: dict[str, int] = {}
    read = 0
    for piece in pieces:
        owner, names = coded(piece["workload"])
        last = np.zeros(len(names), dtype=np.int64)
        np.maximum.at(last, owner, np.arange(read, read + len(owner)))
        found.update(zip(names, last.tolist(), strict=True))
        read += len(owner)
    return found


def rows_by_workload(pieces: Iterable[pa.Table], last_row: Mapping[str, int]) -> Iterator[tuple[str, pa.Table]]:
    """Yield each workload's rows of a table that comes in pieces, in their order, as soon as the last of them was read.

    Of a table in the order of its workloads a piece and the workload at hand are held, of one by time all workloads that go on.
    """
    waiting: dict[str, list[pa.Table]] = defaultdict(list)
    read = 0
    for piece in pieces:
        owner, names = coded(piece["workload"])
        ordered = piece if (owner[1:] >= owner[:-1]).all() else piece.take(pa.array(np.argsort(owner, kind="stable")))
        first = 0
        for name, count in zip(names, np.bincount(owner, minlength=len(names)).tolist(), strict=True):
            waiting[name].append(ordered.slice(first, count))
            first += count
        read += len(owner)
        yield from ((name, pa.concat_tables(waiting.pop(name))) for name in names if last_row[name] < read)
