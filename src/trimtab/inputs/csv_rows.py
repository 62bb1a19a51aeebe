"""CSV that others wrote, as rows of text: a known number of columns, each named once, every cell there."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from trimtab.errors import InputError
from trimtab.inputs.files import read_text

MOST_COLUMNS = 4_096
"""The widest bill that is known, AWS' legacy CUR with tags, has about 400."""
MOST_HEAD_BYTES = 2**20
_MOST_NAMED = 5


def read_csv_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file with a head; raises InputError. Row 2 of the file is the first that is returned."""
    return csv_rows(read_text(path), str(path))


def csv_rows(text: str, where: str) -> list[dict[str, str]]:
    """Return the rows of a CSV text by column; a cell that a short row lacks is empty. Raises InputError."""
    cells = csv.reader(io.StringIO(text, newline=""))
    try:
        rows = list(_checked(cells, where))
    except csv.Error as error:
        raise InputError(f"{where}: not readable as CSV ({error}); write it again as plain CSV in UTF-8") from error
    if not rows:
        return []
    head, body = rows[0], rows[1:]
    long = [number for number, row in enumerate(body, start=2) if len(row) > len(head)]
    if long:
        named = ", ".join(map(str, long[:_MOST_NAMED])) + (" ..." if len(long) > _MOST_NAMED else "")
        raise InputError(f"{where} row {named}: more cells than the {len(head)} columns; quote cells that hold commas")
    return [dict(zip(head, [*row, *[""] * (len(head) - len(row))], strict=True)) for row in body]


def check_columns(names: list[str], where: str) -> None:
    """Raise InputError where there are too many columns, or two of one name."""
    if len(names) > MOST_COLUMNS:
        raise InputError(
            f"{where}: {len(names):,} columns, where {MOST_COLUMNS:,} are the most; keep those that are needed"
        )
    twice = sorted({name for name in names if name and names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise InputError(f"{where}: the column {', '.join(twice[:_MOST_NAMED])} stands twice; keep one")


def _checked(cells: Iterator[list[str]], where: str) -> Iterator[list[str]]:
    """Yield the rows that are not empty; the head is checked before any other row is read."""
    head: list[str] | None = None
    for row in cells:
        if row and head is None:
            head = row
            check_columns(head, where)
        if row:
            yield row
