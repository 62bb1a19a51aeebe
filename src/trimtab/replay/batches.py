"""Replay a batcher: recorded arrivals, a measured batch-time curve, and the very rule that the runtime decides by.

One worker, one key, no overhead: what is left is the rule. The result is what `trimtab batch tune` compares.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from trimtab.errors import InputError
from trimtab.physics.batch_curve import BatchCurve
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
        # nobody was waiting when the batch ended
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
