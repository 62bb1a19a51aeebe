"""What the manifests need to know of a cluster, as far as its own history tells: the same laws that the plan was made on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.emit.manifests.facts import EmitFacts, PricedPool, ServiceFacts, WorkloadFacts
from trimtab.emit.manifests.signals import SERVERS
from trimtab.errors import MissingPrice, UnknownName
from trimtab.fleet.kinds import is_regular
from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet, JobsObservation, Workload
from trimtab.fleet.service_law import ServiceLaw
from trimtab.fleet.settings import Settings
from trimtab.replay.outcomes.evaluate import law_of
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import HR_PER_WEEK, S_PER_HR

_USUAL_OWNER = {WorkloadKind.SERVING: "Deployment", WorkloadKind.NOTEBOOK: "StatefulSet"}
_RUNS = "Job"


def facts_of_fleet(
    fleet: Fleet, settings: Settings, market: Market, *, owner_kinds: Mapping[str, str], pools: Iterable[Pool]
) -> EmitFacts:
    """Return the facts of a fleet; `owner_kinds` by workload, where known, and every pool that the plan may use."""
    workloads = tuple(
        _workload(workload, fleet, settings, owner_kinds.get(workload.name, "")) for workload in fleet.workloads
    )
    known = [priced for pool in sorted(set(pools)) if (priced := _priced(pool, market)) is not None]
    products = {gpu.name: gpu.nvidia_smi_name for gpu in market.catalog.gpus}
    return EmitFacts(workloads=workloads, pools=tuple(known), gpu_products=products)


def _workload(workload: Workload, fleet: Fleet, settings: Settings, owner_kind: str) -> WorkloadFacts:
    law = law_of(workload, settings)
    service = None
    if isinstance(law, ServiceLaw) and workload.service is not None:
        service = ServiceFacts(
            capacity_req_s=law.capacity_req_s,
            signals=SERVERS["vllm"],
            targets=workload.targets,
            faster_counts=law.faster_counts,
        )
    sizes = tuple(size.gpus for size in workload.pod_sizes)
    return WorkloadFacts(
        name=workload.name,
        owner_kind=owner_kind or _USUAL_OWNER.get(workload.kind, _RUNS),
        replicas=_replicas(workload),
        pods_if_none_waited=pods_if_none_waited(workload.jobs),
        gpus_per_pod=workload.gpus_per_pod,
        pod_gpus=sizes if len(sizes) > 1 else (),
        gpu=workload.gpu,
        pool=workload.pool,
        gpus_per_node=workload.gpus_per_node,
        activity_signal="gpu_util" if workload.activity.signal == "gpu_util" else "sm_active",
        run_starts=_run_starts(workload, fleet.window.first_week_hour),
        service=service,
    )


def _replicas(workload: Workload) -> int:
    """Return the most replicas or runs that history had at once."""
    if workload.service is not None:
        return workload.service.most_replicas
    held = float(workload.gpu_seconds.max(initial=0.0)) / S_PER_HR / workload.gpus_per_pod
    return max(1, math.ceil(round(held, 6)))


def pods_if_none_waited(jobs: JobsObservation | None) -> int:
    """Return the most pods of runs at once, had each started when it was submitted and lasted as long as it takes."""
    if jobs is None or not jobs.count:
        return 0
    jobs = jobs.unqueued or jobs
    ends_s = jobs.submit_s + (jobs.end_s - jobs.start_s)
    moments_s = np.concatenate([ends_s, jobs.submit_s])
    pods = np.concatenate([-jobs.pods, jobs.pods])
    # at one moment those that end go first: the sort is stable and ends stand before starts
    return int(np.cumsum(pods[np.argsort(moments_s, kind="stable")]).max())


def _run_starts(workload: Workload, first_week_hour: int) -> tuple[int, ...]:
    """Return the hours of the week in which regular runs are submitted; none where they are not regular."""
    jobs = workload.jobs
    if jobs is None or not is_regular(jobs):
        return ()
    hours = first_week_hour + np.floor(jobs.submit_s[jobs.submit_s >= 0] / S_PER_HR)
    return tuple(sorted({int(hour) % HR_PER_WEEK for hour in hours}))


def _priced(pool: Pool, market: Market) -> PricedPool | None:
    """Return a pool with its rate; None where the catalog knows no such nodes."""
    try:
        width = market.catalog.instance_type(pool.provider, pool.instance_type).gpu_count
    except UnknownName:
        return None
    try:
        rate = market.rate(pool)
    except (MissingPrice, UnknownName):
        return PricedPool(pool=pool, gpus_per_node=width)
    return PricedPool(pool=pool, gpus_per_node=width, rate_micro_usd_hr=rate)
