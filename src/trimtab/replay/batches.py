"""Replay a batcher: recorded arrivals, a measured batch-time curve, and the very rule that the runtime decides by.

One worker, one key, no overhead: what is left is the rule. The result is what `trimtab batch tune` compares.
For a latency target each setting is replayed on the arrivals, and the cheapest that meets it is chosen.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import assert_never

from trimtab.errors import InputError, PlanError
from trimtab.physics.colocation import BatchCurve
from trimtab.units import MS_PER_S
from trimtab_runtime.policies.batching import (
    BatchRule,
    Learned,
    RunTime,
    decide,
    learn,
    moment_of,
    observe_run,
    saving_s,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReplay:
    """What the arrivals would have seen: latencies in the order of arrival, number of batches, busy and whole time."""

    latencies_s: tuple[float, ...]
    batches: int
    busy_s: float
    span_s: float

    @property
    def mean_batch(self) -> float:
        """Return the mean number of requests in a batch."""
        return len(self.latencies_s) / self.batches if self.batches else 0.0

    @property
    def busy_frac(self) -> float:
        """Share of the time in which the device runs: what could be given to others is the rest."""
        return self.busy_s / self.span_s if self.span_s > 0 else 0.0

    def latency_s(self, share: float) -> float:
        """Return a quantile of latency (nearest rank)."""
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Replay:
    """The state of one replay."""

    def __init__(self, arrivals_s: Sequence[float], rule: BatchRule, run_s: Callable[[int], float]) -> None:
        self._arrivals = arrivals_s
        self._rule = rule
        self._run_s = run_s
        self._time = RunTime()
        self._learned = Learned()
        self._answered = 0
        self._answered_s = arrivals_s[0]
        self._idle = True
        self._cycle_from = 0

    def dispatch_s(self, first: int, free_s: float) -> float:
        """Return when the batch that begins with request `first` leaves, given when the device is free."""
        arrivals = self._arrivals
        now_s = max(free_s, arrivals[first])
        # each round either leaves, or moves on to the moment at which the rule wants to be asked again
        while True:
            here = bisect_right(arrivals, now_s, lo=first)
            waiting = here - first
            if waiting >= self._rule.max_batch:
                return now_s
            moment = moment_of(
                # earlier arrivals have been learnt from already
                arrivals[self._cycle_from : here],
                waiting=waiting,
                oldest_s=arrivals[first],
                answered=self._answered,
                answered_s=self._answered_s,
                idle=self._idle,
                now_s=now_s,
            )
            decision = decide(self._rule, self._time, self._learned, moment)
            if decision.wait_s <= 0:
                return now_s
            enough = first + decision.wake_at - 1
            full_s = arrivals[enough] if enough < len(arrivals) else inf
            # the wait is over before enough have come
            if now_s + decision.wait_s <= max(now_s, full_s):
                return now_s + decision.wait_s
            # enough have come: the rule is asked again, with what is known by then
            now_s = max(now_s, full_s)

    def answer(self, batch: int, run_s: float, end_s: float, first: int) -> None:
        """Learn from a batch that ends; `first` is the next request not yet taken."""
        self._time = observe_run(self._time, batch, run_s)
        here = bisect_right(self._arrivals, end_s, lo=first)
        self._learned = learn(
            self._learned,
            self._arrivals[self._cycle_from : here],
            answered=self._answered,
            answered_s=self._answered_s,
            idle=self._idle,
            saved_s=saving_s(self._time) if self._rule.learn else 0.0,
            now_s=end_s,
        )
        self._answered, self._answered_s = batch, end_s
        # no request was waiting when the batch ended
        self._idle = here == first
        self._cycle_from = here

    def run(self) -> BatchReplay:
        """Serve all arrivals."""
        arrivals = self._arrivals
        latencies: list[float] = []
        first, free_s, batches, busy_s = 0, arrivals[0], 0, 0.0
        while first < len(arrivals):
            start_s = self.dispatch_s(first, free_s)
            last = min(bisect_right(arrivals, start_s, lo=first), first + self._rule.max_batch)
            run_s = self._run_s(last - first)
            free_s = start_s + run_s
            latencies += [free_s - arrival for arrival in arrivals[first:last]]
            self.answer(last - first, run_s, free_s, last)
            first, batches, busy_s = last, batches + 1, busy_s + run_s
        return BatchReplay(
            latencies_s=tuple(latencies), batches=batches, busy_s=busy_s, span_s=free_s - arrivals[0]
        )  # fmt: skip


def replay_batches(arrivals_s: Sequence[float], rule: BatchRule, curve: BatchCurve) -> BatchReplay:
    """Serve sorted arrival times under a rule on a device with a batch-time curve."""
    if not arrivals_s:
        raise InputError("there are no arrivals to replay")
    return Replay(arrivals_s, rule, curve.run_s).run()


WINDOWS = 5
"""Windows tried between a tenth of the shortest run and what the target leaves."""
CONTROL_LIMITS = (2, 4, 8, 16, 32, 64, 128)
"""Least batches tried with each window. The best rule for Poisson arrivals is such a control limit when device time has a price
(Xu et al., arXiv 2301.12865)."""

HEADROOM_FRAC = 0.1
"""Share of the target that the settings leave free in the replay, for what a replay lacks: waking threads, run times that vary,
another day's arrivals. See docs/benchmarks/batcher.md for what is met live with it and without."""


class Objective(Enum):
    """What is made least among the settings that meet the target."""

    DEVICE = "device"
    LATENCY = "latency"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One setting and and what it has saved since."""

    rule: BatchRule
    replayed: BatchReplay
    latency_s: float
    """The quantile that the target is about."""
    meets: bool

    @property
    def device_s_req(self) -> float:
        """Device time a request."""
        return self.replayed.busy_s / len(self.replayed.latencies_s)


def windows_s(shortest_run_s: float, target_s: float) -> list[float]:
    """Return window lengths to try, in equal ratios, all of which leave a lone request time to run."""
    low, high = 0.1 * shortest_run_s, target_s - shortest_run_s
    if high <= low:
        return []
    ratio = (high / low) ** (1 / (WINDOWS - 1))
    return [low * ratio**step for step in range(WINDOWS)]


def candidates(curve: BatchCurve, target_s: float) -> list[BatchRule]:
    """Return the settings to try: greedy with learned waits at each measured size, then windows with least batches."""
    most = curve.sizes[-1]
    greedy = [BatchRule(max_batch=size, target_s=target_s) for size in reversed(curve.sizes)]
    windowed = [
        BatchRule(max_batch=most, min_batch=least, window_s=window_s, target_s=target_s)
        for window_s in windows_s(curve.run_s(1), target_s)
        # a limit above the largest batch could never be reached: it means that batch
        for least in sorted({min(limit, most) for limit in CONTROL_LIMITS} | {most})
    ]
    return greedy + windowed


def try_rule(
    arrivals_s: Sequence[float], curve: BatchCurve, rule: BatchRule, *, share: float, target_s: float
) -> Trial:
    """Replay one setting."""
    replayed = replay_batches(arrivals_s, rule, curve)
    latency_s = replayed.latency_s(share)
    return Trial(rule=rule, replayed=replayed, latency_s=latency_s, meets=latency_s <= target_s)


def tune(
    arrivals_s: Sequence[float],
    curve: BatchCurve,
    *,
    target_s: float,
    share: float = 0.95,
    headroom_frac: float = HEADROOM_FRAC,
    objective: Objective = Objective.DEVICE,
    progress: Callable[[int, int], object] = lambda done, whole: None,
) -> list[Trial]:
    """Return all trials, the chosen one first; raise `PlanError` where none meets the target.

    `share` is the quantile that must be within `target_s`, less `headroom_frac` of it; the settings found aim at what is left.
    Ties go to the lower latency, then to the simpler setting.
    """
    # settings are made for what is left of the target, so that none of them spends the headroom
    aim_s = target_s * (1 - headroom_frac)
    rules = candidates(curve, aim_s)
    trials = []
    for done, rule in enumerate(rules, 1):
        trials.append(try_rule(arrivals_s, curve, rule, share=share, target_s=aim_s))
        progress(done, len(rules))
    trials.sort(
        key=lambda trial: (not trial.meets, *_cost(trial, objective), trial.rule.window_s, -trial.rule.max_batch)
    )
    if not trials[0].meets:
        raise PlanError(_why_none(arrivals_s, curve, trials, target_s, headroom_frac, share))
    return trials


def _cost(trial: Trial, objective: Objective) -> tuple[float, float]:
    match objective:
        case Objective.DEVICE:
            return (trial.device_s_req, trial.latency_s)
        case Objective.LATENCY:
            return (trial.latency_s, trial.device_s_req)
    assert_never(objective)


def _why_none(
    arrivals_s: Sequence[float],
    curve: BatchCurve,
    trials: Sequence[Trial],
    target_s: float,
    headroom_frac: float,
    share: float,
) -> str:
    least = min(trials, key=lambda trial: trial.latency_s)
    span_s = arrivals_s[-1] - arrivals_s[0]
    rate_req_s = len(arrivals_s) / span_s if span_s > 0 else 0.0
    # over all sizes, since the largest batch need not be the one that serves most
    capacity_req_s = max(size / second for size, second in zip(curve.sizes, curve.seconds, strict=True))
    return (
        f"no setting keeps p{100 * share:g} within {target_s * MS_PER_S:g} ms with {100 * headroom_frac:g} % of it "
        f"to spare: the least is "
        f"{least.latency_s * MS_PER_S:.1f} ms, at {rate_req_s:,.0f} requests a second on a device that can do "
        f"{capacity_req_s:,.0f}; allow more time, or add a replica and divide the arrivals"
    )
