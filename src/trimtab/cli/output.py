"""Show rows as a table, JSON, YAML, CSV or Markdown: one shape of answer for every command.

A command builds a `Sheet` of raw values; people's formats show them formatted, machines' formats carry them raw, under keys
that name their units.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import assert_never

import click
import yaml

from trimtab.errors import UnknownName, UsageError

Cell = str | int | float | bool | Sequence[str] | None
"""A raw value. None means unknown or not sold: never shown as 0."""

SCHEMA_VERSION = 1
PLAIN_WIDTH = 80
"""Columns of a table that goes to a file or a pipe."""
_GAP = 2
_NARROWEST = 8
"""No column is squeezed below this."""


class Format(Enum):
    """The forms an answer takes."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    MARKDOWN = "markdown"
    HTML = "html"
    GITHUB_COMMENT = "github-comment"


ROW_FORMATS = (Format.TABLE, Format.JSON, Format.YAML, Format.CSV, Format.MARKDOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: its key in machine formats, its title and its way of showing a value to people."""

    key: str
    title: str
    show: Callable[[Cell], str] = str
    right: bool = False
    style: str = ""
    whole: bool = False
    """Never broken over two lines; numbers never are."""
    repeat: bool = False
    """Stands again in every part of a table that is too wide for the screen."""

    def text(self, cell: Cell) -> str:
        """Return what a person reads; an unknown value is a dash."""
        return "–" if cell is None or cell == "" else self.show(cell)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """Rows of raw values under declared columns."""

    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Cell]]
    section: str = ""
    """A key whose value heads each run of rows that share it, in tables for people."""
    notes: Sequence[str] = ()
    """Lines for people, under the table."""

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


def output_options(*formats: Format) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Add `-o/--output`, `--out` and `--fields` to a command, as parameters `output_format`, `out` and `fields`."""
    names = [one.value for one in formats or ROW_FORMATS]

    def add(command: Callable[..., object]) -> Callable[..., object]:
        for option in (
            click.option(
                "--fields", callback=_field_names, metavar="A,B,...", help="Only these columns, by their keys."
            ),
            click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write to a file."),
            click.option(
                "-o",
                "--output",
                "output_format",
                type=click.Choice(names),
                default=names[0],
                show_default=True,
                callback=lambda _context, _parameter, value: Format(value),
                help="The form of the answer.",
            ),
        ):
            command = option(command)
        return command

    return add


def write(text: str, out: Path | None) -> None:
    """Write an answer to a file, or to the screen."""
    if out is None:
        click.echo(text, color=_colour_wanted(), nl=not text.endswith("\n"))
        return
    try:
        out.write_text(text if text.endswith("\n") else f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error}") from error


def write_sheet(sheet: Sheet, form: Format, *, out: Path | None = None, fields: Sequence[str] = ()) -> None:
    """Render a sheet and write it; a table fits the terminal, or 80 columns where there is none."""
    chosen = sheet.only(fields) if fields else sheet
    write(
        render(chosen, form, width=PLAIN_WIDTH if out else screen_width(), colour=out is None and _colour_wanted()), out
    )


def render(sheet: Sheet, form: Format, *, width: int = PLAIN_WIDTH, colour: bool = False) -> str:
    """Return a sheet as text in one of the row formats."""
    match form:
        case Format.TABLE:
            return _table(sheet, width, colour)
        case Format.JSON:
            return json.dumps(_document(sheet), indent=2, allow_nan=False, ensure_ascii=False)
        case Format.YAML:
            return yaml.safe_dump(_document(sheet), sort_keys=False, allow_unicode=True)
        case Format.CSV:
            return _csv(sheet)
        case Format.MARKDOWN:
            return _markdown(sheet)
        case Format.HTML | Format.GITHUB_COMMENT:
            raise UsageError(f"this answer has no form {form.value}")
    assert_never(form)


def screen_width() -> int:
    """Return the columns of the terminal, or 80 where the answer goes elsewhere."""
    return shutil.get_terminal_size((PLAIN_WIDTH, 0)).columns


def _colour_wanted() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _field_names(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in value.split(",") if name.strip()) if value else ()


def _document(sheet: Sheet) -> dict[str, object]:
    rows = [{column.key: _plain(row.get(column.key)) for column in sheet.columns} for row in sheet.rows]
    return {"schema_version": SCHEMA_VERSION, "rows": rows}


def _plain(cell: Cell) -> object:
    return list(cell) if isinstance(cell, Sequence) and not isinstance(cell, str) else cell


def _csv(sheet: Sheet) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([column.key for column in sheet.columns])
    for row in sheet.rows:
        cells = (_plain(row.get(column.key)) for column in sheet.columns)
        writer.writerow([";".join(cell) if isinstance(cell, list) else cell for cell in cells])
    return stream.getvalue()


def _markdown(sheet: Sheet) -> str:
    columns = [*([Column(key=sheet.section, title=sheet.section)] if sheet.section else []), *sheet.columns]
    lines = [
        "| " + " | ".join(column.title for column in columns) + " |",
        "|" + "|".join("---:" if column.right else "---" for column in columns) + "|",
    ]
    for row in sheet.rows:
        cells = (column.text(row.get(column.key)).replace("|", "\\|") for column in columns)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, *(f"\n{note}" for note in sheet.notes)])


def _table(sheet: Sheet, width: int, colour: bool) -> str:
    parts = ["\n".join(_part_lines(columns, sheet, width, colour)) for columns in _parts(sheet, width)]
    notes = [line for note in sheet.notes for line in textwrap.wrap(note, width, subsequent_indent="  ")]
    foot = "\n".join(_styled(line, "dim", colour) for line in notes)
    return "\n\n".join([*parts, *([foot] if foot else [])])


def _part_lines(columns: Sequence[Column], sheet: Sheet, width: int, colour: bool) -> list[str]:
    """Lay out one table: a head, then the rows, each group under its name."""
    widths, gap = _widths(columns, sheet, width)
    lines = _row_lines(columns, [column.title for column in columns], widths, gap, "dim" if colour else None)
    group = ""
    for row in sheet.rows:
        if sheet.section and row[sheet.section] != group:
            group = str(row[sheet.section])
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
