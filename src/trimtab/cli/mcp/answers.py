"""Answers of tools: small enough for an agent's context, cut into pages that say how to get the rest.

What is shown is harmless: no escape sequence, no mark that lets a text read as another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from trimtab.safe_text import for_terminal

MOST_BYTES = 4000
"""Of an answer in UTF-8."""
_FACTS_BYTES = 2600
"""Of what stands on every page of an answer."""
_CUTS = (600, 300, 160, 80, 40, 20, 8)
"""Characters of a text, tried one after the other until it has room."""
_MORE = "…"
_LINE_CHARS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Facts that stand on every page, rows under columns of which a page shows some, and what to ask next."""

    facts: Mapping[str, object]
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    advice: str = ""


def table_of(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> list[list[object]]:
    """Return rows by key as rows in the order of the columns; what a row lacks is null."""
    return [[row.get(column) for column in columns] for row in rows]


def answer_text(answer: Answer, start: int = 0) -> str:
    """Return the page that begins at a row, as JSON of at most `MOST_BYTES`.

    A row that has no room even alone has its texts shortened, as have facts that are too large; shortened text ends in `…`.
    """
    head = _fitting(
        {name: _plain(value) for name, value in answer.facts.items() if value not in (None, "", (), [])}, _FACTS_BYTES
    )
    first = min(max(start, 0), len(answer.rows))
    whole = _page(head, answer, first, [list(map(_plain, row)) for row in answer.rows[first:]])
    if _size(whole) <= MOST_BYTES:
        return _json(whole)
    shown: list[JsonValue] = []
    for row in answer.rows[first:]:
        fuller = [*shown, list(map(_plain, row))]
        if _size(_page(head, answer, first, fuller)) > MOST_BYTES:
            break
        shown = fuller
    if not shown:
        room = MOST_BYTES - _size(_page(head, answer, first, []))
        shown = [_fitting(list(map(_plain, answer.rows[first])), room - 2)]
    return _json(_page(head, answer, first, shown))


def lines_text(text: str, start: int = 0) -> str:
    """Return the page of a text that begins at a line, with at most `MOST_BYTES`; its last line says how to go on."""
    lines = [_shortened(for_terminal(line), _LINE_CHARS) for line in text.rstrip("\n").split("\n")]
    first = min(max(start, 0), len(lines) - 1)
    shown: list[str] = []
    # the longest that this line can be
    rest = _further(first, len(lines) - 1, len(lines))
    for line in lines[first:]:
        if len("\n".join([*shown, line, rest]).encode()) > MOST_BYTES:
            break
        shown.append(line)
    end = first + len(shown)
    return "\n".join(shown if first == 0 and end == len(lines) else [*shown, _further(first, end, len(lines))])


def short_words(words: str) -> str:
    """Return what is said of a fault, harmless and within `MOST_BYTES`."""
    fitting = _fitting(for_terminal(words), MOST_BYTES // 2, cuts=(MOST_BYTES // 2, MOST_BYTES // 4, MOST_BYTES // 8))
    return str(fitting)


def _further(first: int, end: int, of: int) -> str:
    shown = f"[lines {first + 1} to {end} of {of}"
    return f"{shown}; ask again with start={end} for the rest]" if end < of else f"{shown}: the last]"


def _page(head: JsonValue, answer: Answer, first: int, rows: list[JsonValue]) -> dict[str, JsonValue]:
    """Return a page: the facts, the rows that it shows, which those are where they are not all, and what to ask next."""
    page: dict[str, JsonValue] = dict(head) if isinstance(head, dict) else {}
    if answer.columns:
        page |= {"columns": list(answer.columns), "rows": rows}
    end, of = first + len(rows), len(answer.rows)
    if end < of or first:
        page["shown"] = f"rows {first + 1} to {end} of {of}" if rows else f"no row: there are {of}"
    if end < of:
        page["rest"] = f"ask again with start={end}"
    if answer.advice:
        page["next"] = answer.advice
    return page


def _plain(value: object) -> JsonValue:
    """Return a value as JSON has it, its texts harmless; what JSON does not have becomes text."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if abs(value) < float("inf") else None
        case str():
            return for_terminal(value)
        case Mapping():
            return {for_terminal(str(key)): _plain(part) for key, part in value.items()}
        case Sequence():
            return [_plain(part) for part in value]
        case _:
            return for_terminal(str(value))


def _fitting(value: JsonValue, most_bytes: int, cuts: Sequence[int] = _CUTS) -> JsonValue:
    """Return a value whose JSON has at most so many bytes: its texts shortened, then its lists and mappings."""
    if _size(value) <= most_bytes:
        return value
    for chars in cuts:
        value = _with_short_texts(value, chars)
        if _size(value) <= most_bytes:
            return value
    if isinstance(value, dict):
        return _first_parts(value, most_bytes)
    return [] if isinstance(value, list) else _MORE


def _first_parts(value: dict[str, JsonValue], most_bytes: int) -> JsonValue:
    kept: dict[str, JsonValue] = {}
    for name, part in value.items():
        if _size({**kept, name: part}) <= most_bytes:
            kept[name] = part
    return kept


def _with_short_texts(value: JsonValue, chars: int) -> JsonValue:
    match value:
        case str():
            return _shortened(value, chars)
        case list():
            return [_with_short_texts(part, chars) for part in value]
        case dict():
            return {name: _with_short_texts(part, chars) for name, part in value.items()}
        case _:
            return value


def _shortened(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[: chars - 1]}{_MORE}"


def _size(value: JsonValue) -> int:
    return len(_json(value).encode())


def _json(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
