"""Charge-back: the bill by team, workload, namespace, kind or model, with unit costs; its rows sum to the bill exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

import numpy as np
import pyarrow as pa

from trimtab.fleet.model import Fleet, Window, Workload
from trimtab.ledger import Allocation
from trimtab.units import apportion

UNALLOCATED = "nobody (idle nodes)"
UNUSED_COMMITMENT = "nobody (unused commitment)"
UNNAMED = "unnamed"
DEMAND_COLUMNS = ("workload", "start", "completed", "input_tokens_mean", "output_tokens_mean")


class SplitBy(Enum):
    """What the bill is split by."""

    TEAM = "team"
    WORKLOAD = "workload"
    NAMESPACE = "namespace"
    KIND = "kind"
    MODEL = "model"

    def of(self, workload: Workload) -> str:
        """Return a workload's value."""
        match self:
            case SplitBy.TEAM:
                return workload.team
            case SplitBy.WORKLOAD:
                return workload.name
            case SplitBy.NAMESPACE:
                return workload.namespace
            case SplitBy.KIND:
                return workload.kind.value
            case SplitBy.MODEL:
                return workload.spec.model or UNNAMED
            case _:
                assert_never(self)


class SharedRule(Enum):
    """Who pays for what nobody held: a row of its own, or everyone by what they held."""

    SHOW = "show"
    SPREAD = "spread"


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
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

    @property
    def micro_usd(self) -> int:
        """Return the whole charge."""
        return self.held_micro_usd + self.shared_micro_usd


def charges(
    fleet: Fleet,
    allocation: Allocation,
    split: SplitBy,
    rule: SharedRule,
    served: Mapping[str, Served],
) -> tuple[Charge, ...]:
    """Split the bill, largest first. The rows sum to it exactly, under either rule."""
    costs = allocation.by_owner(len(fleet.workloads))
    members: dict[str, list[int]] = {}
    for index, workload in enumerate(fleet.workloads):
        members.setdefault(split.of(workload), []).append(index)
    held = {name: int(costs[indices].sum()) for name, indices in members.items()}
    unheld = {UNALLOCATED: allocation.idle, UNUSED_COMMITMENT: allocation.unused_commitment}
    shares = dict.fromkeys(held, 0)
    if rule is SharedRule.SPREAD and held:
        parts = apportion(sum(unheld.values()), [float(cost) for cost in held.values()])
        shares, unheld = dict(zip(held, parts, strict=True)), {}
    rows = [_charge(fleet, name, members[name], held[name], shares[name], served) for name in held]
    for name, cost in unheld.items():
        if cost:
            rows.append(
                Charge(name=name, held_micro_usd=0, shared_micro_usd=cost, gpu_hours=0.0, requests=None, tokens=None)
            )
    return tuple(sorted(rows, key=lambda row: (-row.micro_usd, row.name)))


def _charge(
    fleet: Fleet, name: str, indices: list[int], held: int, shared: int, served: Mapping[str, Served]
) -> Charge:
    workloads = [fleet.workloads[index] for index in indices]
    answered = [served[one.name] for one in workloads if one.name in served]
    counted = [one.tokens for one in answered if one.tokens is not None]
    return Charge(
        name=name,
        held_micro_usd=held,
        shared_micro_usd=shared,
        gpu_hours=sum(one.gpu_hours for one in workloads),
        requests=sum(one.requests for one in answered) if answered else None,
        tokens=sum(counted) if counted else None,
    )


def served_in(demand: pa.Table, window: Window) -> dict[str, Served]:
    """Return what each service answered in a window; `demand` has DEMAND_COLUMNS. Intervals without a count are left out."""
    starts = demand["start"].cast(pa.timestamp("us")).to_numpy()
    first, last = (np.datetime64(moment.replace(tzinfo=None), "us") for moment in (window.start, window.end))
    inside = (starts >= first) & (starts < last)
    done, prompt, answer = (
        np.asarray(demand[name].to_numpy(), dtype=np.float64)
        for name in ("completed", "input_tokens_mean", "output_tokens_mean")
    )
    names = np.asarray(demand["workload"].to_pylist(), dtype=object)
    found = {}
    for name in sorted(set(names[inside].tolist())):
        mine = inside & (names == name) & ~np.isnan(done)
        tokens = done[mine] * (prompt[mine] + answer[mine])
        measured = ~np.isnan(tokens)
        found[name] = Served(
            requests=float(done[mine].sum()), tokens=float(tokens[measured].sum()) if measured.any() else None
        )
    return found
