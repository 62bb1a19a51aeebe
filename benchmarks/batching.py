"""Device time of our batcher over the least that any batcher needs, under a target on mean latency.

Poisson arrivals and a batch-time curve `base + slope * b`: the setting in which the optimum is known. The batcher's rule (the
one that the runtime follows) is tuned on one draw of arrivals: the least device time among its settings that keep the target;
it is scored on another draw. The optimum is the dual bound of a semi-Markov decision process. `cost_ratio_to_optimum` is the
mean over the cases, `worst_latency_ratio` the largest mean latency over its target on the scored draws.

Run: python -m benchmarks.batching
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import numpy as np

from benchmarks.reference.batch_optimum import batching, least_device_s_req, policy_cost
from benchmarks.traces import data_argument
from trimtab.physics.colocation import BatchCurve
from trimtab.replay.batches import BatchReplay, replay_batches
from trimtab_runtime.policies.batching import BatchRule

CURVES = {
    "mostly fixed": BatchCurve(sizes=(1, 16), seconds=(0.011, 0.026)),
    "half and half": BatchCurve(sizes=(1, 16), seconds=(0.006, 0.036)),
    "mostly per item": BatchCurve(sizes=(1, 16), seconds=(0.0035, 0.041)),
}
USES = (0.3, 0.7)
"""Arrival rate over what the device can do at its largest batch."""
LATENCY_RATIOS = (1.05, 1.25, 1.6, 2.5)
"""Target on mean latency over greedy's."""
MAX_BATCH, STATES = 16, 100
TUNE_REQUESTS, SCORE_REQUESTS = 6_000, 20_000
LEAST_BATCHES = (2, 3, 4, 5, 6, 8, 10, 12, 14, 16)
WINDOWS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0)
ROOM = 0.03
"""Share of the target that tuning leaves for another draw."""
TAIL = 2 * MAX_BATCH
"""The last requests wait for a batch that never fills; they do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One curve, rate and target."""

    curve: str
    use_frac: float
    target_ratio: float
    least_batch: int
    cost_ratio: float
    greedy_cost_ratio: float
    latency_ratio: float


def arrivals(rate_req_s: float, count: int, seed: int) -> list[float]:
    """Draw arrival times."""
    return [float(x) for x in np.cumsum(np.random.default_rng(seed).exponential(1 / rate_req_s, count))]


def settings(run_s: float) -> list[BatchRule]:
    """Return the batcher's settings: greedy, then least batches with windows in units of a lone request's run."""
    greedy = BatchRule(max_batch=MAX_BATCH, learn=False)
    return [greedy] + [
        BatchRule(max_batch=MAX_BATCH, min_batch=least, window_s=window * run_s, learn=False)
        for least in LEAST_BATCHES
        for window in WINDOWS
    ]


def mean_latency_s(replayed: BatchReplay) -> float:
    """Return the mean latency."""
    return float(np.mean(replayed.latencies_s[:-TAIL]))


def device_s_req(replayed: BatchReplay) -> float:
    """Return the device time of a request."""
    return replayed.busy_s / len(replayed.latencies_s)


def cases_of(name: str, curve: BatchCurve, use_frac: float) -> list[Case]:
    """Tune and score one curve at one rate, for every target."""
    rate_req_s = use_frac * MAX_BATCH / curve.run_s(MAX_BATCH)
    process = batching(curve.run_s, rate_req_s=rate_req_s, max_batch=MAX_BATCH, states=STATES)
    greedy = policy_cost(process, [min(queue, MAX_BATCH) for queue in range(STATES)])
    draw = arrivals(rate_req_s, TUNE_REQUESTS, seed=1)
    tried = [(rule, replay_batches(draw, rule, curve)) for rule in settings(curve.run_s(1))]
    fresh = arrivals(rate_req_s, SCORE_REQUESTS, seed=2)
    scored: dict[BatchRule, BatchReplay] = {}
    found = []
    for ratio in LATENCY_RATIOS:
        target_s = ratio * greedy.latency_s
        kept = [(rule, run) for rule, run in tried if mean_latency_s(run) <= target_s * (1 - ROOM)] or tried[:1]
        rule = min(kept, key=lambda pair: device_s_req(pair[1]))[0]
        if rule not in scored:
            scored[rule] = replay_batches(fresh, rule, curve)
        least_s = least_device_s_req(process, latency_s=target_s)
        found.append(
            Case(
                curve=name,
                use_frac=use_frac,
                target_ratio=ratio,
                least_batch=rule.min_batch,
                cost_ratio=device_s_req(scored[rule]) / least_s,
                greedy_cost_ratio=greedy.device_s_req / least_s,
                latency_ratio=mean_latency_s(scored[rule]) / target_s,
            )
        )
    return found


def main() -> None:
    arguments = data_argument(__doc__).parse_args()
    cases = [case for name, curve in CURVES.items() for use in USES for case in cases_of(name, curve, use)]
    for case in cases:
        print(
            f"{case.curve:16} use {case.use_frac:.1f} target {case.target_ratio:.2f} x greedy: least batch"
            f" {case.least_batch:2}, cost {case.cost_ratio:.3f} (greedy {case.greedy_cost_ratio:.3f}),"
            f" latency {case.latency_ratio:.3f} of target"
        )
    ratios = [case.cost_ratio for case in cases]
    result = {
        "benchmark": "batching",
        "data": str(arguments.data),
        "cost_ratio_to_optimum": float(np.mean(ratios)),
        "worst_cost_ratio": max(ratios),
        "worst_latency_ratio": max(case.latency_ratio for case in cases),
        "greedy_cost_ratio": float(np.mean([case.greedy_cost_ratio for case in cases])),
        "cases": [asdict(case) for case in cases],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
