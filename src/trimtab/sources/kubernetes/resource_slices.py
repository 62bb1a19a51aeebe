"""The GPUs that ResourceSlices of dynamic resource allocation describe: boards, MIG instances, on which node each sits.

Fields: kubernetes.io/docs/reference/kubernetes-api, resource.k8s.io v1 (Kubernetes 1.34), v1beta2, and v1beta1, whose devices
hold theirs under `basic`. Attributes: NVIDIA's DRA driver (NVIDIA/k8s-dra-driver-gpu, cmd/gpu-kubelet-plugin/deviceinfo.go,
`type`, `uuid`, `parentUUID`, `productName`, `profile`); AMD's (ROCm/k8s-gpu-dra-driver, `type`, `productName`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from trimtab.sources.kubernetes.holds import mig_share
from trimtab.sources.kubernetes.objects import Object, Objects, at, listed, number, quantity, text
from trimtab.sources.prometheus.gpu_series import Tally
from trimtab.units import BYTES_PER_GIB

NVIDIA_DRIVER = "gpu.nvidia.com"
GPU_DRIVERS = frozenset({NVIDIA_DRIVER, "gpu.amd.com", "gpu.intel.com"})
"""Drivers whose devices are GPUs; others hand out network cards, compute domains, CPUs."""
_PCI_BUS = ("resource.kubernetes.io/pciBusID", "resource.kubernetes.io/pcieBusID")
"""The bus address of a board, which its MIG instances repeat; the second is how drivers before 25.12 spelled it."""
_MIG_NAME = re.compile(r"(?P<board>.+)-mig-(?P<slices>\d+)g(?P<memory>\d+)gb")
"""How NVIDIA's driver names an instance, `gpu-0-mig-1g5gb-19-0` (ToCanonicalName in cmd/gpu-kubelet-plugin/mig.go)."""
_USES = "consumesCounters"
_WHOLE = 1.0

DeviceKey = tuple[str, str, str]
"""Driver, pool, device: what an allocation names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimableGpu:
    """A device of a GPU driver: a board, or a part of one."""

    key: DeviceKey
    node: str | None
    """None where it is not bound to one node."""
    board: str
    """What tells its board from the others of its pool."""
    product: str = ""
    profile: str = ""
    """Of a MIG instance."""
    uuid: str = ""
    """Of the board as DCGM names it; empty for MIG instances, which DCGM numbers otherwise."""
    memory_gib: float | None = None
    share: float = _WHOLE
    """Boards' worth of GPU that whoever has all of it holds."""
    capacity: Mapping[str, float] = field(default_factory=dict)
    """Of what several claims may take parts of, in base units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimableGpus:
    """The GPUs of all slices that are in force."""

    devices: Mapping[DeviceKey, ClaimableGpu] = field(default_factory=dict)

    def of(self, key: DeviceKey) -> ClaimableGpu | None:
        """Return the GPU that an allocation names, as far as its own name tells where no slice does; None where it is none."""
        if key in self.devices or key[0] not in GPU_DRIVERS:
            return self.devices.get(key)
        named = _MIG_NAME.match(key[2])
        profile = f"{named['slices']}g.{named['memory']}gb" if named else ""
        # NVIDIA's and AMD's drivers call the pool of a node by the node's name
        return ClaimableGpu(
            key=key,
            node=key[1],
            board=named["board"] if named else key[2],
            profile=profile,
            share=mig_share(profile, "") if profile else _WHOLE,
        )

    def on(self, node: str) -> list[ClaimableGpu]:
        """Return the GPUs of a node."""
        return [gpu for gpu in self.devices.values() if gpu.node == node]

    def boards_on(self, node: str) -> int:
        """Return how many boards a node has: instances of one board count once."""
        return len({(gpu.key[0], gpu.board) for gpu in self.on(node)})

    def product_on(self, node: str) -> str | None:
        """Return the product name of a node's boards."""
        return next((gpu.product for gpu in self.on(node) if gpu.product), None)


def claimable_gpus(objects: Objects, tally: Tally) -> ClaimableGpus:
    """Return the GPUs of the newest generation of every pool; what of them cannot be read is counted."""
    found: dict[DeviceKey, ClaimableGpu] = {}
    for (driver, pool), slices in _pools(objects).items():
        if driver not in GPU_DRIVERS:
            tally.count(f"devices of the driver {driver}, which are no GPUs", sum(map(_devices_in, slices)))
            continue
        stated = max(number(piece, "spec", "pool", "resourceSliceCount") or 0.0 for piece in slices)
        tally.count("pools of GPUs of which not every ResourceSlice was read", int(len(slices) < stated))
        totals = _counters(slices)
        for piece in slices:
            for device in listed(piece, "spec", "devices"):
                gpu = _gpu(device, piece, (driver, pool, text(device, "name")), totals)
                found[gpu.key] = gpu
                unmeasured = "partition" in _kind(device, driver) and not listed(at(device, "basic") or device, _USES)
                tally.count("parts of boards that state no counters, taken as whole boards", int(unmeasured))
    return ClaimableGpus(devices=found)


def _pools(objects: Objects) -> dict[tuple[str, str], list[Object]]:
    """Return the slices of each pool of a driver; those of an older generation are no longer in force."""
    pools: dict[tuple[str, str], list[Object]] = defaultdict(list)
    for piece in objects.of("ResourceSlice"):
        pools[text(piece, "spec", "driver"), text(piece, "spec", "pool", "name")].append(piece)
    return {key: [piece for piece in pieces if _age(piece) == max(map(_age, pieces))] for key, pieces in pools.items()}


def _age(piece: Object) -> float:
    return number(piece, "spec", "pool", "generation") or 0.0


def _devices_in(piece: Object) -> int:
    return len(listed(piece, "spec", "devices"))


def _counters(slices: list[Object]) -> dict[tuple[str, str], float]:
    """Return the amounts that the devices of a pool share: (counter set, counter) -> amount."""
    return {
        (text(counters, "name"), name): amount
        for piece in slices
        for counters in listed(piece, "spec", "sharedCounters")
        for name, amount in _amounts(at(counters, "counters"))
    }


def _amounts(stated: object) -> Iterator[tuple[str, float]]:
    for name, body in stated.items() if isinstance(stated, Mapping) else ():
        amount = quantity(at(body, "value"))
        if amount is not None:
            yield str(name), amount


def _gpu(device: Object, piece: Object, key: DeviceKey, totals: Mapping[tuple[str, str], float]) -> ClaimableGpu:
    body = at(device, "basic") or device
    told = _attributes(body, key[0])
    product, profile = told.get("productName", ""), told.get("profile", "")
    capacity = {name.removeprefix(f"{key[0]}/"): amount for name, amount in _amounts(at(body, "capacity"))}
    uuid = told.get("uuid", "")
    named = _MIG_NAME.match(key[2])
    places = (*(told.get(name, "") for name in _PCI_BUS), told.get("parentUUID", ""), uuid)
    return ClaimableGpu(
        key=key,
        node=text(piece, "spec", "nodeName") or text(body, "nodeName") or _named_node(piece, body),
        board=next(filter(None, places), named["board"] if named else key[2]),
        product=product.replace("_", " "),
        profile=profile if told.get("type") == "mig" else "",
        uuid="" if profile else uuid,
        memory_gib=capacity["memory"] / BYTES_PER_GIB if "memory" in capacity else None,
        share=mig_share(profile, product) if told.get("type") == "mig" else _share_of_counters(body, totals),
        capacity=capacity if at(body, "allowMultipleAllocations") is True else {},
    )


def _kind(device: Object, driver: str) -> str:
    return _attributes(at(device, "basic") or device, driver).get("type", "")


def _attributes(body: object, driver: str) -> dict[str, str]:
    """Return a device's attributes that are texts or versions; the driver's own may carry its name or not."""
    found = {}
    stated = at(body, "attributes")
    for name, value in stated.items() if isinstance(stated, Mapping) else ():
        said = text(value, "string") or text(value, "version")
        if said:
            found[str(name).removeprefix(f"{driver}/")] = said
    return found


def _named_node(piece: Object, body: object) -> str | None:
    """Return the one node that a selector leaves: by its name, or its host name."""
    for source in (body, at(piece, "spec")):
        for term in listed(source, "nodeSelector", "nodeSelectorTerms"):
            for need in (*listed(term, "matchFields"), *listed(term, "matchExpressions")):
                values = at(need, "values")
                named = text(need, "key") in ("metadata.name", "kubernetes.io/hostname")
                if named and text(need, "operator") == "In" and isinstance(values, list) and len(values) == 1:
                    return str(values[0])
    return None


def _share_of_counters(body: object, totals: Mapping[tuple[str, str], float]) -> float:
    """Return the largest part of any counter of its board that a device uses up; 1 where it uses none."""
    parts = [
        amount / totals[text(used, "counterSet"), name]
        for used in listed(body, _USES)
        for name, amount in _amounts(at(used, "counters"))
        if totals.get((text(used, "counterSet"), name))
    ]
    return min(max(parts, default=_WHOLE), _WHOLE)
