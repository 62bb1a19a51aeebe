"""What alerts and boards need to know: the one table of thresholds, and the cluster as its bundle tells."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trimtab.catalog import Catalog
from trimtab.catalog.gpus import Gpu
from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.emit.manifests.facts import KUBE_PROMETHEUS_STACK
from trimtab.emit.verify_document import VerifiedPart
from trimtab.errors import BundleError, MissingPrice, UnknownName
from trimtab.fleet.market import Market
from trimtab.inputs.files import read_text
from trimtab.sources.kubernetes.owners import RUN_KINDS
from trimtab.tables.bundle import Bundle
from trimtab.tables.workloads import WorkloadKind, local_name
from trimtab.tables.yaml_faults import load_mapping, validation_faults
from trimtab.units import usd

Frac = Annotated[float, Field(gt=0, le=1)]
Minutes = Annotated[int, Field(ge=1, le=7 * 24 * 60)]


class Thresholds(BaseModel):
    """Limits of the alerts, and how long each must be passed."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    underused_frac: Frac = 0.40
    """Mean activity of a workload's GPUs below which they are more or larger than it needs."""
    underused_min: Minutes = 30
    """Minutes over which the mean is taken."""
    saturated_frac: Frac = 0.95
    """Activity of a service's busiest GPU above which requests queue; training is meant to be there."""
    saturated_min: Minutes = 60
    """Minutes for which it lasts."""
    memory_frac: Frac = 0.85
    """Memory in use above which the next batch may not fit; servers that take it at their start are judged by their cache."""
    kv_cache_frac: Frac = 0.95
    """Part of a model server's cache in use above which it preempts requests."""
    memory_min: Minutes = 30
    """Minutes for which it lasts."""
    hot_c: Annotated[float, Field(gt=0, le=120)] = 83.0
    """Temperature in degrees Celsius at which boards begin to slow down."""
    hot_min: Minutes = 10
    """Minutes for which it lasts."""
    throttled_frac: Frac = 0.10
    """Part of the time in which heat or the power supply holds clocks down."""
    throttled_min: Minutes = 10
    """Minutes over which the part is taken."""
    power_frac: Frac = 0.90
    """Power over the limit that the driver enforces (else the board's own)."""
    power_min: Minutes = 30
    """Minutes for which it lasts."""
    occupancy_frac: Frac = 0.50
    """SM occupancy in training below which kernels are too small for the GPU."""
    occupancy_min: Minutes = 30
    """Minutes over which the mean is taken."""
    idle_frac: Frac = 0.02
    """Activity below which a GPU does nothing."""
    idle_min: Minutes = 60
    """Minutes for which a GPU has done nothing, held or not."""
    interruptions: Annotated[int, Field(ge=1)] = 3
    """Spot interruptions within an hour that are more than bad luck."""
    commitment_used_frac: Frac = 0.90
    """Part of the nodes that are paid for in any case which runs."""
    commitment_min: Minutes = 60
    """Minutes for which less runs."""
    spend_jump_frac: Frac = 0.12
    """Rise of a day's spend over what the week before and the same weekday of former weeks let one expect."""
    spend_jump_usd_day: Annotated[float, Field(ge=0)] = 20.0
    """Rises of fewer dollars a day are not worth a message."""
    absent_min: Minutes = 15
    """Minutes without readings of a node that has GPUs."""
    runbooks: str = "docs/how-to/watch-a-cluster.md"
    """The page that alerts link to, with a part for each: where you serve it."""
    page: str = ""
    """The address of `trimtab serve`, to which boards link; empty where it has none."""


def read_thresholds(path: Path) -> Thresholds:
    """Read a YAML file of thresholds; raises BundleError with every fault and near matches of misspelt keys."""
    where = str(path)
    raw = load_mapping(read_text(path), where)
    try:
        return Thresholds.model_validate(raw)
    except ValidationError as error:
        raise BundleError(validation_faults(error, Thresholds, where)) from error


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
        if not gpu.has_speed_law:
            continue  # no series of theirs says their power
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
    return {(name.partition("/")[0], local_name(name.partition("/")[2])) for name in named if "/" in name}


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
