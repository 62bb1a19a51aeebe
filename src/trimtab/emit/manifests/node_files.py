"""Node pools under a plan's workloads, merged over its actions, and the layouts of GPUs that are cut."""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.emit.manifests.emission import ApplyStage, ManifestFile, Piece, Withheld
from trimtab.emit.manifests.gpu_sharing import CONFIGS, NO_SHARING, sharing_configs
from trimtab.emit.manifests.karpenter import node_class, node_pools, slice_overlay
from trimtab.emit.manifests.mig import layouts
from trimtab.emit.manifests.node_groups import autoscaler_files, group_files
from trimtab.emit.manifests.objects import yaml_text
from trimtab.emit.manifests.scope import Scope


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
        for name, pool in zip((spec.name, spec.floor_name), node_pools(spec, owner, scope.facts), strict=False):
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
    cuts = [(spec, spec.cut) for spec in scope.specs if spec.cut and scope.spec(spec.workloads[0])]
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
