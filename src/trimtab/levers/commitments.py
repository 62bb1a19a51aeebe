"""Commit to what is left after everything else: to nodes of the pools for which that is sold, and to spend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction

import numpy as np

from trimtab.catalog.kinds import BuyingOption, CapacityType
from trimtab.catalog.pools import Pool
from trimtab.deployment.effects import BuySpendPlan, Effect
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Effort
from trimtab.ledger import Commitment, CommitmentOffer, Usage, bill, nodes_committed
from trimtab.levers.lever import CompositionStage, EffortStep, Fact, FleetPurchase, Lever, Risk
from trimtab.units import HR_PER_MO, S_PER_HR, micro_usd, usd

NAME = "commitment"
_SHOWN = 3
_WHOLE_FRAC = 0.999
"""Of what is committed to: in use, but for rounding."""
_QUERY = "planned use per hour"


def propose(pools: Iterable[Pool], market: Market) -> tuple[CommitmentOffer, ...]:
    """Return the commitments on offer below on demand, those to nodes by pool and then those to spend, each in order.

    To nodes: for each on-demand pool for which one is sold, at its best allowed rate. To spend: one per provider and
    allowed term, those with the highest discount first; left out are those that another beats on every pool that they cover.
    """
    known = sorted(pools)
    nodes = (_node_offer(pool, market) for pool in known if pool.capacity_type is CapacityType.ON_DEMAND)
    return (*(offer for offer in nodes if offer is not None), *propose_spend(known, market))


def _node_offer(pool: Pool, market: Market) -> CommitmentOffer | None:
    price = market.commitment(pool)
    if price is None or micro_usd(price.usd_hr) >= market.rate(pool):
        return None
    return CommitmentOffer(option=price.option, rates_micro_usd_hr={pool: micro_usd(price.usd_hr)})


def propose_spend(pools: Iterable[Pool], market: Market) -> tuple[CommitmentOffer, ...]:
    """Return the commitments to spend on offer."""
    known = sorted(pools)
    found = [
        CommitmentOffer(option=option, rates_micro_usd_hr=rates)
        for option in BuyingOption
        if option.commits_spend and option.term_years <= market.max_term_years
        for rates in plan_rates_by_provider(known, market, option).values()
    ]
    kept = [offer for at, offer in enumerate(found) if not any(_beats(other, offer, at) for other in enumerate(found))]
    return tuple(sorted(kept, key=lambda offer: (offer.provider, _best_ratio(offer, market), offer.option.value)))


def plan_rates_by_provider(pools: Iterable[Pool], market: Market, option: BuyingOption) -> dict[str, dict[Pool, int]]:
    """Return the rates under a spend plan that lie below on demand, by provider."""
    rates: dict[str, dict[Pool, int]] = {}
    for pool, rate in market.plan_rates(pools, option).items():
        if rate < market.rate(pool):
            rates.setdefault(pool.provider, {})[pool] = rate
    return rates


def _beats(placed: tuple[int, CommitmentOffer], offer: CommitmentOffer, at: int) -> bool:
    """Return whether an offer at another place is no more expensive on any pool; of equal ones the first stays."""
    place, mine, rates = placed[0], placed[1].rates_micro_usd_hr, offer.rates_micro_usd_hr
    if place == at or not all(pool in mine and mine[pool] <= rate for pool, rate in rates.items()):
        return False
    return mine != rates or place < at


def _best_ratio(offer: CommitmentOffer, market: Market) -> Fraction:
    return min(Fraction(rate, market.rate(pool)) for pool, rate in offer.rates_micro_usd_hr.items())


def _fleet_evidence(bought: FleetPurchase) -> Iterator[Fact]:
    for commitment in bought.discounts:
        yield from (_of_spend if commitment.offer.is_spend else _of_nodes)(commitment, bought)


def _of_nodes(commitment: Commitment, bought: FleetPurchase) -> Iterator[Fact]:
    """Say how much of the time all that is committed is in use, and what this part of it does if half the use goes."""
    count, pool = commitment.quantity, commitment.offer.pool
    used, committed = bought.left.use_of(pool), nodes_committed(bought.left.commitments).get(pool, count)
    # what the last node is used decides: with one fewer, just that would be paid on demand
    share = float(np.clip(used / S_PER_HR - (committed - 1), 0.0, 1.0).mean()) if used.size else 0.0
    on_demand = bought.rates([pool])[pool]
    rate = commitment.offer.rate_micro_usd_hr / on_demand
    covered = np.clip(used / S_PER_HR / 2 - (committed - count), 0, count).mean() if used.size else 0.0
    saved = usd(round(covered * on_demand)) - usd(count * commitment.offer.rate_micro_usd_hr)
    what = f"share of the hours in which all {committed} committed {pool.instance_type} are in use"
    # beside a spend plan the node takes the place of spend at a discount, and another bound holds
    alone = not any(held.offer.is_spend for held in bought.left.commitments)
    yield Fact(what, _QUERY, f"{share:.1%}", f">= {rate:.1%}, its rate as a share of on demand" if alone else "")
    yield _halved(saved)


def _halved(saved_usd_hr: float) -> Fact:
    saved = saved_usd_hr * HR_PER_MO
    return Fact(
        "what it saves a month if the use halves after the purchase",
        f"{_QUERY}, halved",
        f"{'-' if saved < 0 else ''}${abs(saved):,.0f}",
    )


def _of_spend(plan: Commitment, bought: FleetPurchase) -> Iterator[Fact]:
    """Say in how many hours the spend is used whole after what applies before it, and what it covers at which discount."""
    left = bought.left
    at = left.commitments.index(plan)
    whole = float((left.used_commitment()[at].sum(axis=0) >= _WHOLE_FRAC * plan.micro_usd_hr).mean())
    rates = bought.rates(left.pools)
    replaced = {
        pool: rates[pool] * float(seconds.sum())
        for pool, seconds in zip(left.pools, left.covered_seconds[at], strict=True)
        if seconds.any()
    }
    yield Fact("hours in which all of it is in use", _QUERY, f"{whole:.0%}")
    use = Usage(pools=left.pools, node_seconds=left.node_seconds // 2)
    rest = [commitment for commitment in left.commitments if commitment is not plan]
    less = bill(use, rates, rest).total - bill(use, rates, [*rest, plan]).total
    yield _halved(usd(less) / left.node_seconds.shape[1])
    for pool in sorted(replaced, key=lambda pool: -replaced[pool])[:_SHOWN]:
        off = 1 - plan.offer.rates_micro_usd_hr[pool] / rates[pool]
        share = replaced[pool] / sum(replaced.values())
        yield Fact(f"of what it replaces on demand, {pool.instance_type} at {off:.0%} off", _QUERY, f"{share:.0%}")


def _canary(effect: Effect) -> tuple[str, ...]:
    if isinstance(effect, BuySpendPlan):
        return (
            "Put the other actions and reservations in place first, and let one billing week pass.",
            "Buy the first tranche, check that it is fully used for a week, and ask `trimtab commit` again before each other.",
        )
    return (
        "Do the actions that come before it in the roadmap first, and let one billing week pass.",
        "Buy the first tranche, check that it is fully used for a week, and ask `trimtab commit` again before each other.",
    )


LEVER = Lever(
    name=NAME,
    title="Commit",
    meaning="Commits to nodes or to spend for what all the rest of the plan leaves",
    page="how-to/commitments.md",
    stage=CompositionStage.FLEET,
    kinds=frozenset(),
    effort=Effort(weeks=0.1, per="action"),
    steps=(EffortStep("read the order, have it approved, buy it, see that it is used", 0.5),),
    risk=Risk.MEDIUM,
    rollback="cannot be undone before its term ends: buy in the tranches stated, and nothing that a later action may empty",
    reversible=False,
    canary=_canary,
    fleet_evidence=_fleet_evidence,
    drift_frac=0.181,
    guide_order=2,
)
