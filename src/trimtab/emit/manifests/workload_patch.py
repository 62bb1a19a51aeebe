"""Kustomize components that change a workload's own manifest: GPUs a pod asks for, and the node pool that it runs on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import yaml

from trimtab.catalog.kinds import Isolation
from trimtab.emit.manifests.claim_templates import NewClaim, claim_steps
from trimtab.emit.manifests.emission import ACTION, APPLIES_ONCE, Plain, action_notes
from trimtab.emit.manifests.facts import NOTEBOOK, SCALABLE, ContainerStart, GpuContainer, WorkloadFacts
from trimtab.emit.manifests.gpu_sharing import GKE_LABEL, GKE_STRATEGIES
from trimtab.emit.manifests.karpenter import GPU_RESOURCE, GPU_TAINT, HEDGE, OVERFLOW, SLICES, SPOT_TAINT, SPREAD
from trimtab.emit.manifests.pool_specs import COMPUTE_CLASS, GROUP_LABEL, PoolSpec
from trimtab.fleet.owner_kinds import INFERENCE_SERVICE, KSERVE, LLM_INFERENCE_SERVICE, RAY_SERVICE, pod_spec_path
from trimtab.plan.model import Action
from trimtab_runtime.policies.checkpointing import REQUEUE_EXIT_CODE

API_VERSIONS: Mapping[str, str] = MappingProxyType(
    {
        "Deployment": "apps/v1",
        "StatefulSet": "apps/v1",
        "Rollout": "argoproj.io/v1alpha1",
        "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
        INFERENCE_SERVICE: "serving.kserve.io/v1beta1",
        LLM_INFERENCE_SERVICE: "serving.kserve.io/v1alpha1",
        RAY_SERVICE: "ray.io/v1",
        NOTEBOOK: "kubeflow.org/v1",
        "Job": "batch/v1",
        "CronJob": "batch/v1",
    }
)
"""Kinds whose pod template's place is known. kustomize keeps the version that a manifest has: LLMInferenceService v1alpha2 has
its pods in the same place."""
_STAYS = frozenset(
    {
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
    }
)
"""Labels of nodes that mean the same on nodes that Karpenter makes in the same region."""
_NAMES_OTHER_NODES = (
    "alpha.eksctl.io/nodegroup-name",
    "agentpool",
    "beta.kubernetes.io/instance-type",
    "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/capacityType",
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/capacity-type",
    "karpenter.sh/nodepool",
    "kubernetes.azure.com/agentpool",
    "node.kubernetes.io/instance-type",
    "nvidia.com/gpu.product",
)
"""Labels of the present nodes that new ones lack, or that Karpenter does not know before a node is up."""
_ADMISSION_S = 300
"""Pods tolerate nodes that are not ready for so long without stating it (DefaultTolerationSeconds)."""
_BY_ADMISSION = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
_RUN_SUFFIX = "([-.].*)?"
"""A run's number or date behind the name of its family: kustomize takes a target's name as a whole regular expression."""
_STAY_BY_GROUP = "cluster-autoscaler.kubernetes.io/safe-to-evict"
"""What keeps Cluster Autoscaler off a node with a run on it (Cluster Autoscaler FAQ)."""
_PROVIDERS_OWN: Mapping[str, tuple[Mapping[str, Plain], ...]] = MappingProxyType(
    {
        "azure": ({"key": "kubernetes.azure.com/scalesetpriority", "value": "spot", "effect": "NoSchedule"},),
        "gcp": (GPU_TAINT,),
    }
)
"""Taints that providers put on spot groups with GPUs by themselves (AKS, "Add a spot node pool"; GKE, "GPUs in Standard")."""
HOSTNAME = "kubernetes.io/hostname"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_ZONE = "topology.kubernetes.io/zone"
_REVISIONS: Mapping[str, str] = MappingProxyType(
    {
        "StatefulSet": "controller-revision-hash",
        "LeaderWorkerSet": "leaderworkerset.sh/template-revision-hash",
        "Rollout": "rollouts-pod-template-hash",
    }
)
"""Kinds -> the label that their pods bear in place of that of a ReplicaSet."""
RUNS = frozenset({"Job", "CronJob"})
TENSOR_FLAG, SEQUENCES_FLAG = "--tensor-parallel-size", "--max-num-seqs"
"""What tells vLLM how many GPUs a replica has, and how many requests it may have in work."""
_LOSSES_DO_NOT_COUNT: Mapping[str, Plain] = MappingProxyType(
    {
        "rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [REQUEUE_EXIT_CODE]}},
        ]
    }
)
"""A lost spot node is no failure of the run, whether its pod was evicted or its program ended by itself at the notice: it must
not use up `backoffLimit` (Kubernetes, Jobs, "Pod failure policy")."""
_SPOT_NOTICE_S = MappingProxyType({"aws": 120})
"""Notice of a loss where it is longer than the 30 s that Kubernetes leaves a pod unless told (EC2, "Spot Instance interruption
notices"): all of it is for the run to save in."""
POD_GRACE_S = 30
"""Time between SIGTERM and SIGKILL where a pod says nothing (Kubernetes, "Pod Lifecycle")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAsk:
    """What a container asks for: whole GPUs or MIG slices."""

    resource: str = GPU_RESOURCE
    count: int = 1

    def __str__(self) -> str:
        return f"{self.resource}: {self.count}"


def patchable(known: WorkloadFacts) -> bool:
    """Return whether the place of the pod template in the workload's manifest is known."""
    return known.owner_kind in API_VERSIONS


def component(
    known: WorkloadFacts,
    actions: Sequence[Action],
    *,
    asks: GpuAsk | None,
    replicas: int | None,
    nodes: PoolSpec | None,
    tight: bool = False,
    fills_nodes: bool = False,
    once: str = "",
    claims: Sequence[NewClaim] = (),
    words: Sequence[str] = (),
) -> dict[str, Plain]:
    """Return a kustomize Component with the patches of one workload, to be listed under `components` beside its manifest.

    `claims` are made from new templates, which lie beside it (`claim_file`). `words` go behind its container's args.
    `tight`: its nodes leave no room for a surge, so a rollout takes one replica away before it adds one. `fills_nodes`: a new
    replica is to go to the node that holds most of them. `once`: what has to be so before it is applied; empty: nothing.
    """
    patches = [_merge_patch(known, actions, nodes, tight=tight, fills_nodes=fills_nodes)]
    if nodes is not None and known.owner_kind == RAY_SERVICE:
        kept = {key: value for key, value in known.node_selector.items() if key in _STAYS}
        patches.append(_ray_patch({**kept, **pool_selector(nodes)}, [*_kept(known), *pool_tolerations(nodes)]))
    if asks is not None:
        patches.append(_gpu_patch(known, asks))
    if words:
        patches.append(_words_patch(known, words))
    if claims:
        patches.append(yaml.safe_dump(claim_steps(_pod_path(known), claims), sort_keys=False))
    if replicas is not None and known.owner_kind in SCALABLE:
        patches.append(yaml.safe_dump([{"op": "replace", "path": "/spec/replicas", "value": replicas}]))
    body = _component(known, actions, f"trimtab-{known.short_name}", patches, once=once)
    return body | ({"resources": [claim_file(claim) for claim in claims]} if claims else {})


def claim_file(claim: NewClaim) -> str:
    """Return the file of a claim's new template, beside the Component that names it."""
    return f"{claim.name}.resourceclaimtemplate.yaml"


def autoscaled_component(known: WorkloadFacts, actions: Sequence[Action]) -> dict[str, Plain]:
    """Return the Component that takes `replicas` out of a workload's manifest once an autoscaler holds them."""
    patch = yaml.safe_dump({**_head(known, actions), "spec": {"replicas": None}}, sort_keys=False)
    return _component(known, actions, f"trimtab-{known.short_name}-autoscaled", [patch])


def queued_component(known: WorkloadFacts, actions: Sequence[Action], label: str, queue: str) -> dict[str, Plain]:
    """Return the Component that brings a workload's runs into a queue by a label of theirs."""
    labels: Mapping[str, Plain] = {"labels": {label: queue}}
    body = _head(known, actions)
    if known.owner_kind == "CronJob":
        body["spec"] = {"jobTemplate": {"metadata": labels}}
    else:
        body["metadata"] = {**_head_metadata(known, actions), **labels}
    return _component(known, actions, f"trimtab-{known.short_name}-queued", [yaml.safe_dump(body, sort_keys=False)])


def rollback_component(
    known: WorkloadFacts,
    actions: Sequence[Action],
    *,
    nodes: PoolSpec | None = None,
    asks: GpuAsk | None = None,
    former_gpus: float = 1.0,
    fills_nodes: bool = False,
    claims: Sequence[NewClaim] = (),
    words: Sequence[str] = (),
) -> dict[str, Plain]:
    """Return the Component that says again what a workload's pods asked for before, as far as that was read.

    The label of the `nodes` that it was moved to is removed, so that it works on a manifest that was changed by hand too; so is
    the affinity by which it `fills_nodes`. The spread over zones stays: kustomize has no patch that removes it of every kind.
    `asks` is what its container was made to ask for in place of `former_gpus`; None: it asks for what it did. Of `claims` the
    templates are named again that they were made from. `words` are what its server was started with.
    """
    body = _head(known, actions)
    spec: dict[str, Plain] = {"replicas": known.replicas} if known.owner_kind in SCALABLE else {}
    patches = []
    if known.pods_were_read and known.owner_kind == RAY_SERVICE:
        patches.append(_ray_patch(known.node_selector, _kept(known)))
    elif known.pods_were_read:
        left = {} if nodes is None else dict.fromkeys(pool_selector(nodes))
        pod: dict[str, Plain] = {"nodeSelector": {**left, **known.node_selector}, "tolerations": _kept(known)}
        if fills_nodes:
            pod["affinity"] = {"podAffinity": {_PREFERRED: None}}
        spec |= _of_pods(known, {"spec": pod})
    if claims:
        former = [claim.claim for claim in claims]
        patches.append(yaml.safe_dump(claim_steps(_pod_path(known), former), sort_keys=False))
    if asks is not None:
        patches.append(_former_gpu_patch(known, asks, former_gpus))
    if words:
        patches.append(_words_patch(known, words))
    first = yaml.safe_dump({**body, "spec": spec}, sort_keys=False)
    return _component(known, actions, f"trimtab-{known.short_name}-rollback", [first, *patches])


def pod_component(known: WorkloadFacts, what: str, pod: Mapping[str, Plain], note: str) -> dict[str, Plain]:
    """Return a Component that merges fields into the spec of a workload's pods; `note` says for what, which is no action."""
    notes: Mapping[str, Plain] = {"annotations": {ACTION: note}}
    head = {"apiVersion": API_VERSIONS[known.owner_kind], "kind": known.owner_kind}
    body = {**head, "metadata": {"name": known.object_name, **notes}, "spec": _of_pods(known, {"spec": dict(pod)})}
    name = f"trimtab-{known.short_name}-{what}"
    found = _component(known, (), name, [yaml.safe_dump(body, sort_keys=False)])
    return {**found, "metadata": {"name": name, **notes}}


def tolerates_gpu_nodes(known: WorkloadFacts) -> list[Plain]:
    """Return the tolerations that a workload has, and that of the taint of GPU nodes."""
    return [*_kept(known), {"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}]


def _component(
    known: WorkloadFacts, actions: Sequence[Action], name: str, patches: Sequence[str], *, once: str = ""
) -> dict[str, Plain]:
    """Return a Component whose patches go to a workload by kind and name.

    kustomize compares a target's namespace before it sets that of the kustomization, so that a target with one would be passed
    over without a word; where a kustomization holds two of one kind and name, each has to have its own.
    """
    runs = _RUN_SUFFIX if known.owner_kind in RUNS else ""
    target: Mapping[str, Plain] = {
        "kind": known.owner_kind,
        "name": known.object_name.replace(".", "[.]") + runs,
    }
    return {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "metadata": {"name": name, "annotations": {**action_notes(actions), **({APPLIES_ONCE: once} if once else {})}},
        "patches": [{"target": target, "patch": patch} for patch in patches],
    }


def _head(known: WorkloadFacts, actions: Sequence[Action]) -> dict[str, Plain]:
    return {
        "apiVersion": API_VERSIONS[known.owner_kind],
        "kind": known.owner_kind,
        "metadata": _head_metadata(known, actions),
    }


def _head_metadata(known: WorkloadFacts, actions: Sequence[Action]) -> dict[str, Plain]:
    return {"name": known.object_name, "annotations": {ACTION: action_notes(actions)[ACTION]}}


def _merge_patch(
    known: WorkloadFacts, actions: Sequence[Action], nodes: PoolSpec | None, *, tight: bool, fills_nodes: bool
) -> str:
    body = _head(known, actions)
    if known.owner_kind == RAY_SERVICE:
        return yaml.safe_dump(body, sort_keys=False)
    about: dict[str, Plain] = {}
    if tight and known.owner_kind == "Deployment":
        about["strategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    if nodes is not None and nodes.spot and known.owner_kind in RUNS:
        about["podFailurePolicy"] = dict(_LOSSES_DO_NOT_COUNT)
    if nodes is not None or fills_nodes:
        about_nodes = {} if nodes is None else _on_nodes(known, nodes)
        pod = {**(beside_own_pods(known) if fills_nodes else {}), **about_nodes}
        stay = {} if nodes is None else _stays(known, nodes)
        body["spec"] = _of_pods(known, {**stay, "spec": pod}, about)
    return yaml.safe_dump(body, sort_keys=False)


def _ray_patch(selector: Mapping[str, Plain], tolerations: Sequence[Plain | Mapping[str, Plain]]) -> str:
    """Return the patch of where the pods of a first worker group go: a merge would put its list in the place of all groups."""
    pods = "/" + "/".join(pod_spec_path(RAY_SERVICE))
    steps = [
        {"op": "add", "path": f"{pods}/nodeSelector", "value": dict(selector)},
        {"op": "add", "path": f"{pods}/tolerations", "value": [*tolerations]},
    ]
    return yaml.safe_dump(steps, sort_keys=False)


def _of_pods(
    known: WorkloadFacts, template: Mapping[str, Plain], about: Mapping[str, Plain] | None = None
) -> dict[str, Plain]:
    """Return a `spec` with a pod template in its place, and beside the template what is said of its pods together."""
    _, *outer, last = _pod_spec(known) if known.owner_kind in KSERVE else _pod_spec(known)[:-1]
    held = template["spec"] if known.owner_kind in KSERVE else template
    spec: dict[str, Plain] = {last: held, **(about or {})}
    for name in reversed(outer):
        spec = {name: spec}
    return spec


def _on_nodes(known: WorkloadFacts, nodes: PoolSpec) -> dict[str, Plain]:
    """Return what its pods' spec says of the nodes that they are for."""
    pod: dict[str, Plain] = {
        "nodeSelector": {**dict.fromkeys(stale_labels(known)), **pool_selector(nodes)},
        "tolerations": [*_kept(known), *pool_tolerations(nodes)],
    }
    if nodes.spot and known.owner_kind in RUNS:
        pod["restartPolicy"] = "Never"  # what podFailurePolicy asks for
        if (grace_s := spot_grace_s(nodes)) != POD_GRACE_S:
            pod["terminationGracePeriodSeconds"] = grace_s
    if GKE_STRATEGIES[Isolation.MPS] in nodes.provider_cuts.values():
        pod["hostIPC"] = (
            True  # how it reaches the MPS daemon (GKE, "Share GPUs with multiple workloads using NVIDIA MPS")
        )
    if nodes.spot and not nodes.empties:
        pod["topologySpreadConstraints"] = _spread(known, nodes)
    return pod


def _stays(known: WorkloadFacts, nodes: PoolSpec) -> dict[str, Plain]:
    """Return what keeps its pods from being moved: off nodes that are given back only once they are empty, and runs off any."""
    # a Notebook's template has no metadata (Kubeflow v1, NotebookTemplateSpec)
    if known.owner_kind == NOTEBOOK or not (nodes.empties or known.owner_kind in RUNS):
        return {}
    return {"metadata": {"annotations": stays_put(nodes)}}


def stays_put(nodes: PoolSpec) -> dict[str, Plain]:
    """Return the annotation of pods that keeps whoever gives nodes back off theirs."""
    return {_STAY_BY_GROUP: "false"} if nodes.by_group else {"karpenter.sh/do-not-disrupt": "true"}


def beside_own_pods(known: WorkloadFacts) -> dict[str, Plain]:
    """Return what makes kube-scheduler put a new replica on the node with most of them, as replays do.

    By default it takes the emptiest by CPU and memory. It scores InterPodAffinity twice as much (Kubernetes 1.34,
    pkg/scheduler/apis/config/v1/default_plugins.go); and as much a spread over nodes, which it adds only to pods that state no
    spread of their own (kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints).
    """
    term: dict[str, Plain] = {"topologyKey": HOSTNAME, **_own_pods(known)}
    preferred: list[Plain] = [{"weight": 100, "podAffinityTerm": term}]
    return {
        "affinity": {"podAffinity": {_PREFERRED: preferred}},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": _ZONE, "whenUnsatisfiable": "ScheduleAnyway", **_own_pods(known)}
        ],
    }


def _own_pods(known: WorkloadFacts) -> dict[str, Plain]:
    """Return what selects its pods: their labels; where those are not known, the hash of their rollout."""
    if known.pod_labels:
        return {"labelSelector": {"matchLabels": dict(known.pod_labels)}}
    return {"labelSelector": {}, "matchLabelKeys": [_revision(known)]}


def _revision(known: WorkloadFacts) -> str:
    """Return the label that tells one rollout's pods from another's."""
    return _REVISIONS.get(known.owner_kind, "pod-template-hash")


def spot_grace_s(nodes: PoolSpec) -> int:
    """Return how long a run on spot nodes has between SIGTERM and its end."""
    return _SPOT_NOTICE_S.get(nodes.pool.provider, POD_GRACE_S)


def stale_labels(known: WorkloadFacts) -> tuple[str, ...]:
    """Return labels of nodes that its pods must no longer ask for: those of groups, and all others that it asks for today."""
    asked = {key for key in known.node_selector if key not in _STAYS}
    return tuple(sorted(asked | set(_NAMES_OTHER_NODES)))


def stale_affinity(known: WorkloadFacts) -> tuple[str, ...]:
    """Return labels that its pods require by affinity and that the new nodes do not have."""
    return tuple(key for key in known.affinity_keys if key not in _STAYS)


def pool_selector(nodes: PoolSpec) -> dict[str, Plain]:
    """Return the label of the nodes that it may run on: one that several pools share, where there are several."""
    if nodes.beside:
        return {SLICES: nodes.beside}
    if nodes.by_group:
        cut: dict[str, Plain] = {f"{GKE_LABEL}{option}": said for option, said in nodes.provider_cuts.items()}
        return {COMPUTE_CLASS if nodes.pool.provider == "gcp" else GROUP_LABEL: nodes.name} | cut
    if nodes.overflow is not None:
        return {OVERFLOW: nodes.name}
    return {HEDGE: nodes.name} if nodes.one_in else {"karpenter.sh/nodepool": nodes.name}


def _spread(known: WorkloadFacts, nodes: PoolSpec) -> list[Plain]:
    """Spread a service's replicas over zones where it can be, and over the floor's pool and the spot pool at all events.

    The empty selector with a revision's hash means the pods of this very rollout.
    """
    keys = [(_ZONE, "ScheduleAnyway"), *([(SPREAD, "DoNotSchedule")] if nodes.one_in else [])]
    # the scheduler does not see shares without a node: minDomains fills all of them before one takes a second replica
    shares: dict[str, Plain] = {"minDomains": nodes.one_in} if nodes.by_group else {}
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": otherwise,
            "labelSelector": {},
            "matchLabelKeys": [_revision(known)],
            **(shares if key == SPREAD else {}),
        }
        for key, otherwise in keys
    ]


def _kept(known: WorkloadFacts) -> list[Plain]:
    """Return the tolerations that it has, but for those of the GPU taint and those that admission adds by itself."""
    return [
        toleration.as_plain()
        for toleration in known.tolerations
        if toleration.key != GPU_RESOURCE
        and not (toleration.key in _BY_ADMISSION and toleration.seconds == _ADMISSION_S)
    ]


def pool_tolerations(nodes: PoolSpec) -> list[Mapping[str, Plain]]:
    """Return the tolerations of a pool's taints; a service with a floor tolerates those of the on-demand pool beside it too."""
    taints = [SPOT_TAINT] if nodes.spot else [GPU_TAINT]
    if nodes.one_in:
        taints.append(GPU_TAINT)
    if nodes.by_group and nodes.spot:
        taints += _PROVIDERS_OWN.get(nodes.pool.provider, ())
    return [
        {"key": taint["key"], "operator": "Equal", "value": taint["value"], "effect": taint["effect"]}
        for taint in taints
    ]


def _pod_spec(known: WorkloadFacts) -> tuple[str, ...]:
    """Return where a workload's object holds the spec of its pods; KServe's prefill has the object's own fields again."""
    top, *rest = pod_spec_path(known.owner_kind)
    return (top, "prefill", *rest) if known.is_prefill else (top, *rest)


def _pod_path(known: WorkloadFacts) -> str:
    """Return where the spec of a workload's pods lies, as a JSON pointer."""
    return "/" + "/".join(_pod_spec(known))


def _gpu_patch(known: WorkloadFacts, asks: GpuAsk) -> str:
    """Return the patch of the one container that asks for GPUs: an API server refuses limits and requests that differ."""
    steps: list[dict[str, str]] = []
    for amounts in _amounts(known):
        before, after = _amount(amounts, GPU_RESOURCE), _amount(amounts, asks.resource)
        if asks.resource == GPU_RESOURCE:
            steps.append({"op": "replace", "path": after, "value": str(asks.count)})
        else:
            steps += [{"op": "remove", "path": before}, {"op": "add", "path": after, "value": str(asks.count)}]
    return yaml.safe_dump(steps, sort_keys=False)


def _former_gpu_patch(known: WorkloadFacts, asks: GpuAsk, former_gpus: float) -> str:
    """Return the patch by which a container asks for whole GPUs as before, whether its manifest was changed since or not.

    What may not be there is added first, since a JSON patch that removes what is absent is refused.
    """
    steps: list[dict[str, str]] = []
    for amounts in _amounts(known):
        if asks.resource != GPU_RESOURCE:
            slices = _amount(amounts, asks.resource)
            steps += [{"op": "add", "path": slices, "value": "0"}, {"op": "remove", "path": slices}]
        steps.append({"op": "add", "path": _amount(amounts, GPU_RESOURCE), "value": str(round(former_gpus))})
    return yaml.safe_dump(steps, sort_keys=False)


def _words_patch(known: WorkloadFacts, words: Sequence[str]) -> str:
    """Return the patch that puts words behind those that start the container with GPUs: of a flag the last one counts."""
    # an `args` that is added to a container without one would replace what its image has
    place = ContainerStart.COMMAND if started_by(known) is ContainerStart.COMMAND else ContainerStart.ARGS
    steps = [{"op": "add", "path": f"{_container(known)}/{place.value}/-", "value": word} for word in words]
    return yaml.safe_dump(steps, sort_keys=False)


def started_by(known: WorkloadFacts) -> ContainerStart | None:
    """Return what holds the arguments of the container with GPUs; None where its manifest was not read.

    KServe adds arguments of its own to those of its objects, so its pods do not show which of them the object holds.
    """
    container = next(iter(known.gpu_containers), None)
    return None if container is None or known.owner_kind in KSERVE else container.started_by


def _container(known: WorkloadFacts) -> str:
    """Return where the container lies that asks for GPUs, as a JSON pointer."""
    if known.owner_kind == INFERENCE_SERVICE:
        return "/spec/predictor/model"
    container = next(iter(known.gpu_containers), GpuContainer())
    # KServe adds containers to the one that an LLMInferenceService states: its place in the pod is another
    place = 0 if known.owner_kind == LLM_INFERENCE_SERVICE else container.place
    return f"{_pod_path(known)}/containers/{place}"


def _amounts(known: WorkloadFacts) -> list[str]:
    """Return where the container that asks for GPUs states amounts, as JSON pointers."""
    container = next(iter(known.gpu_containers), GpuContainer())
    resources = f"{_container(known)}/resources"
    return [f"{resources}/{stated}" for stated in (("limits", "requests") if container.in_requests else ("limits",))]


def _amount(amounts: str, resource: str) -> str:
    return f"{amounts}/{resource.replace('/', '~1')}"
