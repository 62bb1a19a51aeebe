"""What a report is made of, before it takes a form: a page of sections, each of paragraphs, lists, tables and charts.

A report is made once as a `Page`; the writers (`writers.terminal`, `writers.markdown`, `writers.html`) know these blocks only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum

from trimtab.emit.html.markup import Html


class Tone(Enum):
    """How a text is meant; each writer has its own way of showing it."""

    PLAIN = "plain"
    SOFT = "soft"
    ACCENT = "accent"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"


class DetailLevel(IntEnum):
    """How far down a report is read: a writer shows what is at its level or above."""

    BRIEF = 0
    """On a terminal, and everywhere else."""
    FULL = 1
    """In documents: Markdown and the HTML page."""
    PAGE = 2
    """In the HTML page alone."""


@dataclass(frozen=True, slots=True)
class StyledText:
    """A stretch of text in one style."""

    text: str
    tone: Tone = Tone.PLAIN
    strong: bool = False
    code: bool = False


Words = str | StyledText | tuple[str | StyledText, ...]
"""A text, or stretches of it; plain strings have no style."""


def strong(text: str, tone: Tone = Tone.PLAIN) -> StyledText:
    """Return text that stands out."""
    return StyledText(text, tone, strong=True)


def soft(text: str) -> StyledText:
    """Return text that steps back."""
    return StyledText(text, Tone.SOFT)


def code(text: str) -> StyledText:
    """Return a name that people type."""
    return StyledText(text, code=True)


def spans(words: Words) -> tuple[StyledText, ...]:
    """Return a text as its stretches."""
    parts = words if isinstance(words, tuple) else (words,)
    return tuple(StyledText(part) if isinstance(part, str) else part for part in parts)


def plain(words: Words) -> str:
    """Return a text without its styles."""
    return "".join(span.text for span in spans(words))


@dataclass(frozen=True, slots=True)
class Amount:
    """Dollars in a table whose head names the unit: whole ones where room is short, cents in documents."""

    usd: float
    strong: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """A cell or line with something below it, for those who read on."""

    words: Words
    beneath: str = ""
    """Where it comes from, what is assumed: left out at the brief level."""


Cell = str | StyledText | tuple[str | StyledText, ...] | Amount | Noted


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column of a table."""

    title: str
    right: bool = False
    """Numbers: set flush right and never broken over lines."""
    whole: bool = False
    """Never broken over lines."""
    repeat: bool = False
    """Stands again in every part of a table that is too wide for the screen and is therefore cut into parts."""
    optional: int = 0
    """Left out of a screen that is too narrow for the table, the highest first; 0 = never."""
    readable: int = 20
    """Characters below which a text is not squeezed while there is a column that may be left out."""
    gloss: str = ""
    """What its figures mean, where the title does not say it; told below the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """A row of a table."""

    cells: tuple[Cell, ...]
    group: str = ""
    """Heads each run of rows that share it."""
    bar_frac: float | None = None
    """Drawn as a bar beside the row, 0..1."""
    tone: Tone = Tone.ACCENT
    """Of the bar."""
    key: str = ""
    """The row's colour in a chart above the table: a style of the HTML page."""
    id: str = ""
    """By which the row is linked to."""
    details_title: str = ""
    details: tuple[Section, ...] = ()
    """Folded away beneath the row, in the HTML page alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under titles."""

    columns: tuple[TableColumn, ...]
    rows: tuple[TableRow, ...]
    title: str = ""
    total: TableRow | None = None
    group_title: str = ""
    """Heads the column of groups, where a form has one."""
    brief_rows: int | None = None
    """Rows at the brief level; None = all. With 0 the table is left out there."""
    rest: TableRow | None = None
    """Stands for the rows that the brief level leaves out."""
    page_rows: int | None = None
    """Rows of the HTML page, which large fleets would make too long; None = all."""
    of: str = "rows"
    """What a row is, in `12 more rows`."""
    level: DetailLevel = DetailLevel.BRIEF


@dataclass(frozen=True, slots=True, kw_only=True)
class ListItem:
    """A line of a list."""

    words: Words
    beneath: str = ""
    """See `Noted`."""
    code: str = ""
    """Lines to copy, kept as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bullets:
    """A list of lines."""

    items: tuple[ListItem, ...]
    title: str = ""
    numbered: bool = False
    brief_items: int | None = None
    """Lines at the brief level; None = all."""
    level: DetailLevel = DetailLevel.BRIEF


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """A few sentences."""

    words: Words
    title: str = ""
    level: DetailLevel = DetailLevel.BRIEF


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """A command to copy, kept as it is on a line of its own, and what it does."""

    text: str
    gloss: str = ""
    title: str = ""
    level: DetailLevel = DetailLevel.BRIEF


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A picture in SVG; a form without pictures leaves it out, so that a table or a line beside it has its figures."""

    draw: Callable[[], Html]
    on_phone: Callable[[], Html] | None = None
    """The same for a narrow screen, where what `draw` makes would not be readable there."""
    title: str = ""
    keys: tuple[tuple[str, str], ...] = ()
    """Pairs of a colour class and its meaning."""
    level: DetailLevel = DetailLevel.PAGE


DOCUMENT_WIDTH = 80
"""Columns of a drawing in Markdown and on the HTML page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A picture in characters, as wide as a form says."""

    draw: Callable[[int], str]
    title: str = ""
    level: DetailLevel = DetailLevel.BRIEF


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """Blocks behind a line that opens them."""

    title: str
    blocks: tuple[Block, ...]
    level: DetailLevel = DetailLevel.FULL


Block = Table | Bullets | Paragraph | Code | Chart | Drawing | Folded


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A titled part of a report; a form that shows none of its blocks leaves it out."""

    title: str
    gloss: str = ""
    """What it shows, in one line."""
    blocks: tuple[Block, ...]
    name: str = ""
    """Unique in the report; links lead to it. A section of details needs none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure that heads the HTML page."""

    name: str
    value: str
    note: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A whole report."""

    brand: str
    """The command that made it."""
    title: str
    subject: str = ""
    """What it is about: a fleet, a model."""
    seen: str = ""
    """What it rests on, in one sentence."""
    warnings: tuple[str, ...] = ()
    """Why the answer is weaker than asked."""
    notes: tuple[str, ...] = ()
    """What was not seen."""
    headline: Words = ""
    figures: tuple[Figure, ...] = ()
    sections: tuple[Section, ...]
    foot: str = ""

    @property
    def heading(self) -> str:
        """Return the title with what it is about."""
        return f"{self.title}: {self.subject}" if self.subject else self.title


def is_empty(block: Block) -> bool:
    """Tell whether there is nothing to show: a table without rows, a list without lines."""
    return (isinstance(block, Table) and not block.rows) or (isinstance(block, Bullets) and not block.items)


def bullets(
    lines: Sequence[Words], *, title: str = "", brief: int | None = None, level: DetailLevel = DetailLevel.BRIEF
) -> Bullets:
    """Return lines as a list."""
    return Bullets(items=tuple(ListItem(words=line) for line in lines), title=title, brief_items=brief, level=level)


def brief_table(table: Table) -> Table:
    """Return a table with the rows of the brief level, and what stands for the others."""
    most = table.brief_rows
    if most is None or len(table.rows) <= most:
        return table
    rest = (table.rest,) if table.rest else ()
    return replace(table, rows=(*table.rows[:most], *rest))


def brief_cell(cell: Cell) -> tuple[StyledText, ...]:
    """Return a cell as the brief level shows it: whole dollars, nothing beneath."""
    if isinstance(cell, Amount):
        return (StyledText(f"{cell.usd:,.0f}", strong=cell.strong),)
    return spans(cell.words if isinstance(cell, Noted) else cell)


def legend(columns: Sequence[TableColumn]) -> str:
    """Say what the columns mean that need it; nothing where none does."""
    lines = [f"{column.title}: {column.gloss}." for column in columns if column.gloss]
    return " ".join(lines)


def columns(*titles: str) -> tuple[TableColumn, ...]:
    """Return columns from their titles; one that begins with `#` stands over numbers."""
    return tuple(TableColumn(title=title.removeprefix("#"), right=title.startswith("#")) for title in titles)


def table(
    heads: Sequence[str], rows: Sequence[tuple[Cell, ...]], *, title: str = "", level: DetailLevel = DetailLevel.BRIEF
) -> Table:
    """Return a plain table; a head that begins with `#` stands over numbers."""
    return Table(columns=columns(*heads), rows=tuple(TableRow(cells=row) for row in rows), title=title, level=level)
