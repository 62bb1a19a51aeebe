"""What to commit to and when: the layers that a pool's own use backs, what each returns, how the rules would have done.

A commitment is paid for every hour of its term, used or not; on demand is paid for the hours used. Money is in dollars over
the whole term, undiscounted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import numpy as np

from trimtab.catalog.kinds import BuyingOption
from trimtab.catalog.pools import Pool
from trimtab.catalog.prices import Price
from trimtab.ledger import Commitment, CommitmentOffer, best_count
from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.replay.commitments import Choice, CommitRule, Level, choose, cost, held_units, supported_units
from trimtab.units import HR_PER_DAY, HR_PER_MO, HR_PER_WEEK, HR_PER_YEAR, MO_PER_YEAR, S_PER_HR, micro_usd


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


RECENT_HR = 4 * HR_PER_WEEK
"""Shares and savings are stated of the use of the last four weeks; the evidence and the rules see all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One purchase: `buy` nodes `day` days from now, which brings what is held to `hold`."""

    day: int
    buy: int
    hold: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Advice:
    """What to hold of one pool, bought as one offer, and why."""

    pool: Pool
    offer: CommitmentPrice
    on_demand_usd_hr: float
    nodes: FloatArray
    """(n_hours,) nodes in use."""
    owned: int
    """Nodes that running commitments cover already."""
    backed_nodes: float
    """Nodes that the use so far backs, owned ones included."""
    choice: Choice
    """The rules that the pool's own history chose, and what they cost there."""
    layers: tuple[Layer, ...]
    best_nodes: int
    """What would have been best to hold over the recent weeks, known afterwards."""
    rule_costs: dict[CommitRule, float]
    """Cost over all on demand of each rule: first half of the window known, second half played."""

    @property
    def discount_frac(self) -> float:
        """Return what the offer takes off the on-demand price."""
        return 1 - self.offer.effective_usd_hr / self.on_demand_usd_hr

    @property
    def hold(self) -> int:
        """Return the nodes held after the last layer."""
        return self.layers[-1].hold if self.layers else self.owned

    @property
    def buy(self) -> int:
        """Return the nodes to buy in all layers."""
        return self.hold - self.owned

    @property
    def bought(self) -> Commitment:
        """Return all layers as the ledger takes them."""
        rates = {self.pool: micro_usd(self.offer.effective_usd_hr)}
        offer = CommitmentOffer(option=self.offer.option, rates_micro_usd_hr=rates)
        return Commitment(offer=offer, quantity=self.buy)

    def used_frac(self, floor: int, top: int) -> float:
        """Return the share of the recent hours in which the nodes above `floor` and up to `top` were in use."""
        recent = self.nodes[-RECENT_HR:]
        return float(np.clip(recent - floor, 0, top - floor).mean() / (top - floor)) if top > floor else 0.0

    @property
    def saving_usd_mo(self) -> float:
        """Return what the bought nodes would have saved a month on the recent use, had they been held throughout it."""
        used = self.used_frac(self.owned, self.hold) * self.on_demand_usd_hr
        return self.buy * (used - self.offer.effective_usd_hr) * HR_PER_MO


@dataclass(frozen=True, slots=True, kw_only=True)
class Backing:
    """What a use backs, and the pace at which the rules chosen on it would buy that."""

    choice: Choice
    supported: dict[Level, float]
    term_hr: float
    most_units: float = math.inf
    """A cap on what is held, whatever the use backs."""

    def wanted_units(self, elapsed_hr: float) -> float:
        """Return what to hold so long after the first purchase, if the use stays as it is."""
        return min(self.choice.wanted_units(self.supported, elapsed_hr, self.term_hr), self.most_units)

    @property
    def units(self) -> float:
        """Return what is backed in the end."""
        return self.wanted_units(self.term_hr)


def backing(use: FloatArray, discount_frac: float, term_hr: float, *, cover_most_frac: float = 1.0) -> Backing:
    """Return what a use by hour (n_hours,) backs, in nodes or in dollars an hour, by the rules that its own history chose.

    No more than `cover_most_frac` of the mean use of the recent weeks is held.
    """
    return _backing(np.asarray(use, dtype=np.float64).tobytes(), discount_frac, term_hr, cover_most_frac)


@lru_cache(maxsize=1024)
def _backing(use_bytes: bytes, discount_frac: float, term_hr: float, cover_most_frac: float) -> Backing:
    """Return what a use backs; asked again for most pools, unchanged, for every other plan that is compared."""
    use = np.frombuffer(use_bytes)
    choice = choose(use, discount_frac)
    levels = {candidate.level for candidate in choice.weights}
    recent = use[-RECENT_HR:]
    return Backing(
        choice=choice,
        supported={level: supported_units(level, use, discount_frac, term_hr) for level in levels},
        term_hr=term_hr,
        most_units=cover_most_frac * float(recent.mean()) if len(recent) else 0.0,
    )


def advise(
    pool: Pool,
    node_seconds: IntArray,
    on_demand_usd_hr: float,
    offers: Sequence[CommitmentPrice],
    *,
    owned: int = 0,
    cover_most_frac: float = 1.0,
) -> Advice | None:
    """Return the layers to buy of the cheapest offer, given hourly use (n_hours,); None where no offer is below on demand.

    Demand is taken as it was. Nodes are whole: a layer brings what is held to what is backed and
    released, rounded to the nearest node.
    """
    paying = [offer for offer in offers if offer.effective_usd_hr < on_demand_usd_hr]
    if not paying:
        return None
    offer = min(paying, key=lambda offer: (offer.effective_usd_hr, offer.upfront_usd))
    nodes = np.asarray(node_seconds / S_PER_HR, dtype=np.float64)
    discount = 1 - offer.effective_usd_hr / on_demand_usd_hr
    backed = backing(nodes, discount, offer.term_years * HR_PER_YEAR, cover_most_frac=cover_most_frac)
    return Advice(
        pool=pool,
        offer=offer,
        on_demand_usd_hr=on_demand_usd_hr,
        nodes=nodes,
        owned=owned,
        backed_nodes=backed.units,
        choice=backed.choice,
        layers=layers(backed, owned),
        best_nodes=best_count(
            node_seconds[-RECENT_HR:], micro_usd(on_demand_usd_hr), micro_usd(offer.effective_usd_hr)
        ),
        rule_costs=_rule_costs(nodes, discount),
    )


def layers(backed: Backing, owned: int = 0, *, step_units: float = 1.0) -> tuple[Layer, ...]:
    """Return one purchase a month for as long as more is released; months in which it buys no whole step are left out.

    The rules review daily. A month stands for that here, because the use of days to come is not known yet.
    """
    found, held = [], owned
    for month in range(math.ceil(backed.term_hr / HR_PER_MO) + 1):
        wanted = math.floor(backed.wanted_units(month * HR_PER_MO) / step_units + 0.5)
        if wanted > held:
            found.append(Layer(day=round(month * HR_PER_MO / HR_PER_DAY), buy=wanted - held, hold=wanted))
            held = wanted
    return tuple(found)


def _rule_costs(nodes: FloatArray, discount_frac: float) -> dict[CommitRule, float]:
    half = len(nodes) // 2
    history, test = nodes[:half], nodes[half:]
    on_demand = float(test.sum())
    if half == 0 or on_demand <= 0:
        return {}
    return {
        rule: cost(test, held_units(rule, history, test, discount_frac), discount_frac) / on_demand
        for rule in CommitRule
    }
