"""The price of what was not declared: what the plan would save in addition, were a workload's owner to permit it.

Each permission is priced alone by the program that made the plan: the workload's options as if it were declared, the rest
of the plan as it is, what is bought fitted again, limits kept, by the exact joint bill. So each figure can be had; planning the
whole fleet again, with every way tried, may find more. They are alternatives, and do not add up.

A permission may empty nodes that the plan commits to. What it would still save once they are bought is worked out as well, and
the purchase says of itself that the question comes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import accumulate

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.deployment.effects import BuyCommitment
from trimtab.errors import PlanError
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.ledger import Commitment, nodes_committed
from trimtab.levers import quantization
from trimtab.levers.lever import LeverRequest
from trimtab.plan.actions.draft_plan import DraftPlan
from trimtab.plan.actions.staging import staged
from trimtab.plan.choosing import row_efforts
from trimtab.plan.effort import with_effort
from trimtab.plan.model import Action, Plan
from trimtab.plan.needed_replays import NeededReplays
from trimtab.plan.options.composition import Candidate, candidate_of
from trimtab.plan.options.workload_options import WayReplayed, WorkloadOptions, list_cost
from trimtab.plan.planner import Planned, draft_of
from trimtab.plan.problem import KEEP, Problem
from trimtab.plan.program.fleet_problem import fleet_problem
from trimtab.plan.program.solve import ChosenPlan, solve_problem
from trimtab.plan.proof.permissions import (
    Permission,
    PlannedWorkloadState,
    askable,
    latency_ladder,
    observed_p95_s,
    permissions,
    sharers,
)
from trimtab.plan.proof.permitted_ways import Search
from trimtab.replay.compiled import side_by_side
from trimtab.replay.outcomes.evaluate import Evaluator
from trimtab.replay.outcomes.outcome import Case
from trimtab.units import MICRO_PER_USD, per_month, usd

_ASKED = 12
"""Workloads, the largest ones, of which it is asked."""
_MOST_OF = 0.8
"""Of several declarations of one kind the strictest is shown that frees this share of what the loosest does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undeclared:
    """What is not declared of one workload (or of several that it takes together), and what the plan would save in addition."""

    permission: str
    """As the field of workloads.yaml is called; `latency` for a target."""
    declarations: Mapping[str, Mapping[str, object]]
    """The fields to declare, by workload."""
    known: str
    """What history says about it."""
    permits: str
    """What would be declared, in words."""
    gives_up: str
    """What owners accept with it."""
    saves_usd_mo: float
    fewer: tuple[FewerCommitted, ...] = ()
    """What the plan would commit to less of, were it permitted: what is bought before then is paid and stands unused."""
    saves_once_bought_usd_mo: float | None = None
    """What it saves once the plan's commitments are bought, below 0 where it then costs; None where they stay as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FewerCommitted:
    """How much less of one pool's nodes is committed to."""

    pool: Pool
    planned: int
    then: int


def undeclared(
    planned: Planned, market: Market, settings: Settings, progress: Callable[[str, float], None]
) -> tuple[Undeclared, ...]:
    """Return what was not declared and would save more than an action must, the most first."""
    rest = _Rest(planned=planned, market=market, settings=settings)
    largest = sorted(planned.cases.values(), key=lambda case: (-case.workload.gpu_hours, case.workload.name))
    asked = [now for now in map(rest.present, largest) if askable(now.case)][:_ASKED]
    alone = [[[[permission] for permission in ladder] for ladder in permissions(now)] for now in asked]
    found: list[Undeclared | None] = []
    # one workload's questions one after the other: they share its replays
    answers = side_by_side(lambda questions: [rest.strictest(question) for question in questions], alone)
    for number, (now, answered) in enumerate(zip(asked, answers, strict=True)):
        progress(f"pricing what was not declared of {now.case.workload.name}", number / len(asked))
        found += answered
    found.append(rest.strictest(list(sharers(asked))))
    return tuple(sorted((answer for answer in found if answer is not None), key=lambda answer: -answer.saves_usd_mo))


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyLimitPrice:
    """What the plan would save besides if a service might answer as late as `limit_s` (p95); 0 where that frees nothing."""

    limit_s: float
    saves_usd_mo: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLimitPrices:
    """A service without a declared latency limit, and what each of several limits would save, the tightest first."""

    workload: str
    seen_s: float
    """The p95 that history shows."""
    prices: tuple[LatencyLimitPrice, ...]


def limit_prices(
    planned: Planned, market: Market, settings: Settings, progress: Callable[[str, float], None]
) -> tuple[ServiceLimitPrices, ...]:
    """Return the price of latency limits that are not declared, service by service, the largest first.

    Each limit is priced alone, like the declarations of `undeclared`: the rest of the plan stays as it is. A looser limit
    admits all that a tighter one does, so it saves at least as much: the search for each stops early and may miss that.
    """
    rest = _Rest(planned=planned, market=market, settings=settings)
    cases = sorted(planned.cases.values(), key=lambda case: (-case.workload.gpu_hours, case.workload.name))
    states = [now for now in map(rest.present, cases) if askable(now.case)][:_ASKED]
    found = []
    for number, now in enumerate(states):
        progress(f"pricing latency limits of {now.case.workload.name}", number / len(states))
        if ladder := latency_ladder(now):
            asked = sorted(ladder, key=lambda rung: rung[0])
            saved = accumulate((rest.saves_usd_mo(permission) for _, permission in asked), max)
            prices = (
                LatencyLimitPrice(limit_s=limit_s, saves_usd_mo=saves)
                for (limit_s, _), saves in zip(asked, saved, strict=True)
            )
            found.append(
                ServiceLimitPrices(
                    workload=now.case.workload.name, seen_s=observed_p95_s(now.case) or 0.0, prices=tuple(prices)
                )
            )
    return tuple(found)


def with_questions_first(plan: Plan, found: Sequence[Undeclared]) -> Plan:
    """Return the plan whose purchases say which declarations would leave nodes unused that they bind."""
    return replace(plan, actions=tuple(_with_questions(action, found) for action in plan.actions))


def _with_questions(action: Action, found: Sequence[Undeclared]) -> Action:
    pools = {change.effect.pool for change in action.changes if isinstance(change.effect, BuyCommitment)}
    return replace(
        action,
        ask_first=tuple(_question(answer) for answer in found if any(fewer.pool in pools for fewer in answer.fewer)),
    )


def _question(found: Undeclared) -> str:
    unused = " and ".join(
        f"{fewer.planned - fewer.then} of {fewer.planned} {fewer.pool.instance_type}" for fewer in found.fewer
    )
    return f"{', '.join(found.declarations)}: {found.permits} would leave {unused} unused"


@dataclass(slots=True, kw_only=True, eq=False)
class _Rest:
    """The plan as it is, into which other ways of some workloads are put."""

    planned: Planned
    market: Market
    settings: Settings
    _evaluators: dict[str, Evaluator] = field(init=False)
    """By workload, with what was replayed for the plan."""
    _rows: list[WorkloadOptions | None] = field(init=False)
    _choice: tuple[int, ...] = field(init=False)
    """What the plan comes to where only its own ways are there."""
    _drafted: DraftPlan = field(init=False)

    def __post_init__(self) -> None:
        planned = self.planned
        evaluators = planned.drafted.enacted.evaluators.values()
        self._evaluators = {evaluator.case.workload.name: evaluator for evaluator in evaluators}
        self._rows = [None] * len(planned.fleet.workloads)
        for index, workload in enumerate(planned.fleet.workloads):
            case = planned.cases.get(workload.name)
            if case is not None:
                self._rows[index] = _options(self._evaluator(case), self._planned(case))
        chosen = solve_problem(self._problem(self._rows), self.settings.planning)
        self._choice = chosen.choice
        self._drafted = self._bought(self._rows, chosen)

    def present(self, case: Case) -> PlannedWorkloadState:
        """Return a workload as the plan has it."""
        refused = self.planned.plan.not_worth_doing
        return PlannedWorkloadState(
            evaluator=self._evaluator(case),
            market=self.market,
            deployment=self._deployment(case),
            formats_save=any(quantization.EVALUATE in refusal.reason for refusal in refused),
        )

    def strictest(self, question: Sequence[Sequence[Permission]]) -> Undeclared | None:
        """Return the answer for the last permission that frees nearly as much as the one that frees most."""
        found: list[Undeclared] = []
        for together in question:
            answer = self._priced(together)
            if answer is not None:
                found.append(answer)
            elif not found and all(permission.is_stricter for permission in together):
                break  # those that follow free nothing either
        enough = _MOST_OF * max((answer.saves_usd_mo for answer in found), default=0.0)
        return next((answer for answer in reversed(found) if answer.saves_usd_mo >= enough), None)

    def saves_usd_mo(self, permission: Permission) -> float:
        """Return what one permission alone saves a month; 0 where it frees nothing worth a line."""
        answer = self._priced([permission])
        return 0.0 if answer is None else answer.saves_usd_mo

    def _priced(self, together: Sequence[Permission]) -> Undeclared | None:
        """Return what permissions save together; None where that is too little, or not all of them are used."""
        admitted = {
            permission: options for permission in together if (options := self._admitted(permission)) is not None
        }
        names = [workload.name for workload in self.planned.fleet.workloads]
        if not admitted:
            return None
        try:
            rows, chosen = self._chosen_with(
                {names.index(permission.case.workload.name): permission for permission in together}, admitted
            )
        except PlanError:
            return None
        drafted, choice = self._bought(rows, chosen), chosen.choice
        changed = {index for index, row in enumerate(rows) if row is not self._rows[index]}
        saves_usd_mo = self._beside_usd_mo(_cost(drafted))
        used = {
            names[index]: row.candidates[choice[index]]
            for index in changed
            if (row := rows[index]) is not None
            and choice[index] != KEEP
            and row.candidates[choice[index]].deployment != self._deployment_now(index)
        }
        if not used or saves_usd_mo <= self._least_usd_mo:
            return None
        mine = [permission for permission in together if permission.case.workload.name in used]
        first = used[mine[0].case.workload.name]
        fewer = self._fewer(drafted)
        return Undeclared(
            permission=mine[0].name,
            declarations={permission.case.workload.name: permission.fields for permission in mine},
            known=mine[0].known,
            permits=mine[0].permits,
            gives_up=mine[0].price(first.deployment, first.outcome),
            saves_usd_mo=saves_usd_mo,
            fewer=fewer,
            saves_once_bought_usd_mo=self._beside_usd_mo(
                drafted.cost_with(_at_least(drafted.discounts, self._drafted.discounts))
            )
            if fewer
            else None,
        )

    @property
    def _least_usd_mo(self) -> float:
        """Return what is worth a line: what an action must save, and no less than the plan may be off by."""
        gap = self.settings.planning.mip_gap_frac * _cost(self._drafted) / MICRO_PER_USD
        return max(self.settings.planning.min_saving_usd_mo, per_month(gap, self.planned.fleet.window.hours))

    def _chosen_with(
        self, together: Mapping[int, Permission], admitted: dict[Permission, WorkloadOptions]
    ) -> tuple[Sequence[WorkloadOptions | None], ChosenPlan]:
        """Return the options with what permissions admit, by workload, and a choice among those of them that were replayed."""
        rows = list(self._rows)
        needed = NeededReplays(market=self.market)
        while True:
            for index, permission in together.items():
                rows[index] = admitted.get(permission, rows[index])
            chosen = self._chosen(rows, together.keys())
            more = needed.asked_for(rows, chosen)
            if more is None:
                return rows, chosen
            for index, permission in together.items():
                options = more[index]
                if permission in admitted and options is not None:
                    admitted[permission] = options

    def _admitted(self, permission: Permission) -> WorkloadOptions | None:
        """Return the plan's way beside those that only the permission may admit and that use less; None without."""
        case = permission.case
        evaluator = Evaluator(case=case)
        ask = LeverRequest(evaluator=evaluator, market=self.market, among_largest=False)
        now = self._planned(self.planned.cases[case.workload.name])
        most = list_cost(now[0], self.market) if now else self._list_cost_now(case)
        found = _Admitted(permission=permission, ask=ask, now=now, most=most)
        for search in permission.ways(ask):
            found.consider(search)
        return found.judged() if found.kept or found.waiting else None

    def _list_cost_now(self, case: Case) -> int:
        return self.market.rate(case.workload.pool) * int(case.workload.held_node_seconds.sum())

    def _deployment_now(self, index: int) -> Deployment:
        """Return what the plan does to a workload: the same way, made again for a permission, needs none."""
        return self.planned.deployments.get(self.planned.fleet.workloads[index].name, AS_IT_IS)

    def _deployment(self, case: Case) -> Deployment:
        return self.planned.deployments.get(case.workload.name, AS_IT_IS)

    def _evaluator(self, case: Case) -> Evaluator:
        return self._evaluators[case.workload.name]

    def _planned(self, case: Case) -> tuple[Candidate, ...]:
        """Return the plan's way of a workload; none where it stays as it is."""
        deployment = self._deployment(case)
        if not deployment.changes:
            return ()
        evaluator = self._evaluator(case)
        candidate = candidate_of(evaluator, deployment, evaluator.outcome(deployment), self.market)
        return () if candidate is None else (candidate,)

    def _problem(self, rows: Sequence[WorkloadOptions | None]) -> Problem:
        """Return the joint problem in which the work that the plan asks for counts."""
        planned, groups = self.planned, self.planned.drafted.enacted.groups
        problem = fleet_problem(planned.fleet, rows, self.market, self.settings.limits, planned.owned, groups)
        return with_effort(problem, row_efforts(problem, rows, self.settings))

    def _chosen(self, rows: Sequence[WorkloadOptions | None], changed: Set[int]) -> ChosenPlan:
        """Return the plan that pays best where the workloads that changed may choose, and those that share nodes."""
        problem = self._problem(rows)
        sharing = {
            row
            for row, option in enumerate(self._choice)
            if option != KEEP and problem.options[row][option].slots and row not in changed
        }
        free = sorted(changed | sharing)
        chosen = solve_problem(problem.around(self._choice, {*free}), self.settings.planning)
        choice, reduced_usd = [*self._choice], [np.zeros(0)] * len(self._choice)
        for at, row in enumerate(free):
            choice[row], reduced_usd[row] = chosen.choice[at], chosen.reduced_usd[at]
        return replace(chosen, choice=tuple(choice), reduced_usd=tuple(reduced_usd))

    def _bought(self, rows: Sequence[WorkloadOptions | None], chosen: ChosenPlan) -> DraftPlan:
        """Return a choice with purchases as history backs them, not as hindsight would have them."""
        planned = self.planned
        drafted, _ = staged(draft_of(planned.fleet, rows, chosen, self.market, planned.owned), self.settings)
        return drafted

    def _beside_usd_mo(self, cost_micro_usd: int) -> float:
        """Return what a cost over the window is below the plan's."""
        return per_month(usd(_cost(self._drafted) - cost_micro_usd), self.planned.fleet.window.hours)

    def _fewer(self, drafted: DraftPlan) -> tuple[FewerCommitted, ...]:
        """Return of which pools a draft commits to fewer nodes than the plan."""
        planned, then = nodes_committed(self._drafted.discounts), nodes_committed(drafted.discounts)
        return tuple(
            FewerCommitted(pool=pool, planned=count, then=then.get(pool, 0))
            for pool, count in sorted(planned.items())
            if then.get(pool, 0) < count
        )


def _at_least(some: Sequence[Commitment], others: Sequence[Commitment]) -> tuple[Commitment, ...]:
    """Return commitments that hold as much of every offer as the larger of two purchases of it."""
    both = [*some, *others]
    return tuple(
        replace(commitment, quantity=max(other.quantity for other in both if other.offer == commitment.offer))
        for at, commitment in enumerate(both)
        if commitment.offer not in [other.offer for other in both[:at]]
    )


def _cost(drafted: DraftPlan) -> int:
    return drafted.cost(drafted.everything)


@dataclass(slots=True, kw_only=True, eq=False)
class _Admitted:
    """The ways that a permission admits, beside the plan's own: those known to keep the targets, and searches that wait.

    A search waits as a lower bound of what it might find, and is made where the joint choice asks for that.
    """

    permission: Permission
    ask: LeverRequest
    now: tuple[Candidate, ...]
    most: int
    """What the plan's way costs at list prices: others on nodes of their own must cost less."""
    kept: list[Candidate] = field(default_factory=list)
    waiting: list[tuple[Candidate, Search]] = field(default_factory=list)

    def consider(self, search: Search) -> None:
        """Take a search at a lower bound of what it might find where that is known, else made."""
        least = [self._at_least(way) for way in search.lower_bounds]
        known = [candidate for candidate in least if candidate is not None]
        if known and len(known) == len(least):
            self.waiting += [(candidate, search) for candidate in known if self._is_cheaper(candidate)]
        else:
            self._made(search)

    def copy(self) -> _Admitted:
        """Return the same ways, to go on from."""
        return replace(self, kept=[*self.kept], waiting=[*self.waiting])

    def replay(self, way: Candidate, *, with_headroom: bool = True) -> WayReplayed:
        """Make the search of which a way waits; its candidate is the cheapest found that keeps the targets and costs less."""
        search = next((search for candidate, search in self.waiting if candidate is way), None)
        if search is None:  # made already, for another of its ways
            return WayReplayed(candidate=None)
        self.waiting = [(candidate, other) for candidate, other in self.waiting if other is not search]
        found = self._made(search)
        return WayReplayed(min(found, key=lambda candidate: list_cost(candidate, self.ask.market), default=None))

    def judged(self) -> WorkloadOptions:
        """Return the options as they are known by now."""
        self.ask.evaluator.forget_histories()
        found = _options(self.ask.evaluator, (*self.now, *self.kept))
        return replace(found, waiting=tuple(candidate for candidate, _ in self.waiting), sieve=self)

    def _made(self, search: Search) -> list[Candidate]:
        """Make a search, and keep what it finds where only the permission admits it."""
        found = [self._judged(way) for way in search.find(self._may_pay) if self.permission.needs(way)]
        kept = [candidate for candidate in found if candidate is not None]
        self.kept += kept
        return kept

    def _judged(self, way: Deployment) -> Candidate | None:
        evaluator = self.ask.evaluator
        if evaluator.hopeless(way) is not None or not evaluator.keeps_targets(way):
            return None
        candidate = candidate_of(evaluator, way, evaluator.outcome(way), self.ask.market)
        return candidate if candidate is not None and self._is_cheaper(candidate) else None

    def _at_least(self, way: Deployment) -> Candidate | None:
        """Return a way at a lower bound of its use; None where that is not known, or it was replayed."""
        evaluator = self.ask.evaluator
        least = evaluator.least(way)
        return None if least is None else candidate_of(evaluator, way, least, self.ask.market)

    def _may_pay(self, way: Deployment) -> bool:
        candidate = self._at_least(way)
        return candidate is None or self._is_cheaper(candidate)

    def _is_cheaper(self, candidate: Candidate) -> bool:
        return bool(candidate.slots) or list_cost(candidate, self.ask.market) < self.most


def _options(evaluator: Evaluator, candidates: tuple[Candidate, ...]) -> WorkloadOptions:
    return WorkloadOptions(
        evaluator=evaluator, candidates=candidates, considered=len(candidates), dropped=Counter(), missed=Counter()
    )
