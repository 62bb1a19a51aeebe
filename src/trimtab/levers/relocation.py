"""Move to another region, or on request to another cloud, where the same work costs less than moving and the traffic do."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from trimtab.fleet.effects import Relocate, UseOffering
from trimtab.fleet.elsewhere import fitting_offerings
from trimtab.fleet.market import Market
from trimtab.fleet.model import Workload
from trimtab.fleet.reach import Region, home_of, is_near, offerings_elsewhere
from trimtab.fleet.settings import Lever, Settings
from trimtab.physics.formats import WeightFormat
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import S_PER_HR, usd

LEVER = Lever.RELOCATION


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocations:
    """The places that a workload could move to, and how many were refused for which reason."""

    fitting: tuple[Relocate, ...]
    refused: Counter[str]


def propose(
    workload: Workload, market: Market, settings: Settings, *, stored: WeightFormat | None = None
) -> Relocations:
    """Judge every whole-GPU node on demand wherever else the workload may run (`fleet.reach`), its own type among them."""
    offerings = offerings_elsewhere(workload, market)
    judged = fitting_offerings(workload, offerings, market, settings.assumptions, stored)
    return Relocations(
        fitting=tuple(relocated(workload, size, market, settings) for size in judged.fitting), refused=judged.refused
    )


def relocated(workload: Workload, size: UseOffering, market: Market, settings: Settings) -> Relocate:
    """Return a move with what it costs: data copied and both places up once, traffic across the border each month.

    Traffic between two regions of one cloud is paid at `ownership.region_traffic_usd_gib`, out of the cloud at
    `ownership.egress_usd_gib`.
    """
    home, there = home_of(workload), Region(size.pool.provider, size.pool.region)
    prices, assumed = settings.ownership, settings.assumptions
    usd_gib = prices.region_traffic_usd_gib if home.provider == there.provider else prices.egress_usd_gib
    rtt_s = assumed.region_rtt_s if is_near(home, there) else assumed.continent_rtt_s
    data_gib, traffic_gib_mo = workload.spec.data_gib or 0.0, workload.spec.traffic_gib_mo or 0.0
    home_usd_hr = usd(market.rate(workload.pool)) * float(workload.held_node_seconds.mean()) / S_PER_HR
    return Relocate(
        to=size,
        home=workload.pool,
        rtt_s=rtt_s if workload.kind is WorkloadKind.SERVING else 0.0,
        data_gib=data_gib,
        traffic_gib_mo=traffic_gib_mo,
        copy_usd=data_gib * usd_gib,
        overlap_usd=0.0 if workload.pool.capacity_type.paid_anyway else assumed.move_overlap_hr * home_usd_hr,
        traffic_usd_mo=traffic_gib_mo * usd_gib,
    )
