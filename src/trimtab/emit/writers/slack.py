"""A page as a Slack message: the JSON that an incoming webhook takes, in Block Kit.

Text of others goes into `rich_text` blocks, which Slack does not parse ("strongly preferred" over mrkdwn,
https://docs.slack.dev/reference/block-kit/blocks/rich-text-block), so that no name becomes a mention, a link or bold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from pydantic import JsonValue

from trimtab.emit.blocks import (
    Block,
    Bullets,
    Chart,
    Code,
    Drawing,
    Figure,
    Folded,
    Page,
    Paragraph,
    StyledText,
    Table,
    Tone,
    Words,
    brief_table,
    plain,
    soft,
    spans,
    strong,
)
from trimtab.emit.writers import terminal
from trimtab.emit.writers.pieces import (
    JsonObject,
    Piece,
    chunks,
    compact_json,
    cut,
    fitted,
    item_words,
    left_out_words,
    shown_sections,
)
from trimtab.safe_text import for_terminal

MOST_BLOCKS = 50
"""Blocks of a message: https://docs.slack.dev/reference/block-kit/blocks."""
MOST_HEADER = 150
"""Characters of a header: https://docs.slack.dev/reference/block-kit/blocks/header-block."""
MOST_TEXT = 3000
"""Characters of a text: https://docs.slack.dev/reference/block-kit/blocks/section-block."""
MOST_FIELD = 2000
"""Characters of a field of a section, of which there may be 10 (same page)."""
MOST_ALL_TEXT, MOST_JSON = 9_500, 15_500
"""Characters of all texts of a message, and of its blocks as JSON, above which Slack may answer `msg_blocks_too_long`.

It states no such limit; 9,597 and 15,561 were measured to pass, 11,341 and 17,694 not
(https://github.com/slackapi/bolt-js/issues/2867).
"""
_MOST_FIELDS = 10
_TABLE_WIDTH = 66
"""Columns of a table in a fixed-width block: what a desktop shows without a break."""


def write_page(page: Page) -> str:
    """Return the message as JSON text; what exceeds a limit of Slack is left out, and counted."""
    blocks = fitted(list(_pieces(page)), fits_slack, _left_out)
    said = cut(_escaped(f"{page.heading}: {plain(page.headline)}"), MOST_TEXT)
    return compact_json({"text": said, "blocks": list(blocks)})


def fits_slack(blocks: Sequence[JsonObject]) -> bool:
    """Return whether blocks are as few and as short as Slack takes them in one message."""
    size = len(compact_json(list(blocks)))
    return len(blocks) <= MOST_BLOCKS and size <= MOST_JSON and sum(texts_in(list(blocks))) <= MOST_ALL_TEXT


def texts_in(value: JsonValue) -> Iterator[int]:
    """Yield the lengths of all texts that a message shows."""
    if isinstance(value, list):
        for part in value:
            yield from texts_in(part)
    elif isinstance(value, dict):
        for key, part in value.items():
            if key == "text" and isinstance(part, str):
                yield len(part)
            else:
                yield from texts_in(part)


def _pieces(page: Page) -> Iterator[Piece]:
    title: JsonValue = {"type": "plain_text", "text": cut(for_terminal(page.heading), MOST_HEADER), "emoji": False}
    yield Piece(content={"type": "header", "text": title}, lines=0)
    if page.headline:
        yield _section_piece(page.headline)
    if page.figures:
        fields: list[JsonValue] = [_field(figure) for figure in page.figures[:_MOST_FIELDS]]
        yield Piece(content={"type": "section", "fields": fields}, lines=len(fields))
    for line in (page.seen, *page.warnings, *page.notes):
        if line:
            yield _section_piece(soft(line))
    for section, blocks in shown_sections(page):
        gloss = (soft(f"\n{section.gloss}"),) if section.gloss else ()
        yield Piece(content=_rich(_run((strong(section.title), *gloss))), lines=0)
        for block in blocks:
            yield from _block(block)


def _block(block: Block) -> Iterator[Piece]:
    if block.title:
        yield Piece(content=_rich(_run(strong(block.title))), lines=0)
    match block:
        case Table():
            yield from _fixed_width(_table_lines(block))
        case Bullets():
            yield from _list(block)
        case Paragraph():
            yield _section_piece(block.words)
        case Code():
            yield from _fixed_width(for_terminal(block.text).splitlines())
            if block.gloss:
                yield _section_piece(soft(block.gloss))
        case Folded():
            for inner in block.blocks:
                yield from _block(inner)
        case Chart() | Drawing():
            return
        case _:
            assert_never(block)


def _table_lines(table: Table) -> list[str]:
    return terminal.write_table(brief_table(table), width=_TABLE_WIDTH, colour=False).splitlines()


def _fixed_width(lines: Iterable[str]) -> Iterator[Piece]:
    for run in chunks((line.rstrip() for line in lines), MOST_TEXT):
        text: JsonValue = {"type": "text", "text": "\n".join(run) or " "}
        yield Piece(content=_rich({"type": "rich_text_preformatted", "elements": [text]}), lines=len(run))


def _list(block: Bullets) -> Iterator[Piece]:
    for index, item in enumerate(block.items):
        listed: JsonObject = {
            "type": "rich_text_list",
            "style": "ordered" if block.numbered else "bullet",
            "elements": [_run(item_words(item))],
        }
        if block.numbered and index:
            listed["offset"] = index
        yield Piece(content=_rich(listed), lines=1)


def _section_piece(words: Words) -> Piece:
    return Piece(content=_rich(_run(words)), lines=1)


def _rich(element: JsonObject) -> JsonObject:
    return {"type": "rich_text", "elements": [element]}


def _run(words: Words) -> JsonObject:
    """Return stretches of text as an element; together they are at most as long as one text may be."""
    room = MOST_TEXT
    elements: list[JsonValue] = []
    for span in spans(words):
        text = cut(for_terminal(span.text), room) if room > 0 else ""
        if not text:
            continue
        room -= len(text)
        elements.append(_text(text, span))
    return {"type": "rich_text_section", "elements": elements or [{"type": "text", "text": "–"}]}


def _text(text: str, span: StyledText) -> JsonObject:
    styles = {"bold": span.strong, "code": span.code, "italic": span.tone is Tone.SOFT}
    chosen: JsonObject = {name: True for name, wanted in styles.items() if wanted}
    return {"type": "text", "text": text, **({"style": chosen} if chosen else {})}


def _field(figure: Figure) -> JsonObject:
    text = f"{figure.name}\n*{_escaped(figure.value)}*\n{_escaped(figure.note)}"
    return {"type": "mrkdwn", "text": cut(text, MOST_FIELD), "verbatim": True}


def _left_out(lines: int) -> JsonObject:
    said: JsonValue = {"type": "plain_text", "text": left_out_words(lines), "emoji": False}
    return {"type": "context", "elements": [said]}


def _escaped(text: str) -> str:
    """Return text in which mrkdwn sees no mention or link (https://docs.slack.dev/messaging/formatting-message-text)."""
    return for_terminal(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
