"""MIG layouts for NVIDIA's GPU operator: the node label, the table of layouts (mig-parted), the resource that pods ask for.

Layouts of one profile are named as in the operator's own table (`all-1g.10gb`), which holds them for the boards that it knows;
the ConfigMap is for operators whose table does not, and for mixed layouts. Resources are those of the `mixed` strategy of the
device plugin.
"""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from trimtab.catalog.pools import SharedPool
from trimtab.emit.manifests.cuts import Cut
from trimtab.emit.manifests.objects import Plain, metadata
from trimtab.plan.model import Action

MIG_CONFIG = "nvidia.com/mig.config"
"""The node label that the operator's MIG manager acts on."""
LAYOUTS = "trimtab-mig-layouts"
UNCUT = "all-disabled"
"""The layout of nodes that are not cut: what nodes without the label keep."""
OPERATOR_NAMESPACE = "gpu-operator"


def slice_resource(shared: SharedPool) -> str:
    """Return the extended resource that one slice is to Kubernetes."""
    return f"nvidia.com/mig-{shared.profile}"


def layouts(cuts: Sequence[Cut], actions: Sequence[Action]) -> dict[str, Plain]:
    """Return mig-parted's ConfigMap with the layouts of some nodes, and the uncut one."""
    configs: dict[str, Plain] = {UNCUT: [{"devices": "all", "mig-enabled": False}]}
    for cut in sorted(cuts, key=lambda cut: cut.name):
        parts = cut.devices()
        configs[cut.name] = [
            {"devices": "all" if len(parts) == 1 else devices, "mig-enabled": True, "mig-devices": slices}
            for devices, slices in parts
        ]
    text = yaml.safe_dump({"version": "v1", "mig-configs": configs}, sort_keys=False)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(LAYOUTS, actions, namespace=OPERATOR_NAMESPACE),
        "data": {"config.yaml": text},
    }
