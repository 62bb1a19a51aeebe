"""What to commit to and when: the layers that a pool's own use backs, and how the rules would have done on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.fleet.model import FloatArray, IntArray
from trimtab.ledger import Commitment, CommitmentOffer, best_count
from trimtab.levers.commit_table import Offer
from trimtab.policies.commitment import LayerRule, backed_units, evidence_limit_hr, no_evidence, observe, released_frac
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
    offer: Offer
    on_demand_usd_hr: float
    nodes: FloatArray
    """(n_hours,) nodes in use."""
    owned: int
    """Nodes that running commitments cover already."""
    backed_nodes: float
    """Nodes that the use so far backs, owned ones included."""
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


def advise(
    pool: Pool,
    node_seconds: IntArray,
    on_demand_usd_hr: float,
    offers: Sequence[Offer],
    *,
    owned: int = 0,
    rule: LayerRule | None = None,
) -> Advice | None:
    """Return the layers to buy of the cheapest offer, given hourly use (n_hours,); None where no offer is below on demand.

    Demand is taken as it was. Nodes are whole: a layer brings what is held to what is backed and
    released, rounded to the nearest node.
    """
    paying = [offer for offer in offers if offer.effective_usd_hr < on_demand_usd_hr]
    if not paying:
        return None
    offer, chosen = min(paying, key=lambda one: (one.effective_usd_hr, one.upfront_usd)), rule or LayerRule()
    nodes = np.asarray(node_seconds / S_PER_HR, dtype=np.float64)
    discount = 1 - offer.effective_usd_hr / on_demand_usd_hr
    term_hr = offer.term_years * HR_PER_YEAR
    supported = backed(nodes, discount, chosen, term_hr)
    return Advice(
        pool=pool,
        offer=offer,
        on_demand_usd_hr=on_demand_usd_hr,
        nodes=nodes,
        owned=owned,
        backed_nodes=supported,
        layers=layers(supported, owned, chosen, term_hr),
        best_nodes=best_count(
            node_seconds[-RECENT_HR:], micro_usd(on_demand_usd_hr), micro_usd(offer.effective_usd_hr)
        ),
        rule_costs=_rule_costs(nodes, discount),
    )


def backed(use: FloatArray, discount_frac: float, rule: LayerRule, term_hr: float) -> float:
    """Return how many units a rule backs after a use by hour (n_hours,), in nodes or in dollars an hour."""
    limit_hr = evidence_limit_hr(rule, term_hr)
    evidence = no_evidence(float(use.max(initial=0.0)))
    for units in use.tolist():
        evidence = observe(evidence, units, discount_frac, limit_hr)
    return backed_units(evidence, limit_hr)


def layers(supported: float, owned: int, rule: LayerRule, term_hr: float) -> tuple[Layer, ...]:
    """Return one purchase a month for as long as the rule releases more; months in which it buys no whole unit are left out.

    The rule reviews daily. A month stands for that here, because the evidence of days to come is not known yet.
    """
    found, held = [], owned
    for month in range(math.ceil(rule.layers_frac * term_hr / HR_PER_MO) + 1):
        wanted = math.floor(supported * released_frac(rule, month * HR_PER_MO, term_hr) + 0.5)
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
