"""Documented examples of HAMi and KAI written anew, and demo specs of NVIDIA's DRA driver placed by an allocator of their own.

HAMi: examples/nvidia (use_as_normal, use_exclusive_card, use_memory_fraction, use_sharing_card, default_use, mig_example). KAI:
docs/gpu-sharing (gpu-sharing, gpu-memory, gpu-sharing-non-default-container, gpu-sharing-init-container, mps). The amounts are
theirs, the truth is worked by hand; on a board of 80 GiB, 3000 MiB is 3000 / 81920 of it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from benchmarks.holders_world import MIB, PROFILES, World, allocated, boards_of, node, pod, thing

Object = dict[str, Any]
_GPU, _MEMORY, _PERCENT, _CORES = (f"nvidia.com/{name}" for name in ("gpu", "gpumem", "gpumem-percentage", "gpucores"))
_CLASSES = ("gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com")


def example_worlds() -> list[World]:
    """Return a cluster for the examples of each project."""
    return [_hami(), _kai()]


def _hami() -> World:
    world = World()
    boards = boards_of(world, "hami")
    register = "".join(f"{board},10,{MIB},100,NVIDIA-H100,0,true:" for board in boards)
    world.objects.append(node("hami", {_GPU: "80"}, {}, {"hami.io/node-nvidia-register": register}))
    shared = {_GPU: "1", _PERCENT: "40", _CORES: "60"}, {_GPU: "1", _PERCENT: "60", _CORES: "40"}
    asked: list[tuple[str, Object, list[tuple[int, float, int]], list[float]]] = [
        ("as-normal", {_GPU: "1"}, [(0, MIB, 100)], [1.0]),
        ("exclusive", {_GPU: "2", _PERCENT: "100", _CORES: "100"}, [(1, MIB, 100), (2, MIB, 100)], [1.0, 1.0]),
        ("fraction", {_GPU: "2", _PERCENT: "50", _CORES: "30"}, [(3, MIB / 2, 30), (4, MIB / 2, 30)], [0.5, 0.5]),
        # 0.6 and 0.6 of one board are set aside, which has but one to give
        ("sharing-1", shared[0], [(5, MIB * 0.4, 60)], [0.5]),
        ("sharing-2", shared[1], [(5, MIB * 0.6, 40)], [0.5]),
        ("default", {_GPU: "1", _MEMORY: "3000", _CORES: "30"}, [(6, 3000, 30)], [0.3]),
        ("memory-only", {_GPU: "1", _MEMORY: "3000"}, [(6, 3000, 0)], [3000 / MIB]),
    ]
    for name, limits, given, shares in asked:
        entries = "".join(f"{boards[at]},NVIDIA,{round(mib)},{cores}:" for at, mib, cores in given)
        notes = {"hami.io/vgpu-devices-allocated": f"{entries};"}
        world.objects.append(pod(name, "hami", limits=[limits], metadata={"annotations": notes}))
        for (at, _, _), share in zip(given, shares, strict=True):
            world.give(name, boards[at], share)
    world.objects.append(pod("mig", "hami", limits=[{"nvidia.com/mig-3g.20gb": "1"}]))
    world.give("mig", "", 3 / 7)
    return world


def _kai() -> World:
    world = World()
    boards = boards_of(world, "kai")
    world.objects.append(node("kai", {_GPU: "8"}))
    examples = [
        ("gpu-sharing", {"gpu-fraction": "0.5"}, 0.5),
        ("gpu-memory", {"gpu-memory": "2000"}, 2000 / MIB),
        ("non-default", {"gpu-fraction": "0.5", "gpu-fraction-container-name": "gpu-workload"}, 0.5),
        ("init-container", {"gpu-fraction": "0.5", "gpu-fraction-container-name": "gpu-init"}, 0.5),
        ("with-mps", {"gpu-fraction": "0.5"}, 0.5),
        ("multi", {"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"}, 0.25),
    ]
    for at, (name, notes, share) in enumerate(examples):
        mine = boards[at : at + 2] if name == "multi" else boards[at : at + 1]
        groups = {board: f"group-{board}" for board in mine}
        labels = {f"runai-gpu-group/{group}": group for group in groups.values()}
        if len(groups) == 1:
            labels = {"runai-gpu-group": next(iter(groups.values()))}
        for board, group in groups.items():
            meta = {"labels": {"runai-gpu-group": group}, "annotations": {"run.ai/reserve_for_gpu_index": board}}
            reserve = f"gpu-reservation-{board}"
            world.objects.append(
                pod(reserve, "kai", limits=[{_GPU: "1"}], namespace="kai-resource-reservation", metadata=meta)
            )
            world.truth[reserve] = {}
            world.give(name, board, share)
        meta = {"labels": labels, "annotations": notes}
        world.objects.append(pod(name, "kai", metadata=meta, spec={"schedulerName": "kai-scheduler"}))
    return world


def spec_worlds(folder: Path) -> Iterator[World]:
    """Yield a cluster for each spec in which pods claim GPUs by an API version that has devices (v1alpha3 on)."""
    for path in sorted(folder.rglob("*.yaml")):
        documents = [item for item in yaml.safe_load_all(path.read_text(encoding="utf-8")) if isinstance(item, dict)]
        documents = [item for item in documents if item.get("metadata", {}).get("name")]
        world = _placed(documents)
        if world.truth:
            yield world


def _placed(documents: list[Object]) -> World:
    """Give every claim of a spec boards and instances that nobody has: as many as it asks for, in order."""
    world, users, free = World(), defaultdict[tuple[str, str], list[str]](list), iter(range(64))
    specs: dict[tuple[str, str], Object] = {}
    for item in documents:
        name, namespace = item["metadata"]["name"], item["metadata"].get("namespace", "default")
        if item["kind"] == "ResourceClaimTemplate" and "spec" in item["spec"]:
            specs[namespace, f"template {name}"] = item["spec"]["spec"]
        elif item["kind"] == "ResourceClaim" and "devices" in item["spec"]:
            specs[namespace, name] = item["spec"]
    for item in documents:
        for who, namespace, spec in _pods(item):
            for entry in spec.get("resourceClaims", ()):
                claim = entry.get("resourceClaimName") or f"{who}-{entry['name']}"
                asked = specs.get((namespace, claim)) or specs.get(
                    (namespace, f"template {entry.get('resourceClaimTemplateName')}")
                )
                if asked is not None:
                    specs[namespace, claim] = asked
                    users[namespace, claim].append(who)
                    entry["resourceClaimName"] = claim
                    entry.pop("resourceClaimTemplateName", None)
            world.objects.append(
                pod(who, "n", namespace=namespace, spec={"resourceClaims": spec.get("resourceClaims", [])})
            )
    devices: list[Object] = []
    for (namespace, claim), pods in users.items():
        results: list[tuple[str, Object]] = []
        for request in specs[namespace, claim].get("devices", {}).get("requests", ()):
            body = request.get("exactly", request)
            if body.get("deviceClassName") not in _CLASSES:
                continue
            for _ in range(int(body.get("count", 1))):
                device, board, share = _device(next(free), body)
                devices.append(device)
                results.append((device["name"], {}))
                for who in pods:
                    world.give(who, board, share / len(pods))
        world.objects.append(allocated(claim, "n", pods, results, namespace))
    world.boards = {f"GPU-{device['at']}": "n" for device in devices}
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    body = [{key: value for key, value in device.items() if key != "at"} for device in devices]
    spec = {"driver": "gpu.nvidia.com", "nodeName": "n", "devices": body, "pool": pool}
    world.objects += [node("n", {}, {}), thing("ResourceSlice", "n", api="resource.k8s.io/v1", spec=spec)]
    return world


def _device(at: int, body: Object) -> tuple[Object, str, float]:
    """Return a board of its own, or an instance on one, the board as telemetry knows it, and the share of it."""
    told = " ".join(one.get("cel", {}).get("expression", "") for one in body.get("selectors", ()))
    named = re.search(r"profile\s*==\s*['\"](\d+)g\.(\d+)gb", told)
    facts: Object = {"type": {"string": "gpu"}, "uuid": {"string": f"GPU-{at}"}}
    if body.get("deviceClassName") != "mig.nvidia.com" and named is None:
        return {"name": f"gpu-{at}", "attributes": facts, "at": at}, f"GPU-{at}", 1.0
    slices, memory = (named[1], named[2]) if named else ("1", "10")
    facts = {
        "type": {"string": "mig"},
        "profile": {"string": f"{slices}g.{memory}gb"},
        "parentUUID": {"string": f"GPU-{at}"},
    }
    share = PROFILES.get(f"{slices}g.{memory}gb", int(slices)) / 7
    return {"name": f"gpu-{at}-mig-{slices}g{memory}gb-19-0", "attributes": facts, "at": at}, "", share


def _pods(item: Object) -> Iterator[tuple[str, str, Object]]:
    """Yield (name, namespace, spec) of the pods that an object makes."""
    namespace, name = item["metadata"].get("namespace", "default"), item["metadata"]["name"]
    if item["kind"] == "Pod":
        yield name, namespace, item["spec"]
    elif item["kind"] in ("Deployment", "Job", "StatefulSet", "DaemonSet"):
        count = item["spec"].get("replicas") or item["spec"].get("parallelism") or 1
        for at in range(count):
            yield f"{name}-{at}", namespace, yaml.safe_load(yaml.safe_dump(item["spec"]["template"]["spec"]))
