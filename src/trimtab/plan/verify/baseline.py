"""What a fleet used and did in a window, small enough to keep with a plan: a later window is compared with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet, Workload
from trimtab.ledger import IDLE
from trimtab.ledger.arrays import FloatArray
from trimtab.units import HR_PER_DAY, S_PER_HR, usd

STILL_FRAC = 0.02
"""Capacity that departs from its mean by less than this (standard deviation) was held still."""
_PEAK_QUANTILE = 0.999
REQUESTS = "requests"
"""The work of a service whose requests are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolUse:
    """Mean nodes of a pool over a window, and their rate at the time."""

    pool: Pool
    nodes: float
    usd_per_node_hr: float

    @property
    def usd_hr(self) -> float:
        """Return what they cost an hour."""
        return self.nodes * self.usd_per_node_hr


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadUse:
    """A workload's mean nodes, whether they stood still, and the work it did with them.

    Work is requests where there are any, else GPUs' worth of activity; `peak_work_per_hr` is its 99.9th percentile by hour, 0
    where nothing was measured. `peak_load_frac` is that of its activity over the GPUs it held.
    """

    workload: str
    uses: tuple[PoolUse, ...]
    held_still: bool
    mean_capacity: float
    """Mean ready replicas of a service, else mean nodes that it ran on (`capacity_of`)."""
    work: str
    mean_work_per_hr: float
    peak_work_per_hr: float
    peak_load_frac: float
    fixed_frac: float = 0.0
    """Share of its capacity that it used however little work there was; 0 in plans kept before this was known."""

    @property
    def usd_hr(self) -> float:
        """Return what it cost an hour."""
        return sum(use.usd_hr for use in self.uses)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The way a fleet ran over a window; `unheld` are nodes that no workload held."""

    workloads: tuple[WorkloadUse, ...] = ()
    unheld: tuple[PoolUse, ...] = ()

    @property
    def usd_hr(self) -> float:
        """Return the bill an hour."""
        return sum(workload.usd_hr for workload in self.workloads) + sum(use.usd_hr for use in self.unheld)


def baseline_of(fleet: Fleet, market: Market) -> Baseline:
    """Return how a fleet ran; every node goes to its holders by GPU time held over the window, so that the bill adds up."""
    nodes = nodes_by_owner(fleet)
    rates = {pool: usd(market.rate(pool)) for pool in fleet.usage.pools}

    def uses(owner: int) -> tuple[PoolUse, ...]:
        means = sorted((pool, mean) for (holder, pool), mean in nodes.items() if holder == owner)
        return tuple(PoolUse(pool=pool, nodes=mean, usd_per_node_hr=rates[pool]) for pool, mean in means)

    return Baseline(
        workloads=tuple(_workload_use(fleet, index, uses(index)) for index in range(len(fleet.workloads))),
        unheld=uses(IDLE),
    )


def nodes_by_owner(fleet: Fleet) -> dict[tuple[int, Pool], float]:
    """Return mean nodes by workload index (IDLE: held by no workload) and pool; they add up to the fleet's."""
    cells = fleet.holdings
    mine = cells.owner != IDLE
    held = np.zeros((len(fleet.nodes), len(fleet.workloads)))
    np.add.at(held, (cells.node[mine], cells.owner[mine]), cells.node_seconds[mine])
    total = held.sum(axis=1)
    means: dict[tuple[int, Pool], float] = {}
    for row, node in enumerate(fleet.nodes):
        mean = float(fleet.node_seconds[row].sum()) / fleet.window.seconds
        shares = {int(owner): held[row, owner] / total[row] for owner in np.flatnonzero(held[row])} or {IDLE: 1.0}
        for owner, share in shares.items():
            means[owner, node.pool] = means.get((owner, node.pool), 0.0) + mean * float(share)
    return means


def capacity_of(fleet: Fleet, index: int) -> FloatArray:
    """Return the capacity that a workload ran on by hour (n_hours,): ready replicas of a service, else nodes, shared or not."""
    workload = fleet.workloads[index]
    if workload.service is not None and np.isfinite(workload.service.replicas).any():
        return _by_hour(workload.service.replicas, workload.service.step_s, fleet.window.hours)
    return nodes_of(fleet, index)


def nodes_of(fleet: Fleet, index: int) -> FloatArray:
    """Return how many of the nodes that a workload ever ran on were up, by hour (n_hours,)."""
    rows = np.unique(fleet.holdings.node[fleet.holdings.owner == index])
    return np.asarray(fleet.node_seconds[rows].sum(axis=0) / S_PER_HR, dtype=np.float64)


def work_of(workload: Workload) -> tuple[str, FloatArray]:
    """Return what stands for a workload's work, and it by hour (n_hours,); NaN where nothing was measured."""
    service = workload.service
    if service is not None and np.isfinite(service.arrivals).any():
        rate = _by_hour(service.arrivals, service.step_s, len(workload.gpu_seconds))
        return REQUESTS, np.asarray(rate * S_PER_HR / service.step_s, dtype=np.float64)
    return "active GPU-hours", workload.activity.busy_gpus


def is_still(capacity: FloatArray) -> bool:
    """Return whether capacity was held still."""
    mean = float(np.nanmean(capacity)) if np.isfinite(capacity).any() else 0.0
    return mean <= 0 or float(np.nanstd(capacity)) <= STILL_FRAC * mean


def _workload_use(fleet: Fleet, index: int, uses: tuple[PoolUse, ...]) -> WorkloadUse:
    workload = fleet.workloads[index]
    name, work = work_of(workload)
    held_gpus = workload.gpu_seconds / S_PER_HR
    load = np.divide(workload.activity.busy_gpus, held_gpus, out=np.full(len(held_gpus), np.nan), where=held_gpus > 0)
    return WorkloadUse(
        workload=workload.name,
        uses=uses,
        held_still=is_still(nodes_of(fleet, index)),
        mean_capacity=float(np.nanmean(capacity_of(fleet, index))),
        work=name,
        mean_work_per_hr=_mean(work),
        peak_work_per_hr=_peak(work),
        peak_load_frac=_peak(load),
        fixed_frac=fixed_frac(work, capacity_of(fleet, index)),
    )


def fixed_frac(work: FloatArray, capacity: FloatArray) -> float:
    """Return the share of mean capacity that does not move with work: where the least-squares line meets no work.

    Minimum replicas, and replicas being whole, keep some of it up whatever the demand.
    """
    known = np.isfinite(work) & np.isfinite(capacity)
    if known.sum() < HR_PER_DAY or np.ptp(work[known]) <= 0 or capacity[known].mean() <= 0:
        return 0.0
    slope, base = np.polyfit(work[known], capacity[known], 1)
    return float(np.clip(base / capacity[known].mean(), 0.0, 1.0)) if slope > 0 else 1.0


def _mean(values: FloatArray) -> float:
    seen = values[np.isfinite(values)]
    return float(seen.mean()) if len(seen) else 0.0


def _peak(values: FloatArray) -> float:
    seen = values[np.isfinite(values)]
    return float(np.quantile(seen, _PEAK_QUANTILE)) if len(seen) else 0.0


def _by_hour(steps: FloatArray, step_s: float, hours: int) -> FloatArray:
    """Return the mean of the known steps of each hour (n_hours,); NaN where none is."""
    hour = np.minimum(np.arange(len(steps)) * step_s // S_PER_HR, hours - 1).astype(np.int64)
    known = np.isfinite(steps)
    count = np.bincount(hour[known], minlength=hours)
    total = np.bincount(hour[known], weights=steps[known], minlength=hours)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
