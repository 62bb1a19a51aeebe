"""A page as a Slack message: the JSON that an incoming webhook takes, in Block Kit.

Text of others goes into `rich_text` blocks, which Slack does not parse ("strongly preferred" over mrkdwn,
https://docs.slack.dev/reference/block-kit/blocks/rich-text-block), so that no name becomes a mention, a link or bold.
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
    pieces_of,
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
    blocks = fitted(list(pieces_of(page, _Slack())), fits_slack, _left_out)
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


class _Slack:
    """The parts of a page in Block Kit."""

    def heading(self, text: str) -> JsonObject:
        title: JsonValue = {"type": "plain_text", "text": cut(for_terminal(text), MOST_HEADER), "emoji": False}
        return {"type": "header", "text": title}

    def figures(self, figures: Sequence[Figure]) -> Piece:
        fields: list[JsonValue] = [_field(figure) for figure in figures[:_MOST_FIELDS]]
        return Piece(content={"type": "section", "fields": fields}, lines=len(fields))

    def section(self, section: Section) -> JsonObject:
        gloss = (soft(f"\n{section.gloss}"),) if section.gloss else ()
        return self.text((strong(section.title), *gloss))

    def text(self, words: Words) -> JsonObject:
        return _rich(_run(words))

    def table(self, table: Table) -> Iterator[Piece]:
        written = terminal.write_table(brief_table(table), width=_TABLE_WIDTH, colour=False)
        return _fixed_width(written.splitlines())

    def bullets(self, block: Bullets) -> Iterator[Piece]:
        for index, item in enumerate(block.items):
            listed: JsonObject = {
                "type": "rich_text_list",
                "style": "ordered" if block.numbered else "bullet",
                "elements": [_run(item_words(item))],
            }
            if block.numbered and index:
                listed["offset"] = index
            yield Piece(content=_rich(listed), lines=1)

    def code(self, text: str) -> Iterator[Piece]:
        return _fixed_width(for_terminal(text).splitlines())


def _fixed_width(lines: Iterable[str]) -> Iterator[Piece]:
    for run in chunks((line.rstrip() for line in lines), MOST_TEXT):
        text: JsonValue = {"type": "text", "text": "\n".join(run) or " "}
        yield Piece(content=_rich({"type": "rich_text_preformatted", "elements": [text]}), lines=len(run))


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
