"""A CronJob that stops notebooks which a GPU was held for and did nothing: first it only says which.

It asks Prometheus for the most that a GPU of each pod did in the last hours, and stops what a pod belongs to: a Kubeflow
Notebook by its own annotation, else a StatefulSet or Deployment by `replicas: 0`. What has no reading is never stopped.
Source of the annotation: Kubeflow, notebook-controller, `kubeflow-resource-stopped`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from trimtab.emit.manifests.objects import MANAGED_BY, Plain, yaml_text

NAME = "trimtab-notebook-reaper"
_IMAGE = "python:3.13-slim"
"""It needs Python and nothing else."""
_METRIC = "DCGM_FI_DEV_GPU_UTIL"
"""Percent of the time that any kernel ran, which every dcgm-exporter has: who runs the smallest kernel is not stopped."""
_KINDS: Mapping[str, str] = {
    "Notebook": "kubeflow.org/v1/notebooks",
    "StatefulSet": "apps/v1/statefulsets",
    "Deployment": "apps/v1/deployments",
}
SCRIPT = '''\
"""Stop notebooks whose GPUs did nothing for HOURS hours; DRY_RUN=1 only says which."""
import datetime, json, os, pathlib, ssl, urllib.parse, urllib.request

ACCOUNT = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
API = os.environ.get("API", "https://kubernetes.default.svc")
HOURS, ACTIVE = float(os.environ["HOURS"]), float(os.environ["ACTIVE_PERCENT"])
METRIC, POD, SPACE = os.environ["METRIC"], os.environ["POD_LABEL"], os.environ["NAMESPACE_LABEL"]


def read(url, **more):
    request = urllib.request.Request(url, **more)
    context = None
    if url.startswith("https") and (ACCOUNT / "ca.crt").is_file():
        request.add_header("Authorization", "Bearer " + (ACCOUNT / "token").read_text())
        context = ssl.create_default_context(cafile=ACCOUNT / "ca.crt")
    with urllib.request.urlopen(request, timeout=60, context=context) as answer:
        return json.load(answer)


def samples(query):
    url = os.environ["PROMETHEUS"] + "/api/v1/query?" + urllib.parse.urlencode({"query": query})
    found = read(url)["data"]["result"]
    return {row["metric"].get(POD, ""): float(row["value"][1]) for row in found}


def stop(target):
    kind, name = target["kind"], target["name"]
    if kind == "Notebook":
        now = datetime.datetime.now(datetime.timezone.utc).isoformat()
        body = {"metadata": {"annotations": {"kubeflow-resource-stopped": now}}}
    else:
        body = {"spec": {"replicas": 0}}
    group, _, plural = target["path"].rpartition("/")
    url = f"{API}/apis/{group}/namespaces/{target['namespace']}/{plural}/{name}"
    headers = {"Content-Type": "application/merge-patch+json"}
    read(url, data=json.dumps(body).encode(), method="PATCH", headers=headers)


for target in json.loads(os.environ["TARGETS"]):
    pods = f'{SPACE}="{target["namespace"]}",{POD}=~"{target["name"]}(-.*)?"'
    window = f"[{HOURS:g}h]"
    most = samples(f"max by ({POD}) (max_over_time({METRIC}{{{pods}}}{window}))")
    seen = samples(f"min by ({POD}) (count_over_time({METRIC}{{{pods}}}{window}))")
    before = samples(f"max by ({POD}) ({METRIC}{{{pods}}} offset {HOURS:g}h)")
    lasting = [pod for pod in most if pod in before and seen.get(pod, 0) > 1]
    if not lasting or max(most.values()) >= ACTIVE:
        continue
    stops = os.environ["DRY_RUN"] != "1"
    print("idle", target["kind"], f"{target['namespace']}/{target['name']}", "stopped" if stops else "left as it is")
    if stops:
        stop(target)
'''


def reaper(
    targets: Sequence[tuple[str, str, str]],
    *,
    hours: float,
    active_frac: float,
    pod_label: str,
    namespace_label: str,
) -> str:
    """Return the manifests of the reaper in one namespace; `targets` are (namespace, name, kind) of notebooks there."""
    namespace = targets[0][0]
    meta: dict[str, Plain] = {"name": NAME, "namespace": namespace, "labels": dict(MANAGED_BY)}
    listed = [{"namespace": space, "name": name, "kind": kind, "path": _KINDS[kind]} for space, name, kind in targets]
    settings = {
        "DRY_RUN": "1",
        "PROMETHEUS": "http://prometheus-operated.monitoring:9090",
        "HOURS": f"{hours:g}",
        "ACTIVE_PERCENT": f"{active_frac * 100:g}",
        "METRIC": _METRIC,
        "POD_LABEL": pod_label,
        "NAMESPACE_LABEL": namespace_label,
        "TARGETS": json.dumps(listed),
    }
    return yaml_text(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        _role(meta, sorted({kind for _, _, kind in targets})),
        _binding(meta),
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"reap.py": SCRIPT}},
        _cron_job(meta, settings),
        comment="Says hourly which notebooks are left open. Read its log for a week, tell their owners, then set DRY_RUN\n"
        "to 0. PROMETHEUS is taken to be that of kube-prometheus-stack: put your own.",
    )


def _role(meta: Mapping[str, Plain], kinds: Sequence[str]) -> dict[str, Plain]:
    rules = [
        {
            "apiGroups": [_KINDS[kind].partition("/")[0]],
            "resources": [_KINDS[kind].rpartition("/")[2]],
            "verbs": ["patch"],
        }
        for kind in kinds
    ]
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta, "rules": rules}


def _binding(meta: Mapping[str, Plain]) -> dict[str, Plain]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": meta["namespace"]}],
    }


def _cron_job(meta: Mapping[str, Plain], settings: Mapping[str, str]) -> dict[str, Plain]:
    container: dict[str, Plain] = {
        "name": "reaper",
        "image": _IMAGE,
        "command": ["python", "/reaper/reap.py"],
        "env": [{"name": name, "value": value} for name, value in settings.items()],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        "volumeMounts": [{"name": "script", "mountPath": "/reaper"}],
    }
    pod: dict[str, Plain] = {
        "serviceAccountName": NAME,
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "script", "configMap": {"name": NAME}}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": meta,
        "spec": {
            "schedule": "17 * * * *",
            "concurrencyPolicy": "Forbid",
            "jobTemplate": {"spec": {"backoffLimit": 0, "template": {"spec": pod}}},
        },
    }
