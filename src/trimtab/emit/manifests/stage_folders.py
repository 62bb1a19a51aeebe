"""What makes the folders of an emission applicable: a kustomization for each stage, Helm values, and what must be in place.

A stage folder holds its objects and nothing else, so that `kubectl apply -k`, Argo CD and Flux can take it; the waves are Argo
CD's, for those who put all stages into one application.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from trimtab.deployment.effects import BookBlocks
from trimtab.emit.manifests.emission import ACTION, ApplyStage, ManifestFile, Plain, yaml_text
from trimtab.emit.manifests.gpu_sharing import CONFIGS, LAYOUTS, NO_SHARING, UNCUT
from trimtab.emit.manifests.kubernetes import DEFAULT_TOLERANCE_FRAC
from trimtab.emit.manifests.node_groups import group_needs
from trimtab.emit.manifests.scope import Scope

FOLDERS: Mapping[str, ApplyStage] = {
    "monitoring": ApplyStage.MEASURE,
    "nodes": ApplyStage.NODES,
    "scaling": ApplyStage.SCALE,
    "commitments": ApplyStage.COMMIT,
}
"""The folders that are applied, one for each stage that has objects."""
DASHBOARD = "trimtab.dashboard.json"
_WAVE = "argocd.argoproj.io/sync-wave"


def kustomizations(files: Sequence[ManifestFile]) -> Iterator[ManifestFile]:
    """Yield the kustomization of each folder that holds objects."""
    for folder, stage in FOLDERS.items():
        inside = [file for file in files if file.path.startswith(f"{folder}/")]
        if inside:
            actions = tuple(dict.fromkeys(name for file in inside for name in file.actions))
            yield ManifestFile(
                path=f"{folder}/kustomization.yaml",
                text=yaml_text(_kustomization(folder, stage, inside, actions), comment=f"kubectl apply -k {folder}"),
                kind="Kustomization",
                actions=actions,
                stage=stage,
            )


def _kustomization(
    folder: str, stage: ApplyStage, files: Sequence[ManifestFile], actions: Sequence[str]
) -> dict[str, Plain]:
    paths = sorted(file.path.removeprefix(f"{folder}/") for file in files)
    body: dict[str, Plain] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "metadata": {"name": f"trimtab-{folder}", "annotations": {ACTION: ",".join(actions)}},
        "resources": [path for path in paths if path.endswith(".yaml")],
        "commonAnnotations": {_WAVE: str(int(stage))},
    }
    if DASHBOARD in paths:
        body["configMapGenerator"] = [
            {
                "name": "trimtab-dashboard",
                "namespace": "monitoring",
                "files": [DASHBOARD],
                "options": {"disableNameSuffixHash": True, "labels": {"grafana_dashboard": "1"}},
            }
        ]
    return body


def helm_files(scope: Scope) -> Iterator[ManifestFile]:
    """Yield the Helm values without which what is emitted does nothing, to be merged with those in place."""
    for name, values in (("karpenter", _karpenter(scope)), ("gpu-operator", _gpu_operator(scope))):
        if values:
            yield ManifestFile(
                path=f"helm/{name}.values.yaml",
                text=yaml_text(
                    values, comment=f"Helm values of {name}, to be merged with yours before anything is applied"
                ),
                kind="Helm values",
                actions=tuple(action.id for action in scope.actions),
                stage=ApplyStage.DECIDE,
            )


def _karpenter(scope: Scope) -> dict[str, Plain]:
    gates: dict[str, Plain] = {}
    if any(spec.cut is not None and not spec.by_group for spec in scope.specs):
        gates["nodeOverlay"] = True
    if any(spec.blocks for spec in scope.specs):
        gates["reservedCapacity"] = True
    return {"settings": {"featureGates": gates}} if gates else {}


def _gpu_operator(scope: Scope) -> dict[str, Plain]:
    cuts = [spec.cut for spec in scope.specs if spec.cut is not None and not spec.provider_cuts]
    values: dict[str, Plain] = {}
    if any(cut.isolated for cut in cuts):
        values["mig"] = {"strategy": "mixed"}
        values["migManager"] = {"config": {"create": False, "name": LAYOUTS, "default": UNCUT}}
    if any(not cut.isolated for cut in cuts):
        values["devicePlugin"] = {"config": {"create": False, "name": CONFIGS, "default": NO_SHARING}}
    return values


def needs(files: Sequence[ManifestFile], scope: Scope) -> Iterator[str]:
    """Yield what must be in the cluster before anything is applied, by what was emitted."""
    kinds = {kind for file in files for kind in file.kind.split(", ")}
    text = "".join(file.text for file in files if file.kind == "ScaledObject" or file.kind == "HorizontalPodAutoscaler")
    yield from dict.fromkeys(
        f"{condition.what}: `{condition.command}`" if condition.command else condition.what
        for action in scope.actions
        for condition in action.preconditions
    )
    yield from group_needs(scope.specs)
    if others := sorted({name for spec in scope.specs for name in spec.instance_types[1:]}):
        yield (
            f"quota for spot nodes of {', '.join(others)} too, which spot pools may start where the planned type has no "
            "capacity (AWS counts vCPUs: a larger type takes more of it)"
        )
    if "NodePool" in kinds:
        yield from _of_karpenter(scope)
        yield (
            "NVIDIA's device plugin, or its GPU operator, with no node selector that keeps it off new nodes and a toleration "
            "of `nvidia.com/gpu` (the charts' defaults): without it a new node shows no GPU, and is billed while its pods stay "
            "pending: `kubectl get daemonset -A`"
        )
    if any("matchLabelKeys" in file.text for file in files if file.kind == "Component"):
        yield (
            "Kubernetes 1.31 or later (`matchLabelKeys` in pod affinity): an earlier one drops the field, so that replicas "
            "prefer nodes with any pod of their namespace"
        )
    if "NodeOverlay" in kinds:
        yield (
            "Karpenter with the feature gate `NodeOverlay=true` (off by default; Helm `settings.featureGates.nodeOverlay`): "
            "without it pods that ask for slots stay pending, and committed rates are not seen"
        )
    if any(isinstance(change.effect, BookBlocks) for action in scope.actions for change in action.changes):
        yield "Karpenter v1.6 or later with the feature gate `ReservedCapacity=true`"
    if any(spec.cut is not None and not spec.provider_cuts for spec in scope.specs):
        yield (
            "NVIDIA's GPU operator with `helm/gpu-operator.values.yaml`: its default `mig.strategy` is `single`, under which "
            "the resources asked for here do not exist"
        )
    yield from _of_claims(scope)
    if "ScaledObject" in kinds:
        yield "KEDA 2.17 or later (`fallback.behavior`)"
    if "LocalQueue" in kinds:
        yield "Kueue with its v1beta2 API; only workloads that carry its queue label are held"
    if "PrometheusRule" in kinds:
        labels = ", ".join(f"`{key}: {value}`" for key, value in scope.facts.rule_labels.items()) or "no label"
        yield (
            f"the Prometheus operator, whose `ruleSelector` selects {labels}: "
            "`kubectl get prometheus -A -o jsonpath='{..spec.ruleSelector}'`; other labels go into `rule_labels` of the "
            "cluster file. A rule that is not selected is not loaded, nor is the alert that would say so"
        )
        yield "kube-state-metrics"
    if "tolerance:" in text:
        yield (
            f"Kubernetes 1.33 or later with `HPAConfigurableTolerance`, for a tolerance other than {DEFAULT_TOLERANCE_FRAC:g}"
        )


def _of_claims(scope: Scope) -> Iterator[str]:
    """Yield what pods that claim their GPUs need (karpenter pkg/operator/options, `IgnoreDRARequests`, and scheduler.go)."""
    claiming = [spec for spec in scope.specs if any(scope.here[name].known.gpu_claims for name in spec.workloads)]
    if any(not spec.by_group for spec in claiming):
        yield (
            "Karpenter with `IGNORE_DRA_REQUESTS=false` and a provider that describes the devices of its instance types: by "
            "default it makes no node for a pod with ResourceClaims"
        )
    if any(spec.cut is not None for spec in claiming):
        yield (
            "NVIDIA's DRA driver lists the MIG instances that it finds when it starts: restart its kubelet plugin on a node "
            "once the layout is there, or let it make them (feature gate `DynamicMIG`) and leave the layouts out"
        )


def _of_karpenter(scope: Scope) -> Iterator[str]:
    providers = sorted({spec.pool.provider for spec in scope.specs})
    for provider in providers:
        match provider:
            case "aws":
                yield "Karpenter v1 and the EC2NodeClass that the pools refer to (`node_classes` in `--cluster`)"
            case "azure":
                yield "AKS node auto-provisioning (Karpenter) and the AKSNodeClass that the pools refer to"
            case "gcp":
                yield (
                    "Karpenter's provider for GCP, which its community maintains, and its GCENodeClass. On GKE without it make "
                    "node pools of the same machine types by hand; MIG and time-slicing are set there on the node pool"
                )
            case _:
                pass
