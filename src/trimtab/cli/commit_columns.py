"""Kinds of columns that the sheets of `trimtab commit` are made of."""

from __future__ import annotations

from trimtab.cli.sheet import Cell, Column, fixed
from trimtab.emit.money import dollars, percent


def _shown_percent(cell: Cell) -> str:
    return percent(cell) if isinstance(cell, int | float) else str(cell)


def _shown_dollars(cell: Cell) -> str:
    return dollars(cell) if isinstance(cell, int | float) else str(cell)


def text(key: str, title: str, *, whole: bool = False) -> Column:
    """Return a column of words."""
    return Column(key=key, title=title, whole=whole)


def number(key: str, title: str, digits: int = 0) -> Column:
    """Return a column of plain numbers."""
    return Column(key=key, title=title, show=fixed(digits), right=True)


def share(key: str, title: str) -> Column:
    """Return a column of shares, shown in percent."""
    return Column(key=key, title=title, show=_shown_percent, right=True)


def money(key: str, title: str) -> Column:
    """Return a column of dollars."""
    return Column(key=key, title=title, show=_shown_dollars, right=True)
