"""Kustomize components that change a workload's own manifest: GPUs a pod asks for, and the node pool that it runs on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import yaml

from trimtab.emit.manifests.facts import SCALABLE, WorkloadFacts
from trimtab.emit.manifests.karpenter import GPU_RESOURCE, GPU_TAINT, HEDGE, SLICES, SPOT_TAINT, SPREAD
from trimtab.emit.manifests.objects import ACTION, action_notes
from trimtab.emit.manifests.pool_specs import PoolSpec
from trimtab.emit.plain import Plain
from trimtab.plan.model import Action

API_VERSIONS: Mapping[str, str] = MappingProxyType(
    {
        "Deployment": "apps/v1",
        "StatefulSet": "apps/v1",
        "Job": "batch/v1",
        "CronJob": "batch/v1",
    }
)
"""Kinds whose pod template's place is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAsk:
    """What a container asks for: whole GPUs or MIG slices."""

    resource: str = GPU_RESOURCE
    count: int = 1

    def __str__(self) -> str:
        return f"{self.resource}: {self.count}"


def patchable(known: WorkloadFacts) -> bool:
    """Tell whether the place of the pod template in the workload's manifest is known."""
    return known.owner_kind in API_VERSIONS


def component(
    known: WorkloadFacts,
    actions: Sequence[Action],
    *,
    asks: GpuAsk | None,
    replicas: int | None,
    nodes: PoolSpec | None,
) -> dict[str, Plain]:
    """Return a kustomize Component with the patches of one workload, to be listed under `components` beside its manifest."""
    target = {"kind": known.owner_kind, "name": known.short_name, "namespace": known.namespace}
    patches: list[Plain] = [{"target": target, "patch": _merge_patch(known, actions, nodes)}]
    if asks is not None:
        patches.append({"target": target, "patch": _gpu_patch(known, asks)})
    if replicas is not None and known.owner_kind in SCALABLE:
        patches.append({"target": target, "patch": _replica_patch(replicas)})
    return {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "metadata": {"name": f"trimtab-{known.short_name}", "annotations": action_notes(actions)},
        "patches": patches,
    }


def _merge_patch(known: WorkloadFacts, actions: Sequence[Action], nodes: PoolSpec | None) -> str:
    pod: dict[str, Plain] = {}
    if nodes is not None:
        pod["nodeSelector"] = _selector(nodes)
        pod["tolerations"] = _tolerations(known, spot=nodes.spot)
        if nodes.spot and not nodes.empties:
            pod["topologySpreadConstraints"] = _spread(known, nodes)
    body: dict[str, Plain] = {
        "apiVersion": API_VERSIONS[known.owner_kind],
        "kind": known.owner_kind,
        "metadata": {
            "name": known.short_name,
            "namespace": known.namespace,
            "annotations": {ACTION: action_notes(actions)[ACTION]},
        },
    }
    if pod:
        spec: Mapping[str, Plain] = {"template": {"spec": pod}}
        body["spec"] = {"jobTemplate": {"spec": spec}} if known.owner_kind == "CronJob" else spec
    return yaml.safe_dump(body, sort_keys=False)


def _selector(nodes: PoolSpec) -> dict[str, Plain]:
    """Return the label of the nodes that it may run on: one that several pools share, where there are several."""
    if nodes.beside:
        return {SLICES: nodes.beside}
    return {HEDGE: nodes.name} if nodes.one_in else {"karpenter.sh/nodepool": nodes.name}


def _spread(known: WorkloadFacts, nodes: PoolSpec) -> list[Plain]:
    """Spread a service's replicas over zones where it can be, and over the floor's pool and the spot pool at all events.

    The empty selector with a revision's hash means the pods of this very rollout.
    """
    revision = "controller-revision-hash" if known.owner_kind == "StatefulSet" else "pod-template-hash"
    keys = [("topology.kubernetes.io/zone", "ScheduleAnyway"), *([(SPREAD, "DoNotSchedule")] if nodes.one_in else [])]
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": otherwise,
            "labelSelector": {},
            "matchLabelKeys": [revision],
        }
        for key, otherwise in keys
    ]


def _tolerations(known: WorkloadFacts, *, spot: bool) -> list[Plain]:
    """Return the tolerations it has and those that the pool needs; a merge replaces the whole list."""
    wanted = [GPU_TAINT, SPOT_TAINT] if spot else [GPU_TAINT]
    kept = [dict(one) for one in known.tolerations if one.get("key") not in {taint["key"] for taint in wanted}]
    ours = [{"key": taint["key"], "operator": "Exists", "effect": taint["effect"]} for taint in wanted]
    return [*kept, *ours]


def _gpu_patch(known: WorkloadFacts, asks: GpuAsk) -> str:
    template = "/spec/jobTemplate/spec/template" if known.owner_kind == "CronJob" else "/spec/template"
    limits = f"{template}/spec/containers/0/resources/limits"
    before, after = (f"{limits}/{name.replace('/', '~1')}" for name in (GPU_RESOURCE, asks.resource))
    steps = [{"op": "replace", "path": after, "value": str(asks.count)}]
    if asks.resource != GPU_RESOURCE:
        steps = [{"op": "remove", "path": before}, {"op": "add", "path": after, "value": str(asks.count)}]
    return yaml.safe_dump(steps, sort_keys=False)


def _replica_patch(replicas: int) -> str:
    return yaml.safe_dump([{"op": "replace", "path": "/spec/replicas", "value": replicas}], sort_keys=False)
