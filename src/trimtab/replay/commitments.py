"""Replay a demand series under rules that commit: what is held in each hour, and what it costs against hindsight.

The game: the history is known, the test is not. On-demand units cost 1 an hour; a committed unit costs 1 - discount in every
hour from its purchase to the end of the test, used or not. Demand is in units in use per hour, fractions allowed.
"""

from __future__ import annotations

from enum import Enum
from typing import assert_never

import numpy as np

from trimtab.policies.commitment import (
    REVIEW_HR,
    LayerRule,
    evidence_limit_hr,
    no_evidence,
    observe,
    wanted_units,
)
from trimtab.replay.commit_choice import AVERAGE_SHARE, TOP_UP_WEEKS, best_level, cost, held_by_choice
from trimtab.replay.series import FloatArray
from trimtab.units import HR_PER_WEEK

__all__ = ["SIMPLE_RULES", "CommitRule", "best_level", "cost", "held_units", "layered"]


class CommitRule(Enum):
    """Who decides what is held."""

    NOTHING = "nothing, all on demand"
    AVERAGE_65 = "65 % of the average"
    AVERAGE = "the average"
    MINIMUM = "the minimum"
    NEWSVENDOR = "newsvendor"
    WEEKLY_TOP_UP = "newsvendor, topped up weekly"
    BREAK_EVEN = "online, at break-even"
    LAYERED = "evidence, in layers"
    CHOSEN = "trimtab"
    HINDSIGHT = "hindsight, one level"


SIMPLE_RULES = tuple(
    rule for rule in CommitRule if rule not in (CommitRule.LAYERED, CommitRule.CHOSEN, CommitRule.HINDSIGHT)
)
"""What anybody can buy by: regret is stated against the best of them, known afterwards."""


def held_units(rule: CommitRule, history: FloatArray, test: FloatArray, discount_frac: float) -> FloatArray:
    """Return the units held in each hour of the test (n_test,); only HINDSIGHT looks at hours that are still to come."""
    match rule:
        case CommitRule.NOTHING:
            level = 0.0
        case CommitRule.AVERAGE_65:
            level = AVERAGE_SHARE * float(history.mean())
        case CommitRule.AVERAGE:
            level = float(history.mean())
        case CommitRule.MINIMUM:
            level = float(history.min())
        case CommitRule.NEWSVENDOR:
            level = float(np.quantile(history, discount_frac))
        case CommitRule.HINDSIGHT:
            level = best_level(test, discount_frac)
        case CommitRule.WEEKLY_TOP_UP:
            return _weekly_top_up(history, test, discount_frac)
        case CommitRule.BREAK_EVEN:
            return _break_even(test, discount_frac)
        case CommitRule.LAYERED:
            return layered(history, test, discount_frac)
        case CommitRule.CHOSEN:
            return held_by_choice(history, test, discount_frac)
        case _:
            assert_never(rule)
    return np.full(len(test), level)


def layered(history: FloatArray, test: FloatArray, discount_frac: float, rule: LayerRule | None = None) -> FloatArray:
    """Return what `policies.commitment` holds in each hour (n_test,), reviewed daily, terms ending with the test."""
    chosen, term_hr = rule or LayerRule(), len(test)
    limit_hr = evidence_limit_hr(chosen, term_hr)
    evidence = no_evidence(float(history.max(initial=0.0)))
    # the history is evidence before anything is bought
    for units in history.tolist():
        evidence = observe(evidence, units, discount_frac, limit_hr)
    held, level = np.zeros(term_hr), 0.0
    for hour, units in enumerate(test.tolist()):
        # decided before this hour's use is known
        if hour % REVIEW_HR == 0:
            level = wanted_units(chosen, evidence, level, hour, term_hr)
        held[hour] = level
        evidence = observe(evidence, units, discount_frac, limit_hr)
    return held


def _weekly_top_up(history: FloatArray, test: FloatArray, discount_frac: float) -> FloatArray:
    """Rise each week to the newsvendor quantile of the last four, and never fall."""
    demand, held, level = np.concatenate([history, test]), np.zeros(len(test)), 0.0
    for hour in range(0, len(test), HR_PER_WEEK):
        now = len(history) + hour
        recent = demand[max(0, now - TOP_UP_WEEKS * HR_PER_WEEK) : now]
        # commitments cannot be given back
        level = max(level, float(np.quantile(recent, discount_frac)))
        held[hour : hour + HR_PER_WEEK] = level
    return held


def _break_even(test: FloatArray, discount_frac: float) -> FloatArray:
    """Buy a unit when its on-demand cost since the start has reached the price of holding it to the end (ski rental)."""
    held, level = np.zeros(len(test)), 0.0
    for hour in range(len(test)):
        # hours of on-demand use that cost as much as holding a unit from now to the end
        needed_hr = max(int(np.ceil((1 - discount_frac) * (len(test) - hour))), 1)
        if hour % REVIEW_HR == 0 and needed_hr <= hour:
            # the needed_hr-th highest use so far is the level that was in use for that many hours
            level = max(level, float(np.sort(test[:hour])[-needed_hr]))
        held[hour] = level
    return held
