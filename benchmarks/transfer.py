"""Speed on another GPU from activity counters, some missing: `python -m benchmarks.transfer --data measured.csv`.

No row of the data has counters. A device that served a language model in a measured time moved at least its weights and cache
and did at least the model's arithmetic: these, over what bus and pipes could have done in that time, stand in for DRAM and
tensor activity (GPU_UTIL 1: a kernel ran all the time; SM activity unknown). From them, all or without one, the speed on every
other GPU that was asked the same question is predicted and held against the measured one. Nothing is fitted.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.perf_rows import Row, read_rows, serving_query
from benchmarks.scores import mean, median, same_question
from trimtab.catalog import Gpu, Precision
from trimtab.physics.fitted import Floats
from trimtab.physics.formats import FORMATS, compute_precision
from trimtab.physics.serving import cache_bytes, capacity
from trimtab.physics.serving_query import Load, ServingQuery, serving_columns
from trimtab.physics.transfer import DeviceActivity, speed_ratio
from trimtab.provenance import Estimate
from trimtab.units import FLOPS_PER_TFLOPS, MS_PER_S

LOADS = (Load.STATIC, Load.PREFILL, Load.DECODE)
"""Ways of asking in which what is in work at once is known."""
READINGS: dict[str, dict[str, float | None]] = {
    "all": {},
    "no_dram": {"dram_active": None},
    "no_tensor": {"tensor_active": None},
    "dram_read_as_zero": {"dram_active": 0.0},
}
"""What is changed of the readings before predicting; the last is what a missing reading must not be."""


class Run(NamedTuple):
    """One measured speed on a board, and what its counters would have shown."""

    board: Gpu
    seen: DeviceActivity
    precision: Precision
    load: Load
    speed: float


def run_of(row: Row) -> Run | None:
    """Return a row as a run; None where its work is not known, GPUs waited for one another, or requests for memory."""
    query = serving_query(row)
    if query is None or query.load not in LOADS or query.model.is_moe or query.pipeline > 1 or not row.is_nvidia:
        return None
    took_s = _seconds(row, query)
    v = serving_columns([query])
    if took_s is None or (query.load is Load.STATIC and capacity(v)[0] < query.requests):
        return None
    flops, moved = _least_work(query, v)
    precision = compute_precision(query.gpu, FORMATS[query.stored].compute)
    rate = (query.gpu.tflops(precision) or query.gpu.fp32_tflops) * FLOPS_PER_TFLOPS
    seen = DeviceActivity(
        gpu_util=1.0,
        tensor_active=min(1.0, flops / (query.gpus * rate * took_s)),
        dram_active=min(1.0, moved / (query.gpus * v["byte_s"][0] * took_s)),
    )
    return Run(query.gpu, seen, precision, query.load, 1 / took_s)


def _seconds(row: Row, query: ServingQuery) -> float | None:
    """Return what a batch, a prompt or a step took."""
    tokens = {
        "total_throughput": query.requests * (query.input_tokens + query.output_tokens),
        "prefill_throughput": query.input_tokens,
        "decode_throughput": 1.0,
    }
    if row.metric in tokens:
        return tokens[row.metric] / row.value
    return row.value / MS_PER_S if row.metric in ("tpot_mean", "prefill_latency") else None


def _least_work(query: ServingQuery, v: Mapping[str, Floats]) -> tuple[float, float]:
    """Return the FLOPs and the bytes that the timed work takes at least: prompts, steps, or both (a static batch)."""
    prompts = query.load is not Load.DECODE
    steps = {Load.DECODE: 1.0, Load.PREFILL: 0.0}.get(query.load, query.output_tokens)
    tokens = query.requests * (steps + prompts * query.input_tokens)
    attention = 2 * v["layers"] * v["query_width"] * query.input_tokens**2 * query.requests * prompts
    cache = steps * query.requests * cache_bytes(v, v["input"] + v["output"] / 2)
    flops, moved = 2 * (v["active"] + v["head"]) * tokens + attention, v["read"] * (steps + prompts) + cache
    return float(flops[0]), float(moved[0])


def pairs(rows: Sequence[Row]) -> list[tuple[Run, Run]]:
    """Return every ordered pair of GPUs that were asked the same question; of repeats the one of median speed."""
    asked: dict[tuple[object, ...], dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if (run := run_of(row)) is not None:
            asked[same_question(row)][run.board.name].append(run)
    middle = [[sorted(runs, key=_speed)[len(runs) // 2] for runs in boards.values()] for boards in asked.values()]
    return [pair for boards in middle for pair in permutations(boards, 2)]


def _speed(run: Run) -> float:
    return run.speed


def scores(found: Sequence[tuple[Run, Run]], changed: Mapping[str, float | None]) -> dict[str, float]:
    """Return how predictions with some readings changed fare over pairs of source and target."""
    answers = [_predicted(source, target, changed) for source, target in found]
    measured = np.array([target.speed / source.speed for source, target in found])
    low, value, high = (np.array([getattr(one, end) for one in answers]) for end in ("low", "value", "high"))
    slower, faster = ((measured < low).astype(np.float64), (measured > high).astype(np.float64))
    figures = {
        "interval_coverage_frac": 1 - mean(slower + faster),
        "slower_than_low_frac": mean(slower),
        "median_error_frac": math.exp(median(np.abs(np.log(value / measured)))) - 1,
        "interval_ratio_median": median(high / low),
    }
    return {name: round(value, 4) for name, value in figures.items()}


def _predicted(source: Run, target: Run, changed: Mapping[str, float | None]) -> Estimate:
    seen = replace(source.seen, **changed)
    return speed_ratio(observed=seen, source=source.board, target=target.board, precision=source.precision)


def main() -> None:
    """Run the benchmark; the last line is one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="measured rows, columns of the perf data set")
    options = parser.parse_args()
    found = pairs(read_rows(options.data))
    parts = {load.value: [pair for pair in found if pair[0].load is load] for load in LOADS}
    figures = {
        load: {"pairs": len(part), **{name: scores(part, changed) for name, changed in READINGS.items()}}
        for load, part in parts.items()
        if part
    }
    print(json.dumps({"benchmark": "transfer", "data": str(options.data), "pairs": len(found), **figures}))


if __name__ == "__main__":
    main()
