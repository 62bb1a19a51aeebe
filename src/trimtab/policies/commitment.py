"""How many units to commit to, given the usage so far: bought on evidence, in layers, and never given back.

Demand is cut into slices from the bottom up. For each slice a running sum keeps what a commitment to it would have earned of
late, in hours of its on-demand price: every hour adds the share in use and takes off the committed rate,

    evidence = min(max(evidence + used_frac - (1 - discount_frac), 0), limit)

A sum that falls below 0 starts again from 0 (Page's sequential test, Biometrika 41, 1954), and the limit makes it forget, so
that growth is followed at once and a slice that falls idle loses its standing. A slice is backed in proportion to its
evidence, from nothing at 0 to the whole of it at the limit; that mixes all the break-even points of the ski-rental rule
("To Reserve or Not to Reserve", arXiv 1305.5608), and since a bill is convex in what is held, the mixture never costs more
than the mean of the rules in it. Of what is backed a part is bought at once and the rest is released evenly over the
first part of the term: history says what ran, not what will, and the evidence is asked again before each layer.

Where the default numbers come from: docs/benchmarks/commit.md.
"""

from __future__ import annotations

from typing import NamedTuple


class LayerRule(NamedTuple):
    """How much evidence backs a slice, and how fast backed slices may be bought."""

    at_once_frac: float = 2 / 3
    """Share of what is backed that may be bought on the first day."""
    layers_frac: float = 0.3
    """Share of the term over which the rest is released, evenly."""
    evidence_frac: float = 0.12
    """A slice is wholly backed once a commitment would have earned this share of the term's on-demand hours ..."""
    evidence_most_hr: float = 200.0
    """... or so many hours, whichever is less."""


class EarningsBySlice(NamedTuple):
    """What a commitment to each slice would have earned, lowest slice first; slices are `width_units` units wide."""

    width_units: float
    earned_hr: tuple[float, ...]


SLICES = 100
"""Slices into which the largest use known at the start is cut; growth adds slices on top ..."""
MOST_SLICES = 400
"""... up to so many; beyond, they are made twice as wide."""
FINEST_UNITS = 0.01
REVIEW_HR = 24
"""Layers are decided on once a day."""


def evidence_limit_hr(rule: LayerRule, term_hr: float) -> float:
    """Return the evidence that backs the whole of a slice, for commitments that run for `term_hr`."""
    return min(rule.evidence_frac * term_hr, rule.evidence_most_hr)


def used_frac(demand_units: float, floor_units: float, width_units: float) -> float:
    """Return the share of a slice that is in use when its floor lies at `floor_units`."""
    return min(max((demand_units - floor_units) / width_units, 0.0), 1.0)


def next_earned_hr(earned_hr: float, used: float, discount_frac: float, limit_hr: float) -> float:
    """Return a slice's evidence after one more hour, of which the share `used` was in use."""
    return min(max(earned_hr + used - (1.0 - discount_frac), 0.0), limit_hr)


def no_evidence(largest_units: float) -> EarningsBySlice:
    """Return the evidence before the first hour, for a use that is known to have reached `largest_units`."""
    return EarningsBySlice(max(largest_units / SLICES, FINEST_UNITS), ())


def observe(evidence: EarningsBySlice, demand_units: float, discount_frac: float, limit_hr: float) -> EarningsBySlice:
    """Return the evidence after an hour in which `demand_units` units were in use on average."""
    while demand_units > evidence.width_units * MOST_SLICES:
        evidence = coarser(evidence)
    width = evidence.width_units
    earned = [
        next_earned_hr(earned_hr, used_frac(demand_units, number * width, width), discount_frac, limit_hr)
        for number, earned_hr in enumerate(evidence.earned_hr)
    ]
    # slices that were never in use have no entry: they begin with nothing in the hour that first reaches them
    while len(earned) * width < demand_units:
        used = used_frac(demand_units, len(earned) * width, width)
        earned.append(next_earned_hr(0.0, used, discount_frac, limit_hr))
    return EarningsBySlice(width, tuple(earned))


def coarser(evidence: EarningsBySlice) -> EarningsBySlice:
    """Return the same evidence in slices twice as wide, each with the mean of the two it was."""
    # an odd slice at the top is paired with one that was never used
    earned = evidence.earned_hr + (0.0,) * (len(evidence.earned_hr) % 2)
    merged = [(earned[i] + earned[i + 1]) / 2.0 for i in range(0, len(earned), 2)]
    return EarningsBySlice(2.0 * evidence.width_units, tuple(merged))


def backed_units(evidence: EarningsBySlice, limit_hr: float) -> float:
    """Return how many units the evidence backs."""
    return evidence.width_units * sum(evidence.earned_hr) / limit_hr


def released_frac(rule: LayerRule, elapsed_hr: float, term_hr: float) -> float:
    """Return the share of what is backed that may be held `elapsed_hr` after the first purchase was decided on."""
    layered = min(elapsed_hr / (rule.layers_frac * term_hr), 1.0) if rule.layers_frac > 0 else 1.0
    return rule.at_once_frac + (1.0 - rule.at_once_frac) * layered


def wanted_units(
    rule: LayerRule, evidence: EarningsBySlice, held_units: float, elapsed_hr: float, term_hr: float
) -> float:
    """Return how many units to hold from now on; never less than are held, because a commitment cannot be given back."""
    backed = backed_units(evidence, evidence_limit_hr(rule, term_hr))
    return max(held_units, backed * released_frac(rule, elapsed_hr, term_hr))
