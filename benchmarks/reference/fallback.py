"""Where a job with a deadline runs in the next step: on spot, on demand, or nowhere yet.

Time goes in steps as long as a launch: a step that launches is paid and brings no progress. A rule sees the state at the
start of a step and names the mode for it. Three rules: greedy (spot whenever it is up, on demand when the deadline forces
it), Uniform Progress ("Can't Be Late", NSDI'24), and a plan: the best action for each state of a learned market, looked up
in a table that `spot_plan` works out by dynamic programming. Each is caught by a safety net, so that none
misses a deadline that on-demand capacity can meet.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Protocol


class Mode(IntEnum):
    """Where the job is during a step."""

    IDLE = 0
    SPOT = 1
    ON_DEMAND = 2


class Rule(IntEnum):
    """Which rule decides."""

    ON_DEMAND = 0
    GREEDY = 1
    UNIFORM_PROGRESS = 2
    PLAN = 3


class View(NamedTuple):
    """What a rule knows at the start of a step; all counts are in steps.

    `age` counts the steps for which spot has been up, or down, the present one included.
    """

    elapsed: int
    done: int
    mode: Mode
    spot_up: bool
    age: int
    work: int
    deadline: int


class Numbers(Protocol):
    """A row of whole numbers: bytes or a tuple live, an array in replay."""

    def __getitem__(self, at: int, /) -> int: ...
    def __len__(self) -> int: ...


def remaining(view: View) -> int:
    """Return the steps of work still to do."""
    return view.work - view.done


def left(view: View) -> int:
    """Return the steps until the deadline."""
    return view.deadline - view.elapsed


def greedy(view: View) -> Mode:
    """Wait for spot; go on demand when the deadline forces it, and stay there."""
    if left(view) <= remaining(view) + 2:
        if view.mode == Mode.SPOT and left(view) > remaining(view) + 1:
            return Mode.SPOT
        return Mode.ON_DEMAND
    if view.mode == Mode.ON_DEMAND:
        return Mode.ON_DEMAND
    return Mode.SPOT if view.spot_up else Mode.IDLE


def uniform_progress(view: View) -> Mode:
    """Pay for on-demand capacity whenever spot is down and progress is behind elapsed x work / deadline.

    Leaves on-demand capacity for spot as soon as spot is up, and for idling two launches ahead of that line.
    """
    pace = view.work / view.deadline
    if left(view) <= remaining(view) + 1:
        return Mode.ON_DEMAND
    if view.mode == Mode.ON_DEMAND:
        if view.spot_up and left(view) > remaining(view) + 3:
            return Mode.SPOT
        return Mode.ON_DEMAND if view.done < (view.elapsed + 2) * pace else Mode.IDLE
    if view.spot_up:
        return Mode.SPOT
    return Mode.ON_DEMAND if view.done < view.elapsed * pace else Mode.IDLE


def age_bin(age: int, age_edges: Numbers) -> int:
    """Return the bin of an age: the last one that begins at or before it."""
    found = 0
    for i in range(len(age_edges)):
        if age_edges[i] <= age:
            found = i
    return found


def plan_index(view: View, states: int, bin_at: int) -> int:
    """Return where a plan keeps the action for a state: by steps left, mode, market state, work remaining."""
    market = bin_at + (states // 2 if view.spot_up else 0)
    return ((left(view) * 3 + view.mode) * states + market) * (view.work + 1) + remaining(view)


def planned(view: View, actions: Numbers, age_edges: Numbers) -> Mode:
    """Look the best action up in a plan made for this work and for at least this deadline."""
    action = actions[plan_index(view, 2 * len(age_edges), age_bin(view.age, age_edges))]
    if action == Mode.SPOT:
        return Mode.SPOT
    return Mode.ON_DEMAND if action == Mode.ON_DEMAND else Mode.IDLE


def safe(wanted: Mode, view: View) -> Mode:
    """Force on-demand capacity where another step without it might miss the deadline; spot that is down is no spot.

    The net of the published rules; a plan has a closer one, `keeps_deadline`.
    """
    must_hurry = left(view) - 1 < remaining(view) + 1
    if must_hurry and wanted != Mode.ON_DEMAND:
        progressing = wanted == Mode.SPOT and view.mode == Mode.SPOT
        if not (progressing and left(view) > remaining(view) + 1):
            return Mode.ON_DEMAND
    if wanted == Mode.SPOT and not view.spot_up:
        return Mode.IDLE
    return wanted


def keeps_deadline(wanted: Mode, view: View) -> bool:
    """Tell whether on-demand capacity can still meet the deadline after a step in that mode, if spot is then lost."""
    progress = 1 if wanted == view.mode and wanted != Mode.IDLE else 0
    launch = 0 if wanted == Mode.ON_DEMAND else 1
    return remaining(view) - progress + launch <= left(view) - 1 or remaining(view) == progress


def decide(rule: Rule, view: View, actions: Numbers, age_edges: Numbers) -> Mode:
    """Return the mode for the step that begins, the safety net included; only a plan needs actions and ages."""
    if rule == Rule.GREEDY:
        return safe(greedy(view), view)
    if rule == Rule.UNIFORM_PROGRESS:
        return safe(uniform_progress(view), view)
    if rule == Rule.PLAN:
        wanted = planned(view, actions, age_edges)
        return wanted if keeps_deadline(wanted, view) else Mode.ON_DEMAND
    return Mode.ON_DEMAND
