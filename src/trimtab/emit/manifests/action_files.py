"""The files of single actions: every effect is matched here, once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from trimtab.deployment.effects import (
    BookBlocks,
    BuyCommitment,
    BuySpendPlan,
    DeferRuns,
    FleetEffect,
    HedgeOnSpot,
    ReleaseIdle,
    ReleaseNodes,
    Relocate,
    SetBatchPolicy,
    SetCapacityType,
    SetGpuCount,
    SetPrecision,
    SetReplicaPolicy,
    SetReplicas,
    SetSchedule,
    SetTrainingMemory,
    StartBeforeRuns,
    UseOffering,
    UseSlots,
)
from trimtab.emit.manifests.batching import batching_page
from trimtab.emit.manifests.block_order import block_order
from trimtab.emit.manifests.deferral import deferral_objects
from trimtab.emit.manifests.emission import ManifestFile, Piece, Stage, Withheld
from trimtab.emit.manifests.facts import SCALABLE, WorkloadFacts
from trimtab.emit.manifests.karpenter import NODE_CLASSES, node_overlay
from trimtab.emit.manifests.keda import scheduled_object
from trimtab.emit.manifests.objects import node_name, yaml_text
from trimtab.emit.manifests.orders import purchase_order, release_order, spend_order
from trimtab.emit.manifests.pool_specs import PoolSpec
from trimtab.emit.manifests.precision import precision_page
from trimtab.emit.manifests.relocation import relocation_page
from trimtab.emit.manifests.scaling_files import object_file, scaling_files
from trimtab.emit.manifests.scope import Scope
from trimtab.emit.manifests.training import training_page
from trimtab.emit.manifests.warm_nodes import warm_objects
from trimtab.emit.manifests.week import cron_spans, held_stretches
from trimtab.plan.model import Action, Change
from trimtab.units import S_PER_HR


def action_files(action: Action, change: Change, scope: Scope) -> Iterator[Piece]:
    """Yield the files of one change, and what of it no file can carry."""
    effect = change.effect
    placed = scope.placed.get(change.subject)
    if placed is not None and not isinstance(effect, FleetEffect) and (reason := placed.waits_for(effect)):
        yield Withheld(action=action.id, subject=change.subject, reason=reason)
        return
    match effect:
        case BuyCommitment():
            yield from _purchase(action, effect)
        case BuySpendPlan():
            name = f"buy-{effect.provider}-{effect.option.value}"
            yield page_file(action, name, spend_order(action, effect), Stage.COMMIT)
        case ReleaseNodes():
            yield page_file(action, "give-back", release_order(action, effect), Stage.RELEASE)
        case SetReplicaPolicy() | SetSchedule() | StartBeforeRuns() | DeferRuns():
            yield from _controllers(action, change.subject, effect, scope)
        case SetBatchPolicy() | SetPrecision() | SetTrainingMemory():
            yield _model_page(action, change.subject, effect, scope)
        case Relocate():
            yield _move(action, change.subject, effect, scope)
        case BookBlocks():
            name = change.subject.partition("/")[2] or change.subject
            yield page_file(action, f"book-{name}", block_order(action, change.subject, effect), Stage.COMMIT)
        case (
            UseOffering()
            | UseSlots()
            | SetGpuCount()
            | SetReplicas()
            | SetCapacityType()
            | HedgeOnSpot()
            | ReleaseIdle()
        ):
            if change.subject in scope.away:
                yield _elsewhere(action, change.subject, scope)
            elif scope.facts.workload(change.subject) is None:
                yield _unknown(action, change.subject)
            elif change.subject not in scope.here:
                yield Withheld(
                    action=action.id, subject=change.subject, reason="the nodes that it runs on are not known"
                )
        case _:
            assert_never(effect)


def _move(action: Action, subject: str, effect: Relocate, scope: Scope) -> ManifestFile:
    name = subject.partition("/")[2] or subject
    others = [
        one.effect
        for other in scope.actions
        for one in other.changes
        if one.subject == subject and one.effect != effect
    ]
    return page_file(action, f"move-{name}", relocation_page(action, subject, effect, others), Stage.NODES)


def _elsewhere(action: Action, subject: str, scope: Scope) -> Withheld:
    mover, move = scope.away[subject]
    reason = f"{mover.id} moves it to {move.place}: its nodes are made in a cluster there, by hand"
    return Withheld(action=action.id, subject=subject, reason=reason)


def _model_page(
    action: Action, subject: str, effect: SetBatchPolicy | SetPrecision | SetTrainingMemory, scope: Scope
) -> ManifestFile:
    name = subject.partition("/")[2] or subject
    match effect:
        case SetTrainingMemory():
            return page_file(action, f"train-{name}", training_page(action, subject, effect), Stage.WORKLOADS)
        case SetPrecision():
            return page_file(action, f"quantize-{name}", precision_page(action, subject, effect), Stage.WORKLOADS)
        case SetBatchPolicy():
            text = batching_page(action, subject, effect, scope.placed.get(subject), scope.facts)
            return page_file(action, f"batch-{name}", text, Stage.WORKLOADS)
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
            yield _warm(action, effect, known, scope.spec(subject))
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
    yield page_file(
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


def page_file(action: Action, about: str, text: str, stage: Stage) -> ManifestFile:
    """Return a page for a person: a decision record, or steps that no controller does."""
    folder, kind = ("decisions", "decision record") if stage is Stage.DECIDE else ("orders", "steps for a person")
    path = f"{folder}/{node_name(action.id, about)}.md"
    return ManifestFile(path=path, text=text, kind=kind, actions=(action.id,), stage=stage)


def _unknown(action: Action, subject: str) -> Withheld:
    reason = "the audit does not know it in the cluster: see the decision record and change it by hand"
    return Withheld(action=action.id, subject=subject, reason=reason)
