"""The files of single actions: every effect is matched here, once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import assert_never

from trimtab.deployment.effects import (
    DECODE,
    PREFILL,
    BookBlocks,
    BuyCommitment,
    BuySpendPlan,
    DeferRuns,
    FleetEffect,
    HedgeOnSpot,
    OverflowTo,
    ReleaseIdle,
    ReleaseNodes,
    Relocate,
    SetBatchPolicy,
    SetCapacityType,
    SetGpuCount,
    SetPrecision,
    SetReplicaGpus,
    SetReplicaPolicy,
    SetReplicas,
    SetSchedule,
    SetTrainingMemory,
    ShortenStart,
    SplitServing,
    StartBeforeRuns,
    UseOffering,
    UseSlots,
)
from trimtab.emit.manifests.cron_files import (
    QUEUE_LABEL,
    cluster_queue_objects,
    cron_spans,
    deferral_objects,
    held_stretches,
    hours_in_words,
    notebook_hours,
    placeholder_priority,
    queue_name,
    warm_objects,
)
from trimtab.emit.manifests.emission import (
    ApplyStage,
    ManifestFile,
    Piece,
    Plain,
    Withheld,
    dns_name,
    node_name,
    yaml_text,
)
from trimtab.emit.manifests.facts import NOTEBOOK, SCALABLE, EmitFacts, NodeMaker, WorkloadFacts
from trimtab.emit.manifests.karpenter import NODE_CLASSES, node_limit, node_overlay
from trimtab.emit.manifests.keda import scheduled_object
from trimtab.emit.manifests.node_groups import group_script_path
from trimtab.emit.manifests.orders import block_order, purchase_order, release_order, relocation_page, spend_order
from trimtab.emit.manifests.program_settings import batching_page, precision_page, start_page, training_page
from trimtab.emit.manifests.scaling_files import object_file, scaling_files
from trimtab.emit.manifests.scope import Scope
from trimtab.emit.manifests.split_files import split_files
from trimtab.emit.manifests.workload_files import claimed_templates, gpu_ask
from trimtab.emit.manifests.workload_patch import GpuAsk, patchable, queued_component
from trimtab.plan.model import Action, Change
from trimtab.units import HR_PER_WEEK, S_PER_HR


def action_files(action: Action, change: Change, scope: Scope) -> Iterator[Piece]:
    """Yield the files of one change, and what of it no file can carry."""
    effect = change.effect
    placed = scope.placed.get(change.subject)
    if placed is not None and not isinstance(effect, FleetEffect) and (reason := placed.waits_for(effect)):
        yield Withheld(action=action.id, subject=change.subject, reason=reason)
        return
    match effect:
        case BuyCommitment():
            if scope.facts.node_maker is not NodeMaker.NODE_GROUPS:
                yield from _price(action, effect)
        case BuySpendPlan():
            pass  # an order for the whole fleet: `purchase_pages`
        case ReleaseNodes():
            yield page_file(action, "give-back-unheld-nodes", release_order(action, effect), ApplyStage.RELEASE)
        case SetReplicaPolicy() | SetSchedule() | StartBeforeRuns() | DeferRuns():
            yield from _controllers(action, change.subject, effect, scope)
        case SetBatchPolicy() | SetPrecision() | SetTrainingMemory() | ShortenStart():
            yield _model_page(action, change.subject, effect, scope)
        case SplitServing():
            yield from _apart(action, change.subject, effect, scope)
        case Relocate():
            yield _move(action, change.subject, effect, scope)
        case BookBlocks():
            name = change.subject.replace("/", "-")
            yield page_file(
                action,
                f"book-{name}",
                block_order(
                    action, change.subject, effect, node_class_name(scope.facts), script=_script(change, scope)
                ),
                ApplyStage.COMMIT,
            )
        case (
            UseOffering()
            | OverflowTo()
            | UseSlots()
            | SetGpuCount()
            | SetReplicaGpus()
            | SetReplicas()
            | SetCapacityType()
            | HedgeOnSpot()
            | ReleaseIdle()
        ):
            if change.subject in scope.away:
                yield _elsewhere(action, change.subject, scope)
            elif change.subject in scope.off:
                return  # machines outside Kubernetes: `machine_files`
            elif scope.facts.workload(change.subject) is None:
                yield _unknown(action, change.subject)
            elif change.subject not in scope.here:
                yield Withheld(
                    action=action.id, subject=change.subject, reason="the nodes that it runs on are not known"
                )
        case _:
            assert_never(effect)


def _apart(action: Action, subject: str, effect: SplitServing, scope: Scope) -> Iterator[Piece]:
    known = scope.facts.workload(subject)
    if known is None or subject in scope.off:
        yield _unknown(action, subject)
        return
    found = {role: scope.spec(subject, role) for role in (PREFILL, DECODE)}
    nodes = {role: spec for role, spec in found.items() if spec is not None}
    yield from split_files(action, effect, known, nodes, scope.facts)


def _script(change: Change, scope: Scope) -> str:
    """Return the script that makes a workload's node groups; empty where Karpenter makes its nodes, or a person does."""
    spec = scope.spec(change.subject)
    return group_script_path(spec) if spec is not None and spec.by_group else ""


def node_class_name(facts: EmitFacts) -> str:
    """Return the name of the EC2NodeClass that the pools refer to."""
    return facts.node_classes.get("aws", NODE_CLASSES["aws"]).name


def _move(action: Action, subject: str, effect: Relocate, scope: Scope) -> ManifestFile:
    name = subject.replace("/", "-")
    others = [
        change.effect
        for other in scope.actions
        for change in other.changes
        if change.subject == subject and change.effect != effect
    ]
    return page_file(action, f"move-{name}", relocation_page(action, subject, effect, others), ApplyStage.NODES)


def _elsewhere(action: Action, subject: str, scope: Scope) -> Withheld:
    mover, move = scope.away[subject]
    reason = f"{mover.id} moves it to {move.place}: its nodes are made in a cluster there, by hand"
    return Withheld(action=action.id, subject=subject, reason=reason)


def _model_page(
    action: Action, subject: str, effect: SetBatchPolicy | SetPrecision | SetTrainingMemory | ShortenStart, scope: Scope
) -> ManifestFile:
    name = subject.replace("/", "-")
    match effect:
        case SetTrainingMemory():
            return page_file(action, f"train-{name}", training_page(action, subject, effect), ApplyStage.WORKLOADS)
        case SetPrecision():
            return page_file(action, f"quantize-{name}", precision_page(action, subject, effect), ApplyStage.WORKLOADS)
        case SetBatchPolicy():
            text = batching_page(action, subject, effect, scope.placed.get(subject), scope.facts)
            return page_file(action, f"batch-{name}", text, ApplyStage.WORKLOADS)
        case ShortenStart():
            text = start_page(action, subject, effect, scope.placed.get(subject))
            return page_file(action, f"start-{name}", text, ApplyStage.WORKLOADS)
        case _:
            assert_never(effect)


def _controllers(
    action: Action,
    subject: str,
    effect: SetReplicaPolicy | SetSchedule | StartBeforeRuns | DeferRuns,
    scope: Scope,
) -> Iterator[Piece]:
    known = scope.facts.workload(subject)
    if known is None:
        yield _unknown(action, subject)
        return
    match effect:
        case SetReplicaPolicy():
            yield from scaling_files(action, effect, known, scope.facts)
        case SetSchedule():
            yield _timetable(action, effect, known)
        case StartBeforeRuns():
            yield _warm(action, effect, known, scope)
        case DeferRuns():
            objects = deferral_objects(action, effect, known)
            yield object_file(action, known, "scaling", "deferral", ApplyStage.SCALE, *objects)
            yield _queued(action, known)
        case _:
            assert_never(effect)


def _queued(action: Action, known: WorkloadFacts) -> Piece:
    """Return what brings its runs into the queue: a label, which a patch sets where the place of it is known."""
    label, queue = QUEUE_LABEL, queue_name(known)
    if not patchable(known):
        reason = f"set in its {known.owner_kind}: label {label}: {queue}, without which its runs do not wait"
        return Withheld(action=action.id, subject=known.name, reason=reason)
    patch = queued_component(known, [action], label, queue)
    path = f"workloads/{dns_name(known.namespace)}/{dns_name(known.short_name)}.queued/kustomization.yaml"
    comment = f"trimtab {action.id}: {known.name}; only once its queue is there"
    return ManifestFile(
        path=path,
        text=yaml_text(patch, comment=comment),
        kind="Component",
        actions=(action.id,),
        stage=ApplyStage.SCALE,
    )


def shared_files(scope: Scope) -> Iterator[ManifestFile]:
    """Yield what workloads share that belongs to the cluster: the queue behind deferred runs, the placeholders' priority."""
    deferred = _with_effect(scope, DeferRuns)
    if deferred:
        specs = [spec for spec in scope.specs if any(name in spec.workloads for name, _ in deferred)]
        gpus = sum(node_limit(spec, scope.facts) * spec.gpus_per_node for spec in specs)
        unplaced = {name for name, _ in deferred} - {name for spec in specs for name in spec.workloads}
        known = [workload for workload in scope.facts.workloads if workload.name in unplaced]
        gpus += sum(math.ceil(workload.most_replicas * workload.gpus_per_pod) for workload in known)
        actions = list(dict.fromkeys(action for _, action in deferred))
        yield _shared(actions, "scaling/deferral.clusterqueue.yaml", *cluster_queue_objects(actions, max(1, gpus)))
    warmed = list(dict.fromkeys(action for _, action in _with_effect(scope, StartBeforeRuns)))
    if warmed:
        yield _shared(warmed, "scaling/placeholder.priorityclass.yaml", placeholder_priority(warmed))


def _with_effect(scope: Scope, kind: type[DeferRuns | StartBeforeRuns]) -> list[tuple[str, Action]]:
    """Return the known workloads that some action has such an effect on, with the action."""
    return [
        (change.subject, action)
        for action in scope.actions
        for change in action.changes
        if isinstance(change.effect, kind) and scope.facts.workload(change.subject) is not None
    ]


def _shared(actions: Sequence[Action], path: str, *objects: Mapping[str, Plain]) -> ManifestFile:
    names = tuple(action.id for action in actions)
    return ManifestFile(
        path=path,
        text=yaml_text(*objects, comment=f"trimtab {', '.join(names)}: shared by what they change"),
        kind=", ".join(str(body["kind"]) for body in objects),
        actions=names,
        stage=ApplyStage.SCALE,
    )


def _timetable(action: Action, effect: SetSchedule, known: WorkloadFacts) -> Piece:
    stretches = held_stretches(effect.hours_of_week)
    reason = None
    if known.owner_kind not in SCALABLE | {NOTEBOOK}:
        reason = (
            f"KEDA cannot scale a {known.owner_kind}: start and stop it by hand, up {hours_in_words(stretches)} (UTC)"
        )
    elif not stretches:
        reason = "its timetable has no hour in which it is up: set its replicas to 0"
    elif len(set(effect.hours_of_week)) == HR_PER_WEEK:
        reason = "its timetable is the whole week: leave its replicas as they are"
    if reason is not None:
        return Withheld(action=action.id, subject=known.name, reason=reason)
    spans = cron_spans(tuple((start * S_PER_HR, end * S_PER_HR) for start, end in stretches))
    if known.owner_kind == NOTEBOOK:
        objects = notebook_hours(action, known, spans)
        return object_file(action, known, "scaling", "hours", ApplyStage.SCALE, *objects)
    scaler = scheduled_object(action, known, spans, replicas=known.replicas)
    return object_file(action, known, "scaling", "scaledobject", ApplyStage.SCALE, scaler)


def _warm(action: Action, effect: StartBeforeRuns, known: WorkloadFacts, scope: Scope) -> Piece:
    spec, placed = scope.spec(known.name), scope.placed.get(known.name)
    if not known.run_starts or spec is None:
        missing = "the hours at which its runs begin" if not known.run_starts else "the node pool that it runs on"
        reason = f"{missing} are not known: start its nodes {effect.lead_s:.0f} s before each run"
        return Withheld(action=action.id, subject=known.name, reason=reason)
    ask = None if placed is None else gpu_ask(placed)
    templates = claimed_templates(known.name, scope)
    objects = warm_objects(action, effect, known, spec, ask or GpuAsk(count=round(known.gpus_per_pod)), templates)
    return object_file(action, known, "scaling", "warm-nodes", ApplyStage.SCALE, *objects)


def purchase_pages(actions: Sequence[Action]) -> Iterator[ManifestFile]:
    """Yield an order for each purchase of a plan: one for the fleet, however many clusters use what is bought."""
    for action in actions:
        for change in action.changes:
            match change.effect:
                case BuyCommitment() as effect:
                    name = f"buy-{effect.pool.instance_type}-{effect.pool.region}-{effect.option.value}"
                    yield page_file(action, name, purchase_order(action, effect), ApplyStage.COMMIT)
                case BuySpendPlan() as effect:
                    name = f"buy-{effect.provider}-{effect.option.value}"
                    yield page_file(action, name, spend_order(action, effect), ApplyStage.COMMIT)
                case _:
                    pass


def _price(action: Action, effect: BuyCommitment) -> Iterator[Piece]:
    """Yield what shows Karpenter the price that is paid from then on."""
    if effect.pool.provider in NODE_CLASSES:
        overlay = node_overlay(action, effect)
        yield ManifestFile(
            path=f"commitments/{node_name('price', effect.pool.instance_type, effect.pool.region)}.nodeoverlay.yaml",
            text=yaml_text(overlay, comment=f"trimtab {action.id}: apply once the commitment is bought"),
            kind="NodeOverlay",
            actions=(action.id,),
            stage=ApplyStage.COMMIT,
        )


def page_file(action: Action, about: str, text: str, stage: ApplyStage) -> ManifestFile:
    """Return a page for a person, named for what it is about: a decision record, or steps that no controller does."""
    folder, kind = ("decisions", "decision record") if stage is ApplyStage.DECIDE else ("orders", "steps for a person")
    path = f"{folder}/{node_name(about)}.md"
    return ManifestFile(path=path, text=text, kind=kind, actions=(action.id,), stage=stage)


def _unknown(action: Action, subject: str) -> Withheld:
    """Return what is left to a person of a workload that Kubernetes does not run, or that is not known."""
    reason = "the audit knows no workload of Kubernetes by this name: see the decision record and change it by hand"
    return Withheld(action=action.id, subject=subject, reason=reason)
