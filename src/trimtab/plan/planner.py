"""One plan for a fleet: options, the joint choice, actions priced by what they add, the order to do them in."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trimtab.catalog.pools import Site
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
from trimtab.fleet.reach import without_quota
from trimtab.fleet.settings import Settings
from trimtab.ledger import Commitment
from trimtab.levers import idle_release
from trimtab.levers.lever import LeverRequest
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
from trimtab.plan.effort import UNHELD, Effort, effort_micro_usd, effort_of, with_effort
from trimtab.plan.model import Action, Change, NotWorthDoing, Plan
from trimtab.plan.needed_replays import (
    NeededReplays,
    OtherWindows,
    Rows,
    Workers,
    explained,
    judged_by,
    with_replays_forgotten,
)
from trimtab.plan.options.composition import Candidate, Veto, dominated_sites
from trimtab.plan.options.workload_options import BEHIND, DOMINATED, WorkloadOptions, options_of, unkept
from trimtab.plan.problem import KEEP, Problem
from trimtab.plan.program.couplings.parts import Limit
from trimtab.plan.program.couplings.quotas import PoolQuota
from trimtab.plan.program.fleet_problem import FleetBill, fleet_problem
from trimtab.plan.program.solve import ChosenPlan, first_look, plan_without, price_limits, solve_problem
from trimtab.provenance import Estimate
from trimtab.replay.outcomes.evaluate import Evaluator, cases_of
from trimtab.replay.outcomes.outcome import Case, OutcomeStore
from trimtab.units import HR_PER_MO, per_month, usd

_ASKED_MORE = 20
"""Workloads, the largest ones, for which costly questions are asked: the nearest target that sharing would keep."""
Progress = Callable[[str, float], None]
"""Told the stage and the share of it that is done."""


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prospects:
    """What a plan is chosen from: every workload's options over the fit window, and the world in which they were judged."""

    fleet: Fleet
    market: Market
    settings: Settings
    seed: int
    cases: Mapping[str, Case | str]
    options: tuple[WorkloadOptions | None, ...]
    owned: tuple[Commitment, ...]
    vetoes: Mapping[str, Veto] = field(default_factory=dict)
    """Ways that the proof showed to miss their targets, by workload."""
    unneeded: frozenset[Site] = frozenset()
    """Shared nodes that no plan needs."""
    explains: bool = True
    """Whether a plan says why levers are not in it, which takes replays of its own, and how its year compares with others."""

    def with_vetoes(self, vetoes: Mapping[str, Veto]) -> Prospects:
        """Return the options less those that vetoes leave out, by workload; replays are not made again."""
        together = replace(self, vetoes={**self.vetoes, **vetoes})
        return together._judged_anew({workload.name for workload in self.fleet.workloads if workload.name in vetoes})

    def is_in(self, fleet: Fleet, market: Market, settings: Settings) -> bool:
        """Return whether these are prospects of a fleet, its targets aside, in this market under these settings."""
        declared = (known.spec == now.spec for known, now in zip(self.fleet.workloads, fleet.workloads, strict=True))
        return market is self.market and settings == self.settings and all(declared)

    def with_other_targets(self, fleet: Fleet, cases: Mapping[str, Case | str]) -> Prospects:
        """Return the prospects of the same fleet with other targets of the workloads whose cases are given.

        All others keep their options, with what is known of them; what the proof refused is offered once more.
        """

        def started_over(name: str, judged: WorkloadOptions | None) -> WorkloadOptions | None:
            case = cases.get(name)
            return judged and (replace(judged, evaluator=Evaluator(case=case)) if isinstance(case, Case) else judged)

        names = [workload.name for workload in fleet.workloads]
        known = replace(
            self,
            fleet=fleet,
            cases={**self.cases, **cases},
            options=tuple(started_over(name, judged) for name, judged in zip(names, self.options, strict=True)),
            vetoes={},
        )
        return known._judged_anew({*cases, *self.vetoes})

    def stand_under(self, limit: Limit) -> frozenset[str]:
        """Return the workloads that a quota held back in some replay."""
        if not isinstance(limit, PoolQuota):
            return frozenset()
        evaluators = [judged.evaluator for judged in self.options if judged is not None]
        return frozenset(known.case.workload.name for known in evaluators if known.stood_under(limit.nodes))

    def without_quota(self, quota: PoolQuota) -> Prospects:
        """Return the prospects where one quota is not there: workloads that it held back are judged again."""
        regions = {pool.region for pool in self.fleet.usage.pools}.union(*self.market.catalog.regions.values())
        text = without_quota(self.settings.limits.quotas, quota.pool, regions)
        settings = replace(self.settings, limits=replace(self.settings.limits, quotas=text))
        market = replace(self.market, limits=settings.limits)
        free = {
            judged.evaluator.case.workload.name
            for judged in self.options
            if judged is not None and judged.evaluator.case.settings.limits.quotas == text
        }
        return replace(self, settings=settings, market=market)._judged_anew(self.stand_under(quota) - free)

    def evaluators_under(self, settings: Settings, fleet: Fleet) -> dict[str, Evaluator]:
        """Return, by workload, evaluators under settings that differ in limits alone, which replay nothing twice.

        Of the same fleet, whose workloads may be declared to go elsewhere too.
        """
        return {
            workload.name: judged.evaluator.anew(settings, workload.spec)
            for workload, judged in zip(fleet.workloads, self.options, strict=True)
            if judged is not None
        }

    def problem(self, rows: Sequence[WorkloadOptions | None]) -> Problem:
        """Return the joint problem of some options of these workloads."""
        return fleet_problem(self.fleet, rows, self.market, self.settings.limits, self.owned)

    def _judged_anew(self, names: Container[str]) -> Prospects:
        """Return some workloads' options once more, in the world of these settings; what was replayed is not again."""
        largest = _largest(self.fleet)
        unneeded = dominated_sites([self._ask(judged) for judged in self.options if judged is not None], self.vetoes)
        freed = self.unneeded - unneeded  # where one stands no more, others may need those nodes

        def anew(judged: WorkloadOptions) -> WorkloadOptions:
            name = judged.evaluator.case.workload.name
            evaluator = self._ask(judged).evaluator
            return options_of(
                evaluator.case,
                self.market,
                self.owned,
                among_largest=name in largest,
                evaluator=evaluator,
                veto=self.vetoes.get(name),
                unneeded=unneeded,
                as_needed=_as_needed(self.settings),
            )

        options = tuple(
            anew(judged)
            if judged is not None and (workload.name in names or (freed and judged.dropped[DOMINATED]))
            else judged
            for workload, judged in zip(self.fleet.workloads, self.options, strict=True)
        )
        return replace(self, options=options, unneeded=unneeded)

    def _ask(self, judged: WorkloadOptions) -> LeverRequest:
        """Return a workload as levers are asked about it in the world of these settings."""
        known = judged.evaluator
        # under the same settings its case stays the very one that others know it by
        evaluator = known if known.case.settings is self.settings else known.under(self.settings)
        return LeverRequest(evaluator=evaluator, market=self.market, among_largest=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EarlierWork:
    """What was done with a history before it is judged, so that nothing is learnt or replayed twice."""

    laws: Fleet | None = None
    """The fleet on which services' laws are learnt, where another is judged."""
    learnt: Mapping[str, Case | str] | None = None
    """The cases that were learnt on it already, whose laws are kept."""
    replayed: Prospects | None = None
    """The same fleet's prospects at other prices or under other limits: only workloads with other targets are replayed. In the
    same market under the same settings the others are not judged again either."""


def judge(
    fleet: Fleet,
    market: Market,
    settings: Settings,
    *,
    seed: int,
    progress: Progress,
    owned: tuple[Commitment, ...] = (),
    earlier: EarlierWork | None = None,
    store: OutcomeStore | None = None,
    explains: bool = True,
    workers: Workers | None = None,
) -> Prospects:
    """Replay every workload's options over the (fit) window.

    `owned` commitments are paid whatever is planned. What `earlier` work knows is not worked out again, and replays are looked
    up in `store` first. Whether the plan `explains` what it leaves out changes nothing else of it. `workers` do what can be
    done elsewhere; where the share of spot is limited, and of what was replayed already, nothing is.
    """
    earlier = earlier or EarlierWork()
    laws, replayed = earlier.laws, earlier.replayed
    if replayed is not None and replayed.is_in(fleet, market, settings):
        others = _others_anew(fleet, settings, seed, replayed, laws, market, store)
        return replace(replayed.with_other_targets(fleet, others), explains=explains)
    if replayed is None:
        cases = cases_of(fleet, settings, seed, market=market, laws=laws, store=store, learnt_before=earlier.learnt)
        evaluators = {name: Evaluator(case=case) for name, case in cases.items() if isinstance(case, Case)}
    else:
        evaluators = replayed.evaluators_under(settings, fleet)
        cases = {name: evaluators[name].case if name in evaluators else case for name, case in replayed.cases.items()}
        others = _others_anew(fleet, settings, seed, replayed, laws, market, store)
        cases |= others
        evaluators |= {name: Evaluator(case=case) for name, case in others.items() if isinstance(case, Case)}
    asks = {name: LeverRequest(evaluator=evaluator, market=market) for name, evaluator in evaluators.items()}
    unneeded = dominated_sites(list(asks.values()), {})
    judged = [evaluators.get(workload.name) for workload in fleet.workloads]
    there = workers if replayed is None and _as_needed(settings) else None
    return Prospects(
        fleet=fleet,
        market=market,
        settings=settings,
        seed=seed,
        cases=cases,
        options=tuple(_options(fleet, judged, market, owned, unneeded, progress, there)),
        owned=owned,
        unneeded=unneeded,
        explains=explains,
    )


def _others_anew(
    fleet: Fleet,
    settings: Settings,
    seed: int,
    replayed: Prospects,
    laws: Fleet | None,
    market: Market,
    store: OutcomeStore | None,
) -> dict[str, Case | str]:
    """Return the cases of the workloads that have other targets than in the prospects."""
    former = {workload.name: workload for workload in replayed.fleet.workloads}
    anew = {workload.name for workload in fleet.workloads if workload.targets != former[workload.name].targets}
    return cases_of(_only(fleet, anew), settings, seed, market=market, laws=_only(laws or fleet, anew), store=store)


def _only(fleet: Fleet, names: Container[str]) -> Fleet:
    return replace(fleet, workloads=tuple(workload for workload in fleet.workloads if workload.name in names))


def plan_of(prospects: Prospects, progress: Progress) -> Planned:
    """Choose among prospects; raises PlanError, naming the rules in conflict, where no plan keeps the limits."""
    progress("choosing jointly", 0.0)
    solved = _solved(prospects)
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
            lambda limit: _without(limit, prospects, solved.paying, chosen),
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Solved:
    """A fleet's joint problem solved: by its bill, by bill and work, and by its bill without headroom."""

    prospects: Prospects
    problem: Problem
    paying: Problem
    """The problem in which work counts."""
    cheapest: ChosenPlan
    chosen: ChosenPlan
    """The plan that pays best, where the work that it asks for counts."""
    bold_micro_usd: int
    """The bill of the best plan that leaves no headroom."""


def _solved(prospects: Prospects) -> _Solved:
    """Solve until every choice is among ways that were replayed; then explain what was not chosen."""
    settings, needed = prospects.settings, NeededReplays(market=prospects.market)
    windows = OtherWindows(market=prospects.market)
    bold = replace(needed, with_headroom=False)
    while True:
        rows = prospects.options
        problem = prospects.problem(rows)
        paying = with_effort(problem, row_efforts(problem, rows, settings))
        more = _asked_at_first(problem, rows, needed) or _asked_at_first(paying, rows, needed)
        if more is None:
            cheapest = solve_problem(problem, settings.planning)
            more = _asked_at_last(settings, rows, cheapest, needed)
        if more is None:
            chosen = solve_problem(paying, settings.planning, start=cheapest.choice)
            more = _asked_at_last(settings, rows, chosen, needed) or windows.asked_for(rows, chosen)
        if more is None:
            prospects, free, more = _without_headroom(prospects, cheapest, bold)
            rows = prospects.options
        if more is None:
            break
        prospects = replace(prospects, options=more)
    cheapest, chosen = _as_if_all_known(prospects, cheapest, chosen)
    return _Solved(
        prospects=replace(prospects, options=explained(rows) if prospects.explains else with_replays_forgotten(rows)),
        problem=problem,
        paying=paying,
        cheapest=cheapest,
        chosen=chosen,
        bold_micro_usd=free.cost_micro_usd,
    )


def _asked_at_first(problem: Problem, rows: Rows, needed: NeededReplays) -> tuple[WorkloadOptions | None, ...] | None:
    """Return the options with what a first look at their problem asks for; None where it asks for nothing.

    A look takes a fraction of a solution, and finds most of what solutions would ask for.
    """
    waits = any(judged is not None and (judged.waiting or judged.refused) for judged in rows)
    return needed.asked_for(rows, first_look(problem)) if waits else None


def _asked_at_last(
    settings: Settings, rows: Rows, chosen: ChosenPlan, needed: NeededReplays
) -> tuple[WorkloadOptions | None, ...] | None:
    """Return the options with what a solution asks for, under quotas also with what might be better; None where nothing is."""
    more = needed.asked_for(rows, chosen)
    return needed.within_reach(rows, chosen) if more is None and settings.limits.quotas else more


def _as_if_all_known(prospects: Prospects, cheapest: ChosenPlan, chosen: ChosenPlan) -> tuple[ChosenPlan, ChosenPlan]:
    """Choose once more among the ways that were replayed: of plans that cost the same, the one found without the others.

    The bounds stay those over all ways.
    """
    rows = [None if judged is None else replace(judged, waiting=()) for judged in prospects.options]
    if all(judged is None or not judged.waiting for judged in prospects.options):
        return cheapest, chosen
    problem, settings = prospects.problem(rows), prospects.settings
    first = solve_problem(problem, settings.planning).over_more_ways(cheapest)
    paying = with_effort(problem, row_efforts(problem, rows, settings))
    return first, solve_problem(paying, settings.planning, start=first.choice).over_more_ways(chosen)


def _as_needed(settings: Settings) -> bool:
    """Return whether ways wait for their replays: not where the share of spot is limited, since what uses less may break it."""
    return settings.limits.spot_max_frac >= 1


def _without_headroom(
    prospects: Prospects, cheapest: ChosenPlan, bold: NeededReplays
) -> tuple[Prospects, ChosenPlan, tuple[WorkloadOptions | None, ...] | None]:
    """Plan again with the options that keep every target only where all goes as predicted; the same plan without such.

    Returned are also the prospects with what that choice had replayed, and options with more of it where the choice with
    headroom must be made again (the plan then says nothing): it is not for as long as both are made among the same ways.
    """
    while True:
        rows = prospects.options
        if all(
            judged is None or (len(judged.without_headroom) == len(judged.candidates) and not judged.refused)
            for judged in rows
        ):
            return prospects, cheapest, None
        problem = prospects.problem(bold.rows(rows))
        more = _asked_at_first(problem, rows, bold)
        if more is None:
            planning, some_wait = prospects.settings.planning, bold.some_wait(rows)
            # as near to the best as the plan that it is compared with
            is_near = cheapest.gap_frac <= planning.mip_gap_frac
            free = solve_problem(problem, planning, is_last=is_near and not some_wait)
            more = _asked_at_last(prospects.settings, rows, free, bold)
            if more is None and is_near and some_wait:
                # only what it costs is asked: among what is known, which is far less
                known = prospects.problem(bold.known(rows))
                free = solve_problem(known, planning, start=free.choice)
            if more is None:
                return prospects, free, None
        if not _among_the_same(rows, more):
            return prospects, cheapest, more
        prospects = replace(prospects, options=more)


def _among_the_same(one: Rows, other: Rows) -> bool:
    """Return whether a choice with headroom is among the very same ways in both."""
    return all(
        before is after
        or (
            before is not None
            and after is not None
            and _are_same(before.candidates, after.candidates)
            and _are_same(before.waiting, after.waiting)
        )
        for before, after in zip(one, other, strict=True)
    )


def _are_same(one: Sequence[Candidate], other: Sequence[Candidate]) -> bool:
    return len(one) == len(other) and all(before is after for before, after in zip(one, other, strict=True))


def _work_gap(drafted: DraftPlan, chosen: ChosenPlan, settings: Settings) -> float:
    """Return how far a plan's bill and work may be above those of any other, purchases' own hour of work aside."""
    actions = [action for action in drafted.actions if not action.discounts]
    both = drafted.cost(drafted.everything) + effort_micro_usd(actions, settings, drafted.fleet.window.hours)
    return max(0.0, 1 - chosen.bound_micro_usd / both) if both else 0.0


def _options(
    fleet: Fleet,
    evaluators: Sequence[Evaluator | None],
    market: Market,
    owned: tuple[Commitment, ...],
    unneeded: frozenset[Site],
    progress: Progress,
    workers: Workers | None,
) -> list[WorkloadOptions | None]:
    """Return every workload's options, in the fleet's order."""
    names = _largest(fleet)
    asks = [
        LeverRequest(evaluator=evaluator, market=market, among_largest=evaluator.case.workload.name in names)
        for evaluator in evaluators
        if evaluator is not None
    ]
    if workers is None:
        found = _judged_here(asks, market, owned, unneeded)
    else:
        found = judged_by(workers, asks, market, owned, unneeded)
    options: list[WorkloadOptions | None] = []
    for number, (workload, evaluator) in enumerate(zip(fleet.workloads, evaluators, strict=True)):
        progress(f"replaying options of {workload.name}", number / len(fleet.workloads))
        options.append(None if evaluator is None else next(found))
    return options


def _judged_here(
    asks: Sequence[LeverRequest], market: Market, owned: tuple[Commitment, ...], unneeded: frozenset[Site]
) -> Iterator[WorkloadOptions]:
    """Yield the options of workloads, in order.

    One after the other: most of it holds the interpreter's lock, and two threads take turns at a third more processor time.
    """
    for ask in asks:
        yield options_of(
            ask.case,
            market,
            owned,
            among_largest=ask.among_largest,
            evaluator=ask.evaluator,
            unneeded=unneeded,
            as_needed=_as_needed(ask.settings),
        )


def _largest(fleet: Fleet) -> frozenset[str]:
    """Return the workloads for which costly questions are asked."""
    largest = sorted(fleet.workloads, key=lambda workload: -workload.gpu_hours)[:_ASKED_MORE]
    return frozenset(workload.name for workload in largest)


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


def _without(limit: Limit, prospects: Prospects, paying: Problem, chosen: ChosenPlan) -> tuple[Problem, ChosenPlan]:
    """Return the problem without a limit in which work counts, and the plan that pays best there.

    Without a quota rules may hold more than they were replayed with: such ways wait once more, and are replayed where this
    choice asks for them.
    """
    planning = prospects.settings.planning
    if not isinstance(limit, PoolQuota):
        return plan_without(limit, paying, chosen, planning)
    free, needed = prospects.without_quota(limit), NeededReplays(market=prospects.market)
    while True:
        rows = free.options
        problem = free.problem(rows)
        problem = with_effort(problem, row_efforts(problem, rows, free.settings))
        more = _asked_at_first(problem, rows, needed)
        if more is None:
            found = solve_problem(problem, planning, start=_carried(chosen.choice, prospects.options, rows))
            more = _asked_at_last(free.settings, rows, found, needed)
            if more is None:
                return problem, found
        # what was just replayed under the quota may have come to stand at it
        free = replace(free, options=more).without_quota(limit)


def _carried(choice: Sequence[int], before: Rows, after: Rows) -> list[int]:
    """Return a choice among some options as one among others, as far as the same ways are there."""
    carried = list(choice)
    for row, (one, other) in enumerate(zip(before, after, strict=True)):
        if one is not None and other is not None and choice[row] != KEEP:
            wanted = one.candidates[choice[row]].deployment
            there = [candidate.deployment for candidate in other.candidates]
            carried[row] = there.index(wanted) if wanted in there else KEEP
    return carried


def row_efforts(
    problem: Problem, options: Sequence[WorkloadOptions | None], settings: Settings
) -> Iterator[Sequence[Effort]]:
    """Yield what each option asks of the team, row by row of the problem: workloads, then nodes that no workload holds."""
    for judged in options:
        yield () if judged is None else [way.effort for way in (*judged.candidates, *judged.waiting)]
    giving_back = effort_of(idle_release.NAME, UNHELD, settings)
    for row in problem.options[len(options) :]:
        yield [giving_back for _ in row]


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
            for reason, number in (*judged.dropped.items(), (BEHIND, judged.behind)):
                pruned[reason] = pruned.get(reason, 0) + number
    return {reason: number for reason, number in sorted(pruned.items(), key=lambda item: -item[1]) if number}
