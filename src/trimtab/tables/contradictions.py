"""What one entry of workloads.yaml says that cannot all be meant: every such place, not only the first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from trimtab.errors import Fault
from trimtab.tables.workloads import DeclaredTarget, TargetMetric, WorkloadKind, Workloads, WorkloadSpec

_SERVES = frozenset({WorkloadKind.SERVING})
_RUNS = frozenset(WorkloadKind) - {WorkloadKind.SERVING, WorkloadKind.NOTEBOOK}
KINDS_OF_FIELD = {
    "batching": _SERVES,
    "quantize": _SERVES,
    "quality": _SERVES,
    "min_replicas": _SERVES,
    "max_replicas": _SERVES,
    "max_concurrency": _SERVES,
    "cold_start_s": _SERVES,
    "open_hours": _SERVES,
    "wakes_on": _SERVES,
    "checkpoint": _RUNS,
    "deferrable": _RUNS,
    "training": _RUNS,
}
"""What is read of workloads of some kinds only."""
KINDS_OF_TARGET = {
    TargetMetric.LATENCY: _SERVES,
    TargetMetric.TTFT: _SERVES,
    TargetMetric.TPOT: _SERVES,
    TargetMetric.QUEUE_WAIT: _RUNS,
    TargetMetric.THROUGHPUT: frozenset(WorkloadKind),
}
"""Kinds that have what a target bounds."""


def contradictions(workloads: Workloads, where: str) -> list[Fault]:
    """Return what entries say of one workload that cannot all be meant; what stands in two entries may be a pattern's."""
    return [fault for key, spec in workloads.workloads.items() for fault in _of_entry(spec, f"{where}: {key}")]


def without_effect(spec: WorkloadSpec, kind: WorkloadKind) -> tuple[str, ...]:
    """Return what is declared of a workload and means nothing for one of this kind."""
    fields = [name for name, kinds in KINDS_OF_FIELD.items() if getattr(spec, name) is not None and kind not in kinds]
    metrics = {target.metric for target in spec.targets or ()}
    elsewhere = [metric for metric, kinds in KINDS_OF_TARGET.items() if metric in metrics and kind not in kinds]
    return (*fields, *(f"a {metric.value} target" for metric in elsewhere))


def _of_entry(spec: WorkloadSpec, where: str) -> Iterator[Fault]:
    if spec.kind is not None:
        for field in without_effect(spec, spec.kind):
            yield Fault(
                what=f"{field} says nothing of what is {spec.kind.value}",
                where=where,
                value=f"kind: {spec.kind.value}",
                cure="take one of the two out",
            )
    by_bound: dict[tuple[TargetMetric, float], list[DeclaredTarget]] = defaultdict(list)
    for target in spec.targets or ():
        by_bound[target.metric, target.quantile].append(target)
    for (metric, quantile), same in by_bound.items():
        if len(same) > 1:
            yield Fault(
                what=f"{len(same)} targets bound {metric.value} at the same quantile, {quantile:g}",
                where=where,
                value=", ".join(target.limit for target in same),
                cure="keep the one that is meant",
            )
