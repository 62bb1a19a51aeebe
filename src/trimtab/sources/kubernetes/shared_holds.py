"""Who holds how much of a board, as Prometheus tells: requests of pods, HAMi's scheduler, fractions of KAI and Run:ai.

DCGM's exporter names the pods on a board but not their parts of it; of a board in time slices it names one pod alone unless
it has the flag --kubernetes-virtual-gpus, and of a board of KAI's or Run:ai's the pod that reserves it. So:

- a pod on a node that shares its boards holds what it asks for, while it runs;
- a pod that HAMi's scheduler exports (hami_vgpu_memory_allocated_bytes, hami_vgpu_core_allocated_ratio, in earlier releases
  vGPUMemoryAllocated, vGPUCoreAllocated; Project-HAMi/HAMi cmd/scheduler/metrics.go) holds that part of that board;
- a pod with a fraction (kube_pod_annotations, where kube-state-metrics exports `gpu-fraction`, `gpu-memory`) holds it, and the
  pod that reserves its board holds this only while no such pod is known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trimtab.sources.hour_grid import HourGrid, Life, Watch, by_day, lifetimes, presence
from trimtab.sources.kubernetes.board_shares import (
    PART_NAMES,
    RESERVATION_NAMESPACES,
    boards_of_cores,
    part_of_board,
    pieces_of_boards,
    vgpu_share,
)
from trimtab.sources.kubernetes.holds import Hold, mig_share, nodes_by_pod, running
from trimtab.sources.kubernetes.nodes import BOARD_LABELS, CORE_RESOURCE, KubeNode, resource_label
from trimtab.sources.kubernetes.objects import quantity
from trimtab.sources.kubernetes.owners import subject
from trimtab.sources.prometheus.client import Prometheus
from trimtab.sources.prometheus.gpu_series import Tally

Named = tuple[str, str]
"""Namespace and name."""

_MIG_RESOURCE = "nvidia_com_mig_"
_CORES = resource_label(CORE_RESOURCE)
_ASKED = f"{'|'.join(BOARD_LABELS)}|{_CORES}|nvidia_com_.*|volcano_sh_vgpu_.*"
_PARTS = {
    resource_label(name): name
    for names in PART_NAMES
    for name in (names.boards, names.memory_mib, names.memory_percent, names.compute_percent)
}
"""As kube-state-metrics spells a resource -> as Kubernetes does."""
_REPLICAS = ("nvidia_com_gpu_replicas", "cloud_google_com_gke_max_shared_clients_per_gpu")
_BOARDS = "nvidia_com_gpu_count"
_PERCENT = 100.0
_HAMI_MEMORY = ("hami_vgpu_memory_allocated_bytes", "vGPUMemoryAllocated")
_HAMI_COMPUTE = ("hami_vgpu_core_allocated_ratio", "vGPUCoreAllocated")
_HAMI_LIMIT = ("hami_gpu_memory_limit_bytes", "GPUDeviceMemoryLimit")
_HAMI_LABELS = (
    "exported_namespace", "podnamespace", "namespace", "exported_pod", "podname", "pod",
    "exported_node", "nodename", "nodeid", "node", "device_uuid", "deviceuuid",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardSharing:
    """What a node's boards are handed out as."""

    replicas: float = 1.0
    """Shares that each board is advertised as."""
    cores: float | None = None
    """NeuronCores of a chip."""
    board_mib: float | None = None
    renamed: Mapping[str, float] = field(default_factory=dict)
    """Resources, as kube-state-metrics spells them, by which boards are advertised otherwise than usual: pieces of a board."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPod:
    """What a pod asks for: boards' worth on a node, and whether boards are shared there."""

    node: str
    gpus: float
    shared: bool


def with_boards(node: KubeNode, seen: int, hands_out_parts: bool, tally: Tally) -> tuple[KubeNode, BoardSharing]:
    """Return a node with its boards in place of the shares that it advertises, and how it shares them.

    `seen` is how many of its boards telemetry shows; `hands_out_parts` is whether HAMi or its like does, by parts.
    """
    advertised = node.gpu_count
    labelled = quantity(node.labels.get(_BOARDS))
    told = next((value for name in _REPLICAS if (value := quantity(node.labels.get(name)))), None)
    boards = int(labelled) if labelled else advertised
    if labelled is None and advertised is not None:
        if told and told > 1:
            boards = max(round(advertised / told), 1)
        # neuron-monitor shows the chips on which a program runs: fewer than there are say nothing of sharing
        elif seen and node.cores_per_board is None and advertised > seen and advertised % seen == 0:
            boards = seen
            tally.count("nodes that advertise each of their boards several times, by how many of them telemetry shows")
    replicas = advertised / boards if advertised and boards and advertised > boards else max(told or 1.0, 1.0)
    return replace(node, gpu_count=boards), BoardSharing(
        replicas=1.0 if hands_out_parts else replicas, cores=node.cores_per_board
    )


def renamed_resources(server: Prometheus, grid: HourGrid, boards: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """Return by node by how many pieces of each resource a board is advertised under another name than the usual ones.

    `boards` are nodes of which no board is advertised under these, and how many of them telemetry shows.
    """
    if not boards:
        return {}
    metric = "kube_node_status_capacity" + server.matching('resource=~"nvidia_com_.*"')
    capacity: dict[str, dict[str, float]] = defaultdict(dict)
    for series in by_day(server, f"max by (node, exported_node, resource) (max_over_time({metric}[1d]))", grid):
        node = series.labels.get("exported_node") or series.labels.get("node", "")
        # as Kubernetes spells it, as far as that can be told: what stands for a stroke within the name is lost
        name = series.labels.get("resource", "").replace("nvidia_com_", "nvidia.com/")
        capacity[node][name] = float(series.values[-1])
    return {
        node: {resource_label(name): pieces for name, pieces in pieces_of_boards(capacity[node], count).items()}
        for node, count in boards.items()
    }


def asked_pods(
    server: Prometheus, grid: HourGrid, shared: Mapping[str, BoardSharing], tally: Tally
) -> dict[Named, AskedPod]:
    """Return the pods that asked for GPUs in the window, by what kube-state-metrics reports of their containers."""
    labels = (
        "namespace, exported_namespace, pod, exported_pod, container, exported_container, node, exported_node, resource"
    )
    metric = "kube_pod_container_resource_requests" + server.matching(f'resource=~"{_ASKED}"')
    asked: dict[tuple[Named, str], dict[str, float]] = defaultdict(dict)
    node_of: dict[Named, str] = {}
    for series in by_day(server, f"max by ({labels}) (max_over_time({metric}[1d]))", grid):
        node = series.labels.get("exported_node") or series.labels.get("node", "")
        if node:
            pod = subject(series.labels, "pod")
            container = series.labels.get("exported_container") or series.labels.get("container", "")
            resource = series.labels.get("resource", "")
            asked[pod, container][resource] = float(series.values.max())
            node_of[pod] = node
    by_pod: dict[Named, list[dict[str, float]]] = defaultdict(list)
    for (pod, _), amounts in asked.items():
        by_pod[pod].append(amounts)
    asking = {pod: _asked_pod(node_of[pod], containers, shared, tally) for pod, containers in by_pod.items()}
    # NVIDIA's network devices are asked for in the same way, and are no GPUs
    return {pod: need for pod, need in asking.items() if need.gpus > 0}


def nodes_with_parts(server: Prometheus, grid: HourGrid) -> set[str]:
    """Return the nodes of which pods ask for parts of boards, as HAMi and Volcano hand them out."""
    named = "nvidia_com_gpu(mem|mem_percentage|cores)|volcano_sh_vgpu_.*"
    found = set()
    for metric in ("kube_pod_container_resource_requests", "kube_pod_container_resource_limits"):
        chosen = metric + server.matching(f'resource=~"{named}"')
        for labels in server.series([chosen], grid.start_s, grid.end_s):
            found.add(labels.get("exported_node") or labels.get("node", ""))
    return found - {""}


def _asked_pod(
    node: str, containers: Sequence[Mapping[str, float]], shared: Mapping[str, BoardSharing], tally: Tally
) -> AskedPod:
    how = shared.get(node, BoardSharing())
    gpus, in_parts = 0.0, False
    for amounts in containers:
        named = {_PARTS[name]: amount for name, amount in amounts.items() if name in _PARTS}
        parts = [part_of_board(named, names, how.board_mib, tally) for names in PART_NAMES]
        part = next((part for part in parts if part is not None), None)
        if part is None:
            gpus += sum(_boards_worth(name, amount, how, tally) for name, amount in amounts.items())
        else:
            gpus, in_parts = gpus + part, True
    return AskedPod(node=node, gpus=gpus, shared=in_parts or how.replicas > 1)


def _boards_worth(resource: str, amount: float, how: BoardSharing, tally: Tally) -> float:
    """Return the boards' worth of an amount of a resource, which no part of a board is asked for beside."""
    if resource.startswith(_MIG_RESOURCE):
        return amount * mig_share(resource.removeprefix(_MIG_RESOURCE), "")
    if resource in BOARD_LABELS:
        return amount / how.replicas
    if resource in how.renamed:
        return amount / how.renamed[resource]
    if resource == _CORES:
        return boards_of_cores(amount, how.cores, tally)
    if _PARTS.get(resource) == PART_NAMES[1].boards:
        return amount
    virtual = vgpu_share("-".join(resource.replace("nvidia_com_", "nvidia.com/").rsplit("_", 1)), how.board_mib)
    return amount * virtual if virtual is not None else 0.0


@dataclass(slots=True, kw_only=True)
class SharedHolds:
    """Holds of parts of boards, and what of DCGM's names they replace."""

    holds: list[Hold] = field(default_factory=list)
    stated: set[Named] = field(default_factory=set)
    """Pods whose holds these are."""


def hami_holds(server: Prometheus, watch: Watch, devices: Collection[str]) -> SharedHolds:
    """Return what HAMi's scheduler says that pods were given, while it does; `devices` are the boards that telemetry shows."""
    limits = {
        _label(labels, "device_uuid", "deviceuuid"): mib for labels, mib in _latest(server, _HAMI_LIMIT, watch.grid)
    }
    memory: dict[tuple[Named, str, str], float] = defaultdict(float)
    compute: dict[tuple[Named, str, str], float] = defaultdict(float)
    for found, names in ((memory, _HAMI_MEMORY), (compute, _HAMI_COMPUTE)):
        for labels, value in _latest(server, names, watch.grid):
            found[_hami_key(labels)] += value
    shares = {
        key: min(
            max(memory[key] / limits[key[2]] if limits.get(key[2]) else 0.0, compute.get(key, 0.0) / _PERCENT), 1.0
        )
        or 1.0
        for key in memory
    }
    told, known = SharedHolds(), set[tuple[Named, str]]()
    for name in _HAMI_MEMORY:
        seen = presence(server, name + server.matching(), _HAMI_LABELS, watch.grid)
        for values, counts in seen.items():
            key = _hami_key(dict(zip(_HAMI_LABELS, values, strict=True)))
            (namespace, pod), node, device = key
            if ((namespace, pod), device) in known:
                continue
            known.add(((namespace, pod), device))
            told.stated.add((namespace, pod))
            told.holds += [
                Hold(
                    namespace=namespace, pod=pod, node=node, device=device if device in devices else None,
                    gpus=shares[key], life=life,
                )
                for life in lifetimes(counts, watch)
            ]  # fmt: skip
    return told


def hami_nodes(server: Prometheus, grid: HourGrid) -> set[str]:
    """Return the nodes whose boards HAMi's scheduler hands out."""
    return {_label(labels, "exported_node", "nodeid", "node") for labels, _ in _latest(server, _HAMI_LIMIT, grid)} - {
        ""
    }


def _latest(server: Prometheus, names: Iterable[str], grid: HourGrid) -> list[tuple[Mapping[str, str], float]]:
    """Return a metric's labels and last values under the first of its names that is there."""
    for name in names:
        found: dict[tuple[tuple[str, str], ...], float] = {}
        for series in by_day(server, f"max_over_time({name}{server.matching()}[1d])", grid):
            found[tuple(sorted(series.labels.items()))] = float(series.values[-1])
        if found:
            return [(dict(labels), value) for labels, value in found.items()]
    return []


def _hami_key(labels: Mapping[str, str]) -> tuple[Named, str, str]:
    """Return (pod, node, device) of a series of HAMi's scheduler, whose own pod `namespace` and `pod` may name."""
    namespace = _label(labels, "exported_namespace", "podnamespace", "namespace")
    pod = _label(labels, "exported_pod", "podname", "pod")
    node = _label(labels, "exported_node", "nodename", "node")
    return (namespace, pod), node, _label(labels, "device_uuid", "deviceuuid")


def _label(labels: Mapping[str, str], *names: str) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


_FRACTION, _MEMORY, _DEVICES = (
    f"annotation_{name}" for name in ("gpu_fraction", "gpu_memory", "gpu_fraction_num_devices")
)


def fraction_holds(server: Prometheus, watch: Watch, shared: Mapping[str, BoardSharing], tally: Tally) -> SharedHolds:
    """Return the fractions of KAI and Run:ai that kube-state-metrics exports the annotations of, while their pods run."""
    notes: dict[Named, Mapping[str, str]] = {}
    for label in (_FRACTION, _MEMORY):
        chosen = "kube_pod_annotations" + server.matching(f'{label}!=""')
        for labels in server.series([chosen], watch.grid.start_s, watch.grid.end_s):
            notes[subject(labels, "pod")] = labels
    told, node_of = SharedHolds(), nodes_by_pod(server, watch.grid, notes)
    for pod, lives in running(server, watch, notes).items():
        node = node_of.get(pod, "")
        gpus = _fraction(notes[pod], shared.get(node, BoardSharing()), tally)
        told.stated.add(pod)
        told.holds += [
            Hold(namespace=pod[0], pod=pod[1], node=node, device=None, gpus=gpus, life=life) for life in lives if node
        ]
    return told


def _fraction(notes: Mapping[str, str], how: BoardSharing, tally: Tally) -> float:
    part, memory = quantity(notes.get(_FRACTION)), quantity(notes.get(_MEMORY))
    if part is None and memory is not None and how.board_mib:
        part = memory / how.board_mib
    if not part:
        tally.count("fractions of boards that could not be read, taken as whole boards")
        part = 1.0
    return min(part, 1.0) * (quantity(notes.get(_DEVICES) or "1") or 1.0)


def requested_holds(
    server: Prometheus, watch: Watch, asked: Mapping[Named, AskedPod], named: Sequence[Hold], stated: Collection[Named]
) -> list[Hold]:
    """Return the holds of pods by what they ask for, while they run: where DCGM names them on no board, and on shared boards.

    `named` are the holds that DCGM tells, `stated` pods of which something else tells more. Requests outlive a finished pod, so
    a pod holds only while its phase is Running.
    """
    boards: dict[Named, set[str | None]] = defaultdict(set)
    for hold in named:
        boards[hold.namespace, hold.pod].add(hold.device)
    wanted = {pod for pod, need in asked.items() if pod not in stated and (need.shared or pod not in boards)}
    found = []
    for pod, lives in running(server, watch, wanted).items():
        devices: list[str | None] = [*sorted(filter(None, boards.get(pod, ())))] or [None]
        part = asked[pod].gpus / len(devices)
        found += [
            Hold(namespace=pod[0], pod=pod[1], node=asked[pod].node, device=device, gpus=part, life=life)
            for life in lives
            for device in devices
        ]
    return found


def without_reservations(named: Sequence[Hold], fractions: Sequence[Hold], tally: Tally) -> list[Hold]:
    """Return the holds that DCGM tells, those of pods that reserve a board only while no fraction on their node is known."""
    lives: dict[str, list[Life]] = defaultdict(list)
    for hold in fractions:
        lives[hold.node].append(hold.life)
    found = []
    for hold in named:
        if hold.namespace not in RESERVATION_NAMESPACES:
            found.append(hold)
            continue
        left = outside(hold.life, lives.get(hold.node, ()))
        found += [replace(hold, life=life) for life in left]
        tally.count(
            "boards that pods of KAI or Run:ai reserve, held for pods that are not named: add --context or --kube-dump, or "
            "have kube-state-metrics export the annotations gpu-fraction and gpu-memory of pods",
            int(bool(left) and not lives.get(hold.node)),
        )
    return found


def outside(life: Life, others: Iterable[Life]) -> list[Life]:
    """Return what of an interval no other covers.

    >>> outside(Life(start_s=0, end_s=None), [Life(start_s=5, end_s=7)])
    [Life(start_s=0, end_s=5), Life(start_s=7, end_s=None)]
    """
    left = [life]
    for other in others:
        cut = []
        for piece in left:
            ends = float("inf") if piece.end_s is None else piece.end_s
            other_ends = float("inf") if other.end_s is None else other.end_s
            if other.start_s >= ends or other_ends <= piece.start_s:
                cut.append(piece)
                continue
            if other.start_s > piece.start_s:
                cut.append(Life(start_s=piece.start_s, end_s=other.start_s))
            if other_ends < ends:
                cut.append(Life(start_s=other_ends, end_s=piece.end_s))
        left = cut
    return left
