"""Rows under declared columns: what a command answers, before it takes a form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from trimtab.emit import blocks
from trimtab.emit.blocks import StyledText, Table, TableRow, Tone
from trimtab.errors import UnknownName
from trimtab.safe_text import for_terminal

Cell = str | int | float | bool | Sequence[str] | None
"""A raw value. None means unknown or not sold: never shown as 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetColumn:
    """One column: its key in machine formats, its title and its way of showing a value to people."""

    key: str
    title: str
    show: Callable[[Cell], str] = str
    right: bool = False
    tone: Tone = Tone.PLAIN
    strong: bool = False
    whole: bool = False
    """Never broken over two lines; numbers never are."""
    repeat: bool = False
    """Stands again in every part of a table that is too wide for the screen."""

    def text(self, cell: Cell) -> str:
        """Return what a person reads; an unknown value is a dash."""
        return "–" if cell is None or cell == "" else for_terminal(self.show(cell))

    def span(self, cell: Cell) -> StyledText:
        """Return the same in the column's style."""
        return StyledText(self.text(cell), self.tone, self.strong)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """Rows of raw values under declared columns."""

    columns: Sequence[SheetColumn]
    rows: Sequence[Mapping[str, Cell]]
    section: str = ""
    """A key whose value heads each run of rows that share it, in tables for people."""
    notes: Sequence[str] = ()
    """Lines for people, under the table. One of several lines is laid out already (a command, a picture): kept as it is."""

    def table(self) -> Table:
        """Return the sheet as people read it."""
        heads = (
            blocks.TableColumn(title=column.title, right=column.right, whole=column.whole, repeat=column.repeat)
            for column in self.columns
        )
        rows = (
            TableRow(
                cells=tuple(column.span(row.get(column.key)) for column in self.columns),
                group=str(row[self.section]) if self.section else "",
            )
            for row in self.rows
        )
        return Table(columns=tuple(heads), rows=tuple(rows), group_title=self.section)

    def only(self, fields: Sequence[str]) -> Sheet:
        """Return the sheet with the named columns only, in that order; raises UnknownName for a column it lacks."""
        by_key = {column.key: column for column in self.columns}
        for name in fields:
            if name not in by_key:
                raise UnknownName("field", name, by_key)
        return replace(self, columns=[by_key[name] for name in fields])


def fixed(digits: int) -> Callable[[Cell], str]:
    """Return a way to show numbers with so many digits after the point, thousands apart."""
    return lambda cell: f"{cell:,.{digits}f}" if isinstance(cell, int | float) else str(cell)
