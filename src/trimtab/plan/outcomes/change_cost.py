"""What a change costs besides nodes: traffic as long as it lasts, and, spread over a horizon, what is paid once.

    own[o]   = hours / 730 * (traffic_usd_mo + (copy_usd + overlap_usd) / change_horizon_mo)
    entry[e] = hours / 730 * migration_weeks * engineer_week_usd / change_horizon_mo

An entry is another cloud: the work of going there is paid once, however many workloads go. The engineers' weeks of a lever are
not part of it, nor of any bill: the choice weighs them apart (`plan.effort`).
"""

from __future__ import annotations

from trimtab.fleet.market import Market
from trimtab.fleet.model import Workload
from trimtab.fleet.settings import Lever, Settings
from trimtab.plan.outcomes.outcome import Effects, placement
from trimtab.units import HR_PER_MO, S_PER_HR, micro_usd, usd

_LEAST_HORIZON_MO = 1.0


def own_micro_usd(workload: Workload, effects: Effects, market: Market, settings: Settings, hours: int) -> int:
    """Return what a workload's effects cost besides nodes over so many hours, in micro-dollars."""
    overlap_hr = settings.assumptions.rollout_overlap_hr
    if Lever.RELOCATION not in effects and not overlap_hr:
        return 0
    place = placement(workload, effects)
    if place.move is not None:
        return _over(hours, place.move.traffic_usd_mo + _spread_usd_mo(place.move.once_usd, settings))
    same = place.shared is None and place.pool.instance_type == workload.pool.instance_type
    if same or workload.pool.capacity_type.paid_anyway:
        return 0
    home_usd_hr = usd(market.rate(workload.pool)) * float(workload.held_node_seconds.mean()) / S_PER_HR
    return _over(hours, _spread_usd_mo(overlap_hr * home_usd_hr, settings))


def entries_of(workload: Workload, effects: Effects) -> frozenset[str]:
    """Return the other clouds that a workload's effects need."""
    move = placement(workload, effects).move if Lever.RELOCATION in effects else None
    return frozenset() if move is None or move.cloud is None else frozenset({move.cloud})


def entry_micro_usd(settings: Settings, hours: int) -> int:
    """Return what going to another cloud costs over so many hours, in micro-dollars."""
    return _over(hours, _spread_usd_mo(entry_usd(settings), settings))


def entry_usd(settings: Settings) -> float:
    """Return what going to another cloud costs once."""
    return settings.ventures.migration_weeks * settings.planning.engineer_week_usd


def _spread_usd_mo(once_usd: float, settings: Settings) -> float:
    return once_usd / max(settings.planning.change_horizon_mo, _LEAST_HORIZON_MO)


def _over(hours: int, usd_mo: float) -> int:
    return micro_usd(usd_mo * hours / HR_PER_MO)
