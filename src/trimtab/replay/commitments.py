"""Replay a demand series under rules that commit, and choose the rule by playing several from several days of history.

The game: the history is known, the test is not. On-demand units cost 1 an hour; a committed unit costs 1 - discount in every
hour from its purchase to the end of the test, used or not. Demand is in units in use per hour, fractions allowed.

A candidate is a level that the use so far supports and a pace at which it is bought. All are played from six days of the
history to its end, and weighed by what they cost there over the best single level known afterwards: half the mean and half the
worst, so that a rule that once lost much weighs little. A bill is convex in what is held, so a mixture never costs more than
the mean of its parts. Simple rules are played as well. They get no weight of their own, because what the best of them did on
history says little about the next term (docs/benchmarks/commit.md); only where the mixture would have cost more
than `STATED_REGRET_FRAC` over the best of them does that one enter, by as much as keeps the regret in bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

import numpy as np

from trimtab.ledger.arrays import FloatArray
from trimtab.policies.commitment import (
    MOST_SLICES,
    REVIEW_HR,
    LayerRule,
    backed_units,
    evidence_limit_hr,
    no_evidence,
    observe,
    released_frac,
    wanted_units,
)
from trimtab.units import HR_PER_DAY, HR_PER_WEEK

STARTS_FRAC = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Shares of the history that are known when a back-test begins; it runs to the history's end."""
SHARPNESS = 20.0
"""A candidate that cost 5 % more over hindsight weighs exp(-1) of another (exponential weights: Cesa-Bianchi and Lugosi,
Prediction, Learning, and Games, 2006)."""
STATED_REGRET_FRAC = 0.10
"""On its own history the mixture costs no more than this above the best simple rule."""
WINDOWS_HR = (3 * HR_PER_DAY, HR_PER_WEEK, 4 * HR_PER_WEEK)
AVERAGE_SHARE = 0.65
TOP_UP_WEEKS = 4


class Level(Enum):
    """How many units the use so far supports."""

    EVIDENCE = "what commitments would have earned recently"
    LEAST_QUANTILE = "the least newsvendor level of 3, 7 and 28 days"
    NOTHING = "nothing, all on demand"
    AVERAGE_65 = "65 % of the average"
    AVERAGE = "the average"
    MINIMUM = "the minimum"
    NEWSVENDOR = "newsvendor"
    WEEKLY_TOP_UP = "newsvendor, topped up weekly"


@dataclass(frozen=True, slots=True)
class PacedLevel:
    """A level, and the pace at which it is bought."""

    level: Level
    pace: LayerRule


_AT_ONCE = LayerRule(at_once_frac=1.0, layers_frac=0.0)
_FOUR_FIFTHS = LayerRule(at_once_frac=0.8, layers_frac=0.2)
_TWO_THIRDS = LayerRule()
_HALF = LayerRule(at_once_frac=0.5)
CANDIDATES = (
    *(PacedLevel(Level.EVIDENCE, pace) for pace in (_HALF, _TWO_THIRDS, _FOUR_FIFTHS, _AT_ONCE)),
    *(PacedLevel(Level.LEAST_QUANTILE, pace) for pace in (_TWO_THIRDS, _FOUR_FIFTHS, _AT_ONCE)),
)
SIMPLE = tuple(PacedLevel(level, _AT_ONCE) for level in Level if level not in (Level.EVIDENCE, Level.LEAST_QUANTILE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What to buy by, and what the back-test said."""

    weights: Mapping[PacedLevel, float]
    """Shares of what is held, which sum to 1."""
    back_tests: int
    over_hindsight: float
    """Back-tested cost over the best single level known afterwards: half the mean, half the worst; 1 with no back-test."""
    best_simple: Level
    simple_over_hindsight: float
    """The same of the best simple rule."""

    def wanted_units(self, supported: Mapping[Level, float], elapsed_hr: float, term_hr: float) -> float:
        """Return the units to hold so long after the first purchase, as long as the use supports the same."""
        return sum(
            weight * supported[candidate.level] * released_frac(candidate.pace, elapsed_hr, term_hr)
            for candidate, weight in self.weights.items()
        )


def supported_units(level: Level, use: FloatArray, discount_frac: float, term_hr: float) -> float:
    """Return how many units a use by hour (n_hours,) supports today, for commitments that run for `term_hr`."""
    if not len(use):
        return 0.0
    match level:
        case Level.NOTHING:
            return 0.0
        case Level.AVERAGE_65:
            return AVERAGE_SHARE * float(use.mean())
        case Level.AVERAGE:
            return float(use.mean())
        case Level.MINIMUM:
            return float(use.min())
        case Level.NEWSVENDOR:
            return float(np.quantile(use, discount_frac))
        case Level.WEEKLY_TOP_UP:
            return float(np.quantile(use[-TOP_UP_WEEKS * HR_PER_WEEK :], discount_frac))
        case Level.LEAST_QUANTILE:
            return min(float(np.quantile(use[-window:], discount_frac)) for window in WINDOWS_HR)
        case Level.EVIDENCE:
            limit_hr = evidence_limit_hr(_TWO_THIRDS, term_hr)
            return float(backed_by_hour(use, len(use), discount_frac, limit_hr)[-1])
        case _:
            assert_never(level)


def choose(history: FloatArray, discount_frac: float) -> Choice:
    """Return what to buy by, after a use by hour (n_hours,); with no back-test every candidate has the same share."""
    costs = _back_tested(history, discount_frac)
    scores = {candidate: _score(ratios) for candidate, ratios in costs.items()}
    # the best candidate gets the exponent 0, so that not all weights can vanish
    least = min(scores[candidate] for candidate in CANDIDATES)
    raw = {candidate: math.exp(-SHARPNESS * (scores[candidate] - least)) for candidate in CANDIDATES}
    weights = {candidate: weight / sum(raw.values()) for candidate, weight in raw.items()}
    # at most this: a bill is convex in what is held, so the mixture costs no more than the mean of its parts
    expected = sum(weight * scores[candidate] for candidate, weight in weights.items())
    best = min(SIMPLE, key=lambda candidate: scores[candidate])
    most = (1.0 + STATED_REGRET_FRAC) * scores[best]
    if expected > most:
        # solves kept * expected + (1 - kept) * scores[best] = most
        kept = (most - scores[best]) / (expected - scores[best])
        weights = {**{candidate: kept * weight for candidate, weight in weights.items()}, best: 1.0 - kept}
        expected = most
    return Choice(
        weights=weights,
        back_tests=len(costs[best]),
        over_hindsight=expected,
        best_simple=best.level,
        simple_over_hindsight=scores[best],
    )


def _score(ratios: Sequence[float]) -> float:
    return (sum(ratios) / len(ratios) + max(ratios)) / 2 if ratios else 1.0


def _back_tested(history: FloatArray, discount_frac: float) -> dict[PacedLevel, list[float]]:
    """Return the cost over hindsight of every candidate and simple rule, by back-test; idle stretches are left out."""
    costs: dict[PacedLevel, list[float]] = {candidate: [] for candidate in (*CANDIDATES, *SIMPLE)}
    for share in STARTS_FRAC:
        known, rest = np.split(history, [int(len(history) * share)])
        # a stretch without use costs nothing in hindsight: there is no ratio to it
        if not len(known) or not rest.any():
            continue
        best = cost(rest, np.full(len(rest), best_level(rest, discount_frac)), discount_frac)
        for candidate, held in held_by_candidate(known, rest, discount_frac):
            costs[candidate].append(cost(rest, held, discount_frac) / best)
    return costs


def held_by_candidate(
    history: FloatArray, test: FloatArray, discount_frac: float
) -> Iterator[tuple[PacedLevel, FloatArray]]:
    """Yield what each candidate and simple rule holds in each hour of a test (n_test,); none sees the hours still to come."""
    levels = {level: _levels(level, history, test, discount_frac) for level in Level}
    released = {pace: _released(pace, len(test)) for pace in {candidate.pace for candidate in CANDIDATES}}
    for candidate in (*CANDIDATES, *SIMPLE):
        # what was bought cannot be given back before the term ends, so holdings never fall
        yield candidate, np.maximum.accumulate(levels[candidate.level] * released[candidate.pace])


def _released(pace: LayerRule, term_hr: int) -> FloatArray:
    """Return the share of what is backed that may be held in each hour of a term (n_hours,), reviewed daily."""
    by_day = [released_frac(pace, float(hour), term_hr) for hour in range(0, term_hr, REVIEW_HR)]
    # all hours of a day act on what its first one saw
    return np.repeat(by_day, REVIEW_HR)[:term_hr]


def held_by_choice(history: FloatArray, test: FloatArray, discount_frac: float) -> FloatArray:
    """Return what the rule chosen on a history holds in each hour of the test (n_test,)."""
    weights = choose(history, discount_frac).weights
    held = np.zeros(len(test))
    for candidate, level in held_by_candidate(history, test, discount_frac):
        held += weights.get(candidate, 0.0) * level
    return held


def _levels(level: Level, history: FloatArray, test: FloatArray, discount_frac: float) -> FloatArray:
    """Return what a level supports in each hour of a test, reviewed daily; simple rules look once, the top-up weekly."""
    term_hr = len(test)
    if level is Level.EVIDENCE:
        return _evidence_levels(history, test, discount_frac)
    # simple rules look once, at the start: their review comes after the term
    reviews = {Level.LEAST_QUANTILE: REVIEW_HR, Level.WEEKLY_TOP_UP: HR_PER_WEEK}
    every = reviews.get(level, max(term_hr, 1))
    both, found = np.concatenate([history, test]), np.zeros(term_hr)
    for hour in range(0, term_hr, every):
        found[hour : hour + every] = supported_units(level, both[: len(history) + hour], discount_frac, term_hr)
    return found


def _evidence_levels(history: FloatArray, test: FloatArray, discount_frac: float) -> FloatArray:
    limit_hr = evidence_limit_hr(_TWO_THIRDS, len(test))
    backed = backed_by_hour(np.concatenate([history, test]), len(history), discount_frac, limit_hr)
    # each hour acts on the evidence at the start of its day
    reviewed = np.arange(len(test)) // REVIEW_HR * REVIEW_HR
    return np.asarray(backed[len(history) + reviewed])


def backed_by_hour(use: FloatArray, known: int, discount_frac: float, limit_hr: float) -> FloatArray:
    """Return what the evidence backs before each hour of a use and after its last (n_hours + 1,); `known` hours set the slices.

    The policy's step on all slices at once, since a slice never reached has the evidence of one that is not there. Only
    use beyond `MOST_SLICES`, where slices are made wider, takes the policy's own steps.
    """
    evidence = no_evidence(float(use[:known].max(initial=0.0)))
    width, backed = evidence.width_units, np.zeros(len(use) + 1)
    # slices get wider there, which only the policy's own step knows how to do
    if use.max(initial=0.0) > width * MOST_SLICES:
        for hour, units in enumerate(use.tolist(), start=1):
            evidence = observe(evidence, units, discount_frac, limit_hr)
            backed[hour] = backed_units(evidence, limit_hr)
        return backed
    # slice k is the use between floors[k] and one width more
    floors = np.arange(math.ceil(use.max(initial=0.0) / width) + 1) * width
    # a used hour saves the discount, an idle one costs the committed rate: the share used, less 1 - discount
    earned = np.clip((use[:, None] - floors) / width, 0.0, 1.0) - (1.0 - discount_frac)
    before = np.zeros(len(floors))
    for now in earned:
        now += before
        # bounded at both ends as the policy's is, so that old evidence cannot outweigh new for long
        np.maximum(now, 0.0, out=now)
        before = np.minimum(now, limit_hr, out=now)
    backed[1:] = width * earned.sum(axis=1) / limit_hr
    return backed


def cost(test: FloatArray, held: FloatArray, discount_frac: float) -> float:
    """Return the cost of the test in on-demand hours of one unit: what is held, and what demand exceeds it by."""
    return float(((1 - discount_frac) * held + np.maximum(test - held, 0)).sum())


def best_level(demand: FloatArray, discount_frac: float) -> float:
    """Return the one level that makes the cost of a known demand least: its discount-quantile, one of the values seen."""
    return float(np.quantile(demand, discount_frac, method="inverted_cdf"))


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
