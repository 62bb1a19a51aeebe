"""What manifests need to know of a cluster, as far as its bundle and its fleet's history tell.

Rows are those of the tables `nodes`, `allocations`, `pods` and `scalers`; a bundle without them leaves the facts as they are.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeGuard

import numpy as np
from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.deployment.fitting import home_speed
from trimtab.diagnose.cluster_records import pairs
from trimtab.emit.manifests.facts import (
    SERVERS,
    ContainerStart,
    EmitFacts,
    GpuClaim,
    GpuContainer,
    KueueFlavor,
    NodeFacts,
    NodeMaker,
    PricedPool,
    ServiceFacts,
    SpotType,
    Toleration,
    WorkloadFacts,
)
from trimtab.emit.manifests.give_back import GROUP_LABELS
from trimtab.errors import InputError, MissingPrice, UnknownName
from trimtab.fleet.market import Market, Offering
from trimtab.fleet.model import Fleet, Workload, is_regular
from trimtab.fleet.reach import quota_of_pools, quotas_of
from trimtab.fleet.service_law import ServiceLaw
from trimtab.fleet.settings import Settings
from trimtab.replay.outcomes.evaluate import law_of
from trimtab.replay.outcomes.outcome import Case
from trimtab.tables.arrow import RecordedRow
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import HR_PER_WEEK, S_PER_HR

_USUAL_OWNER = {WorkloadKind.SERVING: "Deployment", WorkloadKind.NOTEBOOK: "StatefulSet"}
_RUNS = "Job"
_STARTED_BY = {where.value: where for where in ContainerStart}
_LEVELS = (
    *(f"topology.k8s.aws/network-node-layer-{layer}" for layer in (1, 2, 3)),
    "cloud.google.com/gce-topology-block",
    "cloud.google.com/gce-topology-subblock",
    "cloud.google.com/gce-topology-host",
    "cloud.provider.com/topology-block",
    "cloud.provider.com/topology-rack",
    "nvidia.com/gpu.clique",
)
"""Labels of nodes by which they stand together, the widest first: layers of AWS' network (EKS, since 2025), blocks of Google's,
those of Kueue's own examples, and one NVLink domain (NVIDIA's feature discovery). A zone or region is no level: pods that
exchange gradients stay within one anyway."""


def facts_of_fleet(
    fleet: Fleet,
    settings: Settings,
    market: Market,
    *,
    owner_kinds: Mapping[str, str],
    pools: Iterable[Pool],
    later: Fleet | None = None,
    learnt: Mapping[str, Case] | None = None,
) -> EmitFacts:
    """Return the facts of a fleet; `owner_kinds` by workload, where known, and every pool that the plan may use.

    `later` is the fleet in the rest of the history: replicas and runs that were there at once may be so again.
    Laws of cases that were `learnt` on the same fleet are not learnt again.
    """
    cases, met, most = learnt or {}, defaultdict[str, int](int), defaultdict[str, int](int)
    for workload in (*fleet.workloads, *(() if later is None else later.workloads)):
        met[workload.name] = max(met[workload.name], 0 if workload.jobs is None else workload.jobs.most_pods())
        most[workload.name] = max(most[workload.name], _replicas(workload))
    workloads = tuple(
        replace(
            _workload(
                workload,
                cases[workload.name].law if workload.name in cases else law_of(workload, settings),
                fleet,
                market,
                owner_kinds.get(workload.name, ""),
            ),
            pods_if_none_waited=met[workload.name],
            replicas=most[workload.name],
        )
        for workload in fleet.workloads
    )
    known = [priced for pool in sorted(set(pools)) if (priced := _priced(pool, market)) is not None]
    products = {gpu.name: gpu.nvidia_smi_name for gpu in market.catalog.gpus}
    return EmitFacts(workloads=workloads, pools=tuple(known), gpu_products=products)


def _workload(
    workload: Workload, law: ServiceLaw | str | None, fleet: Fleet, market: Market, owner_kind: str
) -> WorkloadFacts:
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
        gpus_per_pod=workload.gpus_per_pod,
        pod_gpus=sizes if len(sizes) > 1 else (),
        gpu=workload.gpu,
        pool=workload.pool,
        gpus_per_node=workload.gpus_per_node,
        home_speed=home_speed(workload, market),
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
    return PricedPool(pool=pool, gpus_per_node=width, rate_micro_usd_hr=rate, spot_types=spot_types(pool, market))


HELD_WITHIN = timedelta(days=7)
"""A workload that held a GPU of a node in the last week counts as still holding it: runs of a weekly job come back."""
_NAMESPACE_LABELS = {"pod": "namespace", "exported_pod": "exported_namespace", "pod_name": "pod_namespace"}
_TOLERATED = re.compile(r"(?P<value>[^:]*):(?P<effect>[A-Za-z]*)(?: for (?P<seconds>-?\d+) s)?")


def with_cluster(
    facts: EmitFacts,
    end: datetime,
    *,
    nodes: Iterable[RecordedRow],
    held: Iterable[RecordedRow],
    pods: Iterable[RecordedRow],
    scalers: Iterable[RecordedRow],
    served: Iterable[RecordedRow] = (),
    devices: Iterable[RecordedRow] = (),
    queues: Iterable[RecordedRow] = (),
) -> EmitFacts:
    """Return facts with what the rows of a bundle that ends at `end` tell of its cluster."""
    servers = {str(row["workload"]): row for row in served if row["server"]}
    by_workload: dict[str, list[RecordedRow]] = defaultdict(list)
    for pod in pods:
        by_workload[str(pod["workload"])].append(pod)
    has_pools, nodes, held = False, list(nodes), list(held)
    teams = {str(row["workload"]): str(row["team"]) for row in held if row.get("team")}
    standing: dict[str, list[RecordedRow]] = defaultdict(list)
    for scaler in scalers:
        if scaler["target"]:
            standing[str(scaler["target"])].append(scaler)
        has_pools = has_pools or scaler["kind"] == "NodePool"
    pod_label = _pod_label(devices) or facts.pod_label
    return replace(
        facts,
        pod_label=pod_label,
        node_maker=NodeMaker.KARPENTER if has_pools else _node_maker(nodes),
        namespace_label=_NAMESPACE_LABELS.get(pod_label, facts.namespace_label),
        nodes=node_facts(nodes, held, end),
        kueue_flavors=_flavors(queues, [row for row in nodes if _is_there(row, end)]),
        workloads=tuple(
            _with_server(
                _with_scalers(
                    _with_pods(
                        replace(workload, team=teams.get(workload.name, workload.team)),
                        by_workload.get(workload.name, ()),
                    ),
                    standing.get(workload.name, ()),
                ),
                servers.get(workload.name),
            )
            for workload in facts.workloads
        ),
    )


def _node_maker(nodes: Iterable[RecordedRow]) -> NodeMaker | None:
    """Return what makes nodes, by their labels: Karpenter where any is Karpenter's; None where none says."""
    keys = {key for row in nodes for key in pairs(row["labels"])}
    if any(key.startswith("karpenter.sh/") for key in keys):
        return NodeMaker.KARPENTER
    return NodeMaker.NODE_GROUPS if keys.intersection(GROUP_LABELS) else None


def _pod_label(devices: Iterable[RecordedRow]) -> str | None:
    """Return the label that carries the pod on the series of most GPUs; None where no pod held any."""
    seen = Counter(str(row["pod_label"]) for row in devices if row["pod_label"])
    return max(sorted(seen), key=lambda label: seen[label], default=None)


def node_facts(nodes: Iterable[RecordedRow], held: Iterable[RecordedRow], end: datetime) -> tuple[NodeFacts, ...]:
    """Return the GPU nodes that were there when the history ended, by name."""
    of_late: dict[str, set[str]] = defaultdict(set)
    ever: dict[str, set[str]] = defaultdict(set)
    for row in held:
        until, gpus, node = row["end"], row["gpus"], str(row["node"])
        if not (isinstance(gpus, float) and gpus > 0):
            continue
        ever[node].add(str(row["workload"]))
        if until is None or (isinstance(until, datetime) and until > end - HELD_WITHIN):
            of_late[node].add(str(row["workload"]))
    return tuple(
        NodeFacts(
            name=str(row["node"]),
            pool=Pool(str(row["provider"]), str(row["instance_type"]), str(row["region"])).held_as(
                CapacityType(row["capacity_type"])
            ),
            group=_group(pairs(row["labels"])),
            held_by=tuple(sorted(of_late[str(row["node"])])),
            held_before=tuple(sorted(ever[str(row["node"])])),
        )
        for row in sorted(nodes, key=lambda row: str(row["node"]))
        if _is_there(row, end)
    )


def _is_there(node: RecordedRow, end: datetime) -> bool:
    """Return whether a node has GPUs and was there when the history ended."""
    if not node["gpu_count"]:
        return False
    until = node["end"]
    return until is None or (isinstance(until, datetime) and until >= end)


def _flavors(queues: Iterable[RecordedRow], nodes: Iterable[RecordedRow]) -> tuple[KueueFlavor, ...]:
    """Return the flavors of ClusterQueues that have labels, and GPU nodes with these."""
    named = {
        str(row["flavor"]): pairs(row["flavor_labels"])
        for row in queues
        if row["kind"] == "ClusterQueue" and row["flavor"] and row["flavor_labels"]
    }
    labels = {str(row["node"]): pairs(row["labels"]) for row in nodes}
    found = []
    for flavor, wanted in sorted(named.items()):
        mine = sorted(name for name, has in labels.items() if wanted.items() <= has.items())
        if mine:
            levels = tuple(level for level in _LEVELS if all(labels[name].get(level) for name in mine))
            found.append(KueueFlavor(name=flavor, levels=levels, nodes=tuple(mine)))
    return tuple(found)


def _group(labels: Mapping[str, str]) -> tuple[str, str] | None:
    return next(((key, labels[key]) for key in GROUP_LABELS if labels.get(key)), None)


def _with_pods(known: WorkloadFacts, pods: Iterable[RecordedRow]) -> WorkloadFacts:
    """Return a workload with what its pods tolerate and ask of nodes: those of the newest template."""
    newest = max(pods, key=lambda pod: (_moment(pod["created"]), str(pod["pod"])), default=None)
    if newest is None:
        return known
    affinity, apart = (str(newest.get(column) or "") for column in ("affinity", "keeps_apart"))
    return replace(
        known,
        tolerations=tolerations(pairs(newest["tolerations"])),
        node_selector=pairs(newest["node_selector"]),
        gpu_containers=_gpu_containers(str(newest["gpu_containers"] or "")),
        gpu_claims=_gpu_claims(str(newest.get("gpu_claims") or "[]")),
        affinity_keys=tuple(key for key in affinity.split(",") if key),
        keeps_apart=tuple(key for key in apart.split(",") if key),
        pod_labels=known.pod_labels or pairs(newest["selector"]),
        pods_were_read=True,
    )


def _gpu_containers(cell: str) -> tuple[GpuContainer, ...]:
    """Return the containers of a cell of `pods` that ask for GPUs: `0:limits:args,2:limits+requests:shell`."""
    # bundles of before 2026-11-28 do not say what starts a container
    parts = [[*text.split(":"), ""][:3] for text in cell.split(",") if text]
    if not all(place.isdecimal() and (not started or started in _STARTED_BY) for place, _, started in parts):
        raise _unreadable("gpu_containers", cell)
    return tuple(
        GpuContainer(place=int(place), in_requests="requests" in fields, started_by=_STARTED_BY.get(started))
        for place, fields, started in parts
    )


def _gpu_claims(cell: str) -> tuple[GpuClaim, ...]:
    """Return the claims of a cell of `pods`, a JSON list; raises InputError where it is none."""
    try:
        stated = _CLAIMS.validate_json(cell)
    except ValidationError as error:
        raise _unreadable("gpu_claims", cell) from error
    return tuple(
        GpuClaim(
            place=said.place,
            name=said.name,
            template=said.template,
            claim=said.claim,
            api_version=said.api_version,
            requests=said.requests,
            spec="" if said.spec is None else json.dumps(said.spec, sort_keys=True),
        )
        for said in stated
    )


class _StatedClaim(BaseModel):
    """A claim as a cell of `pods` has it."""

    place: int
    name: str
    template: str = ""
    claim: str = ""
    api_version: str
    requests: tuple[str, ...] = ()
    spec: JsonValue = None


_CLAIMS = TypeAdapter(tuple[_StatedClaim, ...])


def _unreadable(column: str, cell: str) -> InputError:
    return InputError(f"pods: {column} holds {cell[:60]!r}, which no collect writes; collect the history again")


def _moment(cell: object) -> float:
    return cell.timestamp() if isinstance(cell, datetime) else 0.0


def tolerations(stated: Mapping[str, str]) -> tuple[Toleration, ...]:
    """Return the tolerations of a cell of `pods`: key (`*` = any) -> `value:effect[ for N s]`, several of a key with commas."""
    found = []
    for key, texts in stated.items():
        for text in texts.split(", "):
            matched = _TOLERATED.fullmatch(text)
            if matched is None:
                continue
            seconds = matched["seconds"]
            found.append(
                Toleration(
                    key="" if key == "*" else key,
                    operator="Equal" if matched["value"] else "Exists",
                    value=matched["value"],
                    effect=matched["effect"],
                    seconds=None if seconds is None else int(seconds),
                )
            )
    return tuple(found)


def _with_scalers(known: WorkloadFacts, scalers: Iterable[RecordedRow]) -> WorkloadFacts:
    rows = list(scalers)
    most = [row["max_replicas"] for row in rows]
    return replace(
        known,
        ceiling=max((round(count) for count in most if _is_count(count)), default=None),
        scalers=tuple(sorted(f"{row['kind']}/{row['name']}" for row in rows)),
    )


def _is_count(cell: object) -> TypeGuard[float]:
    return isinstance(cell, float)


def _with_server(known: WorkloadFacts, row: RecordedRow | None) -> WorkloadFacts:
    """Return a service with the server that its requests were read from, how often that was scraped, and by which job."""
    if row is None or known.service is None or str(row["server"]) not in SERVERS:
        return known
    scrape_s, job = row["scrape_interval_s"], row["scrape_job"]
    signals = SERVERS[str(row["server"])]
    if isinstance(job, str):
        # rules that add up over pods would count each request once for every job
        signals = replace(signals, only=(*signals.only, f"job={json.dumps(job)}"))
    service = replace(
        known.service,
        signals=signals,
        server_is_known=True,
        scrape_interval_s=max(1, round(scrape_s)) if _is_count(scrape_s) else None,
    )
    return replace(known, service=service)


_BARE_METAL = ".metal"
"""The size of AWS's machines without a hypervisor: they start later than the cold start that was replayed."""


def spot_types(pool: Pool, market: Market) -> tuple[SpotType, ...]:
    """Return the types that a pool of spot nodes may start, its own first, then by price; none where there is no other.

    A pool of one type waits, or goes on demand, whenever spot has none of that type; one of several types finds more. They
    change neither what was proved nor what it may cost at worst:

    - A type has the same GPUs, as many per node, joined the same way, so that pods are as fast there and nodes as many. More
      of them per node would not do: Karpenter fills a node that it is about to start while one of the types still has room
      for the next pod, and so starts the big ones by itself (kubernetes-sigs/karpenter v1.9.1, scheduling/nodeclaim.go,
      `CanAdd`).
    - It has at least as much CPU and memory, so that whatever fits on the planned type fits there.
    - On spot it costs no less than the planned type, which is therefore the one that is billed, and no more than the planned
      type on demand: with any of them the work costs no more than without spot. Karpenter limits launches to that bound at
      the prices of the moment (aws/karpenter-provider-aws, pkg/providers/instance/filter/filter.go, `SpotInstanceFilter`).

    Which one is started is the provider's choice. EC2 weighs spare capacity against the price ("price-capacity-optimized",
    Amazon EC2 user guide, "Allocation strategies for Spot Instances"), so it may start a more expensive one although the
    cheapest has some left.
    """
    if pool.capacity_type is not CapacityType.SPOT:
        return ()
    offered = market.offerings(pool.provider, pool.region)
    planned = next((offering for offering in offered if offering.pool == pool.nodes), None)
    if planned is None or planned.spot is None:
        return ()
    own = _priced_type(planned, market)
    bounds = range(own.rate_micro_usd_hr, own.on_demand_micro_usd_hr + 1)
    others = [known for known in _alike_types(planned, offered, market) if known.rate_micro_usd_hr in bounds]
    others.sort(key=lambda known: (known.rate_micro_usd_hr, known.instance_type))
    return (own, *others) if others else ()


def _priced_type(offering: Offering, market: Market) -> SpotType:
    return SpotType(
        instance_type=offering.pool.instance_type,
        rate_micro_usd_hr=market.rate(offering.pool.held_as(CapacityType.SPOT)),
        on_demand_micro_usd_hr=market.rate(offering.pool),
    )


def _alike_types(planned: Offering, offered: tuple[Offering, ...], market: Market) -> Iterator[SpotType]:
    """Yield the types on spot whose nodes do for whatever runs on the planned one."""
    held = [offering.pool.held_as(CapacityType.SPOT) for offering in offered]
    quotas = quota_of_pools(quotas_of(market.limits.quotas), held)
    for offering, spot in zip(offered, held, strict=True):
        if offering.spot is not None and quotas.get(spot) != 0 and _does_for(offering, planned, market):
            yield _priced_type(offering, market)


def _does_for(other: Offering, planned: Offering, market: Market) -> bool:
    """Return whether a node does for another one's pods, as fast; unknown sizes do for nothing."""
    there, here = (
        market.catalog.instance_type(offering.pool.provider, offering.pool.instance_type)
        for offering in (other, planned)
    )
    if there.name == here.name or there.name.endswith(_BARE_METAL):
        return False
    if None in (there.vcpus, here.vcpus, there.memory_gib, here.memory_gib):
        return False
    return (
        (there.gpu, there.gpu_count, there.cpu_arch) == (here.gpu, here.gpu_count, here.cpu_arch)
        and (there.gpu_count == 1 or there.interconnect == here.interconnect)
        and (there.vcpus or 0) >= (here.vcpus or 0)
        and (there.memory_gib or 0.0) >= (here.memory_gib or 0.0)
    )
