"""The price book: what an instance type cost at a date, in a region, under a buying option.

A price holds from its `as_of` until the next row for the same offering. Nothing is guessed: before the first known row, in
an unlisted region or under an option that is not sold there is no price, and the error says what is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cached_property

from trimtab.catalog.gpus import InstanceType
from trimtab.catalog.kinds import BuyingOption, InterruptionBucket, PriceBasis
from trimtab.catalog.rows import CatalogRow, day, packaged_rows
from trimtab.errors import MissingPrice, UnknownName
from trimtab.units import HR_PER_MO

MOST_USD_HR = 1e6
"""No node costs more; a thousand times the most expensive that is sold."""
ANY_REGION = "any"
"""The region of a rate that holds wherever the provider sells."""

STALE_DAYS = 120
"""Rates last confirmed longer ago than this are reported."""

PriceKey = tuple[str, str, str, BuyingOption]
"""Provider, instance type, region, buying option."""


def is_rate(usd_hr: float) -> bool:
    """Return whether an amount can be what an hour of a node costs; less than a millionth of a dollar is none."""
    return 0 < usd_hr <= MOST_USD_HR and round(usd_hr, 6) > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """One rate of one offering, from a date on. Raises ValueError where it is not above 0: a price of 0 is an error."""

    provider: str
    instance_type: str
    region: str
    option: BuyingOption
    usd_hr: float
    as_of: date
    source: str
    basis: PriceBasis = PriceBasis.LISTED
    purchasable: bool = True
    """False where a list states a rate that cannot be bought (GCP a3-highgpu-1g on demand) or the series is retired."""
    interruption: InterruptionBucket | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.usd_hr <= MOST_USD_HR:
            bounds = f"above 0 USD an hour and at most {MOST_USD_HR:,.0f}"
            raise ValueError(f"a price must be {bounds}, got {self.usd_hr:g} for {self.offering}")

    @property
    def key(self) -> PriceKey:
        """Return what the rate is for."""
        return (self.provider, self.instance_type, self.region, self.option)

    @property
    def offering(self) -> str:
        """Return what the rate is for, for people."""
        return f"{self.provider} {self.instance_type} in {self.region}, {self.option.value}"

    @property
    def usd_mo(self) -> float:
        """Return the rate of a month of 730 hours."""
        return self.usd_hr * HR_PER_MO


@dataclass(frozen=True, eq=False)
class PriceBook:
    """All known rates over time."""

    prices: tuple[Price, ...]
    instance_types: Mapping[tuple[str, str], InstanceType]

    @cached_property
    def _history(self) -> Mapping[PriceKey, tuple[Price, ...]]:
        """Rows of each offering, oldest first."""
        history: dict[PriceKey, list[Price]] = {}
        for price in self.prices:
            history.setdefault(price.key, []).append(price)
        return {key: tuple(sorted(rows, key=lambda row: row.as_of)) for key, rows in history.items()}

    @cached_property
    def _keys_of_type(self) -> Mapping[tuple[str, str], tuple[PriceKey, ...]]:
        keys: dict[tuple[str, str], list[PriceKey]] = {}
        for key in self._history:
            keys.setdefault(key[:2], []).append(key)
        return {pair: tuple(found) for pair, found in keys.items()}

    @property
    def keys(self) -> tuple[PriceKey, ...]:
        """Return every offering that has a rate at some date."""
        return tuple(self._history)

    def history(self, provider: str, instance_type: str, region: str, option: BuyingOption) -> tuple[Price, ...]:
        """Return all rows of one offering, oldest first; a rate that holds in any region counts where the region has none."""
        own = self._history.get((provider, instance_type, region, option), ())
        return own or self._history.get((provider, instance_type, ANY_REGION, option), ())

    def price(
        self, provider: str, instance_type: str, region: str, option: BuyingOption, *, at: date | None = None
    ) -> Price:
        """Return the rate that held at a date (the newest known where none is given).

        Raises UnknownName for a provider, type or region that no row knows, MissingPrice where the option is not sold or the
        date lies before the first known row.
        """
        rows = self.history(provider, instance_type, region, option)
        held = _latest(rows, at)
        if held is None:
            raise self._missing(provider, instance_type, region, option, rows, at)
        return held

    def options(
        self, provider: str, instance_type: str, region: str, *, at: date | None = None, purchasable_only: bool = True
    ) -> tuple[Price, ...]:
        """Return the rates under which a shape can be bought at a date, one per buying option, in the order of the options.

        `purchasable_only=False` adds list rates that cannot be bought. Empty where nothing is sold there at that date.
        """
        found = (_latest(self.history(provider, instance_type, region, option), at) for option in BuyingOption)
        return tuple(price for price in found if price and (price.purchasable or not purchasable_only))

    def offerings(
        self,
        *,
        gpu: str | None = None,
        provider: str | None = None,
        region: str | None = None,
        option: BuyingOption | None = None,
        at: date | None = None,
        purchasable_only: bool = True,
    ) -> tuple[Price, ...]:
        """Return the rates that hold at a date, filtered; `gpu` is a catalog name. Ordered as the table is.

        A filter by region keeps the rates that hold in any region, where the region has none of its own.
        """
        kept = []
        for key, rows in self._history.items():
            wanted = (
                provider in (None, key[0])
                and (region is None or self._counts_in(key, region))
                and option in (None, key[3])
                and (gpu is None or self.instance_types[key[:2]].gpu == gpu)
            )
            held = _latest(rows, at) if wanted else None
            if held and (held.purchasable or not purchasable_only):
                kept.append(held)
        return tuple(kept)

    def overridden(self, rows: Iterable[Price]) -> PriceBook:
        """Return a book in which the user's own rates hold from their date on, whatever a newer list row says.

        A rate for any region replaces every region's.
        """
        copies = [copy for row in rows for copy in self._copies(row)]
        since: dict[PriceKey, date] = {}
        for row in copies:
            since[row.key] = min(row.as_of, since.get(row.key, row.as_of))
        kept = (price for price in self.prices if price.key not in since or price.as_of < since[price.key])
        return replace(self, prices=(*kept, *copies))

    def stale(self, at: date, days: int) -> tuple[Price, ...]:
        """Return the rates in force at a date that were last confirmed more than `days` days before it."""
        oldest = at - timedelta(days=days)
        return tuple(price for price in self.offerings(at=at, purchasable_only=False) if price.as_of < oldest)

    def _counts_in(self, key: PriceKey, region: str) -> bool:
        """Return whether an offering's rate is the one of a region: its own, or the one for any region where it has none."""
        return key[2] == region or (key[2] == ANY_REGION and (key[0], key[1], region, key[3]) not in self._history)

    def _copies(self, row: Price) -> list[Price]:
        if row.region != ANY_REGION:
            return [row]
        keys = self._keys_of_type.get((row.provider, row.instance_type), ())
        regions = {key[2] for key in keys if key[3] is row.option} | {ANY_REGION}
        return [replace(row, region=region) for region in sorted(regions)]

    def _missing(
        self,
        provider: str,
        instance_type: str,
        region: str,
        option: BuyingOption,
        rows: tuple[Price, ...],
        at: date | None,
    ) -> MissingPrice | UnknownName:
        """Say why there is no price, and what there is."""
        wanted = f"no price for {provider} {instance_type} in {region}, {option.value}"
        if rows:
            return MissingPrice(f"{wanted} at {at}: the first known row is of {rows[0].as_of}; add your own rate")
        keys = self._keys_of_type.get((provider, instance_type), ())
        if not keys:
            return self._unknown(provider, instance_type)
        regions = sorted({key[2] for key in keys})
        if region not in regions and ANY_REGION not in regions:
            return UnknownName("region", region, regions, where=f"{provider} {instance_type} (sold in {len(regions)})")
        sold = [price.option.value for price in self.options(provider, instance_type, region)]
        return MissingPrice(f"{wanted}: known there are {', '.join(sold) or 'no purchasable rates'}; add your own rate")

    def _unknown(self, provider: str, instance_type: str) -> UnknownName:
        providers = {pair[0] for pair in self._keys_of_type}
        if provider not in providers:
            return UnknownName("provider", provider, sorted(providers))
        known = [pair[1] for pair in self._keys_of_type if pair[0] == provider]
        return UnknownName("instance type", instance_type, known, where=provider)


def _latest(rows: tuple[Price, ...], at: date | None) -> Price | None:
    """Return the newest row that is not after a date."""
    return next((row for row in reversed(rows) if at is None or row.as_of <= at), None)


def load_prices() -> tuple[Price, ...]:
    """Read the packaged prices."""
    return tuple(_price(row) for row in packaged_rows("prices.csv"))


_OPTIONS = {option.value: option for option in BuyingOption}
_BASES = {basis.value: basis for basis in PriceBasis}
_BUCKETS: Mapping[str, InterruptionBucket | None] = {
    "": None,
    **{bucket.value: bucket for bucket in InterruptionBucket},
}


def _price(row: CatalogRow) -> Price:
    return Price(
        provider=row["provider"],
        instance_type=row["instance_type"],
        region=row["region"],
        option=_OPTIONS[row["option"]],
        usd_hr=float(row["usd_hr"]),
        as_of=day(row["as_of"]),
        source=row["source"],
        basis=_BASES[row["basis"]],
        purchasable=row["purchasable"] == "yes",
        interruption=_BUCKETS[row["interruption"]],
        note=row["note"],
    )
