"""GPUs shared without hardware isolation: the device plugin's configurations, the node label that picks one, the resource.

The schema is that of the device plugin's `sharing` section (README of NVIDIA/k8s-device-plugin, "Shared Access to GPUs"): time
slices and MPS exclude each other on a node, MPS takes no MIG devices and gives a container one share, and each share of either
is advertised as `nvidia.com/gpu.shared`, so that nobody lands there who asks for a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from trimtab.catalog.kinds import Isolation
from trimtab.catalog.pools import SharedPool
from trimtab.emit.manifests.cuts import Cut
from trimtab.emit.manifests.mig import MIG_CONFIG, OPERATOR_NAMESPACE, slice_resource
from trimtab.emit.manifests.objects import Plain, metadata
from trimtab.plan.model import Action

DEVICE_PLUGIN_CONFIG = "nvidia.com/device-plugin.config"
"""The node label that picks one of the device plugin's configurations."""
CONFIGS = "trimtab-gpu-sharing"
NO_SHARING = "default"
"""The configuration of nodes without the label: the plugin would else take the only one there is for every node."""
_SHARED_GPU = "nvidia.com/gpu.shared"


def slot_resource(shared: SharedPool) -> str:
    """Return the extended resource that one slot of cut GPUs is to Kubernetes."""
    return slice_resource(shared) if shared.is_isolated else _SHARED_GPU


def node_label(cut: Cut) -> tuple[str, str]:
    """Return the label of a node whose GPUs are to be cut so."""
    return (MIG_CONFIG, cut.name) if cut.isolated else (DEVICE_PLUGIN_CONFIG, _config_name(cut))


def _config_name(cut: Cut) -> str:
    """Return the configuration's name; on nodes of one GPU, where several slices may be asked for, it is another one."""
    several = "" if len(cut.gpus) == 1 else "-each"
    return f"{cut.kinds[0].isolation}-{cut.per_gpu}{several}"


def sharing_configs(cuts: Sequence[Cut], actions: Sequence[Action]) -> dict[str, Plain]:
    """Return the device plugin's ConfigMap with a configuration for each way of sharing."""
    configs: dict[str, Plain] = {NO_SHARING: yaml.safe_dump({"version": "v1"}, sort_keys=False)}
    configs |= {
        _config_name(cut): yaml.safe_dump(_config(cut), sort_keys=False) for cut in sorted(cuts, key=_config_name)
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(CONFIGS, actions, namespace=OPERATOR_NAMESPACE),
        "data": configs,
    }


def _config(cut: Cut) -> dict[str, object]:
    shares = [{"name": "nvidia.com/gpu", "replicas": cut.per_gpu}]
    if cut.kinds[0].kept_apart_by is Isolation.MPS:
        sharing: dict[str, object] = {"mps": {"renameByDefault": True, "resources": shares}}
    else:
        # on nodes with one GPU a replica that needs the memory of several slices asks for as many
        several = {"renameByDefault": True, "failRequestsGreaterThanOne": len(cut.gpus) > 1}
        sharing = {"timeSlicing": {**several, "resources": shares}}
    return {"version": "v1", "flags": {"migStrategy": "none"}, "sharing": sharing}
