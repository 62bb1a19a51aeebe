"""Rows of `devices`, `nodes` and `allocations` from what telemetry and Kubernetes reported. Values in, values out."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimtab.catalog import CapacityType, Catalog
from trimtab.catalog.providers import PROVIDER_ID
from trimtab.errors import UnknownName
from trimtab.sources.hour_grid import Life, lifetimes, moment, moment_or_none
from trimtab.sources.kubernetes.holds import Hold, usage_watch
from trimtab.sources.kubernetes.nodes import NO_TYPES, TYPED, UNKNOWN, KubeNode, type_by_hardware
from trimtab.sources.kubernetes.owners import Owner
from trimtab.sources.prometheus.client import Floats
from trimtab.sources.prometheus.dcgm import GpuLabels
from trimtab.sources.prometheus.gpu_series import Tally
from trimtab.sources.prometheus.gpu_usage import PodHoldings
from trimtab.units import BYTES_PER_GB, BYTES_PER_GIB, MIB_PER_GIB

_PROFILE_GB = re.compile(r"\.(\d+)gb")


@dataclass(frozen=True, slots=True, kw_only=True)
class Boards:
    """The devices seen, on which Kubernetes node each sits, and the memory it has."""

    devices: Mapping[str, GpuLabels]
    node_of: Mapping[str, str]
    """Host name as telemetry spells it -> node as Kubernetes does."""
    memory_gib: Mapping[str, float]
    """Device -> used + free + reserved memory, where exported."""

    def node(self, labels: GpuLabels) -> str:
        """Return the node that a device sits on."""
        return self.node_of.get(labels.node, labels.node)

    def count_on(self, node: str) -> int:
        """Return the boards on a node; the instances of one board count once."""
        return len({labels.uuid for labels in self.devices.values() if self.node(labels) == node})

    def mib_on(self, node: str) -> float | None:
        """Return the memory of a node's boards in MiB, the most where they differ; None where it is not exported."""
        told = (
            self.memory_gib.get(device)
            for device, labels in self.devices.items()
            if self.node(labels) == node and not labels.mig_profile
        )
        return max((gib * MIB_PER_GIB for gib in told if gib is not None), default=None)

    def product_on(self, node: str) -> str | None:
        """Return the product name of a node's boards."""
        return next(
            (labels.product for labels in self.devices.values() if labels.product and self.node(labels) == node), None
        )


def node_names(
    devices: Iterable[GpuLabels], nodes: Sequence[KubeNode], node_of_pod: Mapping[str, str]
) -> dict[str, str]:
    """Match host names of telemetry with node names of Kubernetes: equal, equal up to a domain, or the exporter's pod.

    An exporter that does not use the host's network calls itself its host; neuron-monitor names the EC2 instance, which the
    provider's id of a node ends in.
    """
    known = {node.name for node in nodes}
    node_of_pod = {**_by_instance(nodes), **node_of_pod}
    by_host = {name.partition(".")[0]: name for name in known}
    hosts = {labels.node for labels in devices}
    return {
        host: host if host in known else node_of_pod.get(host) or by_host.get(host.partition(".")[0], host)
        for host in hosts
    }


def _by_instance(nodes: Iterable[KubeNode]) -> dict[str, str]:
    ids = ((node.labels.get(PROVIDER_ID, "").rpartition("/")[2], node.name) for node in nodes)
    return {instance: name for instance, name in ids if instance}


def gpu_name(product: str | None, catalog: Catalog, tally: Tally) -> str | None:
    """Return the catalog's name of a product, or the raw name where the catalog knows none."""
    if not product:
        return None
    try:
        return catalog.gpu(product).name
    except UnknownName:
        tally.count(f"GPU product {product!r} is not in the catalog", 1)
        return product


def device_rows(
    boards: Boards, nodes: Iterable[Mapping[str, object]], catalog: Catalog, tally: Tally
) -> list[dict[str, object]]:
    """Return a row for each device; memory as exported, else the catalog's, else a MIG profile's nominal size.

    A device whose exporter names no product (Gaudi's) is what its node carries, by the rows of `nodes`.
    """
    carried = {str(row["node"]): str(row["gpu"]) for row in nodes if row["gpu"]}
    rows: list[dict[str, object]] = []
    for device, labels in sorted(boards.devices.items()):
        name = gpu_name(labels.product, catalog, tally) or carried.get(boards.node(labels))
        rows.append(
            {
                "device": device,
                "node": boards.node(labels),
                "gpu": name or UNKNOWN,
                "mig_profile": labels.mig_profile or None,
                "memory_gib": boards.memory_gib.get(device) or _nominal_gib(labels, name, catalog),
                "pod_label": labels.pod_label or None,
            }
        )
    return rows


def _nominal_gib(labels: GpuLabels, gpu: str | None, catalog: Catalog) -> float | None:
    if labels.mig_profile:
        matched = _PROFILE_GB.search(labels.mig_profile)
        return int(matched[1]) * BYTES_PER_GB / BYTES_PER_GIB if matched else None
    return board_gib(gpu, catalog)


def board_gib(product: str | None, catalog: Catalog) -> float | None:
    """Return the memory that the catalog knows of a product; None where it knows none."""
    try:
        return catalog.gpu(product).memory_gib if product else None
    except UnknownName:
        return None


def product_of_type(node: KubeNode, catalog: Catalog) -> str | None:
    """Return the board that a node's instance type carries; None where the catalog does not know the type.

    Nodes of AWS with Trainium or Inferentia have no label of what they carry.
    """
    known = catalog.instance_table.get((node.provider, node.instance_type))
    return known.gpu if known else None


def node_rows(
    nodes: Sequence[KubeNode], boards: Boards, holdings: PodHoldings, catalog: Catalog, tally: Tally
) -> list[dict[str, object]]:
    """Return a row for each life of each node that has GPUs; nodes that only telemetry saw are there as unknown."""
    named = {node.name for node in nodes}
    hosts = {boards.node(labels) for labels in boards.devices.values()}
    rows: list[dict[str, object]] = []
    for node in [*nodes, *_only_telemetry(hosts - named, boards, holdings)]:
        count = node.gpu_count or boards.count_on(node.name)
        if not count:
            continue
        product = boards.product_on(node.name) or node.product or product_of_type(node, catalog)
        node = replace(typed(node, gpu_name(product, catalog, Tally()), count, catalog), product=product)
        for note in node.notes:
            tally.count(note)
        rows += [_node_row(node, life, count, catalog, tally) for life in node.lifetimes]
    return rows


def typed(node: KubeNode, gpu: str | None, gpu_count: int, catalog: Catalog) -> KubeNode:
    """Return a node with its instance type, where no label tells it and its hardware does."""
    if node.instance_type != UNKNOWN:
        return node
    name = type_by_hardware(node, gpu, gpu_count, catalog)
    if name is None:
        return node
    return replace(node, instance_type=name, notes=(*(note for note in node.notes if note not in NO_TYPES), TYPED))


def _node_row(node: KubeNode, life: Life, count: int, catalog: Catalog, tally: Tally) -> dict[str, object]:
    return {
        "node": node.name,
        "provider": node.provider,
        "instance_type": node.instance_type,
        "region": node.region,
        "zone": node.zone,
        "capacity_type": node.capacity_type,
        "start": moment(life.start_s),
        "end": moment_or_none(life.end_s),
        "gpu": gpu_name(node.product, catalog, tally),
        "gpu_count": count,
        "labels": dict(node.labels),
        "taints": dict(node.taints),
    }


def _only_telemetry(hosts: Collection[str], boards: Boards, holdings: PodHoldings) -> Iterator[KubeNode]:
    """Yield the hosts that only telemetry saw: there while any of their boards was."""
    watch = usage_watch(holdings) if hosts else None
    counts: dict[str, Floats] = {}
    for key in holdings.pieces:
        host = boards.node(boards.devices[key.device])
        if host in hosts:
            counts[host] = counts.get(host, np.zeros(holdings.grid.hours)) + holdings.counts(key)
    for host in sorted(counts):
        yield _unknown_node(host, tuple(lifetimes(counts[host], watch)) if watch else ())


def _unknown_node(host: str, seen: tuple[Life, ...]) -> KubeNode:
    return KubeNode(
        name=host,
        provider=UNKNOWN,
        instance_type=UNKNOWN,
        region=UNKNOWN,
        zone=None,
        capacity_type=CapacityType.ON_DEMAND.value,
        product=None,
        gpu_count=None,
        lifetimes=seen,
        notes=("nodes that kube-state-metrics does not know: type, place and capacity type unknown",),
    )


def allocation_rows(holds: Iterable[Hold], owners: Mapping[tuple[str, str], Owner]) -> list[dict[str, object]]:
    """Return a row for each interval in which a pod held something."""
    rows: list[dict[str, object]] = []
    for hold in holds:
        owner = owners[hold.namespace, hold.pod]
        rows.append(
            {
                "workload": owner.workload,
                "namespace": hold.namespace,
                "owner_kind": owner.kind,
                "team": owner.team,
                "pod": hold.pod,
                "node": hold.node,
                "device": hold.device,
                "gpus": hold.gpus,
                "start": moment(hold.life.start_s),
                "end": moment_or_none(hold.life.end_s),
            }
        )
    return rows


def on_kubernetes_node(hold: Hold, node_of: Mapping[str, str]) -> Hold:
    """Return a hold with its node as Kubernetes spells it."""
    return replace(hold, node=node_of.get(hold.node, hold.node))
