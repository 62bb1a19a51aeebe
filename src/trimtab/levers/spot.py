"""Run interruptible work on spot, with on-demand to fall back on: runs that save and resume, services that are spread."""

from __future__ import annotations

from trimtab.catalog.kinds import CapacityType
from trimtab.fleet.effects import HedgeOnSpot, SetCapacityType
from trimtab.fleet.kinds import RUN_KINDS
from trimtab.fleet.market import Market
from trimtab.fleet.model import Workload
from trimtab.fleet.reach import offerings_for
from trimtab.fleet.settings import Assumptions, Lever
from trimtab.tables.workloads import WorkloadKind

LEVER = Lever.SPOT
FLOORS = (0, 4, 2)
"""One replica in so many stays on demand; 0: none."""


def offers(workload: Workload, market: Market, assumptions: Assumptions) -> tuple[SetCapacityType | HedgeOnSpot, ...]:
    """Return every way to run a workload from spot, by its kind; none for what nobody declared interruptible."""
    return (*propose(workload, market, assumptions), *hedges(workload, market, assumptions))


def propose(workload: Workload, market: Market, assumptions: Assumptions) -> tuple[SetCapacityType, ...]:
    """Return spot pools wherever it may run, for work declared interruptible; cheaper than on demand, or not at all."""
    if workload.kind not in RUN_KINDS or workload.jobs is None or not workload.spec.interruptible:
        return ()
    return tuple(
        SetCapacityType(
            pool=offering.pool.held_as(CapacityType.SPOT),
            loss_per_hr=market.loss_per_hr(offering.spot),
            on_demand_after=assumptions.spot_losses_before_on_demand,
        )
        for offering in offerings_for(workload, market)
        if offering.spot is not None
        and market.rate(offering.pool.held_as(CapacityType.SPOT)) < offering.rate_micro_usd_hr
    )


def hedges(workload: Workload, market: Market, assumptions: Assumptions) -> tuple[HedgeOnSpot, ...]:
    """Return ways to serve from spot, for services declared interruptible: each pool with each floor on demand."""
    if workload.kind is not WorkloadKind.SERVING or not workload.spec.interruptible:
        return ()
    return tuple(
        HedgeOnSpot(
            pool=offering.pool.held_as(CapacityType.SPOT),
            one_in=one_in,
            zones=assumptions.spot_zones,
            loss_per_hr=market.loss_per_hr(offering.spot),
            outage_s=assumptions.spot_outage_s,
        )
        for offering in offerings_for(workload, market)
        if offering.spot is not None
        and market.rate(offering.pool.held_as(CapacityType.SPOT)) < offering.rate_micro_usd_hr
        for one_in in FLOORS
    )
