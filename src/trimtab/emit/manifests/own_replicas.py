"""Replicas of their own for models that share a GPU, as objects: a router, and an autoscaler from none for each model.

`policies.pooling` says when a model gets replicas of its own, and the objects carry out just that:

- HAProxy has a port for each model, and a Service beside it. A model's replicas are its servers, as many as its headless
  Service has ready pods; the shared GPU is its `backup` server, which gets requests only while no other is up
  (docs.haproxy.org, configuration manual, `backup`, `server-template`). Where all servers have as many requests as they work
  on at once (`maxconn`), further ones wait in HAProxy's queue, so they may go to a replica that has become ready.
- KEDA's trigger is a model's requests at once, which HAProxy exports with those in its queue. It counts as 0 below the number
  at which the first replica is started, unless there are replicas. The HPA may only add (`selectPolicy: Disabled`); KEDA itself
  takes all away `cooldownPeriod` after the trigger was last active (keda.sh, ScaledObject specification).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from trimtab.emit.manifests.emission import MANAGED_BY, Plain, dns_name
from trimtab.emit.manifests.facts import EmitFacts
from trimtab.emit.manifests.keda import prometheus_trigger
from trimtab.policies.pooling import PoolPolicy

ROUTER_IMAGE = "haproxy:3.2"
FIRST_PORT, METRICS_PORT, SERVER_PORT = 8100, 8405, 8000
SCRAPE_S = 5
START_TIMEOUT_S = 900
"""A first start loads weights and compiles; waking takes seconds."""
SEEN_LATE_S = 15.0
"""From a change to what acts on it: a scrape, and until HAProxy has found a ready pod (DNS, and the three checks of `rise`)."""
_CONFIG, _CONFIG_FOLDER = "haproxy.cfg", "/usr/local/etc/haproxy"
_CLUSTER_DOMAIN = "svc.cluster.local"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnReplicas:
    """What scales own replicas: the rule, and the Prometheus that KEDA asks."""

    policy: PoolPolicy
    facts: EmitFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedModel:
    """A model behind the router: its name, how it is started, and how many requests each kind of server works on at once."""

    workload: str
    model: str
    served_name: str
    shared_at_once: int
    own_at_once: int

    @property
    def name(self) -> str:
        """Return the name of its objects, and of its backend in HAProxy."""
        return dns_name("own", *self.workload.split("/"))


def router_config(models: tuple[RoutedModel, ...], shared: str, namespace: str, most: int) -> str:
    """Return HAProxy's configuration; `shared` is the host and port of the shared GPU, `most` the replicas of one model."""
    parts = [
        "defaults",
        "  mode http",
        "  timeout connect 5s",
        "  timeout client 1h",
        "  timeout server 1h",
        "  # without this, requests in the queue are refused after the time for connecting",
        "  timeout queue 1h",
        "  option redispatch",
        "resolvers cluster",
        "  parse-resolv-conf",
        "  # the addresses of 16 pods take more than the 512 bytes of a plain answer",
        "  accepted_payload_size 8192",
        "  hold valid 5s",
        "  hold obsolete 5s",
        "frontend metrics",
        f"  bind :{METRICS_PORT}",
        "  http-request use-service prometheus-exporter if { path /metrics }",
        "  http-request return status 200 if { path /ready }",
    ]
    for port, model in enumerate(models, start=FIRST_PORT):
        own = f"{model.name}.{namespace}.{_CLUSTER_DOMAIN}:{SERVER_PORT}"
        parts += [
            f"listen {model.name}",
            f"  bind :{port}",
            "  balance leastconn",
            # requests wait in the queue of all servers: in that of the shared GPU alone they would stay with it
            "  option allbackups",
            "  option httpchk GET /health",
            f"  server-template own {most} {own} check inter 2s rise 3 resolvers cluster init-addr none "
            f"maxconn {model.own_at_once}",
            f"  server shared {shared} backup resolvers cluster init-addr libc,none maxconn {model.shared_at_once}",
        ]
    return "\n".join(parts) + "\n"


def own_replica_objects(
    models: tuple[RoutedModel, ...], own: OwnReplicas, *, pool: str, namespace: str, pool_port: int, image: str,
    node_selector: Mapping[str, Plain],
) -> list[dict[str, Plain]]:  # fmt: skip
    """Return the router of a shared GPU, and for each model its address, its own replicas and what scales them.

    `pool` is the name of the shared GPU's Service, `node_selector` picks its nodes.
    """
    shared = f"{pool}.{namespace}.{_CLUSTER_DOMAIN}:{pool_port}"
    name = dns_name(pool, "router")
    labels: dict[str, Plain] = {**MANAGED_BY, "app.kubernetes.io/name": name}
    found = [
        _object("v1", "ConfigMap", name, namespace, labels)
        | {"data": {_CONFIG: router_config(models, shared, namespace, own.policy.own_most)}},
        _router(models, name, namespace, labels),
        _object("monitoring.coreos.com/v1", "PodMonitor", name, namespace, {**labels, **own.facts.rule_labels})
        | {
            "spec": {
                "selector": {"matchLabels": {"app.kubernetes.io/name": name}},
                "podMetricsEndpoints": [{"port": "metrics", "interval": f"{SCRAPE_S}s"}],
            }
        },
    ]
    for port, model in enumerate(models, start=FIRST_PORT):
        its: dict[str, Plain] = {**MANAGED_BY, "app.kubernetes.io/name": model.name}
        found += [
            _object("v1", "Service", dns_name("pool", *model.workload.split("/")), namespace, its)
            | {
                "spec": {
                    "selector": {"app.kubernetes.io/name": name},
                    "ports": [{"name": "http", "port": 80, "targetPort": port}],
                }
            },
            _object("v1", "Service", model.name, namespace, its)
            | {
                "spec": {
                    "clusterIP": "None",
                    "selector": {"app.kubernetes.io/name": model.name},
                    "ports": [{"name": "http", "port": SERVER_PORT, "targetPort": "http"}],
                }
            },
            _own_deployment(model, namespace, its, image, node_selector),
            _scaled_object(model, own, namespace, its),
        ]
    return found


def _object(version: str, kind: str, name: str, namespace: str, labels: Mapping[str, Plain]) -> dict[str, Plain]:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels)},
    }


def _router(models: tuple[RoutedModel, ...], name: str, namespace: str, labels: dict[str, Plain]) -> dict[str, Plain]:
    ports: list[Plain] = [{"name": "metrics", "containerPort": METRICS_PORT}]
    ports += [{"containerPort": port} for port in range(FIRST_PORT, FIRST_PORT + len(models))]
    container: dict[str, Plain] = {
        "name": "haproxy",
        "image": ROUTER_IMAGE,
        "ports": ports,
        "resources": {"requests": {"cpu": "200m", "memory": "256Mi"}},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "metrics"}},
        "volumeMounts": [{"name": "config", "mountPath": _CONFIG_FOLDER}],
    }
    return _object("apps/v1", "Deployment", name, namespace, labels) | {
        "spec": {
            # requests are counted by one router, which also holds the only queue
            "replicas": 1,
            "selector": {"matchLabels": {"app.kubernetes.io/name": name}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "volumes": [{"name": "config", "configMap": {"name": name}}]},
            },
        }
    }


def _own_deployment(
    model: RoutedModel, namespace: str, labels: dict[str, Plain], image: str, node_selector: Mapping[str, Plain]
) -> dict[str, Plain]:
    container: dict[str, Plain] = {
        "name": "server",
        "image": image,
        "command": ["vllm", "serve", model.model, "--served-model-name", model.served_name,
                    "--port", str(SERVER_PORT), "--max-num-seqs", str(model.own_at_once)],
        "ports": [{"name": "http", "containerPort": SERVER_PORT}],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
        "startupProbe": {
            "httpGet": {"path": "/health", "port": "http"},
            "periodSeconds": 5,
            "failureThreshold": math.ceil(START_TIMEOUT_S / 5),
        },
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 5},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }  # fmt: skip
    return _object("apps/v1", "Deployment", model.name, namespace, labels) | {
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app.kubernetes.io/name": model.name}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeSelector": dict(node_selector),
                    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
                    "containers": [container],
                    "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
                },
            },
        }
    }


def _scaled_object(model: RoutedModel, own: OwnReplicas, namespace: str, labels: dict[str, Plain]) -> dict[str, Plain]:
    policy = own.policy
    behaviour: dict[str, Plain] = {
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "policies": [{"type": "Pods", "value": policy.own_most, "periodSeconds": math.ceil(policy.sync_s)}],
        },
        "scaleDown": {"selectPolicy": "Disabled"},
    }
    return _object("keda.sh/v1alpha1", "ScaledObject", model.name, namespace, labels) | {
        "spec": {
            "scaleTargetRef": {"name": model.name},
            "pollingInterval": math.ceil(policy.sync_s),
            "cooldownPeriod": math.ceil(policy.own_idle_s),
            "minReplicaCount": 0,
            "maxReplicaCount": policy.own_most,
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behaviour}},
            "triggers": [_trigger(model, own, namespace)],
        }
    }


def _trigger(model: RoutedModel, own: OwnReplicas, namespace: str) -> dict[str, Plain]:
    query = requests_query(model.name, namespace, own.policy)
    trigger = prometheus_trigger("requests", query, str(model.own_at_once), own.facts)
    return trigger | {"metadata": {**cast("Mapping[str, Plain]", trigger["metadata"]), "activationThreshold": "0"}}


def requests_query(name: str, namespace: str, policy: PoolPolicy) -> str:
    """Return PromQL for a model's requests at once: 0 while they are too few to start a replica, and none is held."""
    requests = f'sum(haproxy_backend_current_sessions{{namespace="{namespace}",proxy="{name}"}})'
    held = f'sum(kube_deployment_spec_replicas{{namespace="{namespace}",deployment="{name}"}})'
    return f"{requests} * clamp_max(({requests} >= bool {policy.own_requests:g}) + ({held} > bool 0), 1)"
