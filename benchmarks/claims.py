"""Whether every pod's part of every claimed GPU is read right: random clusters, allocated here, of which the truth is known.

Boards and MIG instances, claims of one or several devices, claims that pods share, capacity that several claims take parts of,
admin access, claims for extended resources, network cards, pods that wait. Each cluster is read whole and damaged: without its
slices, without its claims, without some pods. Damage must make no node that something runs on look unheld.

    python -m benchmarks.claims [--clusters 300]
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from trimtab.sources.kubernetes.objects import Object, Objects
from trimtab.sources.kubernetes.snapshot import collect_snapshot

API, DRIVER, OLD = "resource.k8s.io/v1", "gpu.nvidia.com", "2026-08-20T00:00:00Z"
END = datetime(2026, 9, 15, tzinfo=UTC)
_PROFILES = {"1g.5gb": 1 / 7, "2g.10gb": 2 / 7, "3g.20gb": 3 / 7}
_LABELS = {"node.kubernetes.io/instance-type": "p4d.24xlarge", "topology.kubernetes.io/region": "us-east-1"}
_BOARDS, _BOARD_GIB = 8, 40
_SEED = 11


class Cluster:
    """Objects as an API server has them, and what each pod holds in truth."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.objects: list[dict[str, object]] = []
        self.truth: dict[str, float] = {}
        for number in range(rng.randint(1, 5)):
            self._node(f"gpu-{number}")

    def _add(self, kind: str, name: str, api: str = API, **body: object) -> None:
        meta = {"name": name, "namespace": "ml", "creationTimestamp": OLD, **body.pop("metadata", {})}  # type: ignore[dict-item]
        self.objects.append({"apiVersion": api, "kind": kind, "metadata": meta, **body})

    def _node(self, node: str) -> None:
        devices = []
        for index in range(_BOARDS):
            use = self.rng.choice(["whole", "several", "shared", "mig", "parts", "extended", "free"])
            board = {
                "name": f"gpu-{index}",
                "attributes": _texts(type="gpu", uuid=f"GPU-{node}-{index}", productName="NVIDIA A100-SXM4-40GB"),
                "capacity": {"memory": {"value": f"{_BOARD_GIB}Gi"}},
                **({"allowMultipleAllocations": True} if use == "parts" else {}),
            }
            devices += self._instances(node, index) if use == "mig" else [board]
            self._use(node, f"gpu-{index}", use)
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-09-15T00:00:00Z"}
        labels = {"labels": _LABELS, "namespace": ""}
        place = {"providerID": "aws:///us-east-1a/i"}
        self._add("Node", node, "v1", metadata=labels, spec=place, status={"conditions": [ready]})
        pool = {"name": node, "generation": 2, "resourceSliceCount": 1}
        self._add(
            "ResourceSlice", f"{node}-gpus", spec={"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
        )
        if self.rng.random() < 0.5:
            self._claim(f"{node}-agent", [("gpu-0", {"adminAccess": True})], node, [f"{node}-agent"])
            self.truth[f"{node}-agent"] = 0.0

    def _instances(self, node: str, index: int) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        free = 7
        while True:
            profile = self.rng.choice(sorted(_PROFILES))
            slices = int(profile[0])
            if slices > free:
                return found
            name = f"gpu-{index}-mig-{profile.replace('.', '')}-19-{7 - free}"
            told = _texts(
                type="mig", profile=profile, parentUUID=f"GPU-{node}-{index}", productName="NVIDIA A100-SXM4-40GB"
            )
            found.append({"name": name, "attributes": told})
            free -= slices
            if self.rng.random() < 0.7:
                pod = f"{node}-{name}"
                self._claim(pod, [(name, {})], node, [pod])
                self.truth[pod] = _PROFILES[profile]

    def _use(self, node: str, device: str, use: str) -> None:
        pod = f"{node}-{device}"
        match use:
            case "whole" | "extended":
                self._claim(pod, [(device, {})], node, [pod], extended=use == "extended")
                self.truth[pod] = 1.0
            case "several":  # a board and a network card, and perhaps a pod that waits for the like
                self._claim(pod, [(device, {}), ("nic-0", {"driver": "dra.net"})], node, [pod])
                self.truth[pod] = 1.0
                self._claim(f"{pod}-late", [], "", [f"{pod}-late"])
            case "shared":
                pods = [f"{pod}-{number}" for number in range(self.rng.randint(2, 6))]
                self._claim(pod, [(device, {})], node, pods)
                self.truth |= dict.fromkeys(pods, 1 / len(pods))
            case "parts":
                for number, gib in enumerate(self.rng.choice([(10, 30), (5, 5, 20), (40,)])):
                    taken: dict[str, object] = {"shareID": f"s{number}", "consumedCapacity": {"memory": f"{gib}Gi"}}
                    self._claim(f"{pod}-{number}", [(device, taken)], node, [f"{pod}-{number}"])
                    self.truth[f"{pod}-{number}"] = gib / _BOARD_GIB

    def _claim(
        self,
        name: str,
        devices: list[tuple[str, dict[str, object]]],
        node: str,
        pods: list[str],
        *,
        extended: bool = False,
    ) -> None:
        results = [
            {"request": "gpu", "driver": DRIVER, "pool": node, "device": device, **more} for device, more in devices
        ]
        status = {
            "allocation": {"allocationTimestamp": OLD, "devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": pod, "uid": pod} for pod in pods],
        }
        request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER, "count": 1}}
        self._add("ResourceClaim", name, spec={"devices": {"requests": [request]}}, status=status if node else {})
        for pod in pods:
            made = {"extendedResourceClaimStatus": {"resourceClaimName": name}} if extended else {}
            asks = {"limits": {"nvidia.com/gpu": "1"}} if extended else {"claims": [{"name": "gpu"}]}
            entry = [] if extended else [{"name": "gpu", "resourceClaimName": name}]
            placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": OLD}
            self._add("Pod", pod, "v1", spec={"containers": [{"resources": asks}], "resourceClaims": entry,
                      **({"nodeName": node} if node else {})}, status={
                      "phase": "Running" if node else "Pending", "conditions": [placed] if node else [], **made})  # fmt: skip

    def held_nodes(self) -> set[str]:
        """Return the nodes on which somebody holds a GPU."""
        return {name.rsplit("-gpu-", 1)[0] for name, gpus in self.truth.items() if gpus}


def _texts(**said: str) -> dict[str, object]:
    return {name: {"string": value} for name, value in said.items()}


def _read(items: Sequence[Object]) -> tuple[dict[str, float], set[str]]:
    """Return what each pod is read to hold, and the nodes that somebody holds."""
    objects = Objects()
    objects.take({"kind": "List", "items": items})
    rows = collect_snapshot(objects, END - timedelta(days=14), END, source="made").tables["allocations"].to_pylist()
    return {row["pod"]: row["gpus"] for row in rows}, {row["node"] for row in rows if row["gpus"] > 0}


def main() -> None:
    """Read clusters whole and damaged, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=300)
    clusters = parser.parse_args().clusters
    rng = random.Random(_SEED)
    figures: Counter[str] = Counter()
    for _ in range(clusters):
        cluster = Cluster(rng)
        held, _ = _read(cluster.objects)
        figures["pods"] += len(cluster.truth)
        figures["pods_right"] += sum(abs(held.get(pod, -1.0) - gpus) < 1e-9 for pod, gpus in cluster.truth.items())
        figures["pods_that_hold_nothing_and_are_said_to"] += len(
            {pod for pod, gpus in held.items() if gpus} - cluster.truth.keys()
        )
        labelled = [_labelled(body) for body in cluster.objects]
        for damage, kinds in (
            ("slices", {"ResourceSlice"}),
            ("claims", {"ResourceClaim"}),
            ("both", {"ResourceSlice", "ResourceClaim"}),
        ):
            _, nodes = _read([body for body in labelled if body["kind"] not in kinds])
            figures[f"nodes_lost_without_{damage}"] += len(cluster.held_nodes() - nodes)
        _, nodes = _read([body for body in labelled if body["kind"] != "Pod" or rng.random() < 0.5])
        figures["nodes_lost_without_half_the_pods"] += len(cluster.held_nodes() - nodes)
        figures["nodes"] += len(cluster.held_nodes())
    print(json.dumps({"benchmark": "claims", "clusters": clusters, **figures}))


def _labelled(body: dict[str, object]) -> dict[str, object]:
    """Return a node with the labels of feature discovery, which tell its boards where no slice does."""
    if body["kind"] != "Node":
        return body
    told = {"nvidia.com/gpu.count": str(_BOARDS), "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}
    meta = body["metadata"]
    assert isinstance(meta, dict)
    return {**body, "metadata": {**meta, "labels": {**_LABELS, **told}}}


if __name__ == "__main__":
    main()
