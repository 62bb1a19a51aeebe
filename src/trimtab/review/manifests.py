"""Kubernetes objects, read for what they ask for: pods and their nodes, replicas, autoscalers, node pools, recorded series.

Nothing here knows a fleet or a plan. Semantics are those of the projects' own references: Deployment and pod fields
(kubernetes.io/docs/reference/kubernetes-api), HorizontalPodAutoscaler autoscaling/v2, KEDA's ScaledObject (keda.sh,
scaledobject-spec), Karpenter's NodePool v1 (karpenter.sh/docs/concepts/nodepools). What is not read is listed with its reason.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import PurePosixPath

from trimtab.deployment.effects import DECODE, PREFILL, part_of
from trimtab.emit.manifests.cron_files import NOTEBOOK_STOPPED, NOTEBOOKS, QUEUE_LABEL
from trimtab.emit.manifests.emission import APPLIES_ONCE, ASSUMES
from trimtab.emit.manifests.hygiene_files import PACKING_SCHEDULER
from trimtab.emit.manifests.workload_patch import HOSTNAME
from trimtab.errors import InputError
from trimtab.fleet.owner_kinds import RAY_SERVICE, parts, pod_spec_path, workload_name
from trimtab.inputs.documents import load_yaml
from trimtab.review.disruption import DisruptionBudget, Rollout, budget_of, rollout_of
from trimtab.review.karpenter import (
    DO_NOT_DISRUPT,
    PriceOverlay,
    node_pool,
    price_overlay,
    unread_overlay_parts,
    unread_parts,
)
from trimtab.review.node_groups import (
    GROUP_KINDS,
    NODE_GROUP,
    GroupRank,
    is_block_group,
    node_groups,
    ranked,
    ranks_groups,
    ranks_of,
)
from trimtab.review.pools import GPU, GpuSharing, NodePool, Taint, object_at, whole_number
from trimtab.review.queues import PRIORITY_LABEL, QUEUE_KINDS, Queues
from trimtab.review.shares import MIG_SLICE, sharing_configs
from trimtab.sources.kubernetes.objects import Object, at, listed, mapping, number, selects, text, texts
from trimtab.sources.kubernetes.resource_claims import GPU_CLASSES, MIG_CLASS, requests_of

_REPLICATED = frozenset(
    {
        "Deployment", "StatefulSet", "ReplicaSet", "Rollout", "LeaderWorkerSet", "InferenceService", "LLMInferenceService",
        "RayService", "Notebook",
    }
)  # fmt: skip
NOTEBOOK_TIMETABLE = "CronJobs of a Notebook"
RUN_OBJECTS = frozenset({"Job", "CronJob", "PyTorchJob", "RayJob", "JobSet"})
_AUTOSCALERS = frozenset({"HorizontalPodAutoscaler", "ScaledObject"})
_SILENT = frozenset({
    "Namespace", "Service", "Secret", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding",
    "ServiceMonitor", "PodMonitor", "Ingress", "NetworkPolicy", "Kustomization",
    "EC2NodeClass", "AKSNodeClass", "GCENodeClass", "DeviceClass",
})  # fmt: skip
"""Kinds that change neither how many pods there are nor which nodes they hold: not read, and no gap."""
ROLE_LABEL = "llm-d.ai/role"
"""Of the pods of a half of a service (llm-d, guides/pd-disaggregation)."""
_PACKING_SCHEDULERS = frozenset({"gke.io/optimize-utilization-scheduler", PACKING_SCHEDULER})
_IN_WORKER_GROUP = ("template", "spec")
_STAYS_PUT = {DO_NOT_DISRUPT: "true", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
_CLAIM_PATH = re.compile(r".*/resourceClaims/\d+/resourceClaim(Template)?Name")


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedGpus:
    """Whole GPUs, and parts of GPUs by the extended resource that they are."""

    whole: int
    parts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredPods:
    """What the objects say of one workload's pods; None and empty where they do not say."""

    kind: str
    workload: str
    """Namespace and name, as a fleet calls it."""
    files: tuple[str, ...]
    replicas: int | None = None
    gpus: int | None = None
    parts: tuple[tuple[str, int], ...] = ()
    """Extended resources other than whole GPUs that it asks for, each with how many."""
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Taint, ...] | None = None
    priority_class: str = ""
    spread: tuple[str, ...] = ()
    """Labels of nodes over whose values its pods must be spread evenly."""
    fills_nodes: bool = False
    """Whether a new pod goes to the node that holds most of them, not to the emptiest."""
    cron: str = ""
    """When a CronJob starts them."""
    claims: tuple[str, ...] = ()
    """What its claims are made from, as `kind name`, where those objects are not read yet."""
    alternatives: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Labels that its nodes must have with one of several values, by required affinity."""
    labels: tuple[tuple[str, str], ...] = ()
    """Its pods' own."""
    stays_put: bool = False
    """Whether its pods forbid that their nodes be disrupted."""
    rollout: Rollout | None = None
    """How new pods take the place of old ones; None: as its kind does by itself."""
    queue: str = ""
    """The LocalQueue of Kueue that its pods wait in."""
    most_sequences: int | None = None
    """Requests that its server has in work at once, at most (vLLM's `--max-num-seqs`)."""
    tensor: int | None = None
    """GPUs that its server uses together (vLLM's `--tensor-parallel-size`); None where that is not stated."""
    queue_priority: str = ""
    """The WorkloadPriorityClass by which they are ordered in it; empty: by their own class."""

    def selected(self, *keys: str) -> str | None:
        """Return the value that its nodes must have for one of some labels; None where any will do."""
        return next((value for key, value in self.node_selector if key in keys), None)

    def over(self, other: DeclaredPods) -> DeclaredPods:
        """Return what both say; this one, which was read later, where they differ."""
        return DeclaredPods(
            kind=self.kind,
            workload=self.workload,
            files=tuple(dict.fromkeys((*other.files, *self.files))),
            replicas=other.replicas if self.replicas is None else self.replicas,
            gpus=other.gpus if self.gpus is None else self.gpus,
            parts=self.parts or other.parts,
            node_selector=tuple({**dict(other.node_selector), **dict(self.node_selector)}.items()),
            tolerations=other.tolerations if self.tolerations is None else self.tolerations,
            priority_class=self.priority_class or other.priority_class,
            spread=self.spread or other.spread,
            fills_nodes=self.fills_nodes or other.fills_nodes,
            cron=self.cron or other.cron,
            claims=self.claims or other.claims,
            alternatives=self.alternatives or other.alternatives,
            labels=tuple({**dict(other.labels), **dict(self.labels)}.items()),
            stays_put=self.stays_put or other.stays_put,
            rollout=self.rollout or other.rollout,
            queue=self.queue or other.queue,
            most_sequences=other.most_sequences if self.most_sequences is None else self.most_sequences,
            tensor=other.tensor if self.tensor is None else self.tensor,
            queue_priority=self.queue_priority or other.queue_priority,
        )

    def with_claims(self, claimed: Mapping[str, AskedGpus]) -> DeclaredPods:
        """Return the pods with the whole GPUs and the parts of GPUs that their claims ask for, where those are known."""
        known = [claimed[name] for name in self.claims if name in claimed]
        if not known:
            return self
        parts = Counter(dict(self.parts))
        for asked in known:
            parts.update(asked.parts)
        gpus = sum(asked.whole for asked in known)
        parts_of_all = tuple(sorted(parts.items()))
        return replace(self, gpus=(self.gpus or 0) + gpus if gpus else self.gpus, parts=parts_of_all, claims=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaler:
    """An autoscaler's object and what it scales."""

    kind: str
    name: str
    namespace: str
    file: str
    spec: Object
    annotations: Mapping[str, str] = field(default_factory=dict)
    assumes: str = ""
    """What its target relies on and no object brings about, where it says so."""

    @property
    def workload(self) -> str:
        """Return the workload that it scales."""
        return f"{self.namespace}/{text(self.spec, 'scaleTargetRef', 'name')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """An object, or a part of one, that is not modelled: what, where, why."""

    what: str
    file: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSeries:
    """A recording rule of a namespace; rules of several workloads record one name with different labels."""

    namespace: str
    name: str
    labels: Mapping[str, str]
    expression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UntargetedPatch:
    """What a patch sets whose target names no namespace: it goes to whatever its kustomization holds of that name."""

    name: str
    """A regular expression that takes a whole name, as kustomize has it."""
    said: str
    """The name that the patch itself states; empty where it states none."""
    pods: DeclaredPods


@dataclass(slots=True, kw_only=True)
class Manifests:
    """What a folder of objects asks for."""

    pods: dict[str, DeclaredPods] = field(default_factory=dict)
    """By workload."""
    pools: dict[str, NodePool] = field(default_factory=dict)
    """By name."""
    scalers: dict[str, list[Scaler]] = field(default_factory=dict)
    """By workload: two that scale one workload fight each other."""
    records: list[RecordedSeries] = field(default_factory=list)
    patches: list[UntargetedPatch] = field(default_factory=list)
    priorities: dict[str, float] = field(default_factory=dict)
    """Of priority classes, by name; of the one that is the default also by no name."""
    unread: list[Unread] = field(default_factory=list)
    claimed: dict[str, AskedGpus] = field(default_factory=dict)
    """`kind name` of a ResourceClaim or a template of one -> what it asks for."""
    overlays: list[PriceOverlay] = field(default_factory=list)
    budgets: list[DisruptionBudget] = field(default_factory=list)
    queues: Queues = field(default_factory=Queues)
    group_ranks: list[GroupRank] = field(default_factory=list)
    """Which node groups are grown first."""
    sharing: dict[str, GpuSharing | None] = field(default_factory=dict)
    """Name of a configuration of the device plugin -> how it shares GPUs; None: not at all."""

    @property
    def workloads(self) -> tuple[str, ...]:
        """Return every workload that something is said of, and each service whose prefill and decode have pods of their own."""
        return tuple(sorted({*self.pods, *self.scalers, *self._apart}))

    @property
    def _apart(self) -> set[str]:
        names = {name.removesuffix(f"-{DECODE}") for name in self.pods if name.endswith(f"-{DECODE}")}
        return {name for name in names if self.half(name, PREFILL) and self.half(name, DECODE)}

    def is_half(self, pods: DeclaredPods, known: Container[str]) -> bool:
        """Return whether pods are a half of a service that is known."""
        role = dict(pods.labels).get(ROLE_LABEL, "")
        whole = pods.workload.removesuffix(f"-{role}")
        return whole in known and whole in self._apart

    def half(self, workload: str, role: str) -> DeclaredPods | None:
        """Return the pods of a role of a service; None where there are none, or another label says that they are of none."""
        pods = self.pods.get(part_of(workload, role))
        return pods if pods is not None and dict(pods.labels).get(ROLE_LABEL) == role else None

    def budgets_of(self, pods: DeclaredPods) -> tuple[DisruptionBudget, ...]:
        """Return the PodDisruptionBudgets that select a workload's pods, by the labels that these objects give them."""
        namespace, labels = pods.workload.partition("/")[0], dict(pods.labels)
        return tuple(budget for budget in self.budgets if labels and budget.selects(namespace, labels))

    def queue_priority_of(self, pods: DeclaredPods) -> float | None:
        """Return the priority of pods in their queue; None where no object here says it.

        A WorkloadPriorityClass comes before the class of the pods; without either it is that of the default class, or
        0 (Kueue v0.19.2, pkg/util/priority/priority.go).
        """
        if pods.queue_priority:
            return self.queues.priorities.get(pods.queue_priority)
        return self.priorities.get(pods.priority_class, None if pods.priority_class else 0.0)

    def is_placeholder(self, pods: DeclaredPods) -> bool:
        """Return whether pods only hold a node until others take their place: a timetable of the lowest priority."""
        return bool(pods.cron) and self.priorities.get(pods.priority_class, 0.0) < 0

    def laid_on(self, known: Iterable[str]) -> Manifests:
        """Return the manifests with every patch laid on the workload that it is for: one of `known`, or of the objects."""
        found = replace(self, pods=dict(self.pods), patches=[], unread=list(self.unread))
        names = sorted({*known, *self.workloads})
        for patch in self.patches:
            fit = _patched_names(patch, names)
            if len(fit) == 1:
                _put(found, replace(patch.pods, workload=fit[0]))
            else:
                which = f"{', '.join(fit)} are called so" if fit else "neither this history nor these objects have it"
                file, kind = patch.pods.files[0], patch.pods.kind
                found.unread.append(Unread(what=f"a patch of {kind} {patch.said or patch.name}", file=file, why=which))
        return found


def read_objects(documents: Iterable[tuple[str, object]]) -> Manifests:
    """Return what documents, each with the name of its file, ask for."""
    found = Manifests()
    for file, document in documents:
        for body in _flat(document):
            _take(found, file, body)
    found.pools = {
        name: ranked(pool, found.group_ranks) if pool.kind == NODE_GROUP else pool for name, pool in found.pools.items()
    }
    found.pods = {name: pods.with_claims(found.claimed) for name, pods in found.pods.items()}
    found.patches = [replace(patch, pods=patch.pods.with_claims(found.claimed)) for patch in found.patches]
    return found


def _flat(document: object) -> Iterator[Object]:
    """Yield a document's object, or those of a list."""
    if isinstance(document, Mapping):
        items = document.get("items")
        if text(document, "kind").endswith("List") and isinstance(items, list):
            for item in items:
                yield from _flat(item)
        else:
            yield document


def _take(found: Manifests, file: str, body: Object) -> None:
    kind, name = text(body, "kind"), text(body, "metadata", "name")
    namespace = text(body, "metadata", "namespace") or "default"
    if kind == RAY_SERVICE and len(_gpu_groups(body)) > 1:
        why = "several worker groups with GPUs: which of them serves is not modelled"
        found.unread.append(Unread(what=f"{kind} {namespace}/{name}", file=file, why=why))
    elif kind == "CronJob" and (turned := _turned_notebook(body)) is not None:
        _turn(found, f"{namespace}/{turned[0]}", file, body, turned[1])
    elif kind == "CronJob" and found.queues.takes_turn(namespace, body):
        return
    elif kind in _REPLICATED or kind in RUN_OBJECTS:
        for prefill, spec in parts(kind, object_at(body, "spec")):
            part = {**body, "spec": spec}
            found.unread += [
                Unread(what=f"{kind} {namespace}/{name}: {what}", file=file, why=why)
                for what, why in _unread_placement(_held_in(kind, part)[0])
            ]
            _put(found, _pods(kind, f"{namespace}/{workload_name(kind, name, prefill=prefill)}", file, part))
    elif kind in _AUTOSCALERS:
        scaler = Scaler(
            kind=kind,
            name=name,
            namespace=namespace,
            file=file,
            spec=object_at(body, "spec"),
            annotations=mapping(body, "metadata", "annotations"),
            assumes=text(body, "metadata", "annotations", ASSUMES),
        )
        found.scalers.setdefault(scaler.workload, []).append(scaler)
    elif kind in QUEUE_KINDS:
        found.unread += [
            Unread(what=what, file=file, why=why) for what, why in found.queues.take(kind, name, namespace, file, body)
        ]
    elif kind == "NodePool":
        found.pools[name] = node_pool(name, file, body)
        found.unread += [Unread(what=what, file=file, why=why) for what, why in unread_parts(name, body)]
    elif kind == "NodeOverlay":
        found.overlays += [overlay for overlay in (price_overlay(name, file, body),) if overlay]
        found.unread += [Unread(what=what, file=file, why=why) for what, why in unread_overlay_parts(name, body)]
    elif kind == "PodDisruptionBudget":
        found.budgets.append(budget_of(name, namespace, file, body))
    elif kind == "Nodegroup" and is_block_group(body) and number(body, "spec", "scalingConfig", "maxSize") is None:
        why = "it says not how many nodes of a capacity block: pods are assumed to run on the group behind them"
        found.unread.append(Unread(what=f"{kind} {text(body, 'spec', 'name') or name}", file=file, why=why))
    elif kind in GROUP_KINDS:
        found.pools |= {f"{group.kind} {group.name}": group for group in node_groups(kind, name, file, body)}
    elif kind in ("ResourceClaim", "ResourceClaimTemplate"):
        found.claimed[f"{kind} {name}"] = _claimed(
            at(body, *(("spec", "spec") if kind.endswith("Template") else ("spec",)))
        )
    elif kind == "ConfigMap":
        found.sharing |= dict(sharing_configs(body))
        found.group_ranks += ranks_of(kind, name, body)
    elif kind == "PriorityClass":
        found.priorities[name] = number(body, "value") or 0.0
        if at(body, "globalDefault") is True:
            found.priorities[""] = found.priorities[name]
    elif kind == "PrometheusRule":
        for group in listed(body, "spec", "groups"):
            for rule in listed(group, "rules"):
                if text(rule, "record"):
                    found.records.append(
                        RecordedSeries(
                            namespace=namespace,
                            name=text(rule, "record"),
                            labels=mapping(rule, "labels"),
                            expression=text(rule, "expr"),
                        )
                    )
    elif kind == "Component" and (once := text(body, "metadata", "annotations", APPLIES_ONCE)):
        found.unread.append(Unread(what=f"Component {name}", file=file, why=f"it is applied only once {once}"))
    elif kind in ("Component", "Kustomization") and at(body, "patches"):
        for patch in listed(body, "patches"):
            _take_patch(found, file, patch)
    elif not kind and file.endswith(".json"):
        return  # a dashboard, or other data
    elif not kind:
        found.unread.append(Unread(what="a document without a kind", file=file, why="it is no Kubernetes object"))
    elif kind == "ComputeClass" and ranks_groups(body):
        found.group_ranks += ranks_of(kind, name, body)
    elif kind not in _SILENT:
        found.unread.append(Unread(what=f"{kind} {namespace}/{name}", file=file, why="this kind is not modelled"))


def _turned_notebook(cron_job: Object) -> tuple[str, str] | None:
    """Return the Notebook that a CronJob does nothing but start or stop, and which of the two (`starts`, `stops`)."""
    for container in listed(cron_job, *pod_spec_path("CronJob"), "containers"):
        words = texts(container, "args")
        patch = re.search(rf'--patch=.*"{NOTEBOOK_STOPPED}": ?(null|")', " ".join(words))
        if words[:2] == ["patch", NOTEBOOKS] and patch is not None:
            return words[2], "starts" if patch[1] == "null" else "stops"
    return None


def _turn(found: Manifests, workload: str, file: str, cron_job: Object, turn: str) -> None:
    """Put a time at which a Notebook is started or stopped to the others."""
    namespace, _, name = workload.partition("/")
    scalers = found.scalers.setdefault(workload, [])
    earlier = next((scaler for scaler in scalers if scaler.kind == NOTEBOOK_TIMETABLE), None)
    if earlier is None:
        spec: dict[str, object] = {"scaleTargetRef": {"name": name}, "starts": [], "stops": [], "zones": []}
        earlier = Scaler(kind=NOTEBOOK_TIMETABLE, name=name, namespace=namespace, file=file, spec=spec)
        scalers.append(earlier)
    for key, value in ((turn, text(cron_job, "spec", "schedule")), ("zones", text(cron_job, "spec", "timeZone"))):
        times = at(earlier.spec, key)
        if isinstance(times, list):
            times.append(value)


def _put(found: Manifests, pods: DeclaredPods) -> None:
    known = found.pods.get(pods.workload)
    found.pods[pods.workload] = pods if known is None else pods.over(known)


def _gpu_groups(ray_service: Object) -> list[Object]:
    """Return the worker groups of a RayService whose pods ask for GPUs (KubeRay v1, RayClusterSpec)."""
    groups = listed(ray_service, "spec", "rayClusterConfig", "workerGroupSpecs")
    return [group for group in groups if _devices(object_at(group, *_IN_WORKER_GROUP), "a worker group") != (None, {})]


def _held_in(kind: str, body: Object) -> tuple[Object, float | None]:
    """Return the pod's spec of an object, and how many such pods it states."""
    if kind == RAY_SERVICE:
        group = next(iter(_gpu_groups(body)), {})
        return object_at(group, *_IN_WORKER_GROUP), number(group, "replicas")
    return object_at(body, *pod_spec_path(kind)), number(body, "spec", "replicas")


def _pods(kind: str, workload: str, file: str, body: Object) -> DeclaredPods:
    template, replicas = _held_in(kind, body)
    meta = object_at(body, *pod_spec_path(kind)[:-1], "metadata")
    gpus, parts = _devices(template, f"{file}: {kind} {workload}")
    stated = at(template, "tolerations")
    # Kueue admits the Jobs that a CronJob makes, whose labels are those of its template (kubernetes-sigs/kueue,
    # site/static/examples/jobs/sample-cronjob.yaml)
    queued = object_at(body, "spec", "jobTemplate") if kind == "CronJob" else body
    words = _words(template)
    return DeclaredPods(
        kind=kind,
        workload=workload,
        files=(file,),
        replicas=None if replicas is None or kind in RUN_OBJECTS else int(replicas),
        gpus=gpus,
        parts=tuple(sorted(parts.items())),
        node_selector=(*_affinity(template), *mapping(template, "nodeSelector").items()),
        tolerations=None if stated is None else tuple(_toleration(item) for item in listed(template, "tolerations")),
        priority_class=text(template, "priorityClassName"),
        spread=tuple(
            text(constraint, "topologyKey")
            for constraint in listed(template, "topologySpreadConstraints")
            if text(constraint, "whenUnsatisfiable") != "ScheduleAnyway"
        ),
        fills_nodes=_fills_nodes(template, mapping(meta, "labels")),
        cron=text(body, "spec", "schedule"),
        claims=tuple(
            f"ResourceClaimTemplate {text(entry, 'resourceClaimTemplateName')}"
            if text(entry, "resourceClaimTemplateName")
            else f"ResourceClaim {text(entry, 'resourceClaimName')}"
            for entry in listed(template, "resourceClaims")
        ),
        alternatives=tuple(_alternatives(template)),
        labels=tuple(mapping(meta, "labels").items()),
        most_sequences=_whole(words, _SEQUENCES),
        tensor=_whole(words, _TENSOR),
        stays_put=any(text(meta, "annotations", key) == value for key, value in _STAYS_PUT.items()),
        rollout=rollout_of(kind, body),
        queue=text(queued, "metadata", "labels", QUEUE_LABEL),
        queue_priority=text(queued, "metadata", "labels", PRIORITY_LABEL),
    )


_SEQUENCES, _TENSOR = frozenset({"--max-num-seqs"}), frozenset({"--tensor-parallel-size", "-tp"})


def _words(template: Object) -> list[str]:
    """Return what a pod's containers are started with."""
    return [
        word
        for container in listed(template, "containers")
        for word in (*texts(container, "command"), *texts(container, "args"))
    ]


def _whole(words: Sequence[str], flags: Container[str]) -> int | None:
    """Return the whole number that the last of some flags states, which counts; None where none does."""
    found = None
    for word, following in pairwise([*words, ""]):
        flag, equals, value = word.partition("=")
        said = value if equals else following
        if flag in flags and said.isdigit():
            found = int(said)
    return found


def _fills_nodes(template: Object, labels: Mapping[str, str]) -> bool:
    """Return whether its scheduler puts a new pod on the node that holds most of its own, by what the pod says.

    A preferred affinity to its own pods by node does (kube-scheduler scores InterPodAffinity twice as much as
    NodeResourcesFit), but for the spread over nodes that the scheduler adds to pods which state none and scores as much
    (kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints, "Internal default constraints"). GKE's
    profile optimize-utilization packs pods by a scheduler of its own (docs.cloud.google.com, "About cluster autoscaling").
    """
    if text(template, "schedulerName") in _PACKING_SCHEDULERS:
        return True
    spread = [text(constraint, "topologyKey") for constraint in listed(template, "topologySpreadConstraints")]
    if not spread or HOSTNAME in spread:
        return False
    preferred = listed(template, "affinity", "podAffinity", "preferredDuringSchedulingIgnoredDuringExecution")
    return any(
        text(term, "podAffinityTerm", "topologyKey") == HOSTNAME
        # a patch does not say its pods' labels: those that it asks for are assumed to be theirs
        and (not labels or selects(at(term, "podAffinityTerm", "labelSelector"), labels))
        for term in preferred
    )


def _claimed(spec: object) -> AskedGpus:
    """Return the whole GPUs that a claim asks for, and the parts of GPUs as the extended resources that they would be."""
    asked = [each for each in requests_of(spec) if each.device_class in GPU_CLASSES and not each.is_admin]
    whole = [each for each in asked if not each.profile and each.device_class != MIG_CLASS]
    parts = Counter[str]()
    for each in asked:
        if each not in whole:
            parts[f"{MIG_SLICE}{each.profile or 'any'}"] += int(each.count or 1)
    return AskedGpus(whole=sum(int(each.count or 1) for each in whole), parts=parts)


def _devices(template: Object, where: str) -> tuple[int | None, dict[str, int]]:
    """Return the whole GPUs that the containers of a pod ask for together (None: not said), and parts of GPUs.

    A predictor of KServe says those of its model's server beside the containers.
    """
    asked = Counter[str]()
    for container in (*listed(template, "containers"), object_at(template, "model")):
        limits = {**object_at(container, "resources", "requests"), **object_at(container, "resources", "limits")}
        for key, value in limits.items():
            if str(key).startswith("nvidia.com/"):
                asked[str(key)] += whole_number(value, f"{where}, {key}")
    return asked.pop(GPU, None), dict(asked)


def _affinity(template: Object) -> Iterator[tuple[str, str]]:
    """Yield the labels that required node affinity leaves one value for."""
    return ((key, values[0]) for key, values in _required(template) if len(values) == 1)


def _alternatives(template: Object) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the labels that required node affinity leaves several values for; several terms bind nothing."""
    return (need for need in _required(template) if len(need[1]) > 1)


def _required(template: Object) -> Iterator[tuple[str, tuple[str, ...]]]:
    terms = listed(
        template, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"
    )
    for need in listed(terms[0], "matchExpressions") if len(terms) == 1 else ():
        values = at(need, "values")
        if text(need, "operator") == "In" and isinstance(values, list):
            yield text(need, "key"), tuple(str(value) for value in values)


def _unread_placement(template: Object) -> Iterator[tuple[str, str]]:
    """Yield what of a pod decides where it goes and is not read, and why."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    for kind in ("podAffinity", "podAntiAffinity"):
        if listed(template, "affinity", kind, required):
            yield f"required {kind}", "which pods may share a node is not modelled: nodes are filled"
    terms = listed(template, "affinity", "nodeAffinity", required, "nodeSelectorTerms")
    if len(terms) > 1:
        yield "required nodeAffinity of several terms", "only one term is modelled"
    for need in listed(terms[0], "matchExpressions") if len(terms) == 1 else ():
        if text(need, "operator") != "In":
            yield f"required nodeAffinity {text(need, 'key')} {text(need, 'operator')}", "only In is modelled"
    if text(template, "schedulerName") not in {"", "default-scheduler", *_PACKING_SCHEDULERS}:
        yield f"schedulerName {text(template, 'schedulerName')}", "only the default scheduler is modelled"


def _toleration(toleration: Object) -> Taint:
    return Taint(
        key=text(toleration, "key"),
        value=text(toleration, "value"),
        effect=text(toleration, "effect"),
        operator=text(toleration, "operator") or "Equal",
    )


def _take_patch(found: Manifests, file: str, patch: Object) -> None:
    """Read a kustomize patch for what it sets; a JSON 6902 patch for replicas, GPUs and node selectors."""
    body = at(patch, "patch")
    try:
        content = load_yaml(body, file) if isinstance(body, str) else None
    except InputError as error:
        found.unread.append(Unread(what="a patch", file=file, why=str(error).removeprefix(f"{file}: ")))
        return
    kind, name = text(patch, "target", "kind"), text(patch, "target", "name")
    namespace = text(patch, "target", "namespace")
    if isinstance(content, Mapping):
        meta = {"name": name, "namespace": namespace, **object_at(content, "metadata")}
        kind, said = text(content, "kind") or kind, text(meta, "name")
        if text(meta, "namespace") or kind not in _REPLICATED | RUN_OBJECTS:
            _take(found, file, {**content, "kind": kind, "metadata": meta})
        else:
            for prefill, spec in parts(kind, object_at(content, "spec")):
                named, meant = (
                    workload_name(kind, each, prefill=prefill) if each else "" for each in (name or said, said)
                )
                pods = _pods(kind, "", file, {**content, "spec": spec})
                found.patches.append(UntargetedPatch(name=named, said=meant, pods=pods))
    elif isinstance(content, list):
        prefill = any(text(step, "path").startswith("/spec/prefill/") for step in content)
        name = workload_name(kind, name, prefill=prefill)
        pods = DeclaredPods(kind=kind, workload=f"{namespace}/{name}", files=(file,))
        for step in content:
            pods = _patched(pods, step) or pods
        if namespace:
            _put(found, pods)
        else:
            found.patches.append(UntargetedPatch(name=name, said="", pods=pods))
    else:
        found.unread.append(Unread(what=f"a patch of {kind} {name}", file=file, why="its content is not in it"))


def _patched_names(patch: UntargetedPatch, names: Sequence[str]) -> list[str]:
    """Return the workloads that a patch without a namespace may be for; one where the names and folders tell.

    A folder that is named as a namespace holds that namespace's files. Of a family of names the shortest is the workload: runs
    bear its name and a number.
    """
    try:
        fit = [name for name in names if re.fullmatch(patch.name, name.rpartition("/")[2])]
    except re.error:
        return []
    exact = [name for name in fit if name.rpartition("/")[2] == patch.said]
    shortest = min((len(name.rpartition("/")[2]) for name in fit), default=0)
    fit = exact or [name for name in fit if len(name.rpartition("/")[2]) == shortest]
    folders = set(PurePosixPath(patch.pods.files[0]).parts[:-1])
    return [name for name in fit if name.partition("/")[0] in folders] or fit


def claim_source(path: str) -> str | None:
    """Return the kind of object that a JSON patch names there as what a pod's claim is made from; None: it names none."""
    matched = _CLAIM_PATH.fullmatch(path)
    return None if matched is None else f"ResourceClaim{matched[1] or ''}"


def _patched(pods: DeclaredPods, step: Object) -> DeclaredPods | None:
    path, value = text(step, "path"), at(step, "value")
    if text(step, "op") not in ("add", "replace"):
        return None
    if path.endswith("/nodeSelector"):
        return replace(pods, node_selector=tuple(mapping(step, "value").items()))
    if path.endswith("/tolerations"):
        return replace(pods, tolerations=tuple(_toleration(item) for item in listed(step, "value")))
    if not isinstance(value, int | str):
        return None
    if path.endswith("/args/-"):
        words = [str(value)]
        sequences, tensor = _whole(words, _SEQUENCES), _whole(words, _TENSOR)
        return replace(
            pods,
            most_sequences=pods.most_sequences if sequences is None else sequences,
            tensor=pods.tensor if tensor is None else tensor,
        )
    where = f"{pods.files[0]}: a patch of {pods.kind}, {path}"
    if path in ("/spec/replicas", "/spec/prefill/replicas"):
        return replace(pods, replicas=whole_number(value, where))
    if "/resources/limits/nvidia.com~1" in path:
        resource = path.rpartition("/")[2].replace("~1", "/")
        amount = whole_number(value, where)
        return replace(pods, gpus=amount) if resource == GPU else replace(pods, parts=((resource, amount),))
    if source := claim_source(path):
        return replace(pods, claims=(*pods.claims, f"{source} {value}"))
    if path.endswith(f"/metadata/labels/{QUEUE_LABEL.replace('/', '~1')}"):
        return replace(pods, queue=str(value))
    if "/nodeSelector/" in path:
        label = path.rpartition("/nodeSelector/")[2].replace("~1", "/").replace("~0", "~")
        return replace(pods, node_selector=((label, str(value)),))
    return None
