"""Read the packaged tables of facts: CSV rows as mappings, and the few ways to read a cell."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from datetime import date
from functools import cache
from importlib.resources import files

CatalogRow = Mapping[str, str]


def packaged_rows(name: str) -> Iterator[CatalogRow]:
    """Yield the rows of a table that ships in `trimtab/catalog/data`, column name -> cell."""
    with (files("trimtab.catalog") / "data" / name).open(encoding="utf-8") as stream:
        cells = csv.reader(stream)
        head = next(cells)
        for row in cells:
            yield dict(zip(head, row, strict=True))


@cache
def day(cell: str) -> date:
    """Read an ISO date; the same few occur in thousands of rows."""
    return date.fromisoformat(cell)


def number(cell: str) -> float | None:
    """Read a number; None where the cell is empty, because an unknown figure is not 0."""
    return float(cell) if cell else None


def whole(cell: str) -> int | None:
    """Read a whole number; None where the cell is empty."""
    return int(cell) if cell else None


def items(cell: str) -> tuple[str, ...]:
    """Read a list separated by semicolons."""
    return tuple(part.strip() for part in cell.split(";") if part.strip())
