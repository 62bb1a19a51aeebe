"""A message to a chat: pieces in order, and as many of them as its limits take, with a count of what was left out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, assert_never

from pydantic import JsonValue

from trimtab.emit.blocks import (
    Block,
    Bullets,
    Chart,
    Code,
    DetailLevel,
    Drawing,
    Figure,
    Folded,
    ListItem,
    Page,
    Paragraph,
    Section,
    StyledText,
    Table,
    Words,
    is_empty,
    soft,
    spans,
    strong,
)

JsonObject = dict[str, JsonValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a message that is sent whole or not at all."""

    content: JsonObject
    lines: int
    """Lines or rows of the report that it holds; 0 for a title, which says nothing alone."""


class Chat(Protocol):
    """How a chat program writes each part of a page; `pieces_of` says which parts there are, and their order."""

    def heading(self, text: str) -> JsonObject:
        """Return the title of the message."""
        ...

    def figures(self, figures: Sequence[Figure]) -> Piece:
        """Return the figures at the top, as many as the chat takes."""
        ...

    def section(self, section: Section) -> JsonObject:
        """Return the title of a section with its gloss."""
        ...

    def text(self, words: Words) -> JsonObject:
        """Return a paragraph."""
        ...

    def table(self, table: Table) -> Iterator[Piece]:
        """Yield a table, in parts where it is long."""
        ...

    def bullets(self, block: Bullets) -> Iterator[Piece]:
        """Yield a list, a piece per item."""
        ...

    def code(self, text: str) -> Iterator[Piece]:
        """Yield what is to be copied."""
        ...


def pieces_of(page: Page, chat: Chat) -> Iterator[Piece]:
    """Yield the pieces of a page in order; charts and drawings are left out, since a chat shows none."""
    yield Piece(content=chat.heading(page.heading), lines=0)
    if page.headline:
        yield Piece(content=chat.text(page.headline), lines=1)
    if page.figures:
        yield chat.figures(page.figures)
    for line in (page.seen, *page.warnings, *page.notes):
        if line:
            yield Piece(content=chat.text(soft(line)), lines=1)
    for section, blocks in _shown_sections(page):
        yield Piece(content=chat.section(section), lines=0)
        for block in blocks:
            yield from _block(block, chat)


def _block(block: Block, chat: Chat) -> Iterator[Piece]:
    if block.title:
        yield Piece(content=chat.text(strong(block.title)), lines=0)
    match block:
        case Table():
            yield from chat.table(block)
        case Bullets():
            yield from chat.bullets(block)
        case Paragraph():
            yield Piece(content=chat.text(block.words), lines=1)
        case Code():
            yield from chat.code(block.text)
            if block.gloss:
                yield Piece(content=chat.text(soft(block.gloss)), lines=1)
        case Folded():
            for inner in block.blocks:
                yield from _block(inner, chat)
        case Chart() | Drawing():
            return
        case _:
            assert_never(block)


def compact_json(value: JsonValue | Mapping[str, JsonValue] | Sequence[JsonObject]) -> str:
    """Return JSON text without spaces, as it is sent: limits count them."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def fitted(
    pieces: Sequence[Piece], fits: Callable[[list[JsonObject]], bool], left_out: Callable[[int], JsonObject]
) -> list[JsonObject]:
    """Return the first pieces that fit, and where some do not, a last one that says how many lines were left out."""
    whole = [piece.content for piece in pieces]
    if fits(whole):
        return whole

    def cut_after(count: int) -> list[JsonObject]:
        while count and not pieces[count - 1].lines:
            count -= 1
        return [*whole[:count], left_out(sum(piece.lines for piece in pieces[count:]))]

    # more pieces never take less room, so the most that fit are found by bisection
    low, high = 0, len(pieces) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(cut_after(middle)) else (low, middle - 1)
    return cut_after(low)


def left_out_words(lines: int) -> str:
    """Say what a message has no room for."""
    line = "1 line is" if lines == 1 else f"{lines} lines are"
    return f"{line} left out, for which a message has no room; -o markdown shows them."


def _shown_sections(page: Page) -> Iterator[tuple[Section, list[Block]]]:
    """Yield the sections that have something at the brief level, and what: a chat is read like a screen."""
    for section in page.sections:
        blocks = [block for block in section.blocks if block.level <= DetailLevel.BRIEF and not is_empty(block)]
        if blocks:
            yield section, blocks


def cut(text: str, most: int) -> str:
    """Return a text of at most so many characters; where something is cut off, it says how many."""
    if len(text) <= most:
        return text
    said = f" … ({len(text):,} characters)"
    return f"{text[: most - len(said)]}{said}"


def chunks(lines: Iterable[str], most: int) -> Iterator[list[str]]:
    """Yield lines in runs of at most so many characters together; a longer line is cut."""
    run: list[str] = []
    size = 0
    for line in lines:
        kept = cut(line, most)
        if run and size + len(kept) + 1 > most:
            yield run
            run, size = [], 0
        run.append(kept)
        size += len(kept) + 1
    if run:
        yield run


def item_words(item: ListItem) -> tuple[str | StyledText, ...]:
    """Return a list's item in a message: its words, and below them what is to be copied."""
    copied = (StyledText(f"\n{item.code}", code=True),) if item.code else ()
    return (*spans(item.words), *copied)
