"""Where a job with a deadline runs when several zones sell spot, at their own prices and with time lost in moving.

A plan holds the best action for the work that is left, the slack, the job's mode and home, and every state of the market
(`zone_plan`). The safety net is that of `fallback`: on-demand capacity must still be able to finish.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class ZoneMode(IntEnum):
    """What the job is doing; its last checkpoint is in its home zone."""

    IDLE = 0
    SPOT = 1
    ON_DEMAND = 2
    ARRIVING = 3
    """On spot in a new zone, whose first step brings the checkpoint over."""


WAIT, PAY = 0, 1
FIRST_ZONE = 2
"""Actions: 0 waits, 1 takes on-demand capacity at home, 2 + z takes spot in zone z."""


class ZoneView(NamedTuple):
    """What is known at the start of a step, in steps."""

    left: int
    remaining: int
    mode: ZoneMode
    home: int


def kept(action: int, view: ZoneView) -> int:
    """Return the action, or on-demand capacity where the deadline could no longer be met after it if spot were lost."""
    if action == PAY:
        return PAY
    goes_on = view.mode == ZoneMode.SPOT and action == FIRST_ZONE + view.home
    progress = 1 if goes_on else 0
    if view.remaining == progress or view.remaining - progress + 1 <= view.left - 1:
        return action
    return PAY
