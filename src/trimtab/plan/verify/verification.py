"""Verify a plan afterwards: what a later window saved against what was predicted, and every way of buying its nodes.

The counterfactual is the fit window's way of running, met with the later demand. A workload whose nodes stood still would hold
as many today, until the peak of its work outgrows them; one whose nodes came and went would use as much for each unit of work,
beside what it used however little work there was.
New workloads cost the same either way; those that are gone would be gone. Saving = counterfactual - what the later window
used, both at the rates of the plan; the difference that rates make is reported apart.

A spot or commitment discount is owed to the action that brought it; the rest of a workload's saving to its other actions, by
what was predicted of each times how much of it was enacted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import takewhile
from types import UnionType

import numpy as np

from trimtab.catalog.kinds import BuyingOption, CapacityType
from trimtab.catalog.pools import Pool
from trimtab.catalog.prices import Price
from trimtab.deployment.effects import (
    DECODE,
    PREFILL,
    BookBlocks,
    BuyCommitment,
    BuySpendPlan,
    HedgeOnSpot,
    ReleaseNodes,
    SetCapacityType,
    SplitServing,
    part_of,
)
from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet, Window
from trimtab.fleet.settings import Settings
from trimtab.ledger import Commitment, CommitmentOffer, bill
from trimtab.ledger.arrays import IntArray
from trimtab.levers.commit_advice import advise, listed_offer
from trimtab.plan.model import Action, Change, Plan
from trimtab.plan.verify.baseline import REQUESTS, Baseline, PoolUse, WorkloadUse, baseline_of
from trimtab.plan.verify.enactment import Drift, drifts, enacted_frac
from trimtab.provenance import Estimate
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
    """Return one entry an instance type and region that the fleet used, most expensive first; owned nodes are left out.

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
        return replace(entry, advice="; ".join(f"action {action.id}: {effect.describe()}" for action, effect in orders))
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


NOT_ENACTED_FRAC = 0.1
WHOLLY_FRAC = 0.9
"""Above this share a change counts as made: days without demand and nodes in exchange leave a little."""
ON_TRACK_FRAC = 0.9
"""An action is on track at this share of its prediction, or within its interval."""
HEALTHY_FRAC = 0.8
"""What stood still absorbs growth up to this activity, the top of the healthy band (`fleet.settings.Bands`)."""
_DEMAND_FRAC = 0.1
_NOTHING = "the later window shows nothing of it"
_ROUNDING = 0.02
"""Of a replica: a peak by quantile falls a little short of the peak itself."""


class ActionStatus(Enum):
    """How an action did."""

    ON_TRACK = "on track"
    SHORT = "short"
    NOT_ENACTED = "not enacted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionVerdict:
    """One action afterwards; `cause` says why it is not on track."""

    id: str
    lever: str
    subject: str
    status: ActionStatus
    enacted_frac: float
    predicted_usd_mo: Estimate
    realised_usd_mo: float
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """A plan afterwards, in dollars a month: then + demand - saved + rates = now."""

    then_usd_mo: float
    demand_usd_mo: float
    """What the former way of running would cost more (or less) at today's demand."""
    saved_usd_mo: float
    rates_usd_mo: float
    """What today's rates add to the bill, against those of the plan."""
    now_usd_mo: float
    predicted_usd_mo: float
    outside_usd_mo: float
    """Saved (or lost) by what is no action of the plan."""
    actions: tuple[ActionVerdict, ...]
    notes: tuple[str, ...]
    window: Window
    """The later window."""
    drifts: tuple[Drift, ...]
    purchases: tuple[NodePurchase, ...]


def verify(
    plan: Plan,
    then: Baseline,
    fleet: Fleet,
    market_then: Market,
    market_now: Market,
    settings: Settings,
    spend_usd_hr: Mapping[str, float],
) -> Verification:
    """Hold a later fleet against a plan and the way of running that the plan was made on.

    `spend_usd_hr` is what its bills say commitments to spend cost an hour, by provider.
    """
    now, now_rates = (_with_parts(baseline_of(fleet, market), plan) for market in (market_then, market_now))
    former = {use.workload: use for use in then.workloads}
    growth = {use.workload: growth_of(former[use.workload], use) for use in now.workloads if use.workload in former}
    enacted = {
        action.id: _enacted(action, then, now, fleet, spend_usd_hr, _bought_before(plan, action))
        for action in plan.actions
    }
    earned, without = _earned(plan, then, now, growth, enacted, market_then)
    demand = without - then.usd_hr
    by_spend = _saved_by_spend(plan, enacted, fleet, market_then)
    for name, saved_usd_hr in by_spend.items():
        earned[name] += saved_usd_hr
    covered = sum(by_spend.values())
    saved = without - now.usd_hr + covered
    return Verification(
        then_usd_mo=then.usd_hr * HR_PER_MO,
        demand_usd_mo=demand * HR_PER_MO,
        saved_usd_mo=saved * HR_PER_MO,
        rates_usd_mo=(now_rates.usd_hr - now.usd_hr) * HR_PER_MO,
        now_usd_mo=(now_rates.usd_hr - covered) * HR_PER_MO,
        predicted_usd_mo=plan.usd_mo(plan.joint_saving_micro_usd),
        outside_usd_mo=(saved - sum(earned.values())) * HR_PER_MO,
        actions=tuple(
            _verdict(action, enacted[action.id], earned[action.id] * HR_PER_MO, growth) for action in plan.actions
        ),
        notes=_notes(former, now),
        window=fleet.window,
        drifts=drifts(plan, fleet, market_now, settings),
        purchases=purchases(fleet, market_now, plan, settings),
    )


def _with_parts(now: Baseline, plan: Plan) -> Baseline:
    """Return a baseline in which prefill and decode count for the service that the plan divided; its requests are decode's."""
    uses = {use.workload: use for use in now.workloads}
    for action in plan.actions:
        for change in action.changes:
            parts = [uses.get(part_of(change.subject, role)) for role in (PREFILL, DECODE)]
            if not isinstance(change.effect, SplitServing) or parts[-1] is None:
                continue
            before, decode = uses.get(change.subject), parts[-1]
            together = [use for use in (before, *parts) if use is not None]
            done = together[0] if before is not None and before.mean_work_per_hr > decode.mean_work_per_hr else decode
            uses[change.subject] = replace(
                done,
                workload=change.subject,
                uses=tuple(held for use in together for held in use.uses),
                held_still=all(use.held_still for use in together),
            )
            for role in (PREFILL, DECODE):
                uses.pop(part_of(change.subject, role), None)
    return replace(now, workloads=tuple(uses.values()))


def growth_of(then: WorkloadUse, now: WorkloadUse) -> float:
    """Return the factor on the former capacity that today's work would have needed; replicas are whole where they are known."""
    if then.work != now.work or not then.mean_work_per_hr or not then.peak_work_per_hr:
        return 1.0
    if not then.held_still:
        return then.fixed_frac + (1 - then.fixed_frac) * now.mean_work_per_hr / then.mean_work_per_hr
    load = then.peak_load_frac * now.peak_work_per_hr / then.peak_work_per_hr
    factor = max(1.0, load / max(then.peak_load_frac, HEALTHY_FRAC))
    whole = round(then.mean_capacity)
    return math.ceil(whole * factor - _ROUNDING) / whole if then.work == REQUESTS and whole else factor


def _earned(
    plan: Plan,
    then: Baseline,
    now: Baseline,
    growth: Mapping[str, float],
    enacted: Mapping[str, Mapping[str, float]],
    market: Market,
) -> tuple[dict[str, float], float]:
    """Return what each action saved an hour, and what the former way of running would cost an hour at today's demand."""
    former = {use.workload: use for use in then.workloads}
    earned = dict.fromkeys((action.id for action in plan.actions), 0.0)
    without = sum(use.usd_hr for use in then.unheld)
    for workload in now.workloads:
        before = former.get(workload.workload)
        cost = workload.usd_hr if before is None else before.usd_hr * growth[workload.workload]
        without += cost
        if before is not None:
            _share_out(workload, cost - workload.usd_hr, plan, enacted, market, earned)
    unheld = sum(use.usd_hr for use in then.unheld) - sum(use.usd_hr for use in now.unheld)
    for action in plan.actions:
        if any(isinstance(change.effect, ReleaseNodes) for change in action.changes):
            earned[action.id] += unheld
    return earned, without


def _buyer(actions: Sequence[Action], kind: type | UnionType) -> Action | None:
    """Return the action that buys nodes in a way."""
    return next(
        (action for action in actions if any(isinstance(change.effect, kind) for change in action.changes)), None
    )


def _share_out(
    workload: WorkloadUse,
    saved: float,
    plan: Plan,
    enacted: Mapping[str, Mapping[str, float]],
    market: Market,
    earned: dict[str, float],
) -> None:
    """Give a workload's saving to its actions: discounts first, then the rest by prediction times enactment."""
    own_actions = [
        action for action in plan.actions if any(change.subject == workload.workload for change in action.changes)
    ]
    spot = _buyer(own_actions, SetCapacityType | HedgeOnSpot)
    block = _buyer(own_actions, BookBlocks)
    rest = saved
    for use in workload.uses:
        match use.pool.capacity_type:
            case CapacityType.SPOT:
                owner = spot
            case CapacityType.CAPACITY_BLOCK:
                owner = block
            case _:
                owner = None
        discount = use.nodes * (_on_demand(use, market) - use.usd_per_node_hr)
        buyers = {owner.id: 1.0} if owner is not None else _purchases(plan, use.pool, enacted)
        for name, share in buyers.items():
            earned[name] += discount * share
            rest -= discount * share
    others = [action for action in own_actions if action not in (spot, block)]
    weights = [max(action.saving_usd_mo.value, 0.0) * enacted[action.id][workload.workload] for action in others]
    for action, weight in zip(others, weights, strict=True):
        earned[action.id] += rest * weight / sum(weights) if sum(weights) else 0.0


def _saved_by_spend(
    plan: Plan, enacted: Mapping[str, Mapping[str, float]], fleet: Fleet, market: Market
) -> dict[str, float]:
    """Return what the spend plans that were bought save an hour on the later use, by action, at the plan's rates."""
    rates = market.rates(fleet.usage.pools)
    saved = {}
    for action in plan.actions:
        for change in action.changes:
            if isinstance(change.effect, BuySpendPlan):
                bought = _spend_plan(change.effect, enacted[action.id][change.subject])
                less = bill(fleet.usage, rates).total - bill(fleet.usage, rates, [bought]).total
                saved[action.id] = usd(less) / fleet.window.hours
    return saved


def _spend_plan(effect: BuySpendPlan, share: float) -> Commitment:
    """Return the plan that a share of an effect's spend buys."""
    rates = {rate.pool: rate.rate_micro_usd_hr for rate in effect.rates}
    offer = CommitmentOffer(option=effect.option, rates_micro_usd_hr=rates)
    return Commitment(offer=offer, quantity=round(effect.spend_micro_usd_hr * share))


def _purchases(plan: Plan, pool: Pool, enacted: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return the commitments of a plan that a reserved pool comes from, by action, as shares of what was bought of them."""
    if pool.capacity_type is not CapacityType.RESERVED:
        return {}
    bought = {
        action.id: change.effect.count * enacted[action.id][change.subject]
        for action in plan.actions
        for change in action.changes
        if isinstance(change.effect, BuyCommitment) and change.effect.pool.instance_type == pool.instance_type
    }
    total = sum(bought.values())
    return {name: nodes / total for name, nodes in bought.items()} if total else {}


def _bought_before(plan: Plan, action: Action) -> dict[str, int]:
    """Return the nodes that earlier actions of a plan commit to, by instance type: what is held fills theirs first."""
    before: dict[str, int] = {}
    for earlier in takewhile(lambda other: other.id != action.id, plan.actions):
        for change in earlier.changes:
            if isinstance(change.effect, BuyCommitment):
                name = change.effect.pool.instance_type
                before[name] = before.get(name, 0) + change.effect.count
    return before


def _on_demand(use: PoolUse, market: Market) -> float:
    return usd(market.rate(use.pool.held_as(CapacityType.ON_DEMAND)))


def _enacted(
    action: Action,
    then: Baseline,
    now: Baseline,
    fleet: Fleet,
    spend_usd_hr: Mapping[str, float],
    bought_before: Mapping[str, int],
) -> dict[str, float]:
    """Return how much of each change of an action was made, by its subject."""
    former = {use.workload: use for use in then.workloads}
    held = {use.workload: use.uses for use in now.workloads}
    places = {workload.name: place for place, workload in enumerate(fleet.workloads)}

    def made(change: Change) -> float:
        name = change.subject
        use = former.get(name), places.get(name), held.get(name, ())
        return enacted_frac(change.effect, *use, fleet, spend_usd_hr, bought_before)

    return {change.subject: made(change) for change in action.changes}


def _verdict(
    action: Action, enacted: Mapping[str, float], realised_usd_mo: float, growth: Mapping[str, float]
) -> ActionVerdict:
    share = sum(enacted.values()) / max(len(enacted), 1)
    predicted = action.saving_usd_mo
    if share < NOT_ENACTED_FRAC:
        spends = any(isinstance(change.effect, BuySpendPlan) for change in action.changes)
        seen = "no bill of the later window shows it: collect with --focus" if spends else _unseen(share)
        status, cause = ActionStatus.NOT_ENACTED, seen
    elif share < WHOLLY_FRAC:
        status, cause = ActionStatus.SHORT, _half(enacted, share)
    elif realised_usd_mo >= min(predicted.low, ON_TRACK_FRAC * predicted.value):
        status, cause = ActionStatus.ON_TRACK, ""
    else:
        status, cause = ActionStatus.SHORT, _cause(enacted, growth)
    return ActionVerdict(
        id=action.id,
        lever=action.lever,
        subject=action.subject,
        status=status,
        enacted_frac=share,
        predicted_usd_mo=predicted,
        realised_usd_mo=realised_usd_mo,
        cause=cause,
    )


def _unseen(share: float) -> str:
    """Say why a change does not count as made. What little is seen of it may have come about by itself, and may have saved."""
    if round(100 * share) == 0:
        return _NOTHING
    return f"only {share:.0%} of it is seen: too little to count, and it may have come about by itself"


def _half(enacted: Mapping[str, float], share: float) -> str:
    left = [name for name, part in enacted.items() if part < NOT_ENACTED_FRAC]
    where = f"; nothing of it on {', '.join(left)}" if left else ""
    return f"enacted by {share:.0%}{where}"


def _cause(enacted: Mapping[str, float], growth: Mapping[str, float]) -> str:
    ratios = [growth[name] for name in enacted if name in growth]
    mean = sum(ratios) / len(ratios) if ratios else 1.0
    if mean < 1 - _DEMAND_FRAC:
        return f"{1 - mean:.0%} less demand than in the fit window: less is left to save"
    if mean > 1 + _DEMAND_FRAC:
        return f"demand grew by {mean - 1:.0%}"
    return "enacted, but it holds more capacity than the replay did: see its limits, minimum and target load"


def _notes(former: Mapping[str, WorkloadUse], now: Baseline) -> tuple[str, ...]:
    today = {use.workload for use in now.workloads}
    notes = []
    if today - former.keys():
        notes.append(f"new since the plan, at the same cost either way: {', '.join(sorted(today - former.keys()))}")
    if former.keys() - today:
        notes.append(f"gone since the plan, taken as demand that fell: {', '.join(sorted(former.keys() - today))}")
    return tuple(notes)
