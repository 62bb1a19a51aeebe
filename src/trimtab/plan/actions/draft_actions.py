"""From the chosen options to actions a person can enact: one per lever and class, with its risk and what it rests on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from trimtab.catalog.pools import Pool
from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import (
    BookBlocks,
    BuyCommitment,
    BuySpendPlan,
    Effect,
    HedgeOnSpot,
    PlanRate,
    ReleaseIdle,
    ReleaseNodes,
    Relocate,
    SetBatchPolicy,
    SetCapacityType,
    SetPrecision,
    SetReplicaPolicy,
    SetReplicas,
    SetSchedule,
    StartBeforeRuns,
    Tranche,
    UseSlots,
)
from trimtab.deployment.placement import resolve
from trimtab.fleet.model import Fleet, Workload
from trimtab.fleet.settings import Bands
from trimtab.ledger import Bill, Commitment, nodes_committed
from trimtab.levers import commitments, idle_release
from trimtab.levers.lever import AppliedLever, Fact, FleetPurchase, Risk
from trimtab.levers.registry import lever_named
from trimtab.plan.effort import UNHELD, together_of
from trimtab.plan.model import Change
from trimtab.plan.program.fleet_problem import FleetBill
from trimtab.provenance import Evidence
from trimtab.replay.outcomes.outcome import Attained, entries_of, is_unchanged
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import usd


class Hazard(Enum):
    """What can happen, in words."""

    BINDS = "it is paid to the end of its term, used or not"
    ONE_REPLICA = "one replica is left: the loss of its node is an outage"
    ANSWERS_CHANGE = "answers may change"
    ONE_FAULT_STOPS_ALL = "one fault stops all who share a GPU"
    FAR_AWAY = "it goes to another cloud"
    CAPACITY = "capacity given back may not be there when it is asked for again"
    NOTICED = "people notice where the prediction is off"

    @property
    def risk(self) -> Risk:
        """Return the risk of an action that bears it."""
        return Risk.MEDIUM if self in (Hazard.CAPACITY, Hazard.NOTICED) else Risk.HIGH


_NEEDS_NODES_AGAIN = (
    ReleaseIdle,
    SetSchedule,
    StartBeforeRuns,
    SetReplicaPolicy,
    SetCapacityType,
    HedgeOnSpot,
    BookBlocks,
)
_ANSWERED = frozenset({WorkloadKind.SERVING, WorkloadKind.NOTEBOOK})
"""Kinds of workloads that people wait for."""


def hazards_of(changes: Sequence[Change], workloads: Mapping[str, Workload]) -> tuple[Hazard, ...]:
    """Return what can happen once some changes are made, the worst first; `workloads` are those of the changes, by name."""
    found = {hazard for change in changes for hazard in _of(change, workloads.get(change.subject))}
    return tuple(hazard for hazard in Hazard if hazard in found)


def risk_of(usual: Risk, hazards: Sequence[Hazard]) -> Risk:
    """Return the risk of an action that bears some hazards: no less than is usual for its lever."""
    risks = {usual, *(hazard.risk for hazard in hazards)}
    return next(risk for risk in (Risk.HIGH, Risk.MEDIUM, Risk.LOW) if risk in risks)


def _of(change: Change, workload: Workload | None) -> Iterator[Hazard]:
    effect = change.effect
    if isinstance(effect, BuyCommitment | BuySpendPlan):
        yield Hazard.BINDS
    if isinstance(effect, SetPrecision):
        yield Hazard.ANSWERS_CHANGE
    if isinstance(effect, UseSlots) and not effect.shared.is_isolated:
        yield Hazard.ONE_FAULT_STOPS_ALL
    if isinstance(effect, Relocate) and effect.cloud:
        yield Hazard.FAR_AWAY
    if isinstance(effect, _NEEDS_NODES_AGAIN):
        yield Hazard.CAPACITY
    if workload is not None and workload.kind in _ANSWERED:
        yield Hazard.NOTICED
        if workload.spec.min_replicas is None and _fewest(effect) <= 1 < _had(workload):
            yield Hazard.ONE_REPLICA


def _fewest(effect: object) -> float:
    """Return the fewest replicas that an effect leaves; infinite where it says nothing of them."""
    match effect:
        case SetReplicas():
            return effect.replicas
        case SetReplicaPolicy():
            return effect.hpa.min_replicas
        case SetBatchPolicy() if effect.replicas is not None:
            return effect.replicas
        case _:
            return float("inf")


def _had(workload: Workload) -> int:
    return 1 if workload.service is None else workload.service.most_replicas


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
        for number in enacted.groups.of_workload.get(index, ()):
            things.add(("group", number))
            pools |= enacted.groups.held[number][1].keys()
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


_SHOWN = 3


def evidence_of(
    draft: DraftAction,
    fleet: Fleet,
    enacted: FleetBill,
    deployments: Mapping[int, Deployment],
    left: Bill,
    bands: Bands,
) -> tuple[Evidence, ...]:
    """Return the evidence of an action; of a class of workloads, that of the largest few.

    `left` is the bill of what the whole plan leaves: what commitments rest on.
    """
    window, lever = str(fleet.window), lever_named(draft.lever)
    if not draft.workloads:
        bought = FleetPurchase(discounts=draft.discounts, owned=enacted.owned, left=left, rates=enacted.rates)
        return tuple(_lines(lever.fleet_evidence(bought), window))
    largest = sorted(draft.workloads, key=lambda index: -fleet.workloads[index].gpu_hours)[:_SHOWN]
    lines: list[Evidence] = []
    for index in largest:
        workload, evaluator = fleet.workloads[index], enacted.evaluators[index]
        applied = AppliedLever(
            lever=draft.lever,
            evaluator=evaluator,
            market=enacted.market,
            deployment=deployments[index],
            place=evaluator.place(deployments[index]),
            outcome=enacted.outcome(index, deployments[index]),
        )
        attained = (
            _attained(workload, met)
            for met in applied.outcome.attained
            if not is_unchanged(workload, deployments[index], met.target)
        )
        facts = (_activity(workload, bands), *lever.evidence(applied), *attained)
        lines += _lines(facts, window, of=f"{workload.name}: ")
    return tuple(lines)


def _lines(facts: Iterable[Fact], window: str, *, of: str = "") -> list[Evidence]:
    return [
        Evidence(what=f"{of}{fact.what}", query=fact.query, window=window, value=fact.value, threshold=fact.threshold)
        for fact in facts
    ]


def _activity(workload: Workload, bands: Bands) -> Fact:
    activity = workload.activity
    if activity.signal == "none":
        query = f"gpu_usage where workload = '{workload.name}'"
        return Fact("GPU activity", query, "not measured; when it needs nodes is known by its runs")
    return Fact(
        what=f"mean {activity.signal}",
        query=f"gpu_usage.{activity.signal}_mean where workload = '{workload.name}'",
        value="not measured" if activity.mean_frac is None else f"{activity.mean_frac:.0%}",
        threshold=f"healthy {bands.find_cause_frac:.0%}-{bands.healthy_frac:.0%}",
    )


def _attained(workload: Workload, attained: Attained) -> Fact:
    return Fact(
        what=f"replayed {attained.target.describe()}",
        query=f"replay of {workload.name}",
        value=f"{attained.frac:.2%}",
        threshold=f">= {attained.target.required_frac * 100:g}% ({attained.target.because})",
    )
