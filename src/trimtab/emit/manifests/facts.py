"""What manifests need to know of a cluster beyond the plan: owners, replicas, metric names, node classes, quotas."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from trimtab.catalog.pools import Pool
from trimtab.deployment.placement import Home, HomeNodes
from trimtab.emit.manifests.signals import ServerSignals
from trimtab.fleet.model import Target

SCALABLE = frozenset({"Deployment", "StatefulSet", "ReplicaSet"})
"""Kinds of apps/v1 with a scale subresource: what runs in them may be moved, what runs in others is a run to its end."""


class Autoscaler(Enum):
    """Which controller scales services; two of them on one workload would fight."""

    KEDA = "keda"
    HPA = "hpa"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFacts:
    """What the replay knew of a service: requests/s that a replica serves, its metrics, its targets."""

    capacity_req_s: float
    signals: ServerSignals
    server_is_known: bool = False
    """False: taken to be vLLM, because nobody said otherwise."""
    targets: tuple[Target, ...] = ()
    faster_counts: bool = True
    """False: something beside the GPU may be full first, so that a faster one is taken to serve no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFacts:
    """A workload as the cluster knows it.

    `owner_kind` is the Kubernetes kind that runs its pods. `pod_labels` select them (none known: no disruption budget is
    written). `tolerations` are those it has: a patch replaces the list, so it must repeat them. `run_starts` are the hours of
    the week (Monday 00:00 UTC is 0) at which its scheduled runs begin.
    """

    name: str
    owner_kind: str = "Deployment"
    replicas: int = 1
    gpus_per_pod: float = 1.0
    pod_gpus: tuple[float, ...] = ()
    """GPUs of its pods by size, where there are several sizes: one template is not for all of them."""
    gpu: str | None = None
    pool: Pool | None = None
    gpus_per_node: int = 1
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, str], ...] = ()
    run_starts: tuple[int, ...] = ()
    activity_signal: str = "sm_active"
    """What stands in for demand where no requests are known: sm_active or, where DCGM has no profiling fields, gpu_util."""
    service: ServiceFacts | None = None

    @property
    def home(self) -> Home | None:
        """Return what it runs on today; None where nobody knows it."""
        if self.pool is None:
            return None
        return HomeNodes(pool=self.pool, gpu=self.gpu, gpus_per_node=self.gpus_per_node, gpus_per_pod=self.gpus_per_pod)

    @property
    def namespace(self) -> str:
        """Return the namespace."""
        return namespace_of(self.name)

    @property
    def short_name(self) -> str:
        """Return the name without its namespace."""
        return short_name_of(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClass:
    """The provider's own node class that a NodePool refers to."""

    group: str
    kind: str
    name: str = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedPool:
    """A pool's rate and, where it is known, the provider's quota on it."""

    pool: Pool
    gpus_per_node: int
    rate_micro_usd_hr: int | None = None
    quota_nodes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitFacts:
    """Everything that the emitters take besides the plan."""

    workloads: tuple[WorkloadFacts, ...] = ()
    pools: tuple[PricedPool, ...] = ()
    node_classes: Mapping[str, NodeClass] = field(default_factory=dict)
    """Provider -> node class, where it is not the default one."""
    autoscaler: Autoscaler = Autoscaler.KEDA
    add_only: bool = False
    """Whether autoscalers may only add replicas: the canary of the first day."""
    prometheus_url: str = "http://prometheus-operated.monitoring.svc:9090"
    scrape_interval_s: int = 15
    pod_label: str = "pod"
    """Label that carries the workload's pod on DCGM series: `pod`, or `exported_pod` where the scrape keeps its own."""
    namespace_label: str = "namespace"

    def workload(self, name: str) -> WorkloadFacts | None:
        """Return what is known of a workload, or None."""
        return next((known for known in self.workloads if known.name == name), None)

    def priced(self, pool: Pool) -> PricedPool | None:
        """Return what is known of a pool, or None."""
        return next((known for known in self.pools if known.pool == pool), None)


_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


def is_kubernetes_name(workload: str) -> bool:
    """Tell whether `namespace/name` can be an object of Kubernetes; what other schedulers run cannot be enacted there."""
    return all(_DNS_SUBDOMAIN.fullmatch(part) for part in (namespace_of(workload), short_name_of(workload)))


def namespace_of(workload: str) -> str:
    """Return the namespace of `namespace/name`; `default` where there is none."""
    return workload.partition("/")[0] if "/" in workload else "default"


def short_name_of(workload: str) -> str:
    """Return the name of `namespace/name`."""
    name = workload.partition("/")[2] if "/" in workload else workload
    return name.partition("@")[0]
