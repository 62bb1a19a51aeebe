"""Nodes and pods whose boards are shared, as HAMi, Volcano, KAI, Run:ai, time-slicing and KubeVirt leave them.

Names and formats as published: Project-HAMi/HAMi docs/develop/protocol.md, kai-scheduler/KAI-Scheduler docs/gpu-sharing and
pkg/common/constants; the values are our own.
"""

import json

from tests.kube_cluster import OLD, node, pod

MIB = 40960.0
PRODUCT = "NVIDIA-A100-SXM4-40GB"
PLACE = {
    "node.kubernetes.io/instance-type": "p4d.24xlarge",
    "topology.kubernetes.io/region": "us-east-1",
    "topology.kubernetes.io/zone": "us-east-1a",
    "karpenter.sh/capacity-type": "on-demand",
}


def uuid(index):
    return f"GPU-0000000{index}"


def hami_node(name="gpu-a", *, boards=8, mib=MIB, split=10, form="json", labels=None):
    """Return a node with HAMi's device plugin: each board advertised `split` times, and registered in an annotation."""
    found = node(name, gpus=str(boards * split), labels=labels or PLACE)
    if form == "json":
        register = json.dumps(
            [{"id": uuid(at), "index": at, "count": split, "devmem": int(mib), "devcore": 100,
              "type": f"NVIDIA-{PRODUCT}", "mode": "hami-core", "health": True} for at in range(boards)]
        )  # fmt: skip
    else:
        register = "".join(f"{uuid(at)},{split},{int(mib)},100,NVIDIA-{PRODUCT},0,true:" for at in range(boards))
    found["metadata"]["annotations"] = {"hami.io/node-nvidia-register": register}
    return found


def hami_devices(*containers):
    """Return HAMi's annotation of what containers were given: lists of (UUID, MiB, per cent of compute)."""
    return "".join(
        "".join(f"{device},NVIDIA,{int(mib)},{int(compute)}:" for device, mib, compute in devices) + ";"
        for devices in containers
    )


def asking(name, namespace="ml", *, limits, **more):
    """Return a pod of one container with these limits."""
    found = pod(name, namespace, gpus=0, **more)
    found["spec"]["containers"] = [{"image": "r/vllm:1", "resources": {"limits": limits}}]
    return found


def hami_pod(name, *containers, limits=None, annotation="hami.io/vgpu-devices-allocated", **more):
    """Return a pod that HAMi gave devices to, by container."""
    limits = limits or {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}
    found = asking(name, limits=limits, **more)
    found["spec"]["containers"] = [{"image": "r/vllm:1", "resources": {"limits": limits}} for _ in containers]
    found["metadata"]["annotations"] = {annotation: hami_devices(*containers)}
    return found


def volcano_node(name="gpu-a", *, boards=2, mib=MIB):
    """Return a node with Volcano's vGPU device plugin."""
    found = node(name, gpus="", labels=PLACE)
    found["status"]["capacity"]["volcano.sh/vgpu-number"] = str(boards * 10)
    register = "".join(f"{uuid(at)},10,{int(mib)},NVIDIA-{PRODUCT},true,hami-core:" for at in range(boards))
    found["metadata"]["annotations"] = {"volcano.sh/node-vgpu-register": register}
    return found


def kai_node(name="gpu-a", *, boards=8):
    """Return a node with the usual device plugin and feature discovery, which KAI reads memory from."""
    labels = {**PLACE, "nvidia.com/gpu.product": PRODUCT, "nvidia.com/gpu.memory": str(int(MIB))}
    return node(name, gpus=str(boards), labels={**labels, "nvidia.com/gpu.count": str(boards)})


def fraction_pod(name, fraction=None, *, mib=None, devices=None, groups=(), namespace="ml", **more):
    """Return a pod that KAI gave parts of boards to; it asks for no resource of any device plugin."""
    found = asking(name, namespace, limits={"cpu": "4"}, **more)
    notes = {"gpu-fraction": fraction, "gpu-memory": mib, "gpu-fraction-num-devices": devices}
    found["metadata"]["annotations"] = {key: str(value) for key, value in notes.items() if value is not None}
    if len(groups) == 1:
        found["metadata"]["labels"] = {"runai-gpu-group": groups[0]}
    elif groups:
        found["metadata"]["labels"] = {f"runai-gpu-group/{group}": group for group in groups}
    found["spec"]["schedulerName"] = "kai-scheduler"
    return found


def reservation(group, device, *, node="gpu-a", namespace="kai-resource-reservation", created=OLD):
    """Return the pod by which KAI holds the board of a group."""
    found = pod(f"gpu-reservation-{node}-{group}", namespace, gpus=1, node=node, created=created)
    found["metadata"]["labels"] = {"runai-gpu-group": group, "app": namespace}
    found["metadata"]["annotations"] = {"run.ai/reserve_for_gpu_index": device}
    return found
