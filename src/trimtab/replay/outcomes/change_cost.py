"""What a change costs besides nodes: traffic as long as it lasts, and, spread over a horizon, what is paid once.

    own[o]   = hours / 730 * (traffic_usd_mo + (copy_usd + overlap_usd) / change_horizon_mo)
    entry[e] = hours / 730 * migration_weeks * engineer_week_usd / change_horizon_mo

An entry is another cloud: the work of going there is paid once, however many workloads go. The engineers' weeks of a lever are
not part of it, nor of any bill: the choice weighs them apart (`plan.effort`).
"""

from __future__ import annotations

from collections.abc import Mapping

from trimtab.catalog.pools import Pool
from trimtab.deployment.deployment import Deployment
from trimtab.deployment.placement import resolve
from trimtab.fleet.market import Market
from trimtab.fleet.model import IntArray, Workload
from trimtab.fleet.settings import Settings
from trimtab.ledger import best_count
from trimtab.units import HR_PER_MO, S_PER_HR, micro_usd, usd

_LEAST_HORIZON_MO = 1.0


def own_micro_usd(workload: Workload, deployment: Deployment, market: Market, settings: Settings, hours: int) -> int:
    """Return what a workload's deployment costs besides nodes over so many hours, in micro-dollars."""
    overlap_hr = settings.assumptions.rollout_overlap_hr
    if deployment.relocation is None and not overlap_hr:
        return 0
    place = resolve(workload, deployment)
    # traffic goes on every month; the copy is paid once and spread
    if place.move is not None:
        return _over(hours, place.move.traffic_usd_mo + _spread_usd_mo(place.move.once_usd, settings))
    # the same nodes, or nodes that are paid anyway: no second place is billed while both are up
    same = place.shared is None and place.pool.instance_type == workload.pool.instance_type
    if same or workload.pool.capacity_type.paid_anyway:
        return 0
    # for the overlap the old place is up too, at its mean use
    home_usd_hr = usd(market.rate(workload.pool)) * float(workload.held_node_seconds.mean()) / S_PER_HR
    return _over(hours, _spread_usd_mo(overlap_hr * home_usd_hr, settings))


def entries_of(workload: Workload, deployment: Deployment) -> frozenset[str]:
    """Return the other clouds that a workload's deployment needs."""
    move = None if deployment.relocation is None else resolve(workload, deployment).move
    return frozenset() if move is None or move.cloud is None else frozenset({move.cloud})


def entry_micro_usd(settings: Settings, hours: int) -> int:
    """Return what going to another cloud costs over so many hours, in micro-dollars."""
    return _over(hours, _spread_usd_mo(entry_usd(settings), settings))


def entry_usd(settings: Settings) -> float:
    """Return what going to another cloud costs once."""
    return settings.ventures.migration_weeks * settings.planning.engineer_week_usd


def alone_cost(usage: Mapping[Pool, IntArray], market: Market) -> int:
    """Return what a use costs with the commitments that are best for it alone, in micro-dollars."""
    total = 0
    for pool, seconds in usage.items():
        rate, price = market.rate(pool), market.commitment(pool)
        # a commitment that is no cheaper than on demand is never bought
        if price is None or micro_usd(price.usd_hr) >= rate:
            total += rate * int(seconds.sum()) // S_PER_HR
            continue
        committed = micro_usd(price.usd_hr)
        count = best_count(seconds, rate, committed)
        # what the committed nodes do not cover is on demand
        beyond = (seconds - count * S_PER_HR).clip(min=0)
        total += count * committed * len(seconds) + rate * int(beyond.sum()) // S_PER_HR
    return total


def _spread_usd_mo(once_usd: float, settings: Settings) -> float:
    return once_usd / max(settings.planning.change_horizon_mo, _LEAST_HORIZON_MO)


def _over(hours: int, usd_mo: float) -> int:
    return micro_usd(usd_mo * hours / HR_PER_MO)
