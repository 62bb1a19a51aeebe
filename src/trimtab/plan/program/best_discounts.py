"""What to buy for a known use: committed nodes pool by pool, and where spend plans are sold, nodes and spend together.

A pool that no spend plan covers is a problem of its own (`best_count`). On the others, nodes and spend compete for the same
hours: for given nodes the best spend is exact (`best_spend`), and the bill at the best spend is convex in the nodes, so that
it is searched pool by pool in steps that double while they pay. Only what lowers the exact bill is taken, from two starts: no
nodes at all, and the nodes that would be best if no spend plan were sold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.ledger import Commitment, CommitmentOffer, best_count, best_spend, nodes_committed
from trimtab.ledger.arrays import IntArray, charge
from trimtab.ledger.commitments import cover, spend_corners
from trimtab.plan.problem import Problem
from trimtab.plan.program.couplings.node_commitments import beyond
from trimtab.units import S_PER_HR

Counts = dict[Pool, int]
_COARSE, _FINE = 64, 1_000_000
"""Corners of all but the last of a provider's plans that are tried while nodes are searched, and at the end."""


def best_discounts(
    problem: Problem, usage: Mapping[Pool, IntArray], start: Sequence[Commitment] | None = None
) -> tuple[Commitment, ...]:
    """Return what to buy of a problem's offers, above what is owned, so that the bill of a known use is least.

    `start` is what was best for a use much like it: the search goes on from there.
    """
    return best_of(usage, problem.rates_micro_usd_hr, offers=problem.offers, owned=problem.owned, start=start)


def best_of(
    usage: Mapping[Pool, IntArray],
    rates: Mapping[Pool, int],
    *,
    offers: Sequence[CommitmentOffer],
    owned: Sequence[Commitment],
    start: Sequence[Commitment] | None = None,
) -> tuple[Commitment, ...]:
    """Return what to buy of some offers, above what is owned, nodes first; nothing that does not pay is in it."""
    owned_nodes, owned_spend = nodes_committed(owned), [commitment for commitment in owned if commitment.offer.is_spend]
    node_offers = {offer.pool: offer for offer in offers if not offer.is_spend}
    spend_offers = [offer for offer in offers if offer.is_spend]
    known = (*spend_offers, *(commitment.offer for commitment in owned_spend))
    covered = {pool for offer in known for pool in offer.rates_micro_usd_hr if pool in usage}
    # each pool for itself; those that spend plans cover are searched jointly below
    counts = {
        pool: best_count(beyond(usage[pool], owned_nodes.get(pool, 0)), rates[pool], offer.rate_micro_usd_hr)
        for pool, offer in node_offers.items()
        if pool in usage
    }
    spend: dict[int, Commitment] = {}
    # no plan covers nodes of two providers, so each provider is a problem of its own
    for provider in sorted({pool.provider for pool in covered}):
        joint = _Joint(
            {
                pool: beyond(usage[pool], owned_nodes.get(pool, 0))
                for pool in sorted(covered)
                if pool.provider == provider
            },
            rates,
            {pool: offer.rate_micro_usd_hr for pool, offer in node_offers.items()},
            [(at, offer) for at, offer in enumerate(spend_offers) if offer.provider == provider],
            [commitment for commitment in owned_spend if commitment.offer.provider == provider],
        )
        found, bought = joint.best([counts, {}] if start is None else [nodes_committed(start)])
        counts |= found
        spend |= bought
    return (
        *(Commitment(offer=node_offers[pool], quantity=counts[pool]) for pool in sorted(counts) if counts[pool]),
        *(spend[at] for at in sorted(spend)),
    )


class _Joint:
    """The pools of one provider that spend plans cover, for one use beyond owned nodes: the exact bill at any counts."""

    def __init__(
        self,
        use: Mapping[Pool, IntArray],
        rates: Mapping[Pool, int],
        committed_micro_usd_hr: Mapping[Pool, int],
        offers: Sequence[tuple[int, CommitmentOffer]],
        owned: Sequence[Commitment],
    ) -> None:
        self._pools = tuple(use)
        self._use = np.array([use[pool] for pool in self._pools], dtype=np.int64)
        self._rates = {pool: rates[pool] for pool in self._pools}
        self._committed = {pool: committed_micro_usd_hr.get(pool) for pool in self._pools}
        self._offers = offers
        self._owned = owned
        self._known: dict[tuple[int, ...], int] = {}

    def best(self, starts: Sequence[Counts]) -> tuple[Counts, dict[int, Commitment]]:
        """Return the best counts found from some starts, and spend plans by their place among the offers."""
        ends = [self._improved(tuple(start.get(pool, 0) for pool in self._pools)) for start in starts]
        # ties go to the smaller counts, whatever the order of the starts
        best = min(ends, key=lambda end: (self._cost(end), end))
        counts = zip(self._pools, best, strict=True)
        found = {pool: count for pool, count in counts if self._committed[pool] is not None}
        return found, self._best_spends(self._left(best), self._offers, _FINE)[1]

    def _improved(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        """Return counts from which no pool's count alone can move at a gain."""
        # coordinate descent: where pools would have to move together it may stop short, hence the two starts
        while True:
            before = counts
            for at, pool in enumerate(self._pools):
                if self._committed[pool] is not None:
                    below, above = counts[:at], counts[at + 1 :]
                    # nodes beyond the peak use, rounded up, would stand idle in every hour
                    most = max(counts[at], -int(-self._use[at].max(initial=0) // S_PER_HR))
                    count = convex_minimum(partial(self._with, below, above), counts[at], most)
                    counts = (*below, count, *above)
            if counts == before:
                return counts

    def _with(self, below: tuple[int, ...], above: tuple[int, ...], count: int) -> int:
        return self._cost((*below, count, *above))

    def _cost(self, counts: tuple[int, ...]) -> int:
        """Return the bill at some counts with the best spend found for them, micro-dollars."""
        if counts not in self._known:
            nodes = sum(count * (rate or 0) for count, rate in zip(counts, self._committed.values(), strict=True))
            spent = self._best_spends(self._left(counts), self._offers, _COARSE)[0]
            # committed nodes are paid in every hour of the window
            self._known[counts] = spent + nodes * self._use.shape[1]
        return self._known[counts]

    def _left(self, counts: tuple[int, ...]) -> IntArray:
        """Return what some counts and the owned plans leave uncovered."""
        # in the ledger's order: nodes first, then the plans that are owned
        left: IntArray = np.maximum(self._use - np.array(counts, dtype=np.int64)[:, None] * S_PER_HR, 0)
        for plan in self._owned:
            left = left - cover(plan, self._pools, left, self._rates)
        return left

    def _best_spends(
        self, left: IntArray, offers: Sequence[tuple[int, CommitmentOffer]], corners: int
    ) -> tuple[int, dict[int, Commitment]]:
        """Return the least bill found for what nodes leave, and the plans that make it; a last offer's spend is exact.

        Of an offer before it so many corners are tried, evenly over all.
        """
        if not offers:
            metered = (int(charge(self._rates[pool], row).sum()) for pool, row in zip(self._pools, left, strict=True))
            return sum(metered), {}
        (at, offer), later = offers[0], offers[1:]

        def under(spend: int) -> tuple[int, dict[int, Commitment]]:
            plan = Commitment(offer=offer, quantity=spend)
            cost, plans = self._best_spends(left - cover(plan, self._pools, left, self._rates), later, corners)
            return cost + spend * left.shape[1], {at: plan, **plans} if spend else plans

        alone = best_spend(offer.rates_micro_usd_hr, self._pools, left, self._rates)
        if not later:
            return under(alone)
        every = np.unique(spend_corners(offer.rates_micro_usd_hr, self._pools, left, self._rates))
        # spread evenly over all corners, and always no spend at all and what is best without the other plans
        tried = np.unique(np.append(every[:: max(1, -(-len(every) // corners))], (0, alone)))
        best = convex_minimum(
            lambda place: under(int(tried[place]))[0], int(np.searchsorted(tried, alone)), len(tried) - 1
        )
        return under(int(tried[best]))


def convex_minimum(cost: Callable[[int], int], start: int, most: int) -> int:
    """Return where a convex cost over 0..most is least, from a start in steps that double while they pay."""
    known, best = cache(cost), start
    # on a convex cost this ends at a least one: neither neighbour is better once the step has come down to 1
    while True:
        before = best
        for direction in (-1, 1):
            step = 1
            while step:
                to = min(max(0, best + direction * step), most)
                if known(to) < known(best):
                    best, step = to, 2 * step
                else:
                    step //= 2
        if best == before:
            return best
