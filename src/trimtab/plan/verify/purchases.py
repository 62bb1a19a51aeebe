"""Every way of buying the nodes that a later window used, at today's rates: what each would cost, what to change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimtab.catalog.kinds import BuyingOption, CapacityType
from trimtab.catalog.pools import Pool
from trimtab.catalog.prices import Price
from trimtab.deployment.effects import BuyCommitment
from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet, IntArray
from trimtab.fleet.settings import Settings
from trimtab.levers.commit_advice import advise
from trimtab.levers.commit_table import listed_offer
from trimtab.plan.model import Action, Plan
from trimtab.units import HR_PER_MO, S_PER_HR, usd

_WORTH_FRAC = 0.02
"""A change that saves less of a pool's bill than this is noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PurchaseOption:
    """One way of buying one instance type in one region, for the use of the later window."""

    instance_type: str
    region: str
    option: BuyingOption
    usd_node_hr: float
    commit: int
    """Nodes to commit to under it; 0 for what is not committed."""
    usd_mo: float
    """What the use would cost, the rest of it on demand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePurchase:
    """The use of one instance type in one region: how it is bought now, and every other way."""

    instance_type: str
    region: str
    mean_nodes: float
    now: str
    now_usd_mo: float
    options: tuple[PurchaseOption, ...]
    advice: str

    @property
    def best(self) -> PurchaseOption | None:
        """Return the cheapest way that binds no spot risk; None where nothing is sold."""
        kept = [option for option in self.options if option.option is not BuyingOption.SPOT]
        return min(kept, key=lambda option: option.usd_mo, default=None)


def purchases(fleet: Fleet, market: Market, plan: Plan, settings: Settings) -> tuple[NodePurchase, ...]:
    """Return one entry an instance type and region that the fleet used, dearest first; owned nodes are left out.

    What to commit to is what the plan's orders say. Beside it every way of buying is priced for the use, commitments to as many
    nodes as that use backs.
    """
    use: dict[tuple[str, str, str], dict[Pool, IntArray]] = {}
    for pool, seconds in zip(fleet.usage.pools, fleet.usage.node_seconds, strict=True):
        if pool.capacity_type is not CapacityType.OWNED and seconds.any():
            use.setdefault((pool.provider, pool.instance_type, pool.region), {})[pool] = seconds
    found = [_purchase(parts, market, plan, settings) for parts in use.values()]
    return tuple(sorted(found, key=lambda purchase: -purchase.now_usd_mo))


def _purchase(parts: dict[Pool, IntArray], market: Market, plan: Plan, settings: Settings) -> NodePurchase:
    pool = min(parts).held_as(CapacityType.ON_DEMAND)
    total = np.sum(list(parts.values()), axis=0)
    hours = len(total)
    now = sum(float(seconds.sum()) / S_PER_HR * usd(market.rate(part)) for part, seconds in parts.items())
    options = tuple(
        _repriced(pool, price, total, market, settings)
        for price in market.catalog.prices.options(pool.provider, pool.instance_type, pool.region, at=market.at)
        if price.option is not BuyingOption.OWNED
    )
    shares = {part.capacity_type.value: float(seconds.sum()) / float(total.sum()) for part, seconds in parts.items()}
    entry = NodePurchase(
        instance_type=pool.instance_type,
        region=pool.region,
        mean_nodes=float(total.sum()) / S_PER_HR / hours,
        now=", ".join(f"{share:.0%} {kind}" for kind, share in sorted(shares.items(), key=lambda item: -item[1])),
        now_usd_mo=now / hours * HR_PER_MO,
        options=options,
        advice="",
    )
    return _advised(entry, [(action, effect) for action, effect in _orders(plan) if effect.pool.nodes == pool.nodes])


def _orders(plan: Plan) -> Iterator[tuple[Action, BuyCommitment]]:
    for action in plan.actions:
        for change in action.changes:
            if isinstance(change.effect, BuyCommitment):
                yield action, change.effect


def _repriced(pool: Pool, price: Price, total: IntArray, market: Market, settings: Settings) -> PurchaseOption:
    hours, node_hours = len(total), float(total.sum()) / S_PER_HR
    option, usd_hr = price.option, price.usd_hr
    if option.term_years == 0:
        count, cost = 0, node_hours * usd_hr
    else:
        listed = market.rate(pool)
        cap = settings.planning.commitment_coverage_max_frac
        advice = advise(pool, total, usd(listed), [listed_offer(pool, price)], cover_most_frac=cap)
        count = advice.hold if advice is not None else 0
        beyond = np.clip(total - count * S_PER_HR, 0, None).sum() / S_PER_HR
        cost = count * hours * usd_hr + float(beyond) * usd(listed)
    return PurchaseOption(
        instance_type=pool.instance_type,
        region=pool.region,
        option=option,
        usd_node_hr=usd_hr,
        commit=count,
        usd_mo=cost / hours * HR_PER_MO,
    )


def _advised(entry: NodePurchase, orders: Sequence[tuple[Action, BuyCommitment]]) -> NodePurchase:
    if orders:
        return replace(entry, advice="; ".join(f"{action.id}: {effect.describe()}" for action, effect in orders))
    best = entry.best
    if best is None:
        return replace(entry, advice="no rate is known for it")
    saved = entry.now_usd_mo - best.usd_mo
    if saved < _WORTH_FRAC * entry.now_usd_mo:
        return replace(entry, advice="keep as it is")
    if best.option.term_years:
        return replace(
            entry, advice="the plan commits to none of it; if the use has changed since, audit again before you do"
        )
    return replace(entry, advice=f"buy {best.option.value}: ${saved:,.0f} a month less")
