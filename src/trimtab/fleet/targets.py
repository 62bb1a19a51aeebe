"""The targets of each workload: declared, else "no worse than observed"; and declarations without effect."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimtab.errors import BundleError, Fault, InputError, UnknownName
from trimtab.fleet.model import Fleet, JobsObservation, ServiceObservation, Target, Workload
from trimtab.fleet.settings import Assumptions
from trimtab.ledger.arrays import FloatArray
from trimtab.tables.workloads import (
    KINDS_OF_TARGET,
    WORKLOADS_FILE,
    DeclaredDeferral,
    DeclaredTarget,
    TargetMetric,
    WorkloadKind,
    WorkloadSpec,
    without_effect,
)
from trimtab.units import MS_PER_S, S_PER_HR

MOST_LIMIT_S = 1e7
"""A limit beyond it is not a target: four months."""
_TAILS = (0.95, 0.99)
_UNMEASURED = {
    TargetMetric.LATENCY: "no latency was measured",
    TargetMetric.TTFT: "no time to first token was measured",
    TargetMetric.TPOT: "no time per token was measured",
    TargetMetric.QUEUE_WAIT: "no run was seen to wait",
}
_HISTOGRAM = {
    TargetMetric.LATENCY: "the server's latency histogram (table demand: latency_le_s, latency_count)",
    TargetMetric.TTFT: "the server's histogram of it (table demand: ttft_le_s, ttft_count)",
    TargetMetric.TPOT: "the server's histogram of it (table demand: tpot_le_s, tpot_count)",
    TargetMetric.QUEUE_WAIT: "its runs (table jobs)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherLimit:
    """A target of one workload with another time limit, for a scenario."""

    workload: str
    metric: TargetMetric
    limit_s: float

    def __str__(self) -> str:
        return f"{self.metric.value} of {self.workload} within {self.limit_s:g} s"


_OTHER_LIMIT = re.compile(r"(?P<workload>[^=:\s]+)(:(?P<metric>[a-z_]+))?\s*=\s*(?P<limit>[0-9.]+)\s*(?P<unit>ms|s|)")


def other_limit(text: str) -> OtherLimit:
    """Read `NAMESPACE/NAME[:METRIC]=SECONDS`, latency where no metric is named. Raises InputError, UnknownName."""
    form = "write prod/chat=0.3, prod/chat:ttft=500ms or team/train:queue_wait=600"
    found = _OTHER_LIMIT.fullmatch(text.strip())
    if found is None:
        raise InputError(f"{text!r} is not a target; {form}")
    named, known = found["metric"] or TargetMetric.LATENCY.value, [metric.value for metric in _UNMEASURED]
    if named not in known:
        raise UnknownName("target", named, known, where=text)
    try:
        limit_s = float(found["limit"]) / (MS_PER_S if found["unit"] == "ms" else 1.0)
    except ValueError:
        limit_s = 0.0
    if not 0 < limit_s <= MOST_LIMIT_S:
        raise InputError(f"{text!r}: a limit lies above 0 and below {MOST_LIMIT_S:,.0f} s; {form}")
    return OtherLimit(workload=found["workload"], metric=TargetMetric(named), limit_s=limit_s)


def refuse_other_limits(fleet: Fleet, limits: Iterable[OtherLimit]) -> None:
    """Raise UnknownName for a workload that is not there, InputError for a metric that is not judged for it."""
    by_name = {workload.name: workload for workload in fleet.workloads}
    for limit in limits:
        if limit.workload not in by_name:
            raise UnknownName("workload", limit.workload, by_name, where=str(limit))
        judged = {target.metric.value for target in by_name[limit.workload].targets if target.limit_s is not None}
        if limit.metric.value not in judged:
            has = f"has {', '.join(sorted(judged))}" if judged else "has none with a limit"
            raise InputError(f"{limit}: {limit.metric.value} is not judged for it ({has})")


def with_other_limits(fleet: Fleet, limits: Sequence[OtherLimit]) -> Fleet:
    """Return the fleet with other limits; a workload whose metric has no target here stays as it is, the very same object."""
    if not limits:
        return fleet
    return replace(fleet, workloads=tuple(_with_other_limits(workload, limits) for workload in fleet.workloads))


def _with_other_limits(workload: Workload, limits: Sequence[OtherLimit]) -> Workload:
    targets = workload.targets
    for limit in limits:
        first = next(
            (target for target in targets if target.metric is limit.metric and target.limit_s is not None), None
        )
        if limit.workload == workload.name and first is not None:
            other = replace(first, limit_s=limit.limit_s, declared=True, because="asked: what if")
            targets = (other, *(target for target in targets if target.metric is not limit.metric))
    return workload if targets is workload.targets else replace(workload, targets=targets)


def targets_of(
    spec: WorkloadSpec,
    kind: WorkloadKind,
    service: ServiceObservation | None,
    jobs: JobsObservation | None,
    assumptions: Assumptions,
) -> tuple[Target, ...]:
    """Return the targets that a replay judges; a metric that was declared replaces the observed one of the same metric.

    `declared_target` says why a declared one is not among them.
    """
    found = [declared_target(declaration, kind, service, jobs) for declaration in spec.targets or ()]
    declared = tuple(target for target in found if isinstance(target, Target))
    metrics = {target.metric for target in declared}
    if spec.deferrable is not None and jobs is not None and TargetMetric.QUEUE_WAIT not in metrics:
        declared, metrics = (*declared, _deferral(spec.deferrable)), metrics | {TargetMetric.QUEUE_WAIT}
    observed = _observed(kind, service, jobs, assumptions)
    return (*declared, *(target for target in observed if target.metric not in metrics))


def declared_target(
    declaration: DeclaredTarget, kind: WorkloadKind, service: ServiceObservation | None, jobs: JobsObservation | None
) -> Target | str:
    """Return a declared target as replays judge it, or why it cannot be judged, and what would help."""
    metric, limit_s = declaration.metric, declaration.limit_s
    if metric is TargetMetric.THROUGHPUT and declaration.limit_frac is not None:
        return Target(
            metric=metric,
            required_frac=declaration.limit_frac,
            limit_s=None,
            declared=True,
            because="declared in workloads.yaml",
        )
    if kind not in KINDS_OF_TARGET[metric]:
        return f"nothing of what is {kind.value} has it: say kind: if it is another"
    if metric is TargetMetric.TPOT and (service is None or not service.tpot_count.sum() > 0):
        why = f"{_UNMEASURED[metric]}, and no other time bounds it"
        return f"{why}: collect {_HISTOGRAM[metric]}, or declare a latency or ttft limit that holds it as well"
    if metric is TargetMetric.QUEUE_WAIT and jobs is None:
        return f"no runs were seen of what is {kind.value}: say kind: if it is another, or collect them (table jobs)"
    because = "declared in workloads.yaml"
    if limit_s is None:
        seen_s = observed_s(metric, declaration.quantile, service, jobs)
        if seen_s is None or declaration.limit_frac is None:
            return f"{_UNMEASURED[metric]}, so that there is nothing to multiply: give limit_s, or collect {_HISTOGRAM[metric]}"
        limit_s, because = seen_s * declaration.limit_frac, f"declared: {declaration.limit_frac:g} x observed"
    return Target(metric=metric, required_frac=declaration.quantile, limit_s=limit_s, declared=True, because=because)


def observed_s(
    metric: TargetMetric, quantile: float, service: ServiceObservation | None, jobs: JobsObservation | None
) -> float | None:
    """Return a quantile of what history had; None if it was not measured."""
    if metric is TargetMetric.QUEUE_WAIT:
        return None if jobs is None or not jobs.count else float(np.quantile(jobs.wait_s, quantile))
    if metric is TargetMetric.THROUGHPUT or service is None:
        return None
    le_s, count = histogram_of(service, metric)
    total = count.sum(axis=0)
    return bucket_quantile(le_s, total, quantile) if total.sum() > 0 else None


def histogram_of(service: ServiceObservation, metric: TargetMetric) -> tuple[FloatArray, FloatArray]:
    """Return bounds (n_buckets,) and counts (n_steps, n_buckets) of what a metric bounds: whole requests for latency.

    Both are empty where it was not measured.
    """
    if metric is TargetMetric.TTFT:
        return service.ttft_le_s, service.ttft_count
    if metric is TargetMetric.TPOT:
        return service.tpot_le_s, service.tpot_count
    return service.latency_le_s, service.latency_count


def judged_instead(target: Target, service: ServiceObservation | None) -> str | None:
    """Say by what else a service's latency or ttft target is judged where its own histogram was not measured; else None."""
    if target.metric not in {TargetMetric.LATENCY, TargetMetric.TTFT}:
        return None
    if service is not None and histogram_of(service, target.metric)[1].sum() > 0:
        return None
    if service is None or not service.latency_count.sum() > 0:
        judged = "compared with the wait for a replica alone"
    else:
        judged = "judged by the whole request, which is longer"
    return f"{judged}: {_UNMEASURED[target.metric]}: collect {_HISTOGRAM[target.metric]}"


def _deferral(declaration: DeclaredDeferral) -> Target:
    """Return the queue wait that a declared slack permits, in place of "no worse than observed"."""
    return Target(
        metric=TargetMetric.QUEUE_WAIT,
        required_frac=0.95,
        limit_s=declaration.within_hr * S_PER_HR,
        declared=True,
        because=f"declared deferrable within {declaration.within_hr:g} h",
    )


def _observed(
    kind: WorkloadKind,
    service: ServiceObservation | None,
    jobs: JobsObservation | None,
    assumptions: Assumptions,
) -> tuple[Target, ...]:
    throughput = Target(
        metric=TargetMetric.THROUGHPUT,
        required_frac=assumptions.throughput_frac,
        limit_s=None,
        declared=False,
        because="no worse than observed, within 10 %",
    )
    if kind is WorkloadKind.SERVING:
        return (*(() if service is None else latency_targets(service)), throughput)
    wait_s = observed_s(TargetMetric.QUEUE_WAIT, 0.95, service, jobs)
    if wait_s is None:
        return (throughput,)
    return (
        Target(
            metric=TargetMetric.QUEUE_WAIT,
            required_frac=0.95,
            limit_s=wait_s,
            declared=False,
            because="no worse than observed",
        ),
        throughput,
    )


def latency_targets(service: ServiceObservation) -> tuple[Target, ...]:
    """Return the targets of a service that is to stay as quick as it was."""
    return tuple(
        Target(
            metric=TargetMetric.LATENCY,
            required_frac=tail,
            limit_s=limit_s,
            declared=False,
            because="no worse than observed",
        )
        for tail in _TAILS
        if (limit_s := observed_s(TargetMetric.LATENCY, tail, service, None)) is not None
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
    """Return the share of requests within a limit, per row of bucket counts (..., n_buckets); NaN if there are none."""
    total = count.sum(axis=-1)
    within = count @ bucket_share(le_s, limit_s)
    share = np.divide(within, total, out=np.full(np.shape(total), np.nan), where=total > 0)
    return np.asarray(share, dtype=np.float64)


def refuse_impossible(workloads: Iterable[Workload]) -> None:
    """Raise BundleError with every declaration that contradicts the measurements."""
    faults = [fault for workload in workloads for fault in _impossible(workload)]
    if faults:
        raise BundleError(faults)


def declared_in_vain(workloads: Iterable[Workload]) -> tuple[str, ...]:
    """Report declarations that do not apply to a workload's kind, targets that cannot be judged, and targets judged by
    another metric than the one they bound."""
    return tuple(note for workload in workloads for note in _in_vain(workload))


def _impossible(workload: Workload) -> Iterator[Fault]:
    need, held = workload.spec.need_gib, workload.activity.memory_total_gib
    if need is not None and held is not None and need > held:
        yield Fault(
            what=f"a GPU of it needs more memory than the {workload.gpu} that it runs on has, {held:.3g} GiB",
            where=f"{WORKLOADS_FILE}: {workload.name}: need_gib",
            value=f"{need:g}",
            cure="need_gib counts one GPU: its share of the model, and what requests or activations add",
        )


def _in_vain(workload: Workload) -> Iterator[str]:
    vain = without_effect(workload.spec, workload.kind)
    if vain:
        what = ", ".join(vain)
        kind = f"{workload.kind.value} ({workload.kind_because})"
        yield f"{workload.name}: {WORKLOADS_FILE} declares {what}, which changes nothing of {kind}: say kind: if it is another"
    for declaration in workload.spec.targets or ():
        found = declared_target(declaration, workload.kind, workload.service, workload.jobs)
        what = f"{workload.name}: its target {declaration.describe()} is"
        if isinstance(found, str):
            # a metric of other kinds is named above, beside what else changes nothing of this kind
            if workload.kind in KINDS_OF_TARGET[declaration.metric]:
                yield f"{what} dropped: {found}"
        elif instead := judged_instead(found, workload.service):
            yield f"{what} {instead}"
