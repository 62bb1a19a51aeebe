"""Who owns what in a snapshot of Kubernetes: owner references followed up to the workload that people know."""

from __future__ import annotations

from collections.abc import Mapping

from trimtab.sources.kube_objects import KINDS, Object, Objects, listed, mapping, text
from trimtab.sources.kube_owners import TEAM_LABELS, Owners

_MOST_STEPS = 8
_STANDING = frozenset({"Deployment", "StatefulSet", "DaemonSet"})
_PASSED_ON = frozenset({"LeaderWorkerSet", "RayService", "RayJob"})
"""Owners of a StatefulSet or RayCluster that are the workload instead of it: each of their groups, or versions, is one."""

Step = Mapping[tuple[str, str, str], tuple[str, str]]


def owners_of(objects: Objects) -> Owners:
    """Return owners and teams: (namespace, pod) -> controller, and each ReplicaSet or Job -> its topmost owner."""
    steps: dict[tuple[str, str, str], tuple[str, str]] = {}
    for kind in KINDS:
        for one in objects.of(kind):
            controller = controller_of(one)
            if controller is not None:
                steps[text(one, "metadata", "namespace"), kind, text(one, "metadata", "name")] = controller
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
    return Owners(pods=pods, parents=parents, teams=_teams(objects))


def controller_of(one: Object) -> tuple[str, str] | None:
    """Return (kind, name) of the owner that controls an object; of several owners the one marked so, else the first."""
    owners = [owner for owner in listed(one, "metadata", "ownerReferences") if text(owner, "kind")]
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


def _teams(objects: Objects) -> dict[tuple[str, str], str]:
    teams = {}
    for kind in ("Namespace", "Pod"):
        for one in objects.of(kind):
            labels = {metric_label(key): value for key, value in mapping(one, "metadata", "labels").items() if value}
            team = next((labels[name] for name in TEAM_LABELS if name in labels), None)
            if team is not None:
                name = text(one, "metadata", "name")
                namespace = name if kind == "Namespace" else text(one, "metadata", "namespace")
                teams[namespace, name if kind == "Pod" else ""] = team
    return teams


def metric_label(key: str) -> str:
    """Return a label's name as kube-state-metrics spells it: `label_` and every sign that is no letter or digit as `_`.

    >>> metric_label("node.kubernetes.io/instance-type")
    'label_node_kubernetes_io_instance_type'
    """
    return "label_" + "".join(sign if sign.isascii() and sign.isalnum() else "_" for sign in key)
