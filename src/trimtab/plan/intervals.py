"""How sure a saving is: its spread over the days of the fit window, and what the speed estimate adds."""

from __future__ import annotations

import math

import numpy as np

from trimtab.fleet.model import FloatArray
from trimtab.plan.model import Plan
from trimtab.provenance import Basis, Estimate
from trimtab.units import DAYS_PER_WEEK, HR_PER_DAY

_Z_80 = 1.2816
"""Normal quantile that leaves 10 % on each side."""


def saving_estimate(saving_usd_mo: float, hourly_saving: FloatArray, speed: Estimate | None) -> Estimate:
    """Return a monthly saving with an 80 % interval.

    `hourly_saving` (n_hours,) is what the action saves hour by hour when it comes last. Its mean is uncertain as the mean of
    weeks is (days of one week are alike, so that a week counts as one observation; with less than two whole weeks a day does).
    Where a new GPU's speed is predicted, its interval widens the saving in proportion.
    """
    relative = _relative_error(hourly_saving)
    wide = abs(saving_usd_mo) * _Z_80 * relative
    low, high = saving_usd_mo - wide, saving_usd_mo + wide
    basis, because = Basis.CALIBRATED, "replayed on the fit window; the spread of its weeks"
    if speed is not None and speed.low < speed.value:
        low = min(low, saving_usd_mo - abs(saving_usd_mo) * math.log(speed.value / speed.low))
        high = max(high, saving_usd_mo + abs(saving_usd_mo) * math.log(max(speed.high, speed.value) / speed.value) / 2)
        because += f"; speed x{speed.value:.2f} ({speed.low:.2f}-{speed.high:.2f})"
    return Estimate(value=saving_usd_mo, low=low, high=high, basis=basis, because=because)


def joint_saving(plan: Plan) -> Estimate:
    """Return a plan's whole monthly saving with an 80 % interval."""
    saving = plan.usd_mo(plan.joint_saving_micro_usd)
    return Estimate(value=saving, low=saving, high=saving, basis=Basis.CALIBRATED, because="")


def _relative_error(hourly: FloatArray) -> float:
    """Return the standard error of the mean as a share of the mean."""
    week = HR_PER_DAY * DAYS_PER_WEEK
    block = week if len(hourly) >= 2 * week else HR_PER_DAY
    blocks = len(hourly) // block
    if blocks < 2:
        return 0.5
    means = hourly[: blocks * block].reshape(blocks, block).mean(axis=1)
    centre = abs(float(means.mean()))
    return float(np.std(means, ddof=1) / math.sqrt(blocks) / centre) if centre > 0 else 0.0
