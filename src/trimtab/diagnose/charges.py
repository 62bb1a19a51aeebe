"""Charge-back: the bill by team, workload, model or label; its months against the invoice; and where a month will end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from enum import Enum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.diagnose.bill_split import UNUSED_COMMITMENT, Charges, CostSplit, DailySpend
from trimtab.diagnose.findings import UNALLOCATED
from trimtab.fleet.arrivals import tokens_of
from trimtab.fleet.columns import numbers
from trimtab.fleet.model import Fleet, Window
from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.units import DAYS_PER_WEEK, NANO_PER_MICRO, apportion, round_parts

DEMAND_COLUMNS = (
    "workload",
    "start",
    "completed",
    "input_tokens_mean",
    "output_tokens_mean",
    "input_tokens",
    "output_tokens",
)


class SharedRule(Enum):
    """Who pays cost that belongs to no payer: a row of its own, every payer by what it held, or every payer equally."""

    SHOW = "show"
    SPREAD = "spread"
    EVEN = "even"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What becomes of idle nodes and unused commitments, and of the other shared charges (tax, credits, untagged)."""

    idle: SharedRule = SharedRule.SHOW
    shared: SharedRule = SharedRule.SHOW

    def of(self, name: str) -> SharedRule:
        """Return the rule for an unheld row."""
        return self.idle if name in (UNALLOCATED, UNUSED_COMMITMENT) else self.shared


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedAmounts:
    """What a service answered in the window; tokens None where lengths are not measured."""

    requests: float
    tokens: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """One row: what was held, and the part of the shared cost that is laid on it, in micro-dollars."""

    name: str
    held_micro_usd: int
    shared_micro_usd: int
    gpu_hours: float
    requests: float | None
    tokens: float | None
    nobodys: bool = False
    """A row of shared cost, not of a payer."""

    @property
    def micro_usd(self) -> int:
        """Return the whole charge."""
        return self.held_micro_usd + self.shared_micro_usd


def charges(
    fleet: Fleet, spent: DailySpend, split: CostSplit, rules: Rules, served: Mapping[str, ServedAmounts]
) -> tuple[Charge, ...]:
    """Return what each payer is charged, largest first. The rows sum to what was spent exactly, under any rule.

    Cost is spread by what was held (a payer with net credits bears no more). If no payer held anything, it keeps its own row.
    """
    members: dict[str, list[int]] = {}
    for index, workload in enumerate(fleet.workloads):
        members.setdefault(split.of(workload), []).append(index)
    held = {name: int(days.sum()) for name, days in spent.held.items()}
    shares = dict.fromkeys(held, 0)
    rows = []
    for name, days in spent.unheld.items():
        rule, cost = rules.of(name), int(days.sum())
        if rule is SharedRule.SHOW or not held:
            if cost:
                rows.append(_nobodys(name, cost))
            continue
        weights = [max(0.0, float(micro_usd)) if rule is SharedRule.SPREAD else 1.0 for micro_usd in held.values()]
        for payer, part in zip(held, apportion(cost, weights), strict=True):
            shares[payer] += part
    rows += [_charge(fleet, name, members.get(name, []), held[name], shares[name], served) for name in held]
    return tuple(sorted(rows, key=lambda row: (-row.micro_usd, row.name)))


def _nobodys(name: str, cost: int) -> Charge:
    return Charge(
        name=name,
        held_micro_usd=0,
        shared_micro_usd=cost,
        gpu_hours=0.0,
        requests=None,
        tokens=None,
        nobodys=True,
    )


def _charge(
    fleet: Fleet, name: str, indices: list[int], held: int, shared: int, served: Mapping[str, ServedAmounts]
) -> Charge:
    workloads = [fleet.workloads[index] for index in indices]
    answered = [served[workload.name] for workload in workloads if workload.name in served]
    counted = [service.tokens for service in answered if service.tokens is not None]
    return Charge(
        name=name,
        held_micro_usd=held,
        shared_micro_usd=shared,
        gpu_hours=sum(workload.gpu_hours for workload in workloads),
        requests=sum(service.requests for service in answered) if answered else None,
        tokens=sum(counted) if counted else None,
    )


def served_in(demand: pa.Table, window: Window) -> dict[str, ServedAmounts]:
    """Return what each service answered in a window; `demand` has DEMAND_COLUMNS. Intervals without a count are left out."""
    starts = demand["start"].cast(pa.timestamp("us")).to_numpy()
    first, last = (np.datetime64(moment.replace(tzinfo=None), "us") for moment in (window.start, window.end))
    inside = (starts >= first) & (starts < last)
    names = np.asarray(demand["workload"].to_pylist(), dtype=object)
    found = {}
    for name in sorted(set(names[inside].tolist())):
        rows = demand.filter(pa.array(inside & (names == name)))
        tokens = tokens_of(rows, "input_tokens") + tokens_of(rows, "output_tokens")
        measured = ~np.isnan(tokens)
        found[name] = ServedAmounts(
            requests=float(np.nansum(numbers(rows["completed"]))),
            tokens=float(tokens[measured].sum()) if measured.any() else None,
        )
    return found


CATEGORIES = ("Usage", "Purchase", "Tax", "Credit", "Adjustment")
"""Charge categories of FOCUS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Month:
    """One billing month, in micro-dollars."""

    month: str
    """`2026-09`."""
    rows: int
    by_category: Mapping[str, int]
    """What the invoice asks, by category; a charge of none counts as usage."""
    corrections: int
    """The part of it that corrects charges of invoices already issued."""
    amortised: int
    """What the month's use costs with commitments amortised: what is allocated."""
    unused_commitment: int
    invoice: int | None
    """What the invoice says, where it was given."""

    @property
    def billed(self) -> int:
        """Return what the charges ask for."""
        return sum(self.by_category.values())

    @property
    def difference(self) -> int | None:
        """Return what the charges ask for beyond the invoice; None without one."""
        return None if self.invoice is None else self.billed - self.invoice


def months(billed: Charges, amortised: Charges, invoices: Mapping[str, int]) -> tuple[Month, ...]:
    """Return the months of a bill, first to last; `invoices` maps a month to its invoice's amount in micro-dollars.

    An invoice of a month that holds no charge is a month of its own, with nothing billed.
    """
    rows = billed.rows
    period = pc.coalesce(rows["BillingPeriodStart"], rows["ChargePeriodStart"])
    name = np.array(pc.strftime(period, format="%Y-%m").to_pylist(), dtype=np.str_)
    category = np.array(pc.fill_null(rows["ChargeCategory"], "Usage").to_pylist(), dtype=np.str_)
    correction = _is(rows["ChargeClass"], "Correction")
    unused = _is(rows["CommitmentDiscountStatus"], "Unused")
    found = []
    for month in sorted({*name.tolist(), *invoices}):
        mine = name == month
        kinds = [*CATEGORIES, *sorted(set(category[mine].tolist()) - set(CATEGORIES))]
        sums = round_parts([_sum(billed.nano_usd, mine & (category == kind)) for kind in kinds], NANO_PER_MICRO)
        others = [
            _sum(billed.nano_usd, mine & correction),
            _sum(amortised.nano_usd, mine),
            _sum(amortised.nano_usd, mine & unused),
        ]
        corrections, spread, wasted = (round_parts([nano_usd], NANO_PER_MICRO)[0] for nano_usd in others)
        found.append(
            Month(
                month=month,
                rows=int(mine.sum()),
                by_category=dict(zip(kinds, sums, strict=True)),
                corrections=corrections,
                amortised=spread,
                unused_commitment=wasted,
                invoice=invoices.get(month),
            )
        )
    return tuple(found)


def _is(column: pa.ChunkedArray, value: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.asarray(pc.equal(pc.fill_null(column, ""), value).to_numpy(zero_copy_only=False), dtype=np.bool_)


def _sum(nano_usd: IntArray, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
    return int(nano_usd[rows].sum())


LOOK_BACK_DAYS = 4 * DAYS_PER_WEEK
"""Days that a forecast learns from: four of each weekday."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthEnd:
    """The calendar month in which history ends, in micro-dollars."""

    month: str
    so_far: float
    forecast: float
    """The whole month: what was spent, and what its other days are expected to cost."""
    days_seen: int
    days: int


def month_end(first_day: date, costs: IntArray, whole_days: int) -> MonthEnd:
    """Forecast the month of the last whole day; `costs` (n_days,) are daily from `first_day`, of which `whole_days` are whole.

    Days of the month before history began are expected to have cost what the same weekdays cost later.
    """
    seen = np.asarray(costs[: max(1, whole_days)], dtype=np.float64)
    last = first_day + timedelta(days=len(seen) - 1)
    start = last.replace(day=1)
    end = (start + timedelta(days=31)).replace(day=1)
    by_weekday = _weekday_means(first_day, seen)
    spent = [float(seen[(day - first_day).days]) for day in _days(max(start, first_day), last + timedelta(days=1))]
    unknown = [*_days(start, min(first_day, end)), *_days(last + timedelta(days=1), end)]
    expected = sum(float(by_weekday[day.weekday()]) for day in unknown)
    return MonthEnd(
        month=f"{start:%Y-%m}",
        so_far=sum(spent),
        forecast=sum(spent) + expected,
        days_seen=len(spent),
        days=(end - start).days,
    )


def _weekday_means(first_day: date, costs: FloatArray) -> FloatArray:
    """Return the mean cost of each weekday over the last weeks (7,); of one that was not seen, the mean of all."""
    first = max(0, len(costs) - LOOK_BACK_DAYS)
    weekday = (first_day.weekday() + np.arange(first, len(costs))) % DAYS_PER_WEEK
    recent = costs[first:]
    count = np.bincount(weekday, minlength=DAYS_PER_WEEK)
    total = np.bincount(weekday, weights=recent, minlength=DAYS_PER_WEEK)
    return np.where(count > 0, total / np.maximum(count, 1), recent.mean())


def _days(start: date, end: date) -> list[date]:
    return [start + timedelta(days=number) for number in range((end - start).days)]
