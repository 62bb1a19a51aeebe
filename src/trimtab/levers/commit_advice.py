"""What to commit to and when: the layers that a pool's own use backs, and how the rules would have done on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.fleet.model import FloatArray, IntArray
from trimtab.ledger import Commitment, CommitmentOffer, best_count
from trimtab.levers.commit_table import CommitmentPrice
from trimtab.replay.commit_choice import Choice, Level, choose, supported_units
from trimtab.replay.commitments import CommitRule, cost, held_units
from trimtab.units import HR_PER_DAY, HR_PER_MO, HR_PER_WEEK, HR_PER_YEAR, S_PER_HR, micro_usd

RECENT_HR = 4 * HR_PER_WEEK
"""Use of the last four weeks is what shares and savings are told of; the evidence and the rules see all of it."""


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
