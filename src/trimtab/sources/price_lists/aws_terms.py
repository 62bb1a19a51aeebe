"""AWS on-demand and reserved terms, however a list spells them, as hourly rates of the price book.

A reserved term is an hourly rate, an upfront fee, or both: its rate is hourly + upfront / hours of the term. Of the offers of
one term the standard class without upfront is taken, else the one with the smallest upfront part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from trimtab.catalog import BuyingOption, Price
from trimtab.sources.price_lists.reading import Reading
from trimtab.units import HR_PER_YEAR

SOURCE = "aws-price-list"
_LEASES = {"1yr": BuyingOption.RESERVED_1Y, "3yr": BuyingOption.RESERVED_3Y}
_UPFRONT = ("No Upfront", "Partial Upfront", "All Upfront")
_WANTED = {
    "operating_system": ("Linux",),
    "tenancy": ("Shared",),
    "pre_installed": ("NA", ""),
    "capacity": ("Used", ""),
    "market": ("OnDemand", ""),
}
_REASONS = {
    "operating_system": "another operating system",
    "tenancy": "dedicated tenancy",
    "pre_installed": "software included",
    "capacity": "capacity reservation, not an instance hour",
    "market": "capacity block",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TermLine:
    """One price dimension of one term of one product."""

    instance_type: str
    region: str
    term: str
    """What tells terms apart: SKU and offer term code."""
    reserved: bool
    lease: str
    purchase: str
    offering_class: str
    unit: str
    amount: float
    currency: str
    operating_system: str
    tenancy: str
    pre_installed: str
    capacity: str
    market: str


@dataclass(slots=True, kw_only=True)
class _Offer:
    line: TermLine
    hourly_usd: float = 0.0
    upfront_usd: float = 0.0

    def usd_hr(self, option: BuyingOption) -> float:
        return self.hourly_usd + (self.upfront_usd / (HR_PER_YEAR * option.term_years) if self.upfront_usd else 0.0)


def term_rates(lines: Iterable[TermLine], types: frozenset[str], today: date, reading: Reading) -> None:
    """Add the rates of the lines of a list; what is left out is counted."""
    offers: dict[tuple[str, str, BuyingOption], dict[str, _Offer]] = {}
    for line in lines:
        option = _option(line, types, reading)
        if option is None:
            continue
        found = offers.setdefault((line.instance_type, line.region, option), {})
        offer = found.setdefault(line.term, _Offer(line=line))
        if line.unit == "Hrs":
            offer.hourly_usd += line.amount
        else:
            offer.upfront_usd += line.amount
    for (name, region, option), found in offers.items():
        offer = min(found.values(), key=lambda one: (_UPFRONT.index(one.line.purchase or _UPFRONT[0]), one.line.term))
        if not 0 < offer.usd_hr(option) < math.inf:
            reading.skip("aws: price of 0, or no number")
            continue
        reading.prices.append(
            Price(
                provider="aws",
                instance_type=name,
                region=region,
                option=option,
                usd_hr=round(offer.usd_hr(option), 6),
                as_of=today,
                source=SOURCE,
                note=f"standard RI, {offer.line.purchase.lower()}" if offer.line.reserved else "",
            )
        )


def _option(line: TermLine, types: frozenset[str], reading: Reading) -> BuyingOption | None:
    """Return what a line is a price of; None, counted, where it is none of ours."""
    reason = _why_not(line, types)
    if reason:
        reading.skip(f"aws: {reason}")
        return None
    return _LEASES[_lease(line)] if line.reserved else BuyingOption.ON_DEMAND


def _why_not(line: TermLine, types: frozenset[str]) -> str | None:
    if line.instance_type not in types:
        return "type that the catalog does not know"
    for field, allowed in _WANTED.items():
        if getattr(line, field) not in allowed:
            return _REASONS[field]
    if line.currency != "USD":
        return f"currency {line.currency}"
    if line.unit not in ("Hrs", "Quantity"):
        return f"unit {line.unit!r}"
    if not line.reserved:
        return "upfront fee without a term" if line.unit == "Quantity" else None
    if line.offering_class != "standard":
        return "convertible reservation"
    if _lease(line) not in _LEASES or line.purchase not in _UPFRONT:
        return "reservation of another term"
    return None


def _lease(line: TermLine) -> str:
    return line.lease.replace(" ", "")
