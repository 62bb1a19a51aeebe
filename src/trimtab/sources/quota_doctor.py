"""Whether the clouds' quotas leave room for what a fleet may scale up to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from trimtab.catalog.pools import Pool
from trimtab.sources.clouds.quotas import NodeQuota
from trimtab.sources.prometheus.doctor import Finding, Status
from trimtab.tables.bundle import Bundle


class _Node(NamedTuple):
    node: str
    pool: Pool
    gpu_count: int
    start: datetime
    end: datetime


def quota_findings(bundle: Bundle, quotas: Sequence[NodeQuota]) -> list[Finding]:
    """Judge each pool of a bundle against its tightest quota; one finding where all leave room."""
    peaks = _peaks(bundle)
    scaled = _scale_up_nodes(bundle)
    found = [finding for pool in sorted(peaks) for finding in _judged(pool, peaks[pool], scaled, quotas)]
    known = sum(_tightest(pool, quotas) is not None for pool in peaks)
    if not found:
        detail = f"{known} of {len(peaks)} kind(s) of nodes have one, and it leaves room"
        found = [Finding(what="quota", status=Status.OK, detail=detail)]
    return found


def _judged(pool: Pool, peak: int, scaled: Mapping[Pool, int], quotas: Sequence[NodeQuota]) -> Iterator[Finding]:
    """Yield what is amiss with one pool's quota."""
    quota = _tightest(pool, quotas)
    needed = peak + scaled.get(pool, 0)
    if quota is None or quota.nodes >= needed:
        return
    why = f"{peak} at once so far" + (f", {needed} when every scaler is at its maximum" if needed > peak else "")
    yield Finding(
        what="quota",
        status=Status.MISSING if quota.nodes < peak else Status.WEAK,
        detail=f"{pool}: {quota.nodes} node(s) by {quota.quota} ({quota.limit:g} {quota.unit}); {why}",
        cost="scaling up stops at the quota: pods wait, whatever the plan says",
        fix=quota.more(needed),
    )


def _tightest(pool: Pool, quotas: Sequence[NodeQuota]) -> NodeQuota | None:
    matching = [
        one
        for one in quotas
        if (one.provider, one.instance_type, one.region, one.capacity_type)
        == (pool.provider, pool.instance_type, pool.region, pool.capacity_type)
    ]
    return min(matching, key=lambda one: one.nodes, default=None)


def _peaks(bundle: Bundle) -> dict[Pool, int]:
    """Return the most nodes of each pool that were there at once."""
    turns: dict[Pool, list[tuple[datetime, int]]] = {}
    for one in _gpu_nodes(bundle):
        turns.setdefault(one.pool, []).extend([(one.start, 1), (one.end, -1)])
    return {pool: _highest(moments) for pool, moments in turns.items()}


def _highest(moments: list[tuple[datetime, int]]) -> int:
    """Return the highest running sum; at one moment, what ends goes before what begins."""
    now = most = 0
    for _, change in sorted(moments):
        now += change
        most = max(most, now)
    return most


def _gpu_nodes(bundle: Bundle) -> Iterator[_Node]:
    columns = ["node", "provider", "instance_type", "region", "capacity_type", "gpu_count", "start", "end"]
    for row in bundle.table("nodes", columns).to_pylist():
        if row["gpu_count"]:
            pool = Pool(row["provider"], row["instance_type"], row["region"], row["capacity_type"])
            yield _Node(row["node"], pool, row["gpu_count"], row["start"], row["end"] or bundle.end)


def _scale_up_nodes(bundle: Bundle) -> dict[Pool, int]:
    """Return the further nodes that scalers would ask for at their maxima, in the pool where each workload runs now."""
    columns = ["workload", "pod", "node", "gpus"]
    held: dict[str, dict[str, tuple[str, float]]] = {}
    for row in bundle.table("allocations", columns).to_pylist():
        pods = held.setdefault(row["workload"], {})
        pods[row["pod"]] = (row["node"], pods.get(row["pod"], ("", 0.0))[1] + row["gpus"])
    nodes = {one.node: one for one in _gpu_nodes(bundle)}
    further: dict[Pool, float] = {}
    for scaler in bundle.table("scalers", ["target", "max_replicas", "current_replicas"]).to_pylist():
        pods = held.get(scaler["target"] or "", {})
        place = next((nodes[node] for node, _ in pods.values() if node in nodes), None)
        if place is None or scaler["max_replicas"] is None:
            continue
        gpus = max(count for _, count in pods.values())
        more = max(0.0, scaler["max_replicas"] - (scaler["current_replicas"] or 0.0)) * gpus
        further[place.pool] = further.get(place.pool, 0.0) + more / place.gpu_count
    return {pool: math.ceil(count) for pool, count in further.items()}
