"""Nodes from kube-state-metrics: when they were there, types, places, capacity types; the spot events that they show.

Spot events rest on four kinds of evidence, none of which asks a cloud:

- a spot node that appears in the window was `launched`;
- a spot node that goes while a pod still holds its GPUs, or has for less than a minute not, was `interrupted`: an empty node is
  kept for longer than that before it is given back. A node drained by hand counts as well;
- an on-demand node that appears under a spot pool (trimtab's taint, or a Karpenter NodePool that also launched spot nodes of
  that type) says that spot was `unavailable`: both are allowed there, and the cheaper one is asked for first;
- a Kubernetes event that names a spot interruption of a node: `interrupted`, at the moment of the event.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import numpy as np

from trimtab.catalog import CapacityType, Catalog
from trimtab.catalog.model_servers import first_label
from trimtab.catalog.providers import PROVIDER_ID, provider_of_node_id
from trimtab.sources.hour_grid import HourGrid, Life, Watch, by_day, lifetimes, presence
from trimtab.sources.kubernetes.objects import Objects, moment_at, text
from trimtab.sources.kubernetes.owners import metric_label
from trimtab.sources.prometheus.client import Floats, Prometheus
from trimtab.tables.arrow import RecordedRow
from trimtab.units import BYTES_PER_GIB, S_PER_HR

UNKNOWN = "unknown"
NO_TYPE = (
    "nodes without an instance type (kube-state-metrics exports no node labels): --context or --kube-dump with "
    "--prometheus gives it"
)
NO_TYPE_LABEL = "nodes without the label node.kubernetes.io/instance-type"
"""As a snapshot tells it."""
NO_TYPES = (NO_TYPE, NO_TYPE_LABEL)
TYPED = "nodes without a label of their instance type, known by GPUs, CPUs and memory that one type alone has"
_TYPE_LABELS = ("label_node_kubernetes_io_instance_type", "label_beta_kubernetes_io_instance_type")
_REGION_LABELS = ("label_topology_kubernetes_io_region", "label_failure_domain_beta_kubernetes_io_region")
_ZONE_LABELS = ("label_topology_kubernetes_io_zone", "label_failure_domain_beta_kubernetes_io_zone")
_PRODUCT_LABELS = (
    "label_nvidia_com_gpu_product", "label_cloud_google_com_gke_accelerator", "label_cloud_google_com_gke_tpu_accelerator",
)  # fmt: skip
BOARD_RESOURCES = (
    "nvidia.com/gpu", "nvidia.com/gpu.shared", "amd.com/gpu", "aws.amazon.com/neuron", "aws.amazon.com/neurondevice",
    "google.com/tpu", "habana.ai/gaudi", "gpu.intel.com/i915", "gpu.intel.com/xe",
)  # fmt: skip
"""Resources of which a piece is a board, or a share of one where a node advertises each several times.

Device plugins of NVIDIA, AMD, AWS (awsdocs-neuron v2.29.1, containers/kubernetes-getting-started), GKE, Intel Gaudi
(docs.habana.ai 1.23, Orchestration) and Intel GPUs (intel/intel-device-plugins-for-kubernetes, cmd/gpu_plugin).
"""
CORE_RESOURCE = "aws.amazon.com/neuroncore"
"""A node with NeuronCores advertises its chips and their cores: a pod asks for either."""


def resource_label(resource: str) -> str:
    """Return a resource as kube-state-metrics spells it.

    >>> resource_label("aws.amazon.com/neuron")
    'aws_amazon_com_neuron'
    """
    return metric_label(resource).removeprefix("label_")


BOARD_LABELS = tuple(resource_label(resource) for resource in BOARD_RESOURCES)
_CAPACITY_LABELS = {
    ("label_karpenter_sh_capacity_type", "spot"): CapacityType.SPOT,
    ("label_karpenter_sh_capacity_type", "on-demand"): CapacityType.ON_DEMAND,
    ("label_karpenter_sh_capacity_type", "reserved"): CapacityType.RESERVED,
    ("label_eks_amazonaws_com_capacity_type", "SPOT"): CapacityType.SPOT,
    ("label_eks_amazonaws_com_capacity_type", "ON_DEMAND"): CapacityType.ON_DEMAND,
    ("label_eks_amazonaws_com_capacity_type", "CAPACITY_BLOCK"): CapacityType.CAPACITY_BLOCK,
    ("label_eks_amazonaws_com_capacityType", "SPOT"): CapacityType.SPOT,
    ("label_eks_amazonaws_com_capacityType", "ON_DEMAND"): CapacityType.ON_DEMAND,
    ("label_cloud_google_com_gke_spot", "true"): CapacityType.SPOT,
    ("label_cloud_google_com_gke_preemptible", "true"): CapacityType.SPOT,
    ("label_cloud_google_com_gke_provisioning", "spot"): CapacityType.SPOT,
    ("label_cloud_google_com_gke_provisioning", "standard"): CapacityType.ON_DEMAND,
    ("label_kubernetes_azure_com_scalesetpriority", "spot"): CapacityType.SPOT,
    ("label_node_kubernetes_io_lifecycle", "spot"): CapacityType.SPOT,
}
_PRESENCE_LABELS = ("node", "exported_node", "provider_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeNode:
    """A node as Kubernetes tells it; `notes` says what had to be assumed."""

    name: str
    provider: str
    instance_type: str
    region: str
    zone: str | None
    capacity_type: str
    product: str | None
    gpu_count: int | None
    lifetimes: tuple[Life, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    vcpus: float | None = None
    memory_gib: float | None = None
    cores_per_board: float | None = None
    """NeuronCores of a chip; None where the node has none."""


def collect_nodes(server: Prometheus, watch: Watch) -> list[KubeNode]:
    """Ask kube-state-metrics for the nodes that lived in the window; empty where it is not scraped."""
    grid = watch.grid
    seen = presence(server, "kube_node_info" + server.matching(), _PRESENCE_LABELS, grid)
    labels = _labels(server, grid)
    taints = _taints(server, grid)
    capacity = _latest(server, "kube_node_status_capacity", grid, f'resource=~"{"|".join(BOARD_LABELS)}"')
    cores = _latest(server, "kube_node_status_capacity", grid, f'resource="{resource_label(CORE_RESOURCE)}"')
    created = _latest(server, "kube_node_created", grid)
    vcpus = _latest(server, "kube_node_status_capacity", grid, 'resource="cpu"')
    memory = _latest(server, "kube_node_status_capacity", grid, 'resource="memory"')
    nodes = []
    for name, keys in _by_name(seen).items():
        node = described_node(
            name,
            provider_id=next((key[2] for key in keys if key[2]), ""),
            labels=labels.get(name, {}),
            taints=taints.get(name, {}),
            gpu_count=int(capacity[name]) if name in capacity else None,
            spans=_spans([seen[key] for key in keys], watch, created.get(name)),
        )
        memory_gib = memory[name] / BYTES_PER_GIB if name in memory else None
        per_board = cores_per_board(cores.get(name), capacity.get(name))
        nodes.append(replace(node, vcpus=vcpus.get(name), memory_gib=memory_gib, cores_per_board=per_board))
    return nodes


def cores_per_board(cores: float | None, boards: float | None) -> float | None:
    """Return the NeuronCores of a chip by what a node advertises of both; None where it does not advertise both."""
    return cores / boards if cores and boards else None


def _by_name(seen: Iterable[tuple[str, ...]]) -> dict[str, list[tuple[str, ...]]]:
    names: dict[str, list[tuple[str, ...]]] = {}
    for key in seen:
        names.setdefault(key[1] or key[0], []).append(key)
    return names


def _spans(counts: Sequence[Floats], watch: Watch, created_s: float | None) -> tuple[Life, ...]:
    """Return a node's lifetimes; the moment of its creation, where known, is exact for the life that it falls in or before."""
    spans = lifetimes(np.max(np.stack(counts), axis=0), watch)
    if created_s is None:
        return tuple(spans)
    exact = [
        Life(start_s=created_s, end_s=span.end_s)
        if abs(created_s - span.start_s) <= S_PER_HR or (index == 0 and created_s < span.start_s == watch.grid.start_s)
        else span
        for index, span in enumerate(spans)
    ]
    return tuple(exact)


def described_node(
    name: str,
    *,
    provider_id: str,
    labels: Mapping[str, str],
    taints: Mapping[str, str],
    gpu_count: int | None,
    spans: tuple[Life, ...],
) -> KubeNode:
    """Return what a node's labels (spelled as kube-state-metrics does, `label_...`) and its provider id tell."""
    notes = []
    provider = provider_of_node_id(provider_id) or UNKNOWN
    zone = first_label(labels, _ZONE_LABELS) or zone_of_provider_id(provider_id)
    region = first_label(labels, _REGION_LABELS) or region_of_zone(provider, zone)
    instance_type = first_label(labels, _TYPE_LABELS)
    if not instance_type:
        notes.append(NO_TYPE)
    capacity_type = next((kind for (key, value), kind in _CAPACITY_LABELS.items() if labels.get(key) == value), None)
    if capacity_type is None:
        notes.append("nodes without a capacity type, taken as on-demand")
    return KubeNode(
        name=name,
        provider=provider,
        instance_type=instance_type or UNKNOWN,
        region=region or UNKNOWN,
        zone=zone or None,
        capacity_type=(capacity_type or CapacityType.ON_DEMAND).value,
        product=first_label(labels, _PRODUCT_LABELS) or None,
        gpu_count=gpu_count,
        lifetimes=spans,
        labels={
            **{key.removeprefix("label_"): value for key, value in labels.items() if key.startswith("label_")},
            **({PROVIDER_ID: provider_id} if provider_id else {}),
        },
        taints=taints,
        notes=tuple(notes),
    )


_MEMORY_SEEN_FRAC = (0.85, 1.01)
"""What an operating system shows of a node's memory, the kernel and firmware keep the rest."""


def type_by_hardware(node: KubeNode, gpu: str | None, gpu_count: int, catalog: Catalog) -> str | None:
    """Return the one instance type of a node's provider that has its GPUs, CPUs and memory; None where none or several have.

    kube-state-metrics exports no labels of nodes unless told to, but what each has.
    """
    if gpu is None or node.vcpus is None or node.memory_gib is None:
        return None
    low, high = _MEMORY_SEEN_FRAC
    found = [
        instance.name
        for (provider, _), instance in catalog.instance_table.items()
        if provider == node.provider
        and (instance.gpu, instance.gpu_count, instance.vcpus) == (gpu, gpu_count, round(node.vcpus))
        and instance.memory_gib is not None
        and low <= node.memory_gib / instance.memory_gib <= high
    ]
    return found[0] if len(found) == 1 else None


def zone_of_provider_id(provider_id: str) -> str:
    """Return the zone that `aws:///us-east-1a/i-0abc` or `gce://project/us-central1-a/name` names; empty where none is."""
    scheme, _, rest = provider_id.partition("://")
    parts = rest.split("/")
    if scheme == "aws" and len(parts) == 3:
        return parts[1]
    if scheme == "gce" and len(parts) == 3:
        return parts[1]
    return ""


def region_of_zone(provider: str, zone: str) -> str:
    """Return the region of an AWS (us-east-1a) or Google (us-central1-a) zone; empty where it cannot be told."""
    if provider == "aws":
        return zone.rstrip("abcdefghij")
    if provider == "gcp":
        return zone.rpartition("-")[0]
    return ""


def _labels(server: Prometheus, grid: HourGrid) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for labels in server.series(["kube_node_labels" + server.matching()], grid.start_s, grid.end_s):
        name = labels.get("exported_node") or labels.get("node", "")
        found.setdefault(name, {}).update(labels)
    return found


def _taints(server: Prometheus, grid: HourGrid) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for labels in server.series(["kube_node_spec_taint" + server.matching()], grid.start_s, grid.end_s):
        name = labels.get("exported_node") or labels.get("node", "")
        taint = f"{labels.get('value', '')}:{labels.get('effect', '')}"
        found.setdefault(name, {})[labels.get("key", "")] = taint
    return found


def _latest(server: Prometheus, metric: str, grid: HourGrid, *matchers: str) -> dict[str, float]:
    """Return a metric's last value by node, of nodes that went too: its maximum by day, the last day that has one."""
    query = f"max by (node, exported_node) (max_over_time({metric}{server.matching(*matchers)}[1d]))"
    found: dict[str, float] = {}
    for series in by_day(server, query, grid):
        found[series.labels.get("exported_node") or series.labels.get("node", "")] = float(series.values[-1])
    return found


SPOT_TAINT = "trimtab.dev/spot"
NODE_POOL_LABELS = ("karpenter.sh/nodepool", "karpenter_sh_nodepool")
"""As Kubernetes spells it, and as kube-state-metrics does."""
DRAINED = timedelta(seconds=60)
"""An emitted pool of runs keeps an empty node that long (`fleet.settings.RUN_NODES_KEPT_S`)."""
INTERRUPTIONS = frozenset({"SpotInterrupted", "SpotInterruption", "PreemptScheduled"})
"""Reasons of events on nodes: Karpenter; aws-node-termination-handler; Azure's node-problem-detector."""


def spot_event_rows(
    nodes: Iterable[RecordedRow], allocations: Iterable[RecordedRow], start: datetime, objects: Objects | None = None
) -> list[dict[str, object]]:
    """Return the rows of `spot_events` over a window that begins at `start`, in order of time; the module says what counts."""
    nodes = [node for node in nodes if node["gpu_count"]]
    by_name = {str(node["node"]): node for node in nodes}
    last_held = _last_held(allocations)
    told = {} if objects is None else _interruptions(objects, by_name)
    pools = {_pool(node) for node in nodes if _is_spot(node)}
    rows = []
    for node in nodes:
        name, begins, ends = str(node["node"]), node["start"], node.get("end")
        assert isinstance(begins, datetime)
        if _is_spot(node):
            if begins > start:
                rows.append(_row(node, begins, "launched"))
            lost = told.get(name)
            if lost is None and isinstance(ends, datetime) and _held_to_the_end(last_held.get(name, ()), begins, ends):
                lost = ends
            if lost is not None:
                rows.append(_row(node, lost, "interrupted"))
        elif begins > start and _stands_in_for_spot(node, pools):
            rows.append(_row(node, begins, "unavailable"))
    return sorted(rows, key=lambda row: (row["at"], str(row["instance_type"]), str(row["event"])))


def _row(node: RecordedRow, at: datetime, event: str) -> dict[str, object]:
    # on demand was taken after every zone had refused, so that this says nothing of one zone
    zone = None if event == "unavailable" else node.get("zone")
    place = {name: node[name] for name in ("provider", "instance_type", "region")}
    return {**place, "zone": zone, "at": at, "event": event, "notice_s": None, "spot_usd_hr": None}


def _is_spot(node: RecordedRow) -> bool:
    return node["capacity_type"] == CapacityType.SPOT.value


def _pool(node: RecordedRow) -> tuple[object, ...]:
    """Return a node's NodePool, type and region."""
    labels = _labels_of(node, "labels")
    node_pool = next((labels[name] for name in NODE_POOL_LABELS if labels.get(name)), None)
    return (node_pool, node["instance_type"], node["region"])


def _labels_of(node: RecordedRow, name: str) -> Mapping[str, str]:
    found = node.get(name)
    return found if isinstance(found, Mapping) else dict(found) if isinstance(found, list) else {}


def _stands_in_for_spot(node: RecordedRow, pools: set[tuple[object, ...]]) -> bool:
    if node["capacity_type"] != CapacityType.ON_DEMAND.value:
        return False
    return SPOT_TAINT in _labels_of(node, "taints") or (bool(_pool(node)[0]) and _pool(node) in pools)


def _last_held(allocations: Iterable[RecordedRow]) -> dict[str, list[datetime | None]]:
    """Return the ends of all holdings of each node; None is one whose end was not observed."""
    found: dict[str, list[datetime | None]] = defaultdict(list)
    for row in allocations:
        end = row.get("end")
        found[str(row["node"])].append(end if isinstance(end, datetime) else None)
    return found


def _held_to_the_end(ends: Sequence[datetime | None], begins: datetime, gone: datetime) -> bool:
    """Return whether GPUs were held when a life ended; holdings that end outside that life are another's."""
    return any(end is None or (begins < end and abs(gone - end) < DRAINED) for end in ends)


def _interruptions(objects: Objects, nodes: Mapping[str, RecordedRow]) -> dict[str, datetime]:
    """Return when a Kubernetes event said that a node was interrupted: the first such event of each node that is known."""
    found: dict[str, datetime] = {}
    for event in objects.of("Event"):
        name, at = text(event, "involvedObject", "name"), _moment(event)
        if text(event, "reason") not in INTERRUPTIONS or text(event, "involvedObject", "kind") != "Node":
            continue
        if name in nodes and at is not None:
            found[name] = min(at, found.get(name, at))
    return found


def _moment(event: Mapping[str, object]) -> datetime | None:
    for path in (("firstTimestamp",), ("eventTime",), ("lastTimestamp",), ("metadata", "creationTimestamp")):
        at = moment_at(event, *path)
        if at is not None:
            return at
    return None
