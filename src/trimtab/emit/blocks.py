"""The building blocks of a report, independent of output format: a page has sections, which hold paragraphs, lists, tables
and charts.

A report is built once as a `Page`. The writers (`writers.terminal`, `writers.markdown`, `writers.html`) know only these blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum

from trimtab.emit.html.markup import Html
from trimtab.units import round_parts


class Tone(Enum):
    """The meaning of a text. Each writer has its own way to show it."""

    PLAIN = "plain"
    SOFT = "soft"
    ACCENT = "accent"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"


class DetailLevel(IntEnum):
    """Level of detail. A writer shows blocks at its own level or above."""

    BRIEF = 0
    """Shown everywhere, including the terminal."""
    FULL = 1
    """Shown in documents: Markdown and HTML."""
    PAGE = 2
    """Shown in HTML only."""


@dataclass(frozen=True, slots=True)
class StyledText:
    """A stretch of text in one style."""

    text: str
    tone: Tone = Tone.PLAIN
    strong: bool = False
    code: bool = False


Words = str | StyledText | tuple[str | StyledText, ...]
"""A text: plain, or a sequence of styled spans."""


def strong(text: str, tone: Tone = Tone.PLAIN) -> StyledText:
    """Return emphasized text."""
    return StyledText(text, tone, strong=True)


def soft(text: str) -> StyledText:
    """Return dimmed text."""
    return StyledText(text, Tone.SOFT)


def code(text: str) -> StyledText:
    """Return text that the user types, such as a command or a name."""
    return StyledText(text, code=True)


def spans(words: Words) -> tuple[StyledText, ...]:
    """Return a text as a sequence of spans."""
    parts = words if isinstance(words, tuple) else (words,)
    return tuple(StyledText(part) if isinstance(part, str) else part for part in parts)


def plain(words: Words) -> str:
    """Return a text without its styles."""
    return "".join(span.text for span in spans(words))


@dataclass(frozen=True, slots=True)
class Amount:
    """Dollars in a table whose header names the unit: whole dollars where space is short, cents in documents."""

    usd: float
    strong: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """A cell or line with details below it."""

    words: Words
    beneath: str = ""
    """Sources and assumptions. Left out at the brief level."""


Cell = str | StyledText | tuple[str | StyledText, ...] | Amount | Noted


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column of a table."""

    title: str
    right: bool = False
    """Numbers: right-aligned and never wrapped."""
    whole: bool = False
    """Never wrapped."""
    repeat: bool = False
    """Repeated in every part when a wide table is split into parts."""
    optional: int = 0
    """Order in which columns are dropped on a narrow screen, highest first. 0 = never dropped."""
    wide_only: bool = False
    """Left out of pages on a phone; screens of text have it."""
    readable: int = 20
    """Minimum width in characters while there is still a column that can be dropped."""
    gloss: str = ""
    """Explains the column's figures if the title does not. Shown below the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """A row of a table."""

    cells: tuple[Cell, ...]
    group: str = ""
    """Heading for consecutive rows that share it."""
    bar_frac: float | None = None
    """Length of the bar beside the row, 0..1."""
    tone: Tone = Tone.ACCENT
    """Style of the bar."""
    key: str = ""
    """The row's colour in a chart above the table: a CSS class of the HTML page."""
    id: str = ""
    """Anchor of the row, for links."""
    details_title: str = ""
    details: tuple[Section, ...] = ()
    """Collapsed below the row; HTML only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with a header row."""

    columns: tuple[TableColumn, ...]
    rows: tuple[TableRow, ...]
    title: str = ""
    total: TableRow | None = None
    group_title: str = ""
    """Title of the group column, in formats that have one."""
    brief_rows: int | None = None
    """Maximum rows at the brief level; None = all. With 0 the table is left out there."""
    rest: TableRow | None = None
    """Replaces the rows that the brief level leaves out."""
    page_rows: int | None = None
    """Maximum rows on the HTML page, to keep pages of large fleets readable; None = all."""
    of: str = "rows"
    """What a row is, as used in `12 more rows`."""
    whole_dollars: bool = False
    """Amounts are whole dollars in documents too."""
    level: DetailLevel = DetailLevel.BRIEF


@dataclass(frozen=True, slots=True, kw_only=True)
class ListItem:
    """A line of a list."""

    words: Words
    beneath: str = ""
    """See `Noted`."""
    code: str = ""
    """Lines to copy, printed verbatim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bullets:
    """A list of lines."""

    items: tuple[ListItem, ...]
    title: str = ""
    numbered: bool = False
    brief_items: int | None = None
    """Maximum lines at the brief level; None = all."""
    level: DetailLevel = DetailLevel.BRIEF


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """A few sentences."""

    words: Words
    title: str = ""
    level: DetailLevel = DetailLevel.BRIEF


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """A command to copy, printed verbatim on a line of its own, and what it does."""

    text: str
    gloss: str = ""
    title: str = ""
    level: DetailLevel = DetailLevel.BRIEF


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A picture in SVG. Formats without pictures leave it out, so a table or line beside it must give the same figures."""

    draw: Callable[[], Html]
    on_phone: Callable[[], Html] | None = None
    """The same chart for a narrow screen, where the output of `draw` would be unreadable."""
    title: str = ""
    keys: tuple[tuple[str, str], ...] = ()
    """Pairs of a colour class and its meaning."""
    level: DetailLevel = DetailLevel.PAGE


DOCUMENT_WIDTH = 80
"""Width in characters of a drawing in Markdown and HTML."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A chart drawn in characters, at the width that the format gives."""

    draw: Callable[[int], str]
    title: str = ""
    chart: Chart | None = None
    """The same as a picture, for formats that have them."""
    level: DetailLevel = DetailLevel.BRIEF


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """Blocks collapsed behind a summary line."""

    title: str
    blocks: tuple[Block, ...]
    level: DetailLevel = DetailLevel.FULL


Block = Table | Bullets | Paragraph | Code | Chart | Drawing | Folded


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A titled part of a report. Left out by formats that show none of its blocks."""

    title: str
    gloss: str = ""
    """What it shows, in one line."""
    blocks: tuple[Block, ...]
    name: str = ""
    """Unique in the report; used by links. Detail sections need none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A key figure at the top of the HTML page."""

    name: str
    value: str
    note: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A whole report."""

    brand: str
    """The command that produced it."""
    title: str
    subject: str = ""
    """The subject: a fleet or a model."""
    seen: str = ""
    """Data coverage, in one sentence."""
    warnings: tuple[str, ...] = ()
    """Reasons why the answer is less certain than requested."""
    notes: tuple[str, ...] = ()
    """What could not be observed."""
    headline: Words = ""
    figures: tuple[Figure, ...] = ()
    sections: tuple[Section, ...]
    foot: str = ""

    @property
    def filled_sections(self) -> tuple[Section, ...]:
        """Return the sections that have something to show."""
        return tuple(section for section in self.sections if not all(map(is_empty, section.blocks)))

    @property
    def heading(self) -> str:
        """Return the title with the subject."""
        return f"{self.title}: {self.subject}" if self.subject else self.title


def is_empty(block: Block) -> bool:
    """Return whether a block has nothing to show: a table without rows, a list without lines."""
    return (isinstance(block, Table) and not block.rows) or (isinstance(block, Bullets) and not block.items)


def bullets(
    lines: Sequence[Words], *, title: str = "", brief: int | None = None, level: DetailLevel = DetailLevel.BRIEF
) -> Bullets:
    """Return lines as a list."""
    return Bullets(items=tuple(ListItem(words=line) for line in lines), title=title, brief_items=brief, level=level)


def brief_table(table: Table) -> Table:
    """Return a table cut to the rows of the brief level, with a row that stands for the rest, in whole dollars."""
    most = table.brief_rows
    if most is None or len(table.rows) <= most:
        return in_whole_dollars(table)
    whole = in_whole_dollars(table)
    rest = (_sum_of_the_rest(table.rest, whole, most),) if table.rest else ()
    return in_whole_dollars(replace(whole, rows=(*whole.rows[:most], *rest)))


def _sum_of_the_rest(rest: TableRow, whole: Table, most: int) -> TableRow:
    """Return the row for the rest, with the sums of the dollars that stand where the table is shown whole."""
    cells = list(rest.cells)
    for place, cell in enumerate(rest.cells):
        left = [found.usd for row in whole.rows[most:] if isinstance(found := row.cells[place], Amount)]
        # the row may stand for more than the table's rows: then they do not make up its amount
        if isinstance(cell, Amount) and abs(sum(left) - cell.usd) < len(left):
            cells[place] = replace(cell, usd=float(sum(left)))
    return replace(rest, cells=tuple(cells))


def in_whole_dollars(table: Table) -> Table:
    """Return a table whose amounts are whole dollars; where a column sums to its total, the dollars shown do so too."""
    if table.total is None:
        return table
    rows = [list(row.cells) for row in table.rows]
    for place, total in enumerate(table.total.cells):
        column = [(row, cell) for row in rows if place < len(row) and isinstance(cell := row[place], Amount)]
        in_cents = [round(cell.usd * 100) for _, cell in column]
        # a column of figures that overlap has a total that is no sum: nothing is shifted there
        if not isinstance(total, Amount) or sum(in_cents) != round(total.usd * 100):
            continue
        for (row, cell), usd in zip(column, round_parts(in_cents, 100), strict=True):
            row[place] = replace(cell, usd=float(usd))
    shown = tuple(replace(row, cells=tuple(cells)) for row, cells in zip(table.rows, rows, strict=True))
    return replace(table, rows=shown)


def brief_cell(cell: Cell) -> tuple[StyledText, ...]:
    """Return a cell as shown at the brief level: whole dollars, no details."""
    if isinstance(cell, Amount):
        return (StyledText(f"{cell.usd:,.0f}", strong=cell.strong),)
    return spans(cell.words if isinstance(cell, Noted) else cell)


def legend(columns: Sequence[TableColumn]) -> str:
    """Explain the columns that need it; empty if there are none."""
    lines = [f"{column.title}: {column.gloss}." for column in columns if column.gloss]
    return " ".join(lines)


def columns(*titles: str) -> tuple[TableColumn, ...]:
    """Return columns from their titles. A title that begins with `#` marks a numeric column."""
    return tuple(TableColumn(title=title.removeprefix("#"), right=title.startswith("#")) for title in titles)


def table(
    heads: Sequence[str], rows: Sequence[tuple[Cell, ...]], *, title: str = "", level: DetailLevel = DetailLevel.BRIEF
) -> Table:
    """Return a plain table. A title that begins with `#` marks a numeric column."""
    return Table(columns=columns(*heads), rows=tuple(TableRow(cells=row) for row in rows), title=title, level=level)
