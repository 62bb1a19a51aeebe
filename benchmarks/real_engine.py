"""A load on a serving engine that is not ours, replayed by ours: first tokens and times per token beside the measured ones.

`benchmarks.gpu_engine` ran transformers' continuous batching on a GPU. The law of a step has six numbers, fitted on requests
that were alone or all alike. The loads to be told, of mixed lengths, in a closed loop or arriving at random, are in no fit. How
fast the host launches kernels changed between runs by a quarter, so that each run is told twice: with the law as it is, and
with all its steps scaled by one number, for which the run's own mean time per token is told right and only first tokens count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from trimtab.ledger.arrays import FloatArray
from trimtab.physics.serving import StepTimes, scaled
from trimtab.replay.engine import EngineLimits, EngineReplay, Requests, replay_engine

Record = Mapping[str, Any]
FITTED_ON = ("alone", "alike")
FIRST_GUESS = (0.03, 1e-4, 0.03, 3e-5, 1e-7, 1e-9)
"""Seconds: a step that decodes and each request in it; the shortest step with prompts and each of its tokens; each token of a
cache; each pair of a prompt's token and one before it."""
TURNS = 8
QUANTILES = (("p50", 50.0), ("p90", 90.0))


class Load(NamedTuple):
    """Requests as they came, `(n,)` each, and when their first and last tokens did."""

    requests: Requests
    first_s: FloatArray
    last_s: FloatArray

    @property
    def ttft_s(self) -> FloatArray:
        """Return the measured times to the first token."""
        return np.asarray(self.first_s - self.requests.arrival_s)

    @property
    def tpot_s(self) -> FloatArray:
        """Return the measured times per token after the first; all answers here have more than one."""
        return np.asarray((self.last_s - self.first_s) / (self.requests.output_tokens - 1))


def load_of(run: Record) -> Load:
    """Return the requests of a run in order of arrival."""
    rows = np.array(sorted(run["requests"]), dtype=float)
    lengths = rows[:, 1:3].astype(np.int64)
    none = np.zeros(len(rows), dtype=np.int64)
    requests = Requests(rows[:, 0].copy(), lengths[:, 0].copy(), lengths[:, 1].copy(), none)
    return Load(requests, rows[:, 3], rows[:, 4])


def limits_of(limits: Mapping[str, int]) -> EngineLimits:
    """Return the limits that the engine ran with."""
    block_tokens = limits["block_tokens"]
    return EngineLimits(
        max_num_seqs=limits["max_requests"],
        step_tokens=limits["step_tokens"],
        kv_blocks=limits["cache_tokens"] // block_tokens,
        block_tokens=block_tokens,
    )


def steps_of(logs: FloatArray, limits: EngineLimits) -> StepTimes:
    """Return the law of a step by the logarithms of its numbers, in the order of `FIRST_GUESS`."""
    decode_s, sequence_s, least_s, token_s, context_s, pair_s = np.exp(logs)
    return StepTimes(
        decode_s=decode_s + sequence_s * np.arange(limits.max_num_seqs + 1.0),
        mixed_s=np.maximum(least_s, token_s * np.arange(limits.step_tokens + 1.0)),
        sequence_s=0.0,
        context_s=context_s,
        pair_s=pair_s,
    )


def fitted_steps(runs: Mapping[str, Record], limits: EngineLimits) -> FloatArray:
    """Fit the law of a step on requests that were alone or all alike."""
    loads = [load_of(run) for name, run in runs.items() if name.startswith(FITTED_ON)]

    def loss(logs: FloatArray) -> float:
        total = 0.0
        for load in loads:
            found = replay_engine(load.requests, limits, steps_of(logs, limits))
            total += float(np.abs(np.log(found.ttft_s / load.ttft_s)).mean())
            total += abs(float(np.log(found.tpot_s.mean() / load.tpot_s.mean())))
        return total

    fit = minimize(
        loss, np.log(FIRST_GUESS), method="Nelder-Mead", options={"maxiter": 900, "xatol": 1e-3, "fatol": 1e-4}
    )
    return np.asarray(fit.x)


def at_its_pace(load: Load, limits: EngineLimits, steps: StepTimes) -> EngineReplay:
    """Replay a load with all steps scaled until the mean time per token is the measured one."""
    factor = 1.0
    for _ in range(TURNS):
        found = replay_engine(load.requests, limits, scaled(steps, factor))
        # how many share a step depends on how long it takes: a few turns settle both
        factor *= float(load.tpot_s.mean() / found.tpot_s.mean())
    return replay_engine(load.requests, limits, scaled(steps, factor))


def told_loads(runs: Mapping[str, Record]) -> Iterator[tuple[str, bool, float, float]]:
    """Yield name, whether at the run's own pace, what the replay tells and what was measured, in seconds."""
    first = next(run for run in runs.values() if "limits" in run)
    logs = fitted_steps(runs, limits_of(first["limits"]))
    for name, run in runs.items():
        if name.startswith(FITTED_ON):
            continue
        load, limits = load_of(run), limits_of(run["limits"])
        steps = steps_of(logs, limits)
        as_fitted, at_pace = replay_engine(load.requests, limits, steps), at_its_pace(load, limits, steps)
        for found, is_at_pace in ((as_fitted, False), (at_pace, True)):
            yield f"{name}: first token, mean", is_at_pace, float(found.ttft_s.mean()), float(load.ttft_s.mean())
            for label, percent in QUANTILES:
                told, measured = (float(np.percentile(times, percent)) for times in (found.ttft_s, load.ttft_s))
                yield f"{name}: first token, {label}", is_at_pace, told, measured
        yield f"{name}: per token, mean", False, float(as_fitted.tpot_s.mean()), float(load.tpot_s.mean())
