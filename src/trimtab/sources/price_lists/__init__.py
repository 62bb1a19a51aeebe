"""Price lists of the clouds as rates of the price book: what was read, and how many rows were left out for which reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from trimtab.catalog import BuyingOption, Price

Scope = tuple[str, str, BuyingOption]
"""Provider, region, buying option: what a list was requested in full."""


@dataclass(slots=True)
class PriceReading:
    """Rates read so far, rows left out by reason, and what was asked in full."""

    prices: list[Price] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    scopes: set[Scope] = field(default_factory=set)

    def skip(self, reason: str, number: int = 1) -> None:
        """Count rows that were left out."""
        self.skipped[reason] += number

    def cover(self, provider: str, regions: Iterable[str], *options: BuyingOption) -> None:
        """Note that the list had everything of these regions and options, so that what is absent is gone."""
        self.scopes.update((provider, region, option) for region in regions for option in options)

    def take(self, other: PriceReading) -> None:
        """Add what another list had."""
        self.prices.extend(other.prices)
        self.skipped.update(other.skipped)
        self.scopes |= other.scopes
