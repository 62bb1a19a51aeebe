"""How often a spot node is lost an hour, from the share of interrupted ones that a cloud publishes.

Amazon publishes bands of "the rate at which Spot has reclaimed capacity during the trailing month" (EC2 Spot Instance Advisor)
and does not say of what it is a share. Google's rate is that of preempted among all Spot VMs that stopped (Compute Engine API,
`CapacityHistoryResponsePreemptionRecord.preemption_rate`), so a share of lives. Nearly all spot nodes live for hours and not
for a month. Bands are read as shares of lives too: as shares of nodes that run for a whole month, the band "15-20%" would lose
nodes 545 times less often than what was recorded where the band is open. How long such lives are is not published. They are
assumed to be as long as makes the open band's middle share lose nodes at the recorded rate (`Assumptions.spot_loss_per_hr`, 1/6
an hour: lives of 5.5 hours). So the rate is one function of the share, continuous over the bands' edges.
"""

from __future__ import annotations

import math

from trimtab.catalog.kinds import InterruptionBucket
from trimtab.units import HR_PER_MO

_OPEN_FRAC = (InterruptionBucket.OVER_20.low_frac + 1.0) / 2
"""Middle share of the band that has no upper edge."""


def loss_per_hr(band: InterruptionBucket | None, assumed_loss_per_hr: float) -> float:
    """Return losses per hour of life in the middle of a band; the assumed rate where the band is open or none is published."""
    if band is None:
        return assumed_loss_per_hr
    high_frac = 1.0 if band.high_frac is None else band.high_frac
    return loss_of_share_per_hr((band.low_frac + high_frac) / 2, assumed_loss_per_hr)


def loss_of_share_per_hr(share_frac: float, assumed_loss_per_hr: float) -> float:
    """Return losses per hour of life where a share of lives below 1 is interrupted: a constant hazard over lives of one length.

    At least as many as if each life were a month, the longest that a rate of one month can speak of.
    """
    lost = -math.log1p(-share_frac)
    return max(assumed_loss_per_hr * lost / -math.log1p(-_OPEN_FRAC), lost / HR_PER_MO)
