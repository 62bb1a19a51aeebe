"""What stands beside the GPUs on a bill: traffic of their nodes, volumes that nothing mounts, GPUs that wait for data.

Each row is measured or left out: traffic by the bill's own lines, volumes at the bill's own price of a GiB-month, pulls and
loads by what the cluster reported. None of it is part of the bill of nodes, except for these two, which are paid with the node.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.catalog.providers import last_part
from trimtab.diagnose.billed import cost_within, use_in_dollars
from trimtab.diagnose.cluster_records import counted
from trimtab.fleet.model import Fleet
from trimtab.fleet.starts import MeasuredStarts
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import HR_PER_MO, S_PER_HR, hours_between, micro_usd

TAIL_COLUMNS = (
    "ChargePeriodStart", "ChargePeriodEnd", "EffectiveCost", "BilledCost", "BillingCurrency", "ChargeCategory",
    "CommitmentDiscountStatus", "ResourceId", "RegionId", "ServiceName", "SkuMeter", "ChargeDescription",
    "PricingQuantity", "PricingUnit",
)  # fmt: skip
VOLUME_COLUMNS = ("namespace", "name", "workload", "storage_class", "capacity_gib", "phase", "created")
_NAMED = 3


class TailKind(Enum):
    """What stands beside the GPUs."""

    NAT = "network address translation"
    CROSS_ZONE = "traffic between zones"
    INTER_REGION = "traffic between regions"
    EGRESS = "traffic to the internet"
    IDLE_VOLUMES = "volumes that no pod mounts"
    IMAGE_PULLS = "GPUs that wait for images"
    LOADS = "GPUs that load from volumes"


_ADVICE = {
    TailKind.NAT: "reach object storage and the registry by gateway or private endpoints, which need no NAT",
    TailKind.CROSS_ZONE: "keep callers, replicas and caches of weights in one zone (topology-aware routing)",
    TailKind.INTER_REGION: "copy weights and images once to the region of the GPUs, and read them there",
    TailKind.EGRESS: "serve callers from their own cloud, or through a private link or a content network",
    TailKind.IDLE_VOLUMES: "ask its owner (a service scaled to zero mounts nothing either), take a snapshot, delete the claim",
    TailKind.IMAGE_PULLS: "smaller images, pre-pulled or streamed ones",
    TailKind.LOADS: "weights on the node's disk, streamed, or in a faster storage class; compiled kernels kept",
}
_LINES: Mapping[TailKind, str] = {
    TailKind.NAT: r"nat ?gateway|cloud nat\b",
    TailKind.CROSS_ZONE: r"datatransfer-regional-bytes|regional data transfer|inter[- ]?(availability )?zone",
    TailKind.INTER_REGION: r"-aws-(in|out)-bytes|\) data transfer (to|from) |inter[- ]?(region|continent)",
    TailKind.EGRESS: r"datatransfer-out-bytes|data transfer out|outbound data transfer|internet (egress|data transfer)",
}
"""How bills name traffic, the first that matches: usage types and descriptions of AWS, SKUs of Google Cloud ("Network pricing")
and meters of Azure ("Bandwidth pricing"). Those of AWS and Azure are as the official sample of FOCUS 1.0 has them."""
_STORAGE = r"ebs:volumeusage|provisioned storage|storage pd capacity"
_GIB_MONTHS = r"^(gb|gib|gibibyte|gigabyte)[- .]?mo"


@dataclass(frozen=True, slots=True, kw_only=True)
class TailCost:
    """One kind of cost beside the GPUs over a window."""

    kind: TailKind
    subject: str
    """Nodes, a namespace or a workload."""
    micro_usd: int | None
    """Over the window; None where nothing says what it costs."""
    tied: bool
    """Whether the bill or the cluster ties it to GPU nodes; else it is that of everything in their regions."""
    evidence: str

    @property
    def advice(self) -> str:
        """Return what reduces it."""
        return _ADVICE[self.kind]


def long_tail(
    costs: pa.Table,
    volumes: pa.Table,
    pods: pa.Table,
    resources: Mapping[str, str],
    fleet: Fleet,
    starts: MeasuredStarts,
    usd_gpu_hr: Mapping[str, float],
) -> tuple[TailCost, ...]:
    """Return what stands beside a fleet's GPUs, the most expensive first; what has no price comes last.

    `costs` has TAIL_COLUMNS, `volumes` VOLUME_COLUMNS, `pods` their namespace: nothing is said of the volumes of a namespace
    none of whose pods was read. `resources` maps the last part of a resource id to the name of a node, `usd_gpu_hr` a
    workload to what an hour of one of its GPUs costs.
    """
    rows = use_in_dollars(costs)
    found = [
        *_traffic(rows, resources, fleet),
        *_idle_volumes(volumes, rows, {str(space) for space in pods["namespace"].to_pylist()}, fleet),
        *_pulls(starts, fleet, usd_gpu_hr),
        *_loads(starts, volumes, fleet, usd_gpu_hr),
    ]
    return tuple(
        sorted(found, key=lambda row: (row.micro_usd is None, -(row.micro_usd or 0), row.kind.value, row.subject))
    )


def _said(rows: pa.Table) -> pa.ChunkedArray:
    """Return what each line says it is for, in lower case."""
    parts = [pc.fill_null(rows[name], "") for name in ("ServiceName", "SkuMeter", "ChargeDescription")]
    return pc.utf8_lower(pc.binary_join_element_wise(*parts, " "))


def _traffic(rows: pa.Table, resources: Mapping[str, str], fleet: Fleet) -> Iterator[TailCost]:
    """Yield the traffic that a bill ties to GPU nodes, else that of the regions where they are."""
    said = _said(rows)
    nodes = {node.name for node in fleet.nodes}
    regions = {node.pool.region for node in fleet.nodes}
    left = np.ones(rows.num_rows, dtype=np.bool_)
    for kind, pattern in _LINES.items():
        mine = left & pc.match_substring_regex(said, pattern).to_numpy(zero_copy_only=False).astype(np.bool_)
        left &= ~mine
        lines = rows.filter(pa.array(mine))
        cost, inside, _ = cost_within(lines, fleet.window)
        cost[~inside] = 0.0
        named = [resources.get(last_part(str(resource or "")), "") for resource in lines["ResourceId"].to_pylist()]
        tied = np.array([name in nodes for name in named], dtype=np.bool_)
        here = np.array([region in regions for region in lines["RegionId"].to_pylist()], dtype=np.bool_)
        if cost[tied].sum() > 0:
            most = Counter[str]()
            for name, dollars in zip(named, cost.tolist(), strict=True):
                if name in nodes:
                    most[name] += dollars
            yield TailCost(
                kind=kind,
                subject=counted(len(most), "GPU node"),
                micro_usd=micro_usd(float(cost[tied].sum())),
                tied=True,
                evidence=f"by {counted(int(tied.sum()), 'line')} of the bill; most: "
                + ", ".join(f"{name} ${dollars:,.2f}" for name, dollars in most.most_common(_NAMED)),
            )
        others = here & ~tied
        if cost[others].sum() > 0:
            yield TailCost(
                kind=kind,
                subject=", ".join(sorted({str(region) for region in regions})),
                micro_usd=micro_usd(float(cost[others].sum())),
                tied=False,
                evidence=f"{counted(int(others.sum()), 'line')} of the bill; GPU nodes are not named",
            )


def _idle_volumes(volumes: pa.Table, rows: pa.Table, read: Container[str], fleet: Fleet) -> Iterator[TailCost]:
    """Yield, by namespace of GPU workloads, the bound claims that no pod mounts, at what the bill says a GiB-month costs.

    A claim costs from its creation on; since when no pod mounts it, a snapshot does not tell. One that was made after the
    window cost nothing in it.
    """
    spaces = {workload.namespace for workload in fleet.workloads if workload.namespace in read}
    idle: dict[str, list[Mapping[str, object]]] = defaultdict(list)
    for volume in volumes.to_pylist():
        if (
            volume["phase"] == "Bound"
            and not volume["workload"]
            and volume["namespace"] in spaces
            and _months_in(volume, fleet) > 0
        ):
            idle[str(volume["namespace"])].append(volume)
    rate = _usd_gib_month(rows)
    for space, claims in idle.items():
        sized = [(float(str(claim["capacity_gib"])), claim) for claim in claims if claim["capacity_gib"] is not None]
        unsized = f", {len(claims) - len(sized)} of unknown size left out" if len(sized) < len(claims) else ""
        gib_months = sum(size_gib * _months_in(claim, fleet) for size_gib, claim in sized)
        names = ", ".join(str(claim["name"]) for claim in claims[:_NAMED]) + (", …" if len(claims) > _NAMED else "")
        price = "and no line of a bill that says what a GiB costs"
        if rate is not None:
            price = f"at ${rate:.3f} per GiB-month, the bill's own mean"
        yield TailCost(
            kind=TailKind.IDLE_VOLUMES,
            subject=space,
            micro_usd=None if rate is None or not sized else micro_usd(gib_months * rate),
            tied=True,
            evidence=f"{counted(len(claims), 'claim')} of {sum(size_gib for size_gib, _ in sized):,.0f} GiB "
            f"({names}{unsized}), mounted by no pod when the cluster was read, {_since_words(claims, fleet)}{price}",
        )


def _months_in(claim: Mapping[str, object], fleet: Fleet) -> float:
    """Return how long a claim was there within the window, in months; the whole window where its creation is not known."""
    created = claim["created"]
    late_hr = hours_between(fleet.window.start, created) if isinstance(created, datetime) else 0.0
    return max(fleet.window.hours - max(late_hr, 0.0), 0.0) / HR_PER_MO


def _since_words(claims: Sequence[Mapping[str, object]], fleet: Fleet) -> str:
    """Say of which claims only a part of the window counts."""
    later = sum(_months_in(claim, fleet) * HR_PER_MO < fleet.window.hours for claim in claims)
    return f"{counted(later, 'claim')} from creation on, " if later else ""


def _usd_gib_month(rows: pa.Table) -> float | None:
    """Return what a bill's block storage costs per GiB-month; None where it has none."""
    of_volumes = pc.match_substring_regex(_said(rows), _STORAGE)
    months = pc.match_substring_regex(pc.fill_null(rows["PricingUnit"], ""), _GIB_MONTHS, ignore_case=True)
    mine = rows.filter(pc.and_(of_volumes, months))
    quantity = float(np.nansum(mine["PricingQuantity"].to_numpy())) if mine.num_rows else 0.0
    cost = pc.coalesce(mine["EffectiveCost"], mine["BilledCost"])
    return float(np.nansum(cost.to_numpy())) / quantity if quantity > 0 else None


def _pulls(starts: MeasuredStarts, fleet: Fleet, usd_gpu_hr: Mapping[str, float]) -> Iterator[TailCost]:
    """Yield the GPU time of pods that waited on their node for images, as far as the cluster reported pulls."""
    for workload in fleet.workloads:
        pulls_s = [pull_s for pull_s in starts.pulls_s(workload.name) if pull_s > 0]
        price = usd_gpu_hr.get(workload.name)
        if not pulls_s or price is None:
            continue
        waited_hr = sum(pulls_s) * workload.gpus_per_pod / S_PER_HR
        sizes = [start.pulled_gib for start in starts.own[workload.name] if start.pulled_gib]
        size = f", {np.median(sizes):.1f} GiB each" if sizes else ""
        yield TailCost(
            kind=TailKind.IMAGE_PULLS,
            subject=workload.name,
            micro_usd=micro_usd(waited_hr * price),
            tied=True,
            evidence=f"{counted(len(pulls_s), 'pull')} that the cluster still reported when it was read, no "
            f"earlier ones{size}, {np.median(pulls_s):.0f} s in the middle: {waited_hr:.1f} GPU-hours",
        )


def _loads(
    starts: MeasuredStarts, volumes: pa.Table, fleet: Fleet, usd_gpu_hr: Mapping[str, float]
) -> Iterator[TailCost]:
    """Yield the GPU time of services from their containers' start to ready, with the storage classes that they mount.

    Each load counts as the one in the middle: a pod that became ready again later looks like a slow one.
    """
    classes: dict[str, set[str]] = defaultdict(set)
    for volume in volumes.to_pylist():
        for name in str(volume["workload"] or "").split(","):
            classes[name].add(str(volume["storage_class"] or "no class"))
    for workload in fleet.workloads:
        loads_s = [load_s for load_s in starts.loads_s(workload.name) if load_s > 0]
        price, mounted = usd_gpu_hr.get(workload.name), classes.get(workload.name)
        if workload.kind is not WorkloadKind.SERVING or not loads_s or price is None or not mounted:
            continue
        middle_s = float(np.median(loads_s))
        loaded_hr = len(loads_s) * middle_s * workload.gpus_per_pod / S_PER_HR
        yield TailCost(
            kind=TailKind.LOADS,
            subject=workload.name,
            micro_usd=micro_usd(loaded_hr * price),
            tied=True,
            evidence=f"{counted(len(loads_s), 'start')} of pods that the cluster still knew, {middle_s:.0f} s in the middle "
            f"from their containers' start to ready (weights, compilation, warm-up): {loaded_hr:.1f} GPU-hours; volumes of "
            f"{', '.join(sorted(mounted))}",
        )
