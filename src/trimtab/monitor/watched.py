"""What alerts and boards need to know of a cluster, as its bundle tells: rates, boards, runs, nodes that are paid anyway."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from trimtab.catalog import Catalog
from trimtab.catalog.gpus import Gpu
from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.emit.manifests.facts import KUBE_PROMETHEUS_STACK
from trimtab.emit.verify_document import VerifiedPart
from trimtab.errors import MissingPrice, UnknownName
from trimtab.fleet.market import Market
from trimtab.sources.kubernetes.owners import RUN_KINDS
from trimtab.tables.bundle import Bundle
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import usd

_PAID = frozenset({CapacityType.RESERVED, CapacityType.CAPACITY_BLOCK})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRate:
    """What a GPU-hour costs on the nodes of a type, region and way of buying."""

    instance_type: str
    region: str
    capacity_type: CapacityType
    usd_gpu_hr: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A GPU model of the fleet: `models` are regular expressions of what exporters call it.

    `usd_gpu_hr` is what one costs on average over the fleet's nodes; None where none has a price.
    """

    name: str
    models: tuple[str, ...]
    power_limit_w: float
    usd_gpu_hr: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidNodes:
    """Nodes of a type that are paid for whether they run or not."""

    instance_type: str
    region: str
    nodes: int
    usd_node_hr: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """Everything that the monitoring takes of one cluster."""

    node_rates: tuple[NodeRate, ...] = ()
    boards: tuple[Board, ...] = ()
    runs: tuple[tuple[str, str], ...] = ()
    """(namespace, name) of workloads whose pods run to an end."""
    paid: tuple[PaidNodes, ...] = ()
    teams: Mapping[str, str] = field(default_factory=dict)
    """Namespace -> the team that most of its GPU-time is of."""
    has_spot: bool = False
    rule_labels: Mapping[str, str] = field(default_factory=lambda: dict(KUBE_PROMETHEUS_STACK))
    """Labels by which Prometheus selects rules."""
    verified: VerifiedPart | None = None
    """What a plan was found to have saved; None where nothing was verified."""


def watched_cluster(
    bundle: Bundle, market: Market, catalog: Catalog, *, rule_labels: Mapping[str, str] | None = None
) -> Watched:
    """Return what a bundle tells: nodes that were up when it ended, at the market's rates; unpriced ones have no rate."""
    nodes = [row for row in bundle.table("nodes").to_pylist() if row["gpu_count"]]
    standing = [row for row in nodes if row["end"] is None or row["end"] >= bundle.end]
    pools = {_pool(row): round(row["gpu_count"]) for row in nodes}
    rates = {pool: rate for pool in pools if (rate := _rate(pool, market)) is not None}
    return Watched(
        node_rates=tuple(
            NodeRate(
                instance_type=pool.instance_type,
                region=pool.region,
                capacity_type=pool.capacity_type,
                usd_gpu_hr=rates[pool] / pools[pool],
            )
            for pool in sorted(rates, key=_spot_first)
            if pool.capacity_type not in _PAID  # carry the labels of nodes on demand, and are counted as such
        ),
        boards=tuple(_boards(nodes, standing or nodes, rates, catalog)),
        runs=tuple(sorted(_runs(bundle))),
        paid=tuple(_paid(standing, rates)),
        teams=_teams(bundle),
        has_spot=any(pool.capacity_type is CapacityType.SPOT for pool in pools),
        rule_labels=dict(KUBE_PROMETHEUS_STACK if rule_labels is None else rule_labels),
    )


def _spot_first(pool: Pool) -> tuple[bool, Pool]:
    return pool.capacity_type is not CapacityType.SPOT, pool


def _pool(row: Mapping[str, object]) -> Pool:
    pool = Pool(str(row["provider"]), str(row["instance_type"]), str(row["region"]))
    return pool.held_as(CapacityType(row["capacity_type"]))


def _rate(pool: Pool, market: Market) -> float | None:
    """Return dollars a node-hour; None where no list has the node."""
    try:
        return float(usd(market.rate(pool)))
    except (MissingPrice, UnknownName):
        return None


def _boards(
    nodes: Iterable[Mapping[str, object]],
    standing: Iterable[Mapping[str, object]],
    rates: Mapping[Pool, float],
    catalog: Catalog,
) -> Iterable[Board]:
    paid: defaultdict[str, float] = defaultdict(float)
    gpus: defaultdict[str, float] = defaultdict(float)
    for row in standing:
        if row["gpu"] and (rate := rates.get(_pool(row))) is not None:
            paid[str(row["gpu"])] += rate
            gpus[str(row["gpu"])] += float(str(row["gpu_count"]))
    for name in sorted({str(row["gpu"]) for row in nodes if row["gpu"]}):
        try:
            gpu = catalog.gpu(name)
        except UnknownName:
            continue
        yield Board(
            name=gpu.name,
            models=_models(gpu),
            power_limit_w=gpu.tdp_w,
            usd_gpu_hr=paid[name] / gpus[name] if gpus[name] else None,
        )


def _models(gpu: Gpu) -> tuple[str, ...]:
    """Return what drivers call a board, with and without the maker's name, as regular expressions of RE2."""
    names = dict.fromkeys((gpu.nvidia_smi_name, gpu.nvidia_smi_name.removeprefix("NVIDIA "), gpu.name))
    return tuple(re.sub(r"([.+*?()\[\]{}|^$\\])", r"\\\\\1", name) for name in names if name)


def _runs(bundle: Bundle) -> set[tuple[str, str]]:
    held = bundle.table("allocations", ["workload", "owner_kind"]).to_pylist()
    named = {str(row["workload"]) for row in held if row["owner_kind"] in RUN_KINDS}
    kinds = {name: bundle.workloads.spec(name).kind for name in {str(row["workload"]) for row in held}}
    named |= {name for name, kind in kinds.items() if kind in (WorkloadKind.TRAINING, WorkloadKind.BATCH)}
    return {(name.partition("/")[0], name.partition("/")[2].partition("@")[0]) for name in named if "/" in name}


def _paid(standing: Iterable[Mapping[str, object]], rates: Mapping[Pool, float]) -> Iterable[PaidNodes]:
    counts = Counter(_pool(row) for row in standing)
    for pool in sorted(pool for pool in counts if pool.capacity_type in _PAID):
        yield PaidNodes(
            instance_type=pool.instance_type, region=pool.region, nodes=counts[pool], usd_node_hr=rates.get(pool)
        )


def _teams(bundle: Bundle) -> dict[str, str]:
    seen: dict[str, Counter[str]] = {}
    for row in bundle.table("allocations", ["namespace", "team"]).to_pylist():
        if row["namespace"] and row["team"]:
            seen.setdefault(str(row["namespace"]), Counter())[str(row["team"])] += 1
    return {namespace: max(sorted(teams), key=lambda team: teams[team]) for namespace, teams in sorted(seen.items())}
