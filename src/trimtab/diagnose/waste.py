"""Where the bill goes: by workload, team and kind, and as waste: every micro-dollar gets one kind, the first that applies.

What broken things took comes first, whoever held it (`diagnose.broken`); the rest is split as if they had not been.
Node time that no workload held is split into nodes whose holder is unknown, nodes that were never held, hours outside a
workload's own on nodes that it uses, and node hours with only non-GPU pods. What a workload held is split hour by hour: not
measured, idle, GPUs of a run that did nothing, replicas beyond what activity needs in the healthy band, GPUs larger than the
work, the price of buying it the wrong way, and the rest, which was useful.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.diagnose.findings import UNALLOCATED, Spend, Waste, WasteKind
from trimtab.fleet.model import Fleet, Workload
from trimtab.fleet.settings import Bands
from trimtab.ledger import IDLE, Allocation
from trimtab.ledger.arrays import Flags, FloatArray, IntArray
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import HR_PER_WEEK, S_PER_HR, apportion


def spend_by(fleet: Fleet, allocation: Allocation, key: Callable[[Workload], str]) -> tuple[Spend, ...]:
    """Sum the bill by a property of workloads, largest first; node time that no workload held is a row of its own."""
    costs = allocation.by_owner(len(fleet.workloads))
    names = [key(workload) for workload in fleet.workloads]
    rows = []
    for name in dict.fromkeys(names):
        members = [index for index, other in enumerate(names) if other == name]
        rows.append(_row(fleet, name, members, int(costs[members].sum())))
    idle = allocation.idle + allocation.unused_commitment
    if idle:
        rows.append(Spend(name=UNALLOCATED, micro_usd=idle, gpu_hours=0.0, activity_frac=None))
    return tuple(sorted(rows, key=lambda row: (-row.micro_usd, row.name)))


def spend_by_workload(fleet: Fleet, allocation: Allocation) -> tuple[Spend, ...]:
    """Sum the bill by workload, largest first, each with its team and kind."""
    known = {workload.name: workload for workload in fleet.workloads}
    return tuple(
        replace(row, team=known[row.name].team, kind=known[row.name].kind.value) if row.name in known else row
        for row in spend_by(fleet, allocation, lambda workload: workload.name)
    )


def _row(fleet: Fleet, name: str, members: list[int], cost: int) -> Spend:
    workloads = [fleet.workloads[index] for index in members]
    measured = [w for w in workloads if w.activity.mean_frac is not None]
    hours = sum(w.gpu_hours for w in measured)
    active = sum(w.gpu_hours * (w.activity.mean_frac or 0.0) for w in measured)
    return Spend(
        name=name,
        micro_usd=cost,
        gpu_hours=sum(w.gpu_hours for w in workloads),
        activity_frac=active / hours if hours else None,
    )


def week_activity(workload: Workload, first_week_hour: int) -> FloatArray:
    """Return mean activity per hour of the week (168,); NaN where nothing was held or measured."""
    held = workload.gpu_seconds / S_PER_HR
    level = np.divide(workload.activity.busy_gpus, held, out=np.full(len(held), np.nan), where=held > 0)
    slot = (first_week_hour + np.arange(len(held))) % HR_PER_WEEK
    seen = ~np.isnan(level)
    total = np.bincount(slot[seen], weights=level[seen], minlength=HR_PER_WEEK)
    number = np.bincount(slot[seen], minlength=HR_PER_WEEK)
    mean = np.divide(total, number, out=np.full(HR_PER_WEEK, np.nan), where=number > 0)
    return np.asarray(mean, dtype=np.float64)


_PER_WORKLOAD = (
    WasteKind.UNMEASURED,
    WasteKind.IDLE,
    WasteKind.OVER_PARALLEL,
    WasteKind.OVER_PROVISIONED,
    WasteKind.OVER_SIZED,
    WasteKind.BUYING_OPTION,
    WasteKind.USEFUL,
)
_SHOWN = 4


def waste_of(
    fleet: Fleet,
    allocation: Allocation,
    bands: Bands,
    cheaper_frac: Mapping[Pool, float],
    non_gpu_nodes: frozenset[int] = frozenset(),
    lost: Sequence[BrokenCost] = (),
) -> tuple[Waste, ...]:
    """Split the bill by kind of waste, largest first; the kinds sum to the bill exactly.

    `cheaper_frac` is, per pool, the share of its rate that the best commitment on offer would save for steady use;
    `non_gpu_nodes` are nodes on which pods without GPUs ran; `lost` is what broken things took of which cells.
    """
    by_kind: dict[WasteKind, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    allocation = _without_broken(allocation, lost, by_kind)
    _idle_nodes(fleet, allocation, non_gpu_nodes, by_kind)
    costs = allocation.by_owner_hour(len(fleet.workloads), fleet.window.hours)
    cheaper = _cheaper_by_hour(fleet, allocation, cheaper_frac)
    for workload, cost, dearer in zip(fleet.workloads, costs, cheaper, strict=True):
        shares = _shares(workload, bands, dearer)
        for kind, amount in _split(cost, shares).items():
            by_kind[kind][workload.name] += amount
    by_kind[WasteKind.UNUSED_COMMITMENT]["commitments"] += allocation.unused_commitment
    found = [
        Waste(
            kind=kind,
            micro_usd=sum(parts.values()),
            where=tuple(sorted((name for name in parts if parts[name]), key=lambda name: -parts[name])[:_SHOWN]),
        )
        for kind, parts in by_kind.items()
    ]
    return tuple(
        sorted(
            (row for row in found if row.micro_usd),
            key=lambda row: (row.kind is WasteKind.USEFUL, -row.micro_usd),
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BrokenCost:
    """What one broken thing took of cells of the allocation (n_cells,), in micro-dollars."""

    kind: WasteKind
    subject: str
    cell: IntArray
    micro_usd: IntArray


def _without_broken(
    allocation: Allocation, lost: Sequence[BrokenCost], by_kind: dict[WasteKind, dict[str, int]]
) -> Allocation:
    """Return the allocation without what broken things took, which is counted under their kinds."""
    rest = allocation.cost.copy()
    for part in lost:
        by_kind[part.kind][part.subject] += int(part.micro_usd.sum())
        np.subtract.at(rest, part.cell, part.micro_usd)
    return replace(allocation, cost=rest)


def _cheaper_by_hour(fleet: Fleet, allocation: Allocation, cheaper_frac: Mapping[Pool, float]) -> FloatArray:
    """Return the share of a workload's cost that another way of buying its nodes would save (n_workloads, n_hours).

    A workload on nodes held in several ways is weighed by what each of them costs it.
    """
    cells = allocation.holdings
    frac = np.array([cheaper_frac.get(pool, 0.0) for pool in fleet.usage.pools])
    mine = cells.owner != IDLE
    saved = np.zeros((len(fleet.workloads), fleet.window.hours))
    np.add.at(saved, (cells.owner[mine], cells.hour[mine]), allocation.cost[mine] * frac[cells.pool[mine]])
    costs = allocation.by_owner_hour(len(fleet.workloads), fleet.window.hours)
    return np.divide(saved, costs, out=np.zeros_like(saved), where=costs > 0)


def _idle_nodes(
    fleet: Fleet,
    allocation: Allocation,
    non_gpu_nodes: frozenset[int],
    by_kind: dict[WasteKind, dict[str, int]],
) -> None:
    cells = allocation.holdings
    held_by: dict[int, set[int]] = defaultdict(set)
    for node, owner in set(zip(cells.node.tolist(), cells.owner.tolist(), strict=True)):
        if owner != IDLE:
            held_by[node].add(owner)
    for node, amount in enumerate(allocation.idle_by_node(len(fleet.nodes)).tolist()):
        if fleet.nodes[node].name in fleet.unknown_holders:
            by_kind[WasteKind.UNKNOWN_HOLDER][fleet.nodes[node].name] += amount
            continue
        if not held_by[node]:
            kind = WasteKind.NON_GPU_PODS if node in non_gpu_nodes else WasteKind.UNALLOCATED_NODES
            by_kind[kind][fleet.nodes[node].name] += amount
            continue
        owners = sorted(held_by[node])
        for owner, part in zip(owners, apportion(amount, [1.0] * len(owners)), strict=True):
            by_kind[WasteKind.HOURS_NOT_USED][fleet.workloads[owner].name] += part


def activity_by_hour(workload: Workload) -> FloatArray:
    """Return the activity of the GPUs that a workload held, by hour (n_hours,), 0..1; NaN where none was held or measured."""
    held = workload.gpu_seconds / S_PER_HR
    active: FloatArray = np.full(len(held), np.nan)
    np.divide(workload.activity.busy_gpus, held, out=active, where=held > 0)
    # a pod on a shared board may use more of it than is set aside for it
    return np.minimum(active, 1.0)


def is_idle(activity_frac: FloatArray, bands: Bands) -> Flags:
    """Tell the hours (n_hours,) in which GPUs that were held and measured did nothing worth the name."""
    return np.asarray(np.nan_to_num(activity_frac, nan=1.0) < bands.active_frac / 2, dtype=np.bool_)


def _shares(workload: Workload, bands: Bands, cheaper_frac: FloatArray) -> dict[WasteKind, FloatArray]:
    """Return the share of each hour's cost per kind (n_hours,), in order; each takes its part of what is left.

    `cheaper_frac` (n_hours,) is the share that another way of buying would save.
    """
    activity = workload.activity
    busy = activity_by_hour(workload)
    unmeasured = np.isnan(busy).astype(np.float64)
    level = np.nan_to_num(busy)
    idle = is_idle(busy, bands).astype(np.float64)
    inactive = 0.0 if activity.active_devices_frac is None else 1.0 - activity.active_devices_frac
    serving = workload.kind is WorkloadKind.SERVING
    parallel = np.full(len(busy), 0.0 if serving else inactive)
    working = np.clip(level / max(1.0 - (0.0 if serving else inactive), 1e-9), 0.0, 1.0)
    spare = np.clip(1.0 - working / bands.find_cause_frac, 0.0, 1.0)
    none = np.zeros(len(busy))
    return {
        WasteKind.UNMEASURED: unmeasured,
        WasteKind.IDLE: idle,
        WasteKind.OVER_PARALLEL: parallel,
        WasteKind.OVER_PROVISIONED: spare if serving else none,
        WasteKind.OVER_SIZED: none if serving else spare,
        WasteKind.BUYING_OPTION: cheaper_frac,
    }


def _split(cost: IntArray, shares: Mapping[WasteKind, FloatArray]) -> dict[WasteKind, int]:
    """Split an hourly cost (n_hours,) by shares of what the kinds before left over, exactly."""
    left = np.ones(len(cost))
    weights = []
    for kind in _PER_WORKLOAD[:-1]:
        weights.append(float((cost * left * shares[kind]).sum()))
        left = left * (1.0 - shares[kind])
    weights.append(float((cost * left).sum()))
    return dict(zip(_PER_WORKLOAD, apportion(int(cost.sum()), weights), strict=True))
