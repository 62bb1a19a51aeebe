"""The folders of the monitoring: rules and boards of a cluster, and the manifests or chart that run trimtab in it each week.

A CronJob collects, audits and writes the digest, one container after the other. Each runs one command of trimtab, without a
shell. What it keeps lies on a volume that outlives upgrades: the bundle, and every audit. It may read what
`trimtab collect --rbac` says, and change nothing. A Deployment shows the audits as pages, on its pod's own loopback alone.

The objects are made once from settings; the chart has `{{ .Values.NAME }}` in their place, and `values.yaml` is the settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import cast

from trimtab._version import __version__
from trimtab.emit.manifests.emission import MANAGED_BY, Plain, yaml_text
from trimtab.monitor.alerts import alert_rules
from trimtab.monitor.boards import boards
from trimtab.monitor.series import recording_rules, verified_rules
from trimtab.monitor.watched import Thresholds, Watched
from trimtab.sources.kubernetes.api import READER, rbac_objects
from trimtab.units import S_PER_HR

EVALUATED = "1m"
"""How often rules run: alerts look at ten minutes and more."""
RULES_NAMESPACE = "monitoring"
_RULES = "trimtab-fleet.rules.yaml"


def monitoring_files(watched: Watched, thresholds: Thresholds) -> dict[str, str]:
    """Return path -> text of what watches a cluster; the same facts give the same bytes."""
    pages = {
        f"trimtab-{board.uid}.dashboard.json": board.text
        for board in boards(watched, thresholds.runbooks, thresholds.page)
    }
    rules = yaml_text(rule_object(watched, thresholds), comment="kubectl apply -k . ; no plan is needed for any of it")
    return {"kustomization.yaml": yaml_text(_kustomization(list(pages))), _RULES: rules, **pages}


def rule_object(watched: Watched, thresholds: Thresholds) -> dict[str, Plain]:
    """Return the PrometheusRule: a group that records, one that alerts, and what was verified where anything was."""
    records: list[Plain] = [{"record": name, "expr": expr} for name, expr in recording_rules(watched, thresholds)]
    alerts: list[Plain] = [rule.as_plain(thresholds.runbooks) for rule in alert_rules(watched, thresholds)]
    groups: list[Plain] = [
        {"name": "trimtab-fleet.records", "interval": EVALUATED, "rules": records},
        {"name": "trimtab-fleet.alerts", "interval": EVALUATED, "rules": alerts},
    ]
    if watched.verified is not None and watched.verified.rows:
        verified = list(verified_rules(watched.verified))
        groups.append({"name": "trimtab-fleet.verified", "interval": EVALUATED, "rules": verified})
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": "trimtab-fleet",
            "namespace": RULES_NAMESPACE,
            "labels": {**MANAGED_BY, **watched.rule_labels},
        },
        "spec": {"groups": groups},
    }


def _kustomization(pages: list[str]) -> Mapping[str, Plain]:
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [_RULES],
        "configMapGenerator": [
            {
                "name": page.removesuffix(".dashboard.json"),
                "namespace": RULES_NAMESPACE,
                "files": [page],
                "options": {"disableNameSuffixHash": True, "labels": {"grafana_dashboard": "1"}},
            }
            for page in pages
        ],
    }


NAMESPACE = "trimtab"
PROMETHEUS = "http://prometheus-operated.monitoring.svc:9090"
"""The service that prometheus-operator makes, in the namespace in which kube-prometheus-stack is usually installed."""
IMAGE = f"trimtab:{__version__}"
"""No image is published: this one is built with the Dockerfile."""
SECRET = "trimtab"
_NAME = "trimtab"
_HISTORY = "trimtab-history"
_USER = 10001
_PLACE = "/history"
_LABELS = {"app.kubernetes.io/name": _NAME, **MANAGED_BY}
PAGE = "trimtab-page"
PAGE_PORT = 8080
_ANSWERS = f"import socket; socket.create_connection(('127.0.0.1', {PAGE_PORT}), 5)"
_RUN_S = 6 * S_PER_HR
_LATE_S = 12 * S_PER_HR
_POD: Mapping[str, Plain] = {
    # variables that Kubernetes makes of services named trimtab-... would be read as settings
    "enableServiceLinks": False,
    "securityContext": {
        "runAsNonRoot": True,
        "runAsUser": _USER,
        "runAsGroup": _USER,
        "fsGroup": _USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    },
    # A volume of one node at a time is shared by the page and the weekly run, so that both go to one node. The term selects
    # the pod that bears it too: the first pod is free to go anywhere (Kubernetes' documentation of inter-pod affinity).
    "affinity": {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": {"app.kubernetes.io/name": _NAME}},
                    "topologyKey": "kubernetes.io/hostname",
                }
            ]
        }
    },
}
_VOLUMES: Sequence[Plain] = [
    {"name": "history", "persistentVolumeClaim": {"claimName": _HISTORY}},
    {"name": "scratch", "emptyDir": {"sizeLimit": "2Gi"}},
]
_QUOTED_TEMPLATE = re.compile(r"'(\{\{ [A-Za-z.]+ \| toJson \}\})'")

_ABOUT_VALUES = """\
What can be set. Everything else is the same in each cluster; patch it with kustomize, or by --post-renderer of helm.
image: what the Dockerfile built, in a registry of yours.
prometheus: the server to read; the Secret `trimtab` may have its token under the key `prometheus-token`.
collect, audit, digest: the commands, in this order. With -o slack or teams and --post, the digest is posted to the address
under the key `post-url` of the Secret `trimtab`.
serve, pages: the command that shows the audits, and how many pods run it, 0 or 1. It listens to its own pod, so that only
kubectl port-forward reaches it; to open it to others give it --host, --token-file and --allow-host, and them `ingress`.
history: the claim of the volume; a storage class goes here.
ingress, egress: what may connect to it, and where it may connect to. The API server and webhooks are no pods, so their ports
are open to all addresses."""


def in_cluster_files(image: str = IMAGE, prometheus: str = PROMETHEUS) -> dict[str, str]:
    """Return path -> text: `manifests/` for kubectl, `chart/` for Helm, a Dockerfile; the same input gives the same bytes."""
    settings = default_settings(image, prometheus)
    plain = [_namespace(NAMESPACE), *cluster_objects(settings, NAMESPACE)]
    templates = {name: f"{{{{ .Values.{name} | toJson }}}}" for name in settings}
    charted = yaml_text(*cluster_objects(templates, "{{ .Release.Namespace | toJson }}"))
    return {
        "Dockerfile": _DOCKERFILE,
        "manifests/kustomization.yaml": yaml_text(_KUSTOMIZATION),
        "manifests/trimtab.yaml": yaml_text(*plain, comment="kubectl apply -k . ; see docs/how-to/run-in-a-cluster.md"),
        "chart/Chart.yaml": yaml_text(_CHART),
        "chart/values.yaml": yaml_text(settings, comment=_ABOUT_VALUES),
        "chart/templates/trimtab.yaml": _QUOTED_TEMPLATE.sub(r"\1", charted),
    }


def default_settings(image: str, prometheus: str) -> dict[str, Plain]:
    """Return what the chart's values are, by name."""
    return {
        "image": image,
        "prometheus": prometheus,
        "schedule": "17 5 * * 1",
        "timeZone": "Etc/UTC",
        "collect": ["collect", "--context", "current", "--from", "28d", "--out", "fleet", "--quiet"],
        "audit": ["audit", "fleet", "--no-report", "--quiet"],
        "digest": ["digest", "fleet", "--quiet", "-o", "markdown"],
        "serve": ["serve", "--quiet", "--port", str(PAGE_PORT)],
        "pages": 1,
        "history": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}},
        # an audit of the demonstration fleet takes 0.7 GiB (docs/benchmarks.md); larger fleets take more
        "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "4Gi"}},
        "ingress": [],
        "egress": [
            {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]},
            {"ports": [{"protocol": "TCP", "port": 443}, {"protocol": "TCP", "port": 6443}]},
            {
                "to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
                "ports": [{"protocol": "TCP", "port": 9090}],
            },
        ],
    }


def cluster_objects(settings: Mapping[str, Plain], namespace: str) -> list[dict[str, Plain]]:
    """Return the objects of a namespace, and the role that reads the cluster; all but the namespace itself."""
    _, *reader = cast("list[dict[str, Plain]]", rbac_objects(namespace))
    makers = (_history, _policy, _cron_job, _page)
    return [*reader, *(make(settings, namespace) for make in makers)]


def _namespace(name: str) -> dict[str, Plain]:
    restricted: Plain = {**_LABELS, "pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": restricted}}


def _history(settings: Mapping[str, Plain], namespace: str) -> dict[str, Plain]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": _HISTORY,
            "namespace": namespace,
            "labels": _LABELS,
            # an uninstall leaves it too: the audits in it are what a plan is verified against
            "annotations": {"helm.sh/resource-policy": "keep"},
        },
        "spec": settings["history"],
    }


def _policy(settings: Mapping[str, Plain], namespace: str) -> dict[str, Plain]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": _NAME, "namespace": namespace, "labels": _LABELS},
        "spec": {
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": _NAME}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": settings["ingress"],
            "egress": settings["egress"],
        },
    }


def _cron_job(settings: Mapping[str, Plain], namespace: str) -> dict[str, Plain]:
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": _NAME, "namespace": namespace, "labels": _LABELS},
        "spec": {
            "schedule": settings["schedule"],
            "timeZone": settings["timeZone"],
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": _LATE_S,
            "successfulJobsHistoryLimit": 3,
            "failedJobsHistoryLimit": 3,
            "jobTemplate": {
                "spec": {
                    "backoffLimit": 1,
                    "activeDeadlineSeconds": _RUN_S,
                    "template": {"metadata": {"labels": _LABELS}, "spec": _run_pod(settings)},
                }
            },
        },
    }


def _page(settings: Mapping[str, Plain], namespace: str) -> dict[str, Plain]:
    labels = {**_LABELS, "app.kubernetes.io/component": "page"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": PAGE, "namespace": namespace, "labels": labels},
        "spec": {
            "replicas": settings["pages"],
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": {"app.kubernetes.io/name": _NAME, "app.kubernetes.io/component": "page"}},
            "template": {"metadata": {"labels": labels}, "spec": _page_pod(settings)},
        },
    }


def _run_pod(settings: Mapping[str, Plain]) -> dict[str, Plain]:
    server: Sequence[Plain] = [
        {"name": "TRIMTAB_PROMETHEUS", "value": settings["prometheus"]},
        _secret("TRIMTAB_PROMETHEUS_TOKEN", "prometheus-token"),
    ]
    return {
        "serviceAccountName": READER,
        "restartPolicy": "Never",
        **_POD,
        "initContainers": [_container(settings, "collect", server), _container(settings, "audit", [])],
        "containers": [_container(settings, "digest", [_secret("TRIMTAB_POST_URL", "post-url")])],
        "volumes": _VOLUMES,
    }


def _page_pod(settings: Mapping[str, Plain]) -> dict[str, Plain]:
    # a probe of the kubelet's own comes from outside of the pod, from which nothing is accepted
    probe: Mapping[str, Plain] = {"exec": {"command": ["python", "-c", _ANSWERS]}, "timeoutSeconds": 10}
    container = _container(settings, "serve", [])
    mounts: Sequence[Plain] = [
        {"name": "history", "mountPath": _PLACE, "readOnly": True},
        {"name": "scratch", "mountPath": "/tmp"},
        {"name": "token", "mountPath": "/token", "readOnly": True},
    ]
    token: Mapping[str, Plain] = {
        "secretName": SECRET,
        "optional": True,
        "items": [{"key": "page-token", "path": "page-token"}],
    }
    return {
        # it asks the cluster nothing
        "automountServiceAccountToken": False,
        **_POD,
        "containers": [
            {
                **container,
                "volumeMounts": mounts,
                "startupProbe": {**probe, "periodSeconds": 5, "failureThreshold": 36},
                "livenessProbe": {**probe, "periodSeconds": 60},
            }
        ],
        "volumes": [*_VOLUMES, {"name": "token", "secret": token}],
    }


def _secret(variable: str, key: str) -> dict[str, Plain]:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": SECRET, "key": key, "optional": True}}}


def _container(settings: Mapping[str, Plain], command: str, env: Sequence[Plain]) -> dict[str, Plain]:
    return {
        "name": command,
        "image": settings["image"],
        "args": settings[command],
        "workingDir": _PLACE,
        "env": [
            {"name": "HOME", "value": "/tmp"},
            # the volume hands audits from week to week, and the key that would seal them is made again each time
            {"name": "TRIMTAB_TRUST_STATE", "value": "1"},
            *env,
        ],
        "resources": settings["resources"],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "history", "mountPath": _PLACE}, {"name": "scratch", "mountPath": "/tmp"}],
    }


_KUSTOMIZATION: Mapping[str, Plain] = {
    "apiVersion": "kustomize.config.k8s.io/v1beta1",
    "kind": "Kustomization",
    "resources": ["trimtab.yaml"],
}
_CHART: Mapping[str, Plain] = {
    "apiVersion": "v2",
    "name": _NAME,
    "description": "GPU cost: each week an audit of the cluster, and a digest of what it cost and what to do.",
    "type": "application",
    "version": __version__,
    "appVersion": __version__,
}
_DOCKERFILE = f"""\
# Build in a checkout, after `pip wheel --no-deps -w dist . packages/runtime`, with a base that you chose by its digest:
#   docker build -f deploy/Dockerfile -t registry.example/{IMAGE} --build-arg PYTHON_DIGEST=sha256:... .
ARG PYTHON_DIGEST
FROM docker.io/library/python:3.12-slim@${{PYTHON_DIGEST}} AS build
COPY requirements/base.txt requirements/kubernetes.txt requirements/web.txt /build/
COPY dist/*.whl /build/
RUN python -m venv /opt/trimtab \\
 && /opt/trimtab/bin/pip install --no-cache-dir --only-binary :all: --require-hashes \\
    -r /build/base.txt -r /build/kubernetes.txt -r /build/web.txt \\
 && /opt/trimtab/bin/pip install --no-cache-dir --no-deps --no-index /build/*.whl

FROM docker.io/library/python:3.12-slim@${{PYTHON_DIGEST}}
COPY --from=build /opt/trimtab /opt/trimtab
ENV PATH=/opt/trimtab/bin:$PATH PYTHONDONTWRITEBYTECODE=1
USER {_USER}:{_USER}
ENTRYPOINT ["trimtab"]
"""
