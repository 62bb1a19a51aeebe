"""The model of a service that plans use: fitted on its history, tested on its busiest hours, limited to observed loads.

A law that is fitted on all of history agrees with it wherever history is dense, but is untested at higher loads. So the
hours with the highest load per replica are held out, the law is fitted on the rest, and the replicas that history had serve the
requests that came, as a fluid queue. Shares in time, requests in work and requests that wait are then as predicted, or not.

Activity says how much of a GPU a request takes, and so what a replica would serve if nothing but the GPU ever filled. What is
full first is told by what history shows, in this order:

1. *one request at a time*: a replica is full while it has one;
2. *places*: requests waited for as long as they were then in work; what was served meanwhile is the capacity;
3. *the GPU*: the capacity by activity is within what was shown, or no further off than the allowance;
4. *something other than the GPU*, a CPU or larger batches: latency rose with load by more than the GPU's own load explains,
   so the end is near: capacity is the highest load that was sustained, with no allowance; so it is where no places are declared
   and the back-test's busier hours had a fifth more requests in work than the law predicted;
5. *untold*: nothing that was measured says where the end is.

**The allowance.** Rules aim to run a replica no hotter than the highest load that it was observed to sustain. Capacity is
that load over the top of the healthy band (1 / 0.8), since rules aim at 80 % of it at most: bursts, and demand that grows,
may go a quarter beyond what was seen. The quarter shrinks to nothing with the share of the allowed misses that the back-test
got wrong: a law that was a whole target off is left 80 % of the load that was seen. Or one request after the other, if that is
more: any server can do that. The reason: at low load a server with 32 places and one with 200 give the same readings, and so
do 40 % and 80 % of an unmeasured CPU, so that whatever goes further is a guess that costs the target when wrong.
When it is too careful, it costs at most the ratio of the loads, and a load test of twenty minutes ends it.

**Declared places.** What a replica serves with every place taken that its owner declares is told by how times rose with the
requests in work. A batching server takes longer for each request the more it has in work, in proportion: a step's time is
linear in its batch (Orca, OSDI 2022; vLLM, SOSP 2023). So R(n) = a + b n is fitted on history's hours, n the requests in work
of a replica and R their time in work by Little's law, and a replica with all K places taken serves K / R(K).

A line is uncertain outside its data. It is believed only where it predicted the busiest hours from the calmer ones,
and no further than `REACH` times the highest load shown; not at all where requests waited while places were free, or where
more were in work than the places declared: something else is full first, or the declaration is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from trimtab.fleet.law_evidence import (
    FEWEST_STEPS,
    BackTest,
    BackTestedMeasure,
    Bound,
    LawEvidence,
    full_req_s,
    highest_sustained_req_s,
    seconds_in_work,
    served_req,
)
from trimtab.fleet.model import ServiceObservation, Target, Workload
from trimtab.fleet.service_law import (
    ServiceLaw,
    activity_capacity,
    activity_law,
    gpu_seconds_per_request,
    service_law,
    step_load,
)
from trimtab.fleet.targets import bucket_quantile, histogram_of, share_within
from trimtab.ledger.arrays import Flags, FloatArray
from trimtab.tables.workloads import TargetMetric
from trimtab.units import S_PER_HR

HELD_OUT_FRAC = 0.2
"""Share of the hours, those with the highest load per replica, on which the law is tested."""
_TIMES = frozenset({TargetMetric.LATENCY, TargetMetric.TTFT, TargetMetric.TPOT})
_LEAST_GROWTH = 1.1
"""A law is tested where the loads held out reach so many times those that it was fitted on."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FluidQueue:
    """What replicas at a given capacity make of history (n_steps,): load 0..1, requests left, the longest wait in seconds."""

    load: FloatArray
    waiting: FloatArray
    wait_s: FloatArray


def back_test(workload: Workload, healthy_frac: float) -> BackTest | str:
    """Fit a service's law on its hours of little load and test it on the others; a reason where that cannot be done."""
    service = workload.service
    if service is None:
        return "no request metrics"
    hourly = hourly_load(service)
    known = np.sort(hourly[np.isfinite(hourly)])
    if len(known) * HELD_OUT_FRAC < FEWEST_STEPS:
        return "too few hours with requests to hold some out"
    split = float(np.quantile(known, 1 - HELD_OUT_FRAC))
    if split <= 0 or known[-1] < _LEAST_GROWTH * split:
        return "load hardly changes, so no hours of more load can be held out"
    held_out = _in_steps(service, hourly > split)
    law = _fitted_without(workload, held_out, healthy_frac)
    if isinstance(law, str):
        return f"{law} in the hours of less load"
    tested = held_out & np.isfinite(service.arrivals) & (service.replicas > 0)
    if not tested.any():
        return "it is not known how many replicas served the busiest hours"
    return _held_against(workload, service, law, tested, split_req_s=split, top_req_s=float(known[-1]))


def fluid_queue(service: ServiceObservation, capacity_req_s: float) -> FluidQueue:
    """Serve what came, step by step, first come first served, with the replicas that history had at a given capacity each.

    What is left at the end of a step is Lindley's recursion in closed form. In gaps nothing comes.
    """
    ready = np.nan_to_num(service.replicas)
    most = ready * capacity_req_s * service.step_s
    came = np.where(ready > 0, np.nan_to_num(service.arrivals), 0.0)
    surplus = np.cumsum(came - most)
    left = surplus - np.minimum(np.minimum.accumulate(surplus), 0.0)
    before = np.concatenate([[0.0], left[:-1]])
    rate = np.maximum(ready, 1.0) * capacity_req_s
    served = np.minimum(before + came, most)
    return FluidQueue(
        load=np.divide(served, most, out=np.zeros_like(served), where=most > 0),
        waiting=(before + left) / 2,
        wait_s=np.maximum(before, left) / rate,
    )


def hourly_load(service: ServiceObservation) -> FloatArray:
    """Return the requests/s of a ready replica by hour (n_hours,); NaN if an hour has gaps."""
    per_hour = max(1, round(S_PER_HR / service.step_s))
    load = step_load(service, 1.0)
    whole = len(load) // per_hour * per_hour
    return np.asarray(load[:whole].reshape(-1, per_hour).mean(axis=1), dtype=np.float64)


def _in_steps(service: ServiceObservation, hours: Flags) -> Flags:
    per_hour = max(1, round(S_PER_HR / service.step_s))
    steps = np.zeros(len(service.arrivals), dtype=np.bool_)
    flags = np.repeat(hours, per_hour)
    steps[: len(flags)] = flags
    return steps


def _fitted_without(workload: Workload, held_out: Flags, healthy_frac: float) -> ServiceLaw | str:
    service = workload.service
    assert service is not None
    part = replace(workload, service=replace(service, arrivals=np.where(held_out, np.nan, service.arrivals)))
    law = service_law(part, healthy_frac)
    # its prediction at any load, within the promised range or not
    return law if isinstance(law, str) else replace(law, top_load=1.0)


def _held_against(
    workload: Workload,
    service: ServiceObservation,
    law: ServiceLaw,
    tested: Flags,
    *,
    split_req_s: float,
    top_req_s: float,
) -> BackTest:
    queue = fluid_queue(service, law.capacity_req_s)
    worst = max(
        _in_time(workload, service, law, queue, tested),
        key=lambda found: _late_frac(*found),
        default=None,
    )
    running, waiting = _running(service, law, queue, tested), _waiting(service, queue, tested)
    late = 0.0 if worst is None else _late_frac(*worst)
    if waiting is not None and running is not None and running.measured > 0:
        late = max(late, (waiting.measured - waiting.foretold) / running.measured)
    return BackTest(
        fitted_req_s=split_req_s,
        tested_req_s=top_req_s,
        limit_s=None if worst is None else worst[0].limit_s,
        in_time=None if worst is None else worst[1],
        running=running,
        waiting=waiting,
        gpu_s=_gpu_s(workload, service, tested),
        late_frac=float(np.clip(late, 0.0, 1.0)),
    )


def _late_frac(target: Target, share: BackTestedMeasure) -> float:
    """Return how many more came late than predicted, over those that the target allows."""
    allowed = max(1.0 - target.required_frac, 1e-6)
    return (share.foretold - share.measured) / allowed


def _in_time(
    workload: Workload, service: ServiceObservation, law: ServiceLaw, queue: FluidQueue, tested: Flags
) -> Iterator[tuple[Target, BackTestedMeasure]]:
    """Yield, for each limit on latency, the share in time over the hours held out."""
    arrivals = service.arrivals[tested]
    for target in workload.targets:
        if target.limit_s is None or target.metric not in _TIMES:
            continue
        le_s, count = histogram_of(service, law.judging(target.metric))
        if not count.size or not count[tested].sum() > 0 or not arrivals.sum() > 0:
            continue
        ok = np.interp(queue.load[tested], law.grid(), law.ok_frac(target.limit_s, metric=target.metric))
        if target.metric is not TargetMetric.TPOT:
            ok = np.where(queue.wait_s[tested] <= target.limit_s, ok, 0.0)
        measured = float(share_within(le_s, count[tested].sum(axis=0), target.limit_s))
        yield target, BackTestedMeasure(foretold=float(np.average(ok, weights=arrivals)), measured=measured)


def _running(
    service: ServiceObservation, law: ServiceLaw, queue: FluidQueue, tested: Flags
) -> BackTestedMeasure | None:
    """Return requests in work of a replica: by Little's law, times as in the hours fitted, stretched beyond the load seen."""
    seen = tested & np.isfinite(service.running)
    fitted = replace(service, arrivals=np.where(tested, np.nan, service.arrivals))
    in_work_s = seconds_in_work(fitted)
    if in_work_s is None or not seen.any():
        return None
    stretch = (1 - min(law.seen_load, 0.99)) / np.maximum(1 - queue.load[seen], 0.01)
    rate = service.arrivals[seen] / service.step_s / service.replicas[seen]
    return BackTestedMeasure(
        foretold=float((rate * in_work_s * np.maximum(stretch, 1.0)).mean()),
        measured=float((service.running[seen] / service.replicas[seen]).mean()),
    )


def _waiting(service: ServiceObservation, queue: FluidQueue, tested: Flags) -> BackTestedMeasure | None:
    if not service.waiting.size:
        return None
    seen = tested & np.isfinite(service.waiting)
    if not seen.any():
        return None
    ready = service.replicas[seen]
    return BackTestedMeasure(
        foretold=float((queue.waiting[seen] / ready).mean()), measured=float((service.waiting[seen] / ready).mean())
    )


def _gpu_s(workload: Workload, service: ServiceObservation, tested: Flags) -> BackTestedMeasure | None:
    """Return the GPU-seconds per request of the hours fitted and of those held out; None if either is unknown."""
    busy = workload.activity.busy_gpus
    fitted, measured = (
        gpu_seconds_per_request(replace(service, arrivals=np.where(left_out, np.nan, service.arrivals)), busy)
        for left_out in (tested, ~tested)
    )
    return None if fitted is None or measured is None else BackTestedMeasure(foretold=fitted, measured=measured)


_AS_GOOD_FRAC = 0.9
"""What was served by replicas that were full is what activity says, within a tenth: readings are no better."""
_CLEAR_RISE = 1.3
"""Medians that rise by less than this with load are not informative."""
_BEYOND_GPU = 1.2
"""They rise by so much more than the GPU's load explains, if something else fills first."""


def tested_law(workload: Workload, healthy_frac: float) -> ServiceLaw | str:
    """Fit a service's model, test it, and limit it to observed loads; a reason if it cannot be fitted."""
    service, capacity = workload.service, activity_capacity(workload)
    if isinstance(capacity, str):
        return capacity
    assert service is not None
    by_activity = service_law(workload, healthy_frac)
    if isinstance(by_activity, str):
        return by_activity
    found = back_test(workload, healthy_frac)
    shown = max(highest_sustained_req_s(service), hottest_req_s(workload))
    if capacity.one_by_one:
        bound, most = Bound.ONE_BY_ONE, capacity.req_s
    else:
        bound, most = _most(workload, by_activity, shown, found, healthy_frac)
    tested = LawEvidence(bound=bound, activity_req_s=capacity.req_s, shown_req_s=shown, back_test=found)
    if most >= capacity.req_s:
        return replace(by_activity, tested=tested)
    law = service_law(workload, healthy_frac, most)
    if isinstance(law, str) or bound not in {Bound.UNTOLD, Bound.DECLARED}:
        return law if isinstance(law, str) else replace(law, tested=tested)
    # what demand may grow by lies within the allowance, where times stretch as the GPU's own load says
    return replace(law, tested=tested, top_load=max(1.0, law.top_load), gpu_frac=most / capacity.req_s)


def trust_of(found: BackTest | str) -> float:
    """Return the share of the way beyond what was shown that a back-test allows: 1, less the allowed misses it got wrong."""
    return 1.0 - (found.late_frac if isinstance(found, BackTest) else 0.0)


def allowance(trust_frac: float, healthy_frac: float) -> float:
    """Return how far beyond the highest load sustained capacity may lie, as a factor: see the head of this module."""
    return 1.0 + (1.0 / healthy_frac - 1.0) * trust_frac


def hottest_req_s(workload: Workload) -> float:
    """Return the load that the hottest replicas were observed to sustain, in requests/s; 0 if nothing tells them apart.

    Replicas are never loaded evenly, and what one of them bore each of them bears: in the busiest hours, the second busiest
    device worked so much more than the mean (`Activity.uneven`), for three minutes of the hour, at requests like all others.
    """
    service, uneven = workload.service, workload.activity.uneven
    if service is None or uneven is None:
        return 0.0
    hourly = hourly_load(service)
    known = np.sort(hourly[np.isfinite(hourly)])
    return float(known[-FEWEST_STEPS]) * uneven if len(known) >= FEWEST_STEPS else 0.0


def _most(
    workload: Workload, law: ServiceLaw, shown_req_s: float, found: BackTest | str, healthy_frac: float
) -> tuple[Bound, float]:
    """Return what limits a replica, and its capacity."""
    service, trust_frac = workload.service, trust_of(found)
    assert service is not None
    in_work_s = seconds_in_work(service)
    in_turn = 0.0 if in_work_s is None else 1.0 / in_work_s
    full = full_req_s(service)
    if full is not None:
        most = max(full, in_turn)
        return (Bound.GPU if most >= _AS_GOOD_FRAC * law.capacity_req_s else Bound.PLACES), most
    most = max(shown_req_s * allowance(trust_frac, healthy_frac), in_turn)
    if most >= law.capacity_req_s:
        return Bound.GPU, law.capacity_req_s
    sustained = highest_sustained_req_s(service)
    if _rises_beside_gpu(law, sustained):
        return Bound.BESIDE_GPU, max(sustained, in_turn)
    places = workload.spec.max_concurrency
    declared = "not declared" if places is None else served_with_places(service, places, shown_req_s, trust_frac)
    if isinstance(declared, str) and _crowds(found):
        return Bound.BESIDE_GPU, max(sustained, in_turn)
    if isinstance(declared, str):
        return Bound.UNTOLD, most
    return Bound.DECLARED, min(max(declared, sustained, in_turn), law.capacity_req_s)


def _rises_beside_gpu(law: ServiceLaw, shown_req_s: float) -> bool:
    """Return whether median latencies rise with load by more than the GPU's load explains, which is by 1 / (1 - load) at most.

    Up to the highest load that was sustained: single steps of more tell of chance.
    """
    sustained = np.flatnonzero(law.load <= shown_req_s / law.capacity_req_s)
    if not law.share.size or len(sustained) < 2:
        return False
    low, high = float(law.load[0]), float(law.load[sustained[-1]])
    first, last = (bucket_quantile(law.le_s, law.share[row], 0.5) for row in (0, sustained[-1]))
    explained = (1 - low) / max(1 - high, 0.01)
    return first > 0 and last >= max(_CLEAR_RISE, _BEYOND_GPU * explained) * first


def _crowds(found: BackTest | str) -> bool:
    """Return whether requests were in work together by more than the GPU's load explains, on the busier hours of a back-test.

    They hinder one another then, however few of them are late yet: by Little's law each takes longer with every other.
    """
    running = found.running if isinstance(found, BackTest) else None
    return running is not None and running.measured >= _BEYOND_GPU * running.foretold > 0


def tested_activity_law(workload: Workload, healthy_frac: float) -> ServiceLaw:
    """Return the law of a service without request metrics, held to the highest activity of an hour that its replicas showed.

    An hour's mean hides its bursts, so that what was shown is on the low side.
    """
    law = activity_law(workload, healthy_frac)
    held = workload.gpu_seconds / S_PER_HR
    busy = np.divide(workload.activity.busy_gpus, held, out=np.full_like(held, np.nan), where=held > 0)
    seen = np.sort(busy[np.isfinite(busy)])
    if not len(seen):
        return law
    shown = float(seen[-min(FEWEST_STEPS, len(seen))]) * workload.gpus_per_pod
    most = min(law.capacity_req_s, shown / healthy_frac)
    if most <= 0:
        return law
    untold = most < law.capacity_req_s
    return replace(
        law,
        capacity_req_s=most,
        top_load=1.0 if untold else law.top_load,
        gpu_frac=most / law.capacity_req_s,
        tested=LawEvidence(
            bound=Bound.UNTOLD if untold else Bound.GPU,
            activity_req_s=law.capacity_req_s,
            shown_req_s=shown,
            back_test="no request metrics",
        ),
    )


REACH = 1.25
"""A plan may take a replica to serve so many times the highest load shown, so that rules, at 80 % of it, run none hotter. A
judgement: limits that neither time in work nor places tell of (a pool of threads, a lock) are found by a load test only. With
1.5, fresh worlds with such limits had 90 % in time of the 95 % claimed (`benchmarks.proving`, `knee-at-sixty`)."""
_HELD_OUT_FRAC = 0.2
_LEAST_RANGE = 1.3
"""Requests in work must differ by so much between calm hours and busy ones, or there is no slope to fit."""
_ERROR_FRAC = 0.05
"""The line must predict the time in work of the hours held out within this."""
_WAITING_FRAC = 0.02
"""Requests that wait, over those in work, in hours that leave a fifth of the places free: more is not by chance."""
_FREE_FRAC = 0.8
_Z_90 = 1.2816
"""Normal quantile: the slope is taken at the upper end of its 80 % interval."""
_OVER = 1.05
"""Readings of requests in work are so exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeInWork:
    """The line R(n) = `alone_s` + `each_s` n, and how far it was off on the busiest hours, fitted on the others."""

    alone_s: float
    each_s: float
    """At the upper end of its interval; at least 0."""
    error_frac: float

    def req_s(self, places: int) -> float:
        """Return what a replica serves with so many requests in work."""
        return places / (self.alone_s + self.each_s * places)


def time_in_work(service: ServiceObservation) -> TimeInWork | str:
    """Fit how the time in work rises with the requests in work of a replica, by the hour; or say why that is untold."""
    each, spent_s, requests, _ = _hourly(service)
    if len(each) * _HELD_OUT_FRAC < FEWEST_STEPS:
        return "too few hours with running requests"
    busy = each > np.quantile(each, 1 - _HELD_OUT_FRAC)
    if np.quantile(each, 0.95) < _LEAST_RANGE * np.quantile(each, 0.05):
        return "the same number of requests was running at all times"
    alone_s, each_s, _ = _line(each[~busy], spent_s[~busy], requests[~busy])
    foretold_s = alone_s + each_s * each[busy]
    error = float(
        np.average(spent_s[busy], weights=requests[busy]) / np.average(foretold_s, weights=requests[busy]) - 1
    )
    alone_s, each_s, doubt_s = _line(each, spent_s, requests)
    upper_s = max(0.0, each_s + _Z_90 * doubt_s)
    # the line turns about the middle of what was seen
    middle = float(np.average(each, weights=requests))
    return TimeInWork(alone_s=max(0.0, alone_s + (each_s - upper_s) * middle), each_s=upper_s, error_frac=error)


def served_with_places(
    service: ServiceObservation, places: int, shown_req_s: float, trust_frac: float = 1.0
) -> float | str:
    """Return what a replica serves at most with the places declared, in requests/s; a reason where that is not to be believed.

    `trust_frac` is the share of the way to `REACH` that the law's back-test allows.
    """
    if not service.waiting.size:
        return "requests that wait were not measured"
    each, _, _, waiting = _hourly(service)
    if len(each) and float(each.max()) > _OVER * places:
        return f"up to {each.max():.1f} requests ran at once on a replica, and max_concurrency is {places}"
    free = each <= _FREE_FRAC * places
    if waiting[free].sum() > _WAITING_FRAC * each[free].sum():
        return "requests waited while places were free"
    line = time_in_work(service)
    if isinstance(line, str):
        return line
    if line.error_frac > _ERROR_FRAC:
        return f"busy hours took {line.error_frac:.0%} longer than predicted from calm ones"
    return min(line.req_s(places), (1.0 + (REACH - 1.0) * trust_frac) * shown_req_s)


def _hourly(service: ServiceObservation) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return by hour (n_hours,): requests in work of a replica, their time in work, requests, and those waiting of a replica.

    Hours with gaps, without replicas or without requests are left out.
    """
    per_hour = max(1, round(S_PER_HR / service.step_s))
    whole = len(service.arrivals) // per_hour * per_hour
    waiting = service.waiting if service.waiting.size else np.zeros_like(service.running)

    def summed(values: FloatArray) -> FloatArray:
        return np.asarray(values[:whole].reshape(-1, per_hour).sum(axis=1), dtype=np.float64)

    running, ready, served = summed(service.running), summed(service.replicas), summed(served_req(service))
    arrived, waited = summed(service.arrivals), summed(waiting)
    known = (
        np.isfinite(running) & np.isfinite(arrived) & np.isfinite(waited) & (ready > 0) & (served > 0) & (running > 0)
    )
    running, ready, served = running[known], ready[known], served[known]
    return running / ready, running * service.step_s / served, served, waited[known] / ready


def _line(x: FloatArray, y: FloatArray, weight: FloatArray) -> tuple[float, float, float]:
    """Return the weighted least-squares line: its value at 0, its slope, and the slope's standard error."""
    share = weight / weight.sum()
    mean_x, mean_y = float((share * x).sum()), float((share * y).sum())
    spread = float((share * (x - mean_x) ** 2).sum())
    if spread <= 0:
        return mean_y, 0.0, 0.0
    slope = float((share * (x - mean_x) * (y - mean_y)).sum()) / spread
    left = y - mean_y - slope * (x - mean_x)
    variance = float((share * left**2).sum()) / max(len(x) - 2, 1)
    return mean_y - slope * mean_x, slope, float(np.sqrt(variance / spread))
