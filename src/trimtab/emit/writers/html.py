"""A page as one self-contained HTML file: no script, font or picture from elsewhere; its own policy forbids every request."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from trimtab.emit.blocks import (
    DOCUMENT_WIDTH,
    Amount,
    Block,
    Bullets,
    Cell,
    Chart,
    Code,
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
    in_whole_dollars,
    is_empty,
    legend,
    spans,
)
from trimtab.emit.html.markup import Html, join, tag
from trimtab.emit.html.style import SCRIPT, STYLE
from trimtab.safe_text import for_terminal

_SCRIPT_HASH = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
_POLICY = (
    f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_SCRIPT_HASH}'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
_FEW_SECTIONS = 3
"""A page of so many needs no list of contents."""
_FOLDED_NOTES = 3
_FEW_COLUMNS, _FEW_FIGURES = 5, 3
_READABLE = 20
"""Characters across that a column may ask for on a phone."""


def write_page(page: Page, *, style: str = "") -> str:
    """Return the page; `style` is added to the sheet that all pages share."""
    sections = page.filled_sections
    main = tag("main", figures_html(page.figures), _contents(sections), *map(section_html, sections))
    foot = tag("footer", _safe(page.foot)) if page.foot else Html()
    return _framed(page.heading, _header(page), main, foot, style=style)


def _framed(title: str, *body: Html, style: str = "") -> str:
    """Return a whole file of a body, with the policy and the style of every page."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", _safe(title)),
        tag("link", rel="icon", href="data:,"),
        tag("style", Html(STYLE + style)),
    )
    script = tag("script", Html(SCRIPT)) if any("<table" in part for part in body) else Html()
    return f"<!doctype html>\n{tag('html', head, tag('body', *body, script), lang='en')}\n"


def _header(page: Page) -> Html:
    warnings = [tag("p", _safe(warning)) for warning in page.warnings]
    return tag(
        "header",
        tag("div", _safe(page.brand), class_="brand"),
        tag("h1", _safe(page.heading)),
        tag("p", _safe(page.seen), class_="soft") if page.seen else Html(),
        tag("div", *warnings, class_="notice", role="note") if warnings else Html(),
        _notes(page.notes),
    )


def _notes(notes: tuple[str, ...]) -> Html:
    if not notes:
        return Html()
    items = tag("ul", *(tag("li", _safe(note)) for note in notes), class_="plain soft")
    if len(notes) <= _FOLDED_NOTES:
        return items
    return tag("details", tag("summary", f"{len(notes)} notes on what was seen"), items)


def figures_html(figures: tuple[Figure, ...]) -> Html:
    """Return the figures that head a page."""
    return tag("div", *map(_figure, figures), class_="figures") if figures else Html()


def _figure(figure: Figure) -> Html:
    return tag(
        "div",
        tag("div", _safe(figure.name), class_="name"),
        tag("div", _safe(figure.value), class_="value"),
        tag("div", _safe(figure.note), class_="note"),
        class_="figure" if figure.tone is Tone.PLAIN else f"figure {figure.tone.value}",
    )


def _contents(sections: tuple[Section, ...]) -> Html:
    if len(sections) <= _FEW_SECTIONS:
        return Html()
    links = (tag("li", tag("a", _safe(section.title), href=f"#{section.name}")) for section in sections)
    return tag("nav", tag("ul", *links), class_="contents", aria_label="Contents")


def section_html(section: Section, *foot: Html) -> Html:
    """Return a section as an element, for pages that are made of several; `foot` ends it."""
    return tag(
        "section",
        tag("h2", _safe(section.title), id=section.name),
        tag("p", _sentence(section.gloss), class_="lead") if section.gloss else Html(),
        *map(block_html, section.blocks),
        *foot,
        aria_labelledby=section.name,
    )


def _sentence(gloss: str) -> str:
    return _safe(f"{gloss[:1].upper()}{gloss[1:]}.")


def block_html(block: Block) -> Html:
    """Return a block as elements; nothing where it is empty."""
    if is_empty(block):
        return Html()
    match block:
        case Table():
            return _table(block)
        case Bullets():
            return join([_title(block.title), _bullets(block)])
        case Paragraph():
            return join([_title(block.title), _paragraph(block.words)])
        case Code():
            gloss = tag("p", _safe(block.gloss), class_="soft") if block.gloss else Html()
            return join([tag("pre", _safe(block.text)), gloss])
        case Chart():
            return join([_title(block.title), _keys(block.keys), _chart(block)])
        case Drawing(chart=Chart() as chart):
            return block_html(replace(chart, title=block.title))
        case Drawing():
            drawn = tag("pre", _safe(block.draw(DOCUMENT_WIDTH)), class_="drawing", tabindex="0")
            return join([_title(block.title), drawn])
        case Folded():
            return tag("details", tag("summary", _safe(block.title)), *map(block_html, block.blocks))
    assert_never(block)


def _chart(block: Chart) -> Html:
    if block.on_phone is None:
        return _scroll(block.draw())
    return join([tag("div", block.draw(), class_="scroll wide"), tag("div", block.on_phone(), class_="narrow")])


def _keys(pairs: Sequence[tuple[str, str]]) -> Html:
    """Return the key of a chart."""
    items = (tag("li", tag("span", class_=f"key {style}"), _safe(words)) for style, words in pairs)
    return tag("ul", *items, class_="keys") if pairs else Html()


def _scroll(wide: Html) -> Html:
    """Return something wide in a frame that scrolls on small screens, by keyboard too."""
    return tag("div", wide, class_="scroll", tabindex="0") if wide else Html()


def _title(title: str) -> Html:
    return tag("h3", _safe(title)) if title else Html()


def _bullets(block: Bullets) -> Html:
    items = map(_item, block.items)
    return tag("ol", *items) if block.numbered else tag("ul", *items, class_="plain")


def _item(item: ListItem) -> Html:
    beneath = tag("div", _safe(item.beneath), class_="query") if item.beneath else Html()
    copied = tag("pre", _safe(item.code)) if item.code else Html()
    return tag("li", words_html(item.words), beneath, copied)


def _paragraph(words: Words) -> Html:
    parts = spans(words)
    if len(parts) == 1 and parts[0].tone in (Tone.SOFT, Tone.WARN):
        style = "soft" if parts[0].tone is Tone.SOFT else "notice"
        return tag("p", coded(_safe(parts[0].text)), class_=style)
    return tag("p", words_html(words))


# Tables


def _table(table: Table) -> Html:
    if table.whole_dollars:
        table = in_whole_dollars(table)
    grouped = any(row.group for row in table.rows)
    columns = [TableColumn(title=table.group_title), *table.columns] if grouped else list(table.columns)
    shown = table.rows[: table.page_rows]
    foldable = any(row.details for row in shown)
    caption = tag("caption", _sentence_case(table.title)) if table.title else Html()
    head = tag("tr", *(_head(column) for column in columns))
    digits = 0 if table.whole_dollars else 2
    rows = [_row(row, columns, grouped, digits) for row in shown]
    # a row with something folded beneath is a body of its own, which holds both
    bodies = rows if foldable else [tag("tbody", *rows)]
    total = tag("tbody", _row(table.total, columns, grouped, digits, style="total")) if table.total else Html()
    fits = _fits_a_phone(columns)
    style = "plan" if foldable else "few stacked" if fits and _has_long_words(columns) else "few" if fits else None
    whole = tag("table", caption, _thead(head, columns), *bodies, total, class_=style)
    words = legend(table.columns)
    foot = tag("p", _safe(words), class_="soft") if words else Html()
    return join([_scroll(whole), _more(len(table.rows) - len(shown), table.of), foot])


def _fits_a_phone(columns: list[TableColumn]) -> bool:
    """Return whether the columns that a phone shows have room there: few, not mostly figures."""
    shown = [column for column in columns if not _left_out_on_a_phone(column)]
    return len(shown) <= _FEW_COLUMNS and sum(column.right for column in shown) <= _FEW_FIGURES


def _left_out_on_a_phone(column: TableColumn) -> bool:
    return bool(column.optional) or column.wide_only


def _has_long_words(columns: Sequence[TableColumn]) -> bool:
    """Return whether a column beside the first has much to read: on a phone its words stand below the others."""
    return any(map(_is_long, columns[1:]))


def _is_long(column: TableColumn) -> bool:
    return column.readable > _READABLE and not column.right and not column.optional


def _thead(head: Html, columns: list[TableColumn]) -> Html:
    return tag("thead", head) if any(column.title for column in columns) else Html()


def _head(column: TableColumn) -> Html:
    side = _classes(column)
    # an empty head is a cell, since a reader of the screen would announce a head without a name
    return tag("th", _safe(column.title), scope="col", class_=side) if column.title else tag("td", class_=side)


def _row(row: TableRow, columns: list[TableColumn], grouped: bool, digits: int, *, style: str | None = None) -> Html:
    cells = [_cell(cell, digits) for cell in (*([row.group] if grouped else []), *row.cells)]
    first = _td(cells[0], columns[0], key=row.key, bar_frac=row.bar_frac)
    line = tag("tr", first, *map(_td, cells[1:], columns[1:]), class_=style)
    if not row.details:
        return line
    inside = tag("details", tag("summary", _safe(row.details_title)), _inside(row.details))
    more = tag("tr", tag("td"), tag("td", inside, colspan=len(columns) - 1), class_="more")
    return tag("tbody", line, more, id=row.id or None)


def _inside(sections: tuple[Section, ...]) -> Html:
    parts = (tag("div", _title(section.title), *map(block_html, section.blocks)) for section in sections)
    return tag("div", *parts, class_="inside")


def _td(cell: Html, column: TableColumn, *, key: str = "", bar_frac: float | None = None) -> Html:
    parts = [tag("span", class_=f"key {key}")] if key else []
    parts.append(cell)
    if bar_frac is not None and not key:
        parts.append(tag("span", class_=f"bar long-{round(100 * bar_frac)}"))
    return tag("td", *parts, class_=_classes(column))


def _classes(column: TableColumn) -> str | None:
    """Return the styles of a column's cells: figures to the right, words kept whole, what a phone has no room for."""
    names = (
        ("num", column.right),
        ("nowrap", column.whole and not column.right),
        ("less", _left_out_on_a_phone(column)),
        ("long", _is_long(column)),
    )
    return " ".join(name for name, holds in names if holds) or None


def _cell(cell: Cell, digits: int) -> Html:
    """Return what a cell shows; `digits` are those of amounts."""
    if isinstance(cell, Amount):
        return Html(f"{cell.usd:,.{digits}f}")
    if isinstance(cell, Noted):
        beneath = tag("div", _safe(cell.beneath), class_="query") if cell.beneath else Html()
        return join([words_html(cell.words), beneath])
    return words_html(cell)


def _more(count: int, what: str) -> Html:
    """Say how many rows are not shown, where there are any."""
    if count <= 0:
        return Html()
    return tag("p", f"{count} more {what} are in the JSON form of this report.", class_="soft")


def _sentence_case(title: str) -> str:
    return _safe(f"{title[:1].upper()}{title[1:]}")


def words_html(words: Words) -> Html:
    """Return a text with its styles."""
    return join(map(_span, spans(words)))


def _span(span: StyledText) -> Html:
    if span.code:
        return tag("code", _safe(span.text))
    text = coded(_safe(span.text))
    tone = None if span.tone is Tone.PLAIN else f"tone-{span.tone.value}"
    if span.strong:
        return tag("strong", text, class_=tone)
    return tag("span", text, class_=tone) if tone else text


def coded(text: str) -> Html:
    """Return text in which what stands between backticks is set as code; a single backtick stays."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return Html(join([text]))
    return join([tag("code", part) if number % 2 and part else part for number, part in enumerate(parts)])


def _safe(text: str) -> str:
    """Return text without characters that let it read as another; markup is escaped where it is put into an element."""
    return for_terminal(text)
