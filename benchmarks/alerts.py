"""How often alerts are right: faults planted into generated weeks, and jumps of 20 % in spend.

    python -m benchmarks.alerts [--seed 100] [--fleets 20] [--jumps 20] [--data ../shared]
    python -m benchmarks.alerts --fleets 0 --weeks 300 [--evaluated 10] [--jobs 2]

A week (`benchmarks.alert_weeks`) has one fault, and promtool says which of eleven alerts fired, about whom and when. 300 weeks
take an hour of processor time at an evaluation every 10 minutes.

Spend: the rule's twin in NumPy reads hourly spend (`tests/monitor/test_spend_jump.py` compares it with the emitted rules in a
real Prometheus engine). A jump multiplies spend by 1.2 from a random hour on, and is found where the alert fires within a day.
False alarms are firing spells on series without a jump, at least a day apart, per 30 days. A recorded cluster costs by GPUs in
use.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from benchmarks.alert_scores import scored_weeks, summary
from trimtab.monitor.series import FORMER_WEEKS_DAYS
from trimtab.monitor.watched import Thresholds
from trimtab.units import HR_PER_DAY, HR_PER_WEEK

Floats = npt.NDArray[np.float64]
JUMP = 1.2
LEARNED_DAYS = 40
_RECORDED = {
    "Helios Venus, GPUs in use (design)": ("helios_venus_2020_gpu_flow_10min", "running_gpus", 6),
    "Philly, active nodes (design)": ("philly2017_active_nodes_1min", "active_nodes", 60),
}


def main() -> None:
    """Score generated and recorded series, and print one JSON line last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=100, help="the first fleet's; 0 to 11 were looked at for the rule")
    parser.add_argument("--fleets", type=int, default=20)
    parser.add_argument("--jumps", type=int, default=20)
    parser.add_argument("--data", type=Path, default=Path("../shared"))
    parser.add_argument("--weeks", type=int, default=0, help="weeks with a fault, the alerts in turn")
    parser.add_argument("--evaluated", type=int, default=10, help="minutes between evaluations of the rules in a week")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    weeks = [*scored_weeks(options.weeks, options.seed, options.evaluated, options.jobs)]
    for week in weeks:
        print(week)
    random = np.random.default_rng(options.seed)
    scores = []
    for number in range(options.fleets):
        spend, noise = generated(options.seed + number)
        found, false = score(spend, random, options.jumps)
        scores.append((noise, found, false))
        print(
            f"fleet {options.seed + number}: days differ by {noise:.1%} at random: {found:.0%} found, {false:.2f} false a month"
        )
    steady = [(found, false) for noise, found, false in scores if noise <= 0.05]
    recorded = {}
    for name, spend in recorded_series(options.data) if options.fleets else ():
        found, false = score(spend, random, options.jumps)
        recorded[name] = {"found": round(found, 3), "false_mo": round(false, 2)}
        print(f"{name}: {found:.0%} found, {false:.2f} false a month")
    print(
        json.dumps(
            {
                "benchmark": "alerts",
                "fleets": len(scores),
                "found": round(float(np.mean([found for _, found, _ in scores])), 3) if scores else None,
                "false_mo": round(float(np.mean([false for _, _, false in scores])), 2) if scores else None,
                "steady_fleets": len(steady),
                "steady_found": round(float(np.mean([found for found, _ in steady])), 3) if steady else None,
                "steady_false_mo": round(float(np.mean([false for _, false in steady])), 2) if steady else None,
                "recorded": recorded,
                "planted": summary(weeks),
            }
        )
    )


def generated(seed: int, days: int = 70) -> tuple[Floats, float]:
    """Return an hourly spend (hours,) in dollars, and by how much its days differ at random: seasons, a trend, noise."""
    random = np.random.default_rng(seed)
    hours = np.arange(days * HR_PER_DAY)
    daily, weekly, noise = random.uniform(0, 0.6), random.uniform(0, 0.5), random.uniform(0.01, 0.1)
    trend = random.uniform(-0.1, 0.3) / (30 * HR_PER_DAY)
    shape = 1 + daily * np.sin(2 * np.pi * (hours % HR_PER_DAY) / HR_PER_DAY + random.uniform(0, 6))
    shape += trend * hours - weekly * ((hours // HR_PER_DAY) % 7 >= 5)
    wander = np.zeros(len(hours))
    for hour in range(1, len(hours)):  # correlated over ten hours, as jobs and traffic are
        wander[hour] = 0.9 * wander[hour - 1] + random.normal(0, noise * 0.43)
    by_day = wander[: days * HR_PER_DAY].reshape(days, HR_PER_DAY).mean(axis=1)
    spend = np.maximum(random.uniform(50, 500) * shape * (1 + wander), 1.0)
    return spend, float(by_day.std())


def recorded_series(data: Path) -> Iterator[tuple[str, Floats]]:
    """Yield recorded use by the hour; nothing where the data are not there."""
    for name, (file, column, per_hour) in _RECORDED.items():
        path = data / "data" / "traces" / "jobs" / f"{file}.parquet"
        if path.is_file():
            values = np.asarray(pq.read_table(path, columns=[column])[column].to_numpy(), dtype=float)
            whole = len(values) // per_hour * per_hour
            yield name, values[:whole].reshape(-1, per_hour).mean(axis=1) * 2.0


def surprise(spend: Floats) -> tuple[Floats, Floats]:
    """Return, by hour (hours,), the part by which the last day cost more than expected, and the dollars an hour; NaN before."""
    day = _trailing(spend, HR_PER_DAY)
    week = _trailing(day, HR_PER_WEEK)
    before = _ago(week, 1)
    ratios = np.array([_ago(day, days) / _ago(week, days + 1) for days in FORMER_WEEKS_DAYS])
    known = np.isfinite(ratios).any(axis=0)
    season = np.full(len(spend), np.nan)
    season[known] = np.nanmedian(ratios[:, known], axis=0)
    expected = np.where(np.isfinite(_ago(day, 14)), before * season, np.nan)
    return day / expected - 1, day - expected


def fires(spend: Floats, limits: Thresholds) -> npt.NDArray[np.bool_]:
    """Return whether the alert fires, by hour (hours,)."""
    part, dollars = surprise(spend)
    return (part > limits.spend_jump_frac) & (dollars * HR_PER_DAY > limits.spend_jump_usd_day)


def score(spend: Floats, random: np.random.Generator, jumps: int) -> tuple[float, float]:
    """Return the part of planted jumps that is found within a day, and false alarms per 30 days."""
    limits, start = Thresholds(), LEARNED_DAYS * HR_PER_DAY
    alarms = np.flatnonzero(fires(spend, limits)[start:])
    spells = 0 if not len(alarms) else 1 + int((np.diff(alarms) > HR_PER_DAY).sum())
    found = 0
    for at in random.integers(start, len(spend) - 2 * HR_PER_DAY, jumps):
        jumped = spend.copy()
        jumped[at:] *= JUMP
        found += bool(fires(jumped, limits)[at : at + HR_PER_DAY + 1].any())
    return found / jumps, spells / ((len(spend) - start) / HR_PER_DAY / 30)


def _trailing(values: Floats, hours: int) -> Floats:
    """Return the mean of the last hours up to and with each (hours,), of fewer at the start, as Prometheus has it."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - hours, 0)
    means: Floats = (sums[ends] - sums[starts]) / (ends - starts)
    return means


def _ago(values: Floats, days: int) -> Floats:
    return np.concatenate([np.full(days * HR_PER_DAY, np.nan), values])[: len(values)]


if __name__ == "__main__":
    main()
