"""Choose among prospects: by the bill, by bill and work, by the bill without headroom, and without a limit.

What the choices ask for is replayed, until each is among ways that were replayed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from trimtab.fleet.settings import Settings
from trimtab.levers import idle_release
from trimtab.plan.effort import UNHELD, Effort, effort_of, with_effort
from trimtab.plan.needed_replays import NeededReplays, OtherWindows, Rows, explained, with_replays_forgotten
from trimtab.plan.options.composition import Candidate
from trimtab.plan.options.workload_options import WorkloadOptions
from trimtab.plan.problem import KEEP, Problem
from trimtab.plan.program.couplings.parts import Limit
from trimtab.plan.program.couplings.quotas import PoolQuota
from trimtab.plan.program.solve import ChosenPlan, first_look, plan_without, solve_problem
from trimtab.plan.prospects import Prospects


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JointChoice:
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


def choose_jointly(prospects: Prospects) -> JointChoice:
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
    cheapest, chosen = _as_if_all_known(prospects, needed, cheapest, chosen)
    return JointChoice(
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
    return needed.asked_for(rows, first_look(problem)) if needed.some_wait(rows) else None


def _asked_at_last(
    settings: Settings, rows: Rows, chosen: ChosenPlan, needed: NeededReplays
) -> tuple[WorkloadOptions | None, ...] | None:
    """Return the options with what a solution asks for, under quotas also with what might be better; None where nothing is."""
    more = needed.asked_for(rows, chosen)
    return needed.within_reach(rows, chosen) if more is None and settings.limits.quotas else more


def _as_if_all_known(
    prospects: Prospects, needed: NeededReplays, cheapest: ChosenPlan, chosen: ChosenPlan
) -> tuple[ChosenPlan, ChosenPlan]:
    """Choose once more among the ways that were replayed: of plans that cost the same, the one found without the others.

    The bounds stay those over all ways.
    """
    if not needed.some_wait(prospects.options):
        return cheapest, chosen
    rows = needed.known(prospects.options)
    problem, settings = prospects.problem(rows), prospects.settings
    first = solve_problem(problem, settings.planning).over_more_ways(cheapest)
    paying = with_effort(problem, row_efforts(problem, rows, settings))
    return first, solve_problem(paying, settings.planning, start=first.choice).over_more_ways(chosen)


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


def choose_without(
    limit: Limit, prospects: Prospects, paying: Problem, chosen: ChosenPlan
) -> tuple[Problem, ChosenPlan]:
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
