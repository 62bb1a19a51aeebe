"""Cost of rules that commit on series whose whole source was held back while the rule was designed.

The game is that of `benchmarks.commit`. Held back: clients of ServeGen's two language models (their rates as GPUs, 40 at the
peak hour), apps of Alibaba's DLRM fleet (GPUs held), pods of Alibaba's openb (GPUs). The rule was designed on Philly,
Helios, Azure and made-up series (`benchmarks.commit_fit`, docs/benchmarks/commit.md). Simple rules: all of
`replay.commitments` but ours, its parts and hindsight.

Run: python -m benchmarks.commit_unseen [--data DIR]
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.commit import DISCOUNTS
from benchmarks.commit_series import hourly_gpus
from benchmarks.traces import Floats, data_argument
from trimtab.replay.commitments import SIMPLE_RULES, CommitRule, cost, held_units
from trimtab.units import S_PER_HR

LEAST_WINDOWS = 1_700
"""Of 2,016: clients with fewer have too many gaps."""
PEAK_GPUS, LEAST_GPUS = 40, 8
NEAR = 1.05
MILLI = 1000
"""`gpu_milli` of openb are thousandths of a GPU."""


def clients(path: Path) -> dict[str, Floats]:
    """Return the hourly rate of each steady client as GPUs, gaps filled in a straight line."""
    rows: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    table = pq.read_table(path).to_pydict()
    for model, client, t_s, rate in zip(
        table["model"], table["client"], table["t_s"], table["requests_per_s"], strict=True
    ):
        rows[model, client].append((t_s, rate))
    found = {}
    for (model, client), known in sorted(rows.items()):
        if len(known) >= LEAST_WINDOWS:
            times, rates = np.array(sorted(known)).T
            hour = (times // S_PER_HR).astype(int)
            count = np.bincount(hour)
            seen = np.flatnonzero(count)
            hourly = np.interp(np.arange(len(count)), seen, np.bincount(hour, weights=rates)[seen] / count[seen])
            found[f"servegen_{model}_{client}"] = PEAK_GPUS * hourly / hourly.max()
    return found


def apps(path: Path) -> dict[str, Floats]:
    """Return GPUs held per hour by each app of the DLRM fleet that holds at least 8 in the mean."""
    rows = [row for row in pq.read_table(path).to_pylist() if row["role"] == "HN"]
    times = [row[key] for row in rows for key in ("creation_time", "deletion_time")]
    end_s = max(time for time in times if time is not None and not np.isnan(time))
    hours, change = int(end_s // S_PER_HR), dict[str, Floats]()
    for row in rows:
        own = change.setdefault(row["app_name"], np.zeros(hours + 2))
        own[int(_known(row["creation_time"], 0.0) // S_PER_HR)] += row["gpu_request"]
        own[min(int(_known(row["deletion_time"], end_s) // S_PER_HR), hours) + 1] -= row["gpu_request"]
    held = {f"dlrm_{name}": np.cumsum(own)[:hours] for name, own in sorted(change.items())}
    return {name: gpus for name, gpus in held.items() if gpus.mean() >= LEAST_GPUS}


def _known(time: float | None, otherwise: float) -> float:
    return otherwise if time is None or np.isnan(time) else max(time, 0.0)


def pods(path: Path) -> dict[str, Floats]:
    """Return GPUs in use per hour of all pods of openb, and of its latency-sensitive ones."""
    rows = [row for row in pq.read_table(path).to_pylist() if row["num_gpu"] > 0]
    found = {}
    for name, own in (("all", rows), ("LS", [row for row in rows if row["qos"] == "LS"])):
        start, end = (np.array([row[key] for row in own]) / S_PER_HR for key in ("creation_time", "deletion_time"))
        gpus = np.array([row["num_gpu"] * row["gpu_milli"] / MILLI for row in own])
        found[f"openb_{name}"] = hourly_gpus(start, end, gpus, int(end.max()))
    return found


def unseen_series(traces: Path) -> dict[str, Floats]:
    """Return every series that was held back."""
    return {
        **clients(traces / "requests" / "servegen_client_rates_10min.parquet"),
        **apps(traces / "jobs" / "alibaba2025_dlrm_instances.parquet"),
        **pods(traces / "jobs" / "alibaba2023_openb_pods.parquet"),
    }


def play(demand: Floats, discount: float) -> dict[CommitRule, float] | None:
    """Return each rule's cost over hindsight on the second half of a series; None where nothing runs in it."""
    history, test = np.split(demand, [len(demand) // 2])
    if not history.any() or not test.any():
        return None
    costs = {rule: cost(test, held_units(rule, history, test, discount), discount) for rule in CommitRule}
    return {rule: spent / costs[CommitRule.HINDSIGHT] for rule, spent in costs.items()}


def main() -> None:
    arguments = data_argument(__doc__).parse_args()
    series = unseen_series(arguments.data)
    cases = [(name, discount, play(demand, discount)) for name, demand in series.items() for discount in DISCOUNTS]
    played = [(name, discount, ratios) for name, discount, ratios in cases if ratios is not None]
    rules = {}
    for rule in CommitRule:
        over = np.array([ratios[rule] for _, _, ratios in played])
        near = np.array([ratios[rule] / min(ratios[other] for other in SIMPLE_RULES) for _, _, ratios in played])
        rules[rule.value] = {
            "mean_ratio": float(over.mean()),
            "p95_ratio": float(np.quantile(over, 0.95)),
            "worst_ratio": float(over.max()),
            "over_best_simple_mean": float(near.mean()),
            "over_best_simple_worst": float(near.max()),
            "near_best_simple_frac": float((near <= NEAR).mean()),
        }
        print(
            f"{rule.value:32s}", " ".join(f"{key} {value:.3f}" for key, value in rules[rule.value].items()), flush=True
        )
    ours = rules[CommitRule.CHOSEN.value]
    by_source = {
        source: float(np.mean([ratios[CommitRule.CHOSEN] for name, _, ratios in played if name.startswith(source)]))
        for source in ("servegen", "dlrm", "openb")
    }
    rows = [
        {"series": name, "discount_frac": discount, "over_hindsight": ratios[CommitRule.CHOSEN],
         "over_best_simple": ratios[CommitRule.CHOSEN] / min(ratios[other] for other in SIMPLE_RULES)}
        for name, discount, ratios in played
    ]  # fmt: skip
    print(json.dumps({
        "benchmark": "commit_unseen", "data": str(arguments.data), "series": len(series), "cases": len(played), **ours,
        "by_source": by_source, "rules": rules, "rows": rows,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
