"""Charge-back: the bill by team, workload, model, label and the like, with unit costs; its rows sum to the bill exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pyarrow as pa

from trimtab.diagnose.split import UNALLOCATED, UNUSED_COMMITMENT, CostSplit, DailySpend
from trimtab.fleet.columns import numbers
from trimtab.fleet.model import Fleet, Window
from trimtab.fleet.services import tokens_of
from trimtab.units import apportion

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
    """Who pays for what is nobody's: a row of its own, everyone by what they held, or everyone alike."""

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

    Cost is spread by what was held (a payer with net credits bears nothing more); where nobody held anything it stays shown.
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
