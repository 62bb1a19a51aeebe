"""One plan for a fleet: the joint choice, actions priced by what they add, the order to do them in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import (
    BuyCommitment,
    HedgeOnSpot,
    OverflowTo,
    Relocate,
    SetCapacityType,
    SetPrecision,
    SetReplicaGpus,
    SetTrainingMemory,
    SplitServing,
    UseOffering,
    UseSlots,
)
from trimtab.fleet.law_evidence import BackTest
from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet
from trimtab.fleet.settings import Settings
from trimtab.ledger import Commitment
from trimtab.plan.actions.attribution import ShapleyShares
from trimtab.plan.actions.draft_actions import DraftAction, evidence_of
from trimtab.plan.actions.draft_plan import (
    DraftPlan,
    left_out,
    not_worth,
    refusals,
    too_much_work,
    without_idle_deferrals,
)
from trimtab.plan.actions.intervals import cost_of_losses, cost_of_queues, saving_estimate, spend_of_runs
from trimtab.plan.actions.roadmap import Slot, efforts
from trimtab.plan.actions.roadmap_planner import RoadmapPlanner
from trimtab.plan.actions.staging import dated, staged
from trimtab.plan.alternatives import ResidualBill, alternatives, unisolated
from trimtab.plan.choosing import choose_jointly, choose_without
from trimtab.plan.effort import effort_micro_usd
from trimtab.plan.model import Action, Change, NotWorthDoing, Plan
from trimtab.plan.options.workload_options import BEHIND, WorkloadOptions, unkept
from trimtab.plan.problem import KEEP
from trimtab.plan.program.fleet_problem import FleetBill
from trimtab.plan.program.solve import ChosenPlan, price_limits
from trimtab.plan.prospects import Progress, Prospects
from trimtab.provenance import Estimate
from trimtab.replay.outcomes.outcome import Case
from trimtab.units import HR_PER_MO, per_month, usd


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Planned:
    """A plan with what proves it: each workload's deployment, nodes given back, what is bought, which workloads go unjudged."""

    plan: Plan
    fleet: Fleet
    cases: Mapping[str, Case]
    deployments: Mapping[str, Deployment]
    released: tuple[str, ...]
    discounts: tuple[Commitment, ...]
    unjudged: Mapping[str, str]
    drafted: DraftPlan
    """The plan's actions, any of which can be billed without the others."""
    order: tuple[int, ...]
    """The actions' places in the draft, in the order in which to do them."""
    owned: tuple[Commitment, ...] = ()
    unkept: tuple[str, ...] = ()
    """Declared targets that history missed and nothing on offer keeps, in words."""
    headroom_micro_usd: int = 0
    """What the plan's headroom costs over the window: its bill, less that of the best plan that leaves none."""
    prospects: Prospects | None = None
    """What it was chosen from, with all that was replayed for the choice."""


def plan_of(prospects: Prospects, progress: Progress) -> Planned:
    """Choose among prospects; raises PlanError, naming the rules in conflict, where no plan keeps the limits."""
    progress("choosing jointly", 0.0)
    solved = choose_jointly(prospects)
    prospects, problem, cheapest, chosen = solved.prospects, solved.problem, solved.cheapest, solved.chosen
    fleet, market, settings, cases = prospects.fleet, prospects.market, prospects.settings, prospects.cases
    options = list(prospects.options)
    judged = {name: case for name, case in cases.items() if isinstance(case, Case)}
    drafted, unbought = worthwhile(draft_of(fleet, options, chosen, market, problem.owned), options, settings)
    at_any_effort = draft_of(fleet, options, cheapest, market, problem.owned)
    progress("attributing savings", 0.0)
    shares = drafted.shares(prospects.seed)
    path = _path(drafted, shares, settings)
    slots = path.slots()
    shared = unisolated(fleet, judged, market, settings)
    left = ResidualBill(bill=drafted.bill(drafted.everything))
    losses = cost_of_losses(drafted)
    plan = Plan(
        window=fleet.window,
        before_micro_usd=drafted.cost(frozenset()),
        after_micro_usd=drafted.cost(drafted.everything),
        bound_micro_usd=cheapest.bound_micro_usd,
        moving_micro_usd=drafted.moving(drafted.everything),
        runs=tuple(spend_of_runs(drafted)),
        queues_micro_usd=tuple(cost_of_queues(drafted)),
        losses_micro_usd=tuple(losses.values()),
        actions=_actions(drafted, shares, slots, settings, losses),
        not_worth_doing=(
            *unbought,
            *too_much_work(at_any_effort, drafted, settings),
            *shared,
            *refusals(fleet, options, at_any_effort, drafted),
        ),
        options=sum(row.considered for row in options if row),
        pruned=_pruned(options, cheapest),
        attribution="Shapley, sampled" if shares.sampled else "exact Shapley",
        limits=price_limits(
            solved.paying,
            chosen,
            lambda limit: bool(prospects.stand_under(limit)),
            lambda limit: choose_without(limit, prospects, solved.paying, chosen),
        ),
        roadmap=path.roadmap() if prospects.explains else None,
        alternatives=alternatives(fleet, left, market, settings, shared),
        work_gap_frac=_work_gap(drafted, chosen, settings),
    )
    return Planned(
        plan=plan,
        fleet=fleet,
        cases=judged,
        deployments={fleet.workloads[index].name: deployment for index, deployment in drafted.deployments.items()},
        released=tuple(fleet.nodes[index].name for index in drafted.released),
        discounts=drafted.bought(drafted.everything),
        unjudged={name: case for name, case in cases.items() if isinstance(case, str)},
        drafted=drafted,
        order=tuple(slot.number for slot in slots),
        owned=problem.owned,
        unkept=tuple(unkept(options)),
        headroom_micro_usd=max(0, cheapest.cost_micro_usd - solved.bold_micro_usd),
        prospects=prospects,
    )


def worthwhile(
    drafted: DraftPlan, options: Sequence[WorkloadOptions | None], settings: Settings
) -> tuple[DraftPlan, tuple[NotWorthDoing, ...]]:
    """Return a draft as it is to be done, and the purchases that are left out of it.

    No run is held back for nothing, and commitments are those that are worth it, as far as use backs them.
    """
    drafted, small = _commitments_worth(without_idle_deferrals(drafted, options, settings), settings)
    drafted, unbacked = staged(drafted, settings)
    return drafted, (*small, *unbacked)


def _work_gap(drafted: DraftPlan, chosen: ChosenPlan, settings: Settings) -> float:
    """Return how far a plan's bill and work may be above those of any other, purchases' own hour of work aside."""
    actions = [action for action in drafted.actions if not action.discounts]
    both = drafted.cost(drafted.everything) + effort_micro_usd(actions, settings, drafted.fleet.window.hours)
    return max(0.0, 1 - chosen.bound_micro_usd / both) if both else 0.0


def draft_of(
    fleet: Fleet,
    options: Sequence[WorkloadOptions | None],
    chosen: ChosenPlan,
    market: Market,
    owned: tuple[Commitment, ...],
) -> DraftPlan:
    """Return what a choice among options comes to: deployments, nodes given back, purchases in one piece."""
    enacted = FleetBill(
        fleet=fleet,
        evaluators={index: judged.evaluator for index, judged in enumerate(options) if judged is not None},
        market=market,
        owned=owned,
    )
    deployments = {
        index: judged.candidates[chosen.choice[index]].deployment
        for index, judged in enumerate(options)
        if judged is not None and chosen.choice[index] != KEEP
    }
    released = tuple(
        node
        for row, (_, nodes) in enumerate(sorted(enacted.groups.unheld.items()))
        if chosen.choice[len(options) + row] != KEEP
        for node in nodes
    )
    return DraftPlan(fleet=fleet, enacted=enacted, deployments=deployments, released=released, discounts=chosen.bought)


def _commitments_worth(drafted: DraftPlan, settings: Settings) -> tuple[DraftPlan, tuple[NotWorthDoing, ...]]:
    """Leave out commitments that add too little, one at a time: what one no longer covers another may."""
    refused: list[NotWorthDoing] = []
    while True:
        weeks = efforts(drafted.actions, settings, entries=False)
        poor = []
        for number, draft in enumerate(drafted.actions):
            if draft.discounts:
                added = per_month(usd(drafted.last_in(number)), drafted.fleet.window.hours)
                reason = not_worth(added, weeks[number], settings.planning)
                poor += [] if reason is None else [(added, number, reason)]
        if not poor:
            return drafted, tuple(refused)
        added, number, reason = min(poor)
        refused.append(left_out(drafted.actions[number], added, reason))
        drafted = drafted.without(frozenset({number}))


def _most_usd_mo(drafted: DraftPlan, number: int) -> float:
    """Return what an action that only buys saves if all of it is used at every hour; infinity for other actions."""
    draft = drafted.actions[number]
    if not all(isinstance(change.effect, BuyCommitment) for change in draft.changes):
        return math.inf
    rate = drafted.enacted.market.rate
    saved = sum(
        bought.quantity * (rate(bought.offer.pool) - bought.offer.rate_micro_usd_hr) for bought in draft.discounts
    )
    return usd(saved) * HR_PER_MO


def _path(drafted: DraftPlan, shares: ShapleyShares, settings: Settings) -> RoadmapPlanner:
    return RoadmapPlanner(
        drafted=drafted,
        savings_usd_mo=[per_month(usd(share), drafted.fleet.window.hours) for share in shares.shapley],
        needed_first=drafted.needed_first(),
        settings=settings,
    )


def _actions(
    drafted: DraftPlan,
    shares: ShapleyShares,
    slots: Sequence[Slot],
    settings: Settings,
    losses: Mapping[int, tuple[int, int]],
) -> tuple[Action, ...]:
    hours = drafted.fleet.window.hours
    monthly = [per_month(usd(share), hours) for share in shares.shapley]
    weeks = efforts(drafted.actions, settings)
    with_all, moving = drafted.hourly_usd(drafted.everything), drafted.moving(drafted.everything)
    deployments, left = drafted.in_force(drafted.everything), drafted.bill(drafted.everything)
    needed, ids = drafted.needed_first(), {slot.number: f"a{place + 1}" for place, slot in enumerate(slots)}
    actions = []
    first_day = drafted.enacted.market.at or drafted.fleet.window.end.date()
    for slot in slots:
        number = slot.number
        spend = drafted.spend(number)
        spend_usd_mo = None if spend is None else per_month(usd(spend), hours)
        draft = drafted.actions[number]
        hourly = drafted.hourly_usd(drafted.taken(drafted.everything - {number})) - with_all
        actions.append(
            Action(
                id=ids[number],
                lever=draft.lever,
                subject=draft.subject,
                changes=dated(draft.changes, first_day, slot.start_mo),
                saving_micro_usd=shares.shapley[number],
                saving_usd_mo=saving_estimate(
                    monthly[number],
                    hourly,
                    _speed(drafted, number),
                    draft.lever,
                    most_usd_mo=min(_most_usd_mo(drafted, number), math.inf if spend_usd_mo is None else spend_usd_mo),
                    law_error_frac=_law_error_frac(drafted, number),
                    spot_up_frac=_spot_up_frac(draft.changes),
                    losses_usd_mo=_losses_usd_mo(draft, losses, hours),
                ),
                standalone_usd_mo=per_month(usd(shares.standalone[number]), hours),
                last_in_usd_mo=per_month(usd(shares.last_in[number]), hours),
                moving_usd_mo=per_month(usd(moving - drafted.moving(drafted.everything - {number})), hours),
                share_low_usd_mo=per_month(usd(shares.shapley_low[number]), hours),
                share_high_usd_mo=per_month(usd(shares.shapley_high[number]), hours),
                spend_usd_mo=spend_usd_mo,
                enables=tuple(ids[slot.number] for slot in slots if slot.number in needed.get(number, ())),
                effort_weeks=weeks[number],
                risk=draft.risk,
                hazards=tuple(hazard.value for hazard in draft.hazards),
                quarter=slot.quarter,
                evidence=evidence_of(draft, drafted.fleet, drafted.enacted, deployments, left, settings.bands),
                rollback=draft.rollback,
            )
        )
    return tuple(actions)


def _speed(drafted: DraftPlan, number: int) -> Estimate | None:
    """Return the least certain speed estimate that an action rests on."""
    speeds = [
        change.effect.speed
        for change in drafted.actions[number].changes
        if isinstance(
            change.effect,
            UseOffering
            | Relocate
            | OverflowTo
            | UseSlots
            | SetPrecision
            | SetTrainingMemory
            | SetReplicaGpus
            | SplitServing,
        )
    ]
    return min(speeds, key=lambda speed: speed.low / speed.value, default=None)


def _law_error_frac(drafted: DraftPlan, number: int) -> float:
    """Return the largest error that the law of a service which an action changes showed in its back-test; 0 where none has."""
    subjects = {change.subject for change in drafted.actions[number].changes}
    laws = (
        evaluator.case.law
        for evaluator in drafted.enacted.evaluators.values()
        if evaluator.case.workload.name in subjects
    )
    tests = (law.tested.back_test for law in laws if law is not None and law.tested is not None)
    return max((test.error_frac for test in tests if isinstance(test, BackTest)), default=0.0)


def _spot_up_frac(changes: Sequence[Change]) -> float | None:
    """Return the least share of time in which an action's runs are taken to find spot; None where none goes to spot."""
    effects = [change.effect for change in changes]
    return min((1 - effect.unavailable_frac for effect in effects if isinstance(effect, SetCapacityType)), default=None)


def _losses_usd_mo(draft: DraftAction, losses: Mapping[int, tuple[int, int]], hours: float) -> tuple[float, float]:
    """Return what an action that goes to spot costs more a month where nodes are lost often, and less where they are seldom."""
    if not any(isinstance(change.effect, SetCapacityType | HedgeOnSpot) for change in draft.changes):
        return 0.0, 0.0
    known = [losses[index] for index in draft.workloads if index in losses]
    return per_month(usd(sum(more for more, _ in known)), hours), per_month(usd(sum(less for _, less in known)), hours)


def _pruned(options: list[WorkloadOptions | None], chosen: ChosenPlan) -> dict[str, int]:
    pruned = dict(chosen.pruned)
    for judged in options:
        if judged is not None:
            for reason, number in (*judged.dropped.items(), (BEHIND, judged.queued)):
                pruned[reason] = pruned.get(reason, 0) + number
    return {reason: number for reason, number in sorted(pruned.items(), key=lambda item: -item[1]) if number}
