"""Prices as they would be: `spot+30%`, `H100-15%`, `p5.48xlarge+10%`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from trimtab.catalog.kinds import BuyingOption
from trimtab.catalog.prices import Price, PriceBook
from trimtab.catalog.registry import Catalog
from trimtab.errors import InputError, UnknownName

EVERYTHING = "all"
COMMITMENTS = "commitments"
_CHANGE = re.compile(r"(?P<what>.+?)(?P<percent>[+-]\d+(?:\.\d+)?)%")
_FORM = "write WHAT+N% or WHAT-N%, as spot+30%, H100-15%, aws+5%"


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceChange:
    """A factor on all rates of a buying option, a provider, an instance type or a GPU."""

    what: str
    factor: float

    def __str__(self) -> str:
        return f"{self.what}{100 * (self.factor - 1):+.4g}%"


def price_change(text: str) -> PriceChange:
    """Read a change; raises InputError. Whether anything answers to the name is told by `changed`."""
    found = _CHANGE.fullmatch(text.replace(" ", ""))
    if found is None:
        raise InputError(f"{text!r} is no price change; {_FORM}")
    factor = 1 + float(found["percent"]) / 100
    if not (math.isfinite(factor) and factor > 0):
        raise InputError(f"{text!r} would leave no price; {_FORM}")
    return PriceChange(what=found["what"], factor=factor)


def changed(catalog: Catalog, changes: Iterable[PriceChange]) -> Catalog:
    """Return the catalog with changed rates, at every date; raises UnknownName for a name that nothing answers to."""
    book = catalog.prices
    for change in changes:
        book = _changed(catalog, book, change)
    return replace(catalog, prices=book)


def _changed(catalog: Catalog, book: PriceBook, change: PriceChange) -> PriceBook:
    boards = _boards(catalog, change.what)
    hit = [_answers(catalog, price, change.what.lower(), boards) for price in book.prices]
    if not any(hit):
        known = {EVERYTHING, COMMITMENTS, *(option.value for option in BuyingOption), *catalog.providers}
        known |= {name for _, name in catalog.instance_table} | {board.name for board in catalog.gpus}
        raise UnknownName("buying option, provider, instance type or GPU", change.what, known, where=f"price {change}")
    note = f"changed by {100 * (change.factor - 1):+.4g}% for a scenario"
    return replace(
        book,
        prices=tuple(
            replace(price, usd_hr=price.usd_hr * change.factor, note=note) if is_hit else price
            for price, is_hit in zip(book.prices, hit, strict=True)
        ),
    )


def _boards(catalog: Catalog, name: str) -> frozenset[str]:
    """Return the boards that a name means: one, or all of a family (`A100`)."""
    try:
        return frozenset({catalog.gpu(name).name})
    except UnknownName:
        family = f"{name.lower()}-"
        return frozenset(board.name for board in catalog.gpus if board.name.lower().startswith(family))


def _answers(catalog: Catalog, price: Price, what: str, boards: frozenset[str]) -> bool:
    if what == COMMITMENTS:
        return price.option.term_years > 0
    instance = catalog.instance_table.get((price.provider, price.instance_type))
    return what in (EVERYTHING, price.option.value, price.provider, price.instance_type.lower()) or (
        instance is not None and instance.gpu in boards
    )
