"""Cost of rules that commit, on the GPU demand of real clusters, over the best level known afterwards.

The game is the referee's: identical GPUs, on-demand price 1, a committed GPU-hour costs 1 - discount whether used or not,
discounts of 30, 40 and 60 %. The first half of each series is history; what is bought holds to the end of the second half.
Rules that buy later pay from then on. Ours knows the length of the term, as buyers do; `hindsight` is one level for the whole
second half. Weeks stand in for terms of years: a scale model.

Run: python -m benchmarks.commit [--data DIR]
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np

from benchmarks.commit_series import demand_series
from benchmarks.traces import Floats, data_argument
from trimtab.replay.commitments import CommitRule, cost, held_units

DISCOUNTS = (0.3, 0.4, 0.6)
OURS = CommitRule.CHOSEN
REFEREE = {
    "none (all on-demand)": CommitRule.NOTHING,
    "65% of trailing average": CommitRule.AVERAGE_65,
    "100% of trailing average": CommitRule.AVERAGE,
    "trailing minimum": CommitRule.MINIMUM,
    "newsvendor quantile on history": CommitRule.NEWSVENDOR,
    "newsvendor, weekly top-up (28 d window)": CommitRule.WEEKLY_TOP_UP,
    "hindsight optimum (single level)": CommitRule.HINDSIGHT,
}
"""The referee's names of the rules that both play."""
REFEREE_SERIES = {"helios_venus": "venus_cluster", "philly2017": "philly", "alibaba2025_dlrm": "dlrm_inference_gpus"}
"""How our series' names begin, and the referee's name for that."""

Cost = dict[tuple[str, float, CommitRule], float]
"""Cost over all on-demand by series, discount and rule."""


def play(series: dict[str, Floats]) -> Cost:
    """Return what each rule costs on the second half of each series."""
    costs: Cost = {}
    for name, demand in series.items():
        half = len(demand) // 2
        history, test = demand[:half], demand[half:]
        for discount in DISCOUNTS:
            for rule in CommitRule:
                held = held_units(rule, history, test, discount)
                costs[name, discount, rule] = cost(test, held, discount) / float(test.sum())
    return costs


def over_hindsight(costs: Cost, rule: CommitRule) -> list[float]:
    """Return a rule's cost over the hindsight optimum, case by case."""
    return [spent / costs[name, d, CommitRule.HINDSIGHT] for (name, d, own), spent in costs.items() if own is rule]


def referee_error_frac(costs: Cost, traces: Path) -> float | None:
    """Return by how much the baselines differ at most from those on record beside the data; None where there are none."""
    record = traces / "baseline_commitment.csv"
    if not record.is_file():
        return None
    with record.open(encoding="utf-8", newline="") as lines:
        recorded = {
            (row["series"], float(row["discount"]), REFEREE[row["policy"]]): float(row["cost_vs_on_demand"])
            for row in csv.DictReader(lines)
            if row["policy"] in REFEREE
        }
    errors = [
        abs(spent / recorded[key] - 1)
        for (name, discount, rule), spent in costs.items()
        if (key := (_referee_name(name), discount, rule)) in recorded
    ]
    return max(errors, default=None)


def _referee_name(name: str) -> str:
    for ours, theirs in REFEREE_SERIES.items():
        if name.startswith(ours):
            return theirs + name.removeprefix(ours)
    return name


def main() -> None:
    arguments = data_argument(__doc__).parse_args()
    costs = play(demand_series(arguments.data))
    rules = {}
    for rule in CommitRule:
        ratios = over_hindsight(costs, rule)
        rules[rule.value] = {"mean_ratio": float(np.mean(ratios)), "worst_ratio": max(ratios)}
        print(f"{rule.value:32s} mean {np.mean(ratios):.3f}  worst {max(ratios):.3f}")
    cases = [
        {
            "case": name,
            "discount_frac": discount,
            "policy": rule.value,
            "cost_vs_on_demand": spent,
            "cost_ratio": spent / costs[name, discount, CommitRule.HINDSIGHT],
        }
        for (name, discount, rule), spent in costs.items()
    ]
    print(
        json.dumps(
            {
                "benchmark": "commit",
                "data": str(arguments.data),
                "mean_ratio": rules[OURS.value]["mean_ratio"],
                "worst_ratio": rules[OURS.value]["worst_ratio"],
                "cases": cases,
                "rules": rules,
                "referee_max_error_frac": referee_error_frac(costs, arguments.data),
            }
        )
    )


if __name__ == "__main__":
    main()
