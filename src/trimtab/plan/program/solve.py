"""Solve the joint problem: column generation over every option, pruning with proof, a small program; what each limit costs.

1. The linear relaxation is solved by column generation (`decompose`) over periods gathered by level of use (`master`); its
   bound covers all options, not only those that entered. Its plan, improved on the exact bill, says where to cut the
   periods next.
2. An option whose reduced cost exceeds the distance between the best known plan and the bound cannot be in a better plan: it
   is dropped, and nothing is lost (reduced-cost fixing).
3. Where the gap is still wider than asked, the options left go into a MILP whose dual bound is certified too; its choice,
   improved on the exact bill one workload at a time, is the plan. Where too many options are left and limits bind, a MILP
   chooses again for the workloads that the relaxation splits between options, and the bound stays that of step 1.

The bill alone may fall where a limit tightens, since the plan then does work that did not pay before: both together cannot.
A quota does more than bar plans: replays stood under it, so that options which it made miss their targets are not in the
problem. Who asks says which problem there is without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trimtab.errors import PlanError
from trimtab.fleet.settings import Planning
from trimtab.ledger import Commitment
from trimtab.ledger.arrays import FloatArray
from trimtab.plan.problem import KEEP, Problem
from trimtab.plan.program.best_discounts import best_discounts
from trimtab.plan.program.couplings.one_time_costs import choice_without, one_time_micro_usd
from trimtab.plan.program.couplings.parts import Limit
from trimtab.plan.program.decompose import heaviest, mix, relax
from trimtab.plan.program.improve import improved
from trimtab.plan.program.limits import (
    LimitPrice,
    broken,
    limits_in_words,
    limits_of,
    refuse_conflict,
    shortfall,
    uses_of_limits,
)
from trimtab.plan.program.master import Master, gather
from trimtab.plan.program.table import OptionTable, cost_with, total_usage
from trimtab.units import MICRO_PER_USD, per_month, usd

REDUCED_COST = "cannot be in a better plan (reduced cost)"
LEAST_USE = "not replayed: cannot be in a better plan, even at a lower bound of its use (reduced cost)"
_PERIODS = (24, 96, 768)
"""Gathered periods per pool, round by round."""
_WORTH_FINER = 0.9
"""Another round follows if this one narrowed the gap to at most this share of what it was."""
_RELAX_GAP_FRAC = 1e-4
"""Column generation ends at this gap, and a plan this near to its bound is not refined."""
_PAYS_USD = 1e-6
_TRIED = 6
"""Options per workload that are tried on the exact bill."""
_SOME = 1e-6
"""Weights and excesses below this are 0."""
_MAX_MIP_SIZE = 60_000
"""A MILP over all the options left is solved up to so many coefficients; beyond, only fractional workloads are chosen again."""
_MAX_HOURLY_SIZE = 7_000
"""The same where each hour is a period of its own and shared nodes are whole in it."""
_HOURLY_NODES = 30
"""Nodes of that search: on drawn fleets it ends before, and where hours have nothing in common each takes a fifth of a second
of processor time in a week of hours."""
_MAX_MIP_ROUNDS = 4
_MEND_PERIODS = 64
_MEND_NODES = 1
_MEND_GAP_FRAC = 0.003


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedWays:
    """What a search wants: an option index or KEEP per workload, and how near the others are."""

    choice: tuple[int, ...]
    reduced_usd: tuple[FloatArray, ...] = field(default=(), compare=False, repr=False)
    """Per workload, by how much more than its best each row (staying, then its options) costs at the prices of the bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenPlan(WantedWays):
    """The plan in numbers: a choice within the limits, what is bought, exact cost, certified bound."""

    bought: tuple[Commitment, ...]
    cost_micro_usd: int
    bound_micro_usd: int
    pruned: dict[str, int]
    room_usd: float = field(default=0.0, compare=False)
    """By how much more than its workload's best an option may cost and still be in a better plan; 0 where the plan is the best
    within the gap that was asked for."""

    def over_more_ways(self, other: ChosenPlan) -> ChosenPlan:
        """Return the plan with the bound of another choice, among more options of which it took none that this one lacks."""
        if self.cost_micro_usd > other.cost_micro_usd:
            return other
        return replace(
            self,
            bound_micro_usd=min(self.cost_micro_usd, other.bound_micro_usd),
            pruned=other.pruned,
            reduced_usd=other.reduced_usd,
        )

    @property
    def gap_frac(self) -> float:
        """Return how far the plan may be from the best, as a share of its cost."""
        return (self.cost_micro_usd - self.bound_micro_usd) / self.cost_micro_usd if self.cost_micro_usd else 0.0


@dataclass(slots=True, kw_only=True, eq=False)
class _Search:
    """The best plan within the limits and the best bound so far, with the reduced costs that came with that bound."""

    table: OptionTable
    choice: tuple[int, ...]
    """The best known; the last tried as long as none keeps the limits."""
    cost_micro_usd: int | None = None
    bought: tuple[Commitment, ...] | None = None
    """What it buys."""
    bound_usd: float = -np.inf
    priced_usd: float = -np.inf
    """The bound with which the reduced costs came; a MILP's may be higher, and says nothing of single options."""
    reduced_usd: FloatArray = field(default_factory=lambda: np.zeros(0))
    basis_columns: list[int] = field(default_factory=list)
    """Table rows with weight in the last relaxation."""

    @property
    def gap_frac(self) -> float:
        """Return the distance between them as a share of the cost."""
        if self.cost_micro_usd is None:
            return np.inf
        return 1 - self.bound_usd * MICRO_PER_USD / self.cost_micro_usd if self.cost_micro_usd else 0.0

    @property
    def room_usd(self) -> float:
        """Return by how much more than its workload's best an option may cost and still be in a plan that is better."""
        return np.inf if self.cost_micro_usd is None else self.cost_micro_usd / MICRO_PER_USD - self.priced_usd

    @property
    def waits(self) -> bool:
        """Return whether the best known choice holds an option of which only a lower bound is known."""
        options = self.table.problem.options
        return any(option != KEEP and options[row][option].is_least for row, option in enumerate(self.choice))

    def candidates(self) -> list[list[int]]:
        """Return, per workload, the options (or KEEP) that a better plan may hold."""
        kept: list[list[int]] = [[] for _ in self.choice]
        # what is in no plan is infinitely dear, and until a plan is known there is room for all else
        near = np.isfinite(self.reduced_usd) & (self.reduced_usd <= self.room_usd + _PAYS_USD)
        for row in np.flatnonzero(near):
            kept[int(self.table.workload[row])].append(self.table.option(int(row)))
        return kept

    def best_candidates(self) -> list[list[int]]:
        """Return the candidates worth a try on the exact bill: per workload the few with the least reduced cost."""
        order = np.lexsort((self.reduced_usd, self.table.workload))
        # each row's rank among those of its own workload
        first = self.table.first[:-1]
        rank = np.arange(len(order)) - first[self.table.workload[order]]
        near: list[list[int]] = [[] for _ in self.choice]
        for row in order[rank < _TRIED]:
            near[int(self.table.workload[row])].append(self.table.option(int(row)))
        return near

    def fractional(self) -> list[int]:
        """Return the rows in the last relaxation, and for workloads split between several the candidates worth a try."""
        rows = set(self.basis_columns)
        # several rows of one workload with weight: the relaxation splits it
        workloads = self.table.workload[self.basis_columns]
        fractional = np.flatnonzero(np.bincount(workloads, minlength=len(self.choice)) > 1)
        near = self.best_candidates()
        rows |= {self.table.row(int(workload), option) for workload in fractional for option in near[int(workload)]}
        # with the present choice among them the MILP has at least one plan
        return sorted(rows | {self.table.row(workload, option) for workload, option in enumerate(self.choice)})

    def without(self, cost: str) -> tuple[int, ...] | None:
        """Return the choice with what needs a one-time cost moved to what does not; None where no such plan can be better."""
        found = choice_without(self.table.problem, self.choice, self.table.needing[cost], self._dearer_usd)
        if found is None or self.cost_micro_usd is None:
            return None
        choice, exceeded_usd = found
        return choice if self.priced_usd + exceeded_usd < self.cost_micro_usd / MICRO_PER_USD else None

    def _dearer_usd(self, workload: int, option: int) -> float:
        return float(self.reduced_usd[self.table.row(workload, option)])

    def reduced_by_workload(self) -> tuple[FloatArray, ...]:
        """Return each workload's reduced costs: staying, then its options."""
        return tuple(np.split(self.reduced_usd[: self.table.rows], self.table.first[1:-1]))

    def bounded(self, bound_usd: float, reduced_usd: FloatArray | None = None) -> None:
        """Take a bound on all but owned commitments, and reduced costs that came with it, if better than the best known."""
        # owned commitments are paid in every plan, so they are left out of the program
        whole_usd = bound_usd + self.table.owned_usd
        self.bound_usd = max(self.bound_usd, whole_usd)
        # a MILP's bound comes without reduced costs: it lifts the bound and says nothing of single options
        if reduced_usd is not None and whole_usd > self.priced_usd:
            self.priced_usd, self.reduced_usd = whole_usd, reduced_usd

    def offer(self, choice: tuple[int, ...], *, in_a_tie: bool = False) -> bool:
        """Take a choice, improved, if it keeps the limits and costs less than the best known; return whether it keeps them.

        `in_a_tie`: it is taken, too, where it costs the same.
        """
        improver = improved(self.table, choice, self.best_candidates(), self.bought)
        better, problem = tuple(improver.choice), self.table.problem
        if broken(self.table.problem, better):
            # as long as nothing keeps the limits, the last one tried is what the next round starts from
            if self.cost_micro_usd is None:
                self.choice = better
            return False
        bought = best_discounts(problem, improver.use, improver.bought)
        cost = cost_with(problem, better, bought)
        if self.cost_micro_usd is None or cost < self.cost_micro_usd + in_a_tie:
            self.choice, self.cost_micro_usd, self.bought = better, cost, bought
        return True


def first_look(problem: Problem) -> WantedWays:
    """Return about what a plan would choose, by the relaxation over the fewest periods; limits may be broken in some hour.

    Raises PlanError, naming the limits in conflict, where no choice keeps them.
    """
    table = OptionTable(problem)
    search = _Search(table=table, choice=_cheapest_on_demand(table))
    rounded, excess = _relaxed(search, Master(table, gather(table, table.use_of(search.choice), _PERIODS[0])))
    if excess > _SOME:
        refuse_conflict(problem)
    return WantedWays(choice=rounded, reduced_usd=search.reduced_by_workload())


def solve_problem(
    problem: Problem, planning: Planning, *, start: Sequence[int] | None = None, is_last: bool = True
) -> ChosenPlan:
    """Return the cheapest plan found and a bound that no combination of the options can beat.

    `start` is a choice that is known to be good. Where this is not the last question about the problem, no search among whole
    numbers narrows the gap. Raises PlanError, naming the limits in conflict, where no choice keeps them.
    """
    table = OptionTable(problem)
    search = _Search(table=table, choice=_cheapest_on_demand(table))
    master: Master | None = None
    for most in _PERIODS:
        gap_before = search.gap_frac
        # periods are cut by the use of the best plan known, since that is where prices change
        # of a large fleet the means of one round take half a gigabyte: they go before those of the next are made
        master = None
        master = Master(table, gather(table, table.use_of(search.choice), most))
        # even the relaxation breaks a limit: say so if no plan can keep them
        rounded, excess = _relaxed(search, master)
        if excess > _SOME:
            refuse_conflict(problem)
        search.offer(rounded)
        if start is not None:
            # of plans that cost the same the one that is known already, whatever options are listed beside it
            search.offer(tuple(start), in_a_tie=True)
        # periods are single hours by now, or this round narrowed the gap too little to go on
        finest = most >= problem.hours or search.gap_frac > _WORTH_FINER * gap_before
        if search.gap_frac <= _RELAX_GAP_FRAC or finest:
            break
    # where a way waits in the best plan, that is no plan yet: a search among whole numbers would only refine what to replay
    is_last = is_last and not search.waits
    if master is not None and is_last and search.gap_frac > planning.mip_gap_frac:
        _mixed(search, master, planning)
        _hour_by_hour(search, planning)
    _drop_one_time_costs(search)
    if search.cost_micro_usd is None:
        refuse_conflict(problem)
        short = shortfall(problem, search.choice) or "raise the tightest limit"
        raise PlanError(f"no plan was found that keeps {limits_in_words(problem)} in every hour; {short}")
    return ChosenPlan(
        choice=search.choice,
        bought=search.bought or (),
        cost_micro_usd=search.cost_micro_usd,
        # rounded down, and never above the plan's own cost: both keep it a bound
        bound_micro_usd=min(search.cost_micro_usd, int(np.floor(search.bound_usd * MICRO_PER_USD))),
        pruned=_pruned(problem, search.candidates()),
        reduced_usd=search.reduced_by_workload(),
        room_usd=search.room_usd if search.gap_frac > planning.mip_gap_frac else 0.0,
    )


def _pruned(problem: Problem, left: Sequence[Sequence[int]]) -> dict[str, int]:
    """Count the options that cannot be in a better plan, given those of each workload that can."""
    pruned = {REDUCED_COST: 0, LEAST_USE: 0}
    for options, kept in zip(problem.options, left, strict=True):
        for number in set(range(len(options))) - set(kept):
            pruned[LEAST_USE if options[number].is_least else REDUCED_COST] += 1
    return pruned


def _cheapest_on_demand(table: OptionTable) -> tuple[int, ...]:
    """Return each workload's cheapest option if no commitments were sold: the search starts there."""
    cost = table.on_demand_usd()
    ends = zip(table.first[:-1].tolist(), table.first[1:].tolist(), strict=True)
    return table.choice([first + int(np.argmin(cost[first:end])) for first, end in ends])


def _relaxed(search: _Search, master: Master) -> tuple[tuple[int, ...], float]:
    """Solve the relaxation and take its bound.

    Return its plan, rounded to the heaviest option of each workload, and by how much even the relaxation breaks the limits.
    """
    table = search.table
    start = [table.row(workload, option) for workload, option in enumerate(search.choice)]
    # staying enters for every workload in addition, so that the first program has a choice
    keep = [row for row in table.first[:-1].tolist() if row not in start]
    relaxed = relax(master, [master.column(row) for row in sorted([*start, *keep])], _RELAX_GAP_FRAC)
    search.bounded(relaxed.bound, relaxed.reduced)
    search.basis_columns = [
        column.key for column, weight in zip(relaxed.columns, relaxed.weights, strict=True) if weight > _SOME
    ]
    rounded = table.choice(heaviest(relaxed.columns, relaxed.weights, table.problem.workloads))
    return rounded, float(relaxed.shared[master.excess].sum())


def _mixed(search: _Search, master: Master, planning: Planning) -> None:
    """Solve the options that are left as a MILP; cut the periods again while its plan breaks a limit in some hour."""
    table = search.table
    for _ in range(_MAX_MIP_ROUNDS):
        rows = [table.row(workload, option) for workload, kept in enumerate(search.candidates()) for option in kept]
        if master.size(rows) > _MAX_MIP_SIZE:
            _mended(search)
            return
        answer = mix(
            master.program(),
            [master.column(row) for row in rows],
            gap_frac=planning.mip_gap_frac,
            max_nodes=planning.mip_max_nodes,
            start={(workload, table.row(workload, option)) for workload, option in enumerate(search.choice)},
        )
        search.bounded(answer.bound)
        choice = table.choice(answer.keys)
        # it keeps the limits, or even its means do not: cutting again would not help
        if search.offer(choice) or answer.shared[master.excess].sum() > _SOME:
            return
        # cut by the very plan that breaks a limit in some hour, so that its peaks stand apart
        master = Master(table, gather(table, table.use_of(choice), _PERIODS[-1]))


def _hour_by_hour(search: _Search, planning: Planning) -> None:
    """Choose once more with shared nodes whole in each hour, where few options are left.

    Means over hours that differ, as those of runs do, lose what whole nodes round up to: a third of a small fleet's bill.
    """
    table = search.table
    if search.gap_frac <= planning.mip_gap_frac or not any(tracked.sharing for tracked in table.tracked):
        return
    master = Master(table, gather(table, table.use_of(search.choice), table.problem.hours), hourly=True)
    rows = [table.row(workload, option) for workload, kept in enumerate(search.candidates()) for option in kept]
    if master.size(rows) > _MAX_HOURLY_SIZE:
        return
    answer = mix(
        master.program(),
        [master.column(row) for row in rows],
        gap_frac=planning.mip_gap_frac,
        max_nodes=min(planning.mip_max_nodes, _HOURLY_NODES),
        start={(workload, table.row(workload, option)) for workload, option in enumerate(search.choice)},
    )
    search.bounded(answer.bound)
    search.offer(table.choice(answer.keys))


def _mended(search: _Search) -> None:
    """Choose again for the workloads that the relaxation splits between options, by a MILP that keeps quotas in every period.

    Rounding loses little but where limits bind; no bound comes from here.
    """
    table = search.table
    if not limits_of(table.problem):
        return
    gathered = gather(table, table.use_of(search.choice), _MEND_PERIODS, most_limited=table.problem.hours)
    master = Master(table, gathered, safe_quotas=True)
    answer = mix(
        # while no plan is known a limit may be exceeded at a price, or there might be no answer at all
        master.program() if search.cost_micro_usd is None else master.strict(),
        [master.column(row) for row in search.fractional()],
        gap_frac=_MEND_GAP_FRAC,
        max_nodes=_MEND_NODES,
        start={(workload, table.row(workload, option)) for workload, option in enumerate(search.choice)},
    )
    search.offer(table.choice(answer.keys))


def _drop_one_time_costs(search: _Search) -> None:
    """Leave out, highest first, one-time costs that bring less than they cost: no single move sees it where several share."""
    costs = search.table.problem.entries_micro_usd
    # names break ties, so that the order is always the same
    for name in sorted(costs, key=lambda name: (-costs[name], name)):
        without = search.without(name)
        if without is not None:
            search.offer(without)


def choice_cost(problem: Problem, choice: Sequence[int]) -> int:
    """Return the exact bill of a choice under the best commitments to nodes and spend, with what it costs besides nodes."""
    return cost_with(problem, choice, best_discounts(problem, total_usage(problem, choice)))


MOST_PRICED = 8
"""More binding limits than this are named without their price: each price is a plan of its own."""


def price_limits(
    problem: Problem,
    chosen: ChosenPlan,
    stands_under: Callable[[Limit], bool],
    without: Callable[[Limit], tuple[Problem, ChosenPlan]],
) -> tuple[LimitPrice, ...]:
    """Price the limits that shape a plan; one at which neither the plan nor any option stands costs nothing.

    `stands_under` tells whether a limit held an option back that was replayed; `without` returns the problem without a limit,
    and the plan there.
    """
    found, priced = [], 0
    for limit, use in uses_of_limits(problem, chosen.choice).items():
        # neither the plan nor any option stands at it, so that lifting it changes nothing
        if not use.binds and not stands_under(limit):
            found.append(LimitPrice(use=use, cost_usd_mo=0.0, bill_usd_mo=0.0))
            continue
        priced += 1
        if priced > MOST_PRICED:
            found.append(LimitPrice(use=use, cost_usd_mo=None, bill_usd_mo=None))
            continue
        cost, bill = _saved(problem, chosen, *without(limit))
        found.append(LimitPrice(use=use, cost_usd_mo=cost, bill_usd_mo=bill))
    return tuple(found)


def plan_without(limit: Limit, problem: Problem, chosen: ChosenPlan, planning: Planning) -> tuple[Problem, ChosenPlan]:
    """Return a problem without a limit, and the plan there."""
    other = limit.lifted(problem)
    return other, solve_problem(other, planning, start=chosen.choice)


def _saved(problem: Problem, chosen: ChosenPlan, other: Problem, free: ChosenPlan) -> tuple[float, float]:
    """Return what bill and work together, and the bill alone, would be less; nothing where the plan without is no better."""
    # a search that ends more expensive without the limit than with it has found no price, only its own gap
    saved = chosen.cost_micro_usd - free.cost_micro_usd
    if saved <= 0:
        return 0.0, 0.0
    work = one_time_micro_usd(problem, chosen.choice) - one_time_micro_usd(other, free.choice)
    return per_month(usd(saved), problem.hours), per_month(usd(saved - work), problem.hours)
