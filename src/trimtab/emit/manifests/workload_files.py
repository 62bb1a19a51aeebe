"""What a plan changes, merged over its actions: manifests of workloads, node pools under them, layouts of GPUs that are cut.

The templates are for clusters that have no node class yet and lie apart from what is applied: no history tells a site's
subnets, roles and images, and what must be filled in is marked. Fields are those of karpenter.k8s.aws/v1,
karpenter.azure.com/v1beta1 and karpenter.k8s.gcp/v1alpha1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from trimtab.deployment.effects import SetCapacityType
from trimtab.emit.manifests.claim_templates import ClaimChange, claims_by_hand, new_claims
from trimtab.emit.manifests.emission import (
    ApplyStage,
    ManifestFile,
    Piece,
    Plain,
    Withheld,
    dns_name,
    metadata,
    node_name,
    yaml_text,
)
from trimtab.emit.manifests.facts import SCALABLE, SERVING, ContainerStart, WorkloadFacts, kind_in_words, own_bounds
from trimtab.emit.manifests.gpu_sharing import CONFIGS, NO_SHARING, layouts, sharing_configs, slot_resource
from trimtab.emit.manifests.karpenter import NODE_CLASSES, leaves_no_room, node_class, node_pools, slice_overlay
from trimtab.emit.manifests.node_groups import autoscaler_files, group_files
from trimtab.emit.manifests.pool_specs import PlacedWorkload, PoolSpec
from trimtab.emit.manifests.scope import Scope
from trimtab.emit.manifests.workload_patch import (
    HOSTNAME,
    POD_GRACE_S,
    RUNS,
    SEQUENCES_FLAG,
    TENSOR_FLAG,
    GpuAsk,
    claim_file,
    component,
    patchable,
    pool_selector,
    pool_tolerations,
    rollback_component,
    spot_grace_s,
    stale_affinity,
    started_by,
    stays_put,
)
from trimtab.fleet.owner_kinds import INFERENCE_SERVICE, KNATIVE_SERVICE, RAY_SERVICE
from trimtab_runtime.policies.checkpointing import REQUEUE_EXIT_CODE


def workload_files(scope: Scope) -> Iterator[Piece]:
    """Yield a kustomize component for each workload that moves to a pool or asks for fewer GPUs."""
    for name, placed in sorted(scope.here.items()):
        if placed.place.split is not None:
            continue  # its pods are other ones: `split_files`
        known, spec = placed.known, scope.spec(name)
        asked, replicas = gpu_ask(placed, spec), placed.set_replicas
        if scope.waits_for_nodes(name) or (
            spec is None and asked is None and replicas is None and not placed.fills_nodes
        ):
            continue
        change = claim_change(placed, scope)
        by_hand = _by_hand(placed, spec, asked, change)
        if by_hand is not None:
            yield from _withheld(placed, by_hand)
            continue
        tight = spec is not None and leaves_no_room(spec, scope.facts)
        # fewer replicas, each with larger batches, only once the batches are observed: not with the move
        batching = placed.deployment.batching
        now = None if batching is not None else replicas
        asks = None if known.gpu_claims else asked
        claims = () if change is None else new_claims(known, change, placed.actions)
        patch = component(
            known,
            placed.actions,
            asks=asks,
            replicas=now,
            nodes=spec,
            tight=tight,
            fills_nodes=placed.fills_nodes,
            claims=claims,
            words=server_words(placed),
        )
        yield _component_file(placed, "", patch)
        if placed.deployment.replica_gpus is not None and started_by(known) is None:
            yield from _withheld(placed, _LAST_WORD_COUNTS)
        for claim in claims:
            yield _beside(placed, claim_file(claim), claim.template)
        if replicas is not None and known.owner_kind in SERVING - SCALABLE:
            yield from _withheld(placed, own_bounds(known, replicas, replicas))
        if batching is not None and replicas is not None:
            once = f"its server batches up to {batching.max_batch} requests at once, and keeps its targets so"
            later = component(known, placed.actions, asks=None, replicas=replicas, nodes=None, once=once)
            yield _component_file(placed, ".batched", later)
        if spec is not None or asks is not None or claims:
            count = placed.deployment.gpu_count
            gpus = known.gpus_per_pod if count is None else count.before
            former = rollback_component(
                known,
                placed.actions,
                nodes=spec,
                asks=asks,
                former_gpus=gpus,
                fills_nodes=placed.fills_nodes,
                claims=claims,
                words=server_words(placed) and (f"{TENSOR_FLAG}={round(gpus)}",),
            )
            yield _component_file(placed, "", former, folder="rollback")
        if spec is not None:
            yield from _doubts(placed, spec)
        if placed.place.pods_per_node >= 2 and HOSTNAME in known.keeps_apart:
            reason = (
                f"its pods keep apart from each other by {HOSTNAME} (podAntiAffinity or topologySpreadConstraints), and a node "
                f"of the plan holds {placed.place.pods_per_node} of them: take that out, or each takes a node of its own"
            )
            yield from _withheld(placed, reason)


def claim_change(placed: PlacedWorkload, scope: Scope) -> ClaimChange | None:
    """Return what a plan asks of a workload's claims of GPUs; None where it has none, or they stay as they are."""
    known, place, asked = placed.known, placed.place, gpu_ask(placed)
    if not known.gpu_claims:
        return None
    if place.shared is not None and place.shared.shared.is_cut:
        return ClaimChange(count=place.shared.slots, profile=place.shared.shared.profile)
    moved = place.gpu is not None and place.gpu != known.gpu and scope.spec(placed.name) is not None
    product = scope.facts.gpu_products.get(place.gpu or "", place.gpu) if moved else None
    count = None if asked is None else asked.count
    return None if product is None and count is None else ClaimChange(count=count, product=product)


def claimed_templates(name: str, scope: Scope) -> dict[str, str]:
    """Return the claims of a workload's pods by name, and the template that each will be made from."""
    known, placed = scope.facts.workload(name), scope.here.get(name)
    named = {} if known is None else {claim.name: claim.template for claim in known.gpu_claims if claim.template}
    change = None if placed is None else claim_change(placed, scope)
    if placed is None or change is None or _claims_by_hand(placed, change) is not None:
        return named
    return named | {new.claim.name: new.name for new in new_claims(placed.known, change, placed.actions)}


def _claims_by_hand(placed: PlacedWorkload, change: ClaimChange | None) -> str | None:
    """Return why no template can be written for a workload's claims; None where one can, or they stay as they are."""
    if change is None:
        return None
    shared = placed.place.shared
    if shared is not None and not shared.shared.is_isolated:
        return (
            f"GPUs are claimed here, and pods that share one ({shared.shared.kept_apart_by.value}) name one ResourceClaim "
            "with a GpuConfig for it: the device plugin's configuration does nothing"
        )
    return claims_by_hand(placed.known, change)


def _by_hand(
    placed: PlacedWorkload, spec: PoolSpec | None, asked: GpuAsk | None, change: ClaimChange | None
) -> str | None:
    """Return what a person must change in a workload's manifest, where no patch can."""
    known, count = placed.known, placed.deployment.gpu_count
    selector = (
        f"nodeSelector {' '.join(f'{key}: {value}' for key, value in pool_selector(spec).items())}" if spec else ""
    )
    if count is not None and known.pod_gpus:
        reason = f"in the runs that ask for {count.before} GPUs, and in no others: ask for {count.gpus}"
        return f"{reason}, {selector}" if selector else reason
    claimed = _claims_by_hand(placed, change)
    several = asked is not None and not known.gpu_claims and len(known.gpu_containers) > 1
    words = server_words(placed)
    if patchable(known) and not several and claimed is None and not (words and _words_by_hand(known)):
        return None
    asks = [selector] if selector else []
    if change is not None:
        asks += [f"a ResourceClaimTemplate with {change}"]
    elif asked is not None and not known.gpu_claims:
        asks += [f"limits {asked}"]
    asks += [f"what {' '.join(words)} says to vLLM{_WHERE_BY_HAND.get(started_by(known), '')}"] if words else []
    asks += [f"replicas: {placed.set_replicas}"] if placed.set_replicas else []
    asks += [_TOGETHER] if placed.fills_nodes else []
    if spec is not None and placed.runs_beside:
        asks += [f'annotation {key}: "{value}"' for key, value in stays_put(spec).items()]
    asks += [
        f"toleration {toleration['key']}={toleration['value']}:{toleration['effect']}"
        for toleration in (pool_tolerations(spec) if spec else [])
    ]
    where = f"its {known.owner_kind}, of which {len(known.gpu_containers)} containers ask for GPUs" if several else ""
    said = f"set in {where or f'its {kind_in_words(known.owner_kind)}'}: {', '.join(asks)}"
    said = f"{said}. {_KNATIVE_FLAGS}" if known.owner_kind == KNATIVE_SERVICE and spec else said
    return said if claimed is None else f"{said} ({claimed})"


def _doubts(placed: PlacedWorkload, spec: PoolSpec) -> Iterator[Withheld]:
    """Yield what a patch cannot know of a workload's pods."""
    known = placed.known
    if spec.spot and known.owner_kind in RUNS:
        grace_s = spot_grace_s(spec)
        told = f", with TRIMTAB_GRACE_S={grace_s} in its environment" if grace_s != POD_GRACE_S else ""
        reason = (
            "its command, which no patch knows, has to save when a node is taken: put `trimtab-runtime spot-run --` in front"
            f"{told}, or have it save at SIGTERM and exit with {REQUEUE_EXIT_CODE} (docs: Train on spot capacity)"
        )
        for action in placed.actions:
            if any(isinstance(change.effect, SetCapacityType) for change in action.changes):
                yield Withheld(action=action.id, subject=placed.name, reason=reason)
    if placed.runs_beside:
        yield from _withheld(placed, _SAME_PRIORITY)
    if stale := stale_affinity(known):
        yield from _withheld(
            placed,
            f"its pods require nodes by affinity on {', '.join(stale)}: take that out, or none of its new nodes fits",
        )
    if known.owner_kind == RAY_SERVICE and placed.fills_nodes:
        yield from _withheld(placed, f"no patch of its worker group says it: {_TOGETHER}")
    if known.owner_kind == RAY_SERVICE:
        yield from _withheld(
            placed,
            "the patch is of its first worker group: where another asks for the GPUs, put its number for the 0 in the paths. "
            "Ray makes a whole new cluster beside the old one before it lets that go (upgradeStrategy NewCluster): for so long "
            "there have to be nodes for both",
        )
    if known.owner_kind == INFERENCE_SERVICE:
        yield from _withheld(placed, f"where KServe runs it by Knative (Serverless): {_KNATIVE_FLAGS}")
    if known.owner_kind == "LeaderWorkerSet":
        yield from _withheld(placed, "where it has a leaderTemplate of its own, that asks for the new nodes too")
    if not known.pods_were_read and not known.tolerations:
        yield from _withheld(
            placed,
            "its pods were not read, and the patch replaces their list of tolerations: state those that they have "
            "(tolerations in --cluster), and look for node affinity",
        )


_LAST_WORD_COUNTS = (
    f"the patch appends {TENSOR_FLAG} and {SEQUENCES_FLAG} to its container's args, where the last one counts: where its words "
    "are in `command`, or one line of a shell, set them there, or the server starts with as many GPUs as before and fails; "
    "where the container has no `args`, kustomize refuses the patch: give it those of its image first"
)
_WHERE_BY_HAND: Mapping[ContainerStart | None, str] = MappingProxyType(
    {
        ContainerStart.SHELL: " in the line or script of the shell that starts it",
        ContainerStart.PROGRAM: " through the program that its command starts",
        ContainerStart.IMAGE: " in args that begin with those of its image, which the manifest's would replace",
    }
)
"""Where a person must put words that no patch can append."""
_KNATIVE_FLAGS = (
    "Knative refuses what says where pods go unless ConfigMap config-features in knative-serving has "
    "kubernetes.podspec-nodeselector, kubernetes.podspec-tolerations, kubernetes.podspec-affinity and "
    "kubernetes.podspec-topologyspreadconstraints enabled"
)
"""Extensions of Knative that are off by default (knative.dev, "Feature and extension flags"; KServe, "InferenceService Node
Scheduling")."""
_TOGETHER = (
    f"preferred podAffinity to its own pods by {HOSTNAME}, beside a topologySpreadConstraint over zones: new replicas go to "
    "the fullest node"
)


_SAME_PRIORITY = (
    "runs beside services: give its pods the PriorityClass of theirs. kube-scheduler ends pods of a lower one to make room for "
    "a replica, where the plan relies on another node"
)
"""Kubernetes, "Pod Priority and Preemption"."""


def _withheld(placed: PlacedWorkload, reason: str) -> Iterator[Withheld]:
    for action in placed.actions:
        yield Withheld(action=action.id, subject=placed.name, reason=reason)


def _component_file(
    placed: PlacedWorkload, suffix: str, patch: Mapping[str, Plain], folder: str = "workloads"
) -> ManifestFile:
    known, names = placed.known, tuple(action.id for action in placed.actions)
    return ManifestFile(
        path=f"{folder}/{dns_name(known.namespace)}/{dns_name(known.short_name)}{suffix}/kustomization.yaml",
        text=yaml_text(patch, comment=f"trimtab {', '.join(names)}: {placed.name}"),
        kind="Component",
        actions=names,
        stage=ApplyStage.UNDO if folder == "rollback" else ApplyStage.WORKLOADS,
    )


def _beside(placed: PlacedWorkload, name: str, body: Mapping[str, Plain]) -> ManifestFile:
    """Return the file of an object that a workload's Component brings along."""
    known, names = placed.known, tuple(action.id for action in placed.actions)
    return ManifestFile(
        path=f"workloads/{dns_name(known.namespace)}/{dns_name(known.short_name)}/{name}",
        text=yaml_text(body, comment=f"trimtab {', '.join(names)}: GPUs that {placed.name} claims"),
        kind=str(body["kind"]),
        actions=names,
        stage=ApplyStage.WORKLOADS,
    )


def gpu_ask(placed: PlacedWorkload, nodes: PoolSpec | None = None) -> GpuAsk | None:
    """Return what its container must ask for on such nodes; None where that stays as it is."""
    shared = placed.place.shared
    if shared is not None and nodes is not None and nodes.provider_cuts:
        return GpuAsk(count=shared.slots)
    if shared is not None:
        return GpuAsk(resource=slot_resource(shared.shared), count=shared.slots) if shared.shared.is_cut else None
    plan = placed.deployment
    changes = plan.gpu_count is not None or plan.memory is not None or plan.replica_gpus is not None
    return GpuAsk(count=round(placed.place.gpus_per_pod)) if changes else None


def server_words(placed: PlacedWorkload) -> tuple[str, ...]:
    """Return what its server must be started with to use another number of GPUs; nothing where that stays as it is."""
    served = placed.deployment.replica_gpus
    return () if served is None else (f"{TENSOR_FLAG}={served.gpus}", f"{SEQUENCES_FLAG}={served.concurrency}")


def _words_by_hand(known: WorkloadFacts) -> bool:
    """Return whether no patch can tell a workload's server how many GPUs it has: it is not vLLM, or its words lie elsewhere."""
    other = known.service is not None and known.service.signals.server != "vllm"
    elsewhere = started_by(known) in _WHERE_BY_HAND
    return other or elsewhere or known.owner_kind not in SCALABLE | {INFERENCE_SERVICE}


def pool_files(scope: Scope) -> Iterator[Piece]:
    """Yield each node pool that Karpenter can make, with the overlay that makes slices known to it, or its node groups."""
    yield from autoscaler_files(scope.specs)
    for spec in scope.specs:
        if spec.by_group:
            yield from group_files(spec, scope.facts)
            continue
        owner = node_class(spec.pool.provider, scope.facts)
        names = tuple(action.id for action in spec.actions)
        if owner is None:
            reason = f"Karpenter does not run on {spec.pool.provider}: size the node group of {spec.pool.instance_type}"
            for action in names:
                yield Withheld(action=action, subject=", ".join(spec.workloads), reason=reason)
            continue
        comment = f"trimtab {', '.join(names)}: nodes under {', '.join(spec.workloads)}"
        second = spec.floor_name if spec.overflow is None else spec.behind_name
        for name, pool in zip((spec.name, second), node_pools(spec, owner, scope.facts), strict=False):
            yield ManifestFile(
                path=f"nodes/{name.removeprefix('trimtab-')}.nodepool.yaml",
                text=yaml_text(pool, comment=comment),
                kind="NodePool",
                actions=names,
                stage=ApplyStage.NODES,
            )
        if spec.cut is not None:
            overlay = slice_overlay(spec, spec.cut)
            yield ManifestFile(
                path=f"nodes/{spec.name.removeprefix('trimtab-')}.nodeoverlay.yaml",
                text=yaml_text(overlay, comment=comment),
                kind="NodeOverlay",
                actions=names,
                stage=ApplyStage.NODES,
            )


def layout_files(scope: Scope) -> Iterator[Piece]:
    """Yield the MIG layouts of the pools whose GPUs are cut, and the device plugin's configurations of those shared."""
    cuts = [
        (spec, spec.cut)
        for spec in scope.specs
        if spec.cut and not spec.provider_cuts and scope.spec(spec.workloads[0])
    ]
    for name, table, isolated, comment in (
        (
            "mig-layouts",
            layouts,
            True,
            "for the GPU operator: migManager.config.name",
        ),
        (
            "gpu-sharing",
            sharing_configs,
            False,
            f"for the GPU operator: devicePlugin.config.name={CONFIGS}, default={NO_SHARING}",
        ),
    ):
        alike = [(spec, cut) for spec, cut in cuts if cut.isolated is isolated]
        if not alike:
            continue
        actions = tuple({action.id: action for spec, _ in alike for action in spec.actions}.values())
        yield ManifestFile(
            path=f"nodes/{name}.configmap.yaml",
            text=yaml_text(table([cut for _, cut in alike], actions), comment=comment),
            kind="ConfigMap",
            actions=tuple(action.id for action in actions),
            stage=ApplyStage.NODES,
        )


_FILL_IN = "fill-in"
_VERSIONS: Mapping[str, str] = {"aws": "v1", "azure": "v1beta1", "gcp": "v1alpha1"}
_ROOT_GIB = 200
"""Room for an image with CUDA and a model's libraries; the providers' defaults of 20 to 30 GiB fill up while it is pulled."""


def node_class_templates(scope: Scope) -> Iterator[ManifestFile]:
    """Yield a template for each provider whose NodePools refer to a class that is not declared."""
    for provider in sorted({spec.pool.provider for spec in scope.specs if not spec.by_group}):
        if provider not in NODE_CLASSES or provider in scope.facts.node_classes:
            continue
        node_class = NODE_CLASSES[provider]
        specs = [spec for spec in scope.specs if spec.pool.provider == provider]
        actions = list({action.id: action for spec in specs for action in spec.actions}.values())
        body: dict[str, Plain] = {
            "apiVersion": f"{node_class.group}/{_VERSIONS[provider]}",
            "kind": node_class.kind,
            "metadata": metadata(node_class.name, actions),
            "spec": _SPECS[provider],
        }
        yield ManifestFile(
            path=f"templates/{node_name(node_class.kind, node_class.name)}.yaml",
            text=yaml_text(
                body,
                comment=f"only where `kubectl get {node_class.kind.lower()}` shows no {node_class.name}: replace each "
                f"{_FILL_IN}, then\n"
                "apply it before the node pools; with another class, say so in `node_classes` of the cluster file",
            ),
            kind=f"template of {node_class.kind}",
            actions=tuple(action.id for action in actions),
            stage=ApplyStage.DECIDE,
        )


_SPECS: Mapping[str, Mapping[str, Plain]] = {
    "aws": {
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "role": f"KarpenterNodeRole-{_FILL_IN}",
        "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": _FILL_IN}}],
        "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": _FILL_IN}}],
        "blockDeviceMappings": [
            {"deviceName": "/dev/xvda", "ebs": {"volumeSize": f"{_ROOT_GIB}Gi", "volumeType": "gp3", "encrypted": True}}
        ],
    },
    "azure": {"imageFamily": "Ubuntu2204", "osDiskSizeGB": _ROOT_GIB},
    "gcp": {
        "imageSelectorTerms": [{"alias": "ContainerOptimizedOS@latest"}],
        "serviceAccount": f"{_FILL_IN}@{_FILL_IN}.iam.gserviceaccount.com",
    },
}
