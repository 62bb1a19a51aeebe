"""Bills -> the `costs` table: FOCUS 1.0-1.4 as CSV or Parquet, and AWS CUR 2.0 brought to FOCUS first.

Source: the FinOps Open Cost and Usage Specification, data model of 1.4 (CC BY 4.0, https://focus.finops.org).

Money stays in the billing currency. What is not used, renamed or dropped is said in notes and counted.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from trimtab.errors import BillError, BundleError, Fault, InputError, fault_count, near_matches
from trimtab.inputs.arrow_tables import ARROW_ERRORS, column_names
from trimtab.inputs.files import open_packed
from trimtab.sources.bills.cells import (
    find_instance_type,
    first_known,
    instance_type_in_details,
    is_cur,
    mapped,
    read_labels,
    read_number,
    read_time,
    texts,
    to_focus,
)
from trimtab.tables.arrow import arrow_schema, arrow_type, conform, empty_table
from trimtab.tables.bundle import open_parquet
from trimtab.tables.overlaps import charged_twice
from trimtab.tables.schemas import COSTS, Column, Dtype

NEWEST = "1.4"
INTRODUCED: Mapping[str, tuple[str, ...]] = {
    "1.0": (
        "AvailabilityZone",
        "BilledCost",
        "BillingAccountId",
        "BillingAccountName",
        "BillingCurrency",
        "BillingPeriodEnd",
        "BillingPeriodStart",
        "ChargeCategory",
        "ChargeClass",
        "ChargeDescription",
        "ChargeFrequency",
        "ChargePeriodEnd",
        "ChargePeriodStart",
        "CommitmentDiscountCategory",
        "CommitmentDiscountId",
        "CommitmentDiscountName",
        "CommitmentDiscountStatus",
        "CommitmentDiscountType",
        "ConsumedQuantity",
        "ConsumedUnit",
        "ContractedCost",
        "ContractedUnitPrice",
        "EffectiveCost",
        "InvoiceIssuerName",
        "ListCost",
        "ListUnitPrice",
        "PricingCategory",
        "PricingQuantity",
        "PricingUnit",
        "ProviderName",
        "PublisherName",
        "RegionId",
        "RegionName",
        "ResourceId",
        "ResourceName",
        "ResourceType",
        "ServiceCategory",
        "ServiceName",
        "SkuId",
        "SkuPriceId",
        "SubAccountId",
        "SubAccountName",
        "Tags",
    ),
    "1.1": (
        "CapacityReservationId",
        "CapacityReservationStatus",
        "CommitmentDiscountQuantity",
        "CommitmentDiscountUnit",
        "ServiceSubcategory",
        "SkuMeter",
        "SkuPriceDetails",
    ),
    "1.2": (
        "BillingAccountType",
        "InvoiceId",
        "PricingCurrency",
        "PricingCurrencyContractedUnitPrice",
        "PricingCurrencyEffectiveCost",
        "PricingCurrencyListUnitPrice",
        "SubAccountType",
    ),
    "1.3": (
        "AllocatedMethodDetails",
        "AllocatedMethodId",
        "AllocatedResourceId",
        "AllocatedResourceName",
        "AllocatedTags",
        "ContractApplied",
        "HostProviderName",
        "ServiceProviderName",
    ),
    "1.4": (
        "CommitmentProgramEligibilityDetails",
        "InvoiceDetailId",
    ),
}
KNOWN = frozenset(name for names in INTRODUCED.values() for name in names)


def version_of(columns: frozenset[str]) -> str:
    """Return the version that a file's columns show: the latest that brought one of them."""
    return max((version for version, names in INTRODUCED.items() if columns & set(names)), default="1.0")


def unknown_columns(columns: frozenset[str]) -> frozenset[str]:
    """Return the columns in the style of FOCUS that no known version has: of a newer one, or misnamed.

    Providers' own columns begin with `x_`.
    """
    return frozenset(name for name in columns - KNOWN if name[:1].isupper() and not name.startswith("x_"))


logger = logging.getLogger(__name__)

BILL_COUNTS = "bills: "
"""What the reasons begin with under which a reader of bills counts rows."""
_NEEDED = ("ChargePeriodStart", "ChargePeriodEnd", "BilledCost")
_SYNONYMS = {"ProviderName": ("ServiceProviderName", "HostProviderName", "PublisherName")}
"""Columns that later versions spell otherwise: 1.3 deprecated and 1.4 removed ProviderName."""
_TYPE_COLUMNS = (
    "x_InstanceType",
    "x_SkuInstanceType",
    "x_SkuMeterName",
    "x_SkuDescription",
    "SkuMeter",
    "ChargeDescription",
)
_DETAIL_COLUMNS = ("SkuPriceDetails", "x_SkuDetails")
_MOST_FAULTS = 50
_BATCH_BYTES = 8 * 2**20


@dataclass(slots=True, kw_only=True)
class BillNotes:
    """What a reader says about the bills it read, and what it counted."""

    notes: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Say something once."""
        if text not in self.notes:
            self.notes.append(text)

    def count(self, reason: str, rows: int) -> None:
        """Count rows of a reason."""
        if rows:
            self.counts[reason] = self.counts.get(reason, 0) + rows


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledCosts:
    """The rows of some bills as a `costs` table, with what is to be said about them."""

    table: pa.Table
    notes: tuple[str, ...]
    counts: Mapping[str, int]


def read_bills(paths: Sequence[Path]) -> BilledCosts:
    """Read bill files and folders of them (`*.csv`, `*.csv.gz`, `*.parquet`).

    Raises BillError naming every file, row, column and value that cannot be read.
    """
    said = BillNotes()
    pieces: list[pa.Table] = []
    files = _files(paths)
    once = _Once(said=said) if len(files) > 1 else None
    for path in files:
        pieces += _file_rows(path, said, once)
        if once is not None:
            once.end_file()
    if said.faults:
        raise _bill_error(said.faults)
    table = pa.concat_tables(pieces) if pieces else empty_table("costs")
    overlaps = list(charged_twice(table, "the bills together,"))
    if overlaps:
        raise _bill_error(overlaps)
    _say_currencies(table, said)
    return BilledCosts(table=table, notes=tuple(said.notes), counts=dict(said.counts))


@dataclass(slots=True, kw_only=True)
class _Once:
    """Charges of several files, each taken once: a row that repeats one of an earlier file in every column is the same charge.

    Within a file rows may repeat: its issuer wrote it so (FOCUS 1.3 splits a host's cost over what ran on it).
    """

    said: BillNotes
    _earlier: Counter[int] = field(default_factory=Counter)
    _here: Counter[int] = field(default_factory=Counter)

    def fresh(self, table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Tell which rows (n_rows,) of the current file no earlier file holds."""
        fresh = np.ones(table.num_rows, dtype=np.bool_)
        for row, charge in enumerate(zip(*(_cells(table[name]) for name in sorted(table.column_names)), strict=True)):
            key = hash(charge)
            self._here[key] += 1
            fresh[row] = self._here[key] > self._earlier[key]
        self.said.count("bills: charges that an earlier file holds too, dropped", int((~fresh).sum()))
        return fresh

    def end_file(self) -> None:
        """Take the current file's charges as known."""
        self._earlier |= self._here
        self._here.clear()


def _cells(column: pa.ChunkedArray) -> list[object]:
    """Return a column's values as they can be told apart."""
    values = column.to_pylist()
    return [str(value) for value in values] if pa.types.is_nested(column.type) else values


def _bill_error(faults: Sequence[Fault]) -> BillError:
    shown = "\n".join(f"  - {fault}" for fault in faults[:_MOST_FAULTS])
    more = f"\n  ... and {len(faults) - _MOST_FAULTS} more" if len(faults) > _MOST_FAULTS else ""
    return BillError(f"{fault_count(faults)} in the bills:\n{shown}{more}")


def _files(paths: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if file.is_file() and _kind(file) is not None)
            if not inside:
                raise BillError(f"{path}: no *.csv, *.csv.gz or *.parquet inside")
            found += inside
        elif not path.is_file():
            raise BillError(f"{path}: no such file")
        elif _kind(path) is None:
            raise BillError(f"{path}: a bill is *.csv, *.csv.gz or *.parquet")
        else:
            found.append(path)
    return found


def _kind(path: Path) -> str | None:
    name = path.name.lower()
    if name.endswith((".csv", ".csv.gz")):
        return "csv"
    return "parquet" if name.endswith((".parquet", ".snappy.parquet")) else None


def _file_rows(path: Path, said: BillNotes, once: _Once | None) -> Iterator[pa.Table]:
    first_row = 0
    for batch in _batches(path):
        table = pa.Table.from_batches([batch])
        if first_row == 0:
            _say_version(path, frozenset(table.column_names), said)
        if _is_other_data_set(table.column_names):
            return
        fresh = np.ones(table.num_rows, dtype=np.bool_) if once is None else once.fresh(table)
        try:
            yield _costs(table, path, first_row, said, fresh)
        except ARROW_ERRORS as error:
            rows = f"{first_row + 1} to {first_row + table.num_rows}"
            raise BillError(f"{path} rows {rows}: {str(error).splitlines()[0]}; export the bill again") from error
        first_row += table.num_rows
    if first_row == 0:
        said.note(f"{path.name}: no rows in it")


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows in batches of bounded size; a CSV's cells all as text."""
    if path.stat().st_size == 0:
        raise BillError(f"{path}: the file is empty")
    try:
        if _kind(path) == "parquet":
            for batch in open_parquet(path).iter_batches():
                batch.validate(full=True)
                yield batch
            return
        with open_packed(path) as stream, pcsv.open_csv(stream, **_csv_options(path)) as reader:
            yield from reader
    except BundleError as error:
        raise BillError(str(error.faults[0])) from error
    except InputError as error:
        raise BillError(str(error)) from error
    except ARROW_ERRORS as error:
        raise BillError(
            f"{path}: not readable as CSV or Parquet: {str(error).splitlines()[0]}; export the bill again"
        ) from error


def _csv_options(path: Path) -> dict[str, pcsv.ReadOptions | pcsv.ParseOptions | pcsv.ConvertOptions]:
    parse = pcsv.ParseOptions(newlines_in_values=True)
    reading = pcsv.ReadOptions(block_size=_BATCH_BYTES)
    as_text = pcsv.ConvertOptions(
        column_types=dict.fromkeys(column_names(path), pa.string()), strings_can_be_null=False
    )
    return {"read_options": reading, "parse_options": parse, "convert_options": as_text}


def _is_other_data_set(columns: Sequence[str]) -> bool:
    """Tell the other data sets of FOCUS (contract commitments, invoices, billing periods) from cost rows."""
    return "ChargePeriodStart" not in columns and any(
        name in columns for name in ("ContractCommitmentId", "InvoiceDetailId", "BillingPeriodStatus")
    )


def _say_version(path: Path, columns: frozenset[str], said: BillNotes) -> None:
    if is_cur(columns):
        said.note(f"{path.name}: AWS CUR 2.0, brought to FOCUS")
        return
    if _is_other_data_set(sorted(columns)):
        said.note(f"{path.name}: another FOCUS data set (no cost rows), left out")
        return
    version = version_of(columns)
    said.note(f"{path.name}: FOCUS {version}")
    unknown = unknown_columns(columns)
    if unknown and version == NEWEST:
        listed = ", ".join(sorted(unknown)[:5])
        said.note(f"{path.name}: columns that FOCUS {version} does not have ({listed}); newer? read as {version}")
    elif unknown:
        said.note(f"{path.name}: columns that no FOCUS version has, left out: {', '.join(sorted(unknown)[:5])}")


def _costs(
    table: pa.Table, path: Path, first_row: int, said: BillNotes, fresh: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> pa.Table:
    """Bring the fresh rows of a batch to the `costs` schema; cells that cannot be read become faults that name them."""
    if is_cur(frozenset(table.column_names)):
        table = to_focus(table)
    table = _with_expected_names(table, path, said)
    reader = _BillReader(table=table, path=path, first_row=first_row, said=said)
    columns = [reader.column(column) for column in COSTS if column.name != "instance_type"]
    names = [column.name for column in COSTS if column.name != "instance_type"]
    result = pa.table([*columns, reader.instance_types()], names=[*names, "instance_type"])
    kept = pc.and_(reader.sound_rows(result), pa.array(fresh))
    wanted = arrow_schema("costs").names
    return conform("costs", result.filter(kept).select(wanted), where=str(path))


def _with_expected_names(table: pa.Table, path: Path, said: BillNotes) -> pa.Table:
    """Return the batch with columns under FOCUS' names: other cases and snake_case are renamed, and said."""
    by_fold = {column.name.replace("_", "").casefold(): column.name for column in COSTS}
    present = set(table.column_names)
    names = []
    for name in table.column_names:
        expected = by_fold.get(name.replace("_", "").casefold(), name)
        if expected != name and expected not in present and name not in KNOWN:
            said.note(f"{path.name}: column {name} read as {expected}")
            names.append(expected)
        else:
            names.append(name)
    table = table.rename_columns(names)
    for name, others in _SYNONYMS.items():
        other = next((synonym for synonym in others if synonym in table.column_names), None)
        if name not in table.column_names and other is not None:
            table = table.append_column(name, table.column(other))
    _require(table, path)
    return table


def _require(table: pa.Table, path: Path) -> None:
    missing = [name for name in _NEEDED if name not in table.column_names]
    if not missing:
        return
    lines = []
    for name in missing:
        near = near_matches(name, table.column_names)
        lines.append(f"  - {path}: column {name} is missing" + (f"; is it {' or '.join(near)}?" if near else ""))
    raise BillError("not a FOCUS bill (1.0-1.4) nor an AWS CUR 2.0:\n" + "\n".join(lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class _BillReader:
    """Reads the columns of one batch."""

    table: pa.Table
    path: Path
    first_row: int
    said: BillNotes

    def column(self, column: Column) -> pa.ChunkedArray:
        """Return a column of `costs`, all null where the bill has none."""
        kind = arrow_type(column.dtype)
        if column.name not in self.table.column_names:
            return pa.chunked_array([pa.nulls(self.table.num_rows, kind)])
        raw = self.table.column(column.name)
        if raw.type == kind and not pa.types.is_string(kind):
            return self._finite(column, raw) if column.dtype is Dtype.FLOAT else raw
        if column.dtype is Dtype.TIME and pa.types.is_timestamp(raw.type):
            return raw.cast(pa.timestamp("us", tz=raw.type.tz or "UTC")).cast(kind)
        if column.dtype is Dtype.FLOAT and not (pa.types.is_string(raw.type) or pa.types.is_large_string(raw.type)):
            return self._finite(column, raw.cast(kind, safe=False))
        if column.dtype is Dtype.LABELS:
            return self._labels(raw)
        cells = texts(raw)
        if column.dtype is Dtype.STRING:
            return cells
        read: Callable[[str], object] = read_time if column.dtype is Dtype.TIME else read_number
        values, refused = mapped(cells, read, kind)
        for row in refused[: _MOST_FAULTS if column.name in _NEEDED else 0]:
            where = f"{self.path} row {self.first_row + row + 1}"
            what = f"{column.name} is not a {'time' if column.dtype is Dtype.TIME else 'number'}"
            self.said.faults.append(
                Fault(what=what, where=where, value=str(cells[row].as_py()), cure=_CURES[column.dtype])
            )
        if column.name not in _NEEDED:
            self.said.count(f"bills: {column.name} unreadable, left empty", len(refused))
        return values

    def _finite(self, column: Column, values: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return numbers with NaN and infinity made null, and count those that may be empty."""
        finite = pc.fill_null(pc.is_finite(values), True)
        if column.name not in _NEEDED:
            self.said.count(f"bills: {column.name} unreadable, left empty", pc.sum(pc.invert(finite)).as_py() or 0)
        return pc.if_else(finite, values, pa.scalar(None, values.type))

    def _labels(self, raw: pa.ChunkedArray) -> pa.ChunkedArray:
        kind = arrow_type(Dtype.LABELS)
        if pa.types.is_map(raw.type):
            return raw.cast(kind)
        if not (pa.types.is_string(raw.type) or pa.types.is_large_string(raw.type)):
            self.said.count("bills: Tags unreadable, left empty", len(raw))
            return pa.chunked_array([pa.nulls(len(raw), kind)])
        values, refused = mapped(texts(raw), read_labels, kind)
        self.said.count("bills: Tags unreadable, left empty", len(refused))
        return values

    def instance_types(self) -> pa.ChunkedArray:
        """Return the instance type of each row: from price details, else from what the SKU or the charge is called."""
        found = []
        for names, read in ((_DETAIL_COLUMNS, instance_type_in_details), (_TYPE_COLUMNS, find_instance_type)):
            for name in names:
                if name in self.table.column_names:
                    values, _ = mapped(texts(self.table.column(name)), read, pa.string())
                    found.append(values)
        return first_known(found, self.table.num_rows)

    def sound_rows(self, result: pa.Table) -> pa.ChunkedArray:
        """Return which rows can be used: with a cost and a period; a row without is counted and dropped."""
        whole = pc.and_(result["ChargePeriodStart"].is_valid(), result["ChargePeriodEnd"].is_valid())
        self.said.count("bills: rows without a charge period dropped", pc.sum(pc.invert(whole)).as_py() or 0)
        priced = pc.or_(result["BilledCost"].is_valid(), pc.invert(whole))
        self.said.count("bills: rows without a billed cost dropped", pc.sum(pc.invert(priced)).as_py() or 0)
        return pc.and_(whole, result["BilledCost"].is_valid())


_CURES = {
    Dtype.TIME: "write 2026-01-31T00:00:00Z",
    Dtype.FLOAT: "write a plain number such as 1234.56",
}


def _say_currencies(table: pa.Table, said: BillNotes) -> None:
    currencies = sorted(
        currency for currency in pc.unique(table["BillingCurrency"]).to_pylist() if currency is not None
    )
    if len(currencies) > 1:
        said.note(f"bills in several currencies ({', '.join(currencies)}): kept as billed, do not add them up")
    elif currencies and currencies != ["USD"]:
        said.note(f"the bill is in {currencies[0]}: kept as billed; list prices are in USD")
