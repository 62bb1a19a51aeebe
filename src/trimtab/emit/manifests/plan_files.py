"""A plan as files, in a safe order; the same plan and facts give the same bytes.

Paths, annotations and labels of alerts name an action by what it changes, since ids count the actions of one plan and the
next plan counts from one again: a folder under version control changes where the plan does and nowhere else.

The folder of a stage holds its objects and nothing else, so that `kubectl apply -k`, Argo CD and Flux can take it; the waves
are Argo CD's, for those who put all stages into one application.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from trimtab.deployment.effects import BookBlocks, BuyCommitment, BuySpendPlan, ReleaseNodes
from trimtab.emit.manifests.action_files import action_files, page_file, purchase_pages, shared_files
from trimtab.emit.manifests.emission import (
    ACTION,
    ApplyStage,
    Emission,
    ManifestFile,
    Plain,
    Withheld,
    dns_name,
    node_name,
    yaml_text,
)
from trimtab.emit.manifests.facts import Autoscaler, EmitFacts
from trimtab.emit.manifests.give_back import give_back_files
from trimtab.emit.manifests.gpu_sharing import CONFIGS, LAYOUTS, NO_SHARING, UNCUT
from trimtab.emit.manifests.grafana import dashboard
from trimtab.emit.manifests.kubernetes import DEFAULT_TOLERANCE_FRAC, adapter_values
from trimtab.emit.manifests.machine_files import machine_files
from trimtab.emit.manifests.node_groups import group_needs
from trimtab.emit.manifests.plan_pages import (
    apply_order,
    choice_of_spot,
    decision_index,
    decision_record,
    year_page,
)
from trimtab.emit.manifests.pool_specs import PoolSpec
from trimtab.emit.manifests.scope import Scope, actions_in, clusters_of, facts_in, scope_of
from trimtab.emit.manifests.workload_files import layout_files, node_class_templates, pool_files, workload_files
from trimtab.errors import UnknownName
from trimtab.plan.model import Action, Plan, Schedule

ORDER_PAGE = "APPLY.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClusterFiles:
    """What is for one cluster: paths under its folder, actions by their lasting names."""

    cluster: str
    files: tuple[ManifestFile, ...]
    withheld: tuple[Withheld, ...]
    needs: tuple[str, ...]
    specs: tuple[PoolSpec, ...]

    @property
    def folder(self) -> str:
        """Return the folder that holds its files, with the stroke behind it; empty where there is just one cluster."""
        return f"clusters/{node_name(self.cluster)}/" if self.cluster else ""


def emit_plan(plan: Plan, facts: EmitFacts, *, only: Sequence[str] = ()) -> Emission:
    """Return the files that enact a plan, or some of its actions, in a safe order; the same input gives the same bytes.

    Each cluster of several has a folder of its own. Texts and paths name actions by what they change, which stays from audit to
    audit; the emission says their ids. Raises UnknownName, with near matches, for an action that the plan does not have.
    """
    known = [action.id for action in plan.actions]
    for name in only:
        if name not in known:
            raise UnknownName("action", name, known)
    names = action_names(plan.actions)
    ids = {name: action for action, name in names.items()}
    renamed = [replace(action, id=names[action.id]) for action in plan.actions]
    named = replace(plan, actions=tuple(sorted(renamed, key=lambda action: action.id)))
    asked = tuple(action for action in named.actions if not only or ids[action.id] in only)
    parts = [_part(named, asked, facts, cluster) for cluster in clusters_of(facts, named.actions)]
    pages = [_with_ids(page, ids) for page in _distinct(list(purchase_pages(asked)))]
    whole = [_whole(part, ids) for part in parts]
    files = [*pages, *(file for part in whole for file in part.files)]
    withheld = tuple(left for part in whole for left in part.withheld)
    chosen = [action for action in plan.actions if not only or action.id in only]
    records = [(action, names[action.id], _owners(action, facts)) for action in chosen]
    told = {name: tuple(_pools_of(name, parts)) for _, name, _ in records}
    files += [_record(action, name, owners, plan, files, withheld, told[name]) for action, name, owners in records]
    if records:
        files.append(_index(records, plan))
    if plan.roadmap is not None and {step.action for step in plan.roadmap.course.steps} == {
        action.id for action in chosen
    }:
        files.append(_year(records, plan, plan.roadmap.course))
    files = sorted(files, key=lambda file: (file.stage, file.path))
    order = _order_page(parts, Emission(files=tuple(files), withheld=withheld), [action.id for action in chosen])
    return Emission(files=(order, *files), withheld=withheld)


def _part(plan: Plan, asked: Sequence[Action], facts: EmitFacts, cluster: str) -> _ClusterFiles:
    """Return what is for one cluster."""
    alone = not cluster and clusters_of(facts, plan.actions) == ("",)
    facts_here = facts if alone else facts_in(facts, cluster)
    all_of, some = (
        tuple(actions) if alone else actions_in(actions, facts, cluster) for actions in (plan.actions, asked)
    )
    scope = scope_of(some, facts_here, replace(plan, actions=all_of))
    pieces = [
        *(
            piece
            for action in scope.actions
            for change in action.changes
            for piece in action_files(action, change, scope)
        ),
        *layout_files(scope),
        *pool_files(scope),
        *workload_files(scope),
        *give_back_files(scope),
        *machine_files(scope),
        *shared_files(scope),
    ]
    files = [piece for piece in pieces if isinstance(piece, ManifestFile)]
    files += [*_shared(scope, files), *node_class_templates(scope)]
    files = _distinct(sorted(files, key=lambda file: (file.stage, file.path)))
    files += [*kustomizations(files), *helm_files(scope)]
    return _ClusterFiles(
        cluster=cluster,
        files=tuple(_distinct(sorted(files, key=lambda file: (file.stage, file.path)))),
        withheld=tuple(piece for piece in pieces if isinstance(piece, Withheld)),
        needs=tuple(needs(files, scope)),
        specs=scope.specs,
    )


def _whole(part: _ClusterFiles, ids: Mapping[str, str]) -> Emission:
    """Return what is for one cluster as part of the whole: under its folder, subjects with their cluster, actions by id."""
    at = f"@{part.cluster}" if part.cluster else ""
    return Emission(
        files=tuple(_with_ids(replace(file, path=f"{part.folder}{file.path}"), ids) for file in part.files),
        withheld=tuple(replace(left, action=ids[left.action], subject=f"{left.subject}{at}") for left in part.withheld),
    )


def _with_ids(file: ManifestFile, ids: Mapping[str, str]) -> ManifestFile:
    return replace(file, actions=tuple(ids[name] for name in file.actions))


def _order_page(parts: Sequence[_ClusterFiles], emission: Emission, actions: Sequence[str]) -> ManifestFile:
    """Return the page with the order of it all; the needs of a cluster are listed with its name where there are several."""
    told = [f"`{part.cluster}`: {need}" if part.cluster else need for part in parts for need in part.needs]
    return ManifestFile(
        path=ORDER_PAGE,
        text=apply_order(emission, tuple(told)),
        kind="the order",
        actions=tuple(actions),
        stage=ApplyStage.DECIDE,
    )


def _distinct(files: Sequence[ManifestFile]) -> list[ManifestFile]:
    """Return files whose paths differ: the second of a name is numbered, so that none is lost."""
    seen: Counter[str] = Counter()
    named = []
    for file in files:
        seen[file.path] += 1
        stem, dot, suffix = file.path.partition(".")
        path = file.path if seen[file.path] == 1 else f"{stem}-{seen[file.path]}{dot}{suffix}"
        named.append(replace(file, path=path))
    return named


def _shared(scope: Scope, files: Sequence[ManifestFile]) -> Iterator[ManifestFile]:
    """Yield what scaled services share: the dashboard, and the adapter's rules where an HPA reads them."""
    scaled = tuple(dict.fromkeys(name for file in files if file.stage is ApplyStage.MEASURE for name in file.actions))
    if not scaled:
        return
    paths = {file.path for file in files}
    recorded = {
        workload.name
        for workload in scope.facts.workloads
        if f"monitoring/{dns_name(workload.namespace)}/{dns_name(workload.short_name)}.rules.yaml" in paths
    }
    text = dashboard(scope.actions, scope.facts, recorded)
    yield ManifestFile(
        path=f"monitoring/{DASHBOARD}", text=text, kind="dashboard", actions=scaled, stage=ApplyStage.MEASURE
    )
    if scope.facts.autoscaler is Autoscaler.HPA:
        yield ManifestFile(
            path="helm/prometheus-adapter.values.yaml",
            text=yaml_text(adapter_values(), comment="Helm values of prometheus-adapter, to be merged with yours"),
            kind="Helm values",
            actions=scaled,
            stage=ApplyStage.MEASURE,
        )


def _owners(action: Action, facts: EmitFacts) -> tuple[str, ...]:
    """Return the teams whose workloads an action changes."""
    known = (facts.workload(change.subject) for change in action.changes)
    return tuple(sorted({workload.team for workload in known if workload is not None and workload.team}))


def _index(records: Sequence[tuple[Action, str, Sequence[str]]], plan: Plan) -> ManifestFile:
    return ManifestFile(
        path="decisions/README.md",
        text=decision_index(records, plan),
        kind="index of decisions",
        actions=tuple(action.id for action, _, _ in records),
        stage=ApplyStage.DECIDE,
    )


def _year(records: Sequence[tuple[Action, str, Sequence[str]]], plan: Plan, course: Schedule) -> ManifestFile:
    return ManifestFile(
        path="decisions/year.md",
        text=year_page(records, plan, course),
        kind="page of the year",
        actions=tuple(action.id for action, _, _ in records),
        stage=ApplyStage.DECIDE,
    )


def _pools_of(name: str, parts: Sequence[_ClusterFiles]) -> Iterator[str]:
    """Yield what the record of an action, by its lasting name, says of the node pools that it asks for."""
    for part in parts:
        for spec in part.specs:
            if spec.spot_types and any(action.id == name for action in spec.actions):
                yield choice_of_spot(spec)


def _record(
    action: Action,
    name: str,
    owners: Sequence[str],
    plan: Plan,
    files: Sequence[ManifestFile],
    withheld: Sequence[Withheld],
    pools: Sequence[str],
) -> ManifestFile:
    written = [
        file.path for file in sorted(files, key=lambda file: (file.stage, file.path)) if action.id in file.actions
    ]
    left = [f"`{left_out.subject}`: {left_out.reason}" for left_out in withheld if left_out.action == action.id]
    text = decision_record(action, plan, written=written, withheld=left, owners=owners, pools=pools)
    return page_file(action, name, text, ApplyStage.DECIDE)


def action_names(actions: Iterable[Action]) -> dict[str, str]:
    """Return id -> name, a DNS-1123 label of the lever and what it changes; the second of a name is numbered."""
    seen: Counter[str] = Counter()
    names = {}
    for action in actions:
        name = node_name(action.lever, _about(action))
        seen[name] += 1
        names[action.id] = name if seen[name] == 1 else node_name(name, str(seen[name]))
    return names


def _about(action: Action) -> str:
    """Return what an action is about, without counts: the pool that is bought, or the first of the workloads it changes."""
    effects = [change.effect for change in action.changes]
    for effect in effects:
        match effect:
            case BuyCommitment():
                return "-".join(
                    (effect.pool.provider, effect.pool.instance_type, effect.pool.region, effect.option.value)
                )
            case BuySpendPlan():
                return f"{effect.provider}-{effect.option.value}"
            case ReleaseNodes():
                return "unheld-nodes"
            case _:
                pass
    subjects = sorted({change.subject for change in action.changes})
    others = "-and-others" if len(subjects) > 1 else ""
    return f"{subjects[0] if subjects else ''}{others}".replace("/", "-").replace("@", "-")


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
