"""A small cluster as an API server tells it: an A100 node with time on it, a CPU node, services, runs, queues."""

NOW = "2026-09-15T00:00:00Z"
OLD = "2026-08-20T00:00:00Z"
GPU = "nvidia.com/gpu"
CHAT = ("Deployment", "chat")


def meta(name, namespace=None, *, created=OLD, owner=None, **more):
    found = {"name": name, "creationTimestamp": created, **more}
    if namespace:
        found["namespace"] = namespace
    if owner:
        kind, owner_name = owner
        found["ownerReferences"] = [
            {"apiVersion": "x/v1", "kind": kind, "name": owner_name, "uid": "u", "controller": True}
        ]
    return found


def node(name="gpu-a", *, gpus="8", labels=None, created=OLD, **spec):
    capacity = {"cpu": "96", "memory": "1176Gi"} | ({GPU: gpus} if gpus else {})
    told = {
        "node.kubernetes.io/instance-type": "p4d.24xlarge",
        "topology.kubernetes.io/region": "us-east-1",
        "topology.kubernetes.io/zone": "us-east-1a",
        "karpenter.sh/capacity-type": "on-demand",
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
        "nvidia.com/gpu.count": gpus,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": meta(name, labels=told if labels is None else labels, created=created),
        "spec": {"providerID": "aws:///us-east-1a/i-0abc", **spec},
        "status": {
            "capacity": capacity,
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": NOW}],
            "images": [{"names": ["r/vllm@sha256:ab", "r/vllm:1"], "sizeBytes": 8 * 2**30}],
        },
    }


def pod(name, namespace, *, owner=None, gpus=1, node="gpu-a", created=OLD, phase="Running", ended=None, **spec):
    requests = {"cpu": "4", "memory": "32Gi"} | ({GPU: str(gpus)} if gpus else {})
    status = {"phase": phase}
    if node:
        status["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": created}]
    if ended:
        status["containerStatuses"] = [{"state": {"terminated": {"finishedAt": ended}}}]
    labels = spec.pop("labels", {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta(name, namespace, created=created, owner=owner, labels=labels),
        "spec": {
            **({"nodeName": node} if node else {}),
            "containers": [{"image": "r/vllm:1", "resources": {"requests": requests, "limits": {GPU: str(gpus)}}}],
            **spec,
        },
        "status": status,
    }


def cluster():
    """Return the objects of the cluster; a chat service of two pods, a nightly Job, a waiting run, and what stands beside."""
    return [
        node(taints=[{"key": GPU, "value": "present", "effect": "NoSchedule"}]),
        node("cpu-a", gpus="", labels={"node.kubernetes.io/instance-type": "m6i.large"}),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": meta("prod", labels={"team": "assistants"})},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("chat", "prod")},
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta("chat-7d9f8b6c5d", "prod", owner=CHAT)},
        pod(
            "chat-7d9f8b6c5d-aaaaa", "prod", owner=("ReplicaSet", "chat-7d9f8b6c5d"),
            tolerations=[{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}],
            volumes=[{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
        ),
        pod("chat-7d9f8b6c5d-bbbbb", "prod", owner=("ReplicaSet", "chat-7d9f8b6c5d")),
        pod("exporter-x", "monitoring", owner=("DaemonSet", "exporter"), gpus=0),
        {
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": meta("nightly-28900000", "ml", owner=("CronJob", "nightly"), created="2026-09-10T00:00:00Z",
                             labels={"kueue.x-k8s.io/queue-name": "ml-queue"}),
            "status": {"startTime": "2026-09-10T00:30:00Z", "completionTime": "2026-09-10T06:30:00Z", "succeeded": 1},
        },
        pod("nightly-28900000-x7k2p", "ml", owner=("Job", "nightly-28900000"), gpus=4, phase="Succeeded",
            created="2026-09-10T00:30:00Z", ended="2026-09-10T06:30:00Z"),
        {
            "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload",
            "metadata": meta("job-sweep-1-abc", "ml", owner=("Job", "sweep-1"), created="2026-09-14T20:00:00Z"),
            "spec": {"queueName": "ml-queue", "podSets": [{"count": 2, "template": {"spec": {"containers": [
                {"resources": {"requests": {GPU: "4"}}}]}}}]},
            "status": {"conditions": [{"type": "QuotaReserved", "status": "False"}]},
        },
        {
            "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": meta("gpus"),
            "spec": {"cohort": "all", "resourceGroups": [{"flavors": [{"name": "a100", "resources": [
                {"name": GPU, "nominalQuota": 8, "borrowingLimit": "4"}, {"name": "cpu", "nominalQuota": 96}]}]}]},
            "status": {"pendingWorkloads": 1, "admittedWorkloads": 2,
                       "flavorsUsage": [{"name": "a100", "resources": [{"name": GPU, "total": "2"}]}]},
        },
        {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ResourceFlavor", "metadata": meta("a100"),
         "spec": {"nodeLabels": {"node.kubernetes.io/instance-type": "p4d.24xlarge"}}},
        {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue", "metadata": meta("ml-queue", "ml"),
         "spec": {"clusterQueue": "gpus"}, "status": {"pendingWorkloads": 1}},
        {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": meta("chat", "prod"),
         "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "chat"}, "minReplicas": 2, "maxReplicas": 8, "metrics": [
             {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}]},
         "status": {"currentReplicas": 2}},
        {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": meta("embed", "prod"),
         "spec": {"scaleTargetRef": {"name": "embed"}, "maxReplicaCount": 5, "triggers": [
             {"type": "prometheus", "metadata": {"query": "sum(vllm:num_requests_waiting)", "threshold": "5"}}]}},
        {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": meta("gpu"),
         "spec": {"limits": {GPU: 64}, "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "5m"},
                  "template": {"spec": {"requirements": [
                      {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]}]}}}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta("models", "prod"),
         "spec": {"storageClassName": "gp3", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "500Gi"}}},
         "status": {"phase": "Bound", "capacity": {"storage": "500Gi"}}},
        {
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta("team", "prod"),
            "spec": {"hard": {f"requests.{GPU}": "4", "requests.memory": "64Gi", "persistentvolumeclaims": "9"},
                     "scopes": ["NotTerminating"], "scopeSelector": {"matchExpressions": [
                         {"scopeName": "PriorityClass", "operator": "In", "values": ["low", "high"]}]}},
            "status": {"hard": {f"requests.{GPU}": "4", "requests.memory": "64Gi", "persistentvolumeclaims": "9"},
                       "used": {f"requests.{GPU}": "2", "requests.memory": "32Gi", "persistentvolumeclaims": "1"}},
        },
        {
            "apiVersion": "v1", "kind": "LimitRange", "metadata": meta("each", "prod"),
            "spec": {"limits": [
                {"type": "PersistentVolumeClaim", "max": {"storage": "1Ti"}},
                {"type": "Container", "max": {GPU: "4", "memory": "256Gi"}, "default": {GPU: "0", "cpu": "8"},
                 "defaultRequest": {"cpu": "500m"}, "maxLimitRequestRatio": {"cpu": "16"}}]},
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("not-ours", "prod")},
    ]  # fmt: skip


def dump(objects=None):
    """Return what `kubectl get ... -o json` writes."""
    return {"apiVersion": "v1", "kind": "List", "items": cluster() if objects is None else objects}
