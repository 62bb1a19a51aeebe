"""What each workload must keep: what was declared, else "no worse than observed"."""

from __future__ import annotations

import numpy as np

from trimtab.fleet.model import FloatArray, JobsObservation, ServiceObservation, Target
from trimtab.fleet.settings import Assumptions
from trimtab.tables.workloads import DeclaredDeferral, DeclaredTarget, TargetMetric, WorkloadSpec
from trimtab.units import S_PER_HR

_TAILS = (0.95, 0.99)


def targets_of(
    spec: WorkloadSpec,
    service: ServiceObservation | None,
    jobs: JobsObservation | None,
    assumptions: Assumptions,
) -> tuple[Target, ...]:
    """Return a workload's targets; a metric that was declared replaces the observed one of the same metric."""
    observed = _observed(service, jobs, assumptions)
    declared = tuple(
        target for declaration in spec.targets or () if (target := _declared(declaration, observed)) is not None
    )
    said = {target.metric for target in declared}
    if spec.deferrable is not None and jobs is not None and TargetMetric.QUEUE_WAIT not in said:
        declared, said = (*declared, _deferral(spec.deferrable)), said | {TargetMetric.QUEUE_WAIT}
    return (*declared, *(target for target in observed if target.metric not in said))


def _deferral(declaration: DeclaredDeferral) -> Target:
    """Return the queue wait that a declared slack permits, in place of "no worse than observed"."""
    return Target(
        metric=TargetMetric.QUEUE_WAIT,
        required_frac=0.95,
        limit_s=declaration.within_hr * S_PER_HR,
        declared=True,
        because=f"declared deferrable within {declaration.within_hr:g} h",
    )


def _declared(declaration: DeclaredTarget, observed: tuple[Target, ...]) -> Target | None:
    if declaration.metric is TargetMetric.THROUGHPUT and declaration.limit_frac is not None:
        return Target(
            metric=TargetMetric.THROUGHPUT,
            required_frac=declaration.limit_frac,
            limit_s=None,
            declared=True,
            because="declared in workloads.yaml",
        )
    limit_s = declaration.limit_s
    because = "declared in workloads.yaml"
    if limit_s is None:
        same = [target for target in observed if target.metric is declaration.metric and target.limit_s is not None]
        if not same or declaration.limit_frac is None:
            return None
        nearest = min(same, key=lambda target: abs(target.required_frac - declaration.quantile))
        limit_s = (nearest.limit_s or 0.0) * declaration.limit_frac
        because = f"declared: {declaration.limit_frac:g} x observed"
    return Target(
        metric=declaration.metric,
        required_frac=declaration.quantile,
        limit_s=limit_s,
        declared=True,
        because=because,
    )


def _observed(
    service: ServiceObservation | None, jobs: JobsObservation | None, assumptions: Assumptions
) -> tuple[Target, ...]:
    throughput = Target(
        metric=TargetMetric.THROUGHPUT,
        required_frac=assumptions.throughput_frac,
        limit_s=None,
        declared=False,
        because="no worse than observed, within 10 %",
    )
    if service is not None:
        return (*latency_targets(service), throughput)
    if jobs is not None and jobs.count:
        return (
            Target(
                metric=TargetMetric.QUEUE_WAIT,
                required_frac=0.95,
                limit_s=float(np.quantile(jobs.wait_s, 0.95)),
                declared=False,
                because="no worse than observed",
            ),
            throughput,
        )
    return (throughput,)


def latency_targets(service: ServiceObservation) -> tuple[Target, ...]:
    """Return the targets of a service that is to stay as quick as it was."""
    total = service.latency_count.sum(axis=0)
    if total.sum() <= 0:
        return ()
    return tuple(
        Target(
            metric=TargetMetric.LATENCY,
            required_frac=tail,
            limit_s=bucket_quantile(service.latency_le_s, total, tail),
            declared=False,
            because="no worse than observed",
        )
        for tail in _TAILS
    )


def bucket_quantile(le_s: FloatArray, count: FloatArray, quantile: float) -> float:
    """Return a quantile from bucket counts, linear within a bucket as Prometheus' histogram_quantile is.

    A quantile in the last, unbounded bucket gives the largest finite bound.
    """
    wanted = quantile * count.sum()
    cumulative = np.cumsum(count)
    bucket = int(np.searchsorted(cumulative, wanted))
    if bucket >= len(le_s) - 1 and np.isinf(le_s[-1]):
        return float(le_s[-2])
    low = 0.0 if bucket == 0 else float(le_s[bucket - 1])
    before = 0.0 if bucket == 0 else float(cumulative[bucket - 1])
    inside = (wanted - before) / count[bucket] if count[bucket] > 0 else 1.0
    return low + (float(le_s[bucket]) - low) * float(inside)


def bucket_share(le_s: FloatArray, limit_s: float | FloatArray) -> FloatArray:
    """Return the share of each bucket that lies within a limit (n_buckets,), or within each of several (n_limits, n_buckets).

    Linear within a bucket; the unbounded bucket counts as beyond every finite limit.
    """
    low = np.concatenate(([0.0], le_s[:-1]))
    width = np.where(np.isinf(le_s), 1.0, le_s - low)
    limits = np.asarray(limit_s, dtype=np.float64)[..., None]
    return np.where(np.isinf(le_s), 0.0, np.clip((limits - low) / width, 0.0, 1.0))


def share_within(le_s: FloatArray, count: FloatArray, limit_s: float) -> FloatArray:
    """Return the share of requests within a limit, per row of bucket counts (..., n_buckets); NaN where there are none."""
    total = count.sum(axis=-1)
    within = count @ bucket_share(le_s, limit_s)
    share = np.divide(within, total, out=np.full(np.shape(total), np.nan), where=total > 0)
    return np.asarray(share, dtype=np.float64)
