"""A page as GitHub-flavoured Markdown, for a wiki, a ticket or a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from trimtab.emit.blocks import (
    DOCUMENT_WIDTH,
    Amount,
    Block,
    Bullets,
    Cell,
    Chart,
    Code,
    DetailLevel,
    Drawing,
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
    Words,
    is_empty,
    legend,
    spans,
    strong,
)
from trimtab.safe_text import for_terminal

_SHOWN = DetailLevel.FULL


def write_page(page: Page) -> str:
    """Return the whole page."""
    parts = [
        f"# {markdown_text(page.heading)}",
        words_text(page.headline),
        markdown_text(page.seen),
        _list([*page.warnings, *page.notes]),
        *map(write_section, page.sections),
    ]
    return join(parts)


def write_section(section: Section) -> str:
    """Return a section under its title; nothing where it has nothing to show."""
    body = write_blocks(section.blocks).strip()
    if not body:
        return ""
    gloss = f"*{markdown_text(section.gloss)}*" if section.gloss else ""
    return join([f"## {markdown_text(section.title)}", gloss, body])


def write_blocks(blocks: Iterable[Block]) -> str:
    """Return blocks one below the other; pictures are left out."""
    return join(_block(block) for block in blocks if block.level <= _SHOWN)


def write_table(table: Table) -> str:
    """Return a table; groups are its first column."""
    grouped = any(row.group for row in table.rows)
    heads = [TableColumn(title=table.group_title), *table.columns] if grouped else table.columns
    rule = "|".join("---:" if column.right else "---" for column in heads)
    rows = [*table.rows, *([table.total] if table.total else [])]
    lines = [_line(markdown_text(column.title) for column in heads), f"|{rule}|"]
    return "\n".join([*lines, *(_line(_row(row, grouped)) for row in rows)])


def folded(title: str, body: str) -> str:
    """Return text behind a line that opens it; nothing where there is none."""
    return f"<details><summary>{markdown_text(title)}</summary>\n\n{body.strip()}\n\n</details>" if body.strip() else ""


def markdown_text(raw: str) -> str:
    """Return text that Markdown shows as it is: names may hold pipes, stars, underscores and angle brackets."""
    raw = for_terminal(" ".join(raw.split()))
    for mark in "\\`*_|<>[]":
        raw = raw.replace(mark, f"\\{mark}")
    return raw


def join(parts: Iterable[str]) -> str:
    """Return parts set apart by an empty line."""
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _block(block: Block) -> str:
    if is_empty(block):
        return ""
    match block:
        case Table():
            words = markdown_text(legend(block.columns))
            return join([_title(block.title), write_table(block), words])
        case Bullets():
            lines = [_item(item, f"{at}." if block.numbered else "-") for at, item in enumerate(block.items, 1)]
            # lines to copy need room around them
            apart = "\n\n" if any(item.code for item in block.items) else "\n"
            return join([_title(block.title), apart.join(lines)])
        case Paragraph():
            return join([_title(block.title), words_text(block.words)])
        case Code():
            return join([_fenced(block.text, "sh"), markdown_text(block.gloss)])
        case Drawing():
            return join([_title(block.title), _fenced(block.draw(DOCUMENT_WIDTH), "")])
        case Folded():
            return folded(block.title, write_blocks(block.blocks))
        case Chart():
            return ""
    assert_never(block)


def _title(title: str) -> str:
    return f"**{markdown_text(title)}**" if title else ""


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {markdown_text(line)}" for line in lines)


def _item(item: ListItem, mark: str) -> str:
    beneath = f" ({markdown_text(item.beneath)})" if item.beneath else ""
    text = f"{mark} {words_text(item.words)}{beneath}"
    return f"{text}\n\n{_indented(_fenced(item.code, 'yaml'))}" if item.code else text


def _fenced(text: str, language: str) -> str:
    return "\n".join([f"```{language}", *for_terminal(text).splitlines(), "```"])


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _row(row: TableRow, grouped: bool) -> list[str]:
    return [*([markdown_text(row.group)] if grouped else []), *map(_cell, row.cells)]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    if isinstance(cell, Amount):
        amount = f"{cell.usd:,.2f}"
        return words_text(strong(amount) if cell.strong else amount)
    if isinstance(cell, Noted):
        return f"{words_text(cell.words)}<br>{markdown_text(cell.beneath)}" if cell.beneath else words_text(cell.words)
    return words_text(cell)


def words_text(words: Words) -> str:
    """Return a text with the marks of its styles."""
    return "".join(map(_span, spans(words)))


def _span(span: StyledText) -> str:
    # marks stand next to words, so that spaces stay outside of them
    lead, body, tail = _apart(span.text)
    text = markdown_text(body)
    if not text:
        return span.text
    if span.code:
        text = f"`{body}`" if "`" not in body else text
    elif span.strong:
        text = f"**{text}**"
    return f"{lead}{text}{tail}"


def _apart(text: str) -> tuple[str, str, str]:
    body = text.strip()
    lead = " " if text[:1].isspace() else ""
    tail = " " if text[-1:].isspace() else ""
    return lead, body, tail
