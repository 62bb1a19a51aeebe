"""The declared schemas as Arrow schemas, and conversion of tables to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.errors import BundleError, Fault, UnknownName, near_matches
from trimtab.tables.schemas import HISTOGRAM_BINS, TABLES, Column, Dtype


def arrow_type(dtype: Dtype) -> pa.DataType:
    """Return the one Arrow type of a column type."""
    match dtype:
        case Dtype.STRING:
            return pa.string()
        case Dtype.FLOAT:
            return pa.float64()
        case Dtype.INT:
            return pa.int64()
        case Dtype.BOOL:
            return pa.bool_()
        case Dtype.TIME:
            return pa.timestamp("us", tz="UTC")
        case Dtype.FLOATS:
            return pa.list_(pa.float64())
        case Dtype.INTS:
            return pa.list_(pa.int64())
        case Dtype.LABELS:
            return pa.map_(pa.string(), pa.string())
        case _:
            assert_never(dtype)


def columns_of(name: str) -> tuple[Column, ...]:
    """Return the declared columns of a table. Raises UnknownName with near matches."""
    if name not in TABLES:
        raise UnknownName("table", name, TABLES)
    return TABLES[name]


def arrow_schema(name: str, columns: Sequence[str] | None = None) -> pa.Schema:
    """Return a table's Arrow schema, of all columns or of the named ones in that order."""
    declared = {column.name: column for column in columns_of(name)}
    for column in columns or ():
        if column not in declared:
            raise UnknownName(f"column of {name}", column, declared)
    chosen = [declared[column] for column in columns] if columns is not None else list(declared.values())
    return pa.schema([pa.field(c.name, arrow_type(c.dtype), nullable=c.nullable) for c in chosen])


def empty_table(name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Return a table without rows: what an absent optional table reads as."""
    return arrow_schema(name, columns).empty_table()


Row = dict[str, object]
"""A row of a bundle's table by column, as sources write it; a column left out is null, one of labels takes a dict."""
RecordedRow = Mapping[str, object]
"""A row of a bundle's table by column, as it is read back."""


def table_from_rows(name: str, rows: Iterable[Mapping[str, object]]) -> pa.Table:
    """Build a table from rows as dicts; a key left out is null, a key that no column has raises UnknownName.

    Label columns take dicts. Raises BundleError if a column that must be there is null.
    """
    listed = list(rows)
    schema = arrow_schema(name)
    known = set(schema.names)
    for row in listed:
        for key in row:
            if key not in known:
                raise UnknownName(f"column of {name}", key, known)
    arrays = [pa.array([_plain(row.get(field.name)) for row in listed], type=field.type) for field in schema]
    return conform(name, pa.Table.from_arrays(arrays, names=schema.names))


def _plain(value: object) -> object:
    """Return a dict as the list of pairs that Arrow's map builder takes; any other value as it is."""
    return list(value.items()) if isinstance(value, Mapping) else value


def conform(name: str, table: pa.Table, *, where: str | None = None) -> pa.Table:
    """Return the table with exactly the declared columns, types and order.

    A missing nullable column is filled with nulls; a safe cast is made where types differ. Raises BundleError with every
    fault at once: unknown or missing columns, values that do not cast, nulls where none may be.
    """
    place = where or name
    faults = list(_unknown_columns(name, table, place))
    arrays = []
    for field in arrow_schema(name):
        array, fault = _conformed(table, field, place)
        arrays.append(array)
        if fault is not None:
            faults.append(fault)
    if faults:
        raise BundleError(faults)
    return pa.Table.from_arrays(arrays, schema=arrow_schema(name))


def _unknown_columns(name: str, table: pa.Table, place: str) -> Iterable[Fault]:
    known = [column.name for column in columns_of(name)]
    for column in table.column_names:
        if column not in known:
            near = near_matches(column, known)
            cure = f"did you mean {', '.join(near)}?" if near else "remove it"
            yield Fault(what="unknown column", where=place, value=column, cure=cure)


def _conformed(table: pa.Table, field: pa.Field, place: str) -> tuple[pa.ChunkedArray, Fault | None]:
    blank = pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    if field.name not in table.column_names:
        if field.nullable:
            return blank, None
        return blank, Fault(what=f"column {field.name} is missing", where=place, cure=f"add it as {field.type}")
    column = table.column(field.name)
    if column.type != field.type:
        try:
            column = column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            fault = Fault(
                what=f"column {field.name} is {column.type}, not {field.type}",
                where=place,
                value=str(error).splitlines()[0][:80],
                cure=f"write it as {field.type}",
            )
            return blank, fault
    if pa.types.is_list(field.type) and pa.types.is_integer(field.type.value_type):
        lengths = pc.not_equal(pc.list_value_length(column), HISTOGRAM_BINS)
        if pc.any(lengths).as_py():
            what = f"column {field.name} has a histogram without {HISTOGRAM_BINS} bins"
            return column, Fault(what=what, where=f"{place} row {lengths.index(True).as_py()}")
    if not field.nullable and column.null_count:
        row = column.is_null().index(True).as_py()
        return column, Fault(what=f"column {field.name} is null", where=f"{place} row {row}", cure="give it a value")
    return column, None
