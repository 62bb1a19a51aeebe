"""What a bundle tells of the cluster itself: node groups and who holds their nodes, what pods tolerate and select, autoscalers.

Rows are those of the tables `nodes`, `allocations`, `pods` and `scalers`; a bundle without them leaves the facts as they are.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeGuard

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.emit.manifests.facts import EmitFacts, NodeFacts, Toleration, WorkloadFacts
from trimtab.emit.manifests.give_back import GROUP_LABELS
from trimtab.emit.manifests.signals import SERVERS

Row = Mapping[str, object]
HELD_WITHIN = timedelta(days=7)
"""Who held a GPU of a node in the last week is taken to hold it still: runs of a weekly job come back."""
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
) -> EmitFacts:
    """Return facts with what the rows of a bundle that ends at `end` tell of nodes, pods, autoscalers and model servers."""
    servers = {str(row["workload"]): row for row in served if row["server"]}
    by_workload: dict[str, list[Row]] = defaultdict(list)
    for pod in pods:
        by_workload[str(pod["workload"])].append(pod)
    standing: dict[str, list[Row]] = defaultdict(list)
    for scaler in scalers:
        standing[str(scaler["target"])].append(scaler)
    return replace(
        facts,
        nodes=node_facts(nodes, held, end),
        workloads=tuple(
            _with_server(
                _with_scalers(_with_pods(one, by_workload.get(one.name, ())), standing.get(one.name, ())),
                servers.get(one.name),
            )
            for one in facts.workloads
        ),
    )


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
        affinity_keys=tuple(key for key in affinity.split(",") if key),
        pod_labels=known.pod_labels or _labels(newest["selector"]),
        pods_were_read=True,
    )


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
