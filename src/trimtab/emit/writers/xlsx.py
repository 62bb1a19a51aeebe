"""Tables as an Excel workbook: a sheet each, numbers as numbers in their format, and no text that a spreadsheet runs."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING

from trimtab.errors import UsageError
from trimtab.safe_text import spreadsheet_cell

if TYPE_CHECKING:
    from xlsxwriter.format import Format
    from xlsxwriter.worksheet import Worksheet

Value = str | float | int | bool | None
_MOST_CHARS = 32_767
"""Of a cell (Excel specifications and limits, Microsoft)."""
_MOST_TITLE = 31
_NOT_IN_TITLES = re.compile(r"[\[\]:*?/\\]")
_WIDEST, _NARROWEST = 60, 8
_LINE_HEIGHT = 15
"""Points: Excel's own height of a row in the default font, which XlsxWriter takes too."""
_MOST_LINES = 27
"""Of a row: Excel's rows are at most 409 points high."""
_INDENT = 3
"""Characters of a column's width that its words do not have: the indent and the margins of a cell."""
_MADE = datetime(2000, 1, 1)
"""When every workbook says that it was made, so that the same tables give the same file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkbookSheet:
    """A sheet: its title, a head and a number format for each column, and rows of raw values; None is an empty cell."""

    title: str
    heads: Sequence[str]
    formats: Sequence[str]
    """As Excel writes them: `General`, `#,##0.00`, `0.0%`."""
    rows: Sequence[Sequence[Value]]


def require_writer() -> None:
    """Raise UsageError where XlsxWriter is not installed."""
    if find_spec("xlsxwriter") is None:
        raise UsageError("a workbook needs the extra `xlsx`: pip install 'trimtab[xlsx]'")


def write_workbook(sheets: Sequence[WorkbookSheet]) -> bytes:
    """Return the workbook; heads are frozen and can be filtered. Raises UsageError where XlsxWriter is not installed."""
    require_writer()
    from xlsxwriter import Workbook

    stream = BytesIO()
    # in memory: no temporary file; text stays text, whatever it looks like
    options = {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False}
    book = Workbook(stream, options)
    book.set_properties({"created": _MADE})
    head = book.add_format(
        {"bold": True, "bottom": 1, "text_wrap": True, "valign": "top", "align": "left", "indent": 1}
    )
    head_of_figures = book.add_format({"bold": True, "bottom": 1, "text_wrap": True, "valign": "top", "align": "right"})
    # a text that begins as a formula stays a text when somebody edits the cell; the indent parts it from figures before it
    words = {"text_wrap": True, "valign": "top", "align": "left", "indent": 1}
    quoted = book.add_format({**words, "quote_prefix": True})
    plain = book.add_format(words)
    formats = {
        form: book.add_format({"num_format": form, "valign": "top"}) for sheet in sheets for form in sheet.formats
    }
    titles: set[str] = set()
    for sheet in sheets:
        page = book.add_worksheet(_title(sheet.title, titles))
        page.freeze_panes(1, 0)
        page.set_landscape()
        page.fit_to_pages(1, 0)  # as wide as the paper, as many pages long as it takes
        page.repeat_rows(0)
        widths = [_width(sheet, column) for column in range(len(sheet.heads))]
        for column, name in enumerate(sheet.heads):
            page.write_string(0, column, name, head_of_figures if _has_figures(sheet, column) else head)
            page.set_column(column, column, widths[column])
        for number, row in enumerate(sheet.rows, start=1):
            # LibreOffice leaves rows without a height at one line, and wrapped words over the next row
            page.set_row(number, _LINE_HEIGHT * max(map(_lines, row, widths), default=1))
            for column, (value, form) in enumerate(zip(row, sheet.formats, strict=True)):
                text_form = quoted if isinstance(value, str) and spreadsheet_cell(value) != value else plain
                _write_cell(page, (number, column), value, text_form if isinstance(value, str) else formats[form])
        if sheet.rows:
            page.autofilter(0, 0, len(sheet.rows), len(sheet.heads) - 1)
    book.close()
    return stream.getvalue()


def _write_cell(page: Worksheet, place: tuple[int, int], value: Value, form: Format) -> None:
    match value:
        case str():
            page.write_string(*place, value[:_MOST_CHARS], form)
        case bool():
            page.write_boolean(*place, value, form)
        case int() | float():
            page.write_number(*place, value, form)
        case None:
            pass


def _has_figures(sheet: WorkbookSheet, column: int) -> bool:
    values = [row[column] for row in sheet.rows if row[column] is not None]
    return bool(values) and all(isinstance(value, int | float) for value in values)


def _lines(value: Value, width: int) -> int:
    """Return how many lines a cell takes; letters are narrower than the figures that widths count, lines end at words."""
    if not isinstance(value, str):
        return 1
    shown = max(1, width - _INDENT)
    return min(_MOST_LINES, sum(max(1, math.ceil(len(line) / shown)) for line in value[:_MOST_CHARS].split("\n")))


def _title(wanted: str, taken: set[str]) -> str:
    """Return a title that Excel takes: short, without its marks, and no other sheet's, whatever the case."""
    plain = _NOT_IN_TITLES.sub(" ", wanted).strip("' ")[:_MOST_TITLE] or "Sheet"
    title, number = plain, 2
    while title.casefold() in taken:
        tail = f" {number}"
        title, number = plain[: _MOST_TITLE - len(tail)] + tail, number + 1
    taken.add(title.casefold())
    return title


def _width(sheet: WorkbookSheet, column: int) -> int:
    """Return a column's width in characters."""
    values = (row[column] for row in sheet.rows)
    longest = max((len(value) if isinstance(value, str) else 12 for value in values if value is not None), default=0)
    return max(_NARROWEST, min(_WIDEST, max(longest, len(sheet.heads[column])) + _INDENT))
