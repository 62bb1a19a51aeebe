"""Lay a sheet out as a plain table that fits the screen: broken texts, groups under their names, parts where it is too wide."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import click

from trimtab.cli.sheet import Column, Sheet
from trimtab.safe_text import for_terminal

_GAP = 2
_NARROWEST = 8
"""No column is squeezed below this."""


def text_table(sheet: Sheet, width: int, colour: bool) -> str:
    """Return a sheet as a table of at most `width` columns, where its unbreakable cells allow it."""
    parts = ["\n".join(_part_lines(columns, sheet, width, colour)) for columns in _parts(sheet, width)]
    notes = [line for note in sheet.notes for line in _note_lines(for_terminal(note), width)]
    foot = "\n".join(_styled(line, "dim", colour) for line in notes)
    return "\n\n".join([*parts, *([foot] if foot else [])])


def _note_lines(note: str, width: int) -> list[str]:
    """Break a note into lines; one that has lines already is never re-flowed, so that it can be copied."""
    return ["", *note.splitlines()] if "\n" in note else textwrap.wrap(note, width, subsequent_indent="  ")


def _part_lines(columns: Sequence[Column], sheet: Sheet, width: int, colour: bool) -> list[str]:
    """Lay out one table: a head, then the rows, each group under its name."""
    widths, gap = _widths(columns, sheet, width)
    lines = _row_lines(columns, [column.title for column in columns], widths, gap, "dim" if colour else None)
    group = ""
    for row in sheet.rows:
        if sheet.section and row[sheet.section] != group:
            group = for_terminal(str(row[sheet.section]))
            lines += ["", _styled(group, "bold cyan", colour)]
        texts = [column.text(row.get(column.key)) for column in columns]
        lines += _row_lines(columns, texts, widths, gap, "" if colour else None)
    return lines


def _row_lines(
    columns: Sequence[Column], texts: Sequence[str], widths: Sequence[int], gap: int, style: str | None
) -> list[str]:
    """Return a row as one line, or as several where a text has to be broken. A style of None means no colours at all."""
    broken = [_broken(text, wide) for text, wide in zip(texts, widths, strict=True)]
    lines = []
    for i in range(max(len(cell) for cell in broken)):
        cells = []
        for column, cell, wide in zip(columns, broken, widths, strict=True):
            text = cell[i] if i < len(cell) else ""
            placed = text.rjust(wide) if column.right else text.ljust(wide)
            cells.append(placed if style is None else _styled(placed, style or column.style, True))
        lines.append((" " * gap).join(cells).rstrip())
    return lines


def _broken(text: str, wide: int) -> list[str]:
    """Break a text into lines of a width, between words where it can be."""
    if len(text) <= wide:
        return [text]
    too_long = any(len(word) >= wide for word in text.split())
    return textwrap.wrap(text, wide, break_on_hyphens=too_long, subsequent_indent=" ")


def _widths(columns: Sequence[Column], sheet: Sheet, width: int) -> tuple[list[int], int]:
    """Return the width of each column and the gap between them; what may be broken gives way, the longest first."""
    widths = [_natural_width(sheet, column) for column in columns]
    gap = _GAP if sum(widths) + _GAP * (len(columns) - 1) <= width else 1
    soft = [i for i, column in enumerate(columns) if not (column.right or column.whole)]
    over = sum(widths) + gap * (len(columns) - 1) - width
    while over > 0 and soft:
        longest = max(soft, key=lambda i: widths[i])
        if widths[longest] <= _NARROWEST:
            break
        widths[longest] -= 1
        over -= 1
    return widths, gap


def _parts(sheet: Sheet, width: int) -> list[list[Column]]:
    """Split the columns into tables that each fit the width, with the repeated columns in front of every one."""
    kept = [column for column in sheet.columns if column.repeat]
    if not kept:
        return [list(sheet.columns)]
    base = sum(_natural_width(sheet, column) + _GAP for column in kept)
    parts: list[list[Column]] = [[]]
    used = base
    for column in (column for column in sheet.columns if not column.repeat):
        wide = _natural_width(sheet, column) + _GAP
        if parts[-1] and used + wide > width + _GAP:
            parts.append([])
            used = base
        parts[-1].append(column)
        used += wide
    return [[*kept, *part] for part in parts]


def _natural_width(sheet: Sheet, column: Column) -> int:
    return max(len(column.title), *(len(column.text(row.get(column.key))) for row in sheet.rows), 0)


def _styled(text: str, style: str, colour: bool) -> str:
    """Return text in a style of the words bold, dim and a colour's name."""
    if not (colour and style and text.strip()):
        return text
    words = style.split()
    hue = next((word for word in words if word not in {"bold", "dim"}), None)
    return click.style(text, fg=hue, bold="bold" in words or None, dim="dim" in words or None)
