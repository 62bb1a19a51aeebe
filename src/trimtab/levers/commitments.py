"""Commit to what is left after everything else: to nodes of the pools for which that is sold, and to spend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from trimtab.catalog.kinds import BuyingOption, CapacityType
from trimtab.catalog.pools import Pool
from trimtab.deployment.effects import BuyCommitment, BuySpendPlan, Effect
from trimtab.fleet.market import Market
from trimtab.fleet.model import IntArray
from trimtab.fleet.settings import Effort
from trimtab.ledger import Commitment, SpendPlan
from trimtab.levers.commit_advice import advise
from trimtab.levers.commit_table import Offer
from trimtab.levers.lever import Bought, Fact, Lever, Risk, Stage
from trimtab.units import S_PER_HR, micro_usd, usd

NAME = "commitment"
_SHOWN = 3
_WHOLE_FRAC = 0.999
"""Of what is committed to: in use, but for rounding."""
_QUERY = "planned use per hour"


def propose(pools: Iterable[Pool], market: Market) -> dict[Pool, BuyCommitment]:
    """Return, for each on-demand pool for which one is sold, a commitment to one node at its best allowed rate."""
    offers = {}
    for pool in pools:
        if pool.capacity_type is not CapacityType.ON_DEMAND:
            continue
        price = market.commitment(pool)
        on_demand = market.rate(pool)
        if price is not None and micro_usd(price.usd_hr) < on_demand:
            offers[pool] = BuyCommitment(
                pool=pool,
                option=price.option,
                count=1,
                rate_micro_usd_hr=micro_usd(price.usd_hr),
                on_demand_micro_usd_hr=on_demand,
            )
    return offers


PlanRates = Mapping[Pool, int]


def propose_spend(pools: Iterable[Pool], market: Market) -> tuple[tuple[BuyingOption, PlanRates], ...]:
    """Return the spend plans on offer: the option, and by pool what an hour of its nodes takes of the spend.

    One per provider and allowed term, those with the highest discount first; left out are plans that another beats
    on every pool that they cover. Only rates below on demand are in them.
    """
    known = sorted(pools)
    found = [
        (option, rates)
        for option in BuyingOption
        if option.commits_spend and option.term_years <= market.max_term_years
        for rates in plan_rates_by_provider(known, market, option).values()
    ]
    kept = [one for at, one in enumerate(found) if not any(_beats(other, one[1], at) for other in enumerate(found))]
    return tuple(sorted(kept, key=lambda one: (min(one[1]).provider, _best_ratio(one[1], market), one[0].value)))


def plan_rates_by_provider(pools: Iterable[Pool], market: Market, option: BuyingOption) -> dict[str, dict[Pool, int]]:
    """Return the rates under a spend plan that lie below on demand, by provider."""
    rates: dict[str, dict[Pool, int]] = {}
    for pool, rate in market.plan_rates(pools, option).items():
        if rate < market.rate(pool):
            rates.setdefault(pool.provider, {})[pool] = rate
    return rates


def _beats(one: tuple[int, tuple[BuyingOption, PlanRates]], rates: PlanRates, at: int) -> bool:
    """Tell whether a plan at another place is no dearer on any pool; of equal ones the first stays."""
    place, (_, mine) = one
    if place == at or not all(pool in mine and mine[pool] <= rate for pool, rate in rates.items()):
        return False
    return mine != rates or place < at


def _best_ratio(rates: PlanRates, market: Market) -> Fraction:
    return min(Fraction(rate, market.rate(pool)) for pool, rate in rates.items())


def _fleet_evidence(bought: Bought) -> Iterator[Fact]:
    for commitment in bought.discounts.commitments:
        yield from _of_nodes(commitment, bought)
    for plan in bought.discounts.spend_plans:
        yield from _of_spend(plan, bought)


def _of_nodes(commitment: Commitment, bought: Bought) -> Iterator[Fact]:
    used = bought.left.use_of(commitment.pool)
    count, pool = commitment.count, commitment.pool
    share = float((used >= count * S_PER_HR * _WHOLE_FRAC).mean()) if count else 0.0
    rate = commitment.rate_micro_usd_hr / bought.rates([pool])[pool]
    if used.any():
        yield _backed(commitment, used, bought)
    yield Fact(f"hours in which all {count} x {pool.instance_type} are in use", _QUERY, f"{share:.0%}", f"> {rate:.0%}")


def _of_spend(plan: SpendPlan, bought: Bought) -> Iterator[Fact]:
    """Say in how many hours the spend is used whole after what applies before it, and what it covers at which discount."""
    left = bought.left
    at = left.spend_plans.index(plan)
    whole = float((left.used_spend()[at].sum(axis=0) >= _WHOLE_FRAC * plan.spend_micro_usd_hr).mean())
    rates = bought.rates(left.pools)
    replaced = {
        pool: rates[pool] * float(seconds.sum())
        for pool, seconds in zip(left.pools, left.plan_seconds[at], strict=True)
        if seconds.any()
    }
    yield Fact("hours in which all of it is in use", _QUERY, f"{whole:.0%}")
    for pool in sorted(replaced, key=lambda pool: -replaced[pool])[:_SHOWN]:
        off = 1 - plan.rates_micro_usd_hr[pool] / rates[pool]
        share = replaced[pool] / sum(replaced.values())
        yield Fact(f"of what it replaces on demand, {pool.instance_type} at {off:.0%} off", _QUERY, f"{share:.0%}")


def _backed(commitment: Commitment, used: IntArray, bought: Bought) -> Fact:
    """Say what the layered rule, which asks for evidence before each purchase, would buy of the best count in hindsight."""
    offer = Offer(
        pool=commitment.pool,
        term_years=commitment.option.term_years,
        upfront_usd=0.0,
        usd_hr=usd(commitment.rate_micro_usd_hr),
        source="the plan",
    )
    owned = sum(held.count for held in bought.owned.commitments if held.pool == commitment.pool)
    on_demand = usd(bought.rates([commitment.pool])[commitment.pool])
    found = advise(commitment.pool, used, on_demand, [offer], owned=owned)
    if found is None or not found.layers:
        value = "none of them yet"
    else:
        first, last = found.layers[0], found.layers[-1]
        rest = f", {found.buy} by day {last.day} if the use stays" if last.day > first.day else ""
        value = f"{first.buy} from day {first.day}{rest}"
    return Fact(f"nodes that the layers of `trimtab commit` buy on this use, of {commitment.count}", _QUERY, value)


def _canary(effect: Effect) -> tuple[str, ...]:
    if isinstance(effect, BuySpendPlan):
        return (
            "Put the other actions and reservations in place first, and let one billing week pass.",
            "Buy half the spend, check that it is fully used for a week, then buy the rest.",
        )
    return (
        "Put the other actions in place first, and let one billing week pass.",
        "Buy half the count, check that it is fully used for a week, then buy the rest.",
    )


LEVER = Lever(
    name=NAME,
    title="Commit",
    meaning="Commits to nodes or to spend for what all the rest of the plan leaves",
    page="how-to/commitments.md",
    stage=Stage.FLEET,
    kinds=frozenset(),
    effort=Effort(weeks=0.1, per="action"),
    risk=Risk.MEDIUM,
    rollback="cannot be undone before its term ends: buy last, and in steps",
    canary=_canary,
    fleet_evidence=_fleet_evidence,
    drift_frac=0.181,
    guide_order=2,
)
