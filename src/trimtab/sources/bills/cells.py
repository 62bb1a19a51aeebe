"""Cells of bills as text -> values: absent texts, dates, money, tags, instance types. A column at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.tables.column_checks import ABSENT_TEXTS
from trimtab.units import as_utc

T = TypeVar("T")

_ABSENT = pa.array(["", *sorted(ABSENT_TEXTS)])
_INSTANCE_TYPES = re.compile(
    r"""(?<![\w.-])(
        (?:ml\.)?[a-z]{1,4}\d{1,2}[a-z0-9]*(?:-[a-z0-9]+)?\.(?:\d*x?large|medium|small|micro|nano|metal(?:-\w+)?)
        | Standard_[A-Z]+\d+[A-Za-z0-9_-]*
        | (?:a2|a3|a4|a4x|g2|g4)-(?:highgpu|megagpu|ultragpu|edgegpu|standard|maxgpu)-\d+g?
        | (?:VM|BM)\.GPU[\w.]*
    )(?![\w-])""",
    re.VERBOSE,
)


def texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column as text, with NULL, N/A and the like made null."""
    plain = column.cast(pa.string()) if not pa.types.is_string(column.type) else column
    trimmed = pc.utf8_trim_whitespace(plain)
    return pc.if_else(pc.is_in(trimmed, value_set=_ABSENT), pa.scalar(None, pa.string()), trimmed)


def mapped(column: pa.ChunkedArray, read: Callable[[str], T], kind: pa.DataType) -> tuple[pa.ChunkedArray, list[int]]:
    """Read each distinct text once; return the values, and the rows whose text `read` refused with ValueError."""
    encoded = column.combine_chunks().dictionary_encode()
    values: list[T | None] = []
    refused: list[int] = []
    for number, text in enumerate(encoded.dictionary.to_pylist()):
        try:
            values.append(read(text))
        except ValueError:
            values.append(None)
            refused.append(number)
    taken = pa.array(values, type=kind).take(encoded.indices)
    if not refused:
        return pa.chunked_array([taken]), []
    bad = pc.is_in(encoded.indices, value_set=pa.array(refused, type=encoded.indices.type))
    return pa.chunked_array([taken]), pc.indices_nonzero(bad).to_pylist()


def read_time(text: str) -> datetime:
    """Read a moment: ISO 8601, with or without zone (UTC then), or `YYYY-MM-DD HH:MM:SS`; raises ValueError."""
    return as_utc(datetime.fromisoformat(text.removesuffix(" UTC")))


def read_number(text: str) -> float:
    """Read a finite number; raises ValueError."""
    value = float(text)
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(f"{text!r} is no finite number")
    return value


def read_labels(text: str) -> list[tuple[str, str]]:
    """Read tags from a JSON object; values that are no text keep their JSON. Raises ValueError."""
    try:
        raw: object = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if not isinstance(raw, dict):
        raise ValueError("tags are no JSON object")
    return [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in raw.items()]


def find_instance_type(text: str) -> str | None:
    """Return the first instance type that a text names, in AWS', Azure's, Google's or Oracle's spelling."""
    matched = _INSTANCE_TYPES.search(text)
    return matched[1] if matched else None


def instance_type_in_details(text: str) -> str | None:
    """Return the instance type in a SkuPriceDetails (or x_SkuDetails) object; None where it names none."""
    try:
        raw: object = json.loads(text)
    except (ValueError, RecursionError):
        return find_instance_type(text)
    if not isinstance(raw, dict):
        return None
    for key in ("InstanceType", "x_InstanceType", "ServiceType", "instanceType", "machineSpec", "VMSize"):
        if isinstance(raw.get(key), str) and raw[key]:
            return str(raw[key])
    return find_instance_type(text)


def first_known(columns: Sequence[pa.ChunkedArray], rows: int) -> pa.ChunkedArray:
    """Return in each row the first value that is not null."""
    if not columns:
        return pa.chunked_array([pa.nulls(rows, pa.string())])
    return pc.coalesce(*columns)
