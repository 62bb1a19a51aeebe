"""A message to a chat: pieces in order, and as many of them as its limits take, with a count of what was left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from trimtab.emit.blocks import Block, DetailLevel, Page, Section, is_empty

JsonObject = dict[str, JsonValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a message that is sent whole or not at all."""

    content: JsonObject
    lines: int
    """Lines or rows of the report that it holds; 0 for a title, which says nothing alone."""


def fitted(
    pieces: Sequence[Piece], fits: Callable[[list[JsonObject]], bool], left_out: Callable[[int], JsonObject]
) -> list[JsonObject]:
    """Return the first pieces that fit, and where some do not, a last one that says how many lines were left out."""
    whole = [piece.content for piece in pieces]
    if fits(whole):
        return whole
    for count in range(len(pieces) - 1, -1, -1):
        if count and not pieces[count - 1].lines:
            continue
        missing = sum(piece.lines for piece in pieces[count:])
        cut = [*whole[:count], left_out(missing)]
        if fits(cut):
            return cut
    return [left_out(sum(piece.lines for piece in pieces))]


def left_out_words(lines: int) -> str:
    """Say what a message has no room for."""
    line = "1 line is" if lines == 1 else f"{lines} lines are"
    return f"{line} left out, for which a message has no room; -o markdown shows them."


def shown_sections(page: Page) -> Iterator[tuple[Section, list[Block]]]:
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
