"""A page as a Microsoft Teams message: the JSON that a webhook of the Workflows app takes, an Adaptive Card 1.5 in an envelope.

The envelope is that of https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using, the
elements those of https://adaptivecards.io/explorer. All text is in `RichTextBlock`s, which read no Markdown, so that no
name becomes a link or bold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pydantic import JsonValue

from trimtab.emit.blocks import (
    Bullets,
    Figure,
    Page,
    Section,
    StyledText,
    Table,
    TableColumn,
    Tone,
    Words,
    brief_cell,
    brief_table,
    legend,
    plain,
    soft,
    spans,
    strong,
)
from trimtab.emit.writers.pieces import (
    JsonObject,
    Piece,
    compact_json,
    cut,
    fitted,
    item_words,
    left_out_words,
    pieces_of,
)
from trimtab.safe_text import for_terminal

MOST_BYTES = 28_000
"""Of a message: "28 KB" (https://learn.microsoft.com/microsoftteams/limits-specifications-teams, and the page above). A webhook
was seen to count the characters as UTF-16 (https://stackoverflow.com/questions/78034694), so neither count may exceed it."""
_MOST_TEXT = 3000
_ROWS = 15
"""Rows of one table of a card; a longer one goes on in a table below, so that one of them may be left out."""
_COLOURS = {Tone.ACCENT: "Accent", Tone.GOOD: "Good", Tone.WARN: "Warning", Tone.BAD: "Attention"}


def write_page(page: Page) -> str:
    """Return the message as JSON text; what exceeds the limit of Teams is left out, and counted."""
    body = fitted(list(pieces_of(page, _Teams())), lambda parts: _fits(page, parts), _left_out)
    return compact_json(_message(page, body))


def message_bytes(message: JsonObject) -> int:
    """Return how long a message is, as Teams may count it: in UTF-8 or UTF-16, whichever is more."""
    text = compact_json(message)
    return max(len(text.encode("utf-8")), len(text.encode("utf-16-le")))


def _fits(page: Page, body: Sequence[JsonObject]) -> bool:
    return message_bytes(_message(page, body)) <= MOST_BYTES


def _message(page: Page, body: Sequence[JsonObject]) -> JsonObject:
    card: JsonObject = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.5",
        "fallbackText": cut(for_terminal(f"{page.heading}: {plain(page.headline)}"), _MOST_TEXT),
        "msteams": {"width": "Full"},
        "body": list(body),
    }
    return {
        "type": "message",
        "attachments": [
            {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card},
        ],
    }


class _Teams:
    """The parts of a page as elements of an Adaptive Card."""

    def heading(self, text: str) -> JsonObject:
        return _text(strong(text), size="Large")

    def figures(self, figures: Sequence[Figure]) -> Piece:
        columns: list[JsonValue] = [_figure(figure) for figure in figures]
        return Piece(content={"type": "ColumnSet", "columns": columns}, lines=len(columns))

    def section(self, section: Section) -> JsonObject:
        gloss = (soft(f"  {section.gloss}"),) if section.gloss else ()
        title = _text((strong(section.title, Tone.ACCENT), *gloss))
        return {**title, "separator": True, "spacing": "Medium"}

    def text(self, words: Words) -> JsonObject:
        return _text(words)

    def table(self, table: Table) -> Iterator[Piece]:
        return _tables(brief_table(table))

    def bullets(self, block: Bullets) -> Iterator[Piece]:
        for index, item in enumerate(block.items, 1):
            yield _line((f"{index}. " if block.numbered else "• ", *item_words(item)))

    def code(self, text: str) -> Iterator[Piece]:
        yield _line(StyledText(text, code=True))


def _tables(table: Table) -> Iterator[Piece]:
    """Yield a table in parts, each under the head, then what its columns mean; for the optional ones a card is too narrow."""
    kept = [index for index, column in enumerate(table.columns) if not column.optional]
    columns = [table.columns[index] for index in kept]
    shown = [*table.rows, *([table.total] if table.total else [])]
    rows = [[brief_cell(row.cells[index]) for index in kept] for row in shown]
    head = [(soft(column.title),) for column in columns]
    for first in range(0, len(rows), _ROWS):
        part = rows[first : first + _ROWS]
        yield Piece(content=_table(columns, [head, *part]), lines=len(part))
    if words := legend(columns):
        yield _line(soft(words))


def _table(columns: Sequence[TableColumn], rows: Iterable[Sequence[tuple[StyledText, ...]]]) -> JsonObject:
    widths: list[JsonValue] = [
        {"width": 1, "horizontalCellContentAlignment": "Right"} if column.right else {"width": 1 if column.whole else 3}
        for column in columns
    ]
    lines: list[JsonValue] = [
        {"type": "TableRow", "cells": [{"type": "TableCell", "items": [_text(words)]} for words in row]} for row in rows
    ]
    return {"type": "Table", "showGridLines": False, "columns": widths, "rows": lines}


def _figure(figure: Figure) -> JsonObject:
    items: list[JsonValue] = [
        _text(soft(figure.name), size="Small"),
        _text(strong(figure.value, figure.tone), size="Large"),
        _text(soft(figure.note), size="Small"),
    ]
    return {"type": "Column", "width": "stretch", "items": items}


def _line(words: Words) -> Piece:
    return Piece(content=_text(words), lines=1)


def _text(words: Words, *, size: str = "") -> JsonObject:
    """Return stretches of text as an element that reads no Markdown; together they are not longer than a message needs."""
    room = _MOST_TEXT
    runs: list[JsonValue] = []
    for span in spans(words):
        text = cut(for_terminal(span.text), room) if room > 0 else ""
        if text:
            room -= len(text)
            runs.append(_styled(text, span, size))
    return {"type": "RichTextBlock", "inlines": runs or [" "]}


def _styled(text: str, span: StyledText, size: str) -> JsonValue:
    """Return a stretch: text alone where it has no style, which is shorter."""
    style: JsonObject = {}
    if span.strong:
        style["weight"] = "Bolder"
    if span.code:
        style["fontType"] = "Monospace"
    if span.tone is Tone.SOFT:
        style["isSubtle"] = True
    if span.tone in _COLOURS:
        style["color"] = _COLOURS[span.tone]
    if size:
        style["size"] = size
    return {"type": "TextRun", "text": text, **style} if style else text


def _left_out(lines: int) -> JsonObject:
    return _text(soft(left_out_words(lines)))
