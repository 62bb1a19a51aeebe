"""Checks a bundle for consistency on reading, column by column and row by row, and reports all faults at once.

Refused (faults): a table or column that must be there and is not, a wrong type, percent where 0..1 is expected, a value that
may not be null, an interval that ends before it starts, an hour that is not on the hour, a device or node that no row
describes, a window that most rows lie outside of, what would be billed twice and contradicts itself (`overlaps`), damaged
files, a newer version.

Tolerated (repaired, and counted in `meta.counts`): readings that are NaN, infinite, negative, sentinels such as
9223372036854775794 or beyond their bound (made null); text such as N/A (made null); duplicate rows (the first stays); nodes and
holdings that overlap and agree (made one); rows outside the window, by clock skew (dropped); intervals of no length (dropped);
columns that no schema knows (ignored).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.errors import BundleError, Fault, near_matches
from trimtab.tables.arrow import arrow_type, columns_of
from trimtab.tables.bundle import Bundle, open_parquet, read_bundle, table_file
from trimtab.tables.overlaps import Spans, charged_twice, holdings, node_lives, row_codes, shared_devices, with_ends
from trimtab.tables.schemas import REQUIRED_TABLES, TABLES, Column, Dtype
from trimtab.units import S_PER_HR

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
"""Texts that stand for a missing value (nvidia-smi, FOCUS exports)."""
_NAMES = frozenset({"workload", "node", "device", "job"})
"""Columns that refer to other tables; an empty text counts as missing."""
_PERCENT_SHARE = 0.05
_PERCENT_MOST = 100.0
ROUNDING = 1e-9

Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class ColumnFindings:
    """Faults of a column, and by reason the rows without a usable value."""

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
    """Return whether a share column holds percent: more than one reading in twenty is above 1 yet not above 100."""
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
        (f"{column.name.removesuffix('_le_s')}_count holds what is not a count", _no_count(counts), counts),
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


KEYS = {
    "devices": ("device", "node"),
    "allocations": ("workload", "pod", "node", "device", "start"),
    "gpu_usage": ("device", "workload", "hour"),
    "demand": ("workload", "start"),
    "jobs": ("job",),
    "pods": ("namespace", "pod", "created"),
    "images": ("node", "image"),
    "volumes": ("namespace", "name"),
    "resource_quotas": ("namespace", "name", "resource"),
    "limit_ranges": ("namespace", "name", "place", "type", "resource"),
    "disruption_budgets": ("namespace", "name", "workload"),
}
"""Key columns of each table; nodes are checked in `overlaps`, costs and spot events may repeat."""

INTERVALS = {
    "nodes": ("start", "end"),
    "allocations": ("start", "end"),
    "jobs": ("start", "end"),
    "costs": ("ChargePeriodStart", "ChargePeriodEnd"),
    "faults": ("start", "end"),
}
REFERENCES = (
    ("devices", "node", "nodes", "node"),
    ("allocations", "node", "nodes", "node"),
    ("allocations", "device", "devices", "device"),
    ("gpu_usage", "device", "devices", "device"),
)
"""(table, column) whose values must be in (table, column)."""
IN_WINDOW = {"gpu_usage": "hour", "demand": "start"}
_MOST_NAMED = 20
_MOST_OUTSIDE_FRAC = 0.5


@dataclass(slots=True)
class _Repair:
    """Repairs of one table: rows to drop, and values to set to null, by column."""

    drop: Mask
    null: dict[str, Mask] = field(default_factory=dict)
    end_s: npt.NDArray[np.float64] | None = None
    """Ends to put in place of those stated, in seconds since 1970; infinite for null."""

    @property
    def needed(self) -> bool:
        return bool(self.drop.any() or self.null or self.end_s is not None)


@dataclass(slots=True)
class _Findings:
    faults: list[Fault] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    repairs: dict[str, _Repair] = field(default_factory=dict)

    def count(self, reason: str, rows: int) -> None:
        if rows:
            self.counts[reason] = self.counts.get(reason, 0) + rows


def checked_bundle(path: Path | str) -> Bundle:
    """Open a bundle folder and check it whole. Raises BundleError with every fault.

    What is tolerable is repaired in the bundle returned (never on disk) and added to `meta.counts`. A table that needs a repair
    is held in memory from then on.
    """
    return check_bundle(read_bundle(path))


def check_bundle(bundle: Bundle) -> Bundle:
    """Check a bundle whole; see `checked_bundle`."""
    found = _Findings()
    present = [name for name in TABLES if _columns_fit(bundle, name, found)]
    if not found.faults:
        for name in present:
            _check_rows(bundle, name, found)
        _check_references(bundle, present, found)
    if found.faults:
        raise BundleError(found.faults)
    repaired = {name: _repaired(bundle, name, repair) for name, repair in found.repairs.items() if repair.needed}
    counts = dict(bundle.meta.counts)
    for reason, rows in found.counts.items():
        counts[reason] = counts.get(reason, 0) + rows
    meta = bundle.meta.model_copy(update={"counts": counts})
    return replace(bundle, meta=meta, tables={**bundle.tables, **repaired})


def _columns_fit(bundle: Bundle, name: str, found: _Findings) -> bool:
    """Return whether a table is there with usable columns; adds faults where it should be and is not."""
    place = _place(bundle, name)
    if not bundle.has(name):
        if name in REQUIRED_TABLES:
            found.faults.append(Fault(what="the table is missing", where=place, cure="collect it again"))
        return False
    try:
        schema = _schema(bundle, name)
    except BundleError as error:
        found.faults.extend(error.faults)
        return False
    faults = list(_schema_faults(columns_of(name), schema, place))
    found.faults.extend(faults)
    declared = {column.name for column in columns_of(name)}
    found.count(f"{name}: unknown columns ignored", sum(column not in declared for column in schema.names))
    return not faults


def _schema(bundle: Bundle, name: str) -> pa.Schema:
    if name in bundle.tables or bundle.path is None:
        return bundle.tables[name].schema
    return open_parquet(table_file(bundle.path, name)).schema_arrow


def _schema_faults(columns: tuple[Column, ...], schema: pa.Schema, place: str) -> Iterator[Fault]:
    for column in columns:
        if column.name not in schema.names:
            if not column.nullable:
                near = near_matches(
                    column.name, [seen for seen in schema.names if seen not in {c.name for c in columns}]
                )
                cure = f"rename {near[0]}?" if near else f"add it as {column.dtype.value}"
                yield Fault(what=f"column {column.name} is missing", where=place, cure=cure)
            continue
        seen, wanted = schema.field(column.name).type, arrow_type(column.dtype)
        if seen != wanted and not _widens(seen, wanted):
            yield Fault(
                what=f"column {column.name} has the wrong type",
                where=place,
                value=str(seen),
                cure=f"write it as {column.dtype.value}",
            )


def _widens(seen: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a cast loses nothing: narrower numbers, other time resolutions in UTC, other string layouts."""
    if pa.types.is_timestamp(wanted):
        return bool(pa.types.is_timestamp(seen) and seen.tz in ("UTC", "Etc/UTC", "+00:00"))
    alike = (
        (pa.types.is_floating, (pa.types.is_floating, pa.types.is_integer)),
        (pa.types.is_integer, (pa.types.is_integer,)),
        (pa.types.is_string, (pa.types.is_large_string, pa.types.is_dictionary, pa.types.is_null)),
        (pa.types.is_list, (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)),
        (pa.types.is_map, (pa.types.is_map,)),
    )
    return any(of_kind(wanted) and any(fits(seen) for fits in narrower) for of_kind, narrower in alike)


def _check_rows(bundle: Bundle, name: str, found: _Findings) -> None:
    place = _place(bundle, name)
    rows = bundle.table(name, [columns_of(name)[0].name]).num_rows
    repair = found.repairs[name] = _Repair(drop=np.zeros(rows, dtype=np.bool_))
    for column in columns_of(name):
        findings = check_column(column, lambda asked: bundle.table(name, [asked]).column(0), place)
        _take(findings, name, column.name, repair, found)
    if name in INTERVALS:
        _check_intervals(bundle, name, repair, found)
    if name in IN_WINDOW:
        _check_window(bundle, name, repair, found)
    if name == "allocations":
        _check_allocations_meet_window(bundle, found)
    if name == "allocations" and not found.faults:
        _check_overlaps(bundle, name, repair, found)
    if name in KEYS:
        _check_duplicates(bundle, name, repair, found)
    if name == "nodes" and not found.faults:
        lives = _check_overlaps(bundle, name, repair, found)
        alive = bundle.table(name, ["node"]).filter(pa.array(~repair.drop))
        devices = bundle.table("devices", ["device", "node"])
        found.faults.extend(shared_devices(devices, alive["node"].to_pylist(), lives, _place(bundle, "devices")))
    if name == "costs" and not found.faults:
        found.faults.extend(charged_twice(bundle.table(name), place))


def _take(findings: ColumnFindings, name: str, column: str, repair: _Repair, found: _Findings) -> None:
    found.faults.extend(findings.faults)
    for reason, mask in findings.nulls.items():
        found.count(f"{name}.{column}: {reason}", int(mask.sum()))
        repair.null[column] = repair.null.get(column, np.zeros(len(mask), dtype=np.bool_)) | mask


def _check_intervals(bundle: Bundle, name: str, repair: _Repair, found: _Findings) -> None:
    start, end = (_times(bundle, name, column) for column in INTERVALS[name])
    backwards = end < start
    for row in np.flatnonzero(backwards)[:_MOST_NAMED]:
        found.faults.append(
            Fault(
                what=f"{INTERVALS[name][1]} is before {INTERVALS[name][0]}",
                where=f"{_place(bundle, name)} row {row}",
                value=f"{start[row]} .. {end[row]}",
                cure="intervals are [start, end); give both in UTC",
            )
        )
    empty = start == end
    found.count(f"{name}: intervals of no length dropped", int(empty.sum()))
    repair.drop |= empty


def _check_window(bundle: Bundle, name: str, repair: _Repair, found: _Findings) -> None:
    column = IN_WINDOW[name]
    times = _times(bundle, name, column)
    hour = timedelta(seconds=S_PER_HR)
    first, last = (np.datetime64(moment.replace(tzinfo=None), "us") for moment in (bundle.start - hour, bundle.end))
    outside = (times <= first) | (times >= last)
    place = _place(bundle, name)
    if len(times) and outside.mean() > _MOST_OUTSIDE_FRAC:
        found.faults.append(
            Fault(
                what=f"{outside.sum()} of {len(times)} rows lie outside the window of bundle.yaml",
                where=place,
                value=f"{times.min()} .. {times.max()}",
                cure="correct start and end in bundle.yaml, or the clocks (UTC)",
            )
        )
    found.count(f"{name}: rows outside the window dropped (clock skew)", int(outside.sum()))
    repair.drop |= outside
    if name == "gpu_usage":
        off = np.flatnonzero(times != times.astype("datetime64[h]"))
        if len(off):
            seen = str(times[off[0]])
            cure = "give the start of the hour, UTC"
            found.faults.append(
                Fault(what="hour is not on the hour", where=f"{place} row {off[0]}", value=seen, cure=cure)
            )


def _check_allocations_meet_window(bundle: Bundle, found: _Findings) -> None:
    """Refuse holdings most of which lie outside the window: otherwise every node would look unused."""
    start, end = (_times(bundle, "allocations", column) for column in INTERVALS["allocations"])
    first, last = (np.datetime64(moment.replace(tzinfo=None), "us") for moment in (bundle.start, bundle.end))
    outside = (start >= last) | (end <= first)
    if len(start) and outside.mean() > _MOST_OUTSIDE_FRAC:
        found.faults.append(
            Fault(
                what=f"{outside.sum()} of {len(start)} rows lie outside the window of bundle.yaml",
                where=_place(bundle, "allocations"),
                value=f"{start.min()} .. {start.max()}",
                cure="correct start and end in bundle.yaml, or the clocks (UTC)",
            )
        )


def _check_duplicates(bundle: Bundle, name: str, repair: _Repair, found: _Findings) -> None:
    keys = bundle.table(name, KEYS[name])
    kept = np.flatnonzero(~repair.drop)
    again = np.ones(keys.num_rows, dtype=np.bool_)
    again[kept[np.unique(row_codes(keys, KEYS[name])[kept], return_index=True)[1]]] = False
    found.count(f"{name}: duplicate rows dropped", int((again & ~repair.drop).sum()))
    repair.drop |= again


def _check_overlaps(bundle: Bundle, name: str, repair: _Repair, found: _Findings) -> Spans:
    """Make one of rows that tell the same node or holding at the same time; returns the intervals of the rows still there."""
    kept = np.flatnonzero(~repair.drop)
    table = bundle.table(name).take(pa.array(kept))
    spans = node_lives(table, _place(bundle, name), kept.tolist()) if name == "nodes" else holdings(table)
    found.faults.extend(spans.faults)
    if spans.counts:
        for reason, rows in spans.counts.items():
            found.count(reason, rows)
        repair.end_s = np.full(len(repair.drop), np.inf)
        repair.end_s[kept] = spans.end_s
        repair.drop[kept] |= spans.drop
    return spans


def _check_references(bundle: Bundle, present: list[str], found: _Findings) -> None:
    for name, column, target, target_column in REFERENCES:
        if name not in present or target not in present:
            continue
        known = set(bundle.table(target, [target_column]).column(0).unique().to_pylist())
        used = bundle.table(name, [column]).column(0)
        for value in sorted({item for item in used.unique().to_pylist() if item is not None} - known)[:_MOST_NAMED]:
            near = near_matches(value, known)
            cure = f"add a row to {target}" + (f", or is it {near[0]}?" if near else "")
            where = f"{_place(bundle, name)} row {used.index(value).as_py()}"
            found.faults.append(
                Fault(what=f"{column} that {target} does not know", where=where, value=value, cure=cure)
            )


def _times(bundle: Bundle, name: str, column: str) -> npt.NDArray[np.datetime64]:
    values = bundle.table(name, [column]).column(0).cast(pa.timestamp("us"))
    return np.asarray(values.to_numpy(), dtype="datetime64[us]")


def _repaired(bundle: Bundle, name: str, repair: _Repair) -> pa.Table:
    table = bundle.table(name, [column.name for column in columns_of(name)])
    if repair.end_s is not None:
        table = with_ends(table, repair.end_s)
    for column, mask in repair.null.items():
        at = table.column_names.index(column)
        kept = pc.if_else(pa.array(mask), pa.scalar(None, table.schema.field(at).type), table.column(at))
        table = table.set_column(at, table.schema.field(at), kept)
    return table.filter(pa.array(~repair.drop))


def _place(bundle: Bundle, name: str) -> str:
    return str(table_file(bundle.path, name)) if bundle.path is not None else f"table {name}"
