"""What a bundle tells of the cluster itself: node groups and who holds their nodes, what pods tolerate and select, autoscalers.

Rows are those of the tables `nodes`, `allocations`, `pods` and `scalers`; a bundle without them leaves the facts as they are.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeGuard

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.emit.manifests.facts import (
    EmitFacts,
    GpuClaim,
    GpuContainer,
    NodeFacts,
    NodeMaker,
    Toleration,
    WorkloadFacts,
)
from trimtab.emit.manifests.give_back import GROUP_LABELS
from trimtab.emit.manifests.signals import SERVERS
from trimtab.errors import InputError

Row = Mapping[str, object]
HELD_WITHIN = timedelta(days=7)
"""Who held a GPU of a node in the last week is taken to hold it still: runs of a weekly job come back."""
_NAMESPACE_LABELS = {"pod": "namespace", "exported_pod": "exported_namespace", "pod_name": "pod_namespace"}
_TOLERATED = re.compile(r"(?P<value>[^:]*):(?P<effect>[A-Za-z]*)(?: for (?P<seconds>-?\d+) s)?")


def with_cluster(
    facts: EmitFacts,
    end: datetime,
    *,
    nodes: Iterable[Row],
    held: Iterable[Row],
    pods: Iterable[Row],
    scalers: Iterable[Row],
    served: Iterable[Row] = (),
    devices: Iterable[Row] = (),
) -> EmitFacts:
    """Return facts with what the rows of a bundle that ends at `end` tell of its cluster."""
    servers = {str(row["workload"]): row for row in served if row["server"]}
    by_workload: dict[str, list[Row]] = defaultdict(list)
    for pod in pods:
        by_workload[str(pod["workload"])].append(pod)
    has_pools, nodes, held = False, list(nodes), list(held)
    teams = {str(row["workload"]): str(row["team"]) for row in held if row.get("team")}
    standing: dict[str, list[Row]] = defaultdict(list)
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


def _node_maker(nodes: Iterable[Row]) -> NodeMaker | None:
    """Return what makes nodes, by their labels: Karpenter where any is Karpenter's; None where none says."""
    keys = {key for row in nodes for key in _labels(row["labels"])}
    if any(key.startswith("karpenter.sh/") for key in keys):
        return NodeMaker.KARPENTER
    return NodeMaker.NODE_GROUPS if keys.intersection(GROUP_LABELS) else None


def _pod_label(devices: Iterable[Row]) -> str | None:
    """Return the label that carries the pod on the series of most GPUs; None where no pod held any."""
    seen = Counter(str(row["pod_label"]) for row in devices if row["pod_label"])
    return max(sorted(seen), key=lambda label: seen[label], default=None)


def node_facts(nodes: Iterable[Row], held: Iterable[Row], end: datetime) -> tuple[NodeFacts, ...]:
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
            group=_group(_labels(row["labels"])),
            held_by=tuple(sorted(of_late[str(row["node"])])),
            held_before=tuple(sorted(ever[str(row["node"])])),
        )
        for row in sorted(nodes, key=lambda row: str(row["node"]))
        if row["gpu_count"] and (row["end"] is None or (isinstance(row["end"], datetime) and row["end"] >= end))
    )


def _labels(cell: object) -> dict[str, str]:
    """Return a cell of labels, which Arrow gives as pairs."""
    pairs = cell.items() if isinstance(cell, Mapping) else cell if isinstance(cell, list) else ()
    return {str(key): str(value) for key, value in pairs}


def _group(labels: Mapping[str, str]) -> tuple[str, str] | None:
    return next(((key, labels[key]) for key in GROUP_LABELS if labels.get(key)), None)


def _with_pods(known: WorkloadFacts, pods: Iterable[Row]) -> WorkloadFacts:
    """Return a workload with what its pods tolerate and ask of nodes: those of the newest template."""
    newest = max(pods, key=lambda pod: (_moment(pod["created"]), str(pod["pod"])), default=None)
    if newest is None:
        return known
    affinity = str(newest["affinity"] or "")
    return replace(
        known,
        tolerations=tolerations(_labels(newest["tolerations"])),
        node_selector=_labels(newest["node_selector"]),
        gpu_containers=_gpu_containers(str(newest["gpu_containers"] or "")),
        gpu_claims=_gpu_claims(str(newest.get("gpu_claims") or "[]")),
        affinity_keys=tuple(key for key in affinity.split(",") if key),
        pod_labels=known.pod_labels or _labels(newest["selector"]),
        pods_were_read=True,
    )


def _gpu_containers(cell: str) -> tuple[GpuContainer, ...]:
    """Return the containers of a cell of `pods` that ask for GPUs: `0:limits,2:limits+requests`."""
    parts = [text.partition(":") for text in cell.split(",") if text]
    if not all(place.isdecimal() for place, _, _ in parts):
        raise _unreadable("gpu_containers", cell)
    return tuple(GpuContainer(place=int(place), in_requests="requests" in fields) for place, _, fields in parts)


def _gpu_claims(cell: str) -> tuple[GpuClaim, ...]:
    """Return the claims of a cell of `pods`, a JSON list; raises InputError where it is none."""
    try:
        return tuple(
            GpuClaim(
                place=int(said["place"]),
                name=str(said["name"]),
                template=str(said.get("template", "")),
                claim=str(said.get("claim", "")),
                api_version=str(said["api_version"]),
                requests=tuple(map(str, said.get("requests", ()))),
                spec=json.dumps(said["spec"], sort_keys=True) if "spec" in said else "",
            )
            for said in json.loads(cell)
        )
    except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise _unreadable("gpu_claims", cell) from error


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


def _with_scalers(known: WorkloadFacts, scalers: Iterable[Row]) -> WorkloadFacts:
    rows = list(scalers)
    most = [row["max_replicas"] for row in rows]
    return replace(
        known,
        ceiling=max((round(count) for count in most if _is_count(count)), default=None),
        scalers=tuple(sorted(f"{row['kind']}/{row['name']}" for row in rows)),
    )


def _is_count(cell: object) -> TypeGuard[float]:
    return isinstance(cell, float)


def _with_server(known: WorkloadFacts, row: Row | None) -> WorkloadFacts:
    """Return a service with the server that its requests were read from, and how often that was scraped."""
    if row is None or known.service is None or str(row["server"]) not in SERVERS:
        return known
    scrape_s = row["scrape_interval_s"]
    service = replace(
        known.service,
        signals=SERVERS[str(row["server"])],
        server_is_known=True,
        scrape_interval_s=max(1, round(scrape_s)) if _is_count(scrape_s) else None,
    )
    return replace(known, service=service)
