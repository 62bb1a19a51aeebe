"""What manifests need to know of a cluster beyond the plan: owners, replicas, metric names, node classes, quotas.

Of the series of each model server they hold the newest spellings of `catalog.model_servers`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from trimtab.catalog import model_servers
from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.model_servers import ServerMetrics
from trimtab.catalog.pools import Pool
from trimtab.deployment.placement import Home, HomeNodes
from trimtab.emit.manifests.emission import Plain
from trimtab.errors import UnknownName
from trimtab.fleet.model import Target
from trimtab.fleet.owner_kinds import (
    INFERENCE_SERVICE,
    KNATIVE_SERVICE,
    KSERVE,
    KSERVE_COMPONENT,
    LLM_INFERENCE_SERVICE,
    RAY_SERVICE,
    is_prefill,
    object_name,
)
from trimtab.physics.transfer import SAME_SPEED
from trimtab.provenance import Estimate
from trimtab.tables.workloads import local_name


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSignals:
    """Series that a server exports for each pod; None where it has none.

    `completed` and `arrived` are counters of requests, `waiting` a gauge of requests queued, `kv_cache` a gauge 0..1, `ttft`
    and `latency` histograms in seconds without their suffix; the others are counters of tokens, those of prompts with what the
    prefix cache held.
    """

    server: str
    completed: str
    arrived: str | None = None
    waiting: str | None = None
    kv_cache: str | None = None
    ttft: str | None = None
    latency: str | None = None
    prompt_tokens: str | None = None
    answer_tokens: str | None = None
    cached_tokens: str | None = None
    only: tuple[str, ...] = ()
    """Matchers without which its series count other things too."""

    @property
    def counts_tokens(self) -> bool:
        """Return whether a rule can go by its tokens."""
        return self.prompt_tokens is not None and self.answer_tokens is not None


def signals_of(metrics: ServerMetrics) -> ServerSignals:
    """Return the series that rules read; histograms of other units than seconds are none of them."""
    in_seconds = metrics.bucket_s == 1
    return ServerSignals(
        server=metrics.server,
        completed=metrics.completed[0],
        arrived=metrics.arrived or None,
        waiting=_newest(metrics.waiting),
        kv_cache=_newest(metrics.kv_cache),
        ttft=(metrics.ttft or None) if in_seconds else None,
        latency=(metrics.latency or None) if in_seconds else None,
        prompt_tokens=_newest(metrics.prompt_tokens),
        answer_tokens=_newest(metrics.answer_tokens),
        cached_tokens=_newest(metrics.cached_tokens),
        only=metrics.only,
    )


def _newest(names: tuple[str, ...]) -> str | None:
    return names[0] if names else None


SERVERS: Mapping[str, ServerSignals] = MappingProxyType(
    {server.server: signals_of(server) for server in model_servers.SERVERS}
)


def server_signals(server: str) -> ServerSignals:
    """Return a server's series; raises UnknownName with near matches."""
    if server not in SERVERS:
        raise UnknownName("model server", server, SERVERS)
    return SERVERS[server]


SCALE_APIS: Mapping[str, str] = MappingProxyType(
    {
        "Deployment": "apps/v1",
        "StatefulSet": "apps/v1",
        "ReplicaSet": "apps/v1",
        "Rollout": "argoproj.io/v1alpha1",
        "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    }
)
"""Kinds with a scale subresource, and the API that they are of."""
SCALABLE = frozenset(SCALE_APIS)
NOTEBOOK = "Notebook"
SERVING = SCALABLE | KSERVE | {RAY_SERVICE, KSERVE_COMPONENT, KNATIVE_SERVICE}
"""Kinds whose pods serve for good; those that are not scalable scale themselves (Ray Serve, KServe, Knative)."""
SLURM = "slurm"
OFF_KUBERNETES = frozenset({SLURM, "machines", "process"})
"""Owner kinds of what no Kubernetes runs: jobs of Slurm, machines that a cloud's monitor reported, processes of a host."""


def own_bounds(known: WorkloadFacts, least: int, most: int) -> str:
    """Return what a person sets in a service that scales itself, so that it has so many replicas.

    Sources: Ray Serve, autoscaling guide (`autoscaling_config`, `num_replicas`); KubeRay v1, WorkerGroupSpec; KServe v1beta1,
    ComponentExtensionSpec, and v1alpha2, WorkloadSpec and ScalingSpec; knative.dev, "Configuring scale bounds".
    """
    if known.owner_kind == RAY_SERVICE:
        told = (
            f"num_replicas: {least}"
            if least == most
            else f"autoscaling_config with min_replicas: {least} and max_replicas: {most}"
        )
        return (
            f"Ray scales it: in serveConfigV2 give its deployment {told}, and its worker group (in pods) minReplicas and "
            "maxReplicas that hold so many, with enableInTreeAutoscaling where they differ"
        )
    if known.owner_kind == KNATIVE_SERVICE:
        return (
            f'Knative scales it: set the annotations autoscaling.knative.dev/min-scale: "{least}" and '
            f'autoscaling.knative.dev/max-scale: "{most}" in spec.template of its Service'
        )
    if known.owner_kind == LLM_INFERENCE_SERVICE:
        place = "spec.prefill" if known.is_prefill else "spec"
        told = (
            f"{place}.replicas: {least}"
            if least == most
            else f"{place}.scaling with minReplicas: {least} and maxReplicas: {most}, in place of {place}.replicas"
        )
        return f"KServe scales it: in LLMInferenceService {known.object_name} set {told}"
    part = "predictor" if known.owner_kind == INFERENCE_SERVICE else "part of its object"
    return f"KServe scales it: set minReplicas: {least} and maxReplicas: {most} in its {part}"


_IN_WORDS: Mapping[str, str] = MappingProxyType(
    {
        KSERVE_COMPONENT: "part of its KServe object (KServe overwrites its Deployment)",
        KNATIVE_SERVICE: "Knative Service (Knative overwrites its Deployment)",
    }
)


def kind_in_words(kind: str) -> str:
    """Return how a workload's kind is called in a message; most are their own name."""
    return _IN_WORDS.get(kind, kind)


class Autoscaler(Enum):
    """Which controller scales services; two of them on one workload would fight."""

    KEDA = "keda"
    HPA = "hpa"


class NodeMaker(Enum):
    """What makes nodes for pods that wait."""

    KARPENTER = "karpenter"
    NODE_GROUPS = "node-groups"
    """Groups of EKS, GKE or AKS, which Cluster Autoscaler resizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFacts:
    """What the replay knew of a service: requests/s that a replica serves, its metrics, its targets."""

    capacity_req_s: float
    signals: ServerSignals
    server_is_known: bool = False
    """False: assumed to be vLLM, because no other server was found or declared."""
    targets: tuple[Target, ...] = ()
    scrape_interval_s: int | None = None
    """How often its server is scraped; None where it was not observed."""
    faster_counts: bool = True
    """False: something beside the GPU may be full first, so that a faster GPU is assumed to serve no more."""
    assumes: str = ""
    """What `capacity_req_s` relies on and a person brings about, in words; empty where it is what a replica serves today."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """A toleration of a pod, as Kubernetes spells it; what is empty or None is not stated."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    seconds: int | None = None
    """How long it stays on a node that gets the taint (`tolerationSeconds`)."""

    def as_plain(self) -> dict[str, Plain]:
        """Return it as a pod states it."""
        stated: dict[str, Plain] = {
            "key": self.key, "operator": self.operator, "value": self.value, "effect": self.effect,
        }  # fmt: skip
        after: dict[str, Plain] = {} if self.seconds is None else {"tolerationSeconds": self.seconds}
        return {name: value for name, value in stated.items() if value} | after


class ContainerStart(Enum):
    """What holds the arguments of a container's program, as the column `gpu_containers` of `pods` says it."""

    ARGS = "args"
    COMMAND = "command"
    SHELL = "shell"
    """A line or a script that a shell runs: arguments appended to the container's do not reach the server."""
    PROGRAM = "program"
    """Another program, which starts vLLM itself."""
    IMAGE = "image"
    """Neither `command` nor `args`: what a manifest says would replace what the image says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuContainer:
    """A container of a pod that asks for GPUs: its place in the list, and whether `requests` says them beside `limits`."""

    place: int = 0
    in_requests: bool = False
    started_by: ContainerStart | None = None
    """None: a bundle of before this was collected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuClaim:
    """A claim of a pod for GPUs (dynamic resource allocation): its place in `resourceClaims`, and what it is made from."""

    place: int
    name: str
    template: str = ""
    """ResourceClaimTemplate; empty where pods share the ResourceClaim `claim`."""
    claim: str = ""
    api_version: str = "resource.k8s.io/v1"
    requests: tuple[str, ...] = ()
    """Names of its requests that ask for GPUs."""
    spec: str = ""
    """The claim's spec as JSON; empty where it was not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """A GPU node that was billed when the history ended: the labels that name its group, and who held its GPUs."""

    name: str
    pool: Pool
    group: tuple[str, str] | None = None
    """Label that names its node group or NodePool, and its value; None where it is not known."""
    held_by: tuple[str, ...] = ()
    """Of late."""
    held_before: tuple[str, ...] = ()
    """At any time in the history."""

    @property
    def goes_with(self) -> tuple[str, ...]:
        """Return the workloads with which it is given back: those that hold it, or held it if none does."""
        return self.held_by or self.held_before


@dataclass(frozen=True, slots=True, kw_only=True)
class KueueFlavor:
    """A ResourceFlavor of a ClusterQueue that rations GPUs, which has GPU nodes of its own."""

    name: str
    levels: tuple[str, ...]
    """Labels by which its nodes stand together, the widest first: those that all of them have, single nodes aside."""
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFacts:
    """A workload as the cluster knows it.

    `owner_kind` is the Kubernetes kind that runs its pods. `pod_labels` select them (none known: no disruption budget is
    written). `run_starts` are the hours of the week (Monday 00:00 UTC is 0) at which its scheduled runs begin.
    """

    name: str
    owner_kind: str = "Deployment"
    team: str = ""
    """Who owns it, by the labels or accounts of its pods or jobs; empty where it is not known."""
    replicas: int = 1
    pods_if_none_waited: int = 0
    """The most pods of runs at once in all of the history, had each run started when it was submitted; 0: no runs are known."""
    gpus_per_pod: float = 1.0
    pod_gpus: tuple[float, ...] = ()
    """GPUs of its pods by size, where there are several sizes: one template is not for all of them."""
    gpu: str | None = None
    pool: Pool | None = None
    gpus_per_node: int = 1
    home_speed: Estimate = SAME_SPEED
    """How fast a service is on `gpu` alone, beside all types that it was measured on together."""
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    """Those it has: a patch replaces the list, so it must repeat them."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    gpu_containers: tuple[GpuContainer, ...] = ()
    """Its containers that ask for GPUs; none where its pods were not read."""
    gpu_claims: tuple[GpuClaim, ...] = ()
    """Its claims of GPUs, where its pods claim them instead of asking for `nvidia.com/gpu`."""
    affinity_keys: tuple[str, ...] = ()
    """Labels of nodes that its pods require by affinity."""
    keeps_apart: tuple[str, ...] = ()
    """Labels of nodes by which its pods keep apart from each other."""
    pods_were_read: bool = False
    """Whether tolerations, node selector and affinity are those of its pods, or just not known."""
    ceiling: int | None = None
    """The most replicas that an autoscaler which is in place lets it have."""
    scalers: tuple[str, ...] = ()
    """Autoscalers that are in place, as `kind/name`."""
    run_starts: tuple[int, ...] = ()
    activity_signal: str = "sm_active"
    """What is used as demand where no requests are known: sm_active or, where DCGM has no profiling fields, gpu_util."""
    service: ServiceFacts | None = None

    @property
    def assumes(self) -> str:
        """Return what its capacity relies on; empty where nothing, or where no requests of it are known."""
        return "" if self.service is None else self.service.assumes

    @property
    def most_replicas(self) -> int:
        """Return the most replicas that are known of: those of the past, or what an autoscaler in place may make."""
        return max(self.replicas, self.ceiling or 0)

    @property
    def home(self) -> Home | None:
        """Return what it runs on today; None where it is not known."""
        if self.pool is None:
            return None
        return HomeNodes(
            pool=self.pool,
            gpu=self.gpu,
            gpus_per_node=self.gpus_per_node,
            gpus_per_pod=self.gpus_per_pod,
            home_speed=self.home_speed,
        )

    @property
    def namespace(self) -> str:
        """Return the namespace."""
        return namespace_of(self.name)

    @property
    def short_name(self) -> str:
        """Return the name without its namespace."""
        return short_name_of(self.name)

    @property
    def object_name(self) -> str:
        """Return the name of the object that a person writes, which KServe's Deployments do not bear."""
        return object_name(self.owner_kind, self.short_name)

    @property
    def is_prefill(self) -> bool:
        """Return whether its pods are those of the `prefill` part of an LLMInferenceService."""
        return is_prefill(self.owner_kind, self.short_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClass:
    """The provider's own node class that a NodePool refers to."""

    group: str
    kind: str
    name: str = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotType:
    """An instance type that a pool of spot nodes may start in place of the planned one, with its rates."""

    instance_type: str
    rate_micro_usd_hr: int
    on_demand_micro_usd_hr: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedPool:
    """A pool's rate and, where it is known, the provider's quota on it."""

    pool: Pool
    gpus_per_node: int
    rate_micro_usd_hr: int | None = None
    quota_nodes: int | None = None
    spot_types: tuple[SpotType, ...] = ()
    """What a pool of spot nodes may start, its own type first and then by price; empty where there is no other."""


KUBE_PROMETHEUS_STACK: Mapping[str, str] = MappingProxyType({"release": "kube-prometheus-stack"})
"""What the chart's Prometheus selects rules by, where its release has its own name (`ruleSelectorNilUsesHelmValues`)."""


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
    nodes: tuple[NodeFacts, ...] = ()
    kueue_flavors: tuple[KueueFlavor, ...] = ()
    """By name."""
    node_maker: NodeMaker | None = None
    """None where it is not known: assumed to be Karpenter."""
    prometheus_url: str = "http://prometheus-operated.monitoring.svc:9090"
    prometheus_auth: str = ""
    """The KEDA TriggerAuthentication (`name`) or ClusterTriggerAuthentication (`cluster/name`) for it; empty: none."""
    rule_labels: Mapping[str, str] = field(default_factory=lambda: dict(KUBE_PROMETHEUS_STACK))
    """Labels by which Prometheus selects PrometheusRules."""
    scrape_interval_s: int = 15
    scrape_is_known: bool = False
    """False: how often model servers are scraped was neither observed nor declared."""
    pod_label: str = "pod"
    """Label that carries the workload's pod on DCGM series: `pod`, or `exported_pod` where the scrape keeps its own."""
    namespace_label: str = "namespace"
    gpu_products: Mapping[str, str] = field(default_factory=dict)
    """GPU -> its product name as `nvidia-smi` prints it, which claims select by."""

    def scrape_s(self, known: WorkloadFacts) -> int:
        """Return how often a workload's server is scraped: as it was seen, else as it is said of all."""
        seen = None if known.service is None else known.service.scrape_interval_s
        return self.scrape_interval_s if seen is None else seen

    def knows_scrape(self, known: WorkloadFacts) -> bool:
        """Return whether somebody saw or said how often a workload's server is scraped."""
        return self.scrape_is_known or (known.service is not None and known.service.scrape_interval_s is not None)

    def workload(self, name: str) -> WorkloadFacts | None:
        """Return what is known of a workload, or None."""
        return next((known for known in self.workloads if known.name == name), None)

    def priced(self, pool: Pool) -> PricedPool | None:
        """Return what is known of a pool, or None."""
        return next((known for known in self.pools if known.pool == pool), None)

    def spot_types(self, nodes: Pool) -> tuple[SpotType, ...]:
        """Return what nodes may be of on spot, their own type first and then by price; empty where there is no other."""
        spot = self.priced(nodes.held_as(CapacityType.SPOT))
        return () if spot is None else spot.spot_types


_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


def is_kubernetes_name(workload: str) -> bool:
    """Return whether `namespace/name` can be an object of Kubernetes; what other schedulers run cannot be enacted there."""
    return all(_DNS_SUBDOMAIN.fullmatch(part) for part in (namespace_of(workload), short_name_of(workload)))


def namespace_of(workload: str) -> str:
    """Return the namespace of `namespace/name`; `default` where there is none."""
    return workload.partition("/")[0] if "/" in workload else "default"


def short_name_of(workload: str) -> str:
    """Return the name of `namespace/name`."""
    name = workload.partition("/")[2] if "/" in workload else workload
    return local_name(name)
