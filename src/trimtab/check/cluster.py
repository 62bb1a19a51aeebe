"""What is known of the cluster that a folder is for: its objects, workloads, namespaces and series.

Read from `kubectl get -o json` dumps or a GitOps folder (objects as they are), or from a fleet bundle (workloads and pods
only). Where a kind was not read, a missing name is no fault: `knows_all` says which kinds were read whole.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trimtab.errors import CredentialsError, InputError, SourceError, UsageError
from trimtab.fleet.owner_kinds import (
    INFERENCE_SERVICE,
    KNATIVE_SERVICE,
    KSERVE_COMPONENT,
    LLM_INFERENCE_SERVICE,
    object_name,
    pod_spec_path,
    workload_name,
)
from trimtab.inputs.documents import load_json
from trimtab.inputs.files import read_text
from trimtab.sources.kubernetes.manifests import read_manifests
from trimtab.sources.kubernetes.objects import Object, at, documents_of, listed, mapping, text
from trimtab.tables.bundle import Bundle, read_bundle

Key = tuple[str, str, str, str]
"""API group, kind, namespace, name."""
TEMPLATES = {
    kind: pod_spec_path(kind)[:-1]
    for kind in (
        "Pod", "CronJob", "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "Rollout", "Notebook",
    )
}  # fmt: skip
"""Kinds with pods in them, and where their template is; of the last two no schema is shipped."""
WORKLOAD_KINDS = frozenset({
    "Deployment", "StatefulSet", "ReplicaSet", "DaemonSet", "Job", "CronJob", "Rollout", "LeaderWorkerSet", "PyTorchJob",
    "RayJob", "RayService", "InferenceService", "LLMInferenceService", "Notebook", "JobSet",
})  # fmt: skip
_PARTS = {INFERENCE_SERVICE: (False,), LLM_INFERENCE_SERVICE: (False, True)}
"""Parts of KServe's objects that become Deployments: whether each is for prefill."""
_BUNDLE = "bundle.yaml"
_LIMIT_S = 120
_REQUEST_LIMIT_S = 20
_LOG_LINE = re.compile(r"[EWI]\d{4} \d\d:")
"""A line of kubectl's log (klog), which says each failed try again."""


@dataclass(slots=True, kw_only=True)
class Cluster:
    """Objects and names that are there already."""

    objects: dict[Key, Object] = field(default_factory=dict)
    workloads: dict[str, str] = field(default_factory=dict)
    """Namespace/name -> kind, empty where it is not known."""
    pod_labels: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Of a workload's pods, where they are known."""
    namespaces: set[str] = field(default_factory=set)
    series: frozenset[str] | None = None
    """Names of the series that its Prometheus has; None where it was not asked."""

    def add(self, body: Object) -> None:
        """Take an object in."""
        key = key_of(body)
        _, kind, namespace, name = key
        self.objects[key] = body
        if namespace:
            self.namespaces.add(namespace)
        if kind == "Namespace":
            self.namespaces.add(name)
        if kind in WORKLOAD_KINDS:
            self.workloads[f"{namespace or 'default'}/{name}"] = kind
            for prefill in _PARTS.get(kind, ()):
                # a GitOps folder holds the object alone, and not the Deployments that KServe makes of it
                made = workload_name(kind, name, prefill=prefill)
                self.workloads.setdefault(f"{namespace or 'default'}/{made}", "Deployment")
            labels = mapping(body, "spec", "template", "metadata", "labels")
            if labels:
                self.pod_labels[f"{namespace or 'default'}/{name}"] = labels

    def knows_all(self, kind: str) -> bool:
        """Return whether objects of a kind were read, so that one which is not among them is not there."""
        return any(key[1] == kind for key in self.objects)

    def names(self, kind: str, namespace: str | None = None) -> set[str]:
        """Return the names of the objects of a kind (of one namespace)."""
        return {key[3] for key in self.objects if key[1] == kind and namespace in (None, key[2])}

    def with_series(self, names: frozenset[str] | None) -> Cluster:
        """Return the same cluster, whose Prometheus has these series."""
        self.series = names
        return self


def key_of(body: Object) -> Key:
    """Return what no two objects of a cluster have in common."""
    group = text(body, "apiVersion").rpartition("/")[0]
    return group, text(body, "kind"), text(body, "metadata", "namespace"), text(body, "metadata", "name")


def read_cluster(path: Path) -> Cluster:
    """Read a bundle, dumps of `kubectl get -o json`, or a folder of manifests; raises InputError where there is nothing."""
    if (path / _BUNDLE).is_file():
        return cluster_of_bundle(read_bundle(path))
    cluster = Cluster()
    for _, document in read_manifests(path):
        for body in _flat(document):
            if text(body, "kind") and text(body, "metadata", "name"):
                cluster.add(body)
    if not cluster.objects:
        raise InputError(
            f"{path}: no objects there; write some with: kubectl get all,nodepools,scaledobjects -A -o json"
        )
    return cluster


def _flat(document: object) -> Iterable[Object]:
    if isinstance(document, Mapping):
        items = listed(document, "items")
        return items if items or text(document, "kind").endswith("List") else [document]
    return []


def cluster_of_bundle(bundle: Bundle) -> Cluster:
    """Return what a fleet's history tells: workloads with their kinds, labels of their pods, namespaces."""
    cluster = Cluster()
    for row in (
        bundle.table("allocations", ["workload", "owner_kind"])
        .group_by(["workload", "owner_kind"])
        .aggregate([])
        .to_pylist()
    ):
        name, kind = str(row["workload"]), str(row["owner_kind"] or "")
        written = object_name(kind, name)
        if written != name:  # KServe's object and the Deployment that it makes are both there
            cluster.workloads[written] = kind
            kind = "Deployment"
        kind = "Deployment" if kind in (KSERVE_COMPONENT, KNATIVE_SERVICE) else kind
        cluster.workloads[name] = kind or cluster.workloads.get(name, "")
        if "/" in name:
            cluster.namespaces.add(name.partition("/")[0])
    if bundle.has("pods"):
        for row in bundle.table("pods", ["workload", "namespace", "selector"]).to_pylist():
            cluster.namespaces.add(str(row["namespace"]))
            if row["selector"]:
                cluster.pod_labels[str(row["workload"])] = dict(row["selector"])
    return cluster


def cluster_of_context(context: str, kinds: Iterable[str]) -> Cluster:
    """Ask a cluster for its objects of some kinds by kubectl; a kind that it does not serve has none.

    Raises UsageError where there is no kubectl or no such context, CredentialsError where kinds may not be listed, all named at
    once, SourceError where the cluster does not answer.
    """
    asked = ["namespaces", "deployments.apps", "statefulsets.apps", "services", *sorted(set(kinds))]
    cluster, refused = Cluster(), list[str]()
    for kind in dict.fromkeys(asked):
        try:
            answer = _kubectl(context, ["get", kind, "-A", "-o", "json"])
        except _Refused:
            refused.append(kind)
            continue
        for body in listed(load_json(answer, f"what kubectl says of {kind}"), "items") if answer else ():
            cluster.add(body)
    if refused:
        raise _may_not_list(context, refused)
    return cluster


def crds_of_context(context: str) -> list[object]:
    """Ask a cluster for its CustomResourceDefinitions by kubectl; raises as `cluster_of_context` does."""
    kind = "customresourcedefinitions"
    try:
        answer = _kubectl(context, ["get", kind, "-o", "json"])
    except _Refused as error:
        raise _may_not_list(context, [kind]) from error
    return [load_json(answer, f"what kubectl says of {kind}")] if answer else []


class _Refused(Exception):
    """A kind that whoever asks may not list."""


def _may_not_list(context: str, kinds: Sequence[str]) -> CredentialsError:
    return CredentialsError(
        f"--context {context}: you may not list {', '.join(kinds)}. Whoever administers the cluster can allow it: kubectl "
        f"create clusterrole trimtab-check --verb=list --resource={','.join(kinds)}, and bind it to you; or give --against "
        "(and --schemas) with dumps by somebody who may: kubectl get ... -A -o json"
    )


def _kubectl(context: str, arguments: list[str]) -> str:
    """Return what kubectl says of a kind; "" where the server has no such kind; raises _Refused where it may not be listed."""
    if shutil.which("kubectl") is None:
        raise UsageError("--context asks the cluster by kubectl, which is not installed; give dumps with --against")
    command = ["kubectl", "--context", context, f"--request-timeout={_REQUEST_LIMIT_S}s", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise _away(context, f"no answer in {_LIMIT_S} s") from error
    said = "; ".join(line for line in done.stderr.splitlines() if line and not _LOG_LINE.match(line))
    if not done.returncode:
        return done.stdout
    if "(Forbidden)" in said:
        raise _Refused
    if "the server doesn't have a resource type" in said or "(NotFound)" in said:
        return ""
    if "context was not found" in said or ("context" in said and "does not exist" in said):
        raise UsageError(f"--context {context}: {said}; kubectl config get-contexts lists those that there are")
    if "Unauthorized" in said or "logged in to the server" in said:
        raise CredentialsError(
            f"--context {context}: not signed in ({said}); renew the credentials of that context: kubectl --context {context} "
            "get namespaces must work"
        )
    raise _away(context, said)


def _away(context: str, said: str) -> SourceError:
    return SourceError(
        f"--context {context}: the cluster does not answer ({said}); is it reachable (kubectl --context {context} get "
        "namespaces)? else give a dump with --against"
    )


def series_of(path: Path) -> frozenset[str]:
    """Read names of series: Prometheus' answer to /api/v1/label/__name__/values, or a name a line."""
    content = read_text(path)
    if content.lstrip().startswith("{"):
        data = at(next(iter(documents_of(path)), None), "data")
        return frozenset(str(name) for name in data) if isinstance(data, list) else frozenset()
    return frozenset(line.strip() for line in content.splitlines() if line.strip())
