"""What nodes cost: by the hour of the clock, committed nodes first, whether used or not.

AWS documents the order: a reservation's hours cover running instances of its type clock hour by clock hour, up to 3,600 seconds
each; what is left is on demand (docs.aws.amazon.com/AWSEC2/latest/UserGuide/concepts-reserved-instances-application.html).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.proving.world.clock import HOUR_S

Floats = npt.NDArray[np.float64]
HOME_REGION = "us-east-1"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Kind:
    """A kind of node on the bill."""

    instance_type: str
    capacity: str = "on-demand"
    region: str = HOME_REGION


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """So many nodes paid for all the time at their own rate."""

    instance_type: str
    nodes: float
    usd_hr: float


def node_hours(lives: Iterable[tuple[float, float]], *, start_s: float, hours: int) -> Floats:
    """Return the node-hours of each clock hour (n_hours,) of lives (start, end) within a window."""
    found = np.zeros(hours)
    edges = start_s + np.arange(hours + 1) * HOUR_S
    for begin, end in lives:
        first = max(int((begin - start_s) // HOUR_S), 0)
        last = min(int(-(-(end - start_s) // HOUR_S)), hours)
        for hour in range(first, last):
            found[hour] += max(0.0, min(end, edges[hour + 1]) - max(begin, edges[hour])) / HOUR_S
    return found


def bill_usd(
    used: Mapping[Kind, Floats], rates: Mapping[Kind, float | Floats], committed: Iterable[Committed] = ()
) -> float:
    """Return the bill of node-hours by kind and clock hour; a rate may change by the hour."""
    total = 0.0
    left = {kind: hours.copy() for kind, hours in used.items()}
    for one in committed:
        kind = Kind(instance_type=one.instance_type)
        if kind in left:
            total += one.nodes * one.usd_hr * len(left[kind])
            left[kind] = np.maximum(left[kind] - one.nodes, 0.0)
        else:
            length = max((len(hours) for hours in used.values()), default=0)
            total += one.nodes * one.usd_hr * length
    return total + sum(float((hours * rates[kind]).sum()) for kind, hours in left.items())
