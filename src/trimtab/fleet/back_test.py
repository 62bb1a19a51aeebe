"""A service's law held against history: fitted on the hours of little load, tested on those of more.

A law that is fitted on all of history agrees with it wherever history is dense, and says nothing about loads beyond. So the
hours with the highest load per replica are held out, the law is fitted on the rest, and the replicas that history had serve the
requests that came, as a fluid queue. Shares in time, requests in work and requests that wait are then as foretold, or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from trimtab.fleet.law_evidence import FEWEST_STEPS, BackTest, BackTestedMeasure, seconds_in_work
from trimtab.fleet.model import Flags, FloatArray, ServiceObservation, Target, Workload
from trimtab.fleet.service_law import ServiceLaw, gpu_seconds_per_request, service_law, step_load
from trimtab.fleet.targets import histogram_of, share_within
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
        return "load hardly changes, so that no hours of more load can be held out"
    held_out = _in_steps(service, hourly > split)
    law = _fitted_without(workload, held_out, healthy_frac)
    if isinstance(law, str):
        return f"{law} in the hours of less load"
    tested = held_out & np.isfinite(service.arrivals) & (service.replicas > 0)
    if not tested.any():
        return "nobody knows how many replicas served the hours of most load"
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
    """Return the requests/s of a ready replica by hour (n_hours,); NaN where an hour has gaps."""
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
    # what it would say of any load, promised or not
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
    """Return how many more came late than foretold, over those that the target allows."""
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
    """Return the GPU-seconds per request of the hours fitted and of those held out; None where either is unknown."""
    busy = workload.activity.busy_gpus
    fitted, measured = (
        gpu_seconds_per_request(replace(service, arrivals=np.where(left_out, np.nan, service.arrivals)), busy)
        for left_out in (tested, ~tested)
    )
    return None if fitted is None or measured is None else BackTestedMeasure(foretold=fitted, measured=measured)
