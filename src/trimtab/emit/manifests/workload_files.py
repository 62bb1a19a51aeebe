"""What a plan changes in the manifests of workloads, merged over its actions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trimtab.emit.manifests.claim_templates import ClaimChange, claims_by_hand, new_claims
from trimtab.emit.manifests.emission import ApplyStage, ManifestFile, Piece, Withheld
from trimtab.emit.manifests.facts import RAY_SERVICE, SCALABLE, SERVING, own_bounds
from trimtab.emit.manifests.gpu_sharing import slot_resource
from trimtab.emit.manifests.karpenter import leaves_no_room
from trimtab.emit.manifests.objects import Plain, dns_name, yaml_text
from trimtab.emit.manifests.placed import PlacedWorkload
from trimtab.emit.manifests.pool_specs import PoolSpec
from trimtab.emit.manifests.scope import Scope
from trimtab.emit.manifests.workload_patch import (
    GpuAsk,
    claim_file,
    component,
    patchable,
    pool_selector,
    pool_tolerations,
    rollback_component,
    stale_affinity,
)


def workload_files(scope: Scope) -> Iterator[Piece]:
    """Yield a kustomize component for each workload that moves to a pool or asks for fewer GPUs."""
    for name, placed in sorted(scope.here.items()):
        known, spec = placed.known, scope.spec(name)
        asked, replicas = gpu_ask(placed), placed.set_replicas
        if scope.waits_for_nodes(name) or (spec is None and asked is None and replicas is None):
            continue
        change = claim_change(placed, scope)
        by_hand = _by_hand(placed, spec, asked, change)
        if by_hand is not None:
            yield from _withheld(placed, by_hand)
            continue
        tight = spec is not None and leaves_no_room(spec, scope.facts)
        # fewer replicas, each with larger batches, only once the batches are seen to hold: not with the move
        batching = placed.deployment.batching
        now = None if batching is not None else replicas
        asks = None if known.gpu_claims else asked
        claims = () if change is None else new_claims(known, change, placed.actions)
        patch = component(known, placed.actions, asks=asks, replicas=now, nodes=spec, tight=tight, claims=claims)
        yield _component_file(placed, "", patch)
        for claim in claims:
            yield _beside(placed, claim_file(claim), claim.template)
        if replicas is not None and known.owner_kind in SERVING - SCALABLE:
            yield from _withheld(placed, own_bounds(known.owner_kind, replicas, replicas))
        if batching is not None and replicas is not None:
            once = f"its server batches up to {batching.max_batch} requests at once, and keeps its targets so"
            later = component(known, placed.actions, asks=None, replicas=replicas, nodes=None, once=once)
            yield _component_file(placed, ".batched", later)
        if spec is not None or asks is not None or claims:
            count = placed.deployment.gpu_count
            gpus = known.gpus_per_pod if count is None else count.before
            former = rollback_component(known, placed.actions, asks=asks, former_gpus=gpus, claims=claims)
            yield _component_file(placed, "", former, folder="rollback")
        if spec is not None:
            yield from _doubts(placed)


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
    if patchable(known) and not several and claimed is None:
        return None
    asks = [selector] if selector else []
    if change is not None:
        asks += [f"a ResourceClaimTemplate with {change}"]
    elif asked is not None and not known.gpu_claims:
        asks += [f"limits {asked}"]
    asks += [f"replicas: {placed.set_replicas}"] if placed.set_replicas else []
    asks += [
        f"toleration {toleration['key']}={toleration['value']}:{toleration['effect']}"
        for toleration in (pool_tolerations(spec) if spec else [])
    ]
    where = f"its {known.owner_kind}, of which {len(known.gpu_containers)} containers ask for GPUs" if several else ""
    said = f"set in {where or f'its {known.owner_kind}'}: {', '.join(asks)}"
    return said if claimed is None else f"{said} ({claimed})"


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


def gpu_ask(placed: PlacedWorkload) -> GpuAsk | None:
    """Return what its container must ask for; None where that stays as it is."""
    shared = placed.place.shared
    if shared is not None:
        return GpuAsk(resource=slot_resource(shared.shared), count=shared.slots) if shared.shared.is_cut else None
    changes = placed.deployment.gpu_count is not None or placed.deployment.memory is not None
    return GpuAsk(count=round(placed.place.gpus_per_pod)) if changes else None
