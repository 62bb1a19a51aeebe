"""What a plan changes in the manifests of workloads, merged over its actions."""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.emit.manifests.emission import ManifestFile, Piece, Stage, Withheld
from trimtab.emit.manifests.gpu_sharing import slot_resource
from trimtab.emit.manifests.objects import dns_name, yaml_text
from trimtab.emit.manifests.placed import PlacedWorkload
from trimtab.emit.manifests.scope import Scope
from trimtab.emit.manifests.workload_patch import GpuAsk, component, patchable


def workload_files(scope: Scope) -> Iterator[Piece]:
    """Yield a kustomize component for each workload that moves to a pool or asks for fewer GPUs."""
    for name, placed in sorted(scope.here.items()):
        known, spec, actions = placed.known, scope.spec(name), placed.actions
        asked = _asks(placed)
        replicas = placed.set_replicas
        if spec is None and asked is None and replicas is None:
            continue
        pool = spec.name if spec else None
        count = placed.deployment.gpu_count
        if count is not None and known.pod_gpus:
            reason = f"in the runs that ask for {count.before} GPUs, and in no others: ask for {count.gpus}"
            reason += f", nodeSelector karpenter.sh/nodepool: {pool}" if pool else ""
            for action in actions:
                yield Withheld(action=action.id, subject=name, reason=reason)
            continue
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


def _asks(placed: PlacedWorkload) -> GpuAsk | None:
    """Return what its container must ask for; None where that stays as it is."""
    shared = placed.place.shared
    if shared is not None:
        return GpuAsk(resource=slot_resource(shared.shared), count=shared.slots) if shared.shared.is_cut else None
    changes = placed.deployment.gpu_count is not None or placed.deployment.memory is not None
    return GpuAsk(count=round(placed.place.gpus_per_pod)) if changes else None
