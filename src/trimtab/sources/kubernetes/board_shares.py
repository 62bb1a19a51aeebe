"""Pods that hold a part of a board: what HAMi, Volcano, KAI and Run:ai wrote on pods and nodes, else what the pods ask for.

A pod's part of a board is the largest part of any of its capacities (memory, compute) that is set aside for it, as for claimed
devices with capacities (`ResourceClaims`). Where the parts of a board add up to more than it, all are scaled down to it.

Annotations and resources, as published:

- HAMi (Project-HAMi/HAMi, docs/develop/protocol.md; pkg/device/devices.go, nvidia/device.go): pods carry
  `hami.io/vgpu-devices-allocated`, a container each ended by `;`, a device each ended by `:`, of UUID, kind, MiB and per cent
  of compute; nodes carry `hami.io/node-nvidia-register`, JSON or text with the UUID first and MiB third. Containers ask for
  `nvidia.com/gpu` boards with `gpumem` (MiB), `gpumem-percentage` or `gpucores` (per cent) of each. Volcano's device plugin is
  made from the same code (volcano.sh/vgpu-ids-new, node-vgpu-register, vgpu-number, vgpu-memory, vgpu-cores).
- KAI (kai-scheduler/KAI-Scheduler, docs/gpu-sharing; pkg/common/constants): `gpu-fraction` or `gpu-memory` (MiB) of each of
  `gpu-fraction-num-devices`; the label `runai-gpu-group` names the reservation pod that has the whole board and whose
  `run.ai/reserve_for_gpu_index` is its UUID. Run:ai's own scheduler uses the same names, in the namespace `runai-reservation`.
- NVIDIA vGPU under KubeVirt (kubevirt.io/user-guide/compute/host-devices): resources named by type, as nvidia.com/GRID_T4-2Q:
  2 GB of the board.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from trimtab.sources.kubernetes.holds import DeviceShare
from trimtab.sources.kubernetes.nodes import BOARD_RESOURCES
from trimtab.sources.kubernetes.objects import Object, Objects, at, listed, mapping, namespace_and_name, quantity, text
from trimtab.sources.prometheus.gpu_series import Tally
from trimtab.units import BYTES_PER_MIB, MIB_PER_GIB

_REGISTERS = ("hami.io/node-nvidia-register", "volcano.sh/node-vgpu-register")
_ALLOCATED = ("hami.io/vgpu-devices-allocated", "hami.io/vgpu-devices-to-allocate", "volcano.sh/vgpu-ids-new")
"""In the order in which they count."""
_FRACTION, _MEMORY, _DEVICES = "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"
_GROUP = "runai-gpu-group"
_RESERVED = "run.ai/reserve_for_gpu_index"
_RECEIVED = "received-resource-type"
RESERVATION_NAMESPACES = frozenset({"kai-resource-reservation", "runai-reservation"})
_WHOLE_SCHEDULERS = frozenset({"", "default-scheduler"})
"""Schedulers that read no fractions."""
_VGPU = re.compile(r"^nvidia\.com/(?P<board>(?:NVIDIA|GRID)[_-].+)-(?P<gb>\d+)[ABCQ]$")
_BOARD_GB_STEP = 8
"""Memory of boards is sold in multiples of it; what a driver shows is a little less."""
_MOST_MIB = MIB_PER_GIB * 1024
"""More on a label of feature discovery is bytes (NVIDIA/gpu-feature-discovery, issue 26)."""
_WHOLE = 1.0
_PERCENT = 100.0
_DONE = frozenset({"Succeeded", "Failed"})

Named = tuple[str, str]
"""Namespace and name."""
MemoryOf = Callable[[str], float | None]
"""Product name -> GiB of a board, None where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartNames:
    """The resources by which containers ask for parts of boards."""

    boards: str
    memory_mib: str
    memory_percent: str
    compute_percent: str


_HAMI = PartNames(
    boards="nvidia.com/gpu",
    memory_mib="nvidia.com/gpumem",
    memory_percent="nvidia.com/gpumem-percentage",
    compute_percent="nvidia.com/gpucores",
)
_VOLCANO = PartNames(
    boards="volcano.sh/vgpu-number",
    memory_mib="volcano.sh/vgpu-memory",
    memory_percent="volcano.sh/vgpu-memory-percentage",
    compute_percent="volcano.sh/vgpu-cores",
)
PART_NAMES = (_HAMI, _VOLCANO)
"""A number of boards with none of the others beside it is of whole boards."""


def part_of_board(
    amounts: Mapping[str, float], names: PartNames, board_mib: float | None, tally: Tally
) -> float | None:
    """Return the boards' worth that a container asks for by parts; None where it asks for no part.

    >>> asked = {"nvidia.com/gpu": 2.0, "nvidia.com/gpumem-percentage": 50.0, "nvidia.com/gpucores": 30.0}
    >>> part_of_board(asked, PART_NAMES[0], None, Tally())
    1.0
    """
    memory, percent, compute = (
        amounts.get(name, 0.0) for name in (names.memory_mib, names.memory_percent, names.compute_percent)
    )
    if not (memory or percent or compute):
        return None
    part = _WHOLE
    if memory and board_mib:
        part = memory / board_mib
    elif memory:
        tally.count("pods that ask for MiB of boards whose memory is not known, counted as whole boards")
    elif percent:
        part = percent / _PERCENT
    return amounts.get(names.boards, _WHOLE) * min(max(part, compute / _PERCENT), _WHOLE)


def boards_of_cores(cores: float, per_board: float | None, tally: Tally) -> float:
    """Return the chips' worth of NeuronCores; `per_board` is how many a chip of the node has, None where it does not tell."""
    if not per_board:
        tally.count(
            "pods that ask for NeuronCores on nodes that do not say how many a chip has, counted as whole chips"
        )
        return cores
    return cores / per_board


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBoards:
    """What a node says about its boards."""

    memory_mib: Mapping[str, float] = field(default_factory=dict)
    """Board's UUID -> what HAMi or Volcano hands out of it."""
    any_mib: float | None = None
    """Of a board whose UUID is not named."""

    def of(self, uuid: str) -> float | None:
        """Return what a board has to hand out, in MiB; None where it is not stated."""
        return self.memory_mib.get(uuid, self.any_mib)


def registered_boards(node: Object, tally: Tally) -> dict[str, float]:
    """Return the MiB of each board, by UUID, that HAMi or Volcano registered on a node; what cannot be read is counted."""
    notes = mapping(node, "metadata", "annotations")
    found: dict[str, float] = {}
    for name in _REGISTERS:
        for uuid, memory in _registered(notes.get(name, "")):
            mib = quantity(memory)
            if uuid and mib:
                found[uuid] = mib
            else:
                tally.count(f"boards in the annotation {name} that could not be read")
    return found


def _registered(register: str) -> Iterator[tuple[str, object]]:
    if register.lstrip().startswith("["):
        try:
            boards = json.loads(register)
        except (ValueError, RecursionError):
            boards = [None]
        for board in boards:
            yield text(board, "id"), at(board, "devmem")
        return
    for board in filter(None, register.split(":")):
        fields = board.split(",")
        yield (fields[0], fields[2]) if len(fields) > 2 else ("", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardShares:
    """The pods of a snapshot that hold parts of boards, and those that only reserve boards for them."""

    pods: Mapping[Named, tuple[DeviceShare, ...]] = field(default_factory=dict)
    reserves_for: Mapping[Named, tuple[Named, ...]] = field(default_factory=dict)
    """Reservation pod -> the pods that were read and are in its group."""

    def of(self, namespace: str, pod: str) -> tuple[DeviceShare, ...] | None:
        """Return a pod's parts of boards; None where it holds whole boards, instances, or nothing."""
        return self.pods.get((namespace, pod))


def board_shares(objects: Objects, memory_of: MemoryOf, tally: Tally) -> BoardShares:
    """Return who holds parts of boards; what has to be assumed is counted."""
    nodes = {text(node, "metadata", "name"): _node_boards(node, memory_of, tally) for node in objects.of("Node")}
    reserved = {group: pod for pod in objects.of("Pod") if is_reservation(pod) for group in _groups(pod)}
    found: dict[Named, tuple[DeviceShare, ...]] = {}
    members: dict[str, list[Named]] = defaultdict(list)
    for pod in objects.of("Pod"):
        if is_reservation(pod):
            continue
        shares = _shares(pod, nodes.get(text(pod, "spec", "nodeName"), NodeBoards()), reserved, tally)
        if shares is not None:
            found[namespace_and_name(pod)] = shares
            for group in _groups(pod):
                members[group].append(namespace_and_name(pod))
    alive = {namespace_and_name(pod) for pod in objects.of("Pod") if text(pod, "status", "phase") not in _DONE}
    reservations = {namespace_and_name(pod): tuple(members.get(group, ())) for group, pod in reserved.items()}
    tally.count(
        "boards reserved for fractions whose pods were not read: they count as held by their reservation",
        sum(1 for name, pods in reservations.items() if not pods and name in alive),
    )
    return BoardShares(pods=_within_boards(found, alive, tally), reserves_for=reservations)


def _within_boards(
    found: Mapping[Named, tuple[DeviceShare, ...]], alive: set[Named], tally: Tally
) -> dict[Named, tuple[DeviceShare, ...]]:
    """Return the parts, scaled down where those of one board add up to more than it."""
    total: dict[str, float] = defaultdict(float)
    for pod in alive & found.keys():
        for share in found[pod]:
            if share.device is not None:
                total[share.device] += share.gpus
    over = {device: held for device, held in total.items() if held > _WHOLE + 1e-9}
    tally.count("boards of which more than all is set aside, shared in proportion", len(over))
    return {
        pod: tuple(
            replace(share, gpus=share.gpus / over[share.device]) if share.device in over and pod in alive else share
            for share in shares
        )
        for pod, shares in found.items()
    }


def _node_boards(node: Object, memory_of: MemoryOf, tally: Tally) -> NodeBoards:
    labels, registered = mapping(node, "metadata", "labels"), registered_boards(node, tally)
    labelled = quantity(labels.get("nvidia.com/gpu.memory"))
    if labelled and labelled > _MOST_MIB:
        labelled /= BYTES_PER_MIB
    known_gib = memory_of(labels.get("nvidia.com/gpu.product", ""))
    known = labelled or (known_gib * MIB_PER_GIB if known_gib else None)
    return NodeBoards(memory_mib=registered, any_mib=known or max(registered.values(), default=None))


def _shares(
    pod: Object, node: NodeBoards, reserved: Mapping[str, Object], tally: Tally
) -> tuple[DeviceShare, ...] | None:
    notes = mapping(pod, "metadata", "annotations")
    told = next((notes[name] for name in _ALLOCATED if notes.get(name)), None)
    if told is not None:
        try:
            return _allocated(told, pod, node, tally)
        except ValueError:
            tally.count("annotations of allocated parts that could not be read: their pods hold what they ask for")
    if _takes_fraction(pod, notes):
        return _fraction(pod, notes, node, reserved, tally)
    asked = asked_parts(at(pod, "spec"), node.any_mib, tally)
    return None if asked is None else (DeviceShare(device=None, gpus=asked),)


def _allocated(told: str, pod: Object, node: NodeBoards, tally: Tally) -> tuple[DeviceShare, ...]:
    """Return the parts that an annotation lists, a board each. Raises ValueError where it is damaged."""
    containers = [_devices(container) for container in told.removesuffix(";").split(";")]
    init = listed(pod, "spec", "initContainers")
    if len(containers) < len(init) + len(listed(pod, "spec", "containers")):
        init = []  # releases before init containers were served list the others alone
    before = {place for place, container in enumerate(init) if text(container, "restartPolicy") != "Always"}
    found = _summed(device for place, devices in enumerate(containers) if place not in before for device in devices)
    if text(pod, "status", "phase") == "Pending" or not found:
        # init containers run one after another, before the others: each board's largest counts
        for uuid, memory, compute in (device for place in before for device in containers[place]):
            kept = found.get(uuid, (0.0, 0.0))
            found[uuid] = (max(kept[0], memory), max(kept[1], compute))
    return tuple(
        DeviceShare(device=uuid, gpus=_part(used, node.of(uuid), tally)) for uuid, used in sorted(found.items())
    )


def _devices(container: str) -> list[tuple[str, float, float]]:
    """Return (UUID, MiB, per cent of compute) of each device of a container."""
    found = []
    for device in filter(None, container.split(":")):
        uuid, _, memory, compute = device.split(",")[:4]
        # a MIG instance of HAMi's older releases carries its place in brackets after the board's UUID
        found.append((uuid.partition("[")[0], float(memory), float(compute)))
    if any(not uuid or min(memory, compute) < 0 for uuid, memory, compute in found):
        raise ValueError(container)
    return found


def _summed(devices: Iterable[tuple[str, float, float]]) -> dict[str, tuple[float, float]]:
    found: dict[str, tuple[float, float]] = {}
    for uuid, memory, compute in devices:
        before = found.get(uuid, (0.0, 0.0))
        found[uuid] = (before[0] + memory, before[1] + compute)
    return found


def _part(used: tuple[float, float], board_mib: float | None, tally: Tally) -> float:
    memory, compute = used
    if board_mib is None and memory:
        tally.count("parts of boards whose memory is not known, counted by their compute, otherwise as whole boards")
        return min(compute / _PERCENT, _WHOLE) or _WHOLE
    return min(max(memory / board_mib if board_mib else 0.0, compute / _PERCENT), _WHOLE)


def _takes_fraction(pod: Object, notes: Mapping[str, str]) -> bool:
    """Return whether KAI or Run:ai gives a pod a fraction: asked for, of a scheduler that reads it, with no whole board."""
    if not (notes.get(_FRACTION) or notes.get(_MEMORY)) or notes.get(_RECEIVED) == "Regular":
        return False
    placed = bool(_groups(pod)) or notes.get(_RECEIVED) == "Fraction"
    return placed or text(pod, "spec", "schedulerName") not in _WHOLE_SCHEDULERS


def _fraction(
    pod: Object, notes: Mapping[str, str], node: NodeBoards, reserved: Mapping[str, Object], tally: Tally
) -> tuple[DeviceShare, ...]:
    asked = quantity(notes.get(_FRACTION))
    memory = quantity(notes.get(_MEMORY))
    if asked is None and memory is not None and node.any_mib:
        asked = memory / node.any_mib
    if not asked:
        tally.count("fractions of boards that could not be read, taken as whole boards")
        asked = _WHOLE
    count = int(quantity(notes.get(_DEVICES, "1")) or 1)
    boards = [_board(reserved.get(group), pod) for group in _groups(pod)][:count]
    devices = [*boards, *[None] * (count - len(boards))]
    return tuple(DeviceShare(device=device, gpus=min(asked, _WHOLE)) for device in devices)


def _board(reservation: Object | None, pod: Object) -> str | None:
    """Return the UUID that a reservation pod on a pod's node tells; older releases tell an index, which names no board."""
    if reservation is None or text(reservation, "spec", "nodeName") != text(pod, "spec", "nodeName"):
        return None
    uuid = mapping(reservation, "metadata", "annotations").get(_RESERVED, "")
    return uuid if uuid.startswith("GPU-") else None


def _groups(pod: Object) -> list[str]:
    """Return the groups of boards that a pod is in, each once."""
    labels = mapping(pod, "metadata", "labels")
    return sorted({value for name, value in labels.items() if name == _GROUP or name.startswith(f"{_GROUP}/")})


def is_reservation(pod: Object) -> bool:
    """Return whether a pod only reserves a board for fractions: whoever is in its group holds it."""
    if not _groups(pod):
        return False
    noted = _RESERVED in mapping(pod, "metadata", "annotations")
    return noted or text(pod, "metadata", "namespace") in RESERVATION_NAMESPACES


def asked_parts(spec: object, board_mib: float | None, tally: Tally) -> float | None:
    """Return the boards' worth that a pod spec asks for in parts; None where it asks for none.

    Containers that run together add up; one that runs alone before them counts by the largest.
    """
    init = listed(spec, "initContainers")
    sidecars = [container for container in init if text(container, "restartPolicy") == "Always"]
    beside = [*listed(spec, "containers"), *sidecars]
    together = [_asked(container, board_mib, tally) for container in beside]
    alone = [_asked(container, board_mib, tally) for container in init if text(container, "restartPolicy") != "Always"]
    if not any(asked.in_parts for asked in (*together, *alone)):
        return None
    return max(sum(asked.gpus for asked in together), *(asked.gpus for asked in alone), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ContainerGpus:
    gpus: float = 0.0
    in_parts: bool = False


def _asked(container: Object, board_mib: float | None, tally: Tally) -> _ContainerGpus:
    """Return what a container asks for, in boards' worth, and whether any of it is a part of a board."""
    resources = at(container, "resources")
    amounts = {**_amounts(resources, "requests"), **_amounts(resources, "limits")}
    for names in PART_NAMES:
        part = part_of_board(amounts, names, board_mib, tally)
        if part is not None:
            return _ContainerGpus(gpus=part, in_parts=True)
    if amounts.get(_VOLCANO.boards):
        return _ContainerGpus(gpus=amounts[_VOLCANO.boards], in_parts=True)
    vgpus = [amount * share for name, amount in amounts.items() if (share := vgpu_share(name, board_mib)) is not None]
    return _ContainerGpus(gpus=sum(vgpus) or amounts.get("nvidia.com/gpu", 0.0), in_parts=bool(vgpus))


def _amounts(resources: object, which: str) -> dict[str, float]:
    stated = at(resources, which)
    read = {str(name): quantity(value) for name, value in stated.items()} if isinstance(stated, Mapping) else {}
    return {name: amount for name, amount in read.items() if amount is not None}


def vgpu_share(resource: str, board_mib: float | None) -> float | None:
    """Return the part of a board that a vGPU type named by a resource holds; None where the resource names none.

    >>> vgpu_share("nvidia.com/GRID_T4-2Q", 15360.0)
    0.125
    """
    named = _VGPU.match(resource)
    if named is None or int(named["gb"]) == 0:
        return None
    if board_mib is None:
        return _WHOLE
    board_gb = math.ceil(board_mib / MIB_PER_GIB / _BOARD_GB_STEP) * _BOARD_GB_STEP
    return min(int(named["gb"]) / board_gb, _WHOLE)


def vgpu_boards(capacity: Mapping[str, str], board_mib: float | None) -> int:
    """Return the fewest boards that hold the vGPUs of a node's capacity."""
    parts = [
        (quantity(count) or 0.0) * share
        for name, count in capacity.items()
        if (share := vgpu_share(name, board_mib)) is not None
    ]
    return math.ceil(sum(parts) - 1e-9)


_NVIDIA = "nvidia.com/"
_MIG = "nvidia.com/mig-"
_NO_BOARD = re.compile(r"gpumem|gpucores|priority|rdma|hca|nic|hostdev|mlnx|sriov|resib|[-_]vf", re.IGNORECASE)
"""In names of resources beside boards: parts of them (HAMi), and network devices of NVIDIA's network operator."""


def renamed_boards(node: Object) -> dict[str, float]:
    """Return by how many pieces of each resource a node's device plugin advertises a board under another name; mostly none."""
    boards = quantity(mapping(node, "metadata", "labels").get("nvidia.com/gpu.count"))
    capacity = {name: quantity(count) or 0.0 for name, count in mapping(node, "status", "capacity").items()}
    return pieces_of_boards(capacity, boards or 0.0)


def pieces_of_boards(capacity: Mapping[str, float], boards: float) -> dict[str, float]:
    """Return by how many pieces of each resource a node of so many boards advertises one, where no name is the usual one.

    The plugin's configuration may rename resources (NVIDIA/k8s-device-plugin, `resources.gpus` and `rename` of `sharing`). So
    it is where no board is advertised under its usual name, and what is there under others is as many for each.

    >>> pieces_of_boards({"nvidia.com/gpu": 0.0, "nvidia.com/a100": 4.0, "nvidia.com/a100-debug": 4.0}, 8)
    {'nvidia.com/a100': 1.0, 'nvidia.com/a100-debug': 1.0}
    """
    usual = any(count and (name in BOARD_RESOURCES or name.startswith(_MIG)) for name, count in capacity.items())
    others = {
        name: count
        for name, count in capacity.items()
        if count and name.startswith(_NVIDIA) and not _NO_BOARD.search(name) and vgpu_share(name, None) is None
    }
    pieces = sum(others.values())
    if not boards or usual or not pieces or pieces % boards:
        return {}
    return dict.fromkeys(others, pieces / boards)
