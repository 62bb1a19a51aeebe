"""Where a job with a deadline runs when several zones sell spot, at their own prices and with time lost in moving.

A plan holds, for each of a few prices of time, the best action in every state of the market (`zone_plan`). A job with time to
spare takes the plan of the lowest price of time, which waits for the zone that is cheap and stays up; as the deadline comes
near it takes dearer ones. The safety net is that of `fallback`: on-demand capacity must still be able to finish.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Protocol


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
SPARE_STEPS = 5
"""Steps that the expected pace must leave over before a lower price of time is trusted."""


class Amounts(Protocol):
    """A row of floats."""

    def __getitem__(self, at: int, /) -> float: ...
    def __len__(self) -> int: ...


class ZoneView(NamedTuple):
    """What is known at the start of a step, in steps."""

    left: int
    remaining: int
    mode: ZoneMode
    home: int


def time_price_level(view: ZoneView, pace: Amounts) -> int:
    """Return the lowest price of time whose expected steps per step of work still meet the deadline."""
    for level in range(len(pace)):
        if pace[level] * view.remaining + SPARE_STEPS <= view.left:
            return level
    return len(pace) - 1


def kept(action: int, view: ZoneView) -> int:
    """Return the action, or on-demand capacity where the deadline could no longer be met after it if spot were lost."""
    if action == PAY:
        return PAY
    goes_on = view.mode == ZoneMode.SPOT and action == FIRST_ZONE + view.home
    progress = 1 if goes_on else 0
    if view.remaining == progress or view.remaining - progress + 1 <= view.left - 1:
        return action
    return PAY
