"""What is asked of a Kubernetes API server, and the read-only role that allows it."""

from __future__ import annotations

from dataclasses import dataclass

import yaml


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource that is listed over all namespaces."""

    kind: str
    plural: str
    group: str = ""
    versions: tuple[str, ...] = ("v1",)
    """API versions, the one to try first first."""
    needed: bool = False
    """Without it there is no fleet; without any other the answer is weaker."""
    cost: str = ""
    """What is not known without it."""

    @property
    def name(self) -> str:
        """Return the name as `kubectl get` takes it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def paths(self) -> tuple[str, ...]:
        """Return the paths of its list, the one to try first first."""
        root = f"/apis/{self.group}" if self.group else "/api"
        return tuple(f"{root}/{version}/{self.plural}" for version in self.versions)


RESOURCES: tuple[Resource, ...] = (
    Resource(kind="Node", plural="nodes", needed=True),
    Resource(kind="Pod", plural="pods", needed=True),
    Resource(kind="Namespace", plural="namespaces", cost="teams named on namespaces"),
    Resource(kind="Event", plural="events", cost="notices that spot nodes were taken back"),
    Resource(kind="PersistentVolumeClaim", plural="persistentvolumeclaims", cost="volumes"),
    Resource(kind="ReplicaSet", plural="replicasets", group="apps", cost="owners of pods, which are then guessed"),
    Resource(kind="Deployment", plural="deployments", group="apps", cost="owners of ReplicaSets"),
    Resource(kind="StatefulSet", plural="statefulsets", group="apps", cost="owners of StatefulSets"),
    Resource(kind="DaemonSet", plural="daemonsets", group="apps", cost="owners of DaemonSets"),
    Resource(kind="Job", plural="jobs", group="batch", cost="when runs were submitted, and how they ended"),
    Resource(kind="CronJob", plural="cronjobs", group="batch", cost="owners of CronJobs"),
    Resource(
        kind="HorizontalPodAutoscaler", plural="horizontalpodautoscalers", group="autoscaling",
        versions=("v2",), cost="autoscalers in place",
    ),
    Resource(
        kind="ScaledObject", plural="scaledobjects", group="keda.sh", versions=("v1alpha1",),
        cost="KEDA scalers in place",
    ),
    Resource(
        kind="NodePool", plural="nodepools", group="karpenter.sh", versions=("v1", "v1beta1"),
        cost="Karpenter pools in place",
    ),
    Resource(kind="RayCluster", plural="rayclusters", group="ray.io", cost="the RayService or RayJob of pods of Ray"),
    Resource(
        kind="ClusterQueue", plural="clusterqueues", group="kueue.x-k8s.io", versions=("v1beta2", "v1beta1"),
        cost="Kueue quotas",
    ),
    Resource(
        kind="LocalQueue", plural="localqueues", group="kueue.x-k8s.io", versions=("v1beta2", "v1beta1"),
        cost="Kueue queues",
    ),
    Resource(
        kind="Workload", plural="workloads", group="kueue.x-k8s.io", versions=("v1beta2", "v1beta1"),
        cost="runs that wait in Kueue",
    ),
    Resource(kind="Job", plural="jobs", group="batch.volcano.sh", versions=("v1alpha1",), cost="Volcano jobs"),
    Resource(
        kind="Queue", plural="queues", group="scheduling.volcano.sh", versions=("v1beta1",), cost="Volcano queues"
    ),
    Resource(
        kind="PodGroup", plural="podgroups", group="scheduling.volcano.sh", versions=("v1beta1",),
        cost="runs that wait in Volcano",
    ),
)  # fmt: skip
"""Everything that is asked, nodes and pods first."""

READER = "trimtab-reader"


def rbac_manifest(namespace: str = "trimtab") -> str:
    """Return the YAML of a service account that may list and read what trimtab reads, and change nothing."""
    groups = dict.fromkeys(resource.group for resource in RESOURCES)
    rules = [
        {
            "apiGroups": [group],
            "resources": sorted(resource.plural for resource in RESOURCES if resource.group == group),
            "verbs": ["get", "list"],
        }
        for group in groups
    ]
    subject = {"kind": "ServiceAccount", "name": READER, "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": READER}
    documents: list[dict[str, object]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": READER, "namespace": namespace}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": READER},
            "rules": rules,
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": READER},
            "subjects": [subject],
            "roleRef": role,
        },
    ]
    head = (
        "# Lets trimtab list what it reads; it can change nothing and read no Secret and no ConfigMap.\n"
        f"# kubectl apply -f this-file; a token for an hour: kubectl create token {READER} -n {namespace}\n"
    )
    return head + yaml.safe_dump_all(documents, sort_keys=False)
