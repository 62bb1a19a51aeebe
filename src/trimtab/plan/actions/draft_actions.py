"""From the chosen options to actions a person can enact: one per lever and class of workloads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from trimtab.catalog.pools import Pool
from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import (
    BuyCommitment,
    BuySpendPlan,
    Effect,
    PlanRate,
    ReleaseNodes,
    Relocate,
    Tranche,
    UseSlots,
)
from trimtab.deployment.placement import resolve
from trimtab.fleet.model import Fleet
from trimtab.ledger import Commitment, nodes_committed
from trimtab.levers import commitments, idle_release
from trimtab.levers.lever import Risk
from trimtab.levers.registry import lever_named
from trimtab.plan.actions.hazards import Hazard, hazards_of, risk_of
from trimtab.plan.effort import UNHELD, together_of
from trimtab.plan.model import Change
from trimtab.plan.program.fleet_problem import FleetBill
from trimtab.replay.outcomes.change_cost import entries_of
from trimtab.units import usd

_NAMED = 6
"""Sharers of the same nodes that a subject names one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitmentPurchase:
    """What a commitment action buys, and when."""

    commitment: Commitment
    tranches: tuple[Tranche, ...] = ()
    """In order of days; none where it is bought whole."""
    used_in_any_order: bool = False
    """Whether it stays used whichever actions are done before it: then it waits for none of them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DraftAction:
    """An action before it is priced: lever, class, workload indices, changes, and what it touches (for attribution)."""

    lever: str
    subject: str
    class_name: str
    workloads: tuple[int, ...]
    changes: tuple[Change, ...]
    released: tuple[str, ...]
    discounts: tuple[Commitment, ...]
    touches: frozenset[Hashable]
    hazards: tuple[Hazard, ...]
    used_in_any_order: bool = False
    """Of a purchase: whether no other action can empty what it covers."""

    @property
    def risk(self) -> Risk:
        """Return the lever's usual risk, or what can happen here where that is more."""
        return risk_of(lever_named(self.lever).risk, self.hazards)

    @property
    def clouds(self) -> frozenset[str]:
        """Return the other clouds that its changes go to."""
        effects = (change.effect for change in self.changes)
        return frozenset(effect.cloud for effect in effects if isinstance(effect, Relocate) and effect.cloud)

    @property
    def rollback(self) -> str:
        """Return how to undo it."""
        return lever_named(self.lever).rollback


def drafts(
    fleet: Fleet,
    planned: Mapping[int, Deployment],
    enacted: FleetBill,
    released: Sequence[int],
    bought: Sequence[CommitmentPurchase],
) -> tuple[DraftAction, ...]:
    """Group the planned effects into actions; commitments and released nodes are actions of their own.

    Whoever shares the same nodes is one action: none of them saves anything alone.
    """
    members: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, deployment in sorted(planned.items()):
        for lever in sorted(deployment.levers):
            first = next(deployment.of_lever(lever))
            members[lever, together_of(fleet.workloads[index], first)].append(index)
    commitments_bought = [purchase.commitment for purchase in bought]
    touched = _touched(fleet, planned, enacted, commitments_bought)
    made = [_draft(fleet, lever, name, tuple(who), planned, touched) for (lever, name), who in sorted(members.items())]
    used = (
        _used(fleet, planned, enacted, released)
        if any(commitment.offer.is_spend for commitment in commitments_bought)
        else ()
    )
    held = (*enacted.owned, *commitments_bought)
    return (
        *made,
        *_releases(fleet, released, held),
        *(_purchase(purchase, used, held, enacted) for purchase in bought),
    )


def _draft(
    fleet: Fleet,
    lever: str,
    class_name: str,
    members: tuple[int, ...],
    planned: Mapping[int, Deployment],
    touched: Mapping[int, frozenset[Hashable]],
) -> DraftAction:
    names = [fleet.workloads[index].name for index in members]
    changes = tuple(
        Change(subject=name, effect=effect)
        for name, index in zip(names, members, strict=True)
        for effect in planned[index].of_lever(lever)
    )
    shared = {change.effect.shared.site for change in changes if isinstance(change.effect, UseSlots)}
    return DraftAction(
        lever=lever,
        subject=", ".join(names) if shared and len(names) <= _NAMED else _common(names),
        class_name=class_name,
        workloads=members,
        changes=changes,
        released=(),
        discounts=(),
        touches=frozenset(shared).union(*(touched[index] for index in members)),
        hazards=hazards_of(changes, {fleet.workloads[index].name: fleet.workloads[index] for index in members}),
    )


def _common(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    if len(names) == 2 and len({name.partition("/")[0] for name in names}) == 1:
        return f"{names[0]}, {names[1].partition('/')[2]}"
    spaces = sorted({name.partition("/")[0] for name in names})
    return f"{', '.join(f'{space}/*' for space in spaces)} ({len(names)} workloads)"


def _releases(fleet: Fleet, released: Sequence[int], held: Sequence[Commitment]) -> tuple[DraftAction, ...]:
    if not released:
        return ()
    effect: ReleaseNodes = idle_release.release(fleet, tuple(released))
    pools = {fleet.nodes[index].pool for index in released}
    types = sorted({pool.instance_type for pool in pools})
    return (
        DraftAction(
            lever=idle_release.NAME,
            subject=f"{len(released)} unheld {', '.join(types)}",
            class_name=UNHELD,
            workloads=(),
            changes=(Change(subject=", ".join(effect.nodes), effect=effect),),
            released=effect.nodes,
            discounts=(),
            touches=frozenset({("pool", pool) for pool in pools} | _committed(pools, held)),
            hazards=(),
        ),
    )


def _used(
    fleet: Fleet, planned: Mapping[int, Deployment], enacted: FleetBill, released: Sequence[int]
) -> tuple[Pool, ...]:
    """Return the pools that are in use once everything planned is in force."""
    usage = enacted.usage(planned, [fleet.nodes[index].name for index in released])
    return tuple(sorted(pool for pool, seconds in usage.items() if seconds.any()))


def _purchase(
    purchase: CommitmentPurchase, used: Sequence[Pool], held: Sequence[Commitment], enacted: FleetBill
) -> DraftAction:
    """Return the action that buys a commitment; `used` are the pools in use by then, `held` all that is committed by then."""
    bought, offer = purchase.commitment, purchase.commitment.offer
    effect: Effect
    touches: set[Hashable]
    if offer.is_spend:
        covered = [pool for pool in used if pool in offer.rates_micro_usd_hr]
        on_demand = enacted.rates(covered)
        effect = BuySpendPlan(
            provider=offer.provider,
            option=offer.option,
            spend_micro_usd_hr=bought.quantity,
            rates=tuple(
                PlanRate(
                    pool=pool,
                    rate_micro_usd_hr=offer.rates_micro_usd_hr[pool],
                    on_demand_micro_usd_hr=on_demand[pool],
                )
                for pool in covered
            ),
            tranches=purchase.tranches,
        )
        name = f"{offer.provider} {offer.option.value}"
        subject = f"${usd(bought.quantity):,.2f} an hour of spend with {offer.provider}"
        touches = {("spend", offer.provider)}
    else:
        effect = BuyCommitment(
            pool=offer.pool,
            option=offer.option,
            count=bought.quantity,
            rate_micro_usd_hr=offer.rate_micro_usd_hr,
            on_demand_micro_usd_hr=enacted.rates([offer.pool])[offer.pool],
            tranches=purchase.tranches,
        )
        name = str(offer.pool)
        subject = f"{bought.quantity} x {offer.pool.instance_type}"
        touches = _committed([offer.pool], held)
    change = Change(subject=name, effect=effect)
    return DraftAction(
        lever=commitments.NAME,
        subject=subject,
        class_name=name,
        workloads=(),
        changes=(change,),
        released=(),
        discounts=(bought,),
        touches=frozenset(touches),
        hazards=hazards_of([change], {}),
        used_in_any_order=purchase.used_in_any_order,
    )


def _touched(
    fleet: Fleet, planned: Mapping[int, Deployment], enacted: FleetBill, bought: Sequence[Commitment]
) -> dict[int, frozenset[Hashable]]:
    """Return what each workload's actions touch: itself, the node groups it held, and what is committed, bought or held."""
    held = (*enacted.owned, *bought)
    touched = {}
    for index, deployment in planned.items():
        workload = fleet.workloads[index]
        parts = [deployment, *(deployment.restricted({lever}) for lever in sorted(deployment.levers))]
        pools = {workload.pool, *(resolve(workload, part).pool for part in parts)}
        things: set[Hashable] = {("workload", index), *(("cloud", name) for name in entries_of(workload, deployment))}
        for number, (owners, usage) in enumerate(enacted.groups.held):
            if index in owners:
                things.add(("group", number))
                pools |= usage.keys()
        touched[index] = frozenset(things | _committed(pools, held))
    return touched


def _committed(pools: Iterable[Pool], held: Sequence[Commitment]) -> set[Hashable]:
    """Return what couples uses of some pools: committed nodes of each, and the spend of a provider's plans."""
    nodes = nodes_committed(held)
    spend = {pool for commitment in held if commitment.offer.is_spend for pool in commitment.offer.rates_micro_usd_hr}
    things: set[Hashable] = set()
    for pool in pools:
        things |= {("pool", pool)} if pool in nodes else set()
        things |= {("spend", pool.provider)} if pool in spend else set()
    return things
