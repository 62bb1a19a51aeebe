"""Templates of the node classes that NodePools refer to, for clusters that have none yet: what a site must fill in is marked.

They lie apart from what is applied: which subnets, roles and images are the site's own no history tells. Fields are those of
karpenter.k8s.aws/v1, karpenter.azure.com/v1beta1 and karpenter.k8s.gcp/v1alpha1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trimtab.emit.manifests.emission import ApplyStage, ManifestFile
from trimtab.emit.manifests.karpenter import NODE_CLASSES
from trimtab.emit.manifests.objects import metadata, node_name, yaml_text
from trimtab.emit.manifests.scope import Scope
from trimtab.emit.plain import Plain

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
