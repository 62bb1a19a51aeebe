"""Who owns a pod, from kube-state-metrics or from owner references: the workload that people know, and the team that pays.

Operators put objects between a pod and the object that people write. Both sources give a workload the same name:

- KServe, Knative: the Deployment's name (Knative's without the revision), and the kind of the object that makes it.
- LeaderWorkerSet: its name. Its workers belong to a StatefulSet `llm-0` for each group, which the leader's pod `llm-0` owns
  (kubernetes-sigs/lws, `pkg/controllers/pod_controller.go`).
- RayService, RayJob: their name. KubeRay adds a hyphen and five letters for each RayCluster, once also `-raycluster` before it
  (ray-project/kuberay, `utils/util.go`, GenerateRayClusterName; `metrics/ray_cluster_metrics.go`, kuberay_cluster_info).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from trimtab.fleet.owner_kinds import (
    INFERENCE_SERVICE,
    INFERENCE_SERVICE_LABEL,
    KNATIVE_SERVICE,
    KSERVE,
    KSERVE_COMPONENT,
    LLM_INFERENCE_SERVICE,
    LLM_PART_OF,
    kind_of_deployment,
    object_name,
)
from trimtab.sources.kubernetes.objects import KINDS, Object, Objects, listed, mapping, text
from trimtab.sources.prometheus.client import Prometheus, any_of

RUN_KINDS = frozenset(
    {
        "Job",
        "CronJob",
        "JobSet",
        "TrainJob",
        "PyTorchJob",
        "MPIJob",
        "TFJob",
        "JAXJob",
        "XGBoostJob",
        "PaddleJob",
        "RayJob",
        "Workflow",
        "PipelineRun",
        "AppWrapper",
    }
)
"""Owner kinds whose pods run to an end."""
TEAM_LABELS = ("label_team", "label_owner", "label_cost_center", "label_app_kubernetes_io_part_of")
"""Pod and namespace labels that name who pays, the surest first (kube-state-metrics exports them on request only)."""
REPLICA_SET_POD = re.compile(r"^(?P<owner>.+)-[a-z0-9]{6,10}-[a-z0-9]{5}$")
_REPLICA_SET = re.compile(r"^(?P<owner>.+)-[a-z0-9]{6,10}$")
NUMBERED_POD = re.compile(r"^(?P<owner>.+)-\d+$")
HASHED_POD = re.compile(r"^(?P<owner>.+)-[a-z0-9]{5}$")
_RUN_NUMBER = re.compile(r"([-.](\d{1,4}|\d{6,14}|\d{4}-\d{2}-\d{2}([-t]\d{2,6})?))+$")
_CRON_JOB_RUN = re.compile(r"^(?P<owner>.+)-\d{8,10}$")
_REVISION = re.compile(r"^(?P<owner>.+)-\d{5}-deployment$")
"""A Deployment that Knative makes for a revision (knative/serving, `pkg/reconciler/revision/resources/names`)."""
_GROUP_OF_WORKERS = re.compile(r"^(?P<owner>.+)-\d+$")
_RAY_CLUSTER = re.compile(r"^(?P<owner>.+?)(-raycluster)?-[a-z0-9]{5}$")
_OLD_RAY_CLUSTER = re.compile(r"^(?P<owner>.+)-raycluster-[a-z0-9]{5}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The workload of a pod: `namespace/name`, the kind of its top owner, the Job that is the run (if any), the team."""

    workload: str
    kind: str | None
    job: str | None = None
    team: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Owners:
    """Ownership as kube-state-metrics tells it."""

    pods: Mapping[tuple[str, str], tuple[str, str]]
    """(namespace, pod) -> (kind, name) of its controller."""
    parents: Mapping[tuple[str, str, str], tuple[str, str]]
    """(namespace, kind, name) -> (kind, name) of the controller of a ReplicaSet, a Job, a Deployment or a RayCluster."""
    teams: Mapping[tuple[str, str], str]
    """(namespace, pod) -> team; pod "" is the whole namespace."""

    makers: Mapping[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    """(namespace, pod) -> (kind, name) of the object of KServe that its labels name."""

    def of(self, namespace: str, pod: str) -> Owner:
        """Return the owner of a pod; if its controller is unknown, the pod's name without the generated suffix."""
        team = self.teams.get((namespace, pod)) or self.teams.get((namespace, ""))
        controller = self.pods.get((namespace, pod))
        if controller is None:
            name, kind = name_without_suffix(pod)
            return Owner(workload=f"{namespace}/{name}", kind=kind, team=team)
        kind, name = controller
        job = name if kind == "Job" else None
        kind, name = self.parents.get((namespace, kind, name), (kind, name))
        if kind == "ReplicaSet":
            matched = _REPLICA_SET.match(name)
            kind, name = ("Deployment", matched["owner"]) if matched else (kind, name)
        maker = self.makers.get((namespace, pod))
        if kind == "Deployment":
            kind, name = workload_of_deployment(name, self.parents.get((namespace, kind, name)), maker)
        if kind == "LeaderWorkerSet" and maker is not None:
            kind = KSERVE_COMPONENT
        if kind == "RayCluster" and (matched := _OLD_RAY_CLUSTER.match(name)):
            name = matched["owner"]
        if kind == "Job":
            matched = _CRON_JOB_RUN.match(name)
            kind, name = ("CronJob", matched["owner"]) if matched else (kind, name)
        if kind in RUN_KINDS:
            job = job or name
            name = name_of_family(name)
        return Owner(workload=f"{namespace}/{name}", kind=kind, job=job, team=team)

    def knows(self, namespace: str, pod: str) -> bool:
        """Return whether a pod's controller is known."""
        return (namespace, pod) in self.pods


def name_without_suffix(pod: str) -> tuple[str, str | None]:
    """Return a pod's name without what a controller appended, and the kind that appends so: a guess where none is known."""
    if matched := REPLICA_SET_POD.match(pod):
        return matched["owner"], "Deployment"
    if matched := NUMBERED_POD.match(pod):
        return matched["owner"], "StatefulSet"
    if matched := HASHED_POD.match(pod):
        return matched["owner"], "Job"
    return pod, None


def name_of_family(run: str) -> str:
    """Return a run's name without its number or date, so that `sweep-1` and `sweep-2` are runs of one workload."""
    family = _RUN_NUMBER.sub("", run)
    return family or run


def workload_of_deployment(
    name: str, owner: tuple[str, str] | None, told: tuple[str, str] | None = None
) -> tuple[str, str]:
    """Return the kind and name of the workload whose pods a Deployment runs.

    `owner` is the Deployment's controller, `told` the object of KServe that labels of its pods name. KServe overwrites changes
    to its Deployments, so its own object is the kind to patch; the workload keeps the Deployment's name (`llm-kserve`,
    `llm-kserve-prefill`), because prefill and decode of one object are two workloads. Knative makes a Deployment for each
    revision: the workload is named after the service, whatever the revision.

    Source: knative/serving, names of revisions (five digits).

    >>> workload_of_deployment("chat-predictor", ("InferenceService", "chat"))
    ('InferenceService', 'chat-predictor')
    >>> workload_of_deployment("chat-predictor-00002-deployment", ("Revision", "chat-predictor-00002"))
    ('InferenceService', 'chat-predictor')
    """
    revision = _REVISION.match(name)
    if revision and (owner is None or owner[0] == "Revision"):
        service = revision["owner"]
        if told is not None:
            return kind_of_deployment(service, *told), service
        of_kserve = object_name(INFERENCE_SERVICE, service) != service
        return INFERENCE_SERVICE if of_kserve else KNATIVE_SERVICE, service
    maker = owner if owner is not None and owner[0] in KSERVE else told
    return ("Deployment" if maker is None else kind_of_deployment(name, *maker)), name


def _with_groups(pods: Mapping[tuple[str, str], tuple[str, str]]) -> dict[tuple[str, str], tuple[str, str]]:
    """Return pods with their controllers, those of a LeaderWorkerSet as its own where kube-state-metrics names StatefulSets.

    No series says who owns a StatefulSet. The workers' is named after their leader, a pod of the StatefulSet of leaders.
    """
    groups = {
        (namespace, name): matched["owner"]
        for (namespace, _), (kind, name) in pods.items()
        if kind == "StatefulSet"
        and (matched := _GROUP_OF_WORKERS.match(name))
        and pods.get((namespace, name)) == ("StatefulSet", matched["owner"])
    }
    sets = groups | {(namespace, owner): owner for (namespace, _), owner in groups.items()}
    return {
        (namespace, pod): ("LeaderWorkerSet", sets[namespace, name])
        if kind == "StatefulSet" and (namespace, name) in sets
        else (kind, name)
        for (namespace, pod), (kind, name) in pods.items()
    }


def collect_owners(server: Prometheus, start_s: float, end_s: float) -> Owners:
    """Ask kube-state-metrics for the owners of all pods, and KubeRay for those of RayClusters."""
    pods: dict[tuple[str, str], tuple[str, str]] = {}
    for name, kind_label, name_label in (
        ("kube_pod_info", "created_by_kind", "created_by_name"),
        ("kube_pod_owner", "owner_kind", "owner_name"),
    ):
        for labels in server.series([name + server.matching()], start_s, end_s):
            kind, owner = labels.get(kind_label, ""), labels.get(name_label, "")
            if kind not in _NOBODY:
                pods[subject(labels, "pod")] = (kind, owner)
    parents: dict[tuple[str, str, str], tuple[str, str]] = {}
    for metric, kind, child in _OWNER_SERIES:
        for labels in server.series([metric + server.matching()], start_s, end_s):
            namespace, name = subject(labels, child)
            owner = labels.get("owner_name", "")
            if kind == "RayCluster" and (matched := _RAY_CLUSTER.match(name)):
                owner = matched["owner"]
            if labels.get("owner_kind", "") not in _NOBODY and owner:
                parents[namespace, kind, name] = (labels["owner_kind"], owner)
    teams, makers = _pod_labels(server, start_s, end_s)
    return Owners(pods=_with_groups(pods), parents=parents, teams=teams, makers=makers)


_NOBODY = frozenset({"", "<none>", "None"})
_OWNER_SERIES = (
    ("kube_replicaset_owner", "ReplicaSet", "replicaset"),
    ("kube_job_owner", "Job", "job_name"),
    ("kube_deployment_owner", "Deployment", "deployment"),
    ("kuberay_cluster_info", "RayCluster", "name"),
)
"""Series that tell owners, the kind that they are about and its label; older kube-state-metrics tell none of Deployments."""


def _pod_labels(
    server: Prometheus, start_s: float, end_s: float
) -> tuple[dict[tuple[str, str], str], dict[tuple[str, str], tuple[str, str]]]:
    """Return the teams of pods and namespaces, and the objects of KServe that labels of pods name."""
    teams: dict[tuple[str, str], str] = {}
    makers: dict[tuple[str, str], tuple[str, str]] = {}
    for metric in ("kube_namespace_labels", "kube_pod_labels"):
        for labels in server.series([metric + server.matching()], start_s, end_s):
            namespace, pod = subject(labels, "pod")
            of_pods = metric == "kube_pod_labels"
            if (team := _team(labels)) is not None:
                teams[namespace, pod if of_pods else ""] = team
            if of_pods and (maker := _maker(labels)) is not None:
                makers[namespace, pod] = maker
    return teams, makers


def _team(labels: Mapping[str, str]) -> str | None:
    """Return who pays, by labels as kube-state-metrics spells them; the mark that KServe sets on its pods names no team."""
    return next((labels[name] for name in TEAM_LABELS if labels.get(name) and labels[name] != LLM_PART_OF), None)


def _maker(labels: Mapping[str, str]) -> tuple[str, str] | None:
    """Return (kind, name) of the object of KServe that a pod's labels name."""
    if labels.get("label_app_kubernetes_io_part_of") == LLM_PART_OF:
        name = labels.get("label_app_kubernetes_io_name", "")
        return (LLM_INFERENCE_SERVICE, name) if name else None
    name = labels.get(metric_label(INFERENCE_SERVICE_LABEL), "")
    return (INFERENCE_SERVICE, name) if name else None


def subject(labels: Mapping[str, str], name: str) -> tuple[str, str]:
    """Return (namespace, name) of what a kube-state-metrics series is about, under either honorLabels setting."""
    namespace = labels.get("exported_namespace") or labels.get("namespace", "")
    return namespace, labels.get(f"exported_{name}") or labels.get(name, "")


def namespace_matchers(namespaces: Iterable[str]) -> list[str]:
    """Return the matchers of some namespaces under either honorLabels setting; one that matches all where none are known."""
    listed = {name for name in namespaces if name}
    return [any_of(label, listed) for label in ("namespace", "exported_namespace")] if listed else [""]


def selectors(server: Prometheus, metric: str, matchers: Sequence[str]) -> list[str]:
    """Return one selector of a metric for each matcher."""
    return [metric + server.matching(matcher) for matcher in matchers]


_MOST_STEPS = 8
_STANDING = frozenset({"Deployment", "StatefulSet", "DaemonSet"})
_PASSED_ON = frozenset({"LeaderWorkerSet", "RayService", "RayJob"})
"""Owners of a StatefulSet or RayCluster that are the workload instead of it: each of their groups, or versions, is one."""

Step = Mapping[tuple[str, str, str], tuple[str, str]]


def owners_of(objects: Objects) -> Owners:
    """Return owners and teams from owner references and labels."""
    steps: dict[tuple[str, str, str], tuple[str, str]] = {}
    for kind in KINDS:
        for item in objects.of(kind):
            controller = controller_of(item)
            if controller is not None:
                steps[text(item, "metadata", "namespace"), kind, text(item, "metadata", "name")] = controller
    pods = {
        (namespace, name): _passed(steps, namespace, controller)
        for (namespace, kind, name), controller in steps.items()
        if kind == "Pod"
    }
    parents = {
        (namespace, kind, name): _topmost(steps, namespace, (kind, name))
        for (namespace, kind, name) in steps
        if kind in ("ReplicaSet", "Job")
    }
    parents |= {key: controller for key, controller in steps.items() if key[1] == "Deployment"}
    teams, makers = _labels_of(objects)
    return Owners(pods=pods, parents=parents, teams=teams, makers=makers)


def controller_of(item: Object) -> tuple[str, str] | None:
    """Return (kind, name) of the owner that controls an object; of several owners the one marked so, else the first."""
    owners = [owner for owner in listed(item, "metadata", "ownerReferences") if text(owner, "kind")]
    owner = next((owner for owner in owners if owner.get("controller") is True), owners[0] if owners else None)
    return None if owner is None else (text(owner, "kind"), text(owner, "name"))


def _topmost(steps: Step, namespace: str, child: tuple[str, str]) -> tuple[str, str]:
    """Follow owners up; a Deployment or StatefulSet is where it ends, whatever operator made it."""
    for _ in range(_MOST_STEPS):
        above = steps.get((namespace, *child))
        if above is None or child[0] in _STANDING:
            return child
        child = above
    return child


def _passed(steps: Step, namespace: str, controller: tuple[str, str]) -> tuple[str, str]:
    """Return the owner that a pod's controller is passed on to, through the leader's pod of a group; else the controller."""
    above = controller
    for _ in range(_MOST_STEPS):
        following = steps.get((namespace, *above))
        if following is None or following[0] in _PASSED_ON:
            return following or controller
        above = following
    return controller


def _labels_of(
    objects: Objects,
) -> tuple[dict[tuple[str, str], str], dict[tuple[str, str], tuple[str, str]]]:
    """Return the teams of pods and namespaces, and the objects of KServe that labels of pods name."""
    teams: dict[tuple[str, str], str] = {}
    makers: dict[tuple[str, str], tuple[str, str]] = {}
    for kind in ("Namespace", "Pod"):
        for item in objects.of(kind):
            labels = {metric_label(key): value for key, value in mapping(item, "metadata", "labels").items() if value}
            name, namespace = text(item, "metadata", "name"), text(item, "metadata", "namespace")
            if (team := _team(labels)) is not None:
                teams[(name, "") if kind == "Namespace" else (namespace, name)] = team
            if kind == "Pod" and (maker := _maker(labels)) is not None:
                makers[namespace, name] = maker
    return teams, makers


def metric_label(key: str) -> str:
    """Return a label's name as kube-state-metrics spells it: `label_` and every sign that is no letter or digit as `_`.

    >>> metric_label("node.kubernetes.io/instance-type")
    'label_node_kubernetes_io_instance_type'
    """
    return "label_" + "".join(sign if sign.isascii() and sign.isalnum() else "_" for sign in key)
