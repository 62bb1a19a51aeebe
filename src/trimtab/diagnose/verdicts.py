"""A verdict per workload: what its activity says, and what it cannot say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trimtab.diagnose.causes import Cause, Signs, causes_of
from trimtab.diagnose.findings import ProductForm, Verdict
from trimtab.fleet.model import Fleet, FloatArray, Workload
from trimtab.fleet.settings import Bands
from trimtab.provenance import Evidence
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import S_PER_HR


def verdict_of(workload: Workload, window: str, bands: Bands, ended: Sequence[str] = ()) -> Verdict:
    """Judge a workload by SM activity where present; by GPU_UTIL, and says so, where not.

    Where its readings prove no cause, those that a replayed plan ends (`ended`) stand for them.
    """
    causes = _causes(workload, bands, ended) or _bound(workload)
    sentences = [_use(workload, bands), *_memory(workload, bands), *causes]
    if workload.activity.signal == "gpu_util":
        sentences.append("only GPU_UTIL was there, which says that a kernel ran and not how hard: turn on SM_ACTIVE")
    return Verdict(workload=workload.name, headline="; ".join(sentences), evidence=_evidence(workload, window))


def _use(workload: Workload, bands: Bands) -> str:
    mean, p95 = workload.activity.mean_frac, workload.activity.p95_frac
    if mean is None or p95 is None:
        return "no GPU activity was measured"
    serving = workload.kind is WorkloadKind.SERVING
    if serving and p95 > bands.at_risk_frac:
        return f"at risk: {p95:.0%} active in its busiest hours"
    if mean < bands.over_provisioned_frac:
        return f"over-provisioned: {mean:.0%} active on average"
    if mean < bands.find_cause_frac:
        return f"{mean:.0%} active on average: find the cause"
    return f"healthy: {mean:.0%} active" if mean <= bands.healthy_frac or not serving else f"busy: {mean:.0%} active"


def _memory(workload: Workload, bands: Bands) -> list[str]:
    peak, total = workload.activity.memory_peak_gib, workload.activity.memory_total_gib
    if peak is None or total is None or total <= 0:
        return []
    share = peak / total
    if share > bands.memory_risk_frac:
        return [f"memory peaks at {share:.0%}: at risk of running out"]
    if share > bands.memory_recompute_frac:
        return [f"memory peaks at {share:.0%}: recompute or quantization would make room"]
    return [f"memory peaks at {share:.0%}: could share a GPU"] if share < bands.memory_share_frac else []


def _bound(workload: Workload) -> list[str]:
    """Say what binds, where DRAM and tensor activity prove it; low SM activity alone proves nothing."""
    activity = workload.activity
    if activity.dram_frac is None or activity.sm_frac is None or activity.sm_frac <= 0:
        return []
    if activity.dram_frac > 0.6:
        return [f"bound by memory bandwidth (DRAM {activity.dram_frac:.0%} active)"]
    if activity.tensor_frac is not None and activity.tensor_frac > 0.5:
        return [f"bound by compute (tensor pipes {activity.tensor_frac:.0%} active)"]
    return []


def _causes(workload: Workload, bands: Bands, ended: Sequence[str]) -> list[str]:
    """Say why a workload that works does little, or that this cannot be told and what is missing."""
    activity = workload.activity
    if activity.mean_frac is None or not bands.active_frac <= activity.mean_frac < bands.find_cause_frac:
        return []
    found = causes_of(signs_of(workload))
    if found[0].cause is Cause.UNDETERMINED and ended:
        return [f"cause: {' and '.join(ended)} (the plan ends that)"]
    if found[0].cause is Cause.UNDETERMINED and activity.sm_frac is None:
        return []
    leads = {Cause.UNDETERMINED: "", Cause.MEMORY_BANDWIDTH: "bound by "}
    return [f"{leads.get(cause.cause, 'cause: ')}{cause.sentence}" for cause in found]


def signs_of(workload: Workload) -> Signs:
    """Return what a workload's history shows of the five causes; a service's cap is the most that it was seen to hold."""
    activity, service = workload.activity, workload.service
    peak, total = activity.memory_peak_gib, activity.memory_total_gib
    batch = waiting = cap = None
    if service is not None:
        each = np.where(service.replicas > 0, service.replicas, np.nan)
        batch, cap = _mean(service.running / each), _most(service.running / each)
        waiting = _mean(service.waiting / each) if len(service.waiting) else None
    return Signs(
        gpu_util_frac=activity.gpu_util_frac,
        sm_frac=activity.sm_frac,
        tensor_frac=activity.tensor_frac,
        dram_frac=activity.dram_frac,
        memory_peak_frac=None if peak is None or not total else peak / total,
        serving=workload.kind is WorkloadKind.SERVING,
        batch=batch,
        waiting=waiting,
        batch_cap=cap,
    )


def _mean(values: FloatArray) -> float | None:
    seen = values[~np.isnan(values)]
    return float(seen.mean()) if len(seen) else None


def _most(values: FloatArray) -> float | None:
    seen = values[~np.isnan(values)]
    return float(seen.max()) if len(seen) else None


def _evidence(workload: Workload, window: str) -> tuple[Evidence, ...]:
    activity = workload.activity
    readings = {
        "SM active": activity.sm_frac,
        "tensor active": activity.tensor_frac,
        "DRAM active": activity.dram_frac,
        "GPU_UTIL": activity.gpu_util_frac,
    }
    return tuple(
        Evidence(
            what=name,
            query=f"mean over device-hours of {workload.name}",
            window=window,
            value="not measured" if value is None else f"{value:.1%}",
        )
        for name, value in readings.items()
    )


def product_form(fleet: Fleet, bands: Bands) -> ProductForm:
    """Return allocation x busy x efficiency of the whole fleet, weighted by GPU-hours."""
    billed = sum(
        float(seconds.sum()) * node.gpu_count for node, seconds in zip(fleet.nodes, fleet.node_seconds, strict=True)
    )
    held = sum(float(workload.gpu_seconds.sum()) for workload in fleet.workloads)
    busy_hours, work_hours, measured = 0.0, 0.0, 0.0
    for workload in fleet.workloads:
        gpus = workload.gpu_seconds / S_PER_HR
        seen = ~np.isnan(workload.activity.busy_gpus) & (gpus > 0)
        level = workload.activity.busy_gpus[seen]
        measured += float(gpus[seen].sum())
        busy_hours += float(gpus[seen][level >= gpus[seen] * bands.active_frac / 2].sum())
        work_hours += float(level.sum())
    return ProductForm(
        allocation_frac=held / billed if billed else 0.0,
        busy_frac=busy_hours / measured if measured else None,
        efficiency_frac=work_hours / busy_hours if busy_hours else None,
    )
