"""Broken things and untidy ones with what they cost over a whole history, the most first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.diagnose.broken import Breakage, Broken
from trimtab.diagnose.cluster_records import ClusterRecords, LostSpan, lost_time
from trimtab.diagnose.findings import Offence, Offences, WasteKind
from trimtab.diagnose.waste import BrokenCost
from trimtab.fleet.model import Fleet
from trimtab.ledger import Allocation
from trimtab.ledger.arrays import IntArray
from trimtab.units import S_PER_HR, usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What something cost over a history: dollars, GPU-hours, and dollars an hour while it lasts (None: it is over)."""

    micro_usd: int
    gpu_hours: float
    usd_hr: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CostlyBreakage:
    """A broken thing with what it cost, and what failed runs add to those that completed, in words."""

    breakage: Breakage
    cost: Cost
    retried: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostlyOffence:
    """An offender with what it cost."""

    offence: Offence
    cost: Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Untidy:
    """What a history shows of both; `hours` are those of the history, which the costs are of."""

    hours: int = 0
    broken: tuple[CostlyBreakage, ...] = ()
    offences: tuple[CostlyOffence, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BilledWindow:
    """A fleet over one window, and its bill by cell."""

    fleet: Fleet
    allocation: Allocation


def broken_costs(found: Broken, window: BilledWindow) -> tuple[BrokenCost, ...]:
    """Return what broken things took of a window's bill, for `waste_of`."""
    lost = lost_time(window.fleet, window.allocation, found.spans)
    costs = []
    for number, breakage in enumerate(found.breakages):
        mine = lost.finding == number
        costs.append(
            BrokenCost(
                kind=breakage.kind, subject=breakage.subject, cell=lost.cell[mine], micro_usd=lost.micro_usd[mine]
            )
        )
    return tuple(costs)


def untidy(found: Broken, mess: Offences, records: ClusterRecords, windows: Sequence[BilledWindow]) -> Untidy:
    """Price everything found over windows that follow one another; a broken thing that cost nothing is left out."""
    of_workload = _cost_of_workloads(windows)
    broken = [
        CostlyBreakage(breakage=breakage, cost=cost, retried=_retried(breakage, cost, of_workload, records))
        for breakage, cost in zip(
            found.breakages,
            _costs(found.spans, [breakage.ongoing for breakage in found.breakages], windows),
            strict=True,
        )
        if cost.micro_usd
    ]
    offences = [
        CostlyOffence(offence=offence, cost=cost)
        for offence, cost in zip(
            mess.offences, _costs(mess.spans, [offence.ongoing for offence in mess.offences], windows), strict=True
        )
    ]
    return Untidy(
        hours=sum(window.fleet.window.hours for window in windows),
        broken=tuple(sorted(broken, key=lambda row: (-row.cost.micro_usd, row.breakage.subject))),
        offences=tuple(
            sorted(offences, key=lambda row: (-row.cost.micro_usd, row.offence.kind.value, row.offence.subject))
        ),
    )


def _costs(spans: Sequence[LostSpan], ongoing: Sequence[bool], windows: Sequence[BilledWindow]) -> list[Cost]:
    """Return what each finding cost; `ongoing` says of each whether it lasts."""
    micro: IntArray = np.zeros(len(ongoing), dtype=np.int64)
    for window in windows:
        micro += lost_time(window.fleet, window.allocation, spans).by_finding(len(ongoing))
    first_s = min((window.fleet.window.start.timestamp() for window in windows), default=0.0)
    last_s = max((window.fleet.window.end.timestamp() for window in windows), default=0.0)
    gpu_s, begun_s = [0.0] * len(ongoing), [last_s] * len(ongoing)
    for span in spans:
        start_s, end_s = max(span.start_s, first_s), min(span.end_s, last_s)
        if end_s > start_s:
            gpu_s[span.finding] += (end_s - start_s) * span.gpus * span.lost_frac
            begun_s[span.finding] = min(begun_s[span.finding], start_s)
    found = []
    for cost, seconds, start_s, lasts in zip(micro.tolist(), gpu_s, begun_s, ongoing, strict=True):
        hours = (last_s - start_s) / S_PER_HR
        found.append(
            Cost(
                micro_usd=cost,
                gpu_hours=seconds / S_PER_HR,
                usd_hr=usd(cost) / hours if lasts and cost and hours > 0 else None,
            )
        )
    return found


def _cost_of_workloads(windows: Sequence[BilledWindow]) -> dict[str, int]:
    """Return what each workload cost over all windows, in micro-dollars."""
    costs: dict[str, int] = {}
    for window in windows:
        workloads = window.fleet.workloads
        for workload, cost in zip(workloads, window.allocation.by_owner(len(workloads)).tolist(), strict=True):
            costs[workload.name] = costs.get(workload.name, 0) + cost
    return costs


def _retried(breakage: Breakage, cost: Cost, of_workload: Mapping[str, int], records: ClusterRecords) -> str:
    """Say what failed attempts add to each run of their workload that completed."""
    whole = of_workload.get(breakage.subject, 0)
    completed = sum(job["workload"] == breakage.subject and job["state"] == "completed" for job in records.jobs)
    if breakage.kind is not WasteKind.FAILED_RUNS or not whole:
        return ""
    share = f"{cost.micro_usd / whole:.1%} of what {breakage.subject} cost"
    if not completed:
        return share
    return (
        f"{share}; each of its {completed} completed runs cost ${usd(whole) / completed:,.2f} with them and "
        f"${usd(whole - cost.micro_usd) / completed:,.2f} without"
    )
