"""What a pod asks for: CPU, memory and GPUs, as the scheduler adds them up.

A pod needs the larger of the sum of its containers and any one init container; an init container that restarts always (a
sidecar) runs beside them and counts with the sum. Source: kubernetes.io/docs/concepts/workloads/pods/init-containers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trimtab.sources.kube_objects import Object, at, listed, text
from trimtab.sources.kube_pods import mig_share
from trimtab.sources.kube_quantity import quantity

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "nvidia.com/gpu.shared")
MIG_PREFIX = "nvidia.com/mig-"
_WHOLE = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a pod asks for and is allowed; None where it does not say."""

    gpu_resource: str | None
    gpu_pieces: float
    """Pieces of `gpu_resource`: boards, MIG instances or shares."""
    cpu_request: float | None
    cpu_limit: float | None
    memory_request_bytes: float | None
    memory_limit_bytes: float | None

    def gpus(self, product: str, replicas: float) -> float:
        """Return the boards' worth of GPUs; `replicas` is how many shares one board is advertised as (1 = not shared)."""
        if self.gpu_resource is None:
            return 0.0
        if self.gpu_resource.startswith(MIG_PREFIX):
            return self.gpu_pieces * mig_share(self.gpu_resource.removeprefix(MIG_PREFIX), product)
        return self.gpu_pieces / max(replicas, _WHOLE)


def is_gpu_resource(name: str) -> bool:
    """Tell whether an extended resource is a GPU, a share of one or a MIG instance."""
    return name in GPU_RESOURCES or name.startswith(MIG_PREFIX)


def asked_by(spec: object) -> Asked:
    """Return what a pod spec asks for; a GPU counts by its limit where no request is stated, for the two must be equal."""
    requests = _needed(spec, "requests")
    limits = _needed(spec, "limits")
    gpus = {name: amount for name, amount in (limits | requests).items() if is_gpu_resource(name) and amount > 0}
    resource = max(sorted(gpus), key=lambda name: gpus[name], default=None)
    return Asked(
        gpu_resource=resource,
        gpu_pieces=gpus[resource] if resource else 0.0,
        cpu_request=requests.get("cpu"),
        cpu_limit=limits.get("cpu"),
        memory_request_bytes=requests.get("memory"),
        memory_limit_bytes=limits.get("memory"),
    )


def _needed(spec: object, which: str) -> dict[str, float]:
    init = listed(spec, "initContainers")
    sidecars = [one for one in init if text(one, "restartPolicy") == "Always"]
    together = _sum([*listed(spec, "containers"), *sidecars], which)
    alone = [_amounts(one, which) for one in init if text(one, "restartPolicy") != "Always"]
    for amounts in alone:
        for name, amount in amounts.items():
            together[name] = max(together.get(name, 0.0), amount)
    return together


def _sum(containers: Sequence[Object], which: str) -> dict[str, float]:
    """Add up containers; a limit that one of them lacks is no limit for the pod."""
    total: dict[str, float] = {}
    each = [_amounts(one, which) for one in containers]
    for amounts in each:
        for name, amount in amounts.items():
            total[name] = total.get(name, 0.0) + amount
    if which == "limits":
        total = {
            name: amount
            for name, amount in total.items()
            if is_gpu_resource(name) or all(name in amounts for amounts in each)
        }
    return total


def _amounts(container: Object, which: str) -> dict[str, float]:
    stated = at(container, "resources", which)
    if not isinstance(stated, Mapping):
        return {}
    amounts = {str(name): quantity(value) for name, value in stated.items()}
    return {name: amount for name, amount in amounts.items() if amount is not None}


def gpu_containers_of(spec: object) -> str | None:
    """Return which containers of a pod spec ask for GPUs, by place, and where they say so: `0:limits+requests`."""
    found = []
    for place, container in enumerate(listed(spec, "containers")):
        said = [which for which in ("limits", "requests") if any(map(is_gpu_resource, _amounts(container, which)))]
        if said:
            found.append(f"{place}:{'+'.join(said)}")
    return joined(found)


def images_of(spec: object) -> str | None:
    """Return the images of a pod spec's containers, comma separated."""
    return joined(text(one, "image") for one in listed(spec, "containers"))


def joined(items: Iterable[str]) -> str | None:
    """Return distinct texts comma separated, or None where there are none."""
    return ",".join(dict.fromkeys(item for item in items if item)) or None
