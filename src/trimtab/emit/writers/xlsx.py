"""Tables as an Excel workbook: a sheet each, numbers as numbers in their format, and no text that a spreadsheet runs."""

from __future__ import annotations

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
    head = book.add_format({"bold": True, "bottom": 1, "text_wrap": True, "valign": "top"})
    # a text that begins as a formula stays a text when somebody edits the cell
    quoted = book.add_format({"quote_prefix": True, "text_wrap": True, "valign": "top"})
    plain = book.add_format({"text_wrap": True, "valign": "top"})
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
        for column, name in enumerate(sheet.heads):
            page.write_string(0, column, name, head)
            page.set_column(column, column, _width(sheet, column))
        for number, row in enumerate(sheet.rows, start=1):
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
    return max(_NARROWEST, min(_WIDEST, max(longest, len(sheet.heads[column])) + 2))
