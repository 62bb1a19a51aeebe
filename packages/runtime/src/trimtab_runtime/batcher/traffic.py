"""What arrivals and answers have shown of the traffic, and whether waiting for company pays.

A cycle lies between two answers. All but `learn` is called under the engine's lock.
"""

from __future__ import annotations

from typing import NamedTuple

from trimtab_runtime.batcher.lanes import Lane
from trimtab_runtime.policies.batching import (
    BatchRule,
    Decision,
    Learned,
    Moment,
    RunTime,
    clumps,
    decide,
    learn,
    moment_of,
    saving_s,
)


class Ended(NamedTuple):
    """A cycle that is over: what came between two answers."""

    arrivals: list[float]
    answered: int
    answered_s: float
    idle: bool
    now_s: float


class Traffic:
    """The cycle that runs, and what was learned from those before it."""

    __slots__ = ("_answered", "_answered_s", "_empty_then", "_learned", "_rule", "arrivals", "may_wait")

    def __init__(self, rule: BatchRule) -> None:
        self.arrivals: list[float] = []
        """When requests came in this cycle."""
        self.may_wait = rule.window_s > 0
        self._rule = rule
        self._learned = Learned()
        self._answered = 0
        self._answered_s = 0.0
        self._empty_then = False

    def wait_for(self, lane: Lane, now_s: float) -> Decision | None:
        """Return the wait that pays for the lane's requests, or None to dispatch them now."""
        rule = self._rule if lane.cap.limit >= self._rule.max_batch else self._rule._replace(max_batch=lane.cap.limit)
        decision = decide(rule, lane.time, self._learned, self._moment(lane, now_s))
        return decision if decision.wait_s > 0 else None

    def _moment(self, lane: Lane, now_s: float) -> Moment:
        return moment_of(
            self.arrivals,
            waiting=lane.count,
            oldest_s=min([line[0].arrived_s for line in lane.lines.values() if line]),
            answered=self._answered,
            answered_s=self._answered_s,
            idle=self._empty_then,
            now_s=now_s,
        )

    def end_cycle(self, answered: int, now_s: float, *, empty: bool) -> Ended:
        """Begin a new cycle with `answered` answers about to leave, the queue `empty` or not; return the one that ends."""
        ended = Ended(self.arrivals, self._answered, self._answered_s, self._empty_then, now_s)
        self.arrivals = []
        self._answered = answered
        self._answered_s = now_s
        self._empty_then = empty
        return ended

    def learn(self, time: RunTime, ended: Ended) -> None:
        """Learn from how arrivals followed the answers before them."""
        saved_s = saving_s(time) if self._rule.learn else 0.0
        if saved_s > 0:
            self._learned = learn(
                self._learned,
                ended.arrivals,
                answered=ended.answered,
                answered_s=ended.answered_s,
                idle=ended.idle,
                saved_s=saved_s,
                now_s=ended.now_s,
            )
            self.may_wait = self._rule.window_s > 0 or clumps(self._learned)
