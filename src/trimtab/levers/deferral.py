"""Move runs that can wait to other hours: onto nodes that services leave idle under their commitments, or into cheap hours."""

from __future__ import annotations

from trimtab.fleet.effects import DeferRuns
from trimtab.fleet.kinds import RUN_KINDS
from trimtab.fleet.model import Workload
from trimtab.fleet.settings import Assumptions
from trimtab.policies.deferral import DeferPolicy
from trimtab.units import HR_PER_DAY, S_PER_HR

EVERY_HR = 3
"""Hours of the day that are tried where nobody named cheap ones: which are idle, only the joint plan knows."""

_MOST_S = 23 * S_PER_HR
"""A queue opens for at least an hour a day."""


def propose(workload: Workload, assumptions: Assumptions) -> tuple[DeferRuns, ...]:
    """Return one rule for each hour to wait for, for runs declared deferrable; nodes come and go with the runs."""
    declared = workload.spec.deferrable
    if workload.kind not in RUN_KINDS or workload.jobs is None or declared is None:
        return ()
    slack_s = min(_MOST_S, round(declared.within_hr * S_PER_HR - assumptions.node_startup_s))
    if slack_s <= 0:
        return ()
    hours = declared.start_hours or tuple(range(0, HR_PER_DAY, EVERY_HR))
    return tuple(
        DeferRuns(policy=DeferPolicy(start_hour=hour, within_s=slack_s), startup_s=assumptions.node_startup_s)
        for hour in sorted(set(hours))
    )
