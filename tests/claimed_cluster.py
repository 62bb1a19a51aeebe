"""A small cluster whose GPUs are claimed through dynamic resource allocation, as NVIDIA's driver publishes them.

Fields and values as published: attributes and device names by NVIDIA/k8s-dra-driver-gpu (cmd/gpu-kubelet-plugin/deviceinfo.go,
partitions.go, demo/specs/quickstart/v1), claims and allocations by resource.k8s.io/v1.
"""

from tests.kube_cluster import OLD, meta, node, pod

GPU_CLASS, MIG_CLASS = "gpu.nvidia.com", "mig.nvidia.com"
DRIVER = "gpu.nvidia.com"
A100 = "NVIDIA A100-SXM4-40GB"
API = "resource.k8s.io/v1"
LABELS = {
    "node.kubernetes.io/instance-type": "p4d.24xlarge",
    "topology.kubernetes.io/region": "us-east-1",
    "topology.kubernetes.io/zone": "us-east-1a",
    "karpenter.sh/capacity-type": "on-demand",
}


def claim_node(name="gpu-a", **more):
    """Return a node as the DRA driver leaves it: no `nvidia.com/gpu` among its capacity, no labels of feature discovery."""
    return node(name, gpus="", labels=LABELS, **more)


def board(index, product=A100, memory="40Gi", **more):
    return {
        "name": f"gpu-{index}",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": f"GPU-0000000{index}"},
            "productName": {"string": product},
            "resource.kubernetes.io/pciBusID": {"string": f"0000:0{index}:00.0"},
        },
        "capacity": {"memory": {"value": memory}},
        **more,
    }


def instance(index, profile="1g.5gb", place=0, product=A100):
    short = profile.replace(".", "")
    return {
        "name": f"gpu-{index}-mig-{short}-19-{place}",
        "attributes": {
            "type": {"string": "mig"},
            "uuid": {"string": f"MIG-{index}-{place}"},
            "parentUUID": {"string": f"GPU-0000000{index}"},
            "profile": {"string": profile},
            "productName": {"string": product},
            "resource.kubernetes.io/pciBusID": {"string": f"0000:0{index}:00.0"},
        },
        "capacity": {"memory": {"value": "4864Mi"}, "multiprocessors": {"value": "14"}},
    }


def slice_of(devices, name="gpu-a", *, driver=DRIVER, generation=1, count=1, part=0, api=API, **spec):
    if api.endswith("v1beta1"):
        devices = [
            {"name": device["name"], "basic": {key: value for key, value in device.items() if key != "name"}}
            for device in devices
        ]
    return {
        "apiVersion": api,
        "kind": "ResourceSlice",
        "metadata": meta(f"{name}-{driver}-{generation}-{part}"),
        "spec": {
            "driver": driver,
            "nodeName": name,
            "pool": {"name": name, "generation": generation, "resourceSliceCount": count},
            "devices": devices,
            **spec,
        },
    }


def request(name="gpu", device_class=GPU_CLASS, *, profile=None, api=API, **more):
    body = {"deviceClassName": device_class, **more}
    if profile:
        body["selectors"] = [{"cel": {"expression": f"device.attributes['gpu.nvidia.com'].profile == '{profile}'"}}]
    return {"name": name, **body} if api.endswith("v1beta1") else {"name": name, "exactly": body}


def template(name="single-gpu", namespace="ml", *, requests=None, api=API, **devices):
    spec = {"devices": {"requests": requests or [request(api=api)], **devices}}
    return {
        "apiVersion": api,
        "kind": "ResourceClaimTemplate",
        "metadata": meta(name, namespace),
        "spec": {"spec": spec},
    }


def result(device="gpu-0", pool="gpu-a", name="gpu", driver=DRIVER, **more):
    return {"request": name, "driver": driver, "pool": pool, "device": device, **more}


def claim(name, namespace="ml", *, results=None, pods=(), requests=None, made_for=None, api=API):
    """Return a claim, allocated where `results` are given; `made_for` is the pod that it was made for from a template."""
    more = {}
    if made_for:
        more = {"owner": ("Pod", made_for), "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"}}
    status = {}
    if results is not None:
        status = {
            "allocation": {"allocationTimestamp": OLD, "devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods],
        }
    return {
        "apiVersion": api,
        "kind": "ResourceClaim",
        "metadata": meta(name, namespace, **more),
        "spec": {"devices": {"requests": requests or [request(api=api)]}},
        "status": status,
    }


def claiming_pod(name, namespace="ml", *, template="single-gpu", claim=None, made=None, **more):
    """Return a pod that claims a GPU by a template, or by a claim of that name; `made` is the claim that its status tells."""
    entry = {"name": "gpu", **({"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": template})}
    found = pod(name, namespace, gpus=0, resourceClaims=[entry], **more)
    found["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    if made:
        found["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": made}]
    return found


def held(name, device, **more):
    """Return a pod with one whole device of a template, and its claim."""
    return [
        claiming_pod(name, made=f"{name}-gpu-x1", **more),
        claim(f"{name}-gpu-x1", results=[result(device)], pods=[name], made_for=name),
    ]


def claimed_cluster():
    """Return a service of four pods on whole boards, notebooks that share one, a pod on a MIG instance and one that waits.

    They are on two of three nodes; nothing but what every node runs is on the third. One has an agent with admin access to its
    boards.
    """
    boards = [board(index) for index in range(8)]
    service = [
        part for index in range(4) for part in held(f"chat-{index}", f"gpu-{index}", owner=("StatefulSet", "chat"))
    ]
    notebooks = [
        claiming_pod(f"lab-{name}-0", claim="lab", owner=("StatefulSet", f"lab-{name}"), node="gpu-b") for name in "ab"
    ]
    agent = claim(
        "agent-gpu", results=[result(adminAccess=True)], pods=["agent-x"], requests=[request(adminAccess=True)]
    )
    small = "gpu-7-mig-1g5gb-19-0"
    return [
        *(claim_node(f"gpu-{name}") for name in "abc"),
        slice_of(boards), slice_of(boards, "gpu-c"), slice_of([*boards[:7], instance(7), instance(7, place=1)], "gpu-b"),
        slice_of([{"name": "channel-0"}], driver="compute-domain.nvidia.com"),
        template(), template("small", requests=[request(device_class=MIG_CLASS, profile="1g.5gb")]),
        *service,
        *notebooks, claim("lab", results=[result("gpu-0", "gpu-b")], pods=["lab-a-0", "lab-b-0"]),
        claiming_pod("rank-0", template="small", made="rank-0-gpu-x1", owner=("StatefulSet", "rank"), node="gpu-b"),
        claim("rank-0-gpu-x1", results=[result(small, "gpu-b")], pods=["rank-0"], made_for="rank-0"),
        claiming_pod("late-0", owner=("StatefulSet", "late"), node=None, phase="Pending", made="late-0-gpu-x1"),
        claim("late-0-gpu-x1", made_for="late-0"),
        claiming_pod("agent-x", claim="agent-gpu", owner=("DaemonSet", "agent")), agent,
        *(pod(f"proxy-{name}", "kube-system", owner=("DaemonSet", "proxy"), gpus=0, node=f"gpu-{name}") for name in "abc"),
    ]  # fmt: skip
