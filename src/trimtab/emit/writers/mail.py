"""A page as the HTML body of a mail: tables for layout, styles inline, no script, nothing fetched from elsewhere.

Mail programs drop style sheets, scripts and remote parts, and some know no CSS layout; what they all show is tables with inline
styles (https://www.caniemail.com). One rule is in a style sheet: phones leave out columns that a narrow screen can do without;
where it is dropped, a table that is too wide scrolls in its place. Colours are those of the HTML page on light paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from trimtab.emit.blocks import (
    Amount,
    Block,
    Bullets,
    Cell,
    Chart,
    Code,
    DetailLevel,
    Drawing,
    Figure,
    Folded,
    ListItem,
    Noted,
    Page,
    Paragraph,
    Section,
    StyledText,
    Table,
    TableColumn,
    TableRow,
    Tone,
    Words,
    is_empty,
    legend,
    spans,
)
from trimtab.emit.html.markup import Html, join, tag
from trimtab.safe_text import for_terminal

_INK, _SOFT, _RULE, _PAPER, _CARD = "#1d2730", "#5d6873", "#e5e2da", "#fbfaf7", "#ffffff"
_COLOURS = {Tone.SOFT: _SOFT, Tone.ACCENT: "#0f766e", Tone.GOOD: "#17704a", Tone.WARN: "#8a5a00", Tone.BAD: "#b4412c"}
_FONT = "font-family:'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"
_MONO = "font-family:Menlo,Consolas,monospace;font-size:13px"
_WIDTH = 680
"""Pixels: what mail programs show beside their list of mails."""
_PHONE, _OPTIONAL = 480, "optional"
"""Pixels of a phone at most, and the class of the cells that it leaves out."""
_TEXT = f"{_FONT};font-size:15px;line-height:1.5;color:{_INK}"


def write_page(page: Page) -> str:
    """Return the whole body."""
    parts = [
        tag("div", _safe(page.brand), style=f"{_FONT};font-size:13px;font-weight:bold;color:{_COLOURS[Tone.ACCENT]}"),
        tag("h1", _safe(page.heading), style=f"{_FONT};font-size:24px;line-height:1.25;margin:4px 0 6px;color:{_INK}"),
        _paragraph(page.headline, 17) if page.headline else Html(),
        _figures(page.figures),
        *(_note(line, Tone.WARN) for line in page.warnings),
        *(_note(line, Tone.SOFT) for line in (page.seen, *page.notes) if line),
        *map(_section, page.sections),
        _note(page.foot, Tone.SOFT) if page.foot else Html(),
    ]
    inner = _layout(
        tag("tr", tag("td", *parts, style=f"padding:24px 16px;background-color:{_CARD}")),
        width=_WIDTH,
        style=f"max-width:{_WIDTH}px;width:100%;table-layout:fixed;border:1px solid {_RULE}",
    )
    outer = _layout(
        tag("tr", tag("td", inner, align="center", style="padding:16px 8px")),
        width="100%",
        style=f"table-layout:fixed;background-color:{_PAPER}",
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", _safe(page.heading)),
        tag("style", Html(f"@media (max-width:{_PHONE}px){{.{_OPTIONAL}{{display:none}}}}")),
    )
    body = tag("body", outer, style=f"margin:0;padding:0;background-color:{_PAPER}")
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _layout(*rows: Html, width: int | str, style: str) -> Html:
    """Return a table that only arranges, so that a reader of the screen passes over it."""
    return tag("table", *rows, role="presentation", width=width, cellpadding=0, cellspacing=0, border=0, style=style)


def _figures(figures: Sequence[Figure]) -> Html:
    if not figures:
        return Html()
    # blocks in a line, not cells of a row: where there is no room for all beside one another, they take two rows
    style = f"{_FIGURE};width:{100 // len(figures) - 1}%"
    blocks = (tag("div", *_figure(figure), style=style) for figure in figures)
    return tag("div", *blocks, style="margin:10px 0")


_FIGURE = (
    "display:inline-block;vertical-align:top;box-sizing:border-box;min-width:145px;padding:10px 12px 10px 0;"
    f"border-top:2px solid {_RULE}"
)


def _figure(figure: Figure) -> Iterator[Html]:
    colour = _COLOURS.get(figure.tone, _INK)
    small = f"{_FONT};font-size:12px;color:{_SOFT}"
    yield tag("div", _safe(figure.name), style=small)
    yield tag("div", _safe(figure.value), style=f"{_FONT};font-size:22px;font-weight:bold;color:{colour}")
    yield tag("div", _safe(figure.note), style=small)


def _note(line: str, tone: Tone) -> Html:
    return tag("p", _safe(line), style=f"{_FONT};font-size:13px;line-height:1.45;margin:4px 0;color:{_COLOURS[tone]}")


def _section(section: Section) -> Html:
    body = _blocks(section.blocks)
    if not body:
        return Html()
    rule = f"{_FONT};font-size:17px;margin:26px 0 2px;padding-top:12px;border-top:1px solid {_RULE};color:{_INK}"
    gloss = _note(f"{section.gloss[:1].upper()}{section.gloss[1:]}.", Tone.SOFT) if section.gloss else Html()
    return join([tag("h2", _safe(section.title), style=rule), gloss, body])


def _blocks(blocks: Iterable[Block]) -> Html:
    return join(_block(block) for block in blocks if block.level <= DetailLevel.FULL)


def _block(block: Block) -> Html:
    if is_empty(block):
        return Html()
    title = tag("h3", _safe(block.title), style=f"{_FONT};font-size:14px;margin:12px 0 2px;color:{_INK}")
    head = title if block.title else Html()
    match block:
        case Table():
            return join([head, _table(block)])
        case Bullets():
            items = map(_item, block.items)
            return join(
                [head, tag("ol" if block.numbered else "ul", *items, style=f"{_TEXT};margin:6px 0;padding-left:22px")]
            )
        case Paragraph():
            return join([head, _paragraph(block.words)])
        case Code():
            gloss = _note(block.gloss, Tone.SOFT) if block.gloss else Html()
            return join([head, _copied(block.text), gloss])
        case Folded():
            return join([head, _blocks(block.blocks)])
        case Chart() | Drawing():
            return Html()
    assert_never(block)


def _paragraph(words: Words, size_px: int = 15) -> Html:
    return tag("p", _words(words), style=f"{_FONT};font-size:{size_px}px;line-height:1.5;margin:6px 0;color:{_INK}")


def _item(item: ListItem) -> Html:
    beneath = _note(item.beneath, Tone.SOFT) if item.beneath else Html()
    copied = _copied(item.code) if item.code else Html()
    return tag("li", _words(item.words), beneath, copied, style="margin:4px 0")


def _copied(text: str) -> Html:
    return tag("pre", _safe(text), style=f"{_MONO};background-color:#efece5;padding:8px 10px;white-space:pre-wrap")


# Tables


def _table(table: Table) -> Html:
    grouped = any(row.group for row in table.rows)
    columns = [TableColumn(title=table.group_title), *table.columns] if grouped else list(table.columns)
    shown = table.rows[: table.page_rows]
    head = tag("tr", *(_head(column, first=not index) for index, column in enumerate(columns)))
    rows = [_row(row, columns, grouped) for row in shown]
    total = [_row(table.total, columns, grouped, total=True)] if table.total else []
    whole = tag(
        "table",
        tag("thead", head),
        tag("tbody", *rows, *total),
        width="100%",
        cellpadding=0,
        cellspacing=0,
        border=0,
        style="border-collapse:collapse;margin:6px 0",
    )
    missing = len(table.rows) - len(shown)
    more = _note(f"{missing} more {table.of} are in the JSON form.", Tone.SOFT) if missing else Html()
    words = legend(table.columns)
    return join([tag("div", whole, style="overflow-x:auto"), more, _note(words, Tone.SOFT) if words else Html()])


def _head(column: TableColumn, *, first: bool) -> Html:
    font = f"{_FONT};font-size:12px;font-weight:bold;color:{_SOFT}"
    style = f"{font};padding:5px 0 5px {_apart(first)};border-bottom:1px solid {_RULE}"
    return tag(
        "th",
        _safe(column.title),
        class_=_OPTIONAL if column.optional else None,
        align=_side(column),
        valign="bottom",
        scope="col",
        style=style,
    )


def _row(row: TableRow, columns: Sequence[TableColumn], grouped: bool, *, total: bool = False) -> Html:
    cells = [*([row.group] if grouped else []), *row.cells]
    pairs = enumerate(zip(cells, columns, strict=True))
    return tag("tr", *(_td(cell, column, first=not index, total=total) for index, (cell, column) in pairs))


def _apart(first: bool) -> str:
    """Return the space left of a column: none before the first, so that it stands under the titles."""
    return "0" if first else "12px"


def _td(cell: Cell, column: TableColumn, *, first: bool, total: bool) -> Html:
    edge = f"border-top:1px solid {_SOFT}" if total else f"border-bottom:1px solid {_RULE}"
    whole = ";white-space:nowrap" if column.right else ""
    style = f"{_FONT};font-size:14px;line-height:1.4;color:{_INK};padding:6px 0 6px {_apart(first)};{edge}{whole}"
    hidden = _OPTIONAL if column.optional else None
    return tag("td", _cell(cell), class_=hidden, align=_side(column), valign="top", style=style)


def _side(column: TableColumn) -> str:
    return "right" if column.right else "left"


def _cell(cell: Cell) -> Html:
    if isinstance(cell, Amount):
        amount = Html(f"{cell.usd:,.2f}")
        return tag("strong", amount) if cell.strong else amount
    if isinstance(cell, Noted):
        return join([_words(cell.words), _note(cell.beneath, Tone.SOFT) if cell.beneath else Html()])
    return _words(cell)


def _words(words: Words) -> Html:
    return join(map(_span, spans(words)))


def _span(span: StyledText) -> Html:
    text = Html(join([_safe(span.text)]))
    if span.code:
        return tag("code", text, style=_MONO)
    colour = f"color:{_COLOURS[span.tone]}" if span.tone in _COLOURS else None
    if span.strong:
        return tag("strong", text, style=colour)
    return tag("span", text, style=colour) if colour else text


def _safe(text: str) -> str:
    """Return text without characters that let it read as another; markup is escaped where it is put into an element."""
    return for_terminal(text)
