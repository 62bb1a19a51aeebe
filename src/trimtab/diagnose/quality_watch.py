"""How many requests a day to check in production, so that a drop in the answers' quality is noticed in time.

Each day the mean over the last `days` days is compared with what it was. An alarm is a mean that lies so low that chance puts
it there on one day in 365: at most one false alarm a year, whatever days share. A drop is noticed within `days` days in 9 of 10
cases, since the window lies wholly behind the drop then. With z the normal quantiles of both:

    requests = (z_alarm sd_before + z_noticed sd_after)^2 / drop^2

*Paired*: a copy of a request goes to the former model too (a shadow), and both answers are scored; sd is that of the
differences, sqrt(p) with p the share of questions on which exactly one of both is right, and sqrt(p + drop - drop^2) once as
many more are lost. *Alone*: only the served answer is scored and compared with the share a that was right in the evaluation;
sd is sqrt(a (1 - a)). Formulas: Fleiss, Levin and Paik, Statistical Methods for Rates and Proportions, 3rd edition, chapters 4
and 13.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from trimtab.errors import UsageError

FALSE_ALARMS_A_YEAR = 1.0
NOTICED_FRAC = 0.9
_DAYS_A_YEAR = 365


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPlan:
    """Requests a day that are checked, in both ways, to notice a drop within some days."""

    drop_frac: float
    days: int
    paired_requests_per_day: int
    """Each is answered twice: by the served model and by the one before."""
    paired_alarm_frac: float
    """An alarm: the mean over the days lies so far below that of the evaluation."""
    alone_requests_per_day: int
    alone_alarm_frac: float


def watch_plan(*, drop_frac: float, days: int, discordant_frac: float, right_frac: float) -> WatchPlan:
    """Return the requests a day to check; `discordant_frac` and `right_frac` are those of the evaluation.

    Raises UsageError for a drop or a number of days that is not above 0, or a drop to below no right answer at all.
    """
    if not 0 < drop_frac < 1 or days < 1:
        raise UsageError("a plan needs a drop between 0 and 100 points and at least 1 day")
    if drop_frac >= right_frac:
        raise UsageError(f"a drop of {100 * drop_frac:g} points from {100 * right_frac:.1f} leaves nothing: give less")
    after = right_frac - drop_frac
    # at least the drop itself: those questions are lost by the served model alone
    shared = max(discordant_frac, drop_frac)
    paired_sd, alone_sd = math.sqrt(shared), math.sqrt(right_frac * (1 - right_frac))
    paired = _per_day(paired_sd, math.sqrt(shared + drop_frac - drop_frac**2), drop_frac, days)
    alone = _per_day(alone_sd, math.sqrt(after * (1 - after)), drop_frac, days)
    return WatchPlan(
        drop_frac=drop_frac,
        days=days,
        paired_requests_per_day=paired,
        paired_alarm_frac=_alarm(paired_sd, paired * days),
        alone_requests_per_day=alone,
        alone_alarm_frac=_alarm(alone_sd, alone * days),
    )


def alarm_quantile() -> float:
    """Return how many standard deviations below the former mean raises an alarm."""
    return -NormalDist().inv_cdf(FALSE_ALARMS_A_YEAR / _DAYS_A_YEAR)


def _alarm(sd_before: float, requests: int) -> float:
    # counts move in whole steps: half a step further keeps the promise on false alarms
    return alarm_quantile() * sd_before / math.sqrt(requests) + 0.5 / requests


def _per_day(sd_before: float, sd_after: float, drop_frac: float, days: int) -> int:
    z_noticed = NormalDist().inv_cdf(NOTICED_FRAC)
    needed = ((alarm_quantile() * sd_before + z_noticed * sd_after) / drop_frac) ** 2
    # the half step of the alarm is made up for by 1 / drop more
    return math.ceil((needed + 1 / drop_frac) / days)
