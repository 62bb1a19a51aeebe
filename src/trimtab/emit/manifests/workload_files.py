"""What a plan changes in the manifests of workloads, merged over its actions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trimtab.emit.manifests.emission import ApplyStage, ManifestFile, Piece, Withheld
from trimtab.emit.manifests.facts import RAY_SERVICE, SCALABLE, SERVING, own_bounds
from trimtab.emit.manifests.gpu_sharing import slot_resource
from trimtab.emit.manifests.karpenter import leaves_no_room
from trimtab.emit.manifests.objects import dns_name, yaml_text
from trimtab.emit.manifests.placed import PlacedWorkload
from trimtab.emit.manifests.pool_specs import PoolSpec
from trimtab.emit.manifests.scope import Scope
from trimtab.emit.manifests.workload_patch import (
    GpuAsk,
    component,
    patchable,
    pool_selector,
    pool_tolerations,
    rollback_component,
    stale_affinity,
)
from trimtab.emit.plain import Plain


def workload_files(scope: Scope) -> Iterator[Piece]:
    """Yield a kustomize component for each workload that moves to a pool or asks for fewer GPUs."""
    for name, placed in sorted(scope.here.items()):
        known, spec = placed.known, scope.spec(name)
        asked, replicas = gpu_ask(placed), placed.set_replicas
        if scope.waits_for_nodes(name) or (spec is None and asked is None and replicas is None):
            continue
        by_hand = _by_hand(placed, spec, asked)
        if by_hand is not None:
            yield from _withheld(placed, by_hand)
            continue
        tight = spec is not None and leaves_no_room(spec, scope.facts)
        # fewer replicas, each with larger batches, only once the batches are seen to hold: not with the move
        batching = placed.deployment.batching
        now = None if batching is not None else replicas
        patch = component(known, placed.actions, asks=asked, replicas=now, nodes=spec, tight=tight)
        yield _component_file(placed, "", patch)
        if replicas is not None and known.owner_kind in SERVING - SCALABLE:
            yield from _withheld(placed, own_bounds(known.owner_kind, replicas, replicas))
        if batching is not None and replicas is not None:
            once = f"its server batches up to {batching.max_batch} requests at once, and keeps its targets so"
            later = component(known, placed.actions, asks=None, replicas=replicas, nodes=None, once=once)
            yield _component_file(placed, ".batched", later)
        if spec is not None:
            yield _component_file(placed, "", rollback_component(known, placed.actions), folder="rollback")
            yield from _doubts(placed)


def _by_hand(placed: PlacedWorkload, spec: PoolSpec | None, asked: GpuAsk | None) -> str | None:
    """Return what a person must change in a workload's manifest, where no patch can."""
    known, count = placed.known, placed.deployment.gpu_count
    selector = (
        f"nodeSelector {' '.join(f'{key}: {value}' for key, value in pool_selector(spec).items())}" if spec else ""
    )
    if count is not None and known.pod_gpus:
        reason = f"in the runs that ask for {count.before} GPUs, and in no others: ask for {count.gpus}"
        return f"{reason}, {selector}" if selector else reason
    several = asked is not None and len(known.gpu_containers) > 1
    if patchable(known) and not several:
        return None
    asks = [selector] if selector else []
    asks += [f"limits {asked}"] if asked else []
    asks += [f"replicas: {placed.set_replicas}"] if placed.set_replicas else []
    asks += [
        f"toleration {toleration['key']}={toleration['value']}:{toleration['effect']}"
        for toleration in (pool_tolerations(spec) if spec else [])
    ]
    where = f"its {known.owner_kind}, of which {len(known.gpu_containers)} containers ask for GPUs" if several else ""
    return f"set in {where or f'its {known.owner_kind}'}: {', '.join(asks)}"


def _doubts(placed: PlacedWorkload) -> Iterator[Withheld]:
    """Yield what a patch cannot know of a workload's pods."""
    known = placed.known
    if stale := stale_affinity(known):
        yield from _withheld(
            placed,
            f"its pods require nodes by affinity on {', '.join(stale)}: take that out, or none of its new nodes fits",
        )
    if known.owner_kind == RAY_SERVICE:
        yield from _withheld(
            placed,
            "the patch is of its first worker group: where another asks for the GPUs, put its number for the 0 in the paths. "
            "Ray makes a whole new cluster beside the old one before it lets that go (upgradeStrategy NewCluster): for so long "
            "there have to be nodes for both",
        )
    if known.owner_kind == "LeaderWorkerSet":
        yield from _withheld(placed, "where it has a leaderTemplate of its own, that asks for the new nodes too")
    if not known.pods_were_read and not known.tolerations:
        yield from _withheld(
            placed,
            "its pods were not read, and the patch replaces their list of tolerations: state those that they have "
            "(tolerations in --cluster), and look for node affinity",
        )


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


def gpu_ask(placed: PlacedWorkload) -> GpuAsk | None:
    """Return what its container must ask for; None where that stays as it is."""
    shared = placed.place.shared
    if shared is not None:
        return GpuAsk(resource=slot_resource(shared.shared), count=shared.slots) if shared.shared.is_cut else None
    changes = placed.deployment.gpu_count is not None or placed.deployment.memory is not None
    return GpuAsk(count=round(placed.place.gpus_per_pod)) if changes else None
