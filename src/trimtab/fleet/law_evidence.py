"""Evidence for a replica's capacity: what history shows, and how the fitted model did in a back-test.

GPU activity tells how much of a GPU a request takes, so that a replica at full activity would serve one over that. A server may
be full long before: its slots are taken, its CPU is busy, its batches are as large as they get. Nothing in the readings of a
server that was never full says where that is, which is why a plan stays within the loads that history has shown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np

from trimtab.fleet.model import ServiceObservation
from trimtab.ledger.arrays import Flags, FloatArray
from trimtab.units import S_PER_HR, S_PER_MIN

SUSTAINED_S = 5.0 * S_PER_MIN
"""A load is sustained that lasts so long, or a step where steps are longer: the stabilization window of an HPA."""
_IN_TURN = 10
"""And as long as so many requests one after the other: in less, requests that came before may end together."""
FEWEST_STEPS = 5
"""Fewer steps than this may be due to chance."""
_BUSIEST_FRAC = 0.05
_WAITING_OF_RUNNING = 1.0
"""Requests that wait as long as they are then served say that every place is taken."""


class Bound(Enum):
    """What determines a replica's capacity."""

    GPU = "GPU activity"
    ONE_BY_ONE = "one request at a time"
    PLACES = "places for requests, all taken while others waited"
    BESIDE_GPU = "something other than the GPU: latency rose faster with load than GPU activity"
    DECLARED = "the places declared, by how times rose with the concurrent requests"
    UNTOLD = "unknown, none was reached in the history"

    @property
    def is_told(self) -> bool:
        """Return whether a faster GPU means more capacity."""
        return self is Bound.GPU or self is Bound.ONE_BY_ONE


@dataclass(frozen=True, slots=True, kw_only=True)
class BackTestedMeasure:
    """A measure as predicted by a fitted model, and as observed."""

    foretold: float
    measured: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BackTest:
    """A law fitted on hours of little load, compared with the hours of more load, served by the replicas that there were.

    `in_time` are shares of requests within `limit_s`, of the target that came out worst; `running` and `waiting` requests of a
    replica, mean. None: not measured.
    """

    fitted_req_s: float
    """The highest load per replica of the hours that the law was fitted on."""
    tested_req_s: float
    """The highest load per replica of those that it was tested on."""
    limit_s: float | None
    in_time: BackTestedMeasure | None
    running: BackTestedMeasure | None
    waiting: BackTestedMeasure | None
    gpu_s: BackTestedMeasure | None
    """GPU-seconds of activity per request, above 0."""
    late_frac: float
    """How many more requests came late than predicted, over those that the target allows; 0..1. Where no target has a limit:
    how many more requests waited than predicted, over those in work."""

    @property
    def error_frac(self) -> float:
        """Return how far the law was off, as a share: of the GPU time per request, or of requests in time, the larger."""
        work = 0.0 if self.gpu_s is None else abs(self.gpu_s.measured / self.gpu_s.foretold - 1.0)
        late = 0.0 if self.in_time is None else abs(self.in_time.foretold - self.in_time.measured)
        return min(1.0, max(work, late))


@dataclass(frozen=True, slots=True, kw_only=True)
class LawEvidence:
    """What a law's capacity rests on: what history shows, and how the law did where it was tested. Requests/s of a replica."""

    bound: Bound
    activity_req_s: float
    """The capacity that GPU activity alone suggests."""
    shown_req_s: float
    """The highest load that a replica was observed to sustain."""
    back_test: BackTest | str
    """The reason if no back-test was possible."""


def seconds_in_work(service: ServiceObservation, *, busiest: bool = False) -> float | None:
    """Return how long a request is in work on average, by Little's law, or in the busiest steps; None if unmeasured."""
    both = np.isfinite(service.running) & np.isfinite(service.arrivals)
    if busiest and both.any():
        both &= service.running >= np.quantile(service.running[both], 1 - _BUSIEST_FRAC)
    requests = float(service.arrivals[both].sum())
    if both.any() and requests > 0 and service.running[both].sum() > 0:
        return float(service.running[both].sum() * service.step_s / requests)
    return None


def served_req(service: ServiceObservation) -> FloatArray:
    """Return the requests served in each step (n_steps,): those that came, less those by which more wait or are in work.

    By how many that is beside a gap in these readings is unknown, and taken for none.
    """
    more = [_change(reading) for reading in (service.running, service.waiting) if reading.size]
    return np.asarray(np.maximum(service.arrivals - sum(more), 0.0), dtype=np.float64)


def _change(readings: FloatArray) -> FloatArray:
    change = np.diff(readings, prepend=readings[:1])
    return np.where(np.isfinite(change), change, 0.0)


def sustained_req_s(service: ServiceObservation) -> FloatArray:
    """Return the load per ready replica over each sustained spell, in requests/s, ascending (n_spells,); gaps left out."""
    lasting_s = max(SUSTAINED_S, _IN_TURN * (seconds_in_work(service, busiest=True) or 0.0))
    steps = max(1, math.ceil(round(lasting_s / service.step_s, 6)))
    served = served_req(service)
    known = np.isfinite(served) & np.isfinite(service.replicas) & (service.replicas > 0)
    requests = _rolled(np.where(known, served, 0.0), steps)
    replica_s = _rolled(np.where(known, service.replicas * service.step_s, 0.0), steps)
    whole = _rolled(known.astype(np.float64), steps) >= steps - 0.5
    return np.sort(requests[whole] / replica_s[whole])


def highest_sustained_req_s(service: ServiceObservation) -> float:
    """Return the highest load that a replica was observed to sustain, leaving out what may be chance; 0 if none was."""
    found = sustained_req_s(service)
    return float(found[-min(FEWEST_STEPS, len(found))]) if len(found) else 0.0


def full_req_s(service: ServiceObservation) -> float | None:
    """Return what a replica served while every place was taken; None if that was not seen.

    Every place is taken through a step if requests waited before, in and after it, for as long as they were then in work.
    """
    if not service.waiting.size:
        return None
    ready = np.where(service.replicas > 0, service.replicas, np.nan)
    waiting, running = service.waiting / ready, service.running / ready
    full = (waiting >= 1.0) & (waiting >= _WAITING_OF_RUNNING * running)
    through: Flags = full.copy()
    through[1:] &= full[:-1]
    through[:-1] &= full[1:]
    through &= np.isfinite(service.arrivals)
    if through.sum() < FEWEST_STEPS:
        return None
    return float(served_req(service)[through].sum() / (service.replicas[through].sum() * service.step_s))


def expected_one_by_one_s(service: ServiceObservation) -> float:
    """Return the seconds that requests would wait by chance, all together, if replicas took one at a time (Erlang C).

    Requests come independently, evenly through each hour, and take any free place: whatever is less orderly makes more wait.
    Hours with as many requests in work as replicas count nothing: how many wait then depends on how long it lasts.
    """
    steps = max(1, round(S_PER_HR / service.step_s))
    known = np.isfinite(service.running) & np.isfinite(service.waiting) & (service.replicas > 0)
    whole = len(known) // steps * steps
    hours = known[:whole].reshape(-1, steps).all(axis=1)
    in_work = service.running[:whole].reshape(-1, steps).mean(axis=1)[hours]
    servers = np.floor(service.replicas[:whole].reshape(-1, steps).mean(axis=1)[hours]).astype(np.int64)
    with_a_place = in_work < servers
    in_work, servers = in_work[with_a_place], servers[with_a_place]
    if not len(in_work):
        return 0.0
    refused, refused_frac = np.ones(len(in_work)), np.ones(len(in_work))
    for taken in range(1, int(servers.max()) + 1):
        refused = in_work * refused / (taken + in_work * refused)
        refused_frac = np.where(servers == taken, refused, refused_frac)
    free = servers - in_work
    waiting = servers * refused_frac / (free + in_work * refused_frac) * in_work / free
    return float(waiting.sum() * S_PER_HR)


def has_several_places(service: ServiceObservation) -> bool:
    """Return whether so few requests waited that replicas of one place each are out of the question.

    By chance half of what Erlang C expects would wait where all requests take equally long (M/D/c), and one request at least.
    """
    in_work_s = seconds_in_work(service)
    if not service.waiting.size or in_work_s is None:
        return False
    waited_s = float(np.nansum(service.waiting)) * service.step_s
    return expected_one_by_one_s(service) / 2 > max(waited_s, in_work_s)


def _rolled(values: FloatArray, steps: int) -> FloatArray:
    """Return sums over so many steps in a row (n_steps - steps + 1,)."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray(sums[steps:] - sums[:-steps], dtype=np.float64)
