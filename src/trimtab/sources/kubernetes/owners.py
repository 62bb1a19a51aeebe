"""Who owns a pod, from kube-state-metrics or from owner references: the workload that people know, and the team that pays."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trimtab.fleet.owner_kinds import INFERENCE_SERVICE, KNATIVE_SERVICE, KSERVE, object_name
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
_REVISION = re.compile(r"^(?P<service>.+)-\d{5}$")


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
    """(namespace, kind, name) -> (kind, name) of the workload of a ReplicaSet or Job, as `workload_of_deployment` names it."""
    teams: Mapping[tuple[str, str], str]
    """(namespace, pod) -> team; pod "" is the whole namespace."""

    def of(self, namespace: str, pod: str) -> Owner:
        """Return the owner of a pod; where nobody told, the name that is left when the generated suffix goes."""
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
        if kind == "Job":
            matched = _CRON_JOB_RUN.match(name)
            kind, name = ("CronJob", matched["owner"]) if matched else (kind, name)
        if kind in RUN_KINDS:
            job = job or name
            name = name_of_family(name)
        return Owner(workload=f"{namespace}/{name}", kind=kind, job=job, team=team)

    def knows(self, namespace: str, pod: str) -> bool:
        """Tell whether a pod's controller was told."""
        return (namespace, pod) in self.pods


def name_without_suffix(pod: str) -> tuple[str, str | None]:
    """Return a pod's name without what a controller appended, and the kind that appends so: a guess, used when none told."""
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


def collect_owners(server: Prometheus, start_s: float, end_s: float, namespaces: Iterable[str]) -> Owners:
    """Ask kube-state-metrics for the owners of all pods in the namespaces."""
    within = namespace_matchers(namespaces)
    pods: dict[tuple[str, str], tuple[str, str]] = {}
    for name, kind_label, name_label in (
        ("kube_pod_info", "created_by_kind", "created_by_name"),
        ("kube_pod_owner", "owner_kind", "owner_name"),
    ):
        for labels in server.series(selectors(server, name, within), start_s, end_s):
            kind, owner = labels.get(kind_label, ""), labels.get(name_label, "")
            if kind not in ("", "<none>"):
                pods[subject(labels, "pod")] = (kind, owner)
    parents: dict[tuple[str, str, str], tuple[str, str]] = {}
    for metric, child in (("kube_replicaset_owner", "replicaset"), ("kube_job_owner", "job_name")):
        kind = "ReplicaSet" if child == "replicaset" else "Job"
        for labels in server.series(selectors(server, metric, within), start_s, end_s):
            if labels.get("owner_kind", "") not in ("", "<none>"):
                namespace, name = subject(labels, child)
                parents[namespace, kind, name] = (labels["owner_kind"], labels.get("owner_name", ""))
    # kube-state-metrics tells owners of Deployments since v2.18
    deployments = {
        subject(labels, "deployment"): (labels["owner_kind"], labels.get("owner_name", ""))
        for labels in server.series(selectors(server, "kube_deployment_owner", within), start_s, end_s)
        if labels.get("owner_kind", "") not in ("", "<none>")
    }
    for (namespace, kind, child), (parent_kind, parent) in parents.items():
        if parent_kind == "Deployment":
            workload = workload_of_deployment(parent, deployments.get((namespace, parent)))
            parents[namespace, kind, child] = workload
    return Owners(pods=pods, parents=parents, teams=_teams(server, start_s, end_s, within))


def _teams(server: Prometheus, start_s: float, end_s: float, within: Sequence[str]) -> dict[tuple[str, str], str]:
    teams: dict[tuple[str, str], str] = {}
    for metric in ("kube_namespace_labels", "kube_pod_labels"):
        for labels in server.series(selectors(server, metric, within), start_s, end_s):
            team = next((labels[name] for name in TEAM_LABELS if labels.get(name)), None)
            if team is not None:
                namespace, pod = subject(labels, "pod")
                teams[namespace, pod if metric == "kube_pod_labels" else ""] = team
    return teams


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
    """Return owners and teams: (namespace, pod) -> controller, and each ReplicaSet or Job -> its topmost owner."""
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
    for (namespace, child_kind, child), (kind, name) in parents.items():
        if kind == "Deployment":
            workload = workload_of_deployment(name, steps.get((namespace, kind, name)))
            parents[namespace, child_kind, child] = workload
    return Owners(pods=pods, parents=parents, teams=_teams_of_namespaces(objects))


def workload_of_deployment(name: str, owner: tuple[str, str] | None) -> tuple[str, str]:
    """Return the kind and name of the workload whose pods a Deployment runs, given the Deployment's controller.

    KServe overwrites changes to its Deployments, so its own object is the kind to patch; the workload keeps the
    Deployment's name (`chat-predictor`, `llm-kserve`, `llm-kserve-prefill`), because prefill and decode of one object are two
    workloads. Knative makes a Deployment for each revision (`chat-predictor-00002-deployment`): the workload is named after
    the service, whatever the revision.

    Source: knative/serving, names of revisions (five digits).

    >>> workload_of_deployment("chat-predictor", ("InferenceService", "chat"))
    ('InferenceService', 'chat-predictor')
    >>> workload_of_deployment("chat-predictor-00002-deployment", ("Revision", "chat-predictor-00002"))
    ('InferenceService', 'chat-predictor')
    """
    if owner is None:
        return "Deployment", name
    kind, owner_name = owner
    if kind in KSERVE:
        return kind, name
    if kind == "Revision" and (matched := _REVISION.match(owner_name)):
        service = matched["service"]
        of_kserve = object_name(INFERENCE_SERVICE, service) != service
        return INFERENCE_SERVICE if of_kserve else KNATIVE_SERVICE, service
    return "Deployment", name


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
    above = steps.get((namespace, *controller))
    return above if above is not None and above[0] in _PASSED_ON else controller


def _teams_of_namespaces(objects: Objects) -> dict[tuple[str, str], str]:
    teams = {}
    for kind in ("Namespace", "Pod"):
        for item in objects.of(kind):
            labels = {metric_label(key): value for key, value in mapping(item, "metadata", "labels").items() if value}
            team = next((labels[name] for name in TEAM_LABELS if name in labels), None)
            if team is not None:
                name = text(item, "metadata", "name")
                namespace = name if kind == "Namespace" else text(item, "metadata", "namespace")
                teams[namespace, name if kind == "Pod" else ""] = team
    return teams


def metric_label(key: str) -> str:
    """Return a label's name as kube-state-metrics spells it: `label_` and every sign that is no letter or digit as `_`.

    >>> metric_label("node.kubernetes.io/instance-type")
    'label_node_kubernetes_io_instance_type'
    """
    return "label_" + "".join(sign if sign.isascii() and sign.isalnum() else "_" for sign in key)
