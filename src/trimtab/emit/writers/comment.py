"""Blocks as a comment of a pull request: a hidden first line by which a job finds it again, and no more than GitHub takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trimtab.emit.blocks import Block, Bullets, Folded, Page, Table, Words
from trimtab.emit.writers.markdown import join, markdown_text, words_text, write_blocks

MOST_CHARACTERS = 65_536
"""Of a comment: GitHub answers "Body is too long (maximum is 65536 characters)" to a longer one, as seen in
https://github.com/telia-oss/github-pr-resource/issues/259."""
_ROOM_FOR_NOTE = 120
"""Characters kept for the line that says what was left out."""


def marker(command: str) -> str:
    """Return the hidden first line of a command's comments."""
    return f"<!-- trimtab {command} -->"


def write_comment(command: str, heading: str, blocks: Sequence[Block], *, headline: Words = "", foot: str = "") -> str:
    """Return the comment; rows, lines and parts that it has no room for are left out at the end, and counted."""
    top = [marker(command), f"### {markdown_text(heading)}", words_text(headline)]
    end = f"<sub>{markdown_text(foot)}</sub>" if foot else ""
    room = MOST_CHARACTERS - len(join([*top, end])) - _ROOM_FOR_NOTE
    kept, missing = _fitting(blocks, room)
    note = f"*{missing} more lines are left out: a comment has no room for them.*" if missing else ""
    return join([*top, *kept, note, end])


def page_comment(command: str, page: Page, *, opened: str) -> str:
    """Return a page as a comment: the section of that name stands open, the others are folded away."""
    shown = [block for section in page.sections if section.name == opened for block in section.blocks]
    rest = [Folded(title=section.title, blocks=section.blocks) for section in page.sections if section.name != opened]
    return write_comment(command, page.heading, [*shown, *rest], headline=page.headline, foot=page.seen)


def _fitting(blocks: Sequence[Block], room: int) -> tuple[list[str], int]:
    """Return the blocks that fit, as text, and how many lines of the others do not."""
    kept: list[str] = []
    missing = 0
    for block in blocks:
        text = write_blocks([block]).strip("\n")
        if not missing and len(text) + 2 <= room:
            kept.append(text)
            room -= len(text) + 2
            continue
        if not missing and isinstance(block, Table | Bullets) and (count := _lines_that_fit(block, room)):
            kept.append(write_blocks([_first(block, count)]).strip("\n"))
            missing += lines_in(block) - count
        else:
            missing += lines_in(block)
    return kept, missing


def _lines_that_fit(block: Table | Bullets, room: int) -> int:
    """Return how many rows or lines of a block fit (bisection: more of them are never shorter)."""
    low, high = 0, lines_in(block)
    while low < high:
        middle = (low + high + 1) // 2
        if len(write_blocks([_first(block, middle)])) + 2 <= room:
            low = middle
        else:
            high = middle - 1
    return low


def _first(block: Table | Bullets, count: int) -> Block:
    if isinstance(block, Table):
        return replace(block, rows=block.rows[:count], total=None)
    return replace(block, items=block.items[:count])


def lines_in(block: Block) -> int:
    """Return the rows, items or paragraphs of a block."""
    match block:
        case Table():
            return len(block.rows)
        case Bullets():
            return len(block.items)
        case Folded():
            return sum(map(lines_in, block.blocks))
        case _:
            return 1
