"""What a newly read price list changes: rates that are new, changed, gone or confirmed, and the history that results."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from enum import Enum

from trimtab.catalog.kinds import BuyingOption
from trimtab.catalog.prices import ANY_REGION, Price, PriceBook, PriceKey

SAME_FRAC = 1e-4
"""Rates this near one another are one rate, rounded otherwise: the packaged list has four digits of some."""


class ChangeKind(Enum):
    """How a rate stands against the one that held."""

    NEW = "new"
    CHANGED = "changed"
    VANISHED = "vanished"
    CONFIRMED = "confirmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingChange:
    """One offering before and after."""

    kind: ChangeKind
    before: Price | None
    after: Price | None

    @property
    def price(self) -> Price:
        """Return the newer of the two."""
        found = self.after or self.before
        if found is None:
            raise ValueError("a change has at least one side")
        return found

    @property
    def change_frac(self) -> float | None:
        """Return the rise as a share of the rate before."""
        if self.before is None or self.after is None:
            return None
        return self.after.usd_hr / self.before.usd_hr - 1


def buyable_as_before(listed: Iterable[Price], packaged: PriceBook) -> list[Price]:
    """Return list rates, those marked that nobody can buy: what the packaged book says of a type and a way of buying."""
    known: dict[tuple[str, str, BuyingOption], bool] = {}
    for price in packaged.offerings(purchasable_only=False):
        key = (price.provider, price.instance_type, price.option)
        known[key] = known.get(key, False) or price.purchasable
    return [
        replace(price, purchasable=known.get((price.provider, price.instance_type, price.option), True))
        for price in listed
    ]


def changes(
    listed: Sequence[Price],
    former: Sequence[Price],
    book: PriceBook,
    scopes: Collection[tuple[str, str, BuyingOption]],
) -> list[OfferingChange]:
    """Return how listed rates differ from those in force in a book, and which former ones the list no longer has.

    `scopes` are (provider, region, option) that the list covers in full; only there can a former rate have vanished.
    """
    found = [_against(price, book) for price in listed]
    keys = {price.key for price in listed}
    gone = [
        OfferingChange(kind=ChangeKind.VANISHED, before=price, after=None)
        for price in newest(former)
        if price.purchasable and price.key not in keys and (price.provider, price.region, price.option) in scopes
    ]
    return [*found, *gone]


def _against(price: Price, book: PriceBook) -> OfferingChange:
    held = [recorded for recorded in book.history(*price.key) if recorded.as_of <= price.as_of]
    before = held[-1] if held else None
    if before is None:
        return OfferingChange(kind=ChangeKind.NEW, before=None, after=price)
    same = abs(price.usd_hr / before.usd_hr - 1) <= SAME_FRAC and price.purchasable == before.purchasable
    return OfferingChange(kind=ChangeKind.CONFIRMED if same else ChangeKind.CHANGED, before=before, after=price)


def newest(prices: Iterable[Price]) -> list[Price]:
    """Return the newest rate of each offering, in the order of their first rows."""
    last: dict[PriceKey, Price] = {}
    for price in prices:
        held = last.get(price.key)
        last[price.key] = price if held is None or price.as_of >= held.as_of else held
    return list(last.values())


def without_own(listed: Iterable[Price], own: Iterable[Price]) -> list[Price]:
    """Return list rates without those of which a person stated a rate of their own, in that region or in any."""
    mine = {price.key for price in own}
    return [
        price
        for price in listed
        if price.key not in mine and (price.provider, price.instance_type, ANY_REGION, price.option) not in mine
    ]


def merged_history(former: Iterable[Price], found: Iterable[OfferingChange], today: date) -> list[Price]:
    """Return all rows after a refresh: a rate confirmed again keeps its first and its last day, one that vanished ends."""
    rows: dict[PriceKey, list[Price]] = {}
    for price in sorted(former, key=lambda price: price.as_of):
        rows.setdefault(price.key, []).append(price)
    for change in found:
        after = change.after or replace(change.price, as_of=today, purchasable=False, note="no longer in the list")
        history = [price for price in rows.get(after.key, []) if price.as_of < after.as_of]
        if len(history) > 1 and _alike(history[-1], after) and _alike(history[-2], after):
            history.pop()
        rows[after.key] = [*history, after]
    return [price for history in rows.values() for price in history]


def _alike(one: Price, other: Price) -> bool:
    return one.usd_hr == other.usd_hr and one.purchasable == other.purchasable and one.basis == other.basis
