"""What a fleet bundle covers, what it lacks for a good answer, whether quotas leave room: `trimtab doctor BUNDLE`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc

from trimtab.catalog import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.catalog.providers import last_part, nodes_by_resource
from trimtab.fleet.build import bundle_window
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Assumptions
from trimtab.fleet.spot_record import EVENT_COLUMNS, spot_records
from trimtab.fleet.starts import FEWEST, starts_of
from trimtab.sources.clouds import NodeQuota
from trimtab.sources.kubernetes.nodes import UNKNOWN
from trimtab.sources.prometheus.doctor import DoctorFinding, FindingStatus, activity, bill, history, price_book
from trimtab.tables.bundle import Bundle
from trimtab.units import HR_PER_DAY, hours_between


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleCoverage:
    """How much of the window and of the fleet was watched."""

    days: float
    """Days of the window, and in them the days' worth of hours in which at least one GPU was watched."""
    days_seen: float
    gpus: int
    """GPUs of the nodes, and how many of them have readings."""
    gpus_seen: int

    def __str__(self) -> str:
        share = f"{100 * self.gpus_seen / self.gpus:.0f} % of {self.gpus} GPUs" if self.gpus else "no GPUs"
        return f"{self.days_seen:.1f} of {self.days:.4g} days, {share}"


def bundle_coverage(bundle: Bundle) -> BundleCoverage:
    """Measure a bundle's coverage; an hour counts by the fullest device in it."""
    usage = bundle.table("gpu_usage", ["device", "hour", "samples", "samples_expected"])
    hours = usage["hour"].to_numpy()
    expected = np.maximum(usage["samples_expected"].to_numpy(), 1)
    full = np.minimum(usage["samples"].to_numpy() / expected, 1.0)
    _, slot = np.unique(hours, return_inverse=True)
    fullest = np.zeros(int(slot.max(initial=-1)) + 1)
    np.maximum.at(fullest, slot, full)
    nodes = bundle.table("nodes", ["node", "gpu_count"]).group_by("node").aggregate([("gpu_count", "max")])
    devices = bundle.table("devices", ["device", "mig_profile"])
    board = {row["device"]: _board(row["device"], row["mig_profile"]) for row in devices.to_pylist()}
    boards = set(board.values())
    watched = {board.get(device, device) for device in pc.unique(usage["device"]).to_pylist()}
    return BundleCoverage(
        days=hours_between(bundle.start, bundle.end) / HR_PER_DAY,
        days_seen=float(fullest.sum()) / HR_PER_DAY,
        gpus=max(int(pc.sum(nodes["gpu_count_max"]).as_py() or 0), len(boards)),
        gpus_seen=len(watched),
    )


def _board(device: str, mig_profile: str | None) -> str:
    """Return the board of a device: a MIG instance is named after its board, `UUID/3`; a board may have a slash of its own."""
    return device if mig_profile is None else device.rpartition("/")[0]


LEAST_DAYS = 2
"""Days of history below which `audit` refuses: one to plan on, one to prove on."""
_READINGS = ("sm_active", "tensor_active", "dram_active")
_COLLECT = "trimtab collect -p URL --context NAME"
_ENOUGH_RECORD = 0.5
"""Weight of a record from which on it decides more than the stated odds do."""
_SPOT_FIX = (
    "run a small job on spot and on-demand (one NodePool with both), then collect; or write probes to spot_events"
)


def bundle_findings(bundle: Bundle, market: Market) -> list[DoctorFinding]:
    """Judge a bundle; `market` knows the rates that `audit` would use."""
    seen = _readings(bundle)
    found = [_gpu_metrics(bundle), *(activity(seen) if seen else ()), _days(bundle), *_nodes(bundle, market)]
    found += [_teams(bundle), _demand(bundle), _waits(bundle), _start_times(bundle), _spot(bundle)]
    found.append(bill(bundle.table("costs").num_rows))
    return [*found, price_book(market.catalog.prices, market.at or bundle.end.date()), _left_out(bundle.meta.counts)]


def refuses(found: list[DoctorFinding]) -> bool:
    """Return whether `audit` would refuse this bundle."""
    return any(finding.status is FindingStatus.MISSING and finding.what in ("history", "prices") for finding in found)


def _readings(bundle: Bundle) -> frozenset[str]:
    usage = bundle.table("gpu_usage", [f"{name}_mean" for name in (*_READINGS, "gpu_util")])
    return frozenset(name for name in (*_READINGS, "gpu_util") if usage[f"{name}_mean"].null_count < usage.num_rows)


def _gpu_metrics(bundle: Bundle) -> DoctorFinding:
    coverage = bundle_coverage(bundle)
    if coverage.gpus_seen:
        status = FindingStatus.OK if coverage.gpus_seen >= coverage.gpus else FindingStatus.WEAK
        cost = "" if status is FindingStatus.OK else "workloads on the other GPUs are priced, not judged"
        fix = "" if status is FindingStatus.OK else "scrape dcgm-exporter on every GPU node"
        return DoctorFinding(what="GPU metrics", status=status, detail=str(coverage), cost=cost, fix=fix)
    return DoctorFinding(
        what="GPU metrics",
        status=FindingStatus.MISSING,
        detail=f"none for {coverage.gpus} GPUs",
        cost="who held what is priced, but no workload is judged: how busy it was is not known",
        fix=f"{_COLLECT}   (a Prometheus that scrapes dcgm-exporter)",
    )


def _days(bundle: Bundle) -> DoctorFinding:
    days = hours_between(bundle.start, bundle.end) / HR_PER_DAY
    if days >= LEAST_DAYS:
        found = history(int(days))
        return (
            found if found.status is FindingStatus.OK else replace(found, fix="collect a longer window, as --from 30d")
        )
    return DoctorFinding(
        what="history",
        status=FindingStatus.MISSING,
        detail=f"{days:.2g} days",
        cost=f"below {LEAST_DAYS} whole days audit refuses: one is planned on, one is proved on",
        fix="collect a longer window (--from 14d), or repeat a short trace: --repeat 14",
    )


def _nodes(bundle: Bundle, market: Market) -> Iterator[DoctorFinding]:
    columns = ["provider", "instance_type", "region", "capacity_type", "gpu", "gpu_count"]
    rows = bundle.table("nodes", columns).to_pylist()
    rows = [row for row in rows if row["gpu_count"] > 0]
    typed = sum(row["instance_type"] != UNKNOWN for row in rows)
    detail = f"{typed} of {len(rows)} node lives"
    if typed < len(rows):
        yield DoctorFinding(
            what="instance types",
            status=FindingStatus.MISSING,
            detail=detail,
            cost="the other nodes have no price",
            fix=f"{_COLLECT}   (reads them from the cluster), or --focus bills/",
        )
    else:
        yield DoctorFinding(what="instance types", status=FindingStatus.OK, detail=detail)
    pools = {Pool(row["provider"], row["instance_type"], row["region"], row["capacity_type"]) for row in rows}
    unknown = market.unknown_gpus(row["gpu"] for row in rows)
    if unknown:
        yield DoctorFinding(
            what="GPU models",
            status=FindingStatus.WEAK,
            detail=f"not in the catalog: {', '.join(sorted(unknown))}",
            cost="their nodes are billed and left as they are; what runs on them is not judged",
            fix="correct `gpu` in nodes.parquet where `trimtab prices --gpus` lists the board under another name",
        )
    missing = market.unpriced(sorted(pools))
    yield _prices(missing, len(pools), some=len(missing) < len(pools) or _bill_names_nodes(bundle))


def _bill_names_nodes(bundle: Bundle) -> bool:
    known = nodes_by_resource(bundle.table("nodes", ["node", "labels"]))
    return any(
        last_part(resource or "") in known
        for resource in bundle.table("costs", ["ResourceId"])["ResourceId"].to_pylist()
    )


def _prices(missing: Mapping[Pool, str], pools: int, *, some: bool) -> DoctorFinding:
    """Judge what nodes cost; `some` of them are known to have a price, on a list or on a bill."""
    if not missing:
        return DoctorFinding(what="prices", status=FindingStatus.OK, detail=f"{pools} kind(s) of nodes have a rate")
    pool = next(iter(missing))
    fix = "give your own rates: --prices rates.yaml (trimtab prices --help)"
    if pool.capacity_type is CapacityType.OWNED:
        fix = (
            f"--prices owned.yaml with `owned: [{{instance_type: {pool.instance_type}, gpu: ..., gpu_count: ..., "
            "capital_usd: ..., years: ..., power_w: ..., pue: ..., electricity_usd_kwh: ...}]`"
        )
    elif "first known row" in missing[pool]:
        fix = "price the history at a date that the list knows: --at DATE"
    return DoctorFinding(
        what="prices",
        status=FindingStatus.WEAK if some else FindingStatus.MISSING,
        detail=f"{len(missing)} of {pools} kind(s) of nodes have none ({pool}: {missing[pool]})",
        cost="their nodes are carried at what the bill says, else at $0, unjudged: a price is never guessed",
        fix=fix,
    )


def _teams(bundle: Bundle) -> DoctorFinding:
    teams = bundle.table("allocations", ["team"])["team"]
    known = len(teams) - teams.null_count
    if known or not len(teams):
        return DoctorFinding(
            what="teams", status=FindingStatus.OK, detail=f"{known} of {len(teams)} holdings name a team"
        )
    return DoctorFinding(
        what="teams",
        status=FindingStatus.WEAK,
        detail="no holding names a team",
        cost="spend by team is 'unassigned'",
        fix="label pods or namespaces with team, or name teams in workloads.yaml",
    )


def _demand(bundle: Bundle) -> DoctorFinding:
    services = len(pc.unique(bundle.table("demand", ["workload"])["workload"]))
    if services:
        return DoctorFinding(what="request metrics", status=FindingStatus.OK, detail=f"{services} service(s)")
    return DoctorFinding(
        what="request metrics",
        status=FindingStatus.WEAK,
        detail="none",
        cost="services are judged by GPU activity alone: latency targets cannot be checked",
        fix=f"scrape the servers' /metrics, then {_COLLECT}",
    )


def _waits(bundle: Bundle) -> DoctorFinding:
    runs = bundle.table("jobs", ["submit", "start"])
    started = runs.filter(pc.is_valid(runs["start"]))
    waited = int(pc.sum(pc.greater(started["start"], started["submit"])).as_py() or 0)
    if waited or not runs.num_rows:
        detail = f"{runs.num_rows} runs, {waited} with a known wait" if runs.num_rows else "no runs"
        return DoctorFinding(what="runs and waits", status=FindingStatus.OK, detail=detail)
    return DoctorFinding(
        what="runs and waits",
        status=FindingStatus.WEAK,
        detail=f"{runs.num_rows} runs, none with a wait",
        cost="whether fewer nodes would make runs wait longer than now cannot be compared",
        fix="collect from the queue that knows: --context NAME (Jobs, Kueue, Volcano) or --slurm FILE",
    )


def _start_times(bundle: Bundle) -> DoctorFinding:
    """Judge what the history says about start-ups: the wait for a node, and pods' starts on theirs."""
    starts = starts_of(bundle)
    node_s, usual = starts.planned_node_s, Assumptions()
    own = {name: took_s for name in starts.own if (took_s := starts.planned_s(name)) is not None}
    pulls = sum(len(starts.pulls_s(name)) for name in starts.own)
    if node_s is not None or own:
        node = f"a node {node_s:.0f} s of {len(starts.node_s)} starts" if node_s is not None else "no node's start"
        detail = f"{node}; starts of {len(own)} workload(s) on theirs, {pulls} with pulls of images"
        return DoctorFinding(what="start-up times", status=FindingStatus.OK, detail=detail)
    return DoctorFinding(
        what="start-up times",
        status=FindingStatus.WEAK,
        detail=f"{len(starts.node_s)} start(s) of nodes, fewer than {FEWEST} of any workload",
        cost=f"starts are assumed: a node {usual.node_startup_s:.0f} s, a replica {usual.service_cold_start_s:.0f} s on it",
        fix="collect with --context or --kube-dump (pods and events) while nodes come and go",
    )


def _spot(bundle: Bundle) -> DoctorFinding:
    """Judge what the history says about spot: the pool with the longest record."""
    window = bundle_window(bundle)
    records = spot_records(bundle.table("spot_events", EVENT_COLUMNS), bundle.table("nodes"), window)
    if records:
        pool, record = max(records.items(), key=lambda item: item[1].weight_frac)
        enough = record.weight_frac >= _ENOUGH_RECORD
        return DoctorFinding(
            what="spot record",
            status=FindingStatus.OK if enough else FindingStatus.WEAK,
            detail=f"{len(records)} pool(s); {pool.instance_type} in {pool.region}: {record.describe()}",
            cost="" if enough else "stated odds decide whether runs go to spot",
            fix="" if enough else _SPOT_FIX,
        )
    return DoctorFinding(
        what="spot record",
        status=FindingStatus.WEAK,
        detail="no spot events",
        cost="stated odds decide whether runs go to spot: no capacity half of the time",
        fix=_SPOT_FIX,
    )


def _left_out(counts: Mapping[str, int]) -> DoctorFinding:
    if not counts:
        return DoctorFinding(what="left out", status=FindingStatus.OK, detail="nothing")
    reason = max(counts, key=lambda name: counts[name])
    detail = (
        f"{sum(counts.values()):,} readings or lines for {len(counts)} reason(s); most: {counts[reason]:,} x {reason}"
    )
    return DoctorFinding(what="left out", status=FindingStatus.OK, detail=detail)


class _GpuNode(NamedTuple):
    node: str
    pool: Pool
    gpu_count: int
    start: datetime
    end: datetime


def quota_findings(bundle: Bundle, quotas: Sequence[NodeQuota]) -> list[DoctorFinding]:
    """Judge each pool of a bundle against its tightest quota; one finding where all leave room."""
    peaks = _peaks(bundle)
    scaled = _scale_up_nodes(bundle)
    found = [finding for pool in sorted(peaks) for finding in _judged(pool, peaks[pool], scaled, quotas)]
    known = sum(_tightest(pool, quotas) is not None for pool in peaks)
    if not found:
        detail = f"{known} of {len(peaks)} kind(s) of nodes have one, and it leaves room"
        found = [DoctorFinding(what="quota", status=FindingStatus.OK, detail=detail)]
    return found


def _judged(pool: Pool, peak: int, scaled: Mapping[Pool, int], quotas: Sequence[NodeQuota]) -> Iterator[DoctorFinding]:
    """Yield what is amiss with one pool's quota."""
    quota = _tightest(pool, quotas)
    needed = peak + scaled.get(pool, 0)
    if quota is None or quota.nodes >= needed:
        return
    why = f"{peak} at once so far" + (f", {needed} when every scaler is at its maximum" if needed > peak else "")
    yield DoctorFinding(
        what="quota",
        status=FindingStatus.MISSING if quota.nodes < peak else FindingStatus.WEAK,
        detail=f"{pool}: {quota.nodes} node(s) by {quota.quota} ({quota.limit:g} {quota.unit}); {why}",
        cost="scaling up stops at the quota: pods wait, whatever the plan says",
        fix=quota.more(needed),
    )


def _tightest(pool: Pool, quotas: Sequence[NodeQuota]) -> NodeQuota | None:
    matching = [
        quota
        for quota in quotas
        if (quota.provider, quota.instance_type, quota.region, quota.capacity_type)
        == (pool.provider, pool.instance_type, pool.region, pool.capacity_type)
    ]
    return min(matching, key=lambda quota: quota.nodes, default=None)


def _peaks(bundle: Bundle) -> dict[Pool, int]:
    """Return the most nodes of each pool that were there at once."""
    turns: dict[Pool, list[tuple[datetime, int]]] = {}
    for node in _gpu_nodes(bundle):
        turns.setdefault(node.pool, []).extend([(node.start, 1), (node.end, -1)])
    return {pool: _highest(moments) for pool, moments in turns.items()}


def _highest(moments: list[tuple[datetime, int]]) -> int:
    """Return the highest running sum; at one moment, what ends goes before what begins."""
    now = most = 0
    for _, change in sorted(moments):
        now += change
        most = max(most, now)
    return most


def _gpu_nodes(bundle: Bundle) -> Iterator[_GpuNode]:
    columns = ["node", "provider", "instance_type", "region", "capacity_type", "gpu_count", "start", "end"]
    for row in bundle.table("nodes", columns).to_pylist():
        if row["gpu_count"]:
            pool = Pool(row["provider"], row["instance_type"], row["region"], row["capacity_type"])
            yield _GpuNode(row["node"], pool, row["gpu_count"], row["start"], row["end"] or bundle.end)


def _scale_up_nodes(bundle: Bundle) -> dict[Pool, int]:
    """Return the further nodes that scalers would ask for at their maxima, in the pool where each workload runs now."""
    columns = ["workload", "pod", "node", "gpus"]
    held: dict[str, dict[str, tuple[str, float]]] = {}
    for row in bundle.table("allocations", columns).to_pylist():
        pods = held.setdefault(row["workload"], {})
        pods[row["pod"]] = (row["node"], pods.get(row["pod"], ("", 0.0))[1] + row["gpus"])
    nodes = {gpu_node.node: gpu_node for gpu_node in _gpu_nodes(bundle)}
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
