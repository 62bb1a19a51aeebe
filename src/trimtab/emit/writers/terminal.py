"""A page on a terminal: lines no wider than the screen, tables that give way where it is narrow, colour where it is wanted."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from trimtab.emit.blocks import (
    Block,
    Bullets,
    Cell,
    Chart,
    Code,
    DetailLevel,
    Drawing,
    Folded,
    ListItem,
    Page,
    Paragraph,
    Section,
    StyledText,
    Table,
    TableColumn,
    TableRow,
    Tone,
    Words,
    brief_cell,
    brief_table,
    in_whole_dollars,
    is_empty,
    legend,
    soft,
    spans,
    strong,
)
from trimtab.safe_text import for_terminal

MAX_WIDTH = 120
"""A wider screen does not make lines easier to read."""
_GAP = 2
_NARROWEST = 8
"""No column is squeezed below this."""
_BAR_CELLS = 16
_INDENT = "  "
_BULLET = "· "
_CODES = {Tone.ACCENT: 36, Tone.GOOD: 32, Tone.WARN: 33, Tone.BAD: 31}
"""Colours of ISO 6429."""
_BOLD, _DIM = 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """What is written to."""

    width: int
    colour: bool
    level: DetailLevel = DetailLevel.BRIEF

    def inside(self, indent: int) -> Screen:
        """Return what is left of it behind an indent."""
        return replace(self, width=max(self.width - indent, _NARROWEST))


def write_page(page: Page, *, width: int, colour: bool) -> str:
    """Return a page as text of at most `width` columns, and never more than `MAX_WIDTH`."""
    screen = Screen(width=min(width, MAX_WIDTH), colour=colour)
    lines = write_lines((strong(page.brand), f"  {page.subject}"), screen)
    lines += write_lines(soft(page.seen), screen)
    lines += [line for warning in page.warnings for line in _listed(StyledText(warning, Tone.WARN), "! ", screen)]
    lines += [line for note in page.notes for line in _listed(soft(note), _BULLET, screen)]
    if page.headline:
        lines += ["", *write_lines(page.headline, screen)]
    lines += write_sections(page.sections, screen)
    return "\n".join(line.rstrip() for line in lines).strip("\n") + "\n"


def write_sections(sections: Iterable[Section], screen: Screen) -> list[str]:
    """Return sections as lines, each headed by its title and set apart from the one before."""
    lines: list[str] = []
    for section in sections:
        if body := _indented(section.blocks, screen):
            gloss = soft(f"{_INDENT}{section.gloss}") if section.gloss else ""
            lines += ["", *write_lines((strong(section.title, Tone.ACCENT), gloss), screen), *body]
    return lines


def write_table(table: Table, notes: Sequence[str] = (), *, width: int, colour: bool) -> str:
    """Return a table as text, in parts where it is too wide, and notes below it.

    A note of several lines is laid out already (a command, a picture) and kept as it is. Heads without rows are left out where
    notes say what there is.
    """
    screen = Screen(width=width, colour=colour, level=DetailLevel.FULL)
    shown = _parts(in_whole_dollars(table), width) if table.rows or not notes else ()
    parts = ["\n".join(_table_lines(part, screen)) for part in shown]
    foot = "\n".join(line for note in notes for line in _note_lines(note, screen))
    return "\n\n".join([*parts, *([foot] if foot else [])])


def _note_lines(note: str, screen: Screen) -> list[str]:
    if "\n" in note:
        return ["", *(_styled(soft(for_terminal(line)), screen) for line in note.splitlines())]
    return write_lines(soft(note), screen, hang=2)


def _indented(blocks: Iterable[Block], screen: Screen) -> list[str]:
    inner = screen.inside(len(_INDENT))
    lines: list[str] = []
    before: Block | None = None
    for block in blocks:
        if added := _block_lines(block, inner):
            apart = before is not None and (block.title or isinstance(before, Table))
            lines += ["", *added] if apart else added
            before = block
    return [f"{_INDENT}{line}" if line else "" for line in lines]


def _block_lines(block: Block, screen: Screen) -> list[str]:
    if block.level > screen.level or is_empty(block) or isinstance(block, Chart):
        return []
    if isinstance(block, Code):
        return _code_lines(block, screen)
    if isinstance(block, Table) and screen.level is DetailLevel.BRIEF and block.brief_rows == 0:
        return []
    return [*(write_lines(strong(block.title), screen) if block.title else []), *_body_lines(block, screen)]


def _body_lines(block: Table | Bullets | Paragraph | Drawing | Folded, screen: Screen) -> list[str]:
    match block:
        case Table():
            shown = brief_table(block) if screen.level is DetailLevel.BRIEF else in_whole_dollars(block)
            first, *others = (_table_lines(part, screen) for part in _parts(shown, screen.width))
            return [*first, *(line for part in others for line in ("", *part))]
        case Bullets():
            return list(_bullet_lines(block, screen))
        case Paragraph():
            return write_lines(block.words, screen)
        case Drawing():
            return for_terminal(block.draw(screen.width)).splitlines()
        case Folded():
            return _indented(block.blocks, screen)
    assert_never(block)


def _code_lines(block: Code, screen: Screen) -> list[str]:
    """Return a command, which is never broken over lines, so that it can be copied, and what it does."""
    gloss = write_lines(soft(block.gloss), screen.inside(len(_INDENT))) if block.gloss else []
    return [_styled(strong(for_terminal(block.text)), screen), *(f"{_INDENT}{line}" for line in gloss)]


def _bullet_lines(block: Bullets, screen: Screen) -> Iterator[str]:
    most = block.brief_items if screen.level is DetailLevel.BRIEF else None
    for number, item in enumerate(block.items[:most], 1):
        yield from _item_lines(item, f"{number}. " if block.numbered else _BULLET, screen)
    if most is not None and len(block.items) > most:
        yield from _listed(soft(f"{len(block.items) - most} more in `-o json`"), _BULLET, screen)


def _item_lines(item: ListItem, mark: str, screen: Screen) -> Iterator[str]:
    yield from _listed(item.words, mark, screen)
    if item.beneath and screen.level > DetailLevel.BRIEF:
        yield from _listed(soft(item.beneath), " " * len(mark), screen)
    for line in item.code.splitlines():
        yield f"{2 * _INDENT}{_styled(StyledText(for_terminal(line), Tone.GOOD), screen)}"


def _listed(words: Words, mark: str, screen: Screen) -> list[str]:
    """Return a line behind its mark; where it is broken, the rest stands under its beginning."""
    first, *rest = spans(words)
    return write_lines((replace(first, text=f"{mark}{first.text}"), *rest), screen, hang=len(mark))


# Tables


def _table_lines(table: Table, screen: Screen) -> list[str]:
    """Lay out a head, then the rows, each group under its name, then the total."""
    columns, rows = _with_bars(table)
    shown = [[brief_cell(cell) for cell in cells] for cells in rows]
    kept, widths, gap = _fitted(columns, shown, screen.width)
    columns = [columns[i] for i in kept]
    shown = [[cells[i] for i in kept] for cells in shown]
    lines: list[str] = []
    if any(column.title for column in columns):
        lines += _row_lines(columns, [spans(soft(column.title)) for column in columns], widths, gap, screen)
    group = ""
    for row, cells in zip((*table.rows, *([table.total] if table.total else [])), shown, strict=True):
        if row.group and row.group != group:
            group = row.group
            lines += ["", *write_lines(strong(group, Tone.ACCENT), screen)]
        lines += _row_lines(columns, cells, widths, gap, screen)
    words = legend(columns)
    return [*lines, *(write_lines(soft(words), screen) if words else [])]


def _with_bars(table: Table) -> tuple[list[TableColumn], list[tuple[Cell, ...]]]:
    """Return the columns and cells; where rows have bars, these are a last column, the last to go where it is narrow."""
    rows = [*table.rows, *([table.total] if table.total else [])]
    if all(row.bar_frac is None for row in rows) or not rows:
        return list(table.columns), [row.cells for row in rows]
    bars = TableColumn(title="", optional=1)
    return [*table.columns, bars], [(*row.cells, _bar(row)) for row in rows]


def _bar(row: TableRow) -> StyledText:
    """Draw a share, at least a sliver where it is not 0."""
    frac = row.bar_frac or 0.0
    eighths = max(round(frac * _BAR_CELLS * 8), 1 if frac > 0 else 0)
    whole, rest = divmod(eighths, 8)
    return StyledText("█" * whole + ("", *"▏▎▍▌▋▊▉")[rest], row.tone)


def _fitted(
    columns: Sequence[TableColumn], rows: Sequence[Sequence[tuple[StyledText, ...]]], width: int
) -> tuple[list[int], list[int], int]:
    """Return which columns are kept, their widths and the gap between them."""
    cells = [max((_text_width(row[i]) for row in rows), default=0) for i in range(len(columns))]
    natural = [max(cell, _width(column.title)) for cell, column in zip(cells, columns, strict=True)]
    least = [_least(column, *pair) for column, *pair in zip(columns, cells, natural, strict=True)]
    kept = list(range(len(columns)))
    while _total(least, kept, _GAP) > width:
        optional = [i for i in kept if columns[i].optional]
        if not optional:
            break
        kept.remove(max(optional, key=lambda i: columns[i].optional))
    gap = _GAP if _total(least, kept, _GAP) <= width else 1
    firm = {i for i in kept if columns[i].right or columns[i].whole}
    # heads give way first, then texts
    _shrink(natural, firm, least, _total(natural, kept, gap) - width)
    floor = [_NARROWEST] * len(columns)
    _shrink(natural, set(kept) - firm, floor, _total(natural, kept, gap) - width)
    return kept, [natural[i] for i in kept], gap


def _least(column: TableColumn, cell: int, natural: int) -> int:
    if column.right or column.whole:
        return max(cell, *(_width(word) for word in column.title.split()), 0)
    return min(natural, column.readable)


def _total(widths: Sequence[int], kept: Sequence[int], gap: int) -> int:
    return sum(widths[i] for i in kept) + gap * (len(kept) - 1)


def _shrink(widths: list[int], soft_columns: set[int], least: Sequence[int], over: int) -> None:
    """Make columns narrower by `over` in all, always the widest one that can still give way."""
    while over > 0:
        able = [i for i in sorted(soft_columns) if widths[i] > least[i]]
        if not able:
            return
        widths[max(able, key=lambda i: widths[i])] -= 1
        over -= 1


def _parts(table: Table, width: int) -> list[Table]:
    """Split the columns into tables that each fit the width, with the repeated columns in front of every one."""
    kept = [i for i, column in enumerate(table.columns) if column.repeat]
    if not kept:
        return [table]
    natural = [
        max(_width(column.title), *(_text_width(brief_cell(row.cells[i])) for row in table.rows), 0) + _GAP
        for i, column in enumerate(table.columns)
    ]
    base = sum(natural[i] for i in kept)
    parts: list[list[int]] = [[]]
    used = base
    for i in (i for i in range(len(natural)) if i not in kept):
        if parts[-1] and used + natural[i] > width + _GAP:
            parts.append([])
            used = base
        parts[-1].append(i)
        used += natural[i]
    return [_only(table, [*kept, *part]) for part in parts]


def _only(table: Table, at: Sequence[int]) -> Table:
    rows = tuple(replace(row, cells=tuple(row.cells[i] for i in at)) for row in table.rows)
    return replace(table, columns=tuple(table.columns[i] for i in at), rows=rows)


def _row_lines(
    columns: Sequence[TableColumn],
    cells: Sequence[tuple[StyledText, ...]],
    widths: Sequence[int],
    gap: int,
    screen: Screen,
) -> list[str]:
    """Return a row as one line, or as several where a text has to be broken."""
    broken = [
        wrap(cell, wide, hang=0 if column.right else 1)
        for column, cell, wide in zip(columns, cells, widths, strict=True)
    ]
    lines = []
    for i in range(max(map(len, broken))):
        parts = []
        for column, cell, wide in zip(columns, broken, widths, strict=True):
            line = cell[i] if i < len(cell) else ()
            space = " " * (wide - _text_width(line))
            text = "".join(_styled(span, screen) for span in line)
            parts.append(f"{space}{text}" if column.right else f"{text}{space}")
        lines.append((" " * gap).join(parts).rstrip())
    return lines


# Lines


def write_lines(words: Words, screen: Screen, hang: int = 0) -> list[str]:
    """Return a text as lines of the screen's width; lines after the first begin with `hang` spaces."""
    return ["".join(_styled(span, screen) for span in line) for line in wrap(spans(words), screen.width, hang=hang)]


_WIDEST_CHAR = 2
"""Columns of a character of East Asian scripts (Unicode, annex 11)."""


def wrap(words: Sequence[StyledText], width: int, *, hang: int = 0) -> list[tuple[StyledText, ...]]:
    """Break a text into lines of a width, between words where it can be; lines after the first begin with `hang` spaces.

    Where the spaces would leave no room for the widest character, they are left out.
    """
    hang = hang if width - hang >= _WIDEST_CHAR else 0
    safe = [replace(span, text=for_terminal(" ".join(span.text.split("\n")))) for span in words]
    text = "".join(span.text for span in safe)
    lines: list[tuple[StyledText, ...]] = []
    for first, last in _breaks(text, width, hang):
        line = tuple(_cut(safe, first, last))
        lines.append((StyledText(" " * hang), *line) if lines and hang else line)
    return lines


def _breaks(text: str, width: int, hang: int) -> Iterator[tuple[int, int]]:
    """Yield where each line begins and ends in the text."""
    start, length = 0, len(text)
    room = width
    while True:
        end = _fits(text, start, room)
        if end == length:
            yield start, end
            return
        # at the last space; else after the last mark that a name may be broken at; else where the line is full
        stop = text.rfind(" ", start + 1, end + 1)
        if stop <= start or not text[start:stop].strip():
            marks = max(text.rfind(mark, start, end) for mark in "-/_.,:")
            stop = marks + 1 if marks > start else end
        yield start, stop
        start = stop
        while start < length and text[start] == " ":
            start += 1
        if start == length:
            return
        room = max(width - hang, 1)


def _fits(text: str, start: int, room: int) -> int:
    """Return the end of the longest stretch that fits, of one character at least."""
    used = 0
    for at in range(start, len(text)):
        used += _char_width(text[at])
        if used > room:
            return max(at, start + 1)
    return len(text)


def _cut(words: Sequence[StyledText], first: int, last: int) -> Iterator[StyledText]:
    at = 0
    for span in words:
        piece = span.text[max(first - at, 0) : max(last - at, 0)]
        if piece:
            yield replace(span, text=piece)
        at += len(span.text)


def _text_width(words: Sequence[StyledText]) -> int:
    return sum(_width(for_terminal(span.text)) for span in words)


def _width(text: str) -> int:
    return len(text) if text.isascii() else sum(map(_char_width, text))


def _char_width(char: str) -> int:
    """Return the columns that a character takes: two for wide ones of East Asia, none for combining marks."""
    if char.isascii():
        return 1
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _styled(span: StyledText, screen: Screen) -> str:
    """Return text, which is safe already, with the codes of its style."""
    codes = [
        *([_CODES[span.tone]] if span.tone in _CODES else []),
        *([_BOLD] if span.strong or span.code else []),
        *([_DIM] if span.tone is Tone.SOFT else []),
    ]
    if not (screen.colour and codes and span.text.strip()):
        return span.text
    return "".join(f"\x1b[{number}m" for number in codes) + f"{span.text}\x1b[0m"
