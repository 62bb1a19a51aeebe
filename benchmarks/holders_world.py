"""Generated clusters whose pods' parts of each board are drawn first and then written down as each system writes them.

Nothing here is shared with the readers that are measured: objects are plain dictionaries, shares are drawn numbers.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]
MADE = "2026-09-01T00:00:00Z"
MIB = 81920
PRODUCT = "NVIDIA-H100-80GB-HBM3"
BOARDS = 8
PROFILES = {"1g.10gb": 1, "2g.20gb": 2, "3g.40gb": 3, "4g.40gb": 4, "7g.80gb": 7}


@dataclass
class World:
    """Objects of a cluster, and who holds how much of which board: pod -> board (empty where nobody tells) -> share."""

    objects: list[Object] = field(default_factory=list)
    boards: dict[str, str] = field(default_factory=dict)
    """Board -> node."""
    truth: dict[str, dict[str, float]] = field(default_factory=dict)

    def give(self, pod: str, board: str, share: float) -> None:
        """Note a share."""
        held = self.truth.setdefault(pod, {})
        held[board] = held.get(board, 0.0) + share


def thing(kind: str, name: str, namespace: str = "", api: str = "v1", **more: Any) -> Object:
    """Return an object."""
    meta = {"name": name, "creationTimestamp": MADE} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api, "kind": kind, "metadata": meta | more.pop("metadata", {}), **more}


def pod(name: str, node: str, *, limits: list[Object] | None = None, namespace: str = "ml", **more: Any) -> Object:
    """Return a running pod of one container for each of `limits`."""
    containers = [{"name": f"c{at}", "resources": {"limits": asked}} for at, asked in enumerate(limits or [{}])]
    placed = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": MADE}]
    spec = {"nodeName": node, "containers": containers, **more.pop("spec", {})}
    return thing("Pod", name, namespace, spec=spec, status={"phase": "Running", "conditions": placed}, **more)


def node(name: str, capacity: Object, labels: Object | None = None, notes: Object | None = None) -> Object:
    """Return a node."""
    told = {"node.kubernetes.io/instance-type": "p5.48xlarge", "topology.kubernetes.io/region": "us-east-1"}
    told |= {"nvidia.com/gpu.product": PRODUCT, "nvidia.com/gpu.memory": str(MIB)} if labels is None else labels
    return thing(
        "Node",
        name,
        metadata={"labels": told, "annotations": notes or {}},
        status={"capacity": {"cpu": "192", **capacity}},
    )


def boards_of(world: World, name: str) -> list[str]:
    """Return the boards of a new node."""
    found = [f"GPU-{name}-{at}" for at in range(BOARDS)]
    world.boards |= dict.fromkeys(found, name)
    return found


def split(rng: random.Random, most: int) -> list[int]:
    """Return parts of a hundred, at least one, that add up to no more than it."""
    left, parts = 100, []
    for _ in range(rng.randint(1, most)):
        if left < 5:
            break
        parts.append(rng.randint(5, left))
        left -= parts[-1]
    return parts


def whole(world: World, name: str, rng: random.Random) -> None:
    """Whole boards by the usual device plugin; nobody tells which."""
    boards_of(world, name)
    world.objects.append(node(name, {"nvidia.com/gpu": str(BOARDS)}))
    for at in range(rng.randint(0, 4)):
        count = rng.choice([1, 2])
        world.objects.append(pod(f"{name}-whole-{at}", name, limits=[{"nvidia.com/gpu": str(count)}]))
        world.give(f"{name}-whole-{at}", "", float(count))


def sliced(world: World, name: str, rng: random.Random) -> None:
    """Time-slicing or MPS: each board advertised several times, under its name or as `.shared`, by NVIDIA's plugin or GKE's."""
    boards_of(world, name)
    times = rng.choice([2, 4, 10])
    resource = rng.choice(["nvidia.com/gpu", "nvidia.com/gpu.shared"])
    labels = {"nvidia.com/gpu.product": f"{PRODUCT}-SHARED", "nvidia.com/gpu.replicas": str(times)}
    if rng.random() < 0.3:
        resource, labels = "nvidia.com/gpu", {"cloud.google.com/gke-max-shared-clients-per-gpu": str(times)}
    world.objects.append(node(name, {resource: str(BOARDS * times)}, labels))
    for at in range(rng.randint(1, 8)):
        world.objects.append(pod(f"{name}-slice-{at}", name, limits=[{resource: "1"}]))
        world.give(f"{name}-slice-{at}", "", 1 / times)


def mig(world: World, name: str, rng: random.Random) -> None:
    """MIG instances as resources of their own."""
    boards_of(world, name)
    capacity = {f"nvidia.com/mig-{profile}": "8" for profile in PROFILES}
    labels = {"nvidia.com/gpu.product": PRODUCT, "nvidia.com/gpu.count": str(BOARDS)}
    world.objects.append(node(name, capacity, labels))
    for at in range(rng.randint(1, 6)):
        profile = rng.choice(list(PROFILES))
        world.objects.append(pod(f"{name}-mig-{at}", name, limits=[{f"nvidia.com/mig-{profile}": "1"}]))
        world.give(f"{name}-mig-{at}", "", PROFILES[profile] / 7)


def by_parts(world: World, name: str, rng: random.Random, *, volcano: bool) -> None:
    """HAMi or Volcano: memory and compute set aside by annotation; what is promised of a board beyond it is scaled down."""
    boards = boards_of(world, name)
    scaling = rng.choice([1, 1, 2])
    form = "text" if volcano else rng.choice(["json", "text"])
    if volcano:
        register = "".join(f"{board},10,{MIB * scaling},NVIDIA-{PRODUCT},true,hami-core:" for board in boards)
    elif form == "text":
        register = "".join(f"{board},10,{MIB * scaling},100,NVIDIA-{PRODUCT},0,true:" for board in boards)
    else:
        rows = [
            {"id": board, "index": at, "count": 10, "devmem": MIB * scaling, "devcore": 100}
            for at, board in enumerate(boards)
        ]
        register = json.dumps(rows)
    note = "volcano.sh/node-vgpu-register" if volcano else "hami.io/node-nvidia-register"
    resource = "volcano.sh/vgpu-number" if volcano else "nvidia.com/gpu"
    world.objects.append(node(name, {resource: str(BOARDS * 10)}, {}, {note: register}))
    drawn: dict[str, list[tuple[str, float]]] = {}
    for at, board in enumerate(rng.sample(boards, 3)):
        memory, compute = split(rng, 4), split(rng, 4)
        for place, part in enumerate(memory):
            used = compute[place] if place < len(compute) else 0
            # two boards of one pod, now and then
            who = f"{name}-part-{at}-{place}" if at < 2 or place else f"{name}-part-0-0"
            drawn.setdefault(who, []).append((board, max(part, used) / 100))
            mib = round(MIB * scaling * part / 100)
            found = next((item for item in world.objects if item["metadata"]["name"] == who), None)
            entry = f"{board},NVIDIA,{mib},{used}:"
            if found is None:
                notes = {("volcano.sh/vgpu-ids-new" if volcano else "hami.io/vgpu-devices-allocated"): f"{entry};"}
                world.objects.append(pod(who, name, limits=[{resource: "1"}], metadata={"annotations": notes}))
            else:
                notes = found["metadata"]["annotations"]
                key = next(iter(notes))
                notes[key] = notes[key].removesuffix(";") + f"{entry};"
    total: dict[str, float] = {}
    for shares in drawn.values():
        for board, share in shares:
            total[board] = total.get(board, 0.0) + share
    for who, shares in drawn.items():
        for board, share in shares:
            world.give(who, board, share / max(total[board], 1.0))


def kai(world: World, name: str, rng: random.Random) -> None:
    """KAI or Run:ai: fractions in annotations, and a pod that reserves each board that is shared."""
    boards = boards_of(world, name)
    world.objects.append(node(name, {"nvidia.com/gpu": str(BOARDS)}))
    namespace = rng.choice(["kai-resource-reservation", "runai-reservation"])
    for at, board in enumerate(rng.sample(boards, 3)):
        group = f"group-{name}-{at}"
        meta = {"labels": {"runai-gpu-group": group}, "annotations": {"run.ai/reserve_for_gpu_index": board}}
        asked = [{"nvidia.com/gpu": "1"}]
        world.objects.append(
            pod(f"gpu-reservation-{name}-{at}", name, limits=asked, namespace=namespace, metadata=meta)
        )
        world.truth[f"gpu-reservation-{name}-{at}"] = {}
        for place, part in enumerate(split(rng, 4)):
            notes = {"gpu-fraction": f"{part / 100}"}
            if rng.random() < 0.5:
                notes = {"gpu-memory": str(round(MIB * part / 100))}
            who = f"{name}-frac-{at}-{place}"
            meta = {"labels": {"runai-gpu-group": group}, "annotations": notes}
            world.objects.append(pod(who, name, metadata=meta, spec={"schedulerName": "kai-scheduler"}))
            world.give(who, board, part / 100)


def claimed(world: World, name: str, rng: random.Random) -> None:
    """Dynamic resource allocation: whole boards, boards that pods share, boards cut into instances, boards by capacity."""
    boards = boards_of(world, name)
    world.objects.append(node(name, {}, {}))
    devices: list[Object] = []
    claims: list[tuple[str, list[str], list[tuple[str, Object]]]] = []
    shown = dict(enumerate(boards))
    for at, board in shown.items():
        fact: Object = {"type": {"string": "gpu"}, "uuid": {"string": board}, "productName": {"string": PRODUCT}}
        device: Object = {"name": f"gpu-{at}", "attributes": fact, "capacity": {"memory": {"value": f"{MIB}Mi"}}}
        how = rng.choice(["whole", "shared", "cut", "capacity", "free"])
        if how == "whole":
            claims.append((f"{name}-claim-{at}", [f"{name}-dra-{at}"], [(f"gpu-{at}", {})]))
            world.give(f"{name}-dra-{at}", board, 1.0)
        elif how == "shared":
            users = [f"{name}-both-{at}-{who}" for who in range(rng.randint(2, 4))]
            claims.append((f"{name}-claim-{at}", users, [(f"gpu-{at}", {})]))
            for who in users:
                world.give(who, board, 1 / len(users))
        elif how == "cut":
            for place, profile in enumerate(rng.sample(["1g.10gb", "2g.20gb", "3g.40gb"], rng.randint(1, 3))):
                part = f"gpu-{at}-mig-{profile.replace('.', '')}-19-{place}"
                cut = {"type": {"string": "mig"}, "profile": {"string": profile}, "parentUUID": {"string": board}}
                devices.append({"name": part, "attributes": cut | {"productName": {"string": PRODUCT}}})
                who = f"{name}-inst-{at}-{place}"
                claims.append((f"{name}-claim-{at}-{place}", [who], [(part, {})]))
                # instances are told apart by DCGM under other names: how much is held is all that is known
                world.give(who, "", PROFILES[profile] / 7)
            continue
        elif how == "capacity":
            device["allowMultipleAllocations"] = True
            for place, percent in enumerate(split(rng, 3)):
                who = f"{name}-cap-{at}-{place}"
                taken = {"consumedCapacity": {"memory": f"{round(MIB * percent / 100)}Mi"}}
                claims.append((f"{name}-claim-{at}-{place}", [who], [(f"gpu-{at}", taken)]))
                world.give(who, board, percent / 100)
        devices.append(device)
    world.objects.append(
        thing("ResourceSlice", f"{name}-slice", api="resource.k8s.io/v1", spec={
            "driver": "gpu.nvidia.com", "nodeName": name, "devices": devices,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1}})
    )  # fmt: skip
    for claim, users, results in claims:
        world.objects.append(allocated(claim, name, users, results))
        for who in users:
            entry = {"resourceClaims": [{"name": "gpu", "resourceClaimName": claim}]}
            world.objects.append(pod(who, name, spec=entry))


def allocated(
    claim: str, pool: str, users: list[str], results: list[tuple[str, Object]], namespace: str = "ml"
) -> Object:
    """Return a claim that holds devices of NVIDIA's driver for pods."""
    told = [
        {"request": "gpu", "driver": "gpu.nvidia.com", "pool": pool, "device": device, **more}
        for device, more in results
    ]
    return thing(
        "ResourceClaim", claim, namespace, api="resource.k8s.io/v1",
        spec={"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}},
        status={"allocation": {"allocationTimestamp": MADE, "devices": {"results": told}},
                "reservedFor": [{"resource": "pods", "name": who, "uid": who} for who in users]},
    )  # fmt: skip


def virtual(world: World, name: str, rng: random.Random) -> None:
    """Virtual machines of KubeVirt on vGPU types."""
    boards_of(world, name)
    size = rng.choice([10, 20, 40])
    resource = f"nvidia.com/NVIDIA_H100-{size}C"
    world.objects.append(node(name, {resource: str(BOARDS * 80 // size)}))
    for at in range(rng.randint(1, 6)):
        world.objects.append(pod(f"{name}-vm-{at}", name, limits=[{resource: "1"}]))
        world.give(f"{name}-vm-{at}", "", size / 80)


KINDS: dict[str, Callable[[World, str, random.Random], None]] = {
    "whole": whole,
    "time slices": sliced,
    "MIG": mig,
    "HAMi": lambda world, name, rng: by_parts(world, name, rng, volcano=False),
    "Volcano": lambda world, name, rng: by_parts(world, name, rng, volcano=True),
    "KAI and Run:ai": kai,
    "claims": claimed,
    "vGPU": virtual,
}


MAKERS = {
    "amd.com/gpu": ("Standard_ND96isr_MI300X_v5", 8),
    "google.com/tpu": ("ct6e-standard-4t", 4),
    "habana.ai/gaudi": ("dl1.24xlarge", 8),
    "gpu.intel.com/i915": ("on-premises", 4),
    "gpu.intel.com/xe": ("on-premises", 2),
    "aws.amazon.com/neuron": ("trn1.32xlarge", 16),
}
"""Resource of another maker's boards -> an instance type and its boards."""


def of_other_makers(seed: int) -> World:
    """Return a cluster of two to six nodes of other makers' boards; pods on NeuronCores ask for chips or for their cores."""
    rng, world = random.Random(seed), World()
    for number in range(rng.randint(2, 6)):
        resource = rng.choice(list(MAKERS))
        (instance_type, boards), name = MAKERS[resource], f"m{seed}-{number}"
        capacity = {resource: str(boards)}
        cores = rng.choice([2, 4, 8]) if resource == "aws.amazon.com/neuron" else 1
        if cores > 1:
            capacity |= {"aws.amazon.com/neuroncore": str(boards * cores), "aws.amazon.com/neurondevice": str(boards)}
        world.boards |= dict.fromkeys((f"{name}-{at}" for at in range(boards)), name)
        world.objects.append(node(name, capacity, {"node.kubernetes.io/instance-type": instance_type}))
        left = boards * cores
        for at in range(rng.randint(0, 4)):
            if not left:
                break
            asked = rng.randint(1, left)
            left -= asked
            in_cores = cores > 1 and (asked % cores > 0 or rng.random() < 0.5)
            limit = {"aws.amazon.com/neuroncore": asked} if in_cores else {resource: asked // cores}
            world.objects.append(pod(f"{name}-p{at}", name, limits=[{key: str(some) for key, some in limit.items()}]))
            world.give(f"{name}-p{at}", "", asked / cores)
    return world


def drawn(seed: int) -> World:
    """Return a cluster of two to six nodes, each shared in a way of its own."""
    rng, world = random.Random(seed), World()
    for at in range(rng.randint(2, 6)):
        KINDS[rng.choice(list(KINDS))](world, f"n{seed}-{at}", rng)
    return world
