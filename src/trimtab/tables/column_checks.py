"""Checks of one column: nulls, bounds, sentinels, percent where a share is expected, lengths of histograms and buckets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.errors import Fault, near_matches
from trimtab.tables.schemas import Column, Dtype

SENTINEL_FLOOR = 9.2e18
"""Readings from here on mean "not supported": dcgm-exporter writes 9223372036854775794 (its README)."""
ABSENT_TEXTS = frozenset(
    {
        "N/A",
        "[N/A]",
        "NA",
        "NULL",
        "null",
        "None",
        "nan",
        "[Not Supported]",
        "Not Supported",
        "[Insufficient Permissions]",
    }
)
"""Texts by which tools say that they have no value (nvidia-smi, FOCUS exports)."""
_NAMES = frozenset({"workload", "node", "device", "job"})
"""Columns by which rows of tables find one another: an empty text is no name."""
_PERCENT_SHARE = 0.05
_PERCENT_MOST = 100.0
ROUNDING = 1e-9

Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class ColumnFindings:
    """Faults of a column, and by reason the rows whose value is no value."""

    faults: list[Fault] = field(default_factory=list)
    nulls: dict[str, Mask] = field(default_factory=dict)


def check_column(column: Column, read: Callable[[str], pa.ChunkedArray], place: str) -> ColumnFindings:
    """Check one column; `read` gives a column by name, and is not called for a histogram (101 integers a row)."""
    findings = ColumnFindings()
    if column.dtype is Dtype.INTS:
        return findings
    values = read(column.name)
    if not column.nullable and values.null_count:
        row = values.is_null().index(True).as_py()
        what = f"column {column.name} is null in {values.null_count} row(s)"
        findings.faults.append(Fault(what=what, where=f"{place} row {row}", cure="give it a value"))
    if column.dtype in (Dtype.FLOAT, Dtype.INT):
        _check_numbers(column, values, place, findings)
    elif column.dtype is Dtype.STRING:
        _check_texts(column, values, place, findings)
    elif column.dtype is Dtype.FLOATS and column.name.endswith("_le_s"):
        _check_buckets(column, values, read(column.name.removesuffix("_le_s") + "_count"), place, findings)
    return findings


def _check_numbers(column: Column, values: pa.ChunkedArray, place: str, findings: ColumnFindings) -> None:
    present = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
    numbers = np.asarray(values.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
    low = -np.inf if column.low is None else column.low - ROUNDING
    high = np.inf if column.high is None else column.high + ROUNDING
    if column.high == 1.0 and _looks_like_percent(numbers):
        what = f"column {column.name} holds percent where 0..1 is expected"
        seen = f"{np.nanmax(np.where(numbers <= _PERCENT_MOST, numbers, np.nan)):g}"
        findings.faults.append(Fault(what=what, where=place, value=seen, cure="divide it by 100"))
        return
    with np.errstate(invalid="ignore"):
        sentinel = present & (np.abs(numbers) >= SENTINEL_FLOOR) & np.isfinite(numbers)
        reasons = {
            "sentinels made null": sentinel,
            "not finite, made null": present & ~np.isfinite(numbers),
            "below its bound, made null": present & (numbers < low) & ~sentinel & np.isfinite(numbers),
            "above its bound, made null": present & (numbers > high) & ~sentinel & np.isfinite(numbers),
        }
    for reason, mask in reasons.items():
        _refuse_or_null(column, reason, mask, numbers, place, findings)


def _refuse_or_null(
    column: Column,
    reason: str,
    mask: Mask,
    shown: npt.NDArray[np.float64] | npt.NDArray[np.object_],
    place: str,
    findings: ColumnFindings,
) -> None:
    """A nullable reading becomes null; a value that must be there is a fault."""
    if not mask.any():
        return
    if column.nullable:
        findings.nulls[reason] = mask
        return
    row = int(np.flatnonzero(mask)[0])
    what = f"column {column.name} has {int(mask.sum())} value(s) {reason.split(',')[0].removesuffix(' made null')}"
    unit = f" ({column.unit})" if column.unit else ""
    findings.faults.append(
        Fault(what=what, where=f"{place} row {row}", value=str(shown[row]), cure=f"write {column.meaning}{unit}")
    )


def _looks_like_percent(numbers: npt.NDArray[np.float64]) -> bool:
    """Tell whether a share column holds percent: more than one reading in twenty is above 1 yet not above 100."""
    with np.errstate(invalid="ignore"):
        over = (numbers > 1.0 + ROUNDING) & (numbers <= _PERCENT_MOST)
    readings = np.isfinite(numbers).sum()
    return bool(readings and over.sum() > _PERCENT_SHARE * readings)


def _check_texts(column: Column, values: pa.ChunkedArray, place: str, findings: ColumnFindings) -> None:
    no_value = ABSENT_TEXTS | {""} if column.name in _NAMES and not column.nullable else ABSENT_TEXTS
    absent = pc.is_in(values, value_set=pa.array(sorted(no_value), type=values.type))
    mask = np.asarray(absent.to_numpy(), dtype=np.bool_)
    if mask.any():
        shown = np.asarray(values.to_numpy(), dtype=np.object_)
        _refuse_or_null(column, "text that means no value, made null", mask, shown, place, findings)
    if column.choices:
        _check_choices(column, values, place, findings)


def _check_choices(column: Column, values: pa.ChunkedArray, place: str, findings: ColumnFindings) -> None:
    for value in values.unique().to_pylist():
        if value is None or value in column.choices or value in ABSENT_TEXTS:
            continue
        near = near_matches(value, column.choices)
        cure = f"did you mean {near[0]}?" if near else f"one of {', '.join(column.choices)}"
        row = values.index(value).as_py()
        findings.faults.append(Fault(what=f"unknown {column.name}", where=f"{place} row {row}", value=value, cure=cure))


def _check_buckets(
    column: Column, bounds: pa.ChunkedArray, counts: pa.ChunkedArray, place: str, findings: ColumnFindings
) -> None:
    lengths = pc.not_equal(pc.list_value_length(bounds), pc.list_value_length(counts))
    one_sided = pc.not_equal(bounds.is_null(), counts.is_null())
    wrong = np.asarray(pc.or_kleene(pc.fill_null(lengths, False), one_sided).to_numpy(), dtype=np.bool_)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        other = column.name.removesuffix("_le_s") + "_count"
        what = f"{column.name} and {other} differ in length in {int(wrong.sum())} row(s)"
        findings.faults.append(Fault(what=what, where=f"{place} row {row}", cure="one count a bucket"))
        return
    for what, flags, of in (
        (f"{column.name} does not rise", _not_rising(bounds), bounds),
        (f"{column.name.removesuffix('_le_s')}_count holds what is no count", _no_count(counts), counts),
    ):
        if len(flags):
            row = int(flags[0])
            cure = "bounds rise, the last is inf; counts are those of each bucket, 0 or more"
            findings.faults.append(Fault(what=what, where=f"{place} row {row}", value=str(of[row].as_py()), cure=cure))


def _flattened(lists: pa.ChunkedArray) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return the elements of all lists and the row that each is from; a null list has none, whatever lies beneath it."""
    rows = np.flatnonzero(np.asarray(lists.is_valid().to_numpy(), dtype=np.bool_))
    there = lists.drop_null()
    lengths = np.asarray(pc.list_value_length(there).to_numpy(), dtype=np.int64)
    return np.asarray(pc.list_flatten(there).to_numpy(), dtype=np.float64), np.repeat(rows, lengths)


def _not_rising(bounds: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return the rows with a bound that is not above the one before it."""
    flat, row = _flattened(bounds)
    return np.asarray(row[1:][(row[1:] == row[:-1]) & ~(flat[1:] > flat[:-1])], dtype=np.int64)


def _no_count(counts: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return the rows with a count that is missing, negative or not finite."""
    flat, row = _flattened(counts)
    with np.errstate(invalid="ignore"):
        return np.asarray(row[~((flat >= 0) & (flat < np.inf))], dtype=np.int64)
