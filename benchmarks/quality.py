"""How often `trimtab quality` accepts a candidate that loses exactly the margin, and how often it tells one that does not.

    python -m benchmarks.quality [--evaluations 10000] [--seed 1]

Evaluations are drawn: n questions, the baseline right on a share of them, and a correlation between right answers of both
sides. Each cell of the grid is `--evaluations` evaluations at a loss of exactly 1 point, and as many without a loss. Beside
the paired test stands what people use instead: an unpaired z-test at 5 %, "the mean dropped by no more than a point", and "no
significant difference" (McNemar, two-sided 5 %). Further parts: scores other than right and wrong, looks that follow one
another until a decision, slices, and the plan for production. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from trimtab.diagnose.quality import (
    PairedAnswers,
    QualityRule,
    QualityVerdict,
    judged,
    look_alpha,
    mean_upper_limit,
    share_upper_limit,
    watch_plan,
)
from trimtab.ledger.arrays import FloatArray, IntArray

MARGIN = 0.01
QUESTIONS = (100, 300, 1_000, 1_319, 5_000, 14_042)
"""A tenth of a benchmark to the whole of MMLU (14,042); GSM8K has 1,319."""
RIGHT = (0.3, 0.6, 0.8, 0.95)
CORRELATION = (0.3, 0.6, 0.8, 0.9, 0.97)
"""Of right answers on both sides: 0.3 as of two other models, 0.9 and more as of one model and its weights in fewer bits."""
LEVEL = look_alpha(1)
MOST_QUESTIONS = 20_000
"""An evaluator's patience in the simulation of looks."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of evaluation."""

    questions: int
    right: float
    correlation: float

    def shares(self, loss: float) -> tuple[float, float] | None:
        """Return the shares that only the baseline and only the candidate answers right; None where none give both."""
        after = self.right - loss
        both = self.right * after + self.correlation * math.sqrt(self.right * (1 - self.right) * after * (1 - after))
        lost, gained = self.right - both, after - both
        return (lost, gained) if gained >= 0 and lost + gained <= 1 else None


def cells() -> Iterator[Cell]:
    """Yield the grid, without what cannot be."""
    for questions in QUESTIONS:
        for right in RIGHT:
            for correlation in CORRELATION:
                cell = Cell(questions, right, correlation)
                if cell.shares(MARGIN) and cell.shares(0.0):
                    yield cell


@cache
def accepts(lost: int, gained: int, questions: int) -> bool:
    """Tell whether the product's first look accepts."""
    return share_upper_limit(lost, gained, questions, LEVEL) < MARGIN


def unpaired(right: float, lost: int, gained: int, questions: int) -> bool:
    """Tell whether a z-test that ignores the pairs accepts at 5 %."""
    after = right - (lost - gained) / questions
    variance = (right * (1 - right) + max(after * (1 - after), 0.0)) / questions
    return (lost - gained) / questions + 1.645 * math.sqrt(variance) < MARGIN


def no_significant_difference(lost: int, gained: int) -> bool:
    """Tell whether McNemar's test finds nothing at 5 %, two-sided, so that people accept."""
    return lost + gained == 0 or (lost - gained) / math.sqrt(lost + gained) < 1.96


def rates(cell: Cell, loss: float, evaluations: int, rng: np.random.Generator) -> dict[str, float]:
    """Return how often each rule accepts."""
    shares = cell.shares(loss)
    assert shares is not None
    lost, gained = shares
    drawn = rng.multinomial(cell.questions, [lost, gained, 1 - lost - gained], size=evaluations)
    tables, counts = np.unique(drawn[:, :2], axis=0, return_counts=True)
    found = dict.fromkeys(("paired", "unpaired z", "mean drop <= 1 point", "no significant difference"), 0)
    for (b, c), count in zip(tables.tolist(), counts.tolist(), strict=True):
        found["paired"] += count * accepts(b, c, cell.questions)
        found["unpaired z"] += count * unpaired(cell.right, b, c, cell.questions)
        found["mean drop <= 1 point"] += count * ((b - c) / cell.questions <= MARGIN + 1e-12)
        found["no significant difference"] += count * no_significant_difference(b, c)
    return {name: count / evaluations for name, count in found.items()}


OTHER_SCORES: dict[str, Callable[[np.random.Generator, int], FloatArray]] = {
    "one in a hundred fails wholly": lambda rng, n: (rng.random(n) < 0.01).astype(float),
    "one in fifty loses any part": lambda rng, n: (rng.random(n) < 0.02) * rng.random(n),
    "small changes of all, sd 0.05": lambda rng, n: rng.normal(0.01, 0.05, n),
    "changes of all, sd 0.3": lambda rng, n: rng.normal(0.01, 0.3, n),
    "thirds of a point, both ways": lambda rng, n: (
        rng.choice([-1 / 3, 0, 1 / 3, 2 / 3], n, p=[0.05, 0.895, 0.045, 0.01])
        + (0.01 - (-0.05 / 3 + 0.045 / 3 + 0.02 / 3))
    ),
}
"""Differences of other scores with a mean loss of exactly 0.01."""


def other_scores(evaluations: int, rng: np.random.Generator) -> dict[str, float]:
    """Return the greatest false accept over numbers of questions of each kind of differences."""
    found = {}
    for name, draw in OTHER_SCORES.items():
        shares = []
        for questions in (100, 300, 1_000, 3_000):
            hits = sum(mean_upper_limit(draw(rng, questions), LEVEL) < MARGIN for _ in range(evaluations))
            shares.append(hits / evaluations)
        found[name] = max(shares)
    return found


def pairs_of(rng: np.random.Generator, cell: Cell, loss: float, slices: int = 1) -> PairedAnswers:
    """Draw one evaluation, its questions dealt over slices of equal size."""
    shares = cell.shares(loss)
    assert shares is not None
    right = rng.random(cell.questions) < cell.right
    drawn = rng.random(cell.questions)
    other = np.where(right, drawn >= shares[0] / cell.right, drawn < shares[1] / (1 - cell.right))
    at: IntArray = np.arange(cell.questions) % slices
    return PairedAnswers(
        ids=(),
        baseline=right.astype(float),
        candidate=other.astype(float),
        slices={f"s{part}": np.flatnonzero(at == part) for part in range(slices)} if slices > 1 else {},
    )


def looks(evaluations: int, rng: np.random.Generator, loss: float, *, fresh: bool) -> tuple[float, float, float]:
    """Return how often a candidate is accepted and rejected when its evaluator goes on to three looks, and questions used.

    `fresh`: by the product's rule; else all questions so far are judged again at 5 % each time, as people do.
    """
    accepted = rejected = used = 0
    for _ in range(evaluations):
        look, questions, seen = 1, 500, None
        while look <= 3:
            drawn = pairs_of(rng, Cell(questions, 0.7, 0.85), loss)
            used += questions
            if not fresh and seen is not None:
                drawn = PairedAnswers(
                    ids=(), slices={},
                    baseline=np.concatenate([seen.baseline, drawn.baseline]),
                    candidate=np.concatenate([seen.candidate, drawn.candidate]),
                )  # fmt: skip
            found = judged(drawn, QualityRule(margin_frac=MARGIN, look=look))
            verdict = found.verdict if fresh else _naive(drawn)
            if verdict is not QualityVerdict.MORE:
                accepted += verdict is QualityVerdict.ACCEPT
                rejected += verdict is QualityVerdict.REJECT
                break
            questions = min(found.more_pairs or MOST_QUESTIONS, MOST_QUESTIONS) if fresh else 500
            look, seen = look + 1, drawn
    return accepted / evaluations, rejected / evaluations, used / evaluations


def _naive(pairs: PairedAnswers) -> QualityVerdict:
    lost = int((pairs.baseline > pairs.candidate).sum())
    gained = int((pairs.baseline < pairs.candidate).sum())
    if share_upper_limit(lost, gained, len(pairs.baseline), 0.05) < MARGIN:
        return QualityVerdict.ACCEPT
    if -share_upper_limit(gained, lost, len(pairs.baseline), 0.05) > MARGIN:
        return QualityVerdict.REJECT
    return QualityVerdict.MORE


def slices(evaluations: int, rng: np.random.Generator) -> dict[str, float]:
    """Return how often 57 slices (MMLU's subjects) refuse a candidate that loses exactly the margin in each of them."""
    cell = Cell(14_042, 0.7, 0.9)
    refused = uncorrected = 0
    for _ in range(evaluations):
        pairs = pairs_of(rng, cell, MARGIN, 57)
        refused += any(part.fails for part in judged(pairs, QualityRule(margin_frac=MARGIN)).slices)
        uncorrected += any(-share_upper_limit(*_table(pairs, at), LEVEL) > MARGIN for at in pairs.slices.values())
    return {"corrected": refused / evaluations, "uncorrected": uncorrected / evaluations}


def _table(pairs: PairedAnswers, at: IntArray) -> tuple[int, int, int]:
    """Return gained, lost and pairs of a slice."""
    one, other = pairs.baseline[at], pairs.candidate[at]
    return int((one < other).sum()), int((one > other).sum()), len(at)


def watched(evaluations: int, rng: np.random.Generator) -> dict[str, float]:
    """Return how often a drop of 2 points is noticed on the seventh day, and false alarms a year of daily looks."""
    plan = watch_plan(drop_frac=0.02, days=7, discordant_frac=0.05, right_frac=0.7)
    daily = plan.paired_requests_per_day
    noticed = _windows(rng, daily, plan.days, (0.045, 0.025), evaluations) < -plan.paired_alarm_frac
    year = [rng.multinomial(daily, [0.025, 0.025, 0.95], size=365 + plan.days) for _ in range(300)]
    alarms = []
    for days in year:
        change = (days[:, 1] - days[:, 0]).astype(float)
        window = np.convolve(change, np.ones(plan.days), "valid") / (daily * plan.days)
        alarms.append(float((window < -plan.paired_alarm_frac).sum()))
    return {
        "requests_per_day": daily,
        "noticed_frac": float(noticed.mean()),
        "false_alarm_days_per_year": float(np.mean(alarms)),
    }


def _windows(
    rng: np.random.Generator, daily: int, days: int, shares: tuple[float, float], evaluations: int
) -> FloatArray:
    lost, gained = shares
    drawn = rng.multinomial(daily * days, [lost, gained, 1 - lost - gained], size=evaluations)
    return np.asarray((drawn[:, 1] - drawn[:, 0]) / (daily * days))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evaluations", type=int, default=10_000, help="evaluations of a cell")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    grid = list(cells())
    at_margin = [rates(cell, MARGIN, options.evaluations, rng) for cell in grid]
    equal = [rates(cell, 0.0, options.evaluations, rng) for cell in grid]
    half = [rates(cell, MARGIN / 2, options.evaluations, rng) for cell in grid]
    rules = list(at_margin[0])
    few = max(200, options.evaluations // 5)
    for questions in QUESTIONS:
        mine = [at for at, cell in enumerate(grid) if cell.questions == questions]
        told = "; ".join(
            f"{rule}: {max(at_margin[at][rule] for at in mine):.1%} / {np.mean([equal[at][rule] for at in mine]):.0%}"
            for rule in rules
        )
        print(f"{questions:>6} questions, worst false accept / mean power without a loss: {told}")
    close = [at for at, cell in enumerate(grid) if cell.correlation >= 0.9]
    found = {
        "benchmark": "quality",
        "cells": len(grid),
        "evaluations_per_cell": options.evaluations,
        "level": LEVEL,
        "false_accept_max": {rule: round(max(rate[rule] for rate in at_margin), 4) for rule in rules},
        "false_accept_mean": {rule: round(float(np.mean([rate[rule] for rate in at_margin])), 4) for rule in rules},
        "power_no_loss_by_questions": {
            str(questions): {
                rule: round(float(np.mean([equal[at][rule] for at in close if grid[at].questions == questions])), 3)
                for rule in rules
            }
            for questions in QUESTIONS
        },
        "power_half_point_by_questions": {
            str(questions): round(
                float(np.mean([half[at]["paired"] for at in close if grid[at].questions == questions])), 3
            )
            for questions in QUESTIONS
        },
        "false_accept_other_scores": other_scores(few, rng),
        "looks_at_margin": dict(
            zip(("accepted", "rejected", "questions"), looks(few, rng, MARGIN, fresh=True), strict=True)
        ),
        "looks_again_at_all_at_margin": dict(
            zip(("accepted", "rejected", "questions"), looks(few, rng, MARGIN, fresh=False), strict=True)
        ),
        "looks_no_loss": dict(
            zip(("accepted", "rejected", "questions"), looks(few, rng, 0.0, fresh=True), strict=True)
        ),
        "looks_three_points": dict(
            zip(("accepted", "rejected", "questions"), looks(few, rng, 0.03, fresh=True), strict=True)
        ),
        "false_reject_by_57_slices": slices(few // 4, rng),
        "watch": watched(options.evaluations, rng),
        "monte_carlo_error": round(1.96 * math.sqrt(0.04 * 0.96 / options.evaluations), 4),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
