"""Choose the numbers of the commitment rule on series other than the halves that `benchmarks.commit` scores.

Three groups: the first halves of the benchmark's own series, cut again; other recorded series (virtual clusters of Helios
Earth, request rates scaled to 40 replicas); synthetic ones. Candidates are compared by the mean of the three groups' mean
cost over hindsight, and by that of their 97.5th percentiles.

Then the mixture that `replay.commitments` makes of several levels and paces, beside each of them, on Philly, Helios and Azure
(whole series, cut at three places) and on the synthetic series: what `benchmarks.commit_unseen` scores is held back here.

Run: python -m benchmarks.commit_fit [--data DIR]
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.commit import DISCOUNTS
from benchmarks.commit_series import demand_series
from benchmarks.traces import Floats, data_argument
from trimtab.policies.commitment import LayerRule
from trimtab.replay.commitments import best_level, cost, held_by_candidate, held_by_choice, layered
from trimtab.units import DAYS_PER_WEEK, HR_PER_DAY, S_PER_HR, S_PER_MIN

CUTS = (0.35, 0.5, 0.65)
SYNTHETIC, SEED = 30, 0
SYNTHETIC_DAYS = (30, 60, 90, 170)
LEAST_GPUS = 8
REPLICAS = 40
CANDIDATES = tuple(
    LayerRule(at_once_frac=at_once, layers_frac=layers, evidence_frac=evidence)
    for at_once, layers, evidence in (
        (1.0, 0.3, 0.12), (1.0, 0.3, 0.2), (0.8, 0.2, 0.12), (2 / 3, 0.3, 0.08),
        (2 / 3, 0.3, 0.12), (2 / 3, 0.3, 0.2), (0.5, 0.3, 0.12),
    )
)  # fmt: skip

Case = tuple[Floats, Floats]
"""History and test."""


def cut(series: dict[str, Floats], shares: tuple[float, ...]) -> list[Case]:
    """Return every series cut into history and test at each share."""
    cases = []
    for demand in series.values():
        for share in shares:
            at = int(len(demand) * share)
            cases.append((demand[:at], demand[at:]))
    return cases


def other_series(traces: Path) -> dict[str, Floats]:
    """Return recorded series that the benchmark does not score."""
    found: dict[str, Floats] = {}
    for path in sorted((traces / "jobs").glob("helios_earth*.parquet")):
        table = pq.read_table(path)
        for cluster in sorted(set(table["virtual_cluster"].to_pylist())):
            own = table.filter(pc.equal(table["virtual_cluster"].cast("string"), cluster)).sort_by("time")
            gpus = hourly_mean(own["running_gpus"].to_numpy().astype(float), S_PER_HR // S_PER_MIN)
            if gpus.mean() >= LEAST_GPUS:
                found[f"earth_{cluster}"] = gpus
    for path in sorted((traces / "requests").glob("*rate_10min*.parquet")):
        table = pq.read_table(path)
        if "client" in table.column_names:
            continue
        models = sorted(set(table["model"].to_pylist())) if "model" in table.column_names else [""]
        for model in models:
            own = table.filter(pc.equal(table["model"].cast("string"), model)) if model else table
            t_s, rate = own["t_s"].to_numpy().astype(float), own["requests_per_s"].to_numpy().astype(float)
            hours = int(t_s.max() // S_PER_HR)
            if hours > 5 * HR_PER_DAY:
                hourly = np.interp(np.arange(hours) * float(S_PER_HR), t_s, rate)
                found[f"{path.stem}_{model}"] = REPLICAS * hourly / hourly.max()
    return found


def hourly_mean(values: Floats, per_hour: int) -> Floats:
    """Return means of whole hours."""
    hours = len(values) // per_hour
    return np.asarray(values[: hours * per_hour].reshape(hours, per_hour).mean(axis=1))


def synthetic(rng: np.random.Generator) -> Floats:
    """Return one made-up series: trend, random walk, seasons of the day and week, maybe a step, slow and fast noise."""
    days = int(rng.choice(SYNTHETIC_DAYS))
    hours = np.arange(days * HR_PER_DAY)
    walk = np.cumsum(rng.normal(0, rng.choice([0, 0.01, 0.02, 0.04]) * np.sqrt(min(1, 60 / days)), days))
    level = rng.uniform(10, 800) * np.exp(rng.normal(0, 0.35) * hours / len(hours) + np.repeat(walk, HR_PER_DAY))
    level *= 1 + rng.choice([0, 0.1, 0.3]) * np.sin(2 * np.pi * hours / HR_PER_DAY + rng.uniform(0, 6))
    level *= 1 - rng.choice([0, 0.15, 0.3]) * (hours // HR_PER_DAY % DAYS_PER_WEEK >= 5)
    if rng.random() < 0.35:
        level[int(rng.uniform(0.3, 0.9) * len(hours)) :] *= rng.choice([0.4, 0.6, 1.3, 1.8])
    pull, spread = 1 / rng.choice([12, 48, 168]), rng.choice([0, 0.15, 0.35])
    slow = np.zeros(len(hours))
    for hour, shock in enumerate(rng.normal(0, spread * np.sqrt(2 * pull), len(hours) - 1), start=1):
        slow[hour] = slow[hour - 1] * (1 - pull) + shock
    fast = rng.normal(0, rng.choice([0.02, 0.1]), len(hours))
    return np.asarray(level * np.exp(slow - spread**2 / 2 + fast))


def over_hindsight(cases: list[Case], rule: LayerRule) -> Floats:
    """Return a rule's cost over hindsight in every case and discount."""
    ratios = []
    for history, test in cases:
        for discount in DISCOUNTS:
            best = cost(test, np.full(len(test), best_level(test, discount)), discount)
            if best > 0:
                ratios.append(cost(test, layered(history, test, discount, rule), discount) / best)
    return np.array(ratios)


def designed_on(traces: Path) -> dict[str, Floats]:
    """Return the recorded series on which the mixture was designed: no ServeGen, no DLRM, no openb."""
    known = {**demand_series(traces), **other_series(traces)}
    return {name: demand for name, demand in known.items() if not name.startswith(("servegen", "alibaba"))}


def mixtures(cases: list[Case]) -> dict[str, dict[str, float]]:
    """Return the cost over hindsight of the mixture and of each of its parts."""
    ratios: dict[str, list[float]] = {}
    for history, test in cases:
        for discount in DISCOUNTS:
            best = cost(test, np.full(len(test), best_level(test, discount)), discount)
            if best > 0:
                parts = {
                    f"{one.level.value}, {one.pace.at_once_frac:.0%} at once": held
                    for one, held in held_by_candidate(history, test, discount)
                }
                for name, held in {**parts, "trimtab": held_by_choice(history, test, discount)}.items():
                    ratios.setdefault(name, []).append(cost(test, held, discount) / best)
    return {
        name: {"mean": float(np.mean(own)), "p95": float(np.quantile(own, 0.95)), "worst": max(own)}
        for name, own in ratios.items()
    }


def main() -> None:
    arguments = data_argument(__doc__).parse_args()
    halves = {name: demand[: len(demand) // 2] for name, demand in demand_series(arguments.data).items()}
    rng = np.random.default_rng(SEED)
    groups = {
        "first_halves": cut(halves, CUTS),
        "other_recorded": cut(other_series(arguments.data), CUTS),
        "synthetic": cut({str(number): synthetic(rng) for number in range(SYNTHETIC)}, (0.5,)),
    }
    results = []
    for rule in CANDIDATES:
        ratios = {name: over_hindsight(cases, rule) for name, cases in groups.items()}
        row = {
            **rule._asdict(),
            "mean_ratio": float(np.mean([one.mean() for one in ratios.values()])),
            "p975_ratio": float(np.mean([np.quantile(one, 0.975) for one in ratios.values()])),
            "groups": {name: {"mean": float(one.mean()), "worst": float(one.max())} for name, one in ratios.items()},
        }
        results.append(row)
        print(row, flush=True)
    mixed = {
        "recorded": mixtures(cut(designed_on(arguments.data), CUTS)),
        "synthetic": mixtures(groups["synthetic"]),
    }
    print(mixed)
    print(
        json.dumps({"benchmark": "commit_fit", "data": str(arguments.data), "candidates": results, "mixtures": mixed})
    )


if __name__ == "__main__":
    main()
