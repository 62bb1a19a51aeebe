"""How a service responds to load, fitted on its own history: a replica's capacity, and the latency at each load.

Load is the requests a replica gets over those it could serve at full activity. Latency at a load that was seen is the measured
histogram, made monotone (more load is never faster); the time to the first token and the time per token after it have
histograms of their own where they were measured. Beyond the highest load seen, up to the top of the healthy band, times stretch
as under processor sharing, (1 - seen) / (1 - load); beyond that nothing is promised. First tokens stretch by load / seen
as well, since they wait for the prompts before them and a wait grows as load / (1 - load) (Pollaczek and Khinchine); times per
token by (load / seen)^2, for each long prompt that comes holds up the answers of all others. `law_limit.tested_law` is the law
that plans rest on: this one, held to what history shows that a replica can serve.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from trimtab.fleet.law_evidence import FEWEST_STEPS, Bound, LawEvidence, has_several_places
from trimtab.fleet.model import ServiceObservation, Workload
from trimtab.fleet.targets import bucket_quantile, bucket_share, share_within
from trimtab.fleet.token_work import TokenWork, in_tokens
from trimtab.ledger.arrays import FloatArray
from trimtab.provenance import Basis
from trimtab.tables.workloads import TargetMetric
from trimtab.units import S_PER_HR

_BIN_WIDTH = 0.025
_GRID_POINTS = 101
_GRID = np.linspace(0.0, 1.0, _GRID_POINTS)
_MIN_LOAD_STEPS = 20
_PEAK_QUANTILE = 0.999
_ONE_REQUEST = 1.05
_STEPS_PER_HR = 20
"""Step of demand derived from activity: the 95th percentile of an hour describes its busiest three minutes."""
_STEP_S = S_PER_HR / _STEPS_PER_HR
_MIDDLE = (0.16, 0.84)
"""Quantiles a standard deviation to either side of the median."""
_SEEN_FULL = frozenset({Bound.GPU, Bound.ONE_BY_ONE, Bound.PLACES})
"""Bounds that show where a replica is full; the others only show what it was observed to serve."""
STRETCH_EXPONENT = {TargetMetric.TTFT: 1.0, TargetMetric.TPOT: 2.0}
"""Additional power of load / seen by which times of a metric stretch; at 1.2 times the load the scheduler's replay takes up
to 1.6 times as long (`python -m benchmarks.token_cost`). 0 for the others."""
UNTOLD_ROOM = 1.5
"""A replica that was never seen full is assumed to serve so many times its careful capacity before requests wait. On seed 2 of
the proving ground 1, 1.1, 1.25, 1.5 and all that activity says leave the cost of five plans 10.3, 5.5, 2.3, 1.6 and 1.6 % off
(root of the mean square). What earlier queues would cost is in a plan's interval (`cost_of_queues`)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LatencyByLoad:
    """A latency histogram at each load.

    `load` (n_bins,) ascends; `share` (n_bins, n_buckets) is the share of requests per bucket of `le_s` at that load, monotone.
    """

    load: FloatArray
    share: FloatArray
    le_s: FloatArray


_UNKNOWN = LatencyByLoad(load=np.zeros(0), share=np.zeros((0, 0)), le_s=np.zeros(0))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServiceLaw:
    """A replica's capacity and its latency by load.

    `load` (n_bins,) ascends; `share` (n_bins, n_buckets) is the share of requests per latency bucket at that load, monotone.
    """

    capacity_req_s: float
    load: FloatArray
    share: FloatArray
    le_s: FloatArray
    top_load: float
    """Loads above this are not promised."""
    basis: Basis
    because: str
    full_batch_s: float = 0.0
    """How long a request takes at full load once the backlog before it is served; what a wait in the queue must leave."""
    first_token: LatencyByLoad | None = None
    """The time to the first token; None if it was not measured, and the whole request stands for it."""
    per_token: LatencyByLoad | None = None
    """A request's mean time per token after the first; None if it was not measured, and no limit on it is promised."""
    gpu_frac: float = 1.0
    """The share of a GPU's time that a load of 1 takes; less than 1 where capacity is held to what was seen."""
    tested: LawEvidence | None = None
    """What its capacity rests on; None if it was not compared with the rest of history."""
    learnt_req_s: float | None = None
    """The capacity in the window that the law was learnt on, where another window's requests take longer or less."""
    tokens: TokenWork | str = "its requests were never compared with tokens"
    """What tokens take of a replica, where its loads are of their work in mean requests; else why they are of requests."""

    @property
    def counted(self) -> TokenWork | None:
        """Return the work per token, if demand is counted in tokens; None if it is counted in requests."""
        return self.tokens if isinstance(self.tokens, TokenWork) else None

    @property
    def rule_req_s(self) -> float:
        """Return what rules count a replica to serve: what was learnt, however long requests take since."""
        return self.capacity_req_s if self.learnt_req_s is None else self.learnt_req_s

    @property
    def seen_activity_load(self) -> float:
        """Return the highest load in history, relative to a replica's capacity at full activity."""
        most = self.capacity_req_s if self.tested is None else self.tested.activity_req_s
        return self.seen_load * self.capacity_req_s / most

    @property
    def faster_counts(self) -> bool:
        """Return whether a faster GPU is more capacity; it is not where something else may fill a replica first."""
        return self.tested is None or self.tested.bound.is_told

    @property
    def seen_load(self) -> float:
        """Return the highest load that history covers."""
        return float(self.load[-1])

    @property
    def is_seen_full(self) -> bool:
        """Return whether history shows where a replica is full, not only what it served."""
        return self.tested is None or self.tested.bound in _SEEN_FULL

    @property
    def full_req_s(self) -> float:
        """Return what a replica is assumed to serve before requests wait: more than a capacity that is only cautious.

        It says how often a rule sees a queue, and so what it costs. What a replica keeps goes by the capacity.
        """
        if self.tested is None or self.is_seen_full:
            return self.capacity_req_s
        return max(self.capacity_req_s, min(self.capacity_req_s * UNTOLD_ROOM, self.tested.activity_req_s))

    @property
    def run_time_spread(self) -> float:
        """Return how far run times scatter: half the logarithmic width of the middle 68 % of latencies at the lowest load."""
        if not self.share.size:
            return 0.0
        counts: FloatArray = self.share[0]
        low, high = (bucket_quantile(self.le_s, counts, quantile) for quantile in _MIDDLE)
        return math.log(high / low) / 2 if low > 0 else 0.0

    def grid(self) -> FloatArray:
        """Return the loads at which `ok_frac` is tabulated."""
        return _GRID.copy()

    def judging(self, metric: TargetMetric) -> TargetMetric:
        """Return the metric by which targets are judged: a first token that was not measured, by the whole request."""
        if metric is TargetMetric.TPOT or (metric is TargetMetric.TTFT and self.first_token is not None):
            return metric
        return TargetMetric.LATENCY

    def latency(self, metric: TargetMetric = TargetMetric.LATENCY) -> LatencyByLoad:
        """Return the histograms by which targets of a metric are judged."""
        if metric is TargetMetric.TPOT:
            return self.per_token or _UNKNOWN
        if self.first_token is not None and self.judging(metric) is TargetMetric.TTFT:
            return self.first_token
        return LatencyByLoad(load=self.load, share=self.share, le_s=self.le_s)

    def ok_frac(
        self, limit_s: float | None, speed: float = 1.0, metric: TargetMetric = TargetMetric.LATENCY
    ) -> FloatArray:
        """Return the share of requests within a limit at each load of the grid, on a GPU `speed` times as fast.

        Without a limit (throughput targets) every load up to the top is fine. A time per token that was not measured is within
        no limit. The array is shared: it cannot be written to.
        """
        return _ok_frac(self, limit_s, speed, self.judging(metric))

    def within_frac(
        self, limit_s: float, speed: float = 1.0, metric: TargetMetric = TargetMetric.LATENCY
    ) -> FloatArray:
        """Return the share of requests within a limit at each load of the grid as times stretch, promised or not.

        1 everywhere where times were not measured.
        """
        times = self.latency(metric)
        return _within_frac(self, times, limit_s * speed, metric) if len(times.le_s) else np.ones(_GRID_POINTS)


@lru_cache(maxsize=1024)
def _ok_frac(law: ServiceLaw, limit_s: float | None, speed: float, metric: TargetMetric) -> FloatArray:
    """Tabulate `ok_frac` once for all the ways to scale a service; a law is told from others by identity."""
    grid, times = law.grid(), law.latency(metric)
    if metric is TargetMetric.TPOT and limit_s is not None and not len(times.le_s):
        return _fixed(np.zeros(len(grid)))
    if limit_s is None or not len(times.le_s):
        return _fixed(np.where(grid <= law.top_load, 1.0, 0.0))
    ok = _within_frac(law, times, limit_s * speed, metric)
    return _fixed(np.where(grid <= max(law.top_load, law.seen_load), ok, 0.0))


def _within_frac(law: ServiceLaw, times: LatencyByLoad, limit_s: float, metric: TargetMetric) -> FloatArray:
    """Return the share of requests within a limit at each load of the grid, beyond the seen ones as times stretch."""
    grid = law.grid()
    seen = np.interp(grid, times.load, share_within(times.le_s, times.share, limit_s))
    seen_load, top = float(times.load[-1]), times.share[-1]
    # beyond the loads that were seen, times grow as a queue's do, by the room left: 1 / (1 - load); limits shrink by as much
    stretch = np.clip((1 - grid * law.gpu_frac) / (1 - min(seen_load * law.gpu_frac, 0.99)), 0.0, 1.0)
    stretch *= np.minimum(1.0, seen_load / np.maximum(grid, 1e-9)) ** STRETCH_EXPONENT.get(metric, 0.0)
    # latencies are those of the highest load seen, against the shrunk limit
    beyond = bucket_share(times.le_s, limit_s * stretch) @ top / top.sum()
    return np.asarray(np.where(grid <= seen_load, seen, np.minimum(beyond, seen)), dtype=np.float64)


def _fixed(values: FloatArray) -> FloatArray:
    values.setflags(write=False)
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityCapacity:
    """What a replica would serve at full activity, and what says so."""

    req_s: float
    because: str
    one_by_one: bool


def activity_capacity(workload: Workload) -> ActivityCapacity | str:
    """Return a replica's capacity by activity, or why there is none.

    It is GPU-seconds of activity per request, so that a replica at full activity serves that many. The activity signal is
    SM_ACTIVE where present; GPU_UTIL overstates activity, so that capacity from it is on the safe side. A replica that never
    had more than one request in work is busy while it has one, however little of the GPU that fills.
    """
    service = workload.service
    if service is None:
        return "no request metrics"
    if workload.activity.signal == "none":
        return "no GPU activity was measured, so capacity per replica is unknown"
    per_request = gpu_seconds_per_request(service, workload.activity.busy_gpus)
    if not np.nansum(service.arrivals) > 0:
        return "not one request was seen: ask its owner whether it is still needed"
    if per_request is None:
        return "requests and GPU activity were never seen in the same hour"
    one_by_one = seconds_one_by_one(service)
    signal, alone = workload.activity.signal, False
    if one_by_one is not None and one_by_one * workload.gpus_per_pod > per_request:
        per_request, signal, alone = (
            one_by_one * workload.gpus_per_pod,
            "a replica that takes one request at a time",
            True,
        )
    return ActivityCapacity(
        req_s=workload.gpus_per_pod / per_request,
        because=f"{per_request:.4g} GPU-s of {signal} per request",
        one_by_one=alone,
    )


def service_law(workload: Workload, healthy_frac: float, most_req_s: float = math.inf) -> ServiceLaw | str:
    """Fit a service's law with the capacity that activity says, but at most so much; or say why it cannot be judged."""
    capacity = activity_capacity(workload)
    if isinstance(capacity, str):
        return capacity
    capacity_req_s, because = min(capacity.req_s, most_req_s), capacity.because
    if most_req_s < capacity.req_s:
        because = f"{because}, and no more than history shows"
    service = workload.service
    assert service is not None
    load, counts = _by_load(service, capacity_req_s, service.latency_count)
    if not len(load):
        return "too few steps with requests to learn how latency depends on load"
    measured = len(service.latency_le_s) > 0 and counts.sum() > 0
    share = _monotone(counts) if measured else np.zeros((len(load), 0))
    return ServiceLaw(
        capacity_req_s=capacity_req_s,
        load=load,
        share=share,
        le_s=service.latency_le_s if measured else np.zeros(0),
        top_load=max(healthy_frac, float(load[-1])) if measured else healthy_frac,
        basis=Basis.CALIBRATED,
        because=(
            f"{because}; " + (f"latency seen up to a load of {load[-1]:.0%}" if measured else "no latency was measured")
        ),
        first_token=_times_by_load(service, capacity_req_s, service.ttft_le_s, service.ttft_count),
        per_token=_times_by_load(service, capacity_req_s, service.tpot_le_s, service.tpot_count),
    )


def as_seen_in(law: ServiceLaw, service: ServiceObservation) -> ServiceLaw:
    """Return a law with the latencies that another window measured; the same law where it measured none.

    At loads beyond those of that window the law's own times stand, but none is faster than what the window saw at less load.
    The capacity is the same, unless replicas answer one request at a time: then the window tells how long its requests took.
    """
    law = _taking_as_long(law, service)
    service = in_tokens(service, law.counted)
    whole = _as_seen(law, law.latency(), service, service.latency_le_s, service.latency_count)
    first, per_token = law.first_token, law.per_token
    if first is not None:
        first = _as_seen(law, first, service, service.ttft_le_s, service.ttft_count)
    if per_token is not None:
        per_token = _as_seen(law, per_token, service, service.tpot_le_s, service.tpot_count)
    return replace(law, load=whole.load, share=whole.share, le_s=whole.le_s, first_token=first, per_token=per_token)


def _taking_as_long(law: ServiceLaw, service: ServiceObservation) -> ServiceLaw:
    """Return a law whose requests take as long as a window's; the same law where replicas answer several at a time."""
    in_turn = law.tested is not None and law.tested.bound is Bound.ONE_BY_ONE
    took_s = seconds_one_by_one(service) if in_turn else None
    if took_s is None or law.tested is None:
        return law
    times = took_s * law.capacity_req_s
    return replace(
        law,
        capacity_req_s=law.capacity_req_s / times,
        learnt_req_s=law.capacity_req_s,
        # the same requests are so much more load
        load=law.load * times,
        first_token=None if law.first_token is None else replace(law.first_token, load=law.first_token.load * times),
        per_token=None if law.per_token is None else replace(law.per_token, load=law.per_token.load * times),
        tested=replace(law.tested, activity_req_s=law.tested.activity_req_s / times),
    )


def _as_seen(
    law: ServiceLaw, known: LatencyByLoad, service: ServiceObservation, le_s: FloatArray, histogram: FloatArray
) -> LatencyByLoad:
    """Return the latencies of a window by load, and above its loads those that are known, no faster than its own."""
    if not len(known.le_s) or not histogram.sum() > 0:
        return known
    load, counts = _by_load(service, law.capacity_req_s, histogram)
    if not counts.sum() > 0:
        return known
    share = _monotone(counts)
    above = known.load > load[-1]
    below = np.ones((int(above.sum()), len(le_s)))
    for bucket, bound_s in enumerate(le_s[:-1]):
        below[:, bucket] = share_within(known.le_s, known.share[above], float(bound_s))
    # no faster at more load than this window was at its highest
    below = np.minimum(below, np.cumsum(share[-1]))
    return LatencyByLoad(
        load=np.append(load, known.load[above]),
        share=np.concatenate([share, np.diff(below, axis=1, prepend=0.0)]),
        le_s=le_s,
    )


def _times_by_load(
    service: ServiceObservation, capacity: float, le_s: FloatArray, histogram: FloatArray
) -> LatencyByLoad | None:
    """Return times of a histogram by load; None if they were not measured at any load that is believed."""
    if not histogram.sum() > 0:
        return None
    load, counts = _by_load(service, capacity, histogram)
    return LatencyByLoad(load=load, share=_monotone(counts), le_s=le_s) if counts.sum() > 0 else None


def activity_as_demand(workload: Workload) -> ServiceObservation:
    """Use activity as demand where a service exposes no requests: GPU-seconds of activity, every three minutes.

    Minutes of work hide in an hour's mean. Where the hour's percentiles are known, it is assumed to hold one burst at its 95th
    percentile, on all GPUs at once, which is the worst that they allow, and to be at its median, or below, otherwise.
    """
    activity = workload.activity
    replicas = workload.gpu_seconds / S_PER_HR / workload.gpus_per_pod
    steps = len(replicas) * _STEPS_PER_HR
    return ServiceObservation(
        step_s=_STEP_S,
        arrivals=_with_bursts(activity.busy_gpus, activity.median_gpus, activity.p95_gpus) * _STEP_S,
        replicas=np.repeat(replicas, _STEPS_PER_HR),
        running=np.full(steps, np.nan),
        latency_le_s=np.zeros(0),
        latency_count=np.zeros((steps, 0)),
    )


def _with_bursts(mean: FloatArray, median: FloatArray, p95: FloatArray) -> FloatArray:
    """Return the level of each step (n_hours * steps,) of hours with these statistics; their means are kept."""
    known = np.isfinite(p95) & np.isfinite(median) & np.isfinite(mean) & (p95 > mean)
    high = np.where(known, p95, 1.0)
    rest = np.where(known, np.minimum(median, mean), 0.0)
    share = np.where(known, (mean - rest) / np.maximum(high - rest, 1e-12), 0.0)
    # never so many steps at the burst's level that they alone exceed the hour's mean
    most = np.floor(np.where(known, mean, 0.0) * _STEPS_PER_HR / np.maximum(high, 1e-12))
    bursting = np.clip(np.minimum(np.ceil(share * _STEPS_PER_HR), most), 1, _STEPS_PER_HR - 1)
    level = np.minimum(high, np.nan_to_num(mean) * _STEPS_PER_HR / bursting)
    between = (np.nan_to_num(mean) * _STEPS_PER_HR - level * bursting) / (_STEPS_PER_HR - bursting)
    step = np.arange(_STEPS_PER_HR)
    bursts = np.where(step < bursting[:, None], level[:, None], between[:, None])
    return np.where(known[:, None], bursts, mean[:, None]).ravel()


def activity_law(workload: Workload, healthy_frac: float) -> ServiceLaw:
    """Return the law of such a service: a replica offers its GPUs' seconds, and is healthy up to the band's top."""
    return ServiceLaw(
        capacity_req_s=workload.gpus_per_pod,
        load=np.array([healthy_frac]),
        share=np.zeros((1, 0)),
        le_s=np.zeros(0),
        top_load=healthy_frac,
        basis=Basis.MODELLED,
        because=f"no request metrics: hourly {workload.activity.signal} is used as demand",
    )


def step_load(service: ServiceObservation, capacity_req_s: float) -> FloatArray:
    """Return the load per ready replica in each step (n_steps,); NaN in gaps."""
    serving = np.where(service.replicas > 0, service.replicas, np.nan)
    return np.asarray(service.arrivals / (service.step_s * serving * capacity_req_s), dtype=np.float64)


def gpu_seconds_per_request(service: ServiceObservation, busy_gpus: FloatArray) -> float | None:
    """Return the GPU-seconds of activity per request, over the hours that have both; None if none has."""
    steps_per_hour = round(S_PER_HR / service.step_s)
    hourly = service.arrivals[: len(busy_gpus) * steps_per_hour].reshape(-1, steps_per_hour)
    requests = hourly.sum(axis=1)
    both = ~np.isnan(requests) & ~np.isnan(busy_gpus[: len(requests)]) & (requests > 0)
    if not both.any() or busy_gpus[: len(requests)][both].sum() <= 0:
        return None
    return float(busy_gpus[: len(requests)][both].sum() * S_PER_HR / requests[both].sum())


def seconds_one_by_one(service: ServiceObservation) -> float | None:
    """Return how long a request occupies a replica that serves one at a time; None if replicas serve several.

    At low load few are seen together, however many places there are: that none waits for a place tells them apart.
    """
    both = ~np.isnan(service.running) & ~np.isnan(service.arrivals) & (service.replicas > 0)
    if not both.any() or service.arrivals[both].sum() <= 0:
        return None
    each = service.running[both] / service.replicas[both]
    if np.quantile(each, _PEAK_QUANTILE) > _ONE_REQUEST or has_several_places(service):
        return None
    return float(service.running[both].sum() * service.step_s / service.arrivals[both].sum())


def _by_load(service: ServiceObservation, capacity: float, histogram: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Gather steps by load: mean load (n_bins,) and a histogram's counts (n_bins, n_buckets)."""
    load = step_load(service, capacity)
    useful = ~np.isnan(load) & (service.arrivals > 0)
    if useful.sum() < _MIN_LOAD_STEPS:
        return np.zeros(0), np.zeros((0, 0))
    bins = (load[useful] / _BIN_WIDTH).astype(np.int64)
    number = np.bincount(bins)
    # a bin of a few steps says more of their chance than of its load
    kept = np.flatnonzero(number >= FEWEST_STEPS)
    requests = np.bincount(bins, weights=service.arrivals[useful])
    loads = np.bincount(bins, weights=load[useful] * service.arrivals[useful]) / np.maximum(requests, 1e-12)
    counts = np.zeros((len(number), histogram.shape[1]))
    np.add.at(counts, bins, histogram[useful])
    if counts.shape[1]:
        kept = kept[counts[kept].sum(axis=1) > 0] if counts.sum() > 0 else kept
    return loads[kept], counts[kept]


def _monotone(counts: FloatArray) -> FloatArray:
    """Return shares per bucket whose distribution never gets faster with load (pooled adjacent violators, bound by bound)."""
    weight = counts.sum(axis=1)
    below = np.cumsum(counts, axis=1) / weight[:, None]
    pooled = np.stack([_falling(below[:, bound], weight) for bound in range(below.shape[1])], axis=1)
    # each bound was fitted by itself: a distribution does not fall from one bound to the next
    pooled = np.maximum.accumulate(pooled, axis=1)
    return np.diff(pooled, axis=1, prepend=0.0)


def _falling(values: FloatArray, weight: FloatArray) -> FloatArray:
    """Return the weighted least-squares fit that never rises (pool adjacent violators)."""
    blocks: list[list[float]] = []
    for value, mass in zip(values.tolist(), weight.tolist(), strict=True):
        blocks.append([value, mass, 1])
        while len(blocks) > 1 and blocks[-2][0] < blocks[-1][0]:
            last = blocks.pop()
            before = blocks[-1]
            mass_sum = before[1] + last[1]
            before[0] = (before[0] * before[1] + last[0] * last[1]) / mass_sum
            before[1] = mass_sum
            before[2] += last[2]
    return np.concatenate([np.full(int(count), value) for value, _, count in blocks])
