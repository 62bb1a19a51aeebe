"""What a commitment returns, against the on-demand price, for so many nodes used so many hours a month.

A commitment is paid for every hour of its term, used or not; on demand is paid for the hours used. Money is in dollars over
the whole term, undiscounted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from trimtab.catalog.kinds import BuyingOption
from trimtab.catalog.pools import Pool
from trimtab.catalog.prices import Price
from trimtab.units import HR_PER_MO, HR_PER_YEAR, MO_PER_YEAR


class Payment(Enum):
    """When a commitment is paid."""

    MONTHLY = "monthly"
    PARTIAL_UPFRONT = "partial upfront"
    ALL_UPFRONT = "all upfront"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitmentPrice:
    """A commitment to one node that can be bought. Raises ValueError where a figure cannot be."""

    pool: Pool
    term_years: int
    upfront_usd: float
    usd_hr: float
    source: str

    def __post_init__(self) -> None:
        known = math.isfinite(self.upfront_usd) and math.isfinite(self.usd_hr)
        if not known or self.term_years < 1 or min(self.upfront_usd, self.usd_hr) < 0 or self.effective_usd_hr <= 0:
            raise ValueError("an offer needs a term of at least 1 year and a price above 0")

    @property
    def payment(self) -> Payment:
        """Return when it is paid."""
        if self.upfront_usd == 0:
            return Payment.MONTHLY
        return Payment.ALL_UPFRONT if self.usd_hr == 0 else Payment.PARTIAL_UPFRONT

    @property
    def effective_usd_hr(self) -> float:
        """Return the price of an hour of the term, what is paid upfront spread over it."""
        return self.usd_hr + self.upfront_usd / (self.term_years * HR_PER_YEAR)

    @property
    def option(self) -> BuyingOption:
        """Return the buying option of its term; a term that the price book has no option for raises ValueError."""
        return BuyingOption(f"reserved-{self.term_years}y")


def listed_offer(pool: Pool, price: Price) -> CommitmentPrice:
    """Return a commitment of the price book as an offer; its rates are what an hour costs with nothing paid upfront."""
    return CommitmentPrice(
        pool=pool,
        term_years=price.option.term_years,
        upfront_usd=0.0,
        usd_hr=price.usd_hr,
        source=f"{price.source}, {price.as_of}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """One row of the return table: an offer for `nodes` nodes, each used `hours_mo` hours a month."""

    offer: CommitmentPrice
    nodes: int
    hours_mo: float
    on_demand_usd: float
    """Over the term, for the hours used."""
    committed_usd: float
    """Over the term, used or not."""
    break_even_mo: float | None
    """Month in which on demand will have cost as much as the whole commitment; None where it never does within the term."""
    on_demand_usd_year: float
    committed_usd_year: float
    """A year's cost over three years; a shorter term is bought again at the same price."""
    loses_below_frac: float
    """Share of all hours; used less than this, the commitment costs more than on demand."""

    @property
    def saving_usd(self) -> float:
        """Return what is saved over the term; negative where it loses."""
        return self.on_demand_usd - self.committed_usd

    @property
    def saving_frac(self) -> float | None:
        """Return the saving as a share of on demand; None where nothing is used."""
        return self.saving_usd / self.on_demand_usd if self.on_demand_usd > 0 else None


def return_of(offer: CommitmentPrice, on_demand_usd_hr: float, *, nodes: int, hours_mo: float) -> Return:
    """Return what an offer for so many nodes returns; raises ValueError for more hours than a month has."""
    if nodes < 1 or not 0 <= hours_mo <= HR_PER_MO:
        raise ValueError(f"{nodes} nodes used {hours_mo:g} h a month: needs at least 1 node and at most {HR_PER_MO} h")
    months = offer.term_years * MO_PER_YEAR
    on_demand_usd_mo = nodes * hours_mo * on_demand_usd_hr
    committed_usd = nodes * offer.effective_usd_hr * offer.term_years * HR_PER_YEAR
    even_mo = committed_usd / on_demand_usd_mo if on_demand_usd_mo > 0 else None
    return Return(
        offer=offer,
        nodes=nodes,
        hours_mo=hours_mo,
        on_demand_usd=on_demand_usd_mo * months,
        committed_usd=committed_usd,
        break_even_mo=even_mo if even_mo is not None and even_mo <= months else None,
        on_demand_usd_year=on_demand_usd_mo * MO_PER_YEAR,
        committed_usd_year=committed_usd / offer.term_years,
        loses_below_frac=offer.effective_usd_hr / on_demand_usd_hr,
    )
