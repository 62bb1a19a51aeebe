"""Which nodes of runs to hold in capacity blocks: the weekly calendar that a history of need would have paid best with.

    maximise   sum over units u, weekdays d of up[u,d] * (worth * used[u,d] - block_rate * paid[d]) - fall * falls[u]

where `up[u,d]` books unit u (nodes that come and go together) on the block day of weekday d, `used[u,d]` is the need that lies
between u and u + 1 units on those days, and `falls[u]` counts the blocks of a week that end. Units do not touch each other, so
that each is solved alone, exactly, over the 128 sets of weekdays. What a calendar is worth a replay decides: runs are whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import BookBlocks, Effect
from trimtab.deployment.placement import Placement
from trimtab.fleet.market import Market
from trimtab.fleet.model import RUN_KINDS, Window
from trimtab.fleet.settings import Effort
from trimtab.ledger.arrays import IntArray
from trimtab.levers.lever import (
    AppliedLever,
    CompositionStage,
    EffortStep,
    Fact,
    JudgedWays,
    Lever,
    LeverRequest,
    Risk,
    is_candidate,
    usual_reason,
)
from trimtab.policies.blocks import MOST_NODES, SHUTDOWN_S, BlockCalendar
from trimtab.replay.job_nodes import hours_of_days
from trimtab.replay.outcomes.jobs_outcome import nodes_of_runs
from trimtab.units import DAYS_PER_WEEK, S_PER_HR, micro_usd, usd

NAME = "capacity-block"
PROVIDERS = ("aws",)
"""Whose blocks follow the calendar's rules."""

_DAY_SETS = np.array([[number >> day & 1 for day in range(DAYS_PER_WEEK)] for number in range(2**DAYS_PER_WEEK)])
"""Every set of weekdays (128, 7), the empty one first."""


def propose(
    need: IntArray, window: Window, pool: Pool, market: Market, *, unit: int, may_end: bool
) -> tuple[BookBlocks, ...]:
    """Return calendars for a need of node-seconds per hour (n_hours,) on demand; none where no rate of blocks is known.

    `unit` nodes are booked together, as runs need them. Unless blocks `may_end` while runs are on them, they stand every day.
    """
    price = market.block_price(pool) if pool.provider in PROVIDERS else None
    if price is None:
        return ()
    rate, on_demand = micro_usd(price.usd_hr), market.rate(pool)
    found = dict.fromkeys(_calendars(need, window, rate, on_demand, unit=unit, may_end=may_end))
    return tuple(
        BookBlocks(
            pool=pool.held_as(CapacityType.CAPACITY_BLOCK),
            calendar=calendar,
            rate_micro_usd_hr=rate,
            on_demand_micro_usd_hr=on_demand,
        )
        for calendar in found
        if any(calendar.nodes)
    )


def _calendars(
    need: IntArray, window: Window, rate: int, on_demand: int, *, unit: int, may_end: bool
) -> Iterator[BlockCalendar]:
    """Yield the best calendar that never ends and the best of all, that without its base (which a commitment may hold for
    less), and each with a unit more or less."""
    fall = SHUTDOWN_S * unit * on_demand
    calendars = [best_calendar(need, window, rate, on_demand, unit=unit, fall=None)]
    if may_end:
        best = best_calendar(need, window, rate, on_demand, unit=unit, fall=fall)
        calendars += [best, _shifted(best, -min(best.nodes))]
    for calendar in calendars:
        yield calendar
        yield _shifted(calendar, unit)
        yield _shifted(calendar, -unit)


def _shifted(calendar: BlockCalendar, nodes: int) -> BlockCalendar:
    """Return a calendar with so many nodes more on the days that book any."""
    return BlockCalendar(tuple(min(MOST_NODES, max(0, booked + nodes)) if booked else 0 for booked in calendar.nodes))


def best_calendar(
    need: IntArray, window: Window, rate: int, worth: int, *, unit: int, fall: int | None
) -> BlockCalendar:
    """Return the calendar that pays best for a need, where each node-hour in a block is worth so much, in micro-dollars.

    `fall` is what a unit's block costs when it ends, in micro-dollar-seconds; None lets no block end.
    """
    shares = hours_of_days(window.first_week_hour, window.hours)
    units = min(-(-int(need.max(initial=0)) // (unit * S_PER_HR)), MOST_NODES // unit)
    sets = _DAY_SETS if fall is not None else _DAY_SETS[[0, -1]]
    ends = (sets > np.roll(sets, -1, axis=1)).sum(axis=1)
    paid = unit * rate * shares.sum(axis=0)
    booked = np.zeros(DAYS_PER_WEEK, dtype=np.int64)
    for number in range(units):
        used = np.clip(need - number * unit * S_PER_HR, 0, unit * S_PER_HR)
        gain = worth * (used @ shares // S_PER_HR) - paid
        best = int(np.argmax(sets @ gain - ends * (fall or 0)))
        booked += sets[best]
    return BlockCalendar(tuple(int(count) * unit for count in booked))


def can_book(ask: LeverRequest, place: Placement) -> bool:
    """Return whether blocks of a place's nodes have a known rate, for a workload that consists of runs."""
    runs = ask.workload.kind in RUN_KINDS and ask.workload.jobs is not None and ask.settings.limits.use_blocks
    return runs and place.shared is None and ask.market.block_price(place.pool) is not None


def _ways(base: Deployment, ask: LeverRequest) -> Iterator[Deployment]:
    """Yield the calendars that suit what runs would use there on demand, where that keeps the targets."""
    place = ask.evaluator.place(base)
    if not can_book(ask, place) or ask.evaluator.hopeless(base) or not ask.evaluator.keeps_targets(base):
        return
    calendars = propose(
        ask.evaluator.outcome(base).on_demand,
        ask.case.window,
        place.pool,
        ask.market,
        unit=_unit(ask, place),
        may_end=bool(ask.workload.spec.interruptible),
    )
    for calendar in calendars:
        yield base.plus((NAME, calendar))


def _unit(ask: LeverRequest, place: Placement) -> int:
    """Return how many nodes runs there take at once: the largest number that divides what each of them needs."""
    jobs = ask.workload.jobs
    nodes: IntArray = np.ones(1, dtype=np.int64) if jobs is None or not jobs.count else nodes_of_runs(jobs, place)
    return math.gcd(*(int(count) for count in np.unique(nodes)))


def _why_not(ask: LeverRequest, judged: JudgedWays) -> str | None:
    """Say why no block is booked, where the rate of one is known."""
    known = is_candidate(NAME, judged) or judged.missed.get(NAME, 0) > 0
    return usual_reason(NAME, ask, judged) if known else None


def _evidence(applied: AppliedLever) -> Iterator[Fact]:
    for effect in applied.effects:
        if isinstance(effect, BookBlocks):
            price = applied.market.block_price(effect.pool)
            dated = "prices" if price is None else f"prices, {price.source} as of {price.as_of}"
            rate, on_demand = usd(effect.rate_micro_usd_hr), usd(effect.on_demand_micro_usd_hr)
            used_frac = applied.outcome.booked_used_frac
            used = "none booked" if used_frac is None else f"{used_frac:.0%}"
            yield Fact("booked node-hours in use", "replay in blocks", used, f"> {rate / on_demand:.0%}")
            what = "node-hour in a block (paid upfront; the price is offered again for each block)"
            yield Fact(what, dated, f"${rate:,.2f}", f"${on_demand:,.2f} on demand")


def _canary(effect: Effect) -> tuple[str, ...]:
    return (
        "Buy the smallest block of the calendar for one day, and let a run begin on it and be taken off at its end.",
        "The run must resume elsewhere; then buy the coming week, and go on while the price is the plan's or lower.",
    )


LEVER = Lever(
    name=NAME,
    title="Book blocks",
    meaning="Holds nodes of runs in capacity blocks, bought again every week by a calendar",
    page="how-to/capacity-blocks.md",
    stage=CompositionStage.BUY,
    kinds=RUN_KINDS,
    effort=Effort(weeks=1.0, per="class"),
    steps=(
        EffortStep("rights to buy, a budget, and who buys every week", 1.5),
        EffortStep("runs that are taken off at the end of a block and resume", 2.5),
        EffortStep("the first block of a day", 1.0),
    ),
    risk=Risk.MEDIUM,
    rollback="buy no further block; what is booked is paid upfront and cannot be cancelled",
    reversible=False,
    canary=_canary,
    ways=_ways,
    evidence=_evidence,
    why_not=_why_not,
    guide_order=2,
)
