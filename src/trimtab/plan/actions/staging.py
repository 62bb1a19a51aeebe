"""How the plan's commitments are bought: as many as the use backs, in tranches, at once where no action can empty them.

The joint problem buys what would have been best in hindsight, because a certificate needs one sum. What is bought is what
`levers.commit_advice` backs on the same use and no more than the coverage cap allows: `trimtab commit` asks the same function.
Node time that no workload held counts as unused. The part that stays in use whichever of the actions are done, in any order, is
bought without waiting for any of them; the rest is bought after them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from itertools import combinations

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.deployment.effects import BuyCommitment, BuySpendPlan, Effect, Tranche
from trimtab.fleet.settings import Settings
from trimtab.ledger import Commitment, Usage, bill, nodes_committed, spend_needed
from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.levers import commitments
from trimtab.levers.commit_advice import Backing, Layer, backing, layers
from trimtab.plan.actions.draft_actions import CommitmentPurchase
from trimtab.plan.actions.draft_plan import Actions, DraftPlan
from trimtab.plan.model import Change, NotWorthDoing
from trimtab.plan.program.fleet_problem import FleetBill
from trimtab.units import HR_PER_DAY, HR_PER_MO, HR_PER_YEAR, MICRO_PER_USD, S_PER_HR, usd

EVERY_SUBSET = 6
"""Up to so many actions on a pool every set of them is looked at; of more, none, all, each alone, and all but each."""
_CENT_MICRO_USD = MICRO_PER_USD // 100
"""Tranches of spend are whole cents an hour."""
_UNBACKED = "the use that the rest of the plan leaves backs none of it yet"
PoolUse = Mapping[Pool, IntArray]


def staged(drafted: DraftPlan, settings: Settings) -> tuple[DraftPlan, tuple[NotWorthDoing, ...]]:
    """Return the draft that buys what is backed, in tranches, and what of its commitments is not backed at all."""
    if not drafted.discounts:
        return drafted, ()
    cap = settings.planning.commitment_coverage_max_frac
    others = frozenset(number for number, draft in enumerate(drafted.actions) if not draft.discounts)
    left = in_use(drafted, others)
    nodes = [
        part
        for planned in drafted.discounts
        if not planned.offer.is_spend
        for part in _nodes(planned, left, drafted, cap)
    ]
    spend = [
        part
        for planned in drafted.discounts
        if planned.offer.is_spend
        for part in _spend(planned, left, nodes, drafted, cap)
    ]
    bought = (*nodes, *spend)
    kept = tuple(_summed([purchase.commitment for purchase in bought]))
    offers = [commitment.offer for commitment in kept]
    refused = tuple(
        NotWorthDoing(lever=commitments.NAME, subject=_named(planned), saving_usd_mo=None, reason=_UNBACKED)
        for planned in drafted.discounts
        if planned.offer not in offers
    )
    return (
        DraftPlan(
            fleet=drafted.fleet,
            enacted=drafted.enacted,
            deployments=drafted.deployments,
            released=drafted.released,
            discounts=kept,
            staged=bought,
        ),
        refused,
    )


def dated(changes: Sequence[Change], first_day: date, start_mo: float) -> tuple[Change, ...]:
    """Return changes whose tranches have their days, bought from `start_mo` months after the first day on."""
    start = first_day + timedelta(days=round(start_mo * HR_PER_MO / HR_PER_DAY))
    return tuple(replace(change, effect=_dated(change.effect, start)) for change in changes)


def _dated(effect: Effect, start: date) -> Effect:
    if not isinstance(effect, BuyCommitment | BuySpendPlan):
        return effect
    days = (replace(tranche, on=start + timedelta(days=tranche.after_days)) for tranche in effect.tranches)
    return replace(effect, tranches=tuple(days))


def in_use(drafted: DraftPlan, some: Actions) -> dict[Pool, IntArray]:
    """Return node-seconds per pool and hour with some actions in force, less the nodes that no workload held."""
    usage, idle = drafted.usage(some), drafted.enacted.idle_but(drafted.gone(some))
    return {pool: seconds - idle[pool] if pool in idle else seconds for pool, seconds in usage.items()}


def least_use(drafted: DraftPlan, pool: Pool) -> IntArray:
    """Return node-seconds of a pool by hour that are in use whichever of the other actions are done (n_hours,)."""
    touching = [
        number
        for number, draft in enumerate(drafted.actions)
        if not draft.discounts and draft.touches & _touches(drafted, pool)
    ]
    nothing = np.zeros(drafted.fleet.window.hours, dtype=np.int64)
    uses = [in_use(drafted, some).get(pool, nothing) for some in _sets_of(touching)]
    return np.asarray(np.min(uses, axis=0), dtype=np.int64)


def _touches(drafted: DraftPlan, pool: Pool) -> frozenset[object]:
    bought = (
        draft
        for draft in drafted.actions
        if any(pool in commitment.offer.rates_micro_usd_hr for commitment in draft.discounts)
    )
    return frozenset(place for draft in bought for place in draft.touches)


def _sets_of(numbers: Sequence[int]) -> Iterator[Actions]:
    """Yield sets of actions: all of them for a few, else the smallest and the largest ones."""
    whole, sizes = frozenset(numbers), range(len(numbers) + 1)
    if len(numbers) > EVERY_SUBSET:
        sizes = range(2)
        yield whole
        yield from (whole - {number} for number in numbers)
    yield from (frozenset(some) for size in sizes for some in combinations(numbers, size))


def _nodes(planned: Commitment, left: PoolUse, drafted: DraftPlan, cap: float) -> Iterator[CommitmentPurchase]:
    """Yield what is bought of a commitment to nodes: what no action can empty, and the rest."""
    pool, enacted = planned.offer.pool, drafted.enacted
    owned = nodes_committed(enacted.owned).get(pool, 0)
    rest_backed = _backed(planned, left[pool] / S_PER_HR, enacted, cap)
    count = min(planned.quantity, _hold(layers(rest_backed, owned), owned) - owned)
    if count <= 0:
        return
    firm_backed = _backed(planned, least_use(drafted, pool) / S_PER_HR, enacted, cap)
    firm_layers = layers(firm_backed, owned)
    firm = max(0, min(count, _hold(firm_layers, owned) - owned))
    for part, steps, at_once in (
        (firm, firm_layers, True),
        (count - firm, layers(rest_backed, owned + firm), False),
    ):
        if part:
            yield CommitmentPurchase(
                commitment=replace(planned, quantity=part),
                tranches=tuple(_tranches(steps, part)),
                used_in_any_order=at_once,
            )


def _spend(
    planned: Commitment, left: PoolUse, nodes: Sequence[CommitmentPurchase], drafted: DraftPlan, cap: float
) -> Iterator[CommitmentPurchase]:
    """Yield what is bought of a commitment to spend, on what committed nodes and what is held already leave."""
    pools, enacted = tuple(sorted(left)), drafted.enacted
    use = Usage(pools=pools, node_seconds=np.array([left[pool] for pool in pools], dtype=np.int64))
    on_demand = enacted.rates(pools)
    first = (*enacted.owned, *_summed([purchase.commitment for purchase in nodes]))
    uncovered = use.node_seconds - bill(use, on_demand, first).covered_seconds.sum(axis=0)
    rates = planned.offer.rates_micro_usd_hr
    needed = spend_needed(rates, pools, uncovered)
    listed = sum(
        on_demand[pool] * float(row.sum()) / S_PER_HR
        for pool, row in zip(pools, uncovered, strict=True)
        if pool in rates
    )
    if listed <= 0:
        return
    discount = 1 - float(needed.sum()) / listed
    term_hr = planned.offer.option.term_years * HR_PER_YEAR
    backed = backing(needed / _CENT_MICRO_USD, discount, term_hr, cover_most_frac=cap)
    steps = [
        Layer(day=layer.day, buy=layer.buy * _CENT_MICRO_USD, hold=layer.hold * _CENT_MICRO_USD)
        for layer in layers(backed)
    ]
    quantity = min(planned.quantity, _hold(steps, 0))
    if quantity > 0:
        yield CommitmentPurchase(
            commitment=replace(planned, quantity=quantity), tranches=tuple(_tranches(steps, quantity))
        )


def _backed(planned: Commitment, nodes: FloatArray, enacted: FleetBill, cap: float) -> Backing:
    pool = planned.offer.pool
    discount = 1 - planned.offer.rate_micro_usd_hr / enacted.rates([pool])[pool]
    return backing(nodes, discount, planned.offer.option.term_years * HR_PER_YEAR, cover_most_frac=cap)


def _hold(steps: Sequence[Layer], owned: int) -> int:
    return steps[-1].hold if steps else owned


def _tranches(steps: Sequence[Layer], most: int) -> Iterator[Tranche]:
    """Yield purchases until `most` is bought."""
    for step in steps:
        quantity = min(step.buy, most)
        if quantity > 0:
            yield Tranche(after_days=step.day, quantity=quantity)
        most -= quantity


def _summed(parts: Sequence[Commitment]) -> Iterator[Commitment]:
    """Yield commitments under one offer as one, in the order of the first."""
    for at, part in enumerate(parts):
        if part.offer not in [other.offer for other in parts[:at]]:
            yield replace(part, quantity=sum(other.quantity for other in parts if other.offer == part.offer))


def _named(planned: Commitment) -> str:
    if planned.offer.is_spend:
        return f"${usd(planned.quantity):,.2f} an hour of spend with {planned.offer.provider}"
    return f"{planned.quantity} x {planned.offer.pool.instance_type}"
