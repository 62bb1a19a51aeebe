"""The model of programs in time slices against 1,016 measured pairs on a GPU (Lucid's table: training jobs, RTX 3090, no MPS).

The table states the speed of both jobs beside what each reaches alone, and the GPU's utilisation while both run, but not what
share of the time each keeps the GPU busy alone. Those shares are fitted on half of the pairs, as the shares that add up to
the utilisation; speeds are compared on the other half, which nothing was fitted to.

    python -m benchmarks.colocation --data PAIRS.parquet
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from scipy.optimize import lsq_linear

from trimtab.physics.colocation import AS_MET, MET_BOTH_WAYS, met_frac

_SEED = 7
_SIDES = (1, 2)
FloatArray = npt.NDArray[np.float64]


def main() -> None:
    """Fit, compare, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    path = parser.parse_args().data
    pairs = pq.read_table(path).to_pylist()
    names = sorted({_job(pair, side) for pair in pairs for side in _SIDES}, key=str)
    who = np.array([[names.index(_job(pair, side)) for side in _SIDES] for pair in pairs])
    speed = np.array([[pair[f"speed{side}"] for side in _SIDES] for pair in pairs])
    held_out = np.random.default_rng(_SEED).random(len(pairs)) < 0.5
    busy = _busy_fracs(who, np.array([pair["gpu_util"] / 100 for pair in pairs]), ~held_out, len(names))
    measured, other = speed[held_out].ravel(), busy[who[held_out][:, ::-1]].ravel()
    own = busy[who[held_out]].ravel()
    answer = {
        "benchmark": "colocation",
        "data": str(path),
        "pairs": len(pairs),
        "held_out_speeds": len(measured),
        "measured_below_low_end_frac": _below(measured, _speed(other, MET_BOTH_WAYS)),
        "measured_below_value_frac": _below(measured, _speed(other, AS_MET)),
        "measured_below_fair_share_frac": float((measured < 1 / len(_SIDES)).mean()),
        "value_mape_frac": _mape(_speed(other, AS_MET), measured),
        "value_bias_frac": float((_speed(other, AS_MET) / measured - 1).mean()),
        "with_own_share_mape_frac": _mape(1 / (1 + own * other), measured),
        "no_slowdown_mape_frac": _mape(np.ones_like(measured), measured),
    }
    print(json.dumps(answer))


def _job(pair: dict[str, object], side: int) -> tuple[object, ...]:
    return tuple(pair[f"{key}{side}"] for key in ("model", "dataset", "batchsize", "amp"))


def _busy_fracs(
    who: npt.NDArray[np.int64], together: FloatArray, fitted: npt.NDArray[np.bool_], jobs: int
) -> FloatArray:
    """Return the share of the time in which each job keeps a GPU busy alone: two of them add up to what both reach together."""
    terms = np.zeros((int(fitted.sum()), jobs))
    for side in range(len(_SIDES)):
        np.add.at(terms, (np.arange(len(terms)), who[fitted, side]), 1.0)
    return np.asarray(lsq_linear(terms, together[fitted], bounds=(0, 1)).x, dtype=np.float64)


def _speed(busy_frac: FloatArray, ways: float) -> FloatArray:
    """Return the mean speed of work beside one other program that is at work for such a share of the time."""
    alone = np.array([met_frac(1, float(one), ways)[0] for one in busy_frac])
    return np.asarray(1 / (2 - alone), dtype=np.float64)


def _below(measured: FloatArray, predicted: FloatArray) -> float:
    return float((measured < predicted).mean())


def _mape(predicted: FloatArray, measured: FloatArray) -> float:
    return float(np.abs(predicted / measured - 1).mean())


if __name__ == "__main__":
    main()
