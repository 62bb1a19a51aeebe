"""How a service stays available on spot: a floor of on-demand replicas, and more while spot has no capacity.

After SpotHedge (SkyServe, EuroSys 2025: spot replicas over several zones, on-demand ones to fall back on), in the form that
Karpenter enacts: two node pools split by a spread label, and a spot pool that lists on-demand as its last resort, from which it
moves back when spot returns.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from trimtab.policies.scaling import ROUNDING


class HedgePolicy(NamedTuple):
    """One replica in `one_in` stays on demand, rounded up; 0 keeps none there."""

    one_in: int


class ReplicaSplit(NamedTuple):
    """Replicas to have, ready and starting together, by how their nodes are held."""

    spot: int
    on_demand: int


def split(
    policy: HedgePolicy, wanted: int, spot_ready: int, spot_held: int, on_demand_held: int, spot_up: bool
) -> ReplicaSplit:
    """Return how to hold the replicas that are wanted.

    `spot_held` and `on_demand_held` count ready and starting ones; `spot_up` says whether any zone gives spot nodes. While
    none does, on demand fills the gap; when spot is back, on-demand replicas beyond the floor stay until spot ones are ready.
    """
    floor = 0
    if policy.one_in > 0:
        floor = math.ceil(wanted / policy.one_in - ROUNDING)
    spot = wanted - floor
    if not spot_up:
        return ReplicaSplit(min(spot, spot_held), max(floor, wanted - spot_held))
    return ReplicaSplit(spot, max(floor, min(on_demand_held, wanted - spot_ready)))
