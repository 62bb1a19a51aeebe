"""When a run that can wait starts: at the next start of the cheap hours where that is within its slack, else at once.

The hour of the day is fixed beforehand, so the rule does not depend on the future. Kueue enacts it with a queue that holds
runs in the hours before (`spec.stopPolicy`), which is why runs that come earlier than that are not held.
"""

from __future__ import annotations

from typing import NamedTuple

from trimtab.units import S_PER_DAY, S_PER_HR


class DeferPolicy(NamedTuple):
    """Hold runs that come up to `within_s` before `start_hour` (UTC, 0 to 23) until then."""

    start_hour: int
    within_s: int


def start_s(policy: DeferPolicy, submit_s: float) -> float:
    """Return when a run starts; seconds count from any midnight UTC."""
    ahead_s = (policy.start_hour * S_PER_HR - submit_s) % S_PER_DAY
    return submit_s + ahead_s if ahead_s <= policy.within_s else submit_s
