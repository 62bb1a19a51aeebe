"""When a training job on interruptible capacity saves, and what it does with a notice.

The rule balances what a save costs against the work that an interruption would destroy. It knows three things that the
usual interval does not: how the danger changes with a machine's age (measured life times, not only their mean), that
a notice which leaves time for a save destroys nothing, and that some notices never come. In the subset of Python that
Numba compiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from math import inf, sqrt
from typing import NamedTuple

REQUEUE_EXIT_CODE = 75
"""EX_TEMPFAIL of sysexits.h, "temporary failure, try again": what a requeue rule should look for."""
HAZARD_BINS = 8
REFINEMENTS = 3
"""Rounds in which the interval and the danger over that interval are made to agree; the third moves it by under 1 %."""


class StepDecision(Enum):
    """What the job does at a step boundary."""

    TRAIN = 0
    SAVE = 1
    SAVE_AND_STOP = 2
    STOP = 3
    """The notice leaves no time for a save: stop, so that the last checkpoint and its upload can finish."""


class Hazard(NamedTuple):
    """Interruptions per second by a machine's age: `rate_per_s[i]` holds from `edges_s[i]` to the next edge."""

    edges_s: tuple[float, ...]
    rate_per_s: tuple[float, ...]


class CheckpointRule(NamedTuple):
    """What is settled before the job starts.

    `notice_missing_frac` is the share of interruptions whose notice is missing or too late. `save_slack` multiplies the
    measured time of a save wherever being late would lose it; `margin_s` is added to it.
    """

    hazard: Hazard
    notice_s: float
    notice_missing_frac: float
    min_interval_s: float
    max_interval_s: float
    save_slack: float
    margin_s: float


class CheckpointState(NamedTuple):
    """What the rule remembers: when the newest save was begun, and which warning it has answered with a save."""

    saved_at_s: float
    answered: int


NOTHING_ANSWERED, RISK_ANSWERED, NOTICE_ANSWERED = 0, 1, 2


class Observation(NamedTuple):
    """What is seen at a step boundary.

    `stall_s` is how long a save holds the training up, `save_s` how long until it is durable (equal when saving is
    synchronous). `risk_raised` is a warning without a deadline (AWS's rebalance recommendation). `notice_left_s` is
    the time until the machine is taken, infinite without a notice.
    """

    now_s: float
    age_s: float
    step_s: float
    stall_s: float
    save_s: float
    saving: bool
    risk_raised: bool
    notice_left_s: float


def constant_hazard(mean_life_s: float) -> Hazard:
    """Return the hazard of a market of which only the mean life time is known."""
    return Hazard((0.0,), (1.0 / mean_life_s,))


def hazard_from_lifetimes(lifetimes_s: Sequence[float], bins: int = HAZARD_BINS) -> Hazard:
    """Return the interruption rate by age from observed life times, each of which ended in an interruption.

    Bins hold equally many interruptions; each bin's rate is its interruptions over the machine-seconds lived in it (the
    occurrence-exposure rate, the maximum-likelihood estimate for a piecewise constant hazard).
    """
    ordered = sorted(life for life in lifetimes_s if life > 0)
    if not ordered:
        raise ValueError("no life time above zero; give a mean life time instead")
    count = len(ordered)
    ends = sorted(
        {ordered[count * (index + 1) // bins - 1] for index in range(bins) if count * (index + 1) // bins > 0}
    )
    edges, rates, start = [], [], 0.0
    for end in ends:
        events = sum(1 for life in ordered if start < life <= end)
        exposure_s = sum(min(life, end) - start for life in ordered if life > start)
        edges.append(start)
        rates.append(events / exposure_s)
        start = end
    return Hazard(tuple(edges), tuple(rates))


def expected_interruptions(hazard: Hazard, from_age_s: float, to_age_s: float) -> float:
    """Return the integral of the hazard between two ages."""
    total = 0.0
    last = len(hazard.edges_s) - 1
    for index in range(last + 1):
        start = max(from_age_s, hazard.edges_s[index])
        end = to_age_s if index == last else min(to_age_s, hazard.edges_s[index + 1])
        if end > start:
            total += (end - start) * hazard.rate_per_s[index]
    return total


def time_to_save_s(rule: CheckpointRule, save_s: float) -> float:
    """Return the time a save is given when being late would lose it."""
    return save_s * rule.save_slack + rule.margin_s


def losing_frac(rule: CheckpointRule, save_s: float, step_s: float) -> float:
    """Return the share of interruptions that destroy the work since the last save.

    A notice saves the work if the step under way and one save fit into it.
    """
    if step_s + time_to_save_s(rule, save_s) <= rule.notice_s:
        return rule.notice_missing_frac
    return 1.0


def young_daly_interval_s(cost_s: float, mean_life_s: float) -> float:
    """Return sqrt(2 C M), the interval of least loss under a constant hazard (Young 1974; Daly 2006, first order)."""
    return sqrt(2.0 * cost_s * mean_life_s)


def interval_s(rule: CheckpointRule, age_s: float, stall_s: float, save_s: float, step_s: float) -> float:
    """Return how long to train from one save to the next at this age of the machine.

    It is Young's interval with the mean hazard over the interval itself, counting only the interruptions that destroy
    work. It is never shorter than a save takes. Equal bounds fix it.
    """
    if rule.max_interval_s <= rule.min_interval_s:
        return rule.min_interval_s
    share = losing_frac(rule, save_s, step_s)
    floor_s = max(rule.min_interval_s, save_s)
    span_s = max(floor_s, 1.0)
    for _ in range(REFINEMENTS):
        danger = share * expected_interruptions(rule.hazard, age_s, age_s + span_s) / span_s
        wanted_s = rule.max_interval_s if danger <= 0.0 else sqrt(2.0 * stall_s / danger)
        span_s = max(floor_s, min(rule.max_interval_s, wanted_s))
        if span_s <= 0.0:
            break
    return span_s


def decide(rule: CheckpointRule, state: CheckpointState, seen: Observation) -> tuple[CheckpointState, StepDecision]:
    """Return what to do at this step boundary.

    On a notice the job saves at once if a save fits, trains on, and saves and stops when one more step would endanger
    the last save. Without a notice it saves when the interval is over, and once when the risk is raised. It never
    begins a save while one is under way, except the last.
    """
    if seen.notice_left_s < inf:
        return _decide_on_notice(rule, state, seen)
    if seen.saving:
        return state, StepDecision.TRAIN
    if seen.risk_raised and state.answered == NOTHING_ANSWERED:
        return CheckpointState(seen.now_s, RISK_ANSWERED), StepDecision.SAVE
    due_s = interval_s(rule, seen.age_s, seen.stall_s, seen.save_s, seen.step_s)
    if seen.now_s - state.saved_at_s >= due_s:
        return CheckpointState(seen.now_s, state.answered), StepDecision.SAVE
    return state, StepDecision.TRAIN


def _decide_on_notice(
    rule: CheckpointRule, state: CheckpointState, seen: Observation
) -> tuple[CheckpointState, StepDecision]:
    first_s = seen.save_s if seen.saving else 0.0
    needed_s = first_s + time_to_save_s(rule, seen.save_s)
    if seen.notice_left_s < first_s + seen.save_s:
        return state, StepDecision.STOP
    if seen.notice_left_s < needed_s + 2.0 * seen.step_s:
        return CheckpointState(seen.now_s, NOTICE_ANSWERED), StepDecision.SAVE_AND_STOP
    if state.answered != NOTICE_ANSWERED and not seen.saving:
        return CheckpointState(seen.now_s, NOTICE_ANSWERED), StepDecision.SAVE
    return state, StepDecision.TRAIN
