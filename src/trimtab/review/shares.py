"""Parts of GPUs that pods ask for: MIG slices, MPS shares and time slices, whole GPUs of nodes that several workloads share.

What one part is follows from three objects: the pod asks for an amount of an extended resource, the node's label picks a
configuration of the device plugin, and a ConfigMap says how many parts that makes of a GPU (NVIDIA/k8s-device-plugin, README,
"Shared Access to GPUs" and "Configuration Option Details"). A MIG slice says by its own name what it is
(docs.nvidia.com/datacenter/cloud-native/kubernetes/latest/mig-k8s.html, strategy `mixed`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trimtab.catalog.kinds import Isolation
from trimtab.deployment.effects import UseSlots
from trimtab.deployment.placement import slot_gpus
from trimtab.emit.manifests.gpu_sharing import SHARED_GPU
from trimtab.errors import InputError
from trimtab.fleet.market import Market, Offering
from trimtab.fleet.model import Workload
from trimtab.fleet.settings import Assumptions
from trimtab.inputs.documents import load_yaml
from trimtab.levers.sharing import slots_on
from trimtab.review.pools import GPU, GpuSharing, object_at
from trimtab.sources.kubernetes.objects import Object, at, listed, text

MIG_SLICE = "nvidia.com/mig-"
_SHARING = {"timeSlicing": Isolation.TIME_SLICING, "mps": Isolation.MPS}


def sharing_configs(config_map: Object) -> Iterator[tuple[str, GpuSharing | None]]:
    """Yield the configurations of the device plugin in a ConfigMap, None for those that share nothing; else nothing."""
    for name, body in object_at(config_map, "data").items():
        if not isinstance(body, str) or "version:" not in body:
            continue
        try:
            config = load_yaml(body, str(name))
        except InputError:
            continue  # data of another program
        if isinstance(config, Mapping) and text(config, "version") == "v1":
            yield str(name), _sharing(config)


def _sharing(config: Object) -> GpuSharing | None:
    for key, isolation in _SHARING.items():
        for resource in listed(config, "sharing", key, "resources"):
            count, renamed = at(resource, "replicas"), at(config, "sharing", key, "renameByDefault") is True
            if text(resource, "name") == GPU and isinstance(count, int) and count > 1:
                name = text(resource, "rename") or (SHARED_GPU if renamed else GPU)
                return GpuSharing(isolation=isolation, per_gpu=count, resource=name)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedShare:
    """So many of a resource that is a part of a GPU, or of a node, for each pod; `sharing` of shares without isolation."""

    resource: str
    count: int
    sharing: GpuSharing | None

    def is_of(self, slot: UseSlots) -> bool:
        """Return whether a slot is what is asked for."""
        shared = slot.shared
        if self.sharing is not None:
            mine = (shared.kept_apart_by, slot.per_gpu, slot.slots)
            return not shared.profile and mine == (self.sharing.isolation, self.sharing.per_gpu, self.count)
        if self.resource.startswith(MIG_SLICE):
            return shared.profile == self.resource.removeprefix(MIG_SLICE) and slot.slots == self.count
        return shared.is_isolated and not shared.profile and slot.slots == slot_gpus(self.count)


def slot_of(
    asked: AskedShare,
    workload: Workload,
    offering: Offering,
    market: Market,
    assumptions: Assumptions,
    busy_frac: float,
) -> UseSlots | None:
    """Return the slot that a pod gets on a node, None where it is not known how the workload would run in one.

    Of time slices those whose neighbours are busy for `busy_frac` of an hour at most, or the next busier ones.
    """
    slots = [slot for slot in slots_on(workload, offering, market, assumptions) if asked.is_of(slot)]
    slots.sort(key=lambda slot: slot.shared.busy_frac)
    return next((slot for slot in slots if slot.shared.busy_frac >= busy_frac), slots[-1] if slots else None)
