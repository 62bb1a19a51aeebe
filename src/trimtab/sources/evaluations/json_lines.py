"""Rows of JSONL files and the scores in them, with the file and row in every message."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from trimtab.errors import InputError
from trimtab.inputs.files import read_text
from trimtab.inputs.json_text import check_depth

Row = Mapping[str, object]
USUAL_SLICES = ("subject", "category")
"""Fields by which answers are sliced wherever they are there."""


def rows_of(path: Path) -> Iterator[tuple[int, Row]]:
    """Yield each row's number, from 1, and its object; raises InputError for a row that holds none."""
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if line.strip():
            yield number, _row(line, f"{path}, row {number}")


def first_row(path: Path) -> Row:
    """Return the first row; raises InputError where there is none."""
    found = next(rows_of(path), None)
    if found is None:
        raise InputError(f"{path} is empty; was the evaluation cut short?")
    return found[1]


def _row(line: str, where: str) -> Row:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON ({error}); is the file cut short? write it again") from error
    if not isinstance(found, dict):
        raise InputError(f"{where}: a row must be one JSON object (saw {line[:40]!r})")
    check_depth(found, where)
    return found


def score_of(value: object, what: str, where: str) -> float:
    """Return a score as a number; NaN where it is null. Raises InputError for what is no number.

    True and false are 1 and 0. Not finite ones are returned, so that all of a side are reported at once.
    """
    if isinstance(value, bool | int | float):
        return float(value)
    if value is None:
        return math.nan
    raise InputError(f"{where}: {what} is no number (saw {str(value)[:40]!r}); name a metric of one number an answer")


def slices_of(row: Row, fields: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the fields by which a row is sliced, with their values: those asked for, and subject and category."""
    wanted = dict.fromkeys((*fields, *USUAL_SLICES))
    return tuple((field, str(row[field])) for field in wanted if isinstance(row.get(field), str | int | bool))


def check_slices(seen: Sequence[tuple[tuple[str, str], ...]], fields: Sequence[str], where: Path) -> None:
    """Raise InputError for a field that was asked for and stands in no row."""
    known = {field for slices in seen for field, _ in slices}
    missing = [field for field in fields if field not in known]
    if missing:
        raise InputError(f"{where}: no row has a field {', '.join(missing)} to slice by; rows may hold it under `doc`")
