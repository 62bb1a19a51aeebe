"""Karpenter NodePool (v1) under the workloads of a plan, and NodeOverlay (v1alpha1) for prices already committed to.

Spot pools always list on-demand too: Karpenter takes the cheapest capacity type it can get, so that a lost or unavailable spot
node is replaced on demand. They list every type that can replace the planned one (`spot_types`). On demand the cheapest of
them comes first ("lowest-price": aws/karpenter-provider-aws, pkg/providers/instance/instance.go). A more expensive one is
started on demand only if neither spot nor the planned type has any capacity, and pods would wait. Karpenter looks at
requests only; a pool of runs gives back empty nodes and moves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from trimtab.deployment.effects import BuyCommitment
from trimtab.emit.manifests.emission import Plain, metadata, node_name
from trimtab.emit.manifests.facts import EmitFacts, NodeClass
from trimtab.emit.manifests.gpu_sharing import Cut, node_label, slot_resource
from trimtab.emit.manifests.pool_specs import PoolSpec
from trimtab.plan.model import Action
from trimtab.units import MICRO_PER_USD, S_PER_MIN

NODE_CLASSES: Mapping[str, NodeClass] = MappingProxyType(
    {
        "aws": NodeClass(group="karpenter.k8s.aws", kind="EC2NodeClass"),
        "azure": NodeClass(group="karpenter.azure.com", kind="AKSNodeClass"),
        "gcp": NodeClass(group="karpenter.k8s.gcp", kind="GCENodeClass"),
    }
)
"""Providers that Karpenter runs on."""
GPU_RESOURCE = "nvidia.com/gpu"
GPU_TAINT: Mapping[str, Plain] = MappingProxyType({"key": GPU_RESOURCE, "value": "present", "effect": "NoSchedule"})
SPOT_TAINT: Mapping[str, Plain] = MappingProxyType({"key": GPU_RESOURCE, "value": "spot", "effect": "NoSchedule"})
"""The key that NVIDIA's device plugin, exporters and MPS daemon tolerate whatever its value (GPU operator,
values.yaml, `daemonsets.tolerations`; k8s-device-plugin, helm values): with a key of our own no node would ever offer a GPU."""
SPREAD = "trimtab.dev/spread"
"""The label by which replicas are spread over a spot pool and the on-demand pool of its floor, one value in each `one_in`."""
HEDGE = "trimtab.dev/hedge"
"""The label that both pools of a hedged service share."""
OVERFLOW = "trimtab.dev/overflow"
"""The label that both pools of a service on two types of node share."""
_FIRST = 50
"""Weight of the pool that comes first; those that state none have 0 (karpenter.sh/docs/concepts/nodepools, "spec.weight")."""
SLICES = "trimtab.dev/slices"
"""The label that pools share whose nodes are cut in several ways for the same workloads."""
_DISRUPTED_AT_ONCE = "10%"
_EXPIRE = "Never"
"""Expiry deletes nodes whatever the budgets say (karpenter.sh/docs/concepts/disruption, "Expiration"), and nodes that were made
on one day expire on one day. New images come as drift, which keeps to the budgets."""
_ROLLOUT_FRAC = 0.25
"""The default surge of a rolling update (Kubernetes, Deployment `maxSurge`); room for a drifted node's successor."""


def node_class(provider: str, facts: EmitFacts) -> NodeClass | None:
    """Return the node class of a provider; None where Karpenter does not run."""
    return facts.node_classes.get(provider) or NODE_CLASSES.get(provider)


def node_pools(spec: PoolSpec, node_class: NodeClass, facts: EmitFacts) -> tuple[dict[str, Plain], ...]:
    """Return the NodePool of one merged need, and the pool behind it where a floor stays on demand, or others overflow.

    Of two pools that may take a pod Karpenter fills the one of higher weight up to its limit (karpenter.sh/docs/concepts/
    nodepools, "spec.weight", "spec.limits").
    The ratio is Karpenter's own way (karpenter.sh/docs/concepts/scheduling, "On-Demand/Spot Ratio Split"): the values of one
    label are dealt out to both pools, and replicas are spread evenly over the values.
    """
    if spec.behind is not None:
        behind = _node_pool(spec.behind, node_class, facts, name=spec.behind_name, overflow=spec.name)
        return (_node_pool(spec, node_class, facts, overflow=spec.name), behind)
    if not spec.one_in:
        return (_node_pool(spec, node_class, facts),)
    values = [str(value) for value in range(1, spec.one_in + 1)]
    floor = replace(spec, spot=False)
    return (
        _node_pool(spec, node_class, facts, spread=values[1:]),
        _node_pool(floor, node_class, facts, name=spec.floor_name, spread=values[:1], hedge=spec.name),
    )


def _node_pool(
    spec: PoolSpec,
    node_class: NodeClass,
    facts: EmitFacts,
    *,
    name: str | None = None,
    spread: Sequence[str] = (),
    hedge: str | None = None,
    overflow: str | None = None,
) -> dict[str, Plain]:
    limit = node_limit(spec, facts)
    own = name or spec.name
    labels: dict[str, Plain] = {"trimtab.dev/node-pool": own}
    if spread:
        labels[HEDGE] = hedge or own
    if overflow:
        labels[OVERFLOW] = overflow
    if spec.cut is not None:
        key, value = node_label(spec.cut)
        labels[key] = value
    if spec.beside:
        labels[SLICES] = spec.beside
    body: dict[str, Plain] = {
        "template": {
            "metadata": {"labels": labels},
            "spec": {
                "nodeClassRef": {"group": node_class.group, "kind": node_class.kind, "name": node_class.name},
                "requirements": [
                    _one_of("node.kubernetes.io/instance-type", *spec.instance_types),
                    _one_of("topology.kubernetes.io/region", spec.pool.region),
                    _one_of("karpenter.sh/capacity-type", *(kind.value for kind in spec.capacity_types)),
                    *([_one_of(SPREAD, *spread)] if spread else []),
                ],
                "taints": [dict(SPOT_TAINT if spec.spot else GPU_TAINT)],
                "expireAfter": _EXPIRE,
            },
        },
        "disruption": _disruption(spec),
    }
    if spec.overflow is not None:
        body["weight"] = _FIRST
    if spec.cut is not None:
        body["limits"] = _slots(spec.cut, limit if spec.cut.nodes is None else min(limit, spec.cut.nodes + 1))
    else:
        body["limits"] = {GPU_RESOURCE: str(limit * spec.gpus_per_node)}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": metadata(own, spec.actions),
        "spec": body,
    }


def node_limit(spec: PoolSpec, facts: EmitFacts) -> int:
    """Return the most nodes the pool may hold: those for its workloads' ceilings and for a rollout beside them, within quota.

    Karpenter makes no node over `limits`, not even for a moment: a pool that is exactly full could never finish a rollout. One
    with others behind it is: those take the rollout.
    """
    if spec.overflow is not None:
        return spec.overflow.first_nodes
    quota = quota_nodes(spec, facts)
    wanted = spec.nodes + rollout_nodes(spec)
    return wanted if quota is None else max(1, min(quota, wanted))


def rollout_nodes(spec: PoolSpec) -> int:
    """Return the nodes that a rolling update, or a drifted node's successor, needs beside those of the ceilings."""
    return max(1, math.ceil(spec.nodes * _ROLLOUT_FRAC))


def quota_nodes(spec: PoolSpec, facts: EmitFacts) -> int | None:
    """Return the most nodes that the provider allows; None where it is not known."""
    priced = facts.priced(spec.pool)
    return priced.quota_nodes if priced else None


def leaves_no_room(spec: PoolSpec, facts: EmitFacts) -> bool:
    """Return whether the quota leaves a rollout no node: then replicas must go before their successors come."""
    spec = spec.behind or spec
    return node_limit(spec, facts) < spec.nodes + rollout_nodes(spec)


def _disruption(spec: PoolSpec) -> dict[str, Plain]:
    """Return when nodes are given back: under runs only empty ones, whatever else Karpenter finds to be better.

    A budget without reasons would hold for drift too, which `WhenEmpty` does not stop
    (karpenter.sh/docs/concepts/disruption, "NodePool Disruption Budgets").
    """
    runs: list[Plain] = [
        {"nodes": "100%", "reasons": ["Empty"]},
        {"nodes": "0", "reasons": ["Drifted", "Underutilized"]},
    ]
    return {
        "consolidationPolicy": "WhenEmpty" if spec.empties else "WhenEmptyOrUnderutilized",
        "consolidateAfter": f"{round(spec.kept_s / S_PER_MIN)}m",
        "budgets": runs if spec.empties else [{"nodes": _DISRUPTED_AT_ONCE}],
    }


def node_overlay(action: Action, effect: BuyCommitment) -> dict[str, Plain]:
    """Return the overlay that shows Karpenter the committed rate, so that it fills what is paid for first."""
    return {
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": metadata(
            node_name("trimtab", effect.pool.instance_type, effect.pool.region, effect.option.value), [action]
        ),
        "spec": {
            "requirements": [
                _one_of("node.kubernetes.io/instance-type", effect.pool.instance_type),
                _one_of("topology.kubernetes.io/region", effect.pool.region),
                _one_of("karpenter.sh/capacity-type", "on-demand"),
            ],
            "price": f"{effect.rate_micro_usd_hr / MICRO_PER_USD:.6f}",
        },
    }


def slice_overlay(spec: PoolSpec, cut: Cut) -> dict[str, Plain]:
    """Return the overlay that tells Karpenter how many slots a node of the pool will have, which it cannot know itself."""
    return {
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": metadata(node_name(spec.name, "slices"), spec.actions),
        "spec": {
            "requirements": [
                _one_of("karpenter.sh/nodepool", spec.name),
                _one_of("node.kubernetes.io/instance-type", spec.pool.instance_type),
            ],
            # capacities are laid over the instance type's own: without the 0 it would seem to have whole GPUs too
            "capacity": {GPU_RESOURCE: "0", **_slots(cut, 1)},
        },
    }


def _slots(cut: Cut, nodes: int) -> dict[str, Plain]:
    """Return the extended resources of so many nodes."""
    return {slot_resource(kind): str(count * nodes) for kind, count in cut.slots.items() if count}


def _one_of(key: str, *values: str) -> Mapping[str, Plain]:
    return {"key": key, "operator": "In", "values": list(values)}
