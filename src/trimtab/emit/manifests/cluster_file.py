"""A file in which people say what no history says about their cluster: labels, tolerations, servers, node classes, quotas.

autoscaler: keda
prometheus_url: http://prometheus.monitoring.svc:9090
node_classes:
  aws: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: gpu}
quota_nodes:
  p4d.24xlarge: 12
workloads:
  prod/chat-api:
    server: vllm
    pod_labels: {app: chat-api}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trimtab.catalog.model_servers import ProxyTarget, ServerMetrics
from trimtab.emit.manifests.facts import (
    NOTEBOOK,
    OFF_KUBERNETES,
    SERVING,
    Autoscaler,
    EmitFacts,
    NodeClass,
    NodeMaker,
    ServerSignals,
    Toleration,
    WorkloadFacts,
    server_signals,
    signals_of,
)
from trimtab.errors import BundleError, UnknownName
from trimtab.tables.yaml_faults import load_mapping, validation_faults
from trimtab.units import HR_PER_WEEK, MS_PER_S

_OWNER_KINDS = SERVING | OFF_KUBERNETES | {NOTEBOOK, "Job", "CronJob", "PyTorchJob", "RayJob", "JobSet", "DaemonSet"}
_ALIKE = 0.85
"""A kind that is so much like a known one, and is none, is that one misspelt; others may be anybody's."""
_LABEL = r"^[a-zA-Z_][a-zA-Z0-9_]*$"
_SERIES_OR_MATCHER = r'^([a-zA-Z_:][a-zA-Z0-9_:]*|[a-zA-Z_][a-zA-Z0-9_]*=~?"[^"\\]*")$'
_SERIES = r"^[a-zA-Z_:][a-zA-Z0-9_:]*$"
"""Prometheus data model, metric names."""


class _ClusterModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class DeclaredNodeClass(_ClusterModel):
    """A provider's node class."""

    group: str
    """API group."""
    kind: str
    """Kind."""
    name: str = "default"
    """Name of the object."""


class DeclaredToleration(_ClusterModel):
    """A toleration, as a pod states it."""

    key: str = ""
    """Taint key; empty for any."""
    operator: Literal["", "Exists", "Equal"] = ""
    """Exists or Equal."""
    value: str = ""
    """Taint value."""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    """Taint effect; empty for any."""
    tolerationSeconds: int | None = None
    """How long it stays on a node that gets the taint."""

    def as_fact(self) -> Toleration:
        """Return what the emitters take."""
        return Toleration(
            key=self.key, operator=self.operator, value=self.value, effect=self.effect, seconds=self.tolerationSeconds
        )


class DeclaredMetrics(_ClusterModel):
    """Series of a server that is none of those known: `collect` reads requests from them, emitted rules go by them."""

    completed: Annotated[str, Field(pattern=_SERIES)]
    """Counter of requests that ended."""
    arrived: Annotated[str, Field(pattern=_SERIES)] | None = None
    """Counter of requests as they come, where it has one."""
    failed: Annotated[str, Field(pattern=_SERIES_OR_MATCHER)] | None = None
    """Counter of failed requests, beside completed; or a matcher of those of completed that failed, such as code=~"5.."."""
    running: Annotated[str, Field(pattern=_SERIES)] | None = None
    """Gauge of requests in work."""
    waiting: Annotated[str, Field(pattern=_SERIES)] | None = None
    """Gauge of requests that wait."""
    kv_cache: Annotated[str, Field(pattern=_SERIES)] | None = None
    """Gauge of the share of its cache in use, 0 to 1."""
    ttft: Annotated[str, Field(pattern=_SERIES)] | None = None
    """Histogram of the time to the first token, without _bucket."""
    latency: Annotated[str, Field(pattern=_SERIES)] | None = None
    """Histogram of the time to the answer, without _bucket. Without it and ttft, activity judges, and no target is checked."""
    unit: Literal["seconds", "milliseconds"] = "seconds"
    """Unit of the histograms; emitted rules read those in seconds alone."""
    labels: Mapping[Annotated[str, Field(pattern=_LABEL)], str] = Field(default_factory=dict)
    """Labels that select the series of a proxy in front of it, which collect alone reads; else its own pods export them."""

    def as_metrics(self) -> ServerMetrics:
        """Return what `collect` takes."""
        return ServerMetrics(
            server="declared",
            title="declared metrics",
            completed=(self.completed,),
            arrived=self.arrived or "",
            failed=self.failed or "",
            running=(self.running,) if self.running else (),
            waiting=(self.waiting,) if self.waiting else (),
            kv_cache=(self.kv_cache,) if self.kv_cache else (),
            ttft=self.ttft or "",
            latency=self.latency or "",
            bucket_s=1.0 if self.unit == "seconds" else 1 / MS_PER_S,
            # JSON escapes quotes and backslashes as PromQL does
            only=tuple(f"{name}={json.dumps(value)}" for name, value in self.labels.items()),
            target=ProxyTarget() if self.labels else None,
        )

    def as_fact(self) -> ServerSignals | None:
        """Return what the emitters take; None where no pod exports the series, so that no rule can go by them."""
        return None if self.labels else replace(signals_of(self.as_metrics()), server="its own")


class DeclaredWorkload(_ClusterModel):
    """What is declared of one workload; what is left out stays as the history tells it."""

    owner_kind: str | None = None
    """Kind that runs its pods: Deployment, StatefulSet, ReplicaSet, Job, CronJob, Notebook, or another."""
    server: str | None = None
    """Model server, for the names of its metrics: vllm or another of those under Model servers."""
    metrics: DeclaredMetrics | None = None
    """Names of its metrics, where its server is none of those; they go over `server`."""
    capacity_req_s: Annotated[float, Field(gt=0)] | None = None
    """Requests/s that a replica serves at full activity."""
    replicas: Annotated[int, Field(ge=1)] | None = None
    """Replicas today: what the autoscaler falls back to, and what a timetable holds."""
    pod_labels: Mapping[str, str] | None = None
    """Labels that select its pods; without them no disruption budget is written."""
    tolerations: tuple[DeclaredToleration, ...] | None = None
    """Tolerations it has, where its pods were not read: a patch replaces the list, so it must repeat them."""
    run_starts: tuple[Annotated[int, Field(ge=0, lt=HR_PER_WEEK)], ...] | None = None
    """Hours of the week (Monday 00:00 UTC is 0) at which its scheduled runs begin."""


class ClusterFile(_ClusterModel):
    """The whole file; every key may be left out."""

    autoscaler: Autoscaler | None = None
    """keda or hpa."""
    node_maker: NodeMaker | None = None
    """What makes nodes: karpenter, or node-groups of EKS, GKE or AKS with Cluster Autoscaler; read from labels else."""
    prometheus_url: Annotated[str, Field(pattern=r"^https?://[^/\\s]+")] | None = None
    """Where KEDA reaches Prometheus."""
    prometheus_auth: Annotated[str, Field(pattern=r"^(cluster/)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")] | None = None
    """KEDA's TriggerAuthentication for it by name, or a ClusterTriggerAuthentication as cluster/name."""
    rule_labels: Mapping[str, str] | None = None
    """Labels by which Prometheus selects PrometheusRules; {release: kube-prometheus-stack} by default."""
    scrape_interval_s: Annotated[int, Field(gt=0)] | None = None
    """How often servers are scraped; rates are taken over the last two scrapes."""
    pod_label: str | None = None
    """Label that carries the pod on DCGM series: pod, or exported_pod."""
    namespace_label: str | None = None
    """The same for the namespace."""
    node_classes: Mapping[str, DeclaredNodeClass] = Field(default_factory=dict)
    """Provider to the node class that its NodePools refer to."""
    quota_nodes: Mapping[str, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
    """Instance type to the most nodes that the provider allows; divide it where several pools share a type."""
    workloads: Mapping[str, DeclaredWorkload] = Field(default_factory=dict)
    """namespace/name to what is declared of it."""


def parse_cluster_file(text: str, *, where: str) -> ClusterFile:
    """Read the text; raises BundleError with every fault and near matches for misspelt keys."""
    raw = load_mapping(text, where)
    try:
        return ClusterFile.model_validate(raw)
    except ValidationError as error:
        raise BundleError(validation_faults(error, ClusterFile, where)) from error


def with_cluster_file(facts: EmitFacts, declared: ClusterFile, *, where: str) -> EmitFacts:
    """Return facts with what a person declared over them; raises UnknownName for an unknown workload or server."""
    names = [known.name for known in facts.workloads]
    for name in declared.workloads:
        if name not in names:
            raise UnknownName("workload", name, names, where=where)
    for workload in declared.workloads.values():
        kind = workload.owner_kind
        if kind and kind not in _OWNER_KINDS and get_close_matches(kind, _OWNER_KINDS, cutoff=_ALIKE):
            raise UnknownName("owner_kind", kind, _OWNER_KINDS, where=where)
    types = {pool.pool.instance_type for pool in facts.pools}
    for instance_type in declared.quota_nodes:
        if instance_type not in types:
            raise UnknownName("instance type of quota_nodes", instance_type, types, where=where)
    return replace(
        with_cluster_wide(facts, declared),
        pools=tuple(
            replace(pool, quota_nodes=declared.quota_nodes.get(pool.pool.instance_type, pool.quota_nodes))
            for pool in facts.pools
        ),
        workloads=tuple(
            _scraped(_with_declared(workload, declared.workloads.get(workload.name)), declared.scrape_interval_s)
            for workload in facts.workloads
        ),
    )


def with_cluster_wide(facts: EmitFacts, declared: ClusterFile) -> EmitFacts:
    """Return facts with what a person declared of the cluster as a whole; what concerns a workload or a quota is left."""
    single = (
        "autoscaler", "node_maker", "prometheus_url", "prometheus_auth", "rule_labels", "scrape_interval_s", "pod_label",
        "namespace_label",
    )  # fmt: skip
    changes = {name: value for name in single if (value := getattr(declared, name)) is not None}
    if declared.scrape_interval_s is not None:
        changes["scrape_is_known"] = True
    classes = {provider: NodeClass(**node_class.model_dump()) for provider, node_class in declared.node_classes.items()}
    return replace(facts, **changes, node_classes={**facts.node_classes, **classes})


def _scraped(known: WorkloadFacts, scrape_interval_s: int | None) -> WorkloadFacts:
    """Return a workload whose server is scraped as often as it is said, whatever was seen."""
    if scrape_interval_s is None or known.service is None:
        return known
    return replace(known, service=replace(known.service, scrape_interval_s=scrape_interval_s))


def _with_declared(known: WorkloadFacts, declared: DeclaredWorkload | None) -> WorkloadFacts:
    if declared is None:
        return known
    fields = ("owner_kind", "replicas", "pod_labels", "run_starts")
    changes = {name: value for name in fields if (value := getattr(declared, name)) is not None}
    if declared.tolerations is not None:
        changes["tolerations"] = tuple(toleration.as_fact() for toleration in declared.tolerations)
    service = known.service
    if service is not None and declared.server is not None:
        service = replace(service, signals=server_signals(declared.server), server_is_known=True)
    signals = declared.metrics.as_fact() if declared.metrics is not None else None
    if service is not None and signals is not None:
        service = replace(service, signals=signals, server_is_known=True)
    if service is not None and declared.capacity_req_s is not None:
        service = replace(service, capacity_req_s=declared.capacity_req_s)
    return replace(known, **changes, service=service)
