"""Consistency of a bundle, checked once on the way in: every fault at once, and what is tolerable repaired and counted.

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

from collections.abc import Iterator
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
from trimtab.tables.column_checks import ColumnFindings, check_column
from trimtab.tables.overlaps import Spans, charged_twice, holdings, node_lives, shared_devices, with_ends
from trimtab.tables.schemas import REQUIRED_TABLES, TABLES, Column
from trimtab.units import S_PER_HR

Mask = npt.NDArray[np.bool_]

KEYS = {
    "devices": ("device", "node"),
    "allocations": ("workload", "pod", "node", "device", "start"),
    "gpu_usage": ("device", "workload", "hour"),
    "demand": ("workload", "start"),
    "jobs": ("job",),
    "pods": ("namespace", "pod", "created"),
    "images": ("node", "image"),
    "volumes": ("namespace", "name"),
    "disruption_budgets": ("namespace", "name", "workload"),
}
"""Columns that tell a table's rows apart; nodes are told apart in `overlaps`, costs and spot events may repeat."""

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
"""(table, column) whose values must stand in (table, column)."""
IN_WINDOW = {"gpu_usage": "hour", "demand": "start"}
_MOST_NAMED = 20
_MOST_OUTSIDE_FRAC = 0.5


@dataclass(slots=True)
class _Repair:
    """What to do to one table: rows to drop, and by column rows to make null."""

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
    """Open a bundle folder and check it whole; raises BundleError with every fault.

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
    """Tell whether a table is there with usable columns; adds faults where it should be and is not."""
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
    """Tell whether a cast loses nothing: narrower numbers, other time resolutions in UTC, other string layouts."""
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
                cure="mend start and end in bundle.yaml, or the clocks (UTC)",
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
    """Refuse holdings most of which lie outside the window: every node would look as if nobody had used it."""
    start, end = (_times(bundle, "allocations", column) for column in INTERVALS["allocations"])
    first, last = (np.datetime64(moment.replace(tzinfo=None), "us") for moment in (bundle.start, bundle.end))
    outside = (start >= last) | (end <= first)
    if len(start) and outside.mean() > _MOST_OUTSIDE_FRAC:
        found.faults.append(
            Fault(
                what=f"{outside.sum()} of {len(start)} rows lie outside the window of bundle.yaml",
                where=_place(bundle, "allocations"),
                value=f"{start.min()} .. {start.max()}",
                cure="mend start and end in bundle.yaml, or the clocks (UTC)",
            )
        )


def _check_duplicates(bundle: Bundle, name: str, repair: _Repair, found: _Findings) -> None:
    keys = bundle.table(name, KEYS[name])
    kept = pa.array(np.flatnonzero(~repair.drop))
    numbered = keys.take(kept).append_column("row", kept)
    first = (
        numbered.group_by(list(KEYS[name]), use_threads=False).aggregate([("row", "min")]).column("row_min").to_numpy()
    )
    again = np.ones(keys.num_rows, dtype=np.bool_)
    again[first] = False
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
