"""How the GPUs of a node are cut or shared: slots, MIG layouts of the GPU operator, and sharing without isolation.

Layouts of one profile are named as in the operator's own table (`all-1g.10gb`), which holds them for the boards that it knows;
the ConfigMap is for operators whose table does not, and for mixed layouts. Resources are those of the `mixed` strategy of the
device plugin.

The schema is that of the device plugin's `sharing` section (README of NVIDIA/k8s-device-plugin, "Shared Access to GPUs"): time
slices and MPS exclude each other on a node, MPS takes no MIG devices and gives a container one share, and each share of either
is advertised as `nvidia.com/gpu.shared`, so that no pod that asks for a whole GPU lands there.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import yaml

from trimtab.catalog.kinds import Isolation
from trimtab.catalog.mig import Counts, boards_for, cut_boards
from trimtab.catalog.pools import SharedPool
from trimtab.emit.manifests.emission import Plain, metadata
from trimtab.plan.model import Action

_HASH_LENGTH = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The slots on each GPU of a node (by kind, in the order of `kinds`), and how many such nodes there are at most.

    `nodes` is None where whoever runs there says how many.
    """

    kinds: tuple[SharedPool, ...]
    gpus: tuple[Counts, ...]
    nodes: int | None = None

    @property
    def isolated(self) -> bool:
        """Return whether hardware keeps the slots of a GPU apart."""
        return all(kind.is_isolated for kind in self.kinds)

    @property
    def slots(self) -> Mapping[SharedPool, int]:
        """Return how many slots of each kind a node has."""
        return {kind: sum(gpu[at] for gpu in self.gpus) for at, kind in enumerate(self.kinds)}

    @property
    def per_gpu(self) -> int:
        """Return how many slots one GPU has, where there is one kind of them."""
        return self.gpus[0][0]

    @property
    def name(self) -> str:
        """Return the layout's name; one profile on every GPU is named as in NVIDIA's own table (`all-1g.10gb`)."""
        different = sorted(set(self.gpus), reverse=True)
        texts = [_text(self.kinds, layout) for layout in different]
        if len(different) == 1:
            return f"all-{texts[0]}"
        counted = [f"{self.gpus.count(layout)}:{text}" for layout, text in zip(different, texts, strict=True)]
        return f"mixed-{hashlib.sha256(' '.join(counted).encode()).hexdigest()[:_HASH_LENGTH]}"

    def devices(self) -> list[tuple[list[int], dict[str, int]]]:
        """Return the GPUs of a node by index, and how many instances of each profile they are cut into."""
        indexed = groupby(enumerate(self.gpus), key=lambda indexed_gpu: indexed_gpu[1])
        return [
            (
                [index for index, _ in members],
                {kind.profile: count for kind, count in zip(self.kinds, layout, strict=True) if count},
            )
            for layout, members in indexed
        ]


def _text(kinds: Sequence[SharedPool], layout: Counts) -> str:
    held = [(count, kind.profile) for kind, count in zip(kinds, layout, strict=True) if count]
    return held[0][1] if len(held) == 1 else "-".join(f"{count}x{profile}" for count, profile in held)


def alike(shared: SharedPool, gpus_per_node: int) -> Cut:
    """Return nodes cut into slots of one kind."""
    return Cut(kinds=(shared,), gpus=((shared.slots_per_node // gpus_per_node,),) * gpus_per_node)


def side_by_side(wanted: Mapping[SharedPool, int], gpus_per_node: int) -> tuple[Cut, ...]:
    """Return the fewest nodes that hold so many slices of several profiles, alike ones as one cut; what is left over is cut
    into more of the same."""
    kinds = tuple(sorted(wanted, key=lambda kind: (-max(kind.takes), kind.profile)))
    takes, room = [kind.takes for kind in kinds], tuple(most // gpus_per_node for most in kinds[0].room)
    boards = [_filled(board, takes, room) for board in cut_boards(tuple(wanted[kind] for kind in kinds), takes, room)]
    boards += [boards[-1]] * (-len(boards) % gpus_per_node)
    nodes = Counter(tuple(boards[at : at + gpus_per_node]) for at in range(0, len(boards), gpus_per_node))
    return tuple(Cut(kinds=kinds, gpus=gpus, nodes=count) for gpus, count in sorted(nodes.items(), reverse=True))


def _filled(layout: Counts, takes: Sequence[tuple[int, ...]], room: tuple[int, ...]) -> Counts:
    """Return a layout with as many more slices as fit, the largest first."""
    for at in range(len(takes)):
        more = tuple(count + (place == at) for place, count in enumerate(layout))
        while boards_for(more, takes, room) == 1:
            layout, more = more, tuple(count + (place == at) for place, count in enumerate(more))
    return layout


MIG_CONFIG = "nvidia.com/mig.config"
"""The node label that the operator's MIG manager acts on."""
LAYOUTS = "trimtab-mig-layouts"
UNCUT = "all-disabled"
"""The layout of nodes that are not cut: what nodes without the label keep."""
OPERATOR_NAMESPACE = "gpu-operator"


def slice_resource(shared: SharedPool) -> str:
    """Return the extended resource that one slice is to Kubernetes."""
    return f"nvidia.com/mig-{shared.profile}"


def layouts(cuts: Sequence[Cut], actions: Sequence[Action]) -> dict[str, Plain]:
    """Return mig-parted's ConfigMap with the layouts of some nodes, and the uncut one."""
    configs: dict[str, Plain] = {UNCUT: [{"devices": "all", "mig-enabled": False}]}
    for cut in sorted(cuts, key=lambda cut: cut.name):
        parts = cut.devices()
        configs[cut.name] = [
            {"devices": "all" if len(parts) == 1 else devices, "mig-enabled": True, "mig-devices": slices}
            for devices, slices in parts
        ]
    text = yaml.safe_dump({"version": "v1", "mig-configs": configs}, sort_keys=False)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(LAYOUTS, actions, namespace=OPERATOR_NAMESPACE),
        "data": {"config.yaml": text},
    }


DEVICE_PLUGIN_CONFIG = "nvidia.com/device-plugin.config"
"""The node label that picks one of the device plugin's configurations."""
CONFIGS = "trimtab-gpu-sharing"
NO_SHARING = "default"
"""The configuration of nodes without the label: the plugin would else take the only one there is for every node."""
SHARED_GPU = "nvidia.com/gpu.shared"
"""What a share of a GPU is called where the plugin renames it."""


def slot_resource(shared: SharedPool) -> str:
    """Return the extended resource that one slot of cut GPUs is to Kubernetes."""
    return slice_resource(shared) if shared.is_isolated else SHARED_GPU


def node_label(cut: Cut) -> tuple[str, str]:
    """Return the label of a node whose GPUs are to be cut so."""
    return (MIG_CONFIG, cut.name) if cut.isolated else (DEVICE_PLUGIN_CONFIG, _config_name(cut))


def _config_name(cut: Cut) -> str:
    """Return the configuration's name; on nodes of one GPU, where several slices may be asked for, it is another one."""
    several = "" if len(cut.gpus) == 1 else "-each"
    return f"{cut.kinds[0].isolation}-{cut.per_gpu}{several}"


GKE_LABEL = "cloud.google.com/gke-"
"""What GKE puts before an option of its node pools where it labels their nodes with it."""
GKE_STRATEGIES = {Isolation.TIME_SLICING: "time-sharing", Isolation.MPS: "mps"}
GKE_MOST_CLIENTS = 48


def gke_cut(cut: Cut) -> dict[str, str]:
    """Return how GKE is told to cut the GPUs of a node pool, by option of `--accelerator`; its own plugin then does it.

    Each slot is `nvidia.com/gpu: 1` to a pod, and nodes carry the options as labels. Source: GKE, "Run multi-instance GPUs",
    "Share GPUs with multiple workloads using GPU time-sharing", "... using NVIDIA MPS".
    """
    if cut.isolated:
        return {"gpu-partition-size": cut.kinds[0].profile}
    strategy = GKE_STRATEGIES[cut.kinds[0].kept_apart_by]
    return {"gpu-sharing-strategy": strategy, "max-shared-clients-per-gpu": str(cut.per_gpu)}


def sharing_configs(cuts: Sequence[Cut], actions: Sequence[Action]) -> dict[str, Plain]:
    """Return the device plugin's ConfigMap with a configuration for each way of sharing."""
    configs: dict[str, Plain] = {NO_SHARING: yaml.safe_dump({"version": "v1"}, sort_keys=False)}
    configs |= {
        _config_name(cut): yaml.safe_dump(_config(cut), sort_keys=False) for cut in sorted(cuts, key=_config_name)
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(CONFIGS, actions, namespace=OPERATOR_NAMESPACE),
        "data": configs,
    }


def _config(cut: Cut) -> dict[str, object]:
    shares = [{"name": "nvidia.com/gpu", "replicas": cut.per_gpu}]
    if cut.kinds[0].kept_apart_by is Isolation.MPS:
        sharing: dict[str, object] = {"mps": {"renameByDefault": True, "resources": shares}}
    else:
        # on nodes with one GPU a replica that needs the memory of several slices asks for as many
        several = {"renameByDefault": True, "failRequestsGreaterThanOne": len(cut.gpus) > 1}
        sharing = {"timeSlicing": {**several, "resources": shares}}
    return {"version": "v1", "flags": {"migStrategy": "none"}, "sharing": sharing}
