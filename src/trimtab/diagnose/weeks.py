"""A week's cost against the week before: who held what, what stood idle, and which causes changed the bill.

Weeks are ISO 8601 weeks in UTC, Monday to Sunday. A week of which history has only a part is compared by the hour: the former
week is scaled to the hours that are covered of this one. Every change is split by cause, in whole micro-dollars that sum to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum
from typing import Self

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.diagnose.bill_split import UNUSED_COMMITMENT, DailySpend
from trimtab.diagnose.findings import UNALLOCATED
from trimtab.diagnose.waste import activity_by_hour, is_idle
from trimtab.errors import UnknownName, UsageError
from trimtab.fleet.model import Fleet, Window, Workload
from trimtab.fleet.settings import Bands
from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.units import DAYS_PER_WEEK, HR_PER_DAY, HR_PER_WEEK, MICRO_PER_USD, S_PER_HR, hours_between, mul_div

_WEEK = re.compile(r"(\d{4})-W(\d{2})")
OTHER_CHARGES = "other charges"


class RowKind(Enum):
    """Whose a row is."""

    WORKLOAD = "workload"
    TEAM = "team"
    """A team's charges that are for no workload: tagged volumes, machines without telemetry."""
    SHARED = "shared"
    """Nobody's: idle nodes, tax, credits."""


class ChangeCause(Enum):
    """Why a week cost something else than the one before."""

    GPU_HOURS = "GPU-hours held"
    """More or fewer of them, at the former price."""
    NODES = "other nodes"
    """The same GPU-hours on machines or under buying options of another list price."""
    PRICE = "price"
    """The same nodes at other rates."""
    NEW = "workloads that held none before"
    GONE = "workloads that hold none now"
    IDLE = "idle nodes and unused commitments"
    OTHER = "charges of no workload"


@dataclass(frozen=True, slots=True, order=True)
class IsoWeek:
    """A week of ISO 8601: the first one of a year holds its first Thursday."""

    year: int
    number: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `2026-W44`; raises UsageError."""
        found = _WEEK.fullmatch(text.strip())
        try:
            if found is None:
                raise ValueError(text)
            monday = date.fromisocalendar(int(found[1]), int(found[2]), 1)
        except ValueError as error:
            raise UsageError(f"{text!r} is not a week; write YEAR-Wnn as ISO 8601 counts them: 2026-W44") from error
        return cls.of(monday)

    @classmethod
    def of(cls, day: date) -> Self:
        """Return the week of a day."""
        calendar = day.isocalendar()
        return cls(calendar.year, calendar.week)

    @property
    def start(self) -> datetime:
        """Return Monday 00:00 UTC; raises ValueError where the year has no such week."""
        return datetime.combine(date.fromisocalendar(self.year, self.number, 1), time(), UTC)

    @property
    def before(self) -> IsoWeek:
        """Return the week before."""
        return IsoWeek.of(self.start.date() - timedelta(days=DAYS_PER_WEEK))

    def __str__(self) -> str:
        return f"{self.year}-W{self.number:02d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveredWeek:
    """A week and the hours of it that history covers."""

    week: IsoWeek
    window: Window

    @property
    def whole(self) -> bool:
        """Return whether all of it is covered."""
        return self.window.hours == HR_PER_WEEK


def covered_weeks(window: Window) -> tuple[CoveredWeek, ...]:
    """Return the weeks that a window touches, oldest first."""
    found = []
    week_start = IsoWeek.of(window.start.date()).start
    while week_start < window.end:
        week_end = week_start + timedelta(days=DAYS_PER_WEEK)
        first, last = max(week_start, window.start), min(week_end, window.end)
        part = Window(start=first, hours=round(hours_between(first, last)))
        found.append(CoveredWeek(week=IsoWeek.of(week_start.date()), window=part))
        week_start = week_end
    return tuple(found)


def chosen_week(weeks: Sequence[CoveredWeek], asked: IsoWeek | None) -> CoveredWeek:
    """Return the week that was asked for, else the last whole one, else the last; raises UnknownName."""
    if asked is None:
        whole = [week for week in weeks if week.whole]
        return (whole or list(weeks))[-1]
    by_name = {str(week.week): week for week in weeks}
    if str(asked) not in by_name:
        raise UnknownName("week", str(asked), by_name, where=f"the history, {weeks[0].week} to {weeks[-1].week}")
    return by_name[str(asked)]


def former_week(weeks: Sequence[CoveredWeek], chosen: CoveredWeek) -> tuple[CoveredWeek | None, str]:
    """Return the week before, or why there is none to compare with: no history of it, or less than a day."""
    former = next((week for week in weeks if week.week == chosen.week.before), None)
    if former is None:
        return None, f"no former week to compare with: history begins on {weeks[0].window.start:%-d %b %Y}"
    if former.window.hours < HR_PER_DAY:
        return None, f"no former week to compare with: {former.window.hours} h of {former.week} are too few"
    return former, ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekUse:
    """What a payer had in a week."""

    micro_usd: int = 0
    gpu_hours: float = 0.0
    list_usd: float | None = 0.0
    """What its node time costs at one list, the same for both weeks; None where a node has no list price."""
    measured_gpu_hours: float = 0.0
    idle_gpu_hours: float = 0.0
    """Of those measured: held by it, and doing nothing."""

    def scaled(self, hours: int, of_hours: int) -> WeekUse:
        """Return it at the same rate over other hours."""
        factor = hours / of_hours
        return WeekUse(
            micro_usd=mul_div(self.micro_usd, hours, of_hours),
            gpu_hours=self.gpu_hours * factor,
            list_usd=None if self.list_usd is None else self.list_usd * factor,
            measured_gpu_hours=self.measured_gpu_hours * factor,
            idle_gpu_hours=self.idle_gpu_hours * factor,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekRow:
    """One workload, what else its team was charged, or a row of shared cost (`team` is then empty)."""

    kind: RowKind
    name: str
    team: str
    now: WeekUse
    former: WeekUse | None
    """Over as many hours as this week covers; None where there is no former week."""

    @property
    def causes(self) -> Mapping[ChangeCause, int]:
        """Return the change by cause, micro-dollars that sum to it; empty where there is no former week."""
        if self.former is None:
            return {}
        if self.kind is RowKind.WORKLOAD:
            return _causes(self.now, self.former)
        idle = self.name in (UNALLOCATED, UNUSED_COMMITMENT)
        return {ChangeCause.IDLE if idle else ChangeCause.OTHER: self.now.micro_usd - self.former.micro_usd}


def _causes(now: WeekUse, former: WeekUse) -> dict[ChangeCause, int]:
    """Split a workload's change: first its hours at the former price, then where it ran at one list, the rest is the price."""
    change = now.micro_usd - former.micro_usd
    if former.gpu_hours <= 0:
        return {ChangeCause.NEW: change}
    if now.gpu_hours <= 0:
        return {ChangeCause.GONE: change}
    growth = now.gpu_hours / former.gpu_hours
    hours = round(former.micro_usd * (growth - 1.0))
    nodes = 0
    if now.list_usd and former.list_usd:
        nodes = round(former.micro_usd * (now.list_usd / former.list_usd - growth))
    return {ChangeCause.GPU_HOURS: hours, ChangeCause.NODES: nodes, ChangeCause.PRICE: change - hours - nodes}


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekSpend:
    """A week of a fleet: its rows sum to the week's bill, those of a team to what the team is charged."""

    chosen: CoveredWeek
    former: CoveredWeek | None
    why_no_former: str
    rows: tuple[WeekRow, ...]

    @property
    def micro_usd(self) -> int:
        """Return the week's bill."""
        return sum(row.now.micro_usd for row in self.rows)

    @property
    def teams(self) -> tuple[str, ...]:
        """Return the teams, the most expensive first."""
        costs: dict[str, int] = {}
        for row in self.rows:
            if row.team:
                costs[row.team] = costs.get(row.team, 0) + row.now.micro_usd
        return tuple(sorted(costs, key=lambda team: (-costs[team], team)))

    def of_team(self, team: str) -> tuple[WeekRow, ...]:
        """Return a team's rows; raises UnknownName."""
        if team not in self.teams:
            raise UnknownName("team", team, self.teams, where=f"{self.chosen.week}")
        return tuple(row for row in self.rows if row.team == team)


def together(uses: Iterable[WeekUse]) -> WeekUse:
    """Return several uses as one."""
    found = list(uses)
    lists = [use.list_usd for use in found]
    return WeekUse(
        micro_usd=sum(use.micro_usd for use in found),
        gpu_hours=sum(use.gpu_hours for use in found),
        list_usd=None if None in lists else sum(value for value in lists if value is not None),
        measured_gpu_hours=sum(use.measured_gpu_hours for use in found),
        idle_gpu_hours=sum(use.idle_gpu_hours for use in found),
    )


def week_spend(
    fleet: Fleet,
    by_team: DailySpend,
    by_workload: DailySpend,
    rates_micro_usd_hr: Mapping[Pool, int],
    bands: Bands,
    asked: IsoWeek | None,
) -> WeekSpend:
    """Return a week of a fleet and the week before it.

    `by_team` and `by_workload` are the same spend split two ways; `rates_micro_usd_hr` is one list for all of the window, by
    which the price of running elsewhere is told from a change of prices. Raises UnknownName for a week that history lacks.
    """
    weeks = covered_weeks(fleet.window)
    chosen = chosen_week(weeks, asked)
    former, why = former_week(weeks, chosen)
    now = _uses(fleet, by_team, by_workload, rates_micro_usd_hr, bands, chosen)
    then = {} if former is None else _uses(fleet, by_team, by_workload, rates_micro_usd_hr, bands, former)
    rows = []
    for key in {**now, **then}:
        kind, team, name = key
        before = None
        if former is not None:
            before = then.get(key, WeekUse()).scaled(chosen.window.hours, former.window.hours)
        row = WeekRow(kind=kind, name=name, team=team, now=now.get(key, WeekUse()), former=before)
        if row.now != WeekUse() or row.former not in (None, WeekUse()):
            rows.append(row)
    rows.sort(key=lambda row: (-row.now.micro_usd, row.team, row.name))
    return WeekSpend(chosen=chosen, former=former, why_no_former=why, rows=tuple(rows))


def _uses(
    fleet: Fleet,
    by_team: DailySpend,
    by_workload: DailySpend,
    rates_micro_usd_hr: Mapping[Pool, int],
    bands: Bands,
    week: CoveredWeek,
) -> dict[tuple[RowKind, str, str], WeekUse]:
    """Return what each workload, team and shared row had in a week, by kind, team and name."""
    first = round(hours_between(fleet.window.start, week.window.start))
    hours = slice(first, first + week.window.hours)
    listed = _list_usd(fleet, rates_micro_usd_hr, hours)
    found: dict[tuple[RowKind, str, str], WeekUse] = {}
    of_workloads: dict[str, int] = {}
    for index, workload in enumerate(fleet.workloads):
        cost = _spent(by_workload.held.get(workload.name), by_workload.first_day, week.window)
        of_workloads[workload.team] = of_workloads.get(workload.team, 0) + cost
        found[RowKind.WORKLOAD, workload.team, workload.name] = _held(workload, cost, listed[index], bands, hours)
    for team, days in by_team.held.items():
        rest = _spent(days, by_team.first_day, week.window) - of_workloads.get(team, 0)
        found[RowKind.TEAM, team, OTHER_CHARGES] = WeekUse(micro_usd=rest)
    for name, days in by_team.unheld.items():
        found[RowKind.SHARED, "", name] = WeekUse(micro_usd=_spent(days, by_team.first_day, week.window))
    return found


def _held(workload: Workload, micro_usd: int, list_usd: float | None, bands: Bands, hours: slice) -> WeekUse:
    held = workload.gpu_seconds[hours] / S_PER_HR
    activity = activity_by_hour(workload)[hours]
    return WeekUse(
        micro_usd=micro_usd,
        gpu_hours=float(held.sum()),
        list_usd=list_usd,
        measured_gpu_hours=float(held[~np.isnan(activity)].sum()),
        idle_gpu_hours=float(held[is_idle(activity, bands)].sum()),
    )


def _list_usd(fleet: Fleet, rates_micro_usd_hr: Mapping[Pool, int], hours: slice) -> list[float | None]:
    """Return what each workload's node time costs at one list; None where it ran on a pool that the list lacks."""
    cells = fleet.holdings
    inside = (cells.hour >= hours.start) & (cells.hour < hours.stop)
    rate = np.array([rates_micro_usd_hr.get(pool, np.nan) for pool in fleet.usage.pools], dtype=np.float64)
    sums: FloatArray = np.zeros(len(fleet.workloads) + 1)  # idle time's owner is -1: the last
    np.add.at(sums, cells.owner[inside], cells.node_seconds[inside] * rate[cells.pool[inside]] / S_PER_HR)
    return [None if np.isnan(value) else float(value) / MICRO_PER_USD for value in sums[:-1]]


def _spent(days: IntArray | None, first_day: date, window: Window) -> int:
    """Return the sum of the days (n_days,) from `first_day` on that a window touches."""
    if days is None:
        return 0
    last_day = (window.end - timedelta(hours=1)).date()
    start, stop = (window.start.date() - first_day).days, (last_day - first_day).days + 1
    return int(days[max(0, start) : max(0, stop)].sum())
