"""What a plan changes in the manifests of workloads, merged over its actions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trimtab.emit.manifests.emission import ManifestFile, Piece, Stage, Withheld
from trimtab.emit.manifests.gpu_sharing import slot_resource
from trimtab.emit.manifests.objects import dns_name, yaml_text
from trimtab.emit.manifests.scope import Scope
from trimtab.emit.manifests.workload_patch import GpuAsk, component, patchable
from trimtab.fleet.effects import (
    SetBatchPolicy,
    SetGpuCount,
    SetTrainingMemory,
    UseSlots,
)
from trimtab.plan.model import Action


def workload_files(scope: Scope) -> Iterator[Piece]:
    """Yield a kustomize component for each workload that moves to a pool or asks for fewer GPUs."""
    for name, needs in sorted(scope.needs.items()):
        known, spec = scope.facts.workload(name), scope.spec(name)
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
        if isinstance(effect, UseSlots) and effect.shared.is_cut:
            return GpuAsk(resource=slot_resource(effect.shared), count=effect.slots)
    return None


def _replica_count(workload: str, actions: Sequence[Action]) -> int | None:
    for action in actions:
        for change in action.changes:
            if change.subject == workload and isinstance(change.effect, SetBatchPolicy):
                return change.effect.replicas
    return None
