"""How much two programs on one GPU slow each other down, against 1,016 measured pairs (Lucid: training jobs, RTX 3090, no MPS).

The table states the speed of both jobs beside what each reaches alone, and the GPU's utilisation while both run, but not what
share of the time each keeps the GPU busy alone. Those shares are fitted from the utilisations, never from speeds, as the shares
that add up to them.

- Requests in time slices: shares from half of the pairs, speeds compared on the other half.
- Whole work (`speed_beside`): each model in turn is held out with all its pairs, the law and its intervals are fitted on the
  pairs of the others (the intervals on the errors that each of these had when it was held out), and scored on its pairs. A
  pair of two models is scored twice, once with each held out. The constants in `physics/colocation.py` are the fit on all.

    python -m benchmarks.interference --data PAIRS.parquet
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from scipy.optimize import least_squares, lsq_linear, minimize

from trimtab.physics.colocation import (
    AS_MET,
    CAREFUL_LOSS_FRAC,
    MET_BOTH_WAYS,
    SAFE_LOSS_FRAC,
    SPREAD_FLOOR,
    PairLaw,
    met_frac,
)

_SEED = 7
_INTERVAL = (0.1, 0.9)
_CAREFUL = 0.01
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
        "benchmark": "interference",
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
    everything = np.ones(len(pairs), dtype=np.bool_)
    shares = _busy_fracs(who, np.array([pair["gpu_util"] / 100 for pair in pairs]), everything, len(names))
    models = np.array([[pair[f"model{side}"] for side in _SIDES] for pair in pairs])
    print(json.dumps(answer | _whole_work(Pairs(own=shares[who], speed=speed, models=models))))


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Both jobs of each pair (pairs, 2): how busy each keeps the GPU alone, how fast it is beside the other, its model."""

    own: FloatArray
    speed: FloatArray
    models: npt.NDArray[np.str_]

    def of(self, rows: npt.NDArray[np.bool_]) -> Pairs:
        """Return some of the pairs."""
        return Pairs(self.own[rows], self.speed[rows], self.models[rows])

    def with_model(self, model: str) -> npt.NDArray[np.bool_]:
        """Tell which pairs have a job of a model."""
        return np.asarray((self.models == model).any(axis=1))

    @property
    def names(self) -> list[str]:
        """Return the models."""
        return sorted(set(self.models.ravel().tolist()))


@dataclass(frozen=True, slots=True)
class Fit:
    """The laws of whole work, and the spread of the expected one's errors."""

    expected: PairLaw
    careful: PairLaw
    low: float
    high: float


def fitted(pairs: Pairs) -> Fit:
    """Fit laws and spread on pairs of at least two models that each other's pairs can do without."""
    errors = []
    for model in pairs.names:
        mine = pairs.with_model(model)
        if mine.any() and not mine.all():
            held_out = pairs.of(mine)
            speed = _speeds(_expected(pairs.of(~mine)), held_out)
            errors.append((np.log(held_out.speed / speed) / (SPREAD_FLOOR + 1 - speed)).ravel())
    low, high = np.quantile(np.concatenate(errors), _INTERVAL)
    return Fit(expected=_expected(pairs), careful=_careful(pairs), low=float(low), high=float(high))


def _speeds(law: PairLaw, pairs: Pairs) -> FloatArray:
    return np.asarray(law.speed(pairs.own, pairs.own[:, ::-1]))


def _expected(pairs: Pairs) -> PairLaw:
    """Fit relative errors, large ones by their size and not its square."""

    def errors(law: FloatArray) -> FloatArray:
        return np.asarray(_speeds(PairLaw(*law), pairs) / pairs.speed - 1).ravel()

    return PairLaw(*least_squares(errors, (1.0, 1.0, 1.0), loss="soft_l1", f_scale=0.1).x.tolist())


def _careful(pairs: Pairs) -> PairLaw:
    """Fit the speed that one job in a hundred falls below (quantile regression, all parameters positive)."""

    def loss(logs: FloatArray) -> float:
        errors = np.log(pairs.speed / _speeds(PairLaw(*np.exp(logs)), pairs))
        return float(np.maximum(_CAREFUL * errors, (_CAREFUL - 1) * errors).mean())

    # it has several valleys
    starts = ((0.0, -1.0, 0.0), (1.0, 0.0, 0.5), (0.0, -3.0, 0.5))
    options = {"maxiter": 2000, "xatol": 1e-3, "fatol": 1e-7}
    found = [minimize(loss, start, method="Nelder-Mead", options=options) for start in starts]
    return PairLaw(*np.exp(min(found, key=lambda each: float(each.fun)).x).tolist())


def _whole_work(pairs: Pairs) -> dict[str, object]:
    """Return the figures of `speed_beside`, each model held out in turn, and the fit on all pairs."""
    errors, inside, below, safe, lost = [], [], [], 0, 0
    by_model = {}
    for model in pairs.names:
        mine = pairs.with_model(model)
        fit, scored = fitted(pairs.of(~mine)), pairs.of(mine)
        expected = _speeds(fit.expected, scored)
        careful = np.minimum(expected, _speeds(fit.careful, scored))
        width = SPREAD_FLOOR + 1 - expected
        beside = np.log(scored.speed / expected) / width
        errors.append(np.abs(expected / scored.speed - 1).ravel())
        inside.append(((beside >= fit.low) & (beside <= fit.high)).ravel())
        below.append((scored.speed < careful).ravel())
        called = (expected >= 1 - SAFE_LOSS_FRAC).all(axis=1) & (careful >= 1 - CAREFUL_LOSS_FRAC).all(axis=1)
        safe += int(called.sum())
        lost += int((called & (scored.speed.min(axis=1) < 1 - CAREFUL_LOSS_FRAC)).sum())
        by_model[model] = {"mape": round(float(errors[-1].mean()), 3), "inside": round(float(inside[-1].mean()), 2)}
    final = fitted(pairs)
    return {
        "held_out_models": len(by_model),
        "held_out_mape_frac": float(np.concatenate(errors).mean()),
        "interval_80_holds_frac": float(np.concatenate(inside).mean()),
        "below_careful_frac": float(np.concatenate(below).mean()),
        "scored_pairs": sum(len(each) for each in errors) // len(_SIDES),
        "called_safe": safe,
        "called_safe_that_lost_over_25_pct": lost,
        "by_model": by_model,
        "fit_on_all": {"expected": final.expected, "careful": final.careful, "spread": (final.low, final.high)},
    }


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
    alone = np.array([met_frac(1, float(share), ways)[0] for share in busy_frac])
    return np.asarray(1 / (2 - alone), dtype=np.float64)


def _below(measured: FloatArray, predicted: FloatArray) -> float:
    return float((measured < predicted).mean())


def _mape(predicted: FloatArray, measured: FloatArray) -> float:
    return float(np.abs(predicted / measured - 1).mean())


if __name__ == "__main__":
    main()
