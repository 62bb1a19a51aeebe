"""Node pools under a plan's workloads, merged over its actions; layouts of GPUs that are cut; templates of node classes.

The templates are for clusters that have no node class yet and lie apart from what is applied: no history tells a site's
subnets, roles and images, and what must be filled in is marked. Fields are those of karpenter.k8s.aws/v1,
karpenter.azure.com/v1beta1 and karpenter.k8s.gcp/v1alpha1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trimtab.emit.manifests.emission import ApplyStage, ManifestFile, Piece, Withheld
from trimtab.emit.manifests.gpu_sharing import CONFIGS, NO_SHARING, sharing_configs
from trimtab.emit.manifests.karpenter import NODE_CLASSES, node_class, node_pools, slice_overlay
from trimtab.emit.manifests.mig import layouts
from trimtab.emit.manifests.node_groups import autoscaler_files, group_files
from trimtab.emit.manifests.objects import Plain, metadata, node_name, yaml_text
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


_FILL_IN = "fill-in"
_VERSIONS: Mapping[str, str] = {"aws": "v1", "azure": "v1beta1", "gcp": "v1alpha1"}
_ROOT_GIB = 200
"""Room for an image with CUDA and a model's libraries; the providers' defaults of 20 to 30 GiB fill up while it is pulled."""


def node_class_templates(scope: Scope) -> Iterator[ManifestFile]:
    """Yield a template for each provider whose NodePools refer to a class that nobody said is there."""
    for provider in sorted({spec.pool.provider for spec in scope.specs if not spec.by_group}):
        if provider not in NODE_CLASSES or provider in scope.facts.node_classes:
            continue
        node_class = NODE_CLASSES[provider]
        specs = [spec for spec in scope.specs if spec.pool.provider == provider]
        actions = list({action.id: action for spec in specs for action in spec.actions}.values())
        body: dict[str, Plain] = {
            "apiVersion": f"{node_class.group}/{_VERSIONS[provider]}",
            "kind": node_class.kind,
            "metadata": metadata(node_class.name, actions),
            "spec": _SPECS[provider],
        }
        yield ManifestFile(
            path=f"templates/{node_name(node_class.kind, node_class.name)}.yaml",
            text=yaml_text(
                body,
                comment=f"only where `kubectl get {node_class.kind.lower()}s` shows no {node_class.name}: replace each "
                f"{_FILL_IN}, then\n"
                "apply it before the node pools; with another class, say so in `node_classes` of the cluster file",
            ),
            kind=f"template of {node_class.kind}",
            actions=tuple(action.id for action in actions),
            stage=ApplyStage.DECIDE,
        )


_SPECS: Mapping[str, Mapping[str, Plain]] = {
    "aws": {
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "role": f"KarpenterNodeRole-{_FILL_IN}",
        "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": _FILL_IN}}],
        "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": _FILL_IN}}],
        "blockDeviceMappings": [
            {"deviceName": "/dev/xvda", "ebs": {"volumeSize": f"{_ROOT_GIB}Gi", "volumeType": "gp3", "encrypted": True}}
        ],
    },
    "azure": {"imageFamily": "Ubuntu2204", "osDiskSizeGB": _ROOT_GIB},
    "gcp": {
        "imageSelectorTerms": [{"alias": "ContainerOptimizedOS@latest"}],
        "serviceAccount": f"{_FILL_IN}@{_FILL_IN}.iam.gserviceaccount.com",
    },
}
