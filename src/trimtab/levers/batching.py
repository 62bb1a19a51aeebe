"""Serve several requests at once where a replica takes one at a time: batches that leave together, greedy or by a window."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from trimtab.catalog import Gpu
from trimtab.fleet.effects import BatchForm, SetBatchPolicy
from trimtab.fleet.model import FloatArray, ServiceObservation, Workload
from trimtab.fleet.served_model import ServedModel, served_model
from trimtab.fleet.service_law import ServiceLaw, seconds_one_by_one
from trimtab.fleet.settings import Lever
from trimtab.fleet.targets import bucket_quantile
from trimtab.provenance import Basis

LEVER = Lever.BATCHING
_BELIEVED_RATIO = 2.0
"""A declared time of one request that is off the observed one by more than this is about something else."""
_BUSY_ENOUGH = 0.9
"""Requests in work a replica, at the busiest, above which one at a time is seen and not only unused room."""
_PEAK_QUANTILE = 0.999
SIZES = (1, 2, 4, 8, 16, 32)
"""Requests at once for which a continuous-batching engine is predicted."""
MEASURE = (
    "measure the seconds that batches of 1, 2, 4, ... take and declare them under batching: in workloads.yaml "
    "(docs/how-to/batching.md)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProfile:
    """Seconds by batch size on the present GPU, the memory of each further request (None: unknown), and the basis.

    Calibrated: measured by the team in batches that leave together. Modelled: predicted for a continuous-batching engine.
    """

    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    item_gib: float | None
    basis: Basis


def profile_of(workload: Workload, gpu: Gpu | None) -> BatchProfile | str:
    """Return how a service would batch on its GPU, fixed to its own observed time a request, or what is missing to know.

    Where nobody measured batches, those of a continuous-batching engine are predicted, if the language model is known.
    """
    service, declared = workload.service, workload.spec.batching
    if service is None:
        return "no request metrics: whether it batches is unknown"
    alone_s = seconds_one_by_one(service)
    if alone_s is None:
        most = _most_at_once(service)
        if np.isnan(most):
            return "requests in work were not measured, so that its batch size is unknown: collect running_mean"
        return f"runs up to {most:.0f} requests a replica at once already"
    if declared is None and _most_at_once(service) < _BUSY_ENOUGH:
        return f"batch size unknown: never busy enough to show whether it takes several requests at once; {MEASURE}"
    if declared is None:
        model = served_model(workload)
        if isinstance(model, ServedModel) and gpu is not None:
            return _predicted(model, gpu, alone_s)
        return f"takes one request at a time, and how long a batch takes is unknown; {MEASURE}"
    sizes = tuple(sorted(declared.seconds))
    ratio = alone_s / declared.seconds[1]
    if not 1 / _BELIEVED_RATIO <= ratio <= _BELIEVED_RATIO:
        seen = f"declares {declared.seconds[1]:.3g} s for one request, and {alone_s:.3g} s were seen"
        return f"{seen}: measure the batch times anew"
    return BatchProfile(
        sizes=sizes,
        seconds=tuple(declared.seconds[size] * ratio for size in sizes),
        item_gib=declared.item_gib,
        basis=Basis.CALIBRATED,
    )


def _predicted(model: ServedModel, gpu: Gpu, alone_s: float) -> BatchProfile:
    """Return a continuous-batching engine's time of a request by how many share it, fixed to the observed time of one alone."""
    times_s = [replace(model, requests=float(size)).request_s(gpu, model.stored) for size in SIZES]
    one, two = (replace(model, most_requests=float(size)).need_gib(gpu, model.stored) for size in (1, 2))
    return BatchProfile(
        sizes=SIZES,
        seconds=tuple(alone_s * time_s / times_s[0] for time_s in np.maximum.accumulate(times_s).tolist()),
        item_gib=two - one,
        basis=Basis.MODELLED,
    )


def _most_at_once(service: ServiceObservation) -> float:
    each = service.running / np.where(service.replicas > 0, service.replicas, np.nan)
    return float(np.nanquantile(each, _PEAK_QUANTILE)) if np.isfinite(each).any() else math.nan


def propose(
    profile: BatchProfile, *, before: int, limit_s: float | None, model: str | None
) -> tuple[SetBatchPolicy, ...]:
    """Return the ways to batch up to each measured size: greedy, full batches, and as late as the latency limit allows."""
    found = []
    for size, second_s in zip(profile.sizes[1:], profile.seconds[1:], strict=True):
        windows = {BatchForm.CONTINUOUS: 0.0}
        if profile.basis is Basis.CALIBRATED:
            windows = {BatchForm.GREEDY: 0.0, BatchForm.FIXED: second_s}
            if limit_s is not None and limit_s > 2 * second_s:
                windows[BatchForm.TARGET] = limit_s - 2 * second_s
        found += [
            SetBatchPolicy(
                form=form,
                max_batch=size,
                window_s=window_s,
                replicas=None,
                before=before,
                sizes=profile.sizes,
                seconds=profile.seconds,
                basis=profile.basis,
                model=model,
            )
            for form, window_s in windows.items()
        ]
    return tuple(found)


def run_time_spread(law: ServiceLaw) -> float:
    """Return how far run times scatter: half the width, in logarithms, of the middle 68 % of latencies at the least load."""
    if not law.share.size:
        return 0.0
    counts: FloatArray = law.share[0]
    low, high = bucket_quantile(law.le_s, counts, 0.16), bucket_quantile(law.le_s, counts, 0.84)
    return math.log(high / low) / 2 if low > 0 else 0.0
