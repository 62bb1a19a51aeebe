"""Prove a plan, whole and action by action: replay the proof window, which the planner never saw, under it, and bill both.

Laws and targets come from the fit window, but for how long requests take: latencies by load, and the time in work where
replicas answer one at a time, are what the proof window measured. Rules go on counting with the capacity that was learnt. A
workload that the fit window did not have stays as history ran it; one that vanished uses nothing; commitments are paid all the
same. A node that no workload holds any more is given back with the workloads that held it in the fit window.

Action by action: shares as in the plan (Shapley) where the actions that touch one another are few enough to enumerate on a
second window as well; else what is lost when an action alone is left out, on both sides. Either way the predicted and the
replayed figure are of one kind.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

import numpy as np

from trimtab.catalog.kinds import BuyingOption
from trimtab.catalog.pools import Pool
from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import BuyCommitment, BuySpendPlan, Effect, ReleaseNodes, SetSchedule
from trimtab.deployment.fitting import speeds_of_types
from trimtab.errors import ConservationError
from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet, Target, Workload
from trimtab.fleet.reach import quota_of_pools, quotas_of
from trimtab.fleet.service_law import ServiceLaw, as_seen_in
from trimtab.fleet.settings import Settings
from trimtab.ledger import Bill, Commitment
from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.plan.actions.attribution import attribute, components
from trimtab.plan.model import Action, ActionProof, CapacityPicture, Promise, Proof, Repair, TargetResult
from trimtab.plan.planner import Planned
from trimtab.plan.program.fleet_problem import FleetBill, holders_by_node
from trimtab.plan.proof.clairvoyant import clairvoyant_bound
from trimtab.provenance import Estimate
from trimtab.replay.compiled import side_by_side
from trimtab.replay.outcomes.evaluate import Evaluator
from trimtab.replay.outcomes.outcome import Case, Outcome, is_unchanged
from trimtab.replay.outcomes.service_outcome import baseline_attained, hourly_demand_gpus, outside_hours
from trimtab.tables.workloads import TargetMetric, WorkloadKind
from trimtab.units import MICRO_PER_USD, S_PER_HR, per_month, usd

_ROUNDING_FRAC = 1e-6
"""Of a bill: each hour of each pool is rounded to a micro-dollar."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProofResult:
    """A proof and the pictures that go with it."""

    proof: Proof
    capacity: tuple[CapacityPicture, ...]
    enacted: FleetBill
    """The window's fleet, with what was replayed of it."""

    def repaired(self, repairs: tuple[Repair, ...], first_saving_micro_usd: int) -> ProofResult:
        """Return the proof of a plan that takes the place of one which missed targets here."""
        proof = replace(self.proof, repairs=repairs, first_saving_micro_usd=first_saving_micro_usd)
        return replace(self, proof=proof)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanOnWindow:
    """A plan's actions laid over another window: what the bill would have been with some of them.

    All together buy what was planned. Fewer of them buy as much of it as is best for the use that they leave, as attribution
    has it.
    """

    planned: Planned
    enacted: FleetBill

    def cost(self, some: frozenset[int]) -> int:
        """Return the exact bill with some of the plan's actions (by their place in it), in micro-dollars."""
        drafted, names = self.planned.drafted, [workload.name for workload in self.planned.fleet.workloads]
        numbers = frozenset(self.planned.order[place] for place in some)
        deployments = {names[index]: deployment for index, deployment in drafted.in_force(numbers).items()}
        effects = [change.effect for place in sorted(some) for change in self.planned.plan.actions[place].changes]
        in_force = {
            index: deployments[workload.name]
            for index, workload in enumerate(self.enacted.fleet.workloads)
            if index in self.enacted.evaluators and workload.name in deployments
        }
        released = [node for effect in effects if isinstance(effect, ReleaseNodes) for node in effect.nodes]
        bought = self._offered(effects)
        if len(some) < len(self.planned.plan.actions):
            bought = self.enacted.best_within(bought, self.enacted.usage(in_force, released))
        return self.enacted.bill(in_force, released, bought).total + self.enacted.moving(in_force)

    def saving(self, some: frozenset[int]) -> int:
        """Return what some of the plan's actions save together, in micro-dollars; as in the plan, those that pay are done."""
        taken = self.planned.drafted.taken(frozenset(self.planned.order[place] for place in some))
        return self.cost(frozenset()) - self.cost(frozenset(p for p in some if self.planned.order[p] in taken))

    def _offered(self, effects: Sequence[Effect]) -> tuple[Commitment, ...]:
        """Return what some effects would buy, as planned."""
        nodes, spend = Counter[Pool](), Counter[tuple[str, BuyingOption]]()
        for effect in effects:
            match effect:
                case BuyCommitment(pool=pool, count=count):
                    nodes[pool] += count
                case BuySpendPlan(provider=provider, option=option, spend_micro_usd_hr=micro_usd_hr):
                    spend[provider, option] += micro_usd_hr
                case _:
                    pass
        most = [
            spend[commitment.offer.provider, commitment.offer.option]
            if commitment.offer.is_spend
            else nodes[commitment.offer.pool]
            for commitment in self.planned.discounts
        ]
        return tuple(
            replace(commitment, quantity=min(commitment.quantity, quantity))
            for commitment, quantity in zip(self.planned.discounts, most, strict=True)
            if quantity
        )


def prove(
    planned: Planned,
    proof_fleet: Fleet,
    market: Market,
    settings: Settings,
    *,
    seed: int,
    as_measured: bool = True,
    bounded: bool = True,
) -> ProofResult:
    """Replay a plan over another window of the same fleet.

    `as_measured`: the window is as it was measured, so that a workload that the plan leaves alone attains what it attained.
    `bounded`: the bill is compared with what any plan costs with the future known; raises ConservationError if it is lower.
    """
    enacted = enact(planned, proof_fleet, market, settings, seed=seed)
    evaluators, in_force = enacted.evaluators, deployed(planned, enacted)

    def replayed(index: int) -> Outcome:
        outcome = enacted.outcome(index, in_force[index])
        # what arrives at a service every 15 s takes 2 MiB
        evaluators[index].forget_histories()
        return outcome

    outcomes = dict(zip(in_force, side_by_side(replayed, in_force), strict=True))
    before = enacted.bill({}, (), ())
    after = enacted.bill(in_force, planned.released, planned.discounts)
    moving = enacted.moving(in_force)
    targets = tuple(touched_targets(enacted, in_force))
    cost = after.total + moving
    bound = clairvoyant_bound(proof_fleet, evaluators, market, planned.owned) if bounded else None
    if bound is not None and cost < bound and all(target.kept for target in targets):
        least = clairvoyant_bound(proof_fleet, evaluators, market, planned.owned, strict=True)
        require_possible(cost, least)
    return ProofResult(
        proof=Proof(
            window=proof_fleet.window,
            before_micro_usd=before.total,
            after_micro_usd=cost,
            moving_micro_usd=moving,
            # whoever misses targets may cost less than what it takes to keep them
            clairvoyant_micro_usd=None if bound is None else min(bound, before.total, cost),
            hourly_before_usd=_usd(before),
            hourly_after_usd=_usd(after) + usd(moving) / proof_fleet.window.hours,
            targets=(*targets, *(untouched_targets(enacted, in_force) if as_measured else ())),
            interruptions=sum(outcome.interruptions for outcome in outcomes.values()),
            lost_gpu_hr=sum(outcome.lost_gpu_hr for outcome in outcomes.values()),
            runs_without_node=sum(outcome.runs_without_node for outcome in outcomes.values()),
            longest_without_node_s=max([outcome.longest_without_node_s for outcome in outcomes.values()], default=0.0),
            notes=(
                *_notes(planned, proof_fleet),
                *_over_quota(enacted.usage(in_force, planned.released), settings),
                *_other_lengths(evaluators[index].case for index in in_force),
                *(
                    note
                    for index, deployment in in_force.items()
                    for note in _refusals(evaluators[index].case, deployment)
                ),
            ),
        ),
        capacity=tuple(
            _picture(evaluators[index].case, outcome) for index, outcome in outcomes.items() if outcome.gpus is not None
        ),
        enacted=enacted,
    )


def require_possible(cost_micro_usd: int, least_micro_usd: int) -> None:
    """Raise ConservationError where a plan that keeps every target costs less than any plan can."""
    if cost_micro_usd < least_micro_usd * (1 - _ROUNDING_FRAC):
        raise ConservationError(
            f"the plan costs ${usd(cost_micro_usd):,.2f} over the proof window and keeps every target, which takes "
            f"${usd(least_micro_usd):,.2f} at least: some work is not billed"
        )


def enact(planned: Planned, fleet: Fleet, market: Market, settings: Settings, *, seed: int) -> FleetBill:
    """Return a window's fleet as a plan meets it: whose history is replayed, by what the fit window taught."""
    return FleetBill(
        fleet=fleet,
        evaluators=_evaluators(planned, fleet, market, settings, seed),
        market=market,
        owned=planned.owned,
        held_before=holders_by_node(planned.fleet),
    )


def deployed(planned: Planned, enacted: FleetBill) -> dict[int, Deployment]:
    """Return the deployments of a plan that are in force on a window, by the workload's place in its fleet."""
    return {
        index: planned.deployments[workload.name]
        for index, workload in enumerate(enacted.fleet.workloads)
        if workload.name in planned.deployments and index in enacted.evaluators
    }


def _evaluators(planned: Planned, fleet: Fleet, market: Market, settings: Settings, seed: int) -> dict[int, Evaluator]:
    evaluators = {}
    for index, workload in enumerate(fleet.workloads):
        learnt = planned.cases.get(workload.name)
        if learnt is not None:
            case = Case(
                workload=_as_learnt(workload, learnt.workload),
                window=fleet.window,
                targets=learnt.targets,
                law=_as_seen(learnt.law, workload),
                settings=settings,
                seed=seed + 1,
                store=learnt.store,
                type_speeds=_type_speeds(learnt, workload, market),
                neighbours=learnt.neighbours,
            )
            evaluators[index] = Evaluator(case=case)
    return evaluators


def _type_speeds(learnt: Case, workload: Workload, market: Market) -> Mapping[str, Estimate]:
    """Return how the types of GPU that runs were on in this window compare, by what the GPU did in the fit window."""
    found = speeds_of_types(replace(learnt.workload, jobs=workload.jobs), market)
    return learnt.type_speeds if isinstance(found, str) else found


def _as_seen(law: ServiceLaw | None, workload: Workload) -> ServiceLaw | None:
    """Return the law that proves a plan: the capacity learnt, which rules rest on, and the times that this window measured."""
    return law if law is None or workload.service is None else as_seen_in(law, workload.service)


def _as_learnt(workload: Workload, learnt: Workload) -> Workload:
    """Keep what was learnt of a workload's nature; take what happened from the proof window."""
    return replace(
        workload,
        kind=learnt.kind,
        kind_because=learnt.kind_because,
        pool=learnt.pool,
        gpu=learnt.gpu,
        gpus_per_node=learnt.gpus_per_node,
        gpus_per_pod=learnt.gpus_per_pod,
        home_speed=learnt.home_speed,
        targets=learnt.targets,
    )


def _usd(priced: Bill) -> FloatArray:
    return np.asarray(priced.hourly / MICRO_PER_USD, dtype=np.float64)


def _picture(case: Case, outcome: Outcome) -> CapacityPicture:
    after = np.zeros(case.window.hours) if outcome.gpus is None else outcome.gpus / S_PER_HR
    return CapacityPicture(
        workload=case.workload.name,
        demand_gpus=hourly_demand_gpus(case),
        before_gpus=case.workload.gpu_seconds / S_PER_HR,
        after_gpus=after,
    )


def _notes(planned: Planned, fleet: Fleet) -> tuple[str, ...]:
    """Say what the proof window has that the fit window had not, and the reverse."""
    then = {workload.name for workload in planned.fleet.workloads}
    now = {workload.name for workload in fleet.workloads}
    notes = []
    if now - then:
        notes.append(f"new since the fit window, left as they are: {', '.join(sorted(now - then))}")
    if then - now:
        notes.append(f"gone since the fit window: {', '.join(sorted(then - now))}")
    return tuple(notes)


def _over_quota(usage: Mapping[Pool, IntArray], settings: Settings) -> Iterator[str]:
    """Say where workloads that share a quota, each within it, ask together for more than it has room for."""
    for pool, most in quota_of_pools(quotas_of(settings.limits.quotas), sorted(usage)).items():
        over = np.flatnonzero(usage[pool] > most * S_PER_HR)
        if len(over):
            peak = float(usage[pool].max()) / S_PER_HR
            hours = f"{len(over)} hour{'s' if len(over) != 1 else ''}"
            yield f"in {hours} the plan asks for up to {peak:.1f} x {pool}, and the quota is {most}: what asks last must wait"


_OTHER_LENGTH_FRAC = 0.05
"""Requests whose length changed by less are not worth a word: readings are no better."""


def _other_lengths(cases: Iterable[Case]) -> Iterator[str]:
    """Say where replicas that answer one request at a time had longer or shorter ones than when the plan was made."""
    for case in cases:
        law = case.law
        if law is None or abs(law.rule_req_s / law.capacity_req_s - 1) <= _OTHER_LENGTH_FRAC:
            continue
        yield (
            f"{case.workload.name}: a request took a replica {1 / law.capacity_req_s:.3g} s, {1 / law.rule_req_s:.3g} s in the "
            "history that the plan was made on; its autoscaler counts with the latter"
        )


def _refusals(case: Case, deployment: Deployment) -> Iterator[str]:
    """Say what a service that is closed out of hours refuses: its targets are those of its open hours."""
    refused = outside_hours(case) if isinstance(deployment.holding, SetSchedule) else None
    if refused is not None:
        yield f"{case.workload.name} refuses what is asked of it outside its declared hours; requests of this window: {refused}"


def target_results(case: Case, deployment: Deployment, outcome: Outcome) -> list[TargetResult]:
    """Return what each target attained; "no worse than observed" is left out where nothing that could change it changes."""
    return [
        TargetResult(
            workload=case.workload.name,
            target=attained.target,
            promise=_promise(case, attained.target),
            before_frac=_history_attained(case, attained.target),
            attained_frac=attained.frac,
        )
        for attained in outcome.attained
        if not is_unchanged(case.workload, deployment, attained.target)
    ]


def touched_targets(enacted: FleetBill, in_force: Mapping[int, Deployment]) -> Iterator[TargetResult]:
    """Yield what the targets of workloads attain on a window under their deployments."""
    for index, deployment in in_force.items():
        yield from target_results(enacted.evaluators[index].case, deployment, enacted.outcome(index, deployment))


def untouched_targets(enacted: FleetBill, touched: Container[int]) -> Iterator[TargetResult]:
    """Yield the declared targets of workloads that the plan leaves as they are: it attains what history did.

    A target that is not declared is "no worse than observed", which always holds where nothing changes.
    """
    for index, evaluator in enacted.evaluators.items():
        for target in evaluator.case.targets if index not in touched else ():
            attained = _history_attained(evaluator.case, target) if target.declared else None
            if attained is not None:
                yield TargetResult(
                    workload=evaluator.case.workload.name,
                    target=target,
                    promise=_promise(evaluator.case, target),
                    before_frac=attained,
                    attained_frac=attained,
                    touched=False,
                )


def results_when_slow(planned: Planned, proven: ProofResult) -> Iterator[TargetResult]:
    """Yield what services on GPUs of another type attain on the window if those are as slow as their speed's interval allows.

    The window's own demand, without the headroom that plans leave: it is what the plan was to have headroom for.
    """
    for index, workload in enumerate(proven.enacted.fleet.workloads):
        evaluator, deployment = proven.enacted.evaluators.get(index), planned.deployments.get(workload.name)
        if evaluator is None or deployment is None or workload.kind is not WorkloadKind.SERVING:
            continue
        place = evaluator.place(deployment)
        if place.speed.low >= place.speed.value or place.hedge is not None:
            continue
        case = _without_headroom(evaluator.case)
        for attained in Evaluator(case=case).outcome(deployment).attained:
            yield TargetResult(
                workload=workload.name,
                target=attained.target,
                promise=_promise(case, attained.target),
                before_frac=_history_attained(case, attained.target),
                attained_frac=attained.safe_frac,
            )


def _without_headroom(case: Case) -> Case:
    planning = replace(case.settings.planning, demand_headroom_frac=0.0)
    return replace(case, settings=replace(case.settings, planning=planning))


def _promise(case: Case, target: Target) -> Promise:
    match target.metric:
        case TargetMetric.LATENCY | TargetMetric.TTFT | TargetMetric.TPOT:
            return Promise.LATENCY
        case TargetMetric.QUEUE_WAIT:
            return Promise.QUEUE
        case TargetMetric.THROUGHPUT:
            held = case.workload.kind is not WorkloadKind.SERVING and case.workload.jobs is None
            return Promise.HOURS if held else Promise.THROUGHPUT
    assert_never(target.metric)


def _history_attained(case: Case, target: Target) -> float | None:
    """Return what history itself attained in the same window; throughput is 1 by definition."""
    if target.metric is TargetMetric.THROUGHPUT:
        return 1.0
    if target.metric is TargetMetric.QUEUE_WAIT and case.workload.jobs is not None and target.limit_s is not None:
        jobs = case.workload.jobs
        return float((jobs.wait_s <= target.limit_s + 1e-6).mean()) if jobs.count else None
    return baseline_attained(case, target)


MOST_BILLS = 1_024
"""Sets of actions that are billed again at most; beyond, actions are left out one at a time."""


def proof_by_action(planned: Planned, proven: ProofResult, *, seed: int) -> tuple[ActionProof, ...]:
    """Return one entry an action, in the plan's order."""
    if not planned.plan.actions:
        return ()
    after = PlanOnWindow(planned=planned, enacted=proven.enacted)
    touches = [planned.drafted.actions[number].touches for number in planned.order]
    groups = components(len(touches), touches)
    shared = sum(2 ** len(group) for group in groups) <= MOST_BILLS
    saved = attribute(after.saving, groups, len(touches), seed=seed).shapley if shared else _last_in(after)
    hours = proven.proof.window.hours
    return tuple(
        ActionProof(
            id=action.id,
            measure="share" if shared else "last in",
            predicted_usd_mo=action.saving_usd_mo.value if shared else action.last_in_usd_mo,
            replayed_usd_mo=per_month(usd(micro_usd), hours),
            held=_held(action.saving_usd_mo.low, per_month(usd(micro_usd), hours), action.saving_usd_mo.high)
            if shared
            else None,
            work_ratio=_work_ratio(action, planned.fleet, proven.enacted.fleet),
        )
        for action, micro_usd in zip(planned.plan.actions, saved, strict=True)
    )


def _work_ratio(action: Action, fitted: Fleet, proven: Fleet) -> float | None:
    """Return how much more the GPUs of an action's workloads did in one window than in another; None where not measured."""
    names = {change.subject for change in action.changes}
    before, then = (
        sum(_mean_busy_gpus(workload) for workload in fleet.workloads if workload.name in names)
        for fleet in (fitted, proven)
    )
    return then / before if before > 0 and np.isfinite(then) else None


def _mean_busy_gpus(workload: Workload) -> float:
    """Return the GPUs' worth of activity in the mean hour that was measured, or in which it held none; NaN where none was."""
    busy_gpus = workload.activity.busy_gpus
    known = np.isfinite(busy_gpus) | (workload.gpu_seconds == 0)
    return float(np.nan_to_num(busy_gpus[known]).mean()) if np.isfinite(busy_gpus).any() else math.nan


def _held(low: float, value: float, high: float) -> bool:
    return low - 0.01 <= value <= high + 0.01


def _last_in(after: PlanOnWindow) -> Sequence[int]:
    everything = frozenset(range(len(after.planned.plan.actions)))
    joint = after.saving(everything)
    return [joint - after.saving(everything - {action}) for action in sorted(everything)]
