"""The tables in the sections of a page, as data: each has a name of its own, under which its files are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from trimtab.emit.blocks import (
    Amount,
    Block,
    Cell,
    Folded,
    Noted,
    Section,
    Table,
    TableColumn,
    in_whole_dollars,
    is_empty,
    plain,
)
from trimtab.emit.document import AuditDocument
from trimtab.emit.html.markup import Html, join, tag
from trimtab.emit.sections.audit import audit_sections
from trimtab.emit.sections.finance import finance_sections
from trimtab.emit.writers.html import section_html
from trimtab.web.layout import file_links
from trimtab.web.tables import MONEY, SHARE, WHOLE_MONEY, WORDS, CellFormat, DataColumn, DataTable, Value

PROOF = ("proof", "laws", "robustness")
REST = (
    "roadmap",
    "closer-look",
    "undeclared",
    "not-worth",
    "unjudged",
    "rates",
    "limits",
    "held",
    "what-if",
    "method",
)
SECTIONS: Mapping[str, Callable[[AuditDocument], Iterable[Section]]] = MappingProxyType(
    {
        "proof": lambda document: audit_sections(document, PROOF),
        "use": lambda document: audit_sections(document, ("use",)),
        "more": lambda document: audit_sections(document, REST),
        "finance": finance_sections,
    }
)
"""Page -> its sections, for pages that are made of an audit's document alone."""
COMMITMENTS = "commitments"
"""The page whose sections have to be worked out first."""
NAME_PATTERN = f"^({'|'.join((*SECTIONS, COMMITMENTS))})-[a-z]+(-[a-z]+)*(-[0-9]+)?$"
"""What names look like: the page, its section, and a number where that has several tables."""
_NUMBER = re.compile(r"-?[0-9][0-9,]*(?:\.[0-9]+)?")
_PERCENT = re.compile(r"-?[0-9]+(?:\.[0-9]+)?%")
_ABSENT = ("", "–")


def sections_of(page: str, document: AuditDocument) -> Sequence[Section]:
    """Return the sections of a page of an audit, empty for a page that has none."""
    made = SECTIONS.get(page)
    return tuple(made(document)) if made else ()


def section_tables(page: str, sections: Iterable[Section]) -> dict[str, DataTable]:
    """Return every table of a page's sections by its name, with all rows."""
    named = ((section, *found) for section in sections for found in _named(page, section))
    return {key: as_data(key, title or section.title, table) for section, key, title, table in named}


def section_with_files(page: str, whole: Section, shown: Section, address: str) -> Html:
    """Return a section with links to the files of each of its tables.

    `shown` is what the page has room for of `whole`; `address` is that of an audit's tables.
    """
    found = list(_named(page, whole))
    links = [
        file_links(f"{address}/{key}", {}, f"{title}:" if title and len(found) > 1 else "") for key, title, _ in found
    ]
    return section_html(shown, *([tag("div", join(links))] if links else []))


def _named(page: str, section: Section) -> Iterator[tuple[str, str, Table]]:
    """Yield the name of each table of a section, its own title or that of what folds it, and the table."""
    for number, (title, table) in enumerate(_tables_in(section.blocks, ""), start=1):
        key = f"{page}-{section.name}" + (f"-{number}" if number > 1 else "")
        yield key, title, table


def _tables_in(blocks: Iterable[Block], title: str) -> Iterator[tuple[str, Table]]:
    """Yield tables, those that are folded too, with what they are called there."""
    for block in blocks:
        if isinstance(block, Table) and not is_empty(block):
            yield block.title or title, block
        elif isinstance(block, Folded):
            yield from _tables_in(block.blocks, block.title)


def as_data(key: str, title: str, table: Table) -> DataTable:
    """Return a table's rows without the total: figures as numbers, shares as fractions, what stands beneath as a column."""
    shown = in_whole_dollars(table) if table.whole_dollars else table
    columns: list[tuple[TableColumn, list[Cell]]] = [
        (column, [row.cells[at] for row in shown.rows]) for at, column in enumerate(table.columns)
    ]
    if any(row.group for row in shown.rows):
        columns.insert(0, (TableColumn(title=table.group_title), [row.group for row in shown.rows]))
    taken: list[DataColumn] = []
    values: list[Sequence[Value]] = []
    for column, cells in columns:
        for heading, form, found in _data_columns(column, cells, table.whole_dollars):
            taken.append(
                DataColumn(key=_key(heading, len(taken), [had.key for had in taken]), title=heading, format=form)
            )
            values.append(found)
    keys = [column.key for column in taken]
    rows = [dict(zip(keys, row, strict=True)) for row in zip(*values, strict=True)]
    return DataTable(key=key, title=title, columns=tuple(taken), rows=rows)


def _data_columns(
    column: TableColumn, cells: Sequence[Cell], whole_dollars: bool
) -> Iterator[tuple[str, CellFormat, Sequence[Value]]]:
    """Yield a column's heading, format and values, and those of what stands beneath its words."""
    if all(isinstance(cell, Amount) for cell in cells):
        amounts = [cell.usd for cell in cells if isinstance(cell, Amount)]
        yield column.title, WHOLE_MONEY if whole_dollars else MONEY, amounts
        return
    form, found = _read([_words(cell) for cell in cells])
    yield column.title, form, found
    beneath = [cell.beneath if isinstance(cell, Noted) else "" for cell in cells]
    if any(beneath):
        yield f"{column.title}: note".removeprefix(": "), WORDS, beneath


def _words(cell: Cell) -> str:
    if isinstance(cell, Amount):
        return f"{cell.usd:.2f}"
    return plain(cell.words if isinstance(cell, Noted) else cell)


def _read(texts: Sequence[str]) -> tuple[CellFormat, Sequence[Value]]:
    """Return figures as numbers where a column has nothing else, absent ones as nothing; else its words."""
    present = [text for text in texts if text not in _ABSENT]
    if present and all(map(_PERCENT.fullmatch, present)):
        return SHARE, [None if text in _ABSENT else round(float(text[:-1]) / 100, 6) for text in texts]
    if present and all(map(_NUMBER.fullmatch, present)):
        return WORDS, [None if text in _ABSENT else float(text.replace(",", "")) for text in texts]
    return WORDS, texts


def _key(title: str, place: int, taken: Sequence[str]) -> str:
    """Return a key from a column's title, unlike those before it."""
    key = re.sub(r"[^a-z0-9]+", "_", title.lower().replace("$", " usd ").replace("%", " percent ")).strip("_")
    key = key or f"column_{place + 1}"
    return f"{key}_{place + 1}" if key in taken else key
