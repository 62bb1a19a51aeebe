"""Rows under declared columns, shown as a table, JSON, YAML, CSV or Markdown: the shape of every command's answer.

A command builds a `Sheet` of raw values. Formats for people show them formatted; formats for programs keep them raw, under keys
that name their units.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import assert_never

import click
import yaml

from trimtab.cli.options import ROW_FORMATS, WORKBOOK_NEEDS_A_FILE, AnswerOptions, Format
from trimtab.emit import blocks
from trimtab.emit.blocks import Page, Paragraph, StyledText, Table, TableRow, Tone, bullets
from trimtab.emit.writers import html, markdown, terminal, xlsx
from trimtab.emit.writers.comment import write_comment
from trimtab.emit.writers.xlsx import Value, WorkbookSheet
from trimtab.errors import UnknownName, UsageError
from trimtab.safe_text import csv_text, for_terminal

Cell = str | int | float | bool | Sequence[str] | None
"""A raw value. None means unknown or not sold; it is never shown as 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetColumn:
    """One column: its key in machine formats, its title, and how to format its values for people."""

    key: str
    title: str
    show: Callable[[Cell], str] = str
    right: bool = False
    tone: Tone = Tone.PLAIN
    strong: bool = False
    whole: bool = False
    """Never wrapped; numbers never are."""
    repeat: bool = False
    """Repeated in every part when a table is too wide for the screen."""
    wide_only: bool = False
    """Left out of pages on a phone."""
    gloss: str = ""
    """Explains the column's values if the title does not."""

    def text(self, cell: Cell) -> str:
        """Return a value as people read it; an unknown value is a dash."""
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
    """Key whose value is the heading of consecutive rows that share it, in tables for people."""
    notes: Sequence[str] = ()
    """Lines below the table, for people. An entry with several lines is preformatted (a command, a drawing) and printed
    verbatim."""

    def table(self) -> Table:
        """Return the sheet as people read it."""
        heads = (
            blocks.TableColumn(
                title=column.title,
                right=column.right,
                whole=column.whole,
                repeat=column.repeat,
                wide_only=column.wide_only,
                gloss=column.gloss,
            )
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
        """Return the sheet with the named columns only, in that order. Raises UnknownName for an unknown column."""
        by_key = {column.key: column for column in self.columns}
        for name in fields:
            if name not in by_key:
                raise UnknownName("field", name, by_key)
        return replace(self, columns=[by_key[name] for name in fields])


def fixed(digits: int, *, signed: bool = False) -> Callable[[Cell], str]:
    """Return a formatter for numbers with that many decimals and thousands separators; `signed` shows the sign of a change."""
    form = f"{'+' if signed else ''},.{digits}f"
    return lambda cell: format(cell, form) if isinstance(cell, int | float) else str(cell)


def percent(digits: int, *, signed: bool = False) -> Callable[[Cell], str]:
    """Return a formatter for shares, shown in percent with that many decimals; `signed` shows the sign of a change."""
    form = f"{'+' if signed else ''}.{digits}%"
    return lambda cell: format(cell, form) if isinstance(cell, int | float) else str(cell)


__all__ = [
    "ROW_FORMATS",
    "Cell",
    "Format",
    "Sheet",
    "SheetColumn",
    "colour_wanted",
    "fixed",
    "percent",
    "render",
    "screen_width",
    "sheet_comment",
    "write",
    "write_answer",
    "write_bytes",
    "write_page",
    "write_sheet",
    "write_workbook",
]

SCHEMA_VERSION = 1
PLAIN_WIDTH = 80
"""Width of a table that goes to a file or a pipe."""


def write(text: str, out: Path | None) -> None:
    """Write an answer to a file, or to the screen."""
    if out is None:
        shown = for_terminal(text, colours=True) if sys.stdout.isatty() else text
        click.echo(shown, color=colour_wanted(), nl=not text.endswith("\n"))
        return
    try:
        out.write_text(text if text.endswith("\n") else f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error}") from error


def write_bytes(content: bytes, out: Path) -> None:
    """Write a binary answer to a file."""
    try:
        out.write_bytes(content)
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error}") from error


def write_sheet(sheet: Sheet, form: Format, *, out: Path | None = None, fields: Sequence[str] = ()) -> None:
    """Render a sheet and write it; a table fits the terminal, or 80 columns if there is none."""
    chosen = sheet.only(fields) if fields else sheet
    write(
        render(chosen, form, width=PLAIN_WIDTH if out else screen_width(), colour=out is None and colour_wanted()), out
    )


def write_answer(sheet: Sheet, answer: AnswerOptions) -> None:
    """Write rows as requested. Raises UnknownName for an unknown column, UsageError if the file cannot be written."""
    write_sheet(sheet, answer.output_format, out=answer.out, fields=answer.fields)


def write_workbook(sheets: Mapping[str, Sheet], out: Path | None) -> None:
    """Write a workbook with one sheet per title. Raises UsageError without a file, or if XlsxWriter is not installed."""
    if out is None:
        raise UsageError(WORKBOOK_NEEDS_A_FILE)
    write_bytes(xlsx.write_workbook([_workbook_sheet(title, sheet) for title, sheet in sheets.items()]), out)


def _workbook_sheet(title: str, sheet: Sheet) -> WorkbookSheet:
    return WorkbookSheet(
        title=title,
        heads=[column.key for column in sheet.columns],
        formats=[_number_format(column.key) for column in sheet.columns],
        rows=[[_in_one_cell(row.get(column.key)) for column in sheet.columns] for row in sheet.rows],
    )


def _number_format(key: str) -> str:
    """Return the spreadsheet format of a column, from the unit in its key."""
    words = key.split("_")
    return "[$$-409]#,##0.00##" if "usd" in words else "0.0%" if words[-1] == "frac" else "General"


def _in_one_cell(cell: Cell) -> Value:
    return cell if cell is None or isinstance(cell, str | int | float | bool) else ";".join(cell)


def write_page(page: Page, form: Format, out: Path | None) -> None:
    """Write a page in one of the forms for people."""
    match form:
        case Format.TABLE:
            width, colour = (PLAIN_WIDTH, False) if out else (screen_width(), colour_wanted())
            write(terminal.write_page(page, width=width, colour=colour), out)
        case Format.MARKDOWN:
            write(markdown.write_page(page), out)
        case Format.HTML:
            write(html.write_page(page), out)
        case _:
            raise UsageError(f"this answer has no format {form.value}")


def render(sheet: Sheet, form: Format, *, width: int = PLAIN_WIDTH, colour: bool = False) -> str:
    """Return a sheet as text in one of the row formats."""
    match form:
        case Format.TABLE:
            return terminal.write_table(sheet.table(), sheet.notes, width=width, colour=colour)
        case Format.JSON:
            return json.dumps(_document(sheet), indent=2, allow_nan=False, ensure_ascii=False)
        case Format.YAML:
            return yaml.safe_dump(_document(sheet), sort_keys=False, allow_unicode=True)
        case Format.CSV:
            return _csv(sheet)
        case Format.MARKDOWN:
            return _markdown(sheet)
        case Format.HTML | Format.GITHUB_COMMENT | Format.XLSX:
            raise UsageError(f"this answer has no format {form.value}")
    assert_never(form)


def sheet_comment(command: str, heading: str, sheet: Sheet) -> str:
    """Return rows and their notes as a pull request comment."""
    rows = sheet.table() if sheet.rows else Paragraph(words="Nothing.")
    return write_comment(command, heading, [rows, bullets(sheet.notes)])


def screen_width() -> int:
    """Return the width of the terminal, or 80 if the answer goes elsewhere."""
    return shutil.get_terminal_size((PLAIN_WIDTH, 0)).columns


def colour_wanted() -> bool:
    """Return whether the answer goes to a terminal with colours; NO_COLOR turns them off."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _document(sheet: Sheet) -> dict[str, object]:
    rows = [{column.key: _plain(row.get(column.key)) for column in sheet.columns} for row in sheet.rows]
    return {"schema_version": SCHEMA_VERSION, "rows": rows}


def _plain(cell: Cell) -> object:
    return list(cell) if isinstance(cell, Sequence) and not isinstance(cell, str) else cell


def _csv(sheet: Sheet) -> str:
    rows = ([_in_one_cell(row.get(column.key)) for column in sheet.columns] for row in sheet.rows)
    return csv_text(
        [column.key for column in sheet.columns],
        rows,
    )


def _markdown(sheet: Sheet) -> str:
    notes = (f"```\n{note}\n```" if "\n" in note else note for note in sheet.notes)
    return "\n".join([markdown.write_table(sheet.table()), *(f"\n{note}" for note in notes)])
