"""A plan as files: every effect is matched here, once; node pools and workload patches are merged over actions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from trimtab.emit.manifests.apply_order import apply_order
from trimtab.emit.manifests.batching import batch_curve, batching_page
from trimtab.emit.manifests.decision_record import decision_record
from trimtab.emit.manifests.deferral import deferral_objects
from trimtab.emit.manifests.emission import Emission, ManifestFile, Stage, Withheld
from trimtab.emit.manifests.facts import SCALABLE, Autoscaler, EmitFacts, WorkloadFacts, is_kubernetes_name
from trimtab.emit.manifests.grafana import dashboard
from trimtab.emit.manifests.karpenter import NODE_CLASSES, node_class, node_overlay, node_pools, slice_overlay
from trimtab.emit.manifests.keda import scheduled_object
from trimtab.emit.manifests.kubernetes import adapter_values
from trimtab.emit.manifests.mig import layouts, slice_resource
from trimtab.emit.manifests.objects import dns_name, node_name, yaml_text
from trimtab.emit.manifests.orders import purchase_order, release_order
from trimtab.emit.manifests.pool_needs import PoolNeed, PoolSpec, by_workload, need_of, pool_specs
from trimtab.emit.manifests.precision import precision_page
from trimtab.emit.manifests.scaling_files import object_file, scaling_files
from trimtab.emit.manifests.training import training_page
from trimtab.emit.manifests.warm_nodes import warm_objects
from trimtab.emit.manifests.week import cron_spans, held_stretches
from trimtab.emit.manifests.workload_patch import GpuAsk, component, patchable
from trimtab.errors import UnknownName
from trimtab.fleet.effects import (
    BuyCommitment,
    DeferRuns,
    Effect,
    HedgeOnSpot,
    ReleaseIdle,
    ReleaseNodes,
    SetBatchPolicy,
    SetCapacityType,
    SetGpuCount,
    SetPrecision,
    SetReplicaPolicy,
    SetSchedule,
    SetTrainingMemory,
    StartBeforeRuns,
    UseOffering,
    UseSlots,
)
from trimtab.plan.model import Action, Change, Plan
from trimtab.units import S_PER_HR

Piece = ManifestFile | Withheld


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """What is to be emitted: the actions asked for, the facts as they will be, the node pools underneath."""

    actions: tuple[Action, ...]
    facts: EmitFacts
    needs: dict[str, tuple[PoolNeed, ...]]
    specs: tuple[PoolSpec, ...]

    def spec(self, workload: str) -> PoolSpec | None:
        """Return the pool that a workload will run on, where Karpenter can make it."""
        for spec in self.specs:
            if workload in spec.workloads and node_class(spec.pool.provider, self.facts) is not None:
                return spec
        return None


def emit_plan(plan: Plan, facts: EmitFacts, *, only: Sequence[str] = ()) -> Emission:
    """Return the files that enact a plan, or some of its actions, in a safe order; the same input gives the same bytes.

    Raises UnknownName, with near matches, for an action that the plan does not have.
    """
    known = [action.id for action in plan.actions]
    for name in only:
        if name not in known:
            raise UnknownName("action", name, known)
    order = _order(tuple(action for action in plan.actions if not only or action.id in only), facts)
    pieces = [
        *(piece for action in order.actions for change in action.changes for piece in _pieces(action, change, order)),
        *_layouts(order),
        *_pools(order),
        *_patches(order),
    ]
    files = [piece for piece in pieces if isinstance(piece, ManifestFile)]
    withheld = tuple(piece for piece in pieces if isinstance(piece, Withheld))
    files += _shared(order, files)
    files += [_record(action, plan, files, withheld) for action in order.actions]
    files = _distinct(sorted(files, key=lambda file: (file.stage, file.path)))
    page = ManifestFile(
        path="APPLY.md",
        text=apply_order(Emission(files=tuple(files), withheld=withheld)),
        kind="the order",
        actions=tuple(action.id for action in order.actions),
        stage=Stage.DECIDE,
    )
    return Emission(files=(page, *files), withheld=withheld)


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


def _order(actions: tuple[Action, ...], facts: EmitFacts) -> _Order:
    changes = [(action, change) for action in actions for change in action.changes]
    known = tuple(_sped_up(one, changes) for one in facts.workloads if is_kubernetes_name(one.name))
    facts = replace(facts, workloads=known)
    needs = by_workload((need for one in changes if (need := need_of(*one, facts)) is not None), facts)
    return _Order(
        actions=actions,
        facts=facts,
        needs=needs,
        specs=pool_specs(needs),
    )


def _sped_up(known: WorkloadFacts, changes: Sequence[tuple[Action, Change]]) -> WorkloadFacts:
    """Return a service with what a replica will serve once it runs on another GPU, or serves several requests at once."""
    if known.service is None:
        return known
    mine = [change.effect for _, change in changes if change.subject == known.name]
    size, precision = _moved(mine), next((effect for effect in mine if isinstance(effect, SetPrecision)), None)
    batching = next((effect for effect in mine if isinstance(effect, SetBatchPolicy)), None)
    capacity = known.service.capacity_req_s * (size.speed.value if size else 1.0)
    if precision is not None:
        capacity *= (precision.speed_there if size else precision.speed).value
    if batching is not None:
        capacity = batching.max_batch / batch_curve(batching, size).run_s(batching.max_batch)
    return replace(known, service=replace(known.service, capacity_req_s=capacity))


def _moved(effects: Sequence[Effect]) -> UseOffering | UseSlots | None:
    return next((effect for effect in effects if isinstance(effect, UseOffering | UseSlots)), None)


def _pieces(action: Action, change: Change, order: _Order) -> Iterator[Piece]:
    effect = change.effect
    match effect:
        case BuyCommitment():
            yield from _purchase(action, effect)
        case ReleaseNodes():
            yield _page(action, "give-back", release_order(action, effect), Stage.RELEASE)
        case SetReplicaPolicy() | SetSchedule() | StartBeforeRuns() | DeferRuns():
            yield from _controllers(action, change.subject, effect, order)
        case SetBatchPolicy() | SetPrecision() | SetTrainingMemory():
            yield _model_page(action, change.subject, effect, order)
        case UseOffering() | UseSlots() | SetGpuCount() | SetCapacityType() | HedgeOnSpot() | ReleaseIdle():
            if order.facts.workload(change.subject) is None:
                yield _unknown(action, change.subject)
            elif change.subject not in order.needs:
                yield Withheld(
                    action=action.id, subject=change.subject, reason="the nodes that it runs on are not known"
                )
        case _:
            assert_never(effect)


def _model_page(
    action: Action, subject: str, effect: SetBatchPolicy | SetPrecision | SetTrainingMemory, order: _Order
) -> ManifestFile:
    name = subject.partition("/")[2] or subject
    match effect:
        case SetTrainingMemory():
            return _page(action, f"train-{name}", training_page(action, subject, effect), Stage.WORKLOADS)
        case SetPrecision():
            return _page(action, f"quantize-{name}", precision_page(action, subject, effect), Stage.WORKLOADS)
        case SetBatchPolicy():
            effects = [one.effect for other in order.actions for one in other.changes if one.subject == subject]
            text = batching_page(action, subject, effect, _moved(effects), order.facts)
            return _page(action, f"batch-{name}", text, Stage.WORKLOADS)
        case _:
            assert_never(effect)


def _controllers(
    action: Action,
    subject: str,
    effect: SetReplicaPolicy | SetSchedule | StartBeforeRuns | DeferRuns,
    order: _Order,
) -> Iterator[Piece]:
    known = order.facts.workload(subject)
    if known is None:
        yield _unknown(action, subject)
        return
    match effect:
        case SetReplicaPolicy():
            yield from scaling_files(action, effect, known, order.facts)
        case SetSchedule():
            yield _timetable(action, effect, known)
        case StartBeforeRuns():
            yield _warm(action, effect, known, order.spec(subject))
        case DeferRuns():
            yield object_file(
                action, known, "scaling", "deferral", Stage.SCALE, *deferral_objects(action, effect, known)
            )
        case _:
            assert_never(effect)


def _timetable(action: Action, effect: SetSchedule, known: WorkloadFacts) -> Piece:
    if known.owner_kind not in SCALABLE:
        reason = (
            f"KEDA cannot scale a {known.owner_kind}: start and stop it by hand in the hours of the decision record"
        )
        return Withheld(action=action.id, subject=known.name, reason=reason)
    stretches = held_stretches(effect.hours_of_week)
    spans = cron_spans(tuple((start * S_PER_HR, end * S_PER_HR) for start, end in stretches))
    one = scheduled_object(action, known, spans, replicas=known.replicas)
    return object_file(action, known, "scaling", "scaledobject", Stage.SCALE, one)


def _warm(action: Action, effect: StartBeforeRuns, known: WorkloadFacts, spec: PoolSpec | None) -> Piece:
    if not known.run_starts or spec is None:
        missing = "the hours at which its runs begin" if not known.run_starts else "the node pool that it runs on"
        reason = f"{missing} are not known: start its nodes {effect.lead_s:.0f} s before each run"
        return Withheld(action=action.id, subject=known.name, reason=reason)
    objects = warm_objects(action, effect, known, spec.name)
    return object_file(action, known, "scaling", "warm-nodes", Stage.SCALE, *objects)


def _purchase(action: Action, effect: BuyCommitment) -> Iterator[Piece]:
    yield _page(
        action, f"buy-{effect.pool.instance_type}-{effect.pool.region}", purchase_order(action, effect), Stage.COMMIT
    )
    if effect.pool.provider in NODE_CLASSES:
        overlay = node_overlay(action, effect)
        yield ManifestFile(
            path=f"orders/{node_name(action.id, 'price', effect.pool.instance_type, effect.pool.region)}.nodeoverlay.yaml",
            text=yaml_text(overlay, comment=f"trimtab {action.id}: apply once the commitment is bought"),
            kind="NodeOverlay",
            actions=(action.id,),
            stage=Stage.COMMIT,
        )


def _pools(order: _Order) -> Iterator[Piece]:
    for spec in order.specs:
        owner = node_class(spec.pool.provider, order.facts)
        names = tuple(action.id for action in spec.actions)
        if owner is None:
            reason = f"Karpenter does not run on {spec.pool.provider}: size the node group of {spec.pool.instance_type}"
            for action in names:
                yield Withheld(action=action, subject=", ".join(spec.workloads), reason=reason)
            continue
        comment = f"trimtab {', '.join(names)}: nodes under {', '.join(spec.workloads)}"
        for name, pool in zip((spec.name, spec.floor_name), node_pools(spec, owner, order.facts), strict=False):
            yield ManifestFile(
                path=f"nodes/{name.removeprefix('trimtab-')}.nodepool.yaml",
                text=yaml_text(pool, comment=comment),
                kind="NodePool",
                actions=names,
                stage=Stage.NODES,
            )
        if spec.shared is not None:
            overlay = slice_overlay(spec, spec.shared)
            yield ManifestFile(
                path=f"nodes/{spec.name.removeprefix('trimtab-')}.nodeoverlay.yaml",
                text=yaml_text(overlay, comment=comment),
                kind="NodeOverlay",
                actions=names,
                stage=Stage.NODES,
            )


def _layouts(order: _Order) -> Iterator[Piece]:
    """Yield the MIG layouts of the pools whose GPUs are cut."""
    cut = [spec for spec in order.specs if spec.shared is not None and order.spec(spec.workloads[0]) is not None]
    if not cut:
        return
    actions = tuple({action.id: action for spec in cut for action in spec.actions}.values())
    table = layouts([(spec.shared, spec.gpus_per_node) for spec in cut if spec.shared is not None], actions)
    yield ManifestFile(
        path="nodes/mig-layouts.configmap.yaml",
        text=yaml_text(
            table, comment="only where the GPU operator's own table lacks these layouts: migManager.config.name"
        ),
        kind="ConfigMap",
        actions=tuple(action.id for action in actions),
        stage=Stage.NODES,
    )


def _patches(order: _Order) -> Iterator[Piece]:
    """Yield a kustomize component for each workload that moves to a pool or asks for fewer GPUs."""
    for name, needs in sorted(order.needs.items()):
        known, spec = order.facts.workload(name), order.spec(name)
        actions = tuple({need.action.id: need.action for need in needs}.values())
        asked, replicas = _asks(name, actions), _replica_count(name, actions)
        if known is None or (spec is None and asked is None and replicas is None):
            continue
        pool = spec.name if spec else None
        if not patchable(known):
            asks = f", limits {asked}" if asked else ""
            asks += f", replicas: {replicas}" if replicas else ""
            reason = f"set in its {known.owner_kind}: nodeSelector karpenter.sh/nodepool: {pool}{asks}"
            for action in actions:
                yield Withheld(action=action.id, subject=name, reason=reason)
            continue
        patch = component(known, actions, asks=asked, replicas=replicas, nodes=spec)
        yield ManifestFile(
            path=f"workloads/{dns_name(known.namespace)}/{dns_name(known.short_name)}/kustomization.yaml",
            text=yaml_text(patch, comment=f"trimtab {', '.join(action.id for action in actions)}: {name}"),
            kind="Component",
            actions=tuple(action.id for action in actions),
            stage=Stage.WORKLOADS,
        )


def _asks(workload: str, actions: Sequence[Action]) -> GpuAsk | None:
    for effect in (change.effect for action in actions for change in action.changes if change.subject == workload):
        if isinstance(effect, SetGpuCount | SetTrainingMemory):
            return GpuAsk(count=effect.gpus)
        if isinstance(effect, UseSlots) and effect.shared.profile:
            return GpuAsk(resource=slice_resource(effect.shared), count=effect.slots)
    return None


def _replica_count(workload: str, actions: Sequence[Action]) -> int | None:
    for action in actions:
        for change in action.changes:
            if change.subject == workload and isinstance(change.effect, SetBatchPolicy):
                return change.effect.replicas
    return None


def _shared(order: _Order, files: Sequence[ManifestFile]) -> Iterator[ManifestFile]:
    """Yield what scaled services share: the dashboard, and the adapter's rules where an HPA reads them."""
    scaled = tuple(dict.fromkeys(name for file in files if file.stage is Stage.MEASURE for name in file.actions))
    if not scaled:
        return
    text = dashboard(order.actions, order.facts)
    yield ManifestFile(
        path="monitoring/trimtab.dashboard.json", text=text, kind="dashboard", actions=scaled, stage=Stage.MEASURE
    )
    if order.facts.autoscaler is Autoscaler.HPA:
        yield ManifestFile(
            path="monitoring/prometheus-adapter.values.yaml",
            text=yaml_text(adapter_values(), comment="Helm values of prometheus-adapter, to be merged with yours"),
            kind="Helm values",
            actions=scaled,
            stage=Stage.MEASURE,
        )


def _record(action: Action, plan: Plan, files: Sequence[ManifestFile], withheld: Sequence[Withheld]) -> ManifestFile:
    written = [
        file.path for file in sorted(files, key=lambda file: (file.stage, file.path)) if action.id in file.actions
    ]
    left = [f"`{one.subject}`: {one.reason}" for one in withheld if one.action == action.id]
    text = decision_record(action, plan, written=written, withheld=left)
    return _page(action, action.lever.value, text, Stage.DECIDE)


def _page(action: Action, about: str, text: str, stage: Stage) -> ManifestFile:
    folder, kind = ("decisions", "decision record") if stage is Stage.DECIDE else ("orders", "steps for a person")
    path = f"{folder}/{node_name(action.id, about)}.md"
    return ManifestFile(path=path, text=text, kind=kind, actions=(action.id,), stage=stage)


def _unknown(action: Action, subject: str) -> Withheld:
    reason = "the audit does not know it in the cluster: see the decision record and change it by hand"
    return Withheld(action=action.id, subject=subject, reason=reason)
