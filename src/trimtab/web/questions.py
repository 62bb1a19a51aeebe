"""What an address asks for, read within limits: a value that is too long, or no number where one is wanted, is refused."""

from __future__ import annotations

import math

from starlette.datastructures import QueryParams

from trimtab.errors import UsageError
from trimtab.web.tables import TableQuestion

MOST_CHARS = 400
"""Of a value in a query."""
MOST_PAGE = 100_000
MOST_OFF = 400
_FLAGS = {"": True, "1": True, "0": False}


class BadQuestion(UsageError):
    """A query that cannot be answered."""


def word(query: QueryParams, key: str) -> str:
    """Return a value as it stands, empty where it is not there; raises BadQuestion where it is too long."""
    value = query.get(key, "")
    if len(value) > MOST_CHARS:
        raise BadQuestion(f"{key} is longer than {MOST_CHARS} characters")
    return value


def table_question(query: QueryParams) -> TableQuestion:
    """Return what of a table is wanted; raises BadQuestion."""
    page, down = word(query, "page") or "1", word(query, "down")
    if not (page.isascii() and page.isdecimal() and len(page) <= len(str(MOST_PAGE)) and 1 <= int(page) <= MOST_PAGE):
        raise BadQuestion(f"page must be a number from 1 to {MOST_PAGE}")
    if down not in _FLAGS:
        raise BadQuestion("down must be 0 or 1")
    return TableQuestion(
        words=word(query, "q"), team=word(query, "team"), sort=word(query, "sort"), down=_FLAGS[down], page=int(page)
    )


def switched_off(query: QueryParams) -> frozenset[str]:
    """Return the ids of actions that are off: `off=a1,a3`; raises BadQuestion where they are too many."""
    ids = frozenset(name for part in query.getlist("off") for name in part.split(",") if name)
    if len(ids) > MOST_OFF or any(len(name) > MOST_CHARS for name in ids):
        raise BadQuestion(f"off takes up to {MOST_OFF} ids of actions")
    return ids


def number(query: QueryParams, key: str, least: float, most: float) -> float | None:
    """Return a number, None where it is left out; raises BadQuestion where it is none or out of range."""
    text = word(query, key)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise BadQuestion(f"{key} must be a number from {least:g} to {most:g}")
    return value
